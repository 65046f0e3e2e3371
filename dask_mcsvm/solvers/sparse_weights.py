"""Weights that no array holds, as runs hand them on."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp


class SparseWeights(NamedTuple):
    """W (d + 1, k) without an array of its shape."""

    columns: sp.csc_array  # (d, k), features ascending
    last: npt.NDArray[Any]  # (k,), of the constant feature

    @property
    def shape(self) -> tuple[int, int]:
        d, k = self.columns.shape
        return d + 1, k


def split_weights(W: Any) -> tuple[Any, npt.NDArray[np.float64]]:
    """The weights (d, k) of the features, and those (k,) of the constant one, in float64."""
    if isinstance(W, SparseWeights):
        return W.columns, W.last.astype(np.float64)
    return W[:-1], np.asarray(W[-1], np.float64)
