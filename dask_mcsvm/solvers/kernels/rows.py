"""Rows of X, dense or CSR, against W stored as (d + 1, k), classes contiguous.

``rows`` is a C-contiguous array (n, d), or the triple (data, indices int32, indptr int64) of a CSR
matrix. The constant feature of value ``tau`` is the last row of W and is never stored in X.
Each function has a dense and a CSR body, chosen at compile time. Standardized rows are either
`StandardRows`, dense, or `CentredRows`, sparse ([STD] of docs/math.md).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numba import types

from dask_mcsvm.solvers.standardized import ROUNDING, CentredCsr, DenseStandardized

from .jit import bare_by_type, bare_kernel, bare_part, kernel
from .simd import (
    LANES,
    WIDEST,
    add_shared_1,
    add_shared_2,
    add_shared_4,
    prefetch,
    scores_1,
    scores_2,
    scores_3,
    scores_4,
    scores_of_1,
    scores_of_2,
    scores_of_3,
    scores_of_4,
    update_1,
    update_2,
    update_3,
    update_4,
    update_of_1,
    update_of_2,
    update_of_3,
    update_of_4,
)
from .standard_rows import CentredRows, StandardRows, kind_of, standardize

#: Numbers in a cache line (float32), and how many of a dense row are asked for in advance.
LINE = 16
PREFETCHED = 256
#: Rows of W of no more entries are fetched ahead, too: 6,500,000 examples of 58 classes take 0.92
#: of the time, 11,314 of 20 classes 0.83. With 1,000 classes it would be 1.15.
SHORT = 64


class Shared(NamedTuple):
    """W (d + 1, k) that several threads change: what a visit adds, it adds atomically.

    The last row is a thread's own, and so is the last number of ``common``.
    """

    W: np.ndarray
    common: np.ndarray  # (d + 1, 1), LLW's part of all columns; (0, 1) for the others
    first: np.ndarray  # (1,) int32: the only column of ``common``


def read_only(array: np.ndarray) -> np.ndarray:
    """A view that kernels cannot write to, so that one compiled kernel serves all inputs."""
    return read_only_view(np.ascontiguousarray(array))


def read_only_view(array: np.ndarray) -> np.ndarray:
    """The same numbers, which may stand apart from each other."""
    view = array.view()
    view.flags.writeable = False
    return view


def as_rows(X):
    """What kernels take as ``rows``; nothing is copied when indices are int32 and indptr int64."""
    if isinstance(X, DenseStandardized):
        row = np.empty((1, X.shape[1]), X.dtype)
        return StandardRows(read_only(X.X), read_only(X.mean), read_only(X.inverse), row)
    if isinstance(X, CentredCsr):
        spare = np.empty(0), np.empty(0)
        return CentredRows(as_rows(X.X), read_only(X.common), X.far, read_only(X.shift), *spare)
    if not sp.issparse(X):
        return read_only(X)
    return (
        read_only(X.data),
        read_only(X.indices.astype(np.int32, copy=False)),
        read_only(X.indptr.astype(np.int64, copy=False)),
    )


def row_scores(rows, i, W, tau, s):
    """s[m] = w_m·x_i for all classes m."""


def row_scores_of(rows, i, W, tau, classes, q, s):
    """s[c] = w_{classes[c]}·x_i for c < q."""


def row_update(rows, i, W, tau, classes, delta, q):
    """w_{classes[c]} += delta[c]·x_i for c < q."""


def row_update_all(rows, i, W, tau, delta):
    """w_m += delta[m]·x_i for all classes m, of which there are 8 to 32 (see `updates_all`)."""


def row_dot(rows, i, w, tau):
    """w·x_i for one vector w of length d + 1."""


def row_axpy(rows, i, w, tau, scale):
    """w += scale·x_i for one vector w of length d + 1."""


def place_prefetch(rows, i):
    """Ask the cache where row i is, if that stands somewhere."""


def row_prefetch(rows, i):
    """Ask the cache for row i, which a coming visit will read."""


def weights_prefetch(rows, i, W):
    """Ask the cache for the rows of W that a visit of row i will read, where these are short."""


def row_square(rows, i):
    """‖x_i‖² in float64, the constant feature apart."""


def add_to_all(rows, i, scale):
    """The vectors of centred rows after all columns of W got ``scale`` times row i [LLW]."""


@bare_by_type(add_to_all)
def _add_to_all(rows, i, scale):
    if kind_of(rows) is not CentredRows:
        return lambda rows, i, scale: None

    def centred(rows, i, scale):
        for m in range(rows.spread.size):
            rows.spread[m] += scale
            rows.level[m] += (rows.common[i] - rows.far) * scale

    return centred


@bare_by_type(row_scores)
def _row_scores(rows, i, W, tau, s):
    if kind_of(rows) is StandardRows:
        return lambda rows, i, W, tau, s: row_scores(rows.row, standardize(rows, i), W, tau, s)

    if kind_of(rows) is CentredRows:

        def centred(rows, i, W, tau, s):
            row_scores(rows.csr, i, W, tau, s)
            c, spread, level = rows.common[i], rows.spread, rows.level
            for m in range(spread.size):
                s[m] -= s.dtype.type(c * spread[m] + level[m])  # [STD-S]

        return centred

    if not isinstance(W, types.Array):
        return lambda rows, i, W, tau, s: row_scores(rows, i, W.W, tau, s)

    if isinstance(rows, types.Array):

        def dense(rows, i, W, tau, s):
            scores(rows[i], None, 0, rows.shape[1], W, s.dtype.type(tau), s)

        return dense

    def csr(rows, i, W, tau, s):
        data, indices, indptr = rows
        scores(data, indices, indptr[i], indptr[i + 1], W, s.dtype.type(tau), s)

    return csr


@bare_part
def scores(values, columns, begin, end, W, tau, s):
    """s = tau W[-1] + Σ_p values[p] W[columns[p]] (a dense row has columns None)."""
    k = W.shape[1]
    if k < LANES:
        few_scores(values, columns, begin, end, W, tau, s)
        return
    m = 0
    while k - m > LANES * WIDEST:
        scores_4(values, columns, begin, end, W, tau, m, m + LANES * WIDEST, s)
        m += LANES * WIDEST
    # The last vector may overlap its neighbour; the very last stripe may be the neighbour.
    if k - m > 3 * LANES:
        scores_4(values, columns, begin, end, W, tau, m, k, s)
    elif k - m > 2 * LANES:
        scores_3(values, columns, begin, end, W, tau, m, k, s)
    elif k - m > LANES:
        scores_2(values, columns, begin, end, W, tau, m, k, s)
    else:
        scores_1(values, columns, begin, end, W, tau, m, k, s)


@bare_part
def few_scores(values, columns, begin, end, W, tau, s):
    """The same where the classes do not fill a vector."""
    k, last = W.shape[1], W.shape[0] - 1
    for m in range(k):
        s[m] = tau * W[last, m]
    for p in range(begin, end):
        x, j = s.dtype.type(values[p]), p - begin if columns is None else columns[p]
        for m in range(k):
            s[m] += x * W[j, m]


@bare_by_type(row_scores_of)
def _row_scores_of(rows, i, W, tau, classes, q, s):
    if kind_of(rows) is StandardRows:
        return lambda rows, i, W, tau, classes, q, s: row_scores_of(
            rows.row, standardize(rows, i), W, tau, classes, q, s
        )

    if kind_of(rows) is CentredRows:

        def centred(rows, i, W, tau, classes, q, s):
            row_scores_of(rows.csr, i, W, tau, classes, q, s)
            common, spread, level = rows.common[i], rows.spread, rows.level
            for c in range(q):
                m = classes[c]
                s[c] -= s.dtype.type(common * spread[m] + level[m])

        return centred

    if not isinstance(W, types.Array):
        return lambda rows, i, W, tau, classes, q, s: row_scores_of(
            rows, i, W.W, tau, classes, q, s
        )

    if isinstance(rows, types.Array):

        def dense(rows, i, W, tau, classes, q, s):
            scores_of(rows[i], None, 0, rows.shape[1], W, tau, classes, q, s)

        return dense

    def csr(rows, i, W, tau, classes, q, s):
        data, indices, indptr = rows
        scores_of(data, indices, indptr[i], indptr[i + 1], W, tau, classes, q, s)

    return csr


@bare_part
def scores_of(values, columns, begin, end, W, tau, classes, q, s):
    """s[c] = tau W[-1, classes[c]] + Σ_p values[p] W[columns[p], classes[c]] for c < q."""
    c = 0
    while q - c > 4:
        scores_of_4(values, columns, begin, end, W, tau, classes, c, s)
        c += 4
    if q - c == 4:
        scores_of_4(values, columns, begin, end, W, tau, classes, c, s)
    elif q - c == 3:
        scores_of_3(values, columns, begin, end, W, tau, classes, c, s)
    elif q - c == 2:
        scores_of_2(values, columns, begin, end, W, tau, classes, c, s)
    elif q - c == 1:
        scores_of_1(values, columns, begin, end, W, tau, classes, c, s)


@bare_by_type(row_update)
def _row_update(rows, i, W, tau, classes, delta, q):
    if kind_of(rows) is StandardRows:
        return lambda rows, i, W, tau, classes, delta, q: row_update(
            rows.row, standardize(rows, i), W, tau, classes, delta, q
        )

    if kind_of(rows) is CentredRows:

        def centred(rows, i, W, tau, classes, delta, q):
            row_update(rows.csr, i, W, tau, classes, delta, q)
            apart, spread, level = rows.common[i] - rows.far, rows.spread, rows.level
            for c in range(q):
                m = classes[c]
                spread[m] += delta[c]
                level[m] += apart * delta[c]

        return centred

    if not isinstance(W, types.Array):
        if isinstance(rows, types.Array):

            def shared_dense(rows, i, W, tau, classes, delta, q):
                add_shared(rows[i], None, 0, rows.shape[1], W.W, tau, classes, delta, q)

            return shared_dense

        def shared_csr(rows, i, W, tau, classes, delta, q):
            data, indices, indptr = rows
            add_shared(data, indices, indptr[i], indptr[i + 1], W.W, tau, classes, delta, q)

        return shared_csr

    if isinstance(rows, types.Array):

        def dense(rows, i, W, tau, classes, delta, q):
            update(rows[i], None, 0, rows.shape[1], W, tau, classes, delta, q)

        return dense

    def csr(rows, i, W, tau, classes, delta, q):
        data, indices, indptr = rows
        update(data, indices, indptr[i], indptr[i + 1], W, tau, classes, delta, q)

    return csr


@bare_part
def update(values, columns, begin, end, W, tau, classes, delta, q):
    """W[columns[p], classes[c]] += values[p] delta[c] for c < q, and tau delta[c] in the last row.

    No class is listed twice.
    """
    c = 0
    while q - c > 4:
        update_of_4(values, columns, begin, end, W, classes, c, delta)
        c += 4
    if q - c == 4:
        update_of_4(values, columns, begin, end, W, classes, c, delta)
    elif q - c == 3:
        update_of_3(values, columns, begin, end, W, classes, c, delta)
    elif q - c == 2:
        update_of_2(values, columns, begin, end, W, classes, c, delta)
    elif q - c == 1:
        update_of_1(values, columns, begin, end, W, classes, c, delta)
    if tau != 0:
        for c in range(q):
            W[W.shape[0] - 1, classes[c]] += tau * delta[c]


@bare_part
def add_shared(values, columns, begin, end, W, tau, classes, delta, q):
    """The same while other threads add to W, but for its last row."""
    c = 0
    while q - c >= 4:
        add_shared_4(values, columns, begin, end, W, classes, c, delta)
        c += 4
    if q - c >= 2:
        add_shared_2(values, columns, begin, end, W, classes, c, delta)
        c += 2
    if q - c == 1:
        add_shared_1(values, columns, begin, end, W, classes, c, delta)
    if tau != 0:
        for c in range(q):
            W[W.shape[0] - 1, classes[c]] += tau * delta[c]


@bare_by_type(row_update_all)
def _row_update_all(rows, i, W, tau, delta):
    if kind_of(rows) is StandardRows:
        return lambda rows, i, W, tau, delta: row_update_all(
            rows.row, standardize(rows, i), W, tau, delta
        )

    if kind_of(rows) is CentredRows:

        def centred(rows, i, W, tau, delta):
            row_update_all(rows.csr, i, W, tau, delta)
            apart, spread, level = rows.common[i] - rows.far, rows.spread, rows.level
            for m in range(spread.size):
                spread[m] += delta[m]
                level[m] += apart * delta[m]

        return centred

    if isinstance(rows, types.Array):

        def dense(rows, i, W, tau, delta):
            update_all(rows[i], None, 0, rows.shape[1], W, tau, delta)

        return dense

    def csr(rows, i, W, tau, delta):
        data, indices, indptr = rows
        update_all(data, indices, indptr[i], indptr[i + 1], W, tau, delta)

    return csr


@bare_kernel
def updates_all(W):
    """Whether all classes can be changed at once, at less cost than three of them by a list."""
    return LANES <= W.shape[1] <= LANES * WIDEST


@bare_part
def update_all(values, columns, begin, end, W, tau, delta):
    """W[columns[p]] += values[p] delta, and tau delta in the last row."""
    k = W.shape[1]
    if k > 3 * LANES:
        update_4(values, columns, begin, end, W, 0, k, delta)
    elif k > 2 * LANES:
        update_3(values, columns, begin, end, W, 0, k, delta)
    elif k > LANES:
        update_2(values, columns, begin, end, W, 0, k, delta)
    else:
        update_1(values, columns, begin, end, W, 0, k, delta)
    if tau != 0:
        for m in range(k):
            W[W.shape[0] - 1, m] += tau * delta[m]


@bare_by_type(row_dot)
def _row_dot(rows, i, w, tau):
    if kind_of(rows) is StandardRows:
        return lambda rows, i, w, tau: row_dot(rows.row, standardize(rows, i), w, tau)
    if kind_of(rows) is CentredRows:
        return lambda rows, i, w, tau: row_dot(rows.csr, i, w, tau)
    if isinstance(rows, types.Array):

        def dense(rows, i, w, tau):
            total = tau * w[w.size - 1]
            for j in range(rows.shape[1]):
                total += rows[i, j] * w[j]
            return total

        return dense

    def csr(rows, i, w, tau):
        data, indices, indptr = rows
        total = tau * w[w.size - 1]
        for p in range(indptr[i], indptr[i + 1]):
            total += data[p] * w[indices[p]]
        return total

    return csr


@bare_by_type(row_axpy)
def _row_axpy(rows, i, w, tau, scale):
    if kind_of(rows) is StandardRows:
        return lambda rows, i, w, tau, scale: row_axpy(
            rows.row, standardize(rows, i), w, tau, scale
        )
    if kind_of(rows) is CentredRows:
        return lambda rows, i, w, tau, scale: row_axpy(rows.csr, i, w, tau, scale)
    if isinstance(rows, types.Array):

        def dense(rows, i, w, tau, scale):
            for j in range(rows.shape[1]):
                w[j] += rows[i, j] * scale
            w[w.size - 1] += tau * scale

        return dense

    def csr(rows, i, w, tau, scale):
        data, indices, indptr = rows
        for p in range(indptr[i], indptr[i + 1]):
            w[indices[p]] += data[p] * scale
        w[w.size - 1] += tau * scale

    return csr


@bare_by_type(place_prefetch)
def _place_prefetch(rows, i):
    if kind_of(rows) is StandardRows:
        return lambda rows, i: None
    if kind_of(rows) is CentredRows:
        return lambda rows, i: place_prefetch(rows.csr, i)
    if isinstance(rows, types.Array):
        return lambda rows, i: None
    return lambda rows, i: prefetch(rows[2], i)


@bare_by_type(weights_prefetch)
def _weights_prefetch(rows, i, W):
    if kind_of(rows) is StandardRows:
        return lambda rows, i, W: None
    if kind_of(rows) is CentredRows:
        return lambda rows, i, W: weights_prefetch(rows.csr, i, W)
    if isinstance(rows, types.Array):
        return lambda rows, i, W: None
    if not isinstance(W, types.Array):
        return lambda rows, i, W: weights_prefetch(rows, i, W.W)

    def csr(rows, i, W):
        _, indices, indptr = rows
        k = W.shape[1]
        if k <= SHORT:
            for p in range(indptr[i], indptr[i + 1]):
                for m in range(0, k, LINE):
                    prefetch(W, indices[p] * k + m)

    return csr


@bare_by_type(row_prefetch)
def _row_prefetch(rows, i):
    if kind_of(rows) is StandardRows:
        return lambda rows, i: row_prefetch(rows.X, i)
    if kind_of(rows) is CentredRows:
        return lambda rows, i: row_prefetch(rows.csr, i)
    if isinstance(rows, types.Array):

        def dense(rows, i):
            d = rows.shape[1]
            for j in range(0, min(d, PREFETCHED), LINE):  # the processor guesses the rest
                prefetch(rows, i * d + j)

        return dense

    def csr(rows, i):
        data, indices, indptr = rows
        for p in range(indptr[i], indptr[i + 1], LINE):
            prefetch(data, p)
            prefetch(indices, p)

    return csr


@bare_by_type(row_square)
def _row_square(rows, i):
    if kind_of(rows) is StandardRows:
        return lambda rows, i: row_square(rows.row, standardize(rows, i))

    if kind_of(rows) is CentredRows:

        def centred(rows, i):
            square = row_square(rows.csr, i)
            whole = square + rows.far
            left = whole - 2.0 * rows.common[i]  # [STD-A]
            return left if left > ROUNDING * whole else 0.0

        return centred

    if isinstance(rows, types.Array):

        def dense(rows, i):
            total = 0.0
            for j in range(rows.shape[1]):
                total += np.float64(rows[i, j]) * np.float64(rows[i, j])
            return total

        return dense

    def csr(rows, i):
        data, _, indptr = rows
        total = 0.0
        for p in range(indptr[i], indptr[i + 1]):
            total += np.float64(data[p]) * np.float64(data[p])
        return total

    return csr


@kernel
def square_norms(rows, n, tau):
    """‖x_i‖² + tau² of all rows, float64 (n,)."""
    out = np.empty(n)
    for i in range(n):
        out[i] = row_square(rows, i) + tau * tau
    return out
