"""One call at a time trains a LaRankSVC, and what it has not finished is never seen.

A run is changed in place, by compiled code, and an interrupt or an error may come at any moment.
So the model consists of arrays that nobody writes to (`Kept`) and that are replaced together, in
one assignment, when a call is done. The run that makes the next ones, with its cache of kernel
values, lies on a bench between two calls. A call takes it away and puts it back when it is done;
where it is missing, it is made again from what was kept.

Benches belong to a process and are no part of a model: copies, pickles and clones have their own,
and so has a forked process, in which the thread that held a lock does not exist.
"""

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from dask_mcsvm.solvers.larank import Kernel, LaRank, rebuild

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Kept:
    """A run as it was when a call was done: parameters, and arrays that are only read."""

    parameters: dict[str, Any]
    state: dict[str, Any]

    @classmethod
    def of(cls, run: LaRank) -> "Kept":
        return cls(run.parameters, run.export())

    @property
    def kernel(self) -> Kernel:
        kernel: Kernel = self.parameters["kernel"]
        return kernel

    @property
    def dtype(self) -> np.dtype[Any]:
        dtype: np.dtype[Any] = self.parameters["dtype"]
        return dtype

    def run(self) -> LaRank:
        """A run that goes on from here."""
        return rebuild(self.parameters, self.state)


class Bench:
    """Where the run of one model lies between two calls, and the lock of those calls."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.last: tuple[Kept, LaRank] | None = None

    def take(self, kept: Kept) -> LaRank:
        """The run that goes on from `kept`. It is gone from here, should the call not finish."""
        last, self.last = self.last, None
        return last[1] if last is not None and last[0] is kept else kept.run()


_benches: WeakKeyDictionary[Any, Bench] = WeakKeyDictionary()


def bench_of(model: Any) -> Bench:
    """The bench of a model in this process."""
    return _benches.setdefault(model, Bench())


def _forget() -> None:
    global _benches
    _benches = WeakKeyDictionary()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def turn(model: Any) -> threading.Lock:
    """The lock to hold while a model is trained.

    A `with` statement takes and gives back such a lock without a moment at which an interrupt
    could leave it taken; `acquire(blocking=False)` has one. Two threads that ask in the same
    moment may both be told that it is free: then one waits for the other.

    Raises
    ------
    RuntimeError
        If it is taken.
    """
    lock = bench_of(model).lock
    if lock.locked():
        raise RuntimeError(
            f"this {type(model).__name__} is being trained by another call of fit or partial_fit; "
            "wait until that returns, or train a copy made with copy.deepcopy."
        )
    return lock


def one_at_a_time(method: Callable[Concatenate[T, P], T]) -> Callable[Concatenate[T, P], T]:
    """A method that trains, and raises while another one does."""

    @wraps(method)
    def alone(self: T, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with turn(self):
            return method(self, *args, **kwargs)

    return alone
