"""One BLAS thread per caller, wherever several callers share a process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

_lock = threading.Lock()
_inside = 0
_limit: Any = None


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Products within run on the calling thread; threads belong to the caller.

    The limit is one of the process: the first of several threads sets it and the last lifts it.
    """
    global _inside, _limit
    with _lock:
        if _inside == 0:
            _limit = _controller().limit(limits=1, user_api="blas")
            _limit.__enter__()
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                _limit.__exit__(None, None, None)


@cache
def _controller() -> Any:
    """The libraries that NumPy and SciPy have loaded; to find them takes milliseconds."""
    return ThreadpoolController()
