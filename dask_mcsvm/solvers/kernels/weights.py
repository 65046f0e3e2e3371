"""The layouts of W (d + 1, k), and what the nonzeros of a row do with each of them.

W is a dense array, one that a thread makes notes of, or `Hybrid`. ``values`` and ``columns`` hold
the nonzeros begin..end of a row; a dense row has columns None.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types

from .dense_weights import scores, scores_of, update
from .hybrid_weights import (
    Hybrid,
    hybrid_has_room,
    hybrid_scores,
    hybrid_scores_of,
    hybrid_update,
)
from .jit import bare_by_type
from .simd import prefetch
from .standard_rows import kind_of

#: Numbers in a cache line (float32).
LINE = 16
#: Rows of W of no more entries are fetched ahead, too: 6,500,000 examples of 58 classes take 0.92
#: of the time, 11,314 of 20 classes 0.83. With 1,000 classes it would be 1.15.
SHORT = 64


class Noted(NamedTuple):
    """W (d + 1, k) of one of several threads, and where it notes what is added to it."""

    W: np.ndarray
    moves: NamedTuple  # those of all threads, see `dask_mcsvm.solvers.sdm.moves`
    thread: int
    progress: np.ndarray  # (3,) int64: how far the thread is with its notes
    repeated: np.ndarray  # (threads,) int64: how many moves of each it has repeated
    tau: np.floating  # the constant feature of moves
    others: np.ndarray  # (k,) float64: what others' moves added to the last row


def weighted(values, columns, begin, end, W, tau, s):
    """s = tau W[-1] + Σ_p values[p] W[columns[p]]."""


def weighted_of(values, columns, begin, end, W, tau, classes, q, s):
    """s[c] = tau W[-1, classes[c]] + Σ_p values[p] W[columns[p], classes[c]] for c < q."""


def add_weights(values, columns, begin, end, W, tau, classes, delta, q):
    """W[columns[p], classes[c]] += values[p] delta[c] for c < q, and tau delta[c] in the last row.

    No class is listed twice.
    """


def have_room(columns, begin, end, W, q):
    """Whether q classes of these features can change now."""


def fetch_weights(columns, begin, end, W):
    """Ask the cache for what scores with these nonzeros will read, where that is little."""


@bare_by_type(weighted)
def _weighted(values, columns, begin, end, W, tau, s):
    if isinstance(W, types.Array):
        return lambda values, columns, begin, end, W, tau, s: scores(
            values, columns, begin, end, W, tau, s
        )
    if kind_of(W) is Hybrid:
        return lambda values, columns, begin, end, W, tau, s: hybrid_scores(
            values, columns, begin, end, W, tau, s
        )
    return lambda values, columns, begin, end, W, tau, s: scores(
        values, columns, begin, end, W.W, tau, s
    )


@bare_by_type(weighted_of)
def _weighted_of(values, columns, begin, end, W, tau, classes, q, s):
    if isinstance(W, types.Array):
        return lambda values, columns, begin, end, W, tau, classes, q, s: scores_of(
            values, columns, begin, end, W, tau, classes, q, s
        )
    if kind_of(W) is Hybrid:
        return lambda values, columns, begin, end, W, tau, classes, q, s: hybrid_scores_of(
            values, columns, begin, end, W, tau, classes, q, s
        )
    return lambda values, columns, begin, end, W, tau, classes, q, s: scores_of(
        values, columns, begin, end, W.W, tau, classes, q, s
    )


@bare_by_type(add_weights)
def _add_weights(values, columns, begin, end, W, tau, classes, delta, q):
    if isinstance(W, types.Array):
        return lambda values, columns, begin, end, W, tau, classes, delta, q: update(
            values, columns, begin, end, W, tau, classes, delta, q
        )
    if kind_of(W) is Hybrid:
        return lambda values, columns, begin, end, W, tau, classes, delta, q: hybrid_update(
            values, columns, begin, end, W, tau, classes, delta, q
        )
    return lambda values, columns, begin, end, W, tau, classes, delta, q: update(
        values, columns, begin, end, W.W, tau, classes, delta, q
    )


@bare_by_type(have_room)
def _have_room(columns, begin, end, W, q):
    if kind_of(W) is not Hybrid:
        return lambda columns, begin, end, W, q: True
    return lambda columns, begin, end, W, q: hybrid_has_room(columns, begin, end, W, q)


@bare_by_type(fetch_weights)
def _fetch_weights(columns, begin, end, W):
    if kind_of(W) is Hybrid:
        return lambda columns, begin, end, W: None
    if not isinstance(W, types.Array):
        return lambda columns, begin, end, W: fetch_weights(columns, begin, end, W.W)

    def dense(columns, begin, end, W):
        k = W.shape[1]
        if k <= SHORT:
            for p in range(begin, end):
                for m in range(0, k, LINE):
                    prefetch(W, columns[p] * k + m)

    return dense
