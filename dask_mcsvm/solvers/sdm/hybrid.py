"""Who owns a W of lists and dense rows: makes room for it, and turns it into other forms."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

from dask_mcsvm.solvers.kernels.hybrid_certify import (
    count_duals,
    list_columns,
    put_columns,
    sort_duals,
)
from dask_mcsvm.solvers.kernels.hybrid_weights import (
    MORE,
    ROOMS,
    USED,
    Hybrid,
    clear_weights,
    count_classes,
    hybrid_square_sum,
    put_classes,
    tidy_lists,
)
from dask_mcsvm.solvers.sparse_weights import SparseWeights

#: A feature of more than k / SHARE classes has a dense row. Memory would have it at k / 2; what
#: decides is that a weight of a list takes as long as several of a dense row.
SHARE = 8
#: So many classes have numbers of 16 bits, of which lists are a quarter shorter.
SHORT_CLASSES = 2**16
#: Pools grow by this share of themselves. They are moved by the system without a copy where it can.
GROWTH = 8
#: Lists are moved together instead where holes between them take this share of their pools.
HOLES = 5
#: Variables that are put in the order of classes at a time.
SORTED = 2**22


class HybridWeights:
    """W (d + 1, k) of a run; ``lists`` is what kernels take.

    Pools are made larger in place: whoever has the arrays of ``lists`` has the larger ones.
    """

    def __init__(self, d: int, k: int, dtype: np.dtype, longest: int, *, limit: int | None = None):
        """For rows of at most ``longest`` nonzeros, within a ``limit`` of bytes."""
        self.limit = limit
        record = np.zeros(d, [("start", "i8"), ("size", "i4"), ("room", "i4")])
        classes = np.empty(0, np.uint16 if k <= SHORT_CLASSES else np.int32)
        self.lists = Hybrid(
            record["start"], record["size"], record["room"], classes,
            np.empty(0, dtype), np.zeros((1, k), dtype), np.zeros(5, np.int64),
            np.full(ROOMS, -1), max(1, k // SHARE), *working_space(longest, k, dtype),
        )  # fmt: skip

    @property
    def dtype(self) -> np.dtype:
        return self.lists.values.dtype

    @property
    def dense(self) -> np.ndarray:
        """Its last row is that of the constant feature."""
        return self.lists.dense

    @property
    def nbytes(self) -> int:
        W = self.lists
        places = W.start.size * (8 + 4 + 4)
        return int(W.classes.nbytes + W.values.nbytes + W.dense.nbytes + places)

    def for_thread(self) -> Hybrid:
        """The same weights with working space of its own."""
        W = self.lists
        found, at, place, hit = working_space(W.found.size, W.place.size, W.found.dtype)
        return W._replace(found=found, at=at, place=place, hit=hit)

    def make_room(self) -> None:
        """What a kernel found lacking, and a share of what there is."""
        W = self.lists
        _, rows, freed, more, more_rows = W.counts.tolist()
        if more and freed > max(more, W.classes.size // HOLES):
            tidy_lists(W, np.argsort(W.start, kind="stable"))
        used = int(W.counts[USED])
        if used + more > W.classes.size:
            self._resize(used + more, used // GROWTH, W.classes, W.values)
        if more_rows:
            last = W.dense[-1].copy()
            self._resize(1 + rows + more_rows, rows // GROWTH, W.dense)
            W.dense[-1] = last
        W.counts[MORE:] = 0

    def _resize(self, size: int, more: int, *pools: np.ndarray) -> None:
        """Pools of ``size``, and ``more`` if the limit has room for that."""
        unit = sum(math.prod(pool.shape[1:]) * pool.itemsize for pool in pools)
        others = self.nbytes - sum(pool.nbytes for pool in pools)
        if self.limit is not None:
            if others + size * unit > self.limit:
                raise MemoryError(
                    f"W takes {others + size * unit:,} bytes as lists, more than memory_limit="
                    f"{self.limit}; raise memory_limit, or pass "
                    "dask.array.from_array(X, chunks=(10_000, -1))."
                )
            more = min(more, (self.limit - others) // unit - size)
        resize(size + more, *pools)

    def take_duals(self, loss, data, C, alpha, scratch) -> tuple[float, float]:
        """Become W(alpha); returns the dual's linear part and ‖W‖², in float64."""
        k, d = loss.k, self.lists.start.size
        counts = np.zeros(k, np.int64)
        linear = count_duals(loss, data.y, C, data.margins, alpha, counts, scratch)
        clear_weights(self.lists)
        squares, space = np.zeros(k), column_space(d)
        for first, *block in sorted_duals(loss, data.y, C, alpha, counts, scratch):
            m, last = first, first + block[0].size - 1
            while m < last:
                self.make_room()
                m = put_columns(data.rows, data.tau, m, first, *block, self.lists, space, squares)
        return linear, float(squares.sum())

    def give_weights(self, loss, data, C, alpha, scratch) -> SparseWeights:
        """W(alpha) class by class, which it is; its lists are given up, so as not to have both."""
        d, dtype, last = self.lists.start.size, self.dtype, self.dense[-1].copy()
        size = int(count_classes(self.lists).sum()) + d  # room for one more class
        self._let_go()
        features, values = np.empty(size, np.int32), np.empty(size, dtype)
        indptr, counts = np.zeros(loss.k + 1, np.int64), np.zeros(loss.k, np.int64)
        space = column_space(d)
        count_duals(loss, data.y, C, data.margins, alpha, counts, scratch)
        for first, *block in sorted_duals(loss, data.y, C, alpha, counts, scratch):
            m, end = first, first + block[0].size - 1
            while m < end:
                m = list_columns(
                    data.rows, data.tau, m, first, *block, space, indptr, features, values
                )
                if m < end:  # visits since the last certificate
                    resize(features.size + d + features.size // GROWTH, features, values)
        resize(indptr[-1], features, values)
        if indptr[-1] <= np.iinfo(np.int32).max:  # SciPy widens the indices to what this is
            indptr = indptr.astype(np.int32)
        columns = sp.csc_array((values, features, indptr), shape=(d, loss.k))
        return SparseWeights(columns, last)

    def _let_go(self) -> None:
        """Give all room back."""
        W = self.lists
        W.size[:], W.room[:], W.counts[:], W.free[:] = 0, 0, 0, -1
        resize(0, W.classes, W.values)
        resize(1, W.dense)

    def take_weights(self, W: SparseWeights) -> None:
        """Become W."""
        clear_weights(self.lists)
        columns, m = W.columns, 0
        while m < columns.shape[1]:
            self.make_room()
            m = put_classes(self.lists, m, columns.indptr, columns.indices, columns.data)
        self.dense[-1] = W.last

    def square_sum(self) -> float:
        """‖W‖² in float64."""
        return float(hybrid_square_sum(self.lists))


def sorted_duals(loss, y, C, alpha, counts, scratch) -> Iterator[tuple[Any, ...]]:
    """Variables class by class: the first class of a block, where classes begin, rows, factors."""
    ends, first = np.cumsum(counts), 0
    while first < counts.size:
        before = ends[first - 1] if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + SORTED, "right")))
        offsets = np.concatenate([[0], np.cumsum(counts[first:last])])
        who, factors = np.empty(offsets[-1], np.int32), np.empty(offsets[-1])
        sort_duals(loss, y, C, alpha, first, last, offsets[:-1].copy(), who, factors, scratch)
        yield first, offsets, who, factors
        first = last


def resize(size: int, *pools: np.ndarray) -> None:
    """Change the length of arrays in place, which costs no second copy."""
    for pool in pools:
        pool.resize((size, *pool.shape[1:]), refcheck=False)


def column_space(d: int) -> tuple[np.ndarray, ...]:
    """Sums of a class and marks of its features, zeros before and after; and room to list them.

    The marks are there a second time, as words of eight.
    """
    marks = np.zeros(-(-d // 8) * 8, np.uint8)
    return np.zeros(d + 1), marks, marks.view(np.uint64), np.empty(d, np.int32)


def working_space(longest: int, k: int, dtype: np.dtype) -> tuple[np.ndarray, ...]:
    """Of one thread, for rows of so many nonzeros."""
    return (
        np.zeros(longest, dtype), np.zeros(longest, np.int32), np.zeros(k, np.int32),
        np.zeros(k + 1, np.int64),
    )  # fmt: skip
