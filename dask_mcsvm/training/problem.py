"""What a fit is asked and what it answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np

from dask_mcsvm.formulations import FORMULATIONS, relative_gap

if TYPE_CHECKING:
    import scipy.sparse as sp

    from dask_mcsvm.solvers.duals import Duals

OnEpoch = Callable[[dict[str, Any]], bool | None]


def is_over(epochs: float, max_epochs: int) -> bool:
    """Whether no epoch is left, to the nearest: visits by preference are n·k scores on average."""
    return round(epochs) >= max_epochs


def counted_epochs(epochs: float, max_epochs: int) -> int:
    """`n_iter_`: epochs begun, of which the last may have had a few scores more than its n·k."""
    return min(ceil(epochs), max_epochs)


@dataclass(frozen=True)
class Problem:
    """What a local solver sees.

    Attributes
    ----------
    rows : ndarray or csr_array of shape (n, d)
        float32 or float64, validated.
    y : ndarray of shape (n,), int32
        Codes of the classes.
    C : ndarray of shape (n,), float64
        Weight of each example's loss, all positive.
    n_classes : int
    formulation : str
        The long name.
    tau : float
        Value of the constant feature; 0.0 without an intercept.
    """

    rows: np.ndarray | sp.csr_array
    y: np.ndarray
    C: np.ndarray
    n_classes: int
    formulation: str
    tau: float

    @cached_property
    def primal_at_zero(self) -> float:
        """P(0), which the relative gap of Lee-Lin-Wahba is measured by."""
        return float(
            FORMULATIONS[self.formulation](self.n_classes, self.C).primal_at_zero(self.y.size)
        )

    def relative(self, primal: float, dual: float) -> float:
        """The relative duality gap of this problem's formulation."""
        return float(relative_gap(self.formulation, primal, dual, self.primal_at_zero))


@dataclass(frozen=True)
class Fit:
    """A trained W (d + 1, k) with its certificate; its last row belongs to the constant feature.

    ``W`` is a Dask array that reads files, and ``alpha`` None, where it was never in memory as a
    whole.
    """

    W: Any
    alpha: Duals | None
    primal: float
    dual: float
    gap: float
    history: list[dict[str, Any]]
    n_iter: int
    converged: bool
    stop: str
    dual_density: float
    solver: str | None = None  # that ended the fit, where the plan has two
