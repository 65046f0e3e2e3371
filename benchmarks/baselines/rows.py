"""Rows of X for the linear baselines: CSR, also where X is dense."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp


class Rows(NamedTuple):
    """CSR arrays, float64; ``square`` is |x_i|² (n,), ``d`` the number of features."""

    data: np.ndarray
    indices: np.ndarray
    indptr: np.ndarray
    square: np.ndarray
    d: int

    @property
    def matrix(self) -> sp.csr_array:
        shape = (self.square.size, self.d)
        return sp.csr_array((self.data, self.indices, self.indptr), shape=shape)


def as_rows(X: Any, tau: float = 0.0) -> Rows:
    """Rows of a matrix, with one more feature of value ``tau`` unless that is 0."""
    rows = sp.csr_array(X, dtype=np.float64)
    if tau:
        constant = sp.csr_array(np.full((rows.shape[0], 1), tau))
        rows = sp.csr_array(sp.hstack([rows, constant], format="csr"))
    square = np.asarray(rows.multiply(rows).sum(axis=1)).ravel()
    return Rows(
        rows.data, rows.indices.astype(np.int64), rows.indptr.astype(np.int64), square,
        rows.shape[1],
    )  # fmt: skip
