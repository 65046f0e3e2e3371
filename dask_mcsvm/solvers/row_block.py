"""Rows as all solvers read them: validated, coded, of one float type."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dask_mcsvm.checks import check_sparse
from dask_mcsvm.solvers.kernels.rows import as_rows, read_only
from dask_mcsvm.solvers.sdm.sweeps import Data


class RowBlock(NamedTuple):
    """Some rows of the training set."""

    ids: npt.NDArray[np.int64]  # (m,) numbers of the rows in the whole set, ascending
    X: Any  # (m, d) C-contiguous array, or csr_array without duplicates; float32 or float64
    y: npt.NDArray[np.int32]  # (m,) code of the row's class, or its place in a group of classes
    C: npt.NDArray[np.float64]  # (m,)
    square: npt.NDArray[np.float64]  # (m,) ‖x_i‖² + tau²

    def data(self, tau: float) -> Data:
        """What kernels take."""
        dtype = self.X.dtype
        return Data(
            as_rows(self.X),
            read_only(self.y),
            read_only(self.C.astype(dtype)),
            read_only(self.square),
            dtype.type(tau),
        )


def as_block(X: Any, dtype: np.dtype[Any]) -> Any:
    """Rows in the form that `RowBlock` promises; copied only where they have another."""
    check_sparse(X, "a chunk of X")  # a source may have changed since it was looked at
    if not sp.issparse(X):
        return np.ascontiguousarray(X, dtype)
    rows = sp.csr_array(X).astype(dtype, copy=False)
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    return rows
