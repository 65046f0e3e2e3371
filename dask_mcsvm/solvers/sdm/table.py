"""Rows laid out for visits: what a visit reads and writes of a row on one line of the cache.

Rows are visited in random order, so that each array of theirs costs a visit some hundred cycles of
waiting for memory. The fields of one record cost that once: 1,800,000 rows of text take 0.87 of the
time, on two threads 0.95. Kernels see the fields as arrays whose numbers stand apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dask_mcsvm.solvers.kernels.dual_variables import SparseAlpha
from dask_mcsvm.solvers.kernels.rows import read_only_view

from .initial_duals import with_room
from .intercept import Sweep
from .sweeps import Data, Frequencies, Scratch, full_sweep

#: Bytes of a line of the cache, and of a record.
LINE = 64
#: Fields of lists of variables that tell where in its pool each of them is.
PLACES = ("start", "size", "room")


@dataclass
class Table:
    """Some rows and their variables, for one who visits them."""

    data: Data
    alpha: np.ndarray | SparseAlpha
    preference: np.ndarray  # (n,) float64, see `Frequencies`
    seen: np.ndarray  # (n, 2) float64: loss and gap of each row as last seen
    average: np.ndarray  # (1,) float64
    turn: np.ndarray  # (n,) int32, for whoever asks which rows were visited since when

    @classmethod
    def lay(
        cls,
        data: Data,
        alpha: np.ndarray | SparseAlpha,
        preference: np.ndarray,
        seen: np.ndarray,
        average: np.ndarray,
    ) -> Table:
        """Copy what is known of each row into a record; pools, a dense alpha, average stay."""
        n, kind = data.y.size, record_type(data.C.dtype)
        memory = np.zeros((n + 1) * LINE, np.uint8)
        begin = -memory.ctypes.data % LINE
        records = memory[begin : begin + n * LINE].view(kind)
        records["y"], records["C"], records["square"] = data.y, data.C, data.square
        records["preference"], records["seen"] = preference, seen
        if isinstance(alpha, SparseAlpha):
            places = {name: records[name] for name in PLACES}
            for name, place in places.items():
                place[:] = getattr(alpha, name)
            alpha = alpha._replace(**places)
        y, C, square = (read_only_view(records[name]) for name in ("y", "C", "square"))
        data = data._replace(y=y, C=C, square=square)
        return cls(
            data, alpha, records["preference"], records["seen"], average, records["turn"]
        )

    def sweep(
        self,
        loss: Any,
        order: np.ndarray,
        W: np.ndarray,
        shift: np.ndarray,
        fresh: int,
        span: int,
        scratch: Scratch,
    ) -> Sweep:
        """Full visits in ``order``; the kernel stops early where lists need a larger pool."""
        position, done = 0, Sweep()
        frequencies = Frequencies(self.preference, self.average, span)
        while position < order.size:
            self.alpha = with_room(self.alpha, loss.k)
            position, *what = full_sweep(
                loss, self.data, order, position, W, shift, self.alpha, fresh, frequencies,
                self.seen, scratch,
            )  # fmt: skip
            done += Sweep(*what)
        return done

    @property
    def variables(self) -> np.ndarray | SparseAlpha:
        """The variables, lists with their places in arrays of their own."""
        return lay_apart(self.alpha)


def record_type(dtype: np.dtype) -> np.dtype:
    """A record of rows of some float type."""
    lists = [("start", "i8"), ("size", "i4"), ("room", "i4")]
    rest = [("square", "f8"), ("seen", "f8", 2), ("preference", "f8"), ("C", dtype), ("y", "i4")]
    fields = [*lists, *rest, ("turn", "i4")]
    used = np.dtype(fields).itemsize
    return np.dtype([*fields, ("spare", f"V{LINE - used}")] if used < LINE else fields)


def with_places_of(
    alpha: np.ndarray | SparseAlpha, other: np.ndarray | SparseAlpha
) -> np.ndarray | SparseAlpha:
    """Lists in pools of their own that begin where those of another begin."""
    if not (isinstance(alpha, SparseAlpha) and isinstance(other, SparseAlpha)):
        return alpha
    return alpha._replace(**{name: getattr(other, name) for name in PLACES})


def lay_apart(alpha: np.ndarray | SparseAlpha) -> np.ndarray | SparseAlpha:
    """Lists whose places stand in arrays of their own, for whoever does not visit rows."""
    if not isinstance(alpha, SparseAlpha):
        return alpha
    places = {name: np.ascontiguousarray(getattr(alpha, name)) for name in PLACES}
    return alpha._replace(**places)
