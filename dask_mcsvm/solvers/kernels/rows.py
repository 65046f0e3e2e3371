"""Rows of X, dense or CSR, against W (d + 1, k) in one of its layouts (`weights`).

``rows`` is a C-contiguous array (n, d), or the triple (data, indices int32, indptr int64) of a CSR
matrix. The constant feature of value ``tau`` is the last row of W and is never stored in X.
Each function has a dense and a CSR body, chosen at compile time. Standardized rows are either
`StandardRows`, dense, or `CentredRows`, sparse ([STD] of docs/math.md).
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numba import types

from dask_mcsvm.solvers.standardized import ROUNDING, CentredCsr, DenseStandardized

from .dense_weights import update_all
from .jit import bare_by_type, kernel
from .simd import prefetch
from .standard_rows import CentredRows, StandardRows, kind_of, standardize
from .weights import LINE, add_weights, fetch_weights, have_room, weighted, weighted_of

#: How many numbers of a dense row are asked for in advance.
PREFETCHED = 256
#: Of how many classes weights are asked for in advance.
LISTED = 4


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


def row_has_room(rows, i, W, q):
    """Whether q classes of the features of row i can change before W needs more memory."""


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


def moves_prefetch(rows, i, W, classes, begin, end):
    """Ask the cache for weights of the first of some listed classes, which row i is added to."""


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

    if isinstance(rows, types.Array):

        def dense(rows, i, W, tau, s):
            weighted(rows[i], None, 0, rows.shape[1], W, s.dtype.type(tau), s)

        return dense

    def csr(rows, i, W, tau, s):
        data, indices, indptr = rows
        weighted(data, indices, indptr[i], indptr[i + 1], W, s.dtype.type(tau), s)

    return csr


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

    if isinstance(rows, types.Array):

        def dense(rows, i, W, tau, classes, q, s):
            weighted_of(rows[i], None, 0, rows.shape[1], W, tau, classes, q, s)

        return dense

    def csr(rows, i, W, tau, classes, q, s):
        data, indices, indptr = rows
        weighted_of(data, indices, indptr[i], indptr[i + 1], W, tau, classes, q, s)

    return csr


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

    if isinstance(rows, types.Array):

        def dense(rows, i, W, tau, classes, delta, q):
            add_weights(rows[i], None, 0, rows.shape[1], W, tau, classes, delta, q)

        return dense

    def csr(rows, i, W, tau, classes, delta, q):
        data, indices, indptr = rows
        add_weights(data, indices, indptr[i], indptr[i + 1], W, tau, classes, delta, q)

    return csr


@bare_by_type(row_has_room)
def _row_has_room(rows, i, W, q):
    if not isinstance(rows, types.BaseTuple) or kind_of(rows) is not None:
        return lambda rows, i, W, q: True

    def csr(rows, i, W, q):
        _, indices, indptr = rows
        return have_room(indices, indptr[i], indptr[i + 1], W, q)

    return csr


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

    def csr(rows, i, W):
        _, indices, indptr = rows
        fetch_weights(indices, indptr[i], indptr[i + 1], W)

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


@bare_by_type(moves_prefetch)
def _moves_prefetch(rows, i, W, classes, begin, end):
    if not isinstance(rows, types.BaseTuple) or kind_of(rows) is not None:
        return lambda rows, i, W, classes, begin, end: None

    def csr(rows, i, W, classes, begin, end):
        _, indices, indptr = rows
        k = W.shape[1]
        for p in range(indptr[i], indptr[i + 1]):
            for c in range(begin, min(end, begin + LISTED)):
                prefetch(W, indices[p] * k + classes[c])

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
