"""How far the exact optimum's scores can be from a model's: [NEAR] in docs/math.md."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dask_mcsvm.formulations._base import FloatArray, squared_norms
from dask_mcsvm.formulations._names import FORMULATIONS
from dask_mcsvm.formulations._standardize import Standardization

# Roundings of a score beyond one per entry of its row: casts of row and intercept, their sum.
MORE_ROUNDINGS = 8


@dataclass(frozen=True)
class Nearness:
    """A model's distance from the exact optimum, and what decides how its scores are rounded.

    Attributes
    ----------
    distance : float
        At least ||W - W*||, the constant feature's weights included.
    norm : float
        ||W||.
    tau : float
        Value of the constant feature.
    unit : float
        Relative rounding of the arithmetic that scores rows.
    formulation : str
        The long name: two classes decide differently in one_vs_rest.
    columns : Standardization, optional
        Of rows that W is standardized for; scores are those of raw rows.
    """

    distance: float
    norm: float
    tau: float
    unit: float
    formulation: str
    columns: Standardization | None = None

    def reach(self, X: Any) -> FloatArray:
        """How far the score of one class can be off, shape (n,), for rows X (n, d)."""
        entries = np.diff(X.indptr) if sp.issparse(X) else X.shape[1]
        rounding = (entries + MORE_ROUNDINGS) * self.unit * self.norm
        if self.columns is None:
            length = np.sqrt(squared_norms(X) + self.tau**2)
            found: FloatArray = (self.distance + rounding) * length
            return found
        squares, scaled = self.columns.square_norms(X)
        # The products of a score are those of raw rows, and centring is a part of the intercept.
        summed = np.sqrt(scaled + self.tau**2) + np.linalg.norm(self.columns.shift)
        return np.asarray(self.distance * np.sqrt(squares + self.tau**2) + rounding * summed)

    def is_certain(
        self, scores: npt.NDArray[Any], reach: FloatArray, n_classes: int
    ) -> npt.NDArray[np.bool_]:
        """Whether the optimum's label is the model's, shape (n,).

        Parameters
        ----------
        scores : ndarray of shape (n, 2)
            The two largest of each row, in any order; for two classes in that of the classes.
        reach : ndarray of shape (n,)
        n_classes : int
        """
        wide = scores.astype(np.float64)
        if n_classes == 2 and FORMULATIONS[self.formulation].classes_are_independent:
            margin, factor = np.abs(wide[:, 1]), 1.0  # the second score decides by itself
        else:
            margin, factor = np.abs(wide[:, 1] - wide[:, 0]), math.sqrt(2.0)
        found: npt.NDArray[np.bool_] = margin > factor * reach  # [NEAR-LABEL]
        found &= np.isfinite(margin)  # what overflowed proves nothing
        return found


def distance_bound(
    primal: float, dual: float, *, square: float, unit: float, summands: int
) -> float:
    """At least ||W - W*||, from the certificate of W [NEAR].

    Parameters
    ----------
    primal, dual : float
        P(W) and D(alpha) as they were computed, in float64.
    square : float
        ||W||^2.
    unit : float
        Relative rounding of W, which may have been rounded after P was taken: so far it moved.
    summands : int
        How many numbers the objectives are sums of, which bounds their rounding.

    Examples
    --------
    >>> distance_bound(1.5, 1.0, square=1.0, unit=0.0, summands=0)
    1.0
    """
    sums = summands * np.finfo(np.float64).eps * (abs(primal) + abs(dual))
    return math.sqrt(2.0 * (max(primal - dual, 0.0) + sums)) + unit * math.sqrt(square)
