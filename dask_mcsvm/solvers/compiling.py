"""Whether kernels are compiled: the first call of a kind takes seconds, later ones find it kept."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from numba.core import event


@contextmanager
def on_compile(listener: Callable[[], object]) -> Iterator[None]:
    """Call this once if a kernel has to be compiled in this process, not found in the cache."""
    told = _Once(listener)
    event.register("numba:compile", told)
    try:
        yield
    finally:
        event.unregister("numba:compile", told)


class _Once(event.Listener):
    """Hears the beginning of the first compilation."""

    def __init__(self, listener: Callable[[], object]) -> None:
        self._listener: Callable[[], object] | None = listener

    def on_start(self, event: Any) -> None:
        """A kernel is compiled."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener()

    def on_end(self, event: Any) -> None:
        """It is done; others may follow."""
