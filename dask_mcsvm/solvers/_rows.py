"""Rows of X, dense or CSR, against W stored as (d + 1, k), classes contiguous.

``rows`` is a C-contiguous array (n, d), or the triple (data, indices int32, indptr int64) of a CSR
matrix. The constant feature of value ``tau`` is the last row of W and is never stored in X.
Each function has a dense and a CSR body, chosen at compile time.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numba import types

from ._jit import by_type, kernel


def read_only(array: np.ndarray) -> np.ndarray:
    """A view that kernels cannot write to, so that one compiled kernel serves all inputs."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


def as_rows(X):
    """What kernels take as ``rows``; nothing is copied when indices are int32 and indptr int64."""
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


def row_dot(rows, i, w, tau):
    """w·x_i for one vector w of length d + 1."""


def row_axpy(rows, i, w, tau, scale):
    """w += scale·x_i for one vector w of length d + 1."""


def row_square(rows, i):
    """‖x_i‖² in float64, the constant feature apart."""


@by_type(row_scores)
def _row_scores(rows, i, W, tau, s):
    # Four features per sweep over the classes: a quarter of the loads and stores of s.
    if isinstance(rows, types.Array):

        def dense(rows, i, W, tau, s):
            d, k = rows.shape[1], W.shape[1]
            real = s.dtype.type  # float64 scores of float32 data are float64 throughout
            t = real(tau)
            for m in range(k):
                s[m] = t * W[d, m]
            j = 0
            while j + 4 <= d:
                x0, x1 = real(rows[i, j]), real(rows[i, j + 1])
                x2, x3 = real(rows[i, j + 2]), real(rows[i, j + 3])
                for m in range(k):
                    s[m] += (x0 * W[j, m] + x1 * W[j + 1, m]) + (
                        x2 * W[j + 2, m] + x3 * W[j + 3, m]
                    )
                j += 4
            while j < d:
                x0 = real(rows[i, j])
                for m in range(k):
                    s[m] += x0 * W[j, m]
                j += 1

        return dense

    def csr(rows, i, W, tau, s):
        data, indices, indptr = rows
        k = W.shape[1]
        last = W.shape[0] - 1
        p, end = indptr[i], indptr[i + 1]
        real = s.dtype.type
        t = real(tau)
        for m in range(k):
            s[m] = t * W[last, m]
        while p + 4 <= end:
            x0, x1 = real(data[p]), real(data[p + 1])
            x2, x3 = real(data[p + 2]), real(data[p + 3])
            w0, w1 = W[indices[p]], W[indices[p + 1]]
            w2, w3 = W[indices[p + 2]], W[indices[p + 3]]
            for m in range(k):
                s[m] += (x0 * w0[m] + x1 * w1[m]) + (x2 * w2[m] + x3 * w3[m])
            p += 4
        while p < end:
            x0 = real(data[p])
            w0 = W[indices[p]]
            for m in range(k):
                s[m] += x0 * w0[m]
            p += 1

    return csr


@by_type(row_scores_of)
def _row_scores_of(rows, i, W, tau, classes, q, s):
    if isinstance(rows, types.Array):

        def dense(rows, i, W, tau, classes, q, s):
            d = rows.shape[1]
            for c in range(q):
                s[c] = tau * W[d, classes[c]]
            for j in range(d):
                x, w = rows[i, j], W[j]
                for c in range(q):
                    s[c] += x * w[classes[c]]

        return dense

    def csr(rows, i, W, tau, classes, q, s):
        data, indices, indptr = rows
        last = W.shape[0] - 1
        for c in range(q):
            s[c] = tau * W[last, classes[c]]
        for p in range(indptr[i], indptr[i + 1]):
            x, w = data[p], W[indices[p]]
            for c in range(q):
                s[c] += x * w[classes[c]]

    return csr


@by_type(row_update)
def _row_update(rows, i, W, tau, classes, delta, q):
    if isinstance(rows, types.Array):

        def dense(rows, i, W, tau, classes, delta, q):
            d = rows.shape[1]
            for j in range(d):
                x, w = rows[i, j], W[j]
                for c in range(q):
                    w[classes[c]] += x * delta[c]
            if tau != 0:
                for c in range(q):
                    W[d, classes[c]] += tau * delta[c]

        return dense

    def csr(rows, i, W, tau, classes, delta, q):
        data, indices, indptr = rows
        last = W.shape[0] - 1
        for p in range(indptr[i], indptr[i + 1]):
            x, w = data[p], W[indices[p]]
            for c in range(q):
                w[classes[c]] += x * delta[c]
        if tau != 0:
            for c in range(q):
                W[last, classes[c]] += tau * delta[c]

    return csr


@by_type(row_dot)
def _row_dot(rows, i, w, tau):
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


@by_type(row_axpy)
def _row_axpy(rows, i, w, tau, scale):
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


@by_type(row_square)
def _row_square(rows, i):
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
