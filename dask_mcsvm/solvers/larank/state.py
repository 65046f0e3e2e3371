"""Arrays of a LaRank run: support patterns, their rows, counters. They grow in Python, never inside
a kernel: a kernel that lacks room returns and is called again.

A *support pattern* is an example with nonzero coefficients, a *support vector* one of its classes.
Patterns live in slots 0..P-1; when one is dropped the last takes its slot.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numba import types

from dask_mcsvm.solvers.kernels.jit import bare_by_type

NEW, OLD, OPTIMIZE = 0, 1, 2
REMOVE = 3  #: not scheduled: what max_support asks for

# Places in ``Tally.counts``.
PATTERNS = 0  #: support patterns now
VECTORS = 1  #: support vectors now
NEXT = 2  #: place in the block of the next example to process
OPERATION = 3  #: what runs, and
LEFT = 4  #: how many steps of it are left
TURN = 5  #: of the fixed schedule
USED = 6  #: end of the CSR pool of the pattern rows
ARG_MAX = 7
EVALUATIONS = 8  #: kernel values computed
HITS = 9  #: kernel rows of patterns found in the cache
MISSES = 10  #: ... and computed again
STEPS = 11  #: successful SMOSTEPs
REMOVED = 12  #: patterns removed by max_support
WANTED = 13  #: slot whose kernel row Python has to compute
WIDEST = 14  #: most classes of one pattern so far
LONGEST = 15  #: most support vectors of one class so far
FREE = 16  #: free rows of the cache
HAND = 17  #: of the clock that chooses which cached row gives way
PERFORMED = 18  #: 18, 19, 20: operations performed, by kind
N_COUNTS = 21

# Places in ``Tally.sums``.
GAIN, COST, SECONDS = 0, 1, 2  #: of the operation that runs
DUAL, DUAL_LOST = 3, 4
LEAST = 5  #: what the next removal by max_support costs the dual
N_SUMS = 6


class Tally(NamedTuple):
    """Everything that changes in a run besides patterns and model."""

    counts: np.ndarray  # (N_COUNTS,) int64
    sums: np.ndarray  # (N_SUMS,) float64
    ratio: np.ndarray  # (3,) float64: rise of the dual per cost of each operation
    generator: np.ndarray  # (1,) uint64: state of splitmix64
    clock: np.ndarray  # (2,) int64: scratch of the system's clock
    g: np.ndarray  # (k,) float64: gradients of the example looked at
    delta: np.ndarray  # (k,): changes of coefficients, in the precision of the model


class Patterns(NamedTuple):
    """What is known of each support pattern, by slot."""

    ids: np.ndarray  # (capacity,) int64: number of the example in the stream or set
    label: np.ndarray  # (capacity,) int32
    cost: np.ndarray  # (capacity,) float64: C_i
    square: np.ndarray  # (capacity,) float64: K(x_i, x_i)
    held: np.ndarray  # (capacity,) int32: how many support vectors it has
    classes: np.ndarray  # (capacity, width) int32: their classes, the own class first
    beta: np.ndarray  # (capacity, width) float64


class Block(NamedTuple):
    """Examples to process: ``order`` lists rows of a set of n rows."""

    rows: np.ndarray | tuple[np.ndarray, np.ndarray, np.ndarray]
    y: np.ndarray  # (n,) int32
    C: np.ndarray  # (n,) float64
    square: np.ndarray  # (n,) float64: K(x_i, x_i)
    base: int  # id of row 0
    order: np.ndarray  # (b,) int64
    slot_of: np.ndarray  # (n,) int32: slot of a row that is a pattern, else -1
    seen: np.ndarray  # (n,) float64: C_i times its loss when last looked at
    values: np.ndarray  # (b, P at the start + b): kernel values; (0, 0) if none are needed


class Limits(NamedTuple):
    """Parameters of a pass."""

    tau: float  # a violation to step at is larger
    schedule: int  # 0 by cost, 1 by time, 2 in turn
    enabled: np.ndarray  # (3,) float64: 0.0 leaves an operation out
    seconds_new: float  # what a kernel row of a new example cost outside
    max_support: int
    width: np.ndarray  # (n,) float64: cost of a kernel value; nonzeros of row i if W is kept


def new_patterns(capacity: int, width: int) -> Patterns:
    """Room for so many patterns of so many classes."""
    return Patterns(
        np.empty(capacity, np.int64),
        np.empty(capacity, np.int32),
        np.empty(capacity),
        np.empty(capacity),
        np.zeros(capacity, np.int32),
        np.zeros((capacity, width), np.int32),
        np.zeros((capacity, width)),
    )


def enlarged(array: np.ndarray, *shape: int) -> np.ndarray:
    """A larger array that begins with `array`; what is new is zero."""
    out = np.zeros(shape, array.dtype)
    out[tuple(map(slice, array.shape))] = array
    return out


# -- rows of the patterns --------------------------------------------------------------------------
#
# Dense: an array (capacity, d). CSR: (data, indices, bounds), where slot p lies between bounds[2p]
# and bounds[2p + 1], so that functions of ``kernels.rows`` read it as row 2p.


def new_store(is_sparse: bool, d: int, dtype: np.dtype, capacity: int, room: int):
    """Room for rows of `capacity` patterns, with `room` entries if they are CSR."""
    if not is_sparse:
        return np.empty((capacity, d), dtype)
    return (np.empty(room, dtype), np.empty(room, np.int32), np.zeros(2 * capacity, np.int64))


def grown_store(store, used: int, count: int, capacity: int, room: int):
    """The store with more room, entries of dropped patterns left out; and the pool's new end."""
    if isinstance(store, np.ndarray):
        out = np.empty((capacity, store.shape[1]), store.dtype)
        out[:count] = store[:count]
        return out, 0
    data, indices, bounds = store
    start, stop = bounds[: 2 * count : 2], bounds[1 : 2 * count : 2]
    ends = np.cumsum(stop - start)
    kept = positions(start, stop)
    new = new_store(True, 0, data.dtype, capacity, room)
    new[0][: kept.size], new[1][: kept.size] = data[kept], indices[kept]
    new[2][: 2 * count : 2], new[2][1 : 2 * count : 2] = ends - (stop - start), ends
    return new, kept.size


def positions(start: np.ndarray, stop: np.ndarray) -> np.ndarray:
    """All places from start[p] to stop[p], pattern after pattern."""
    sizes = stop - start
    before = np.cumsum(sizes) - sizes
    return np.repeat(start - before, sizes) + np.arange(sizes.sum())


def stored_rows(store, count: int, d: int):
    """Rows of the first `count` slots as an array or csr_array of their own."""
    if isinstance(store, np.ndarray):
        return store[:count].copy()
    (data, indices, bounds), end = grown_store(store, 0, count, count, int(store[0].size))
    indptr = np.concatenate([[0], bounds[1::2]])
    rows = sp.csr_array((data[:end], indices[:end], indptr), shape=(count, d))
    # Assigned, because the constructor chooses one type for both.
    rows.indices, rows.indptr = rows.indices.astype(np.int32), rows.indptr.astype(np.int64)
    return rows


def slot_row(store, p):
    """The number by which functions of ``kernels.rows`` know slot p."""


def store_put(store, p, rows, i, counts):
    """Copy row i of `rows` to slot p."""


def store_move(store, source, target):
    """Slot `target` takes over the row of slot `source`."""


def row_size(rows, i):
    """Stored entries of row i."""


def store_has_room(store, size, counts):
    """Whether a row of `size` entries fits."""


@bare_by_type(slot_row)
def _slot_row(store, p):
    if isinstance(store, types.Array):
        return lambda store, p: p
    return lambda store, p: 2 * p


@bare_by_type(row_size)
def _row_size(rows, i):
    if isinstance(rows, types.Array):
        return lambda rows, i: rows.shape[1]
    return lambda rows, i: rows[2][i + 1] - rows[2][i]


@bare_by_type(store_has_room)
def _store_has_room(store, size, counts):
    if isinstance(store, types.Array):
        return lambda store, size, counts: True
    return lambda store, size, counts: counts[USED] + size <= store[0].size


@bare_by_type(store_put)
def _store_put(store, p, rows, i, counts):
    if isinstance(store, types.Array):

        def dense(store, p, rows, i, counts):
            for j in range(store.shape[1]):
                store[p, j] = rows[i, j]

        return dense

    def csr(store, p, rows, i, counts):
        data, indices, bounds = store
        start, stop, end = rows[2][i], rows[2][i + 1], counts[USED]
        for e in range(stop - start):
            data[end + e] = rows[0][start + e]
            indices[end + e] = rows[1][start + e]
        bounds[2 * p] = end
        bounds[2 * p + 1] = end + stop - start
        counts[USED] = end + stop - start

    return csr


@bare_by_type(store_move)
def _store_move(store, source, target):
    if isinstance(store, types.Array):

        def dense(store, source, target):
            for j in range(store.shape[1]):
                store[target, j] = store[source, j]

        return dense

    def csr(store, source, target):
        store[2][2 * target] = store[2][2 * source]
        store[2][2 * target + 1] = store[2][2 * source + 1]

    return csr
