"""A line per epoch through `logging`, and the user's callbacks."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

logger = logging.getLogger("dask_mcsvm")

Record = dict[str, Any]


@contextmanager
def progress(
    verbose: int, callbacks: Sequence[Callable[[Record], object]]
) -> Iterator[Callable[[Record], bool]]:
    """Yields the `on_epoch` of one fit: it logs, calls back, and says whether to stop."""

    def on_epoch(record: Record) -> bool:
        if verbose:
            logger.info("%s", line_of(record))
        # Each gets its own copy (the record stays in history_), and each is called, also after
        # another has asked to stop. Only True stops: many functions return something by habit.
        answers = [callback(dict(record)) for callback in callbacks]
        return any(isinstance(a, bool | np.bool_) and bool(a) for a in answers)

    with _audible_logger() if verbose else _silence():
        yield on_epoch


@contextmanager
def _silence() -> Iterator[None]:
    yield


@contextmanager
def _audible_logger() -> Iterator[None]:
    """Make INFO reach the terminal of a user who has not configured logging, for this fit only."""
    handler = None if logger.hasHandlers() else logging.StreamHandler()
    level = logger.level
    if handler is not None:
        handler.setFormatter(logging.Formatter("%(message)s"))
        logger.addHandler(handler)
    if level == logging.NOTSET:  # a level that somebody chose stays
        logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(level)
        if handler is not None:
            logger.removeHandler(handler)


def line_of(record: Record) -> str:
    """One epoch in words; what was not measured in it is left out.

    Examples
    --------
    >>> line_of({"epoch": 3, "seconds": 0.41, "gap": 0.027, "active": 0.5})
    'epoch 3  0.41 s  gap 2.7e-02  active 50%'
    """
    formats = {
        "primal": "primal {:.6g}",
        "dual": "dual {:.6g}",
        "gap": "gap {:.1e}",
        "active": "active {:.0%}",
    }
    # A schedule may cut an epoch short or run over it: 3, but also 3.27.
    parts = [f"epoch {round(record['epoch'], 2):g}", f"{record['seconds']:.2f} s"]
    for name, text in formats.items():
        value = record.get(name)
        if value is not None and np.isfinite(value):
            parts.append(text.format(value))
    return "  ".join(parts)
