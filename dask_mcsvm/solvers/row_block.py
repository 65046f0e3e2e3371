"""Rows as all solvers read them: validated, coded, of one float type."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dask_mcsvm.checks import check_sparse
from dask_mcsvm.formulations.margins import EQUAL, Margins
from dask_mcsvm.solvers.kernels.margins import for_kernels
from dask_mcsvm.solvers.kernels.rows import as_rows, read_only
from dask_mcsvm.solvers.kernels.standard_rows import with_scores_of
from dask_mcsvm.solvers.sdm.sweeps import Data
from dask_mcsvm.solvers.standardized import Standardized


class RowBlock(NamedTuple):
    """Some rows of the training set."""

    ids: npt.NDArray[np.int64]  # (m,) numbers of the rows in the whole set, ascending
    X: Any  # (m, d) C-contiguous array, csr_array without duplicates, or either standardized
    y: npt.NDArray[np.int32]  # (m,) code of the row's class, or its place in a group of classes
    C: npt.NDArray[np.float64]  # (m,)
    square: npt.NDArray[np.float64]  # (m,) ‖x_i‖² + tau²
    margins: Margins = EQUAL  # between all classes, or those of a group

    def data(self, tau: float, W: npt.NDArray[Any] | None = None) -> Data:
        """What kernels take; centred rows are told of the W (d + 1, k) whose scores are wanted."""
        dtype, rows = self.X.dtype, as_rows(self.X)
        return Data(
            rows if W is None else with_scores_of(rows, W),
            read_only(self.y),
            read_only(self.C.astype(dtype)),
            read_only(self.square),
            dtype.type(tau),
            for_kernels(self.margins),
        )

    def some(self, rows: npt.NDArray[Any]) -> RowBlock:
        """Some of the rows, by number or by a mask, copied."""
        ids, X, y, C, square = (part[rows] for part in self[:5])
        return self._replace(ids=ids, X=X, y=y, C=C, square=square)


def as_block(X: Any, dtype: np.dtype[Any]) -> Any:
    """Rows in the form that `RowBlock` promises; copied only where they have another."""
    if isinstance(X, Standardized):
        return X
    check_sparse(X, "a chunk of X")  # a source may have changed since it was looked at
    if not sp.issparse(X):
        return np.ascontiguousarray(X, dtype)
    rows = sp.csr_array(X).astype(dtype, copy=False)
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    return rows
