"""Sparse variables of the rows of one group: as state, and as what kernels work on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from dask_mcsvm.solvers.duals import DENSE_CLASSES
from dask_mcsvm.solvers.kernels.dual_variables import SparseAlpha, positions

Array: TypeAlias = npt.NDArray[Any]


class Lists(NamedTuple):
    """Nonzero variables of some rows for the classes of one group, row by row.

    Weston-Watkins leaves most variables at zero: 8 bytes (in float32) for each that is not, and 4
    for a row.
    """

    size: npt.NDArray[np.int32]  # (rows,) how many there are
    classes: npt.NDArray[np.int32]  # (nonzeros,) places in the group
    values: Array  # (nonzeros,)

    def total(self) -> float:
        """Σ alpha."""
        return float(self.values.sum(dtype=np.float64))

    def rows(self) -> npt.NDArray[np.intp]:
        """The row of each nonzero."""
        return np.repeat(np.arange(self.size.size), self.size)


def alpha_of(pieces: Sequence[Lists], sizes: Sequence[int], dtype: Any) -> Array | SparseAlpha:
    """The variables of some rows for the classes of several groups, side by side.

    Dense for few classes, as in the local solver; otherwise lists in a pool with room to grow.
    """
    n, k = pieces[0].size.size, sum(sizes)
    firsts = np.cumsum([0, *sizes[:-1]]).tolist()
    if k <= DENSE_CLASSES:
        dense: Array = np.zeros((n, k), dtype)
        for first, lists in zip(firsts, pieces, strict=True):
            dense[lists.rows(), first + lists.classes] = lists.values
        return dense
    size = np.zeros(n, np.int64)
    for lists in pieces:
        size += lists.size
    room = size + size // 2 + 2
    start = np.cumsum(room) - room
    used = int(room.sum())
    classes, values = np.empty(2 * used + 2 * k, np.int32), np.empty(2 * used + 2 * k, dtype)
    begin = start.copy()
    for first, lists in zip(firsts, pieces, strict=True):
        target = positions(begin, lists.size)
        classes[target], values[target] = first + lists.classes, lists.values
        begin += lists.size
    return SparseAlpha(
        start, size.astype(np.int32), room.astype(np.int32), classes, values,
        np.array([used], np.int64),
    )  # fmt: skip


def lists_of(alpha: Array | SparseAlpha, sizes: Sequence[int]) -> list[Lists]:
    """What `alpha_of` put side by side, apart again."""
    ends = np.cumsum(sizes)
    if isinstance(alpha, np.ndarray):
        pieces = np.split(alpha, ends[:-1], axis=1)
        held = [piece != 0 for piece in pieces]
        return [
            Lists(h.sum(axis=1, dtype=np.int32), np.nonzero(h)[1].astype(np.int32), piece[h])
            for piece, h in zip(pieces, held, strict=True)
        ]
    source, n = positions(alpha.start, alpha.size), alpha.size.size
    rows, classes = np.repeat(np.arange(n), alpha.size), alpha.classes[source]
    values, group = alpha.values[source], np.searchsorted(ends, classes, side="right")
    found = []
    for g, size in enumerate(sizes):
        mine = group == g
        count = np.bincount(rows[mine], minlength=n).astype(np.int32)
        first = np.int32(ends[g] - size)
        found.append(Lists(count, classes[mine] - first, values[mine]))
    return found


def prefixed(lists: Mapping[str, Lists]) -> dict[str, Array]:
    """The arrays of several lists under names of their own."""
    return {
        f"{name}_{part}": array
        for name, held in lists.items()
        for part, array in held._asdict().items()
    }


def lists_from(arrays: Mapping[str, Array], name: str) -> Lists:
    """One of the lists that `prefixed` took apart."""
    return Lists(*(arrays[f"{name}_{part}"] for part in Lists._fields))
