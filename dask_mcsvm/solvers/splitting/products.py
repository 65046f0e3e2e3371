"""Products of a block of rows with W and with multipliers, and the blocks of a pass."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dask_mcsvm.solvers.kernels.jit import kernel
from dask_mcsvm.solvers.kernels.rows import read_only, row_axpy
from dask_mcsvm.solvers.standardized import CentredCsr, DenseStandardized

Array = npt.NDArray[Any]

#: Below this share of nonzero weights, and from so many features on, adding one row at a time is
#: faster than a product that multiplies zeros. Late in a fit on MNIST it is 14 ms instead of 32 at
#: a tenth, and less at what most rows have then: nothing.
FEW_WEIGHTS, FEATURES_WORTH_IT = 0.1, 64
#: Rows that a pass works on together: their second product finds them in the cache, and what is
#: made of them is small enough to be allocated again and again (Dask has its workers give larger
#: pieces back to the system, and get them anew).
MOST_ROWS, FEWEST_ROWS, BLOCK_BYTES = 4096, 1024, 2**20


def block_rows(X: Any) -> int:
    """How many rows of X (n, d) a pass works on together."""
    room = BLOCK_BYTES // max(1, X.shape[1] * X.dtype.itemsize)
    return max(FEWEST_ROWS, min(MOST_ROWS, room))


def row_views(X: Any) -> Iterator[tuple[slice, Any]]:
    """Blocks of X and where they are, as views."""
    n, height = X.shape[0], block_rows(X)
    for first in range(0, n, height):
        last = min(first + height, n)
        if isinstance(X, CentredCsr):
            yield (
                slice(first, last),
                replace(X, X=csr_view(X.X, first, last), common=X.common[first:last]),
            )
            continue
        if not sp.issparse(X):
            yield slice(first, last), X[first:last]
            continue
        yield slice(first, last), csr_view(X, first, last)


def csr_view(X: Any, first: int, last: int) -> Any:
    """Rows first:last of a CSR without a copy, which SciPy's own slice is."""
    one, end = X.indptr[first], X.indptr[last]
    parts = X.data[one:end], X.indices[one:end], X.indptr[first : last + 1] - one
    return sp.csr_array(parts, shape=(last - first, X.shape[1]), copy=False)


def float64_blocks(X: Any) -> Iterator[tuple[slice, Any]]:
    """Blocks of X in float64 and where they are; dense ones are the same memory over and over."""
    height = min(X.shape[0], block_rows(X))
    room = np.empty((height, X.shape[1])) if isinstance(X, np.ndarray) else None
    for here, rows in row_views(X):
        if isinstance(rows, CentredCsr):
            yield here, replace(rows, X=rows.X.astype(np.float64))
        elif isinstance(rows, DenseStandardized):
            yield here, rows.block().astype(np.float64)
        elif room is None:
            yield here, rows.astype(np.float64)
        else:
            block = room[: rows.shape[0]]
            block[:] = rows
            yield here, block


def scores_of(X: Any, columns: Array, tau: float) -> Array:
    """Scores X W (m, k) of a block in its own type, for W given by classes (k, d + 1)."""
    if isinstance(X, CentredCsr):
        return scores_of(X.X, uncentred_columns(columns, X.shift, tau), 1.0)
    X = X.block() if isinstance(X, DenseStandardized) else X
    S = X @ np.ascontiguousarray(columns[:, :-1].T, X.dtype)
    S += (tau * columns[:, -1]).astype(X.dtype)
    return np.asarray(S)


def weighted_rows(X: Any, B: Array, tau: float) -> Array:
    """B^T X (k, d + 1) of a block, summed in the block's type and kept in float64."""
    if isinstance(X, CentredCsr):
        return centred_columns(weighted_rows(X.X, B, 1.0), X.shift, tau)
    X = X.block() if isinstance(X, DenseStandardized) else X
    k, d = B.shape[1], X.shape[1]
    if sp.issparse(X):
        out = np.empty((k, d + 1))
        out[:, :-1] = (X.T @ B).T
    elif d < FEATURES_WORTH_IT or np.count_nonzero(B) > FEW_WEIGHTS * B.size:
        out = np.empty((k, d + 1))
        out[:, :-1] = B.T @ X
    else:
        sums = np.zeros((k, d + 1), B.dtype)
        add_weighted(read_only(X), B, sums)
        out = sums.astype(np.float64)
    out[:, -1] = tau * B.sum(axis=0, dtype=np.float64)
    return out


def uncentred_columns(columns: Array, shift: Array, tau: float) -> Array:
    """Columns (k, d + 1) for rows x / scale with a constant of one, of those for centred rows."""
    level = tau * columns[:, -1] - columns[:, :-1] @ shift
    return np.concatenate([columns[:, :-1], level[:, None]], axis=1)


def centred_columns(sums: Array, shift: Array, tau: float) -> Array:
    """The other way round: sums (k, d + 1) over centred rows, in place [STD-W]."""
    sums[:, :-1] -= np.multiply.outer(sums[:, -1], shift)
    sums[:, -1] *= tau
    return sums


@kernel
def add_weighted(rows, B, out):
    """out (k, d + 1) += B^T X, zeros left out; without the constant feature."""
    for i in range(B.shape[0]):
        for m in range(B.shape[1]):
            if B[i, m] != 0:
                row_axpy(rows, i, out[m], out.dtype.type(0), B[i, m])
