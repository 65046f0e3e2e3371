"""Defaults of fits on Dask from ``dask.config``, namespace ``mcsvm``; the file mcsvm.yaml has all.

They are read once for a fit, on the client: workers never ask, and a fit that is a task takes what
its client had read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import dask.config

from .plan import parse_size
from .table import LANES, SAVING, Option

FILE = os.path.join(os.path.dirname(os.path.dirname(__file__)), "mcsvm.yaml")
dask.config.update_defaults(dask.config.merge(*dask.config.collect_yaml([FILE])))

#: Those that are options of solvers.
OPTIONS: dict[str, Option] = {"lanes": LANES, "save_every": SAVING}

_GIVEN: ContextVar[Mapping[str, Any] | None] = ContextVar("given", default=None)


@contextmanager
def given(found: Mapping[str, Any]) -> Iterator[None]:
    """Fits of this thread take these for what is configured, whatever is here."""
    token = _GIVEN.set(found)
    try:
        yield
    finally:
        _GIVEN.reset(token)


def configured() -> dict[str, Any]:
    """What is set, by the names of the arguments: scratch, memory_limit, lanes, save_every."""
    if (here := _GIVEN.get()) is not None:
        return dict(here)
    found = {
        name: dask.config.get(f"mcsvm.{name.replace('_', '-')}", None)
        for name in ("scratch", "memory_limit", *OPTIONS)
    }
    return {name: _checked(name, value) for name, value in found.items() if value is not None}


def _checked(name: str, value: Any) -> Any:
    key = f"mcsvm.{name.replace('_', '-')}"
    if name == "scratch":
        if isinstance(value, str | os.PathLike):
            return os.fspath(value)
        raise ValueError(
            f'{key} of dask.config is {value!r}; it must be a path, such as "/scratch".'
        )
    if name == "memory_limit":
        try:
            size = 0 if isinstance(value, bool) else parse_size(value)
        except (TypeError, ValueError):
            size = 0
        if size > 0:
            return size
        raise ValueError(
            f"{key} of dask.config is {value!r}; it must be a number of bytes above 0, or a text "
            'such as "2GB".'
        )
    try:
        return OPTIONS[name].check(name, value)
    except ValueError:
        raise ValueError(
            f"{key} of dask.config is {value!r}; it must be an integer of 1 or more."
        ) from None
