"""Standardized columns: mean and deviation of each, and what becomes of weights ([STD])."""

from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dask_mcsvm.formulations._base import FloatArray, squared_norms

#: Values that exist in float64 at a time.
BLOCK_VALUES = 2**20


class Moments(NamedTuple):
    """Weighted mean and squares of each column; those of several sets of rows can be merged.

    Attributes
    ----------
    total : float
        Sum of the weights.
    mean : ndarray of shape (d,)
        Float64.
    squares : ndarray of shape (d,)
        Sum of weight_i (x_ij - mean_j)^2.
    rows : int
        Of positive weight: how many terms the sums have, whatever the weights are.
    """

    total: float
    mean: FloatArray
    squares: FloatArray
    rows: int

    def merged(self, other: "Moments") -> "Moments":
        """Those of both sets of rows; squares are never taken around zero [STD-M]."""
        total = self.total + other.total
        if total == 0:
            return self
        apart, share = other.mean - self.mean, other.total / total
        squares = self.squares + other.squares + self.total * share * apart**2
        return Moments(total, self.mean + share * apart, squares, self.rows + other.rows)


def moments(X: Any, weights: npt.NDArray[Any] | None = None) -> Moments:
    """Mean and squares of the columns of X (n, d), dense or CSR, in float64, block by block.

    Parameters
    ----------
    X : ndarray or CSR of shape (n, d)
    weights : ndarray of shape (n,), optional
        At least 0; 1 for all rows by default.
    """
    n, d = X.shape
    w = np.ones(n) if weights is None else np.asarray(weights, np.float64)
    found = Moments(0.0, np.zeros(d), np.zeros(d), 0)
    if n == 0:
        return found
    step = block_rows(X)
    for first in range(0, n, step):
        here = slice(first, first + step)
        found = found.merged(_block_moments(X[here], w[here]))
    return found


def block_rows(X: Any) -> int:
    """Rows of X to work on together; a block of CSR takes room for d numbers besides its own."""
    n, d = X.shape
    if not sp.issparse(X):
        return max(1, BLOCK_VALUES // max(1, int(d)))
    return int(max(1, n * max(BLOCK_VALUES, d) // max(1, int(X.nnz))))


def _block_moments(X: Any, w: FloatArray) -> Moments:
    total, d, used = float(w.sum()), X.shape[1], int(np.count_nonzero(w))
    if total == 0:
        return Moments(0.0, np.zeros(d), np.zeros(d), 0)
    if not sp.issparse(X):
        rows = np.asarray(X, np.float64)
        centre = w @ rows / total
        return Moments(total, centre, w @ np.square(rows - centre), used)
    each, values = np.repeat(w, np.diff(X.indptr)), X.data.astype(np.float64)
    mean: FloatArray = np.bincount(X.indices, each * values, minlength=d) / total
    apart = values - mean[X.indices]
    squares: FloatArray = np.bincount(X.indices, each * apart * apart, minlength=d).astype(float)
    stored = np.bincount(X.indices, each, minlength=d)
    # The zeros, each one -mean away. Sums in two orders differ by rounding, which must not become
    # the variance of a column without zeros.
    zeros = np.where(np.bincount(X.indices, minlength=d) == X.shape[0], 0.0, total - stored)
    squares += np.maximum(0.0, zeros) * mean**2
    return Moments(total, mean, squares, used)


@dataclass(frozen=True, eq=False)
class Standardization:
    """Rows z = (x - mean) / scale, or x / scale, and weights in units of the one or the other.

    Attributes
    ----------
    mean, scale : ndarray of shape (d,), float64
        Of the columns; the scale of a constant column is 1.
    centred : bool
        Whether the mean is taken off.

    Examples
    --------
    >>> X = np.array([[1.0, 5.0], [3.0, 5.0]])
    >>> found = Standardization.of(moments(X), centred=True)
    >>> found.scale, found.rows(X)
    (array([1., 1.]), array([[-1.,  0.],
           [ 1.,  0.]]))
    """

    mean: FloatArray
    scale: FloatArray
    centred: bool

    @classmethod
    def of(cls, found: Moments, *, centred: bool) -> Self:
        """From what was found of the columns."""
        deviation = np.sqrt(found.squares / found.total)
        return cls(found.mean, np.where(is_constant(found), 1.0, deviation), centred)

    @property
    def shift(self) -> FloatArray:
        """m = mean / scale, (d,): where standardized rows have their zero."""
        return self.mean / self.scale if self.centred else np.zeros(self.mean.size)

    def rows(self, X: Any) -> Any:
        """Z (n, d) in float64: dense where it is centred."""
        if not self.centred:
            return X.multiply(1 / self.scale).tocsr() if sp.issparse(X) else X / self.scale
        dense = X.toarray() if sp.issparse(X) else np.asarray(X)
        return (dense.astype(np.float64) - self.mean) / self.scale  # [STD]

    def square_norms(self, X: Any) -> tuple[FloatArray, FloatArray]:
        """||z_i||^2 and ||x_i / scale||^2 of all rows, (n,) each, without making Z.

        The first is [STD-A]; what rounding could leave below zero is zero.
        """
        n = X.shape[0]
        squares, scaled = np.empty(n), np.empty(n)
        step, m = block_rows(X), self.shift
        for first in range(0, n, step):
            here = slice(first, first + step)
            part = X[here]
            if sp.issparse(part):
                part = part.astype(np.float64).multiply(1 / self.scale).tocsr()
                scaled[here] = squared_norms(part)
                squares[here] = scaled[here] - 2 * (part @ m) + m @ m  # [STD-A]
            else:
                scaled[here] = squared_norms(np.asarray(part, np.float64) / self.scale)
                squares[here] = squared_norms(self.rows(part))
        return np.maximum(squares, 0.0), scaled

    def raw_weights(self, W: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Make weights (d, k) of raw rows, in place, of those of standardized rows [STD-V]."""
        np.divide(W, self.scale[:, None], out=W, casting="same_kind")
        return W

    def offset(self, V: npt.NDArray[Any]) -> FloatArray:
        """What centring adds to the intercepts of raw weights V (d, k): -mean . v_m, (k,)."""
        k = V.shape[1]
        return -np.einsum("j,jm->m", self.mean, V) if self.centred else np.zeros(k)


def is_constant(found: Moments) -> npt.NDArray[np.bool_]:
    """Columns (d,) whose variance is nothing but rounding, as scikit-learn decides it.

    But by the number of rows: it takes the sum of weights, so that weights of 1e16 make every
    column constant.
    """
    variance, eps = found.squares / found.total, np.finfo(np.float64).eps
    n = found.rows
    bound = n * eps * variance + (n * found.mean * eps) ** 2
    same: npt.NDArray[np.bool_] = variance <= bound
    return same
