"""A line per epoch through `logging`, and the user's callbacks."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from dask_mcsvm.progress import Record, line_of, listening

logger = logging.getLogger("dask_mcsvm")


@contextmanager
def progress(
    verbose: int, callbacks: Sequence[Callable[[Record], object]]
) -> Iterator[Callable[[Record], bool]]:
    """Yields the `on_epoch` of one fit: it logs, calls back, and says whether to stop.

    A callback that has a `close` method is closed when the fit ends, however it ends; one that has
    a `note` method hears of epochs that take long.
    """

    def on_epoch(record: Record) -> bool:
        if verbose:
            logger.info("%s", line_of(record))
        # Each gets its own copy (the record stays in history_), and each is called, also after
        # another has asked to stop. Only True stops: many functions return something by habit.
        answers = [callback(dict(record)) for callback in callbacks]
        return any(isinstance(a, bool | np.bool_) and bool(a) for a in answers)

    notes = [c.note for c in callbacks if callable(getattr(c, "note", None))]  # type: ignore[attr-defined]
    with _audible_logger() if verbose else _silence(), listening(notes):
        try:
            yield on_epoch
        finally:
            for callback in callbacks:
                close = getattr(callback, "close", None)
                if callable(close):
                    close()


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
