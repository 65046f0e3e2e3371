"""Standardized rows that no array holds: X stays as it is, or sparse ([STD] of docs/math.md).

Both kinds have the shape, the type and the slices of the rows that they stand for. Dense ones are
made of X a row or a block at a time. Sparse ones are x / scale, as sparse as X; their mean is taken
off the scores, for which every row needs one number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dask_mcsvm.formulations import Standardization

Array = npt.NDArray[Any]
#: Squares of a row below this share of what they are a difference of are rounding.
ROUNDING = 1e-12
#: Entries of W that exist in float64 at a time.
BLOCK_VALUES = 2**20


class RowsOfX:
    """Whatever hands out rows of an X (n, d) that it keeps as it came."""

    X: Any

    @property
    def shape(self) -> tuple[int, int]:
        n, d = self.X.shape
        return n, d

    @property
    def dtype(self) -> np.dtype[Any]:
        dtype: np.dtype[Any] = self.X.dtype
        return dtype

    @property
    def nnz(self) -> int:
        """Entries that are stored."""
        return int(self.X.nnz if sp.issparse(self.X) else self.X.size)


@dataclass(frozen=True, eq=False)
class DenseStandardized(RowsOfX):
    """Rows (X - mean) / scale of a dense X (n, d), which is not copied."""

    X: Array  # C-contiguous, float32 or float64
    mean: Array  # (d,) float64
    inverse: Array  # (d,) float64, 1 / scale

    def __getitem__(self, rows: Any) -> DenseStandardized:
        return replace(self, X=self.X[rows])

    def block(self) -> Array:
        """The rows themselves, in their type: for a few of them."""
        return np.asarray(((self.X - self.mean) * self.inverse).astype(self.dtype))


@dataclass(frozen=True, eq=False)
class CentredCsr(RowsOfX):
    """Rows x / scale - m, of which the first part is kept."""

    X: sp.csr_array  # (n, d) x / scale
    shift: Array  # (d,) float64, m
    common: Array  # (n,) float64, c_i = m·x_i / scale
    far: float  # |m|²

    def __getitem__(self, rows: Any) -> CentredCsr:
        return replace(self, X=self.X[rows], common=self.common[rows])

    def block(self) -> Array:
        """The rows themselves, dense: for a few of them."""
        return np.asarray((self.X.toarray() - self.shift).astype(self.dtype))


Standardized = DenseStandardized | CentredCsr


def standardized_rows(X: Any, columns: Standardization | None) -> Any:
    """Rows for the solvers, of X (n, d), C-contiguous or canonical CSR, in its type.

    Returns
    -------
    DenseStandardized, or of a sparse X CentredCsr, or a CSR of its own where nothing is centred
    """
    if columns is None:
        return X
    if not sp.issparse(X):
        mean = columns.mean if columns.centred else np.zeros(columns.mean.size)
        return DenseStandardized(X, mean, 1 / columns.scale)
    inverse = 1 / columns.scale
    data = np.empty_like(X.data)
    for first in range(0, data.size, BLOCK_VALUES):
        here = slice(first, first + BLOCK_VALUES)
        data[here] = X.data[here] * inverse[X.indices[here]]
    scaled = sp.csr_array((data, X.indices, X.indptr), shape=X.shape)
    scaled.indices, scaled.indptr = X.indices, X.indptr  # the constructor may widen one of them
    if not columns.centred:
        return scaled
    shift = columns.shift
    return CentredCsr(scaled, shift, common_parts(scaled, shift), float(np.square(shift).sum()))


def raw_rows(rows: Any, columns: Standardization | None) -> Any:
    """The rows that `standardized_rows` was given; sparse ones are copied."""
    if columns is None:
        return rows
    if isinstance(rows, DenseStandardized):
        return rows.X
    scaled = rows.X if isinstance(rows, CentredCsr) else rows
    data = (scaled.data * columns.scale[scaled.indices]).astype(scaled.dtype)
    return sp.csr_array((data, scaled.indices, scaled.indptr), shape=scaled.shape)


def join_rows(parts: Sequence[Any]) -> Any:
    """Rows of several kinds alike as one: arrays, CSR or standardized rows of the same columns."""
    first = parts[0]
    if isinstance(first, Standardized):
        X = join_rows([part.X for part in parts])
        if isinstance(first, DenseStandardized):
            return replace(first, X=X)
        return replace(first, X=X, common=np.concatenate([part.common for part in parts]))
    return sp.vstack(parts, format="csr") if any(map(sp.issparse, parts)) else np.concatenate(parts)


def common_parts(scaled: sp.csr_array, shift: Array) -> Array:
    """c_i = m·x_i / scale in float64, (n,) [STD-C]."""
    out, indptr = np.zeros(scaled.shape[0]), scaled.indptr
    step = max(1, out.size * BLOCK_VALUES // max(1, scaled.nnz))
    for first in range(0, out.size, step):
        ends = indptr[first : first + step + 1]
        values = scaled.data[ends[0] : ends[-1]] * shift[scaled.indices[ends[0] : ends[-1]]]
        filled = np.flatnonzero(np.diff(ends))
        if filled.size:
            out[first + filled] = np.add.reduceat(values, ends[filled] - ends[0])
    return out


def shift_of(X: Any) -> Array | None:
    """m (d,) of rows whose mean is taken off their scores; None of all others."""
    return X.shift if isinstance(X, CentredCsr) else None


def centre_weights(W: Array, shift: Array, tau: float) -> None:
    """Make W of standardized rows, in place, of W (d + 1, k) or (d + 1,) of x / scale.

    The last row of what is given is that of a constant feature of one [STD-W].
    """
    last = W[-1].copy()
    lower_weights(W, shift, last)
    W[-1] = tau * last


def lower_weights(W: Array, shift: Array, spread: Array) -> None:
    """W (d + 1, k) less m times what visits added to its scores, (k,), in place."""
    step = max(1, BLOCK_VALUES // max(1, spread.size))
    for first in range(0, shift.size, step):
        rows = shift[first : first + step]
        W[first : first + rows.size] -= np.multiply.outer(rows, spread)


def shift_scores(W: Array, shift: Array) -> Array:
    """m·w_m (k,) of W (d + 1, k), in float64 [STD-S]."""
    total = np.zeros(W.shape[1])
    step = max(1, BLOCK_VALUES // max(1, W.shape[1]))
    for first in range(0, shift.size, step):
        rows = shift[first : first + step]
        # Not by BLAS, whose threads change the order of a sum.
        total += np.einsum("j,jm->m", rows, W[first : first + rows.size].astype(np.float64))
    return total
