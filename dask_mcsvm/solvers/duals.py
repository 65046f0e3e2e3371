"""Dual variables as one solver hands them to the next: a fit, a warm start, a path over C."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dask_mcsvm.formulations import FORMULATIONS

from ._alpha import SparseAlpha, alpha_to_dense, compact_alpha, positions


@dataclass(frozen=True)
class Duals:
    """The dual variables of n examples and the C_i they were found with.

    ``stored`` is alpha, dense (n, k) or sparse; for Lee-Lin-Wahba it is C_i - alpha (see
    ``_alpha``).
    """

    formulation: str
    n_classes: int
    C: np.ndarray
    stored: np.ndarray | SparseAlpha

    @property
    def density(self) -> float:
        """Share of the n·k dual variables that are not zero."""
        n, k = self.C.size, self.n_classes
        if isinstance(self.stored, np.ndarray):
            values, size = self.stored.ravel(), np.full(n, k)
        else:
            values = self.stored.values[positions(self.stored.start, self.stored.size)]
            size = self.stored.size
        if FORMULATIONS[self.formulation].starts_at_bound:
            at_zero = np.count_nonzero(values >= np.repeat(self.C.astype(values.dtype), size))
            return float((n * (k - 1) - at_zero) / (n * k))
        return float(np.count_nonzero(values) / (n * k))

    def to_dense(self, y: np.ndarray) -> np.ndarray:
        """alpha as an (n, k) float64 array; for small problems and tests."""
        alpha = alpha_to_dense(self.stored, self.C.size, self.n_classes).astype(np.float64)
        if FORMULATIONS[self.formulation].starts_at_bound:
            alpha = self.C[:, None] - alpha
            alpha[np.arange(y.size), y] = 0.0
        return alpha

    def rescaled(self, C: np.ndarray) -> Duals:
        """Feasible variables for other C_i: all of an example's are scaled by the ratio."""
        ratio = C / self.C
        if isinstance(self.stored, np.ndarray):
            stored: np.ndarray | SparseAlpha = self.stored * ratio[:, None].astype(
                self.stored.dtype
            )
        else:
            stored = compact_alpha(self.stored, 0)
            scale = np.repeat(ratio, stored.size).astype(stored.values.dtype)
            stored.values[positions(stored.start, stored.size)] *= scale
        return Duals(self.formulation, self.n_classes, C, stored)
