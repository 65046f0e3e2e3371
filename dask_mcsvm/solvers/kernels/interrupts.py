"""Ctrl-C waits while Numba compiles or loads a kernel.

An interrupt in the middle of it leaves LLVM's objects half built: llvmlite then frees a string
twice and the process aborts, or the interrupt ends in a callback from C and is lost. A second
Ctrl-C waits for nothing.
"""

from __future__ import annotations

import signal
import threading
from typing import Any

from numba.core import event
from numba.core.compiler_lock import global_compiler_lock


class HeldInterrupts(event.Listener):
    """Hears when this process asks for the lock of Numba's compiler and gives it back."""

    def __init__(self) -> None:
        self._before: Any = None  # the handler that waits, if one does
        self._came = False

    def on_start(self, event: Any) -> None:
        """The lock is asked for; a thread that has it may ask again."""
        if _is_main_thread() and self._before is None:
            handler = signal.getsignal(signal.SIGINT)
            if callable(handler):
                signal.signal(signal.SIGINT, self._remember)
                self._before = handler

    def on_end(self, event: Any) -> None:
        """It is given back; what came meanwhile is delivered when that was the last time."""
        if _is_main_thread() and self._before is not None and not global_compiler_lock.is_locked():
            came = self._came
            self._restore()
            if came:
                signal.raise_signal(signal.SIGINT)

    def _remember(self, number: int, frame: Any) -> None:
        """Of two interrupts the second is delivered: nothing may follow that would do it later."""
        if not self._came:
            self._came = True
            return
        handler = self._before
        self._restore()
        handler(number, frame)

    def _restore(self) -> None:
        handler, self._before, self._came = self._before, None, False
        signal.signal(signal.SIGINT, handler)


def _is_main_thread() -> bool:
    """Python raises interrupts in no other."""
    return threading.current_thread() is threading.main_thread()
