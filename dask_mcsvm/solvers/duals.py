"""Dual variables as one solver hands them to the next: a fit, a warm start, a path over C."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dask_mcsvm.formulations import FORMULATIONS

from .kernels.dual_variables import SparseAlpha, alpha_to_dense, compact_alpha, positions

#: Up to here an exact step may use every class at once, and alpha may be a dense array ...
DENSE_CLASSES = 64
#: ... which it is where it takes no more than this, or a row of it no more than a line of the
#: cache. Lists are as fast (450,000 rows of 58 classes: 8.4 and 8.2 s of Crammer-Singer, 8.7 and
#: 8.8 of Weston-Watkins) and take a quarter of the memory. Those of Lee-Lin-Wahba are not: a
#: quarter of its variables is neither at zero nor at the bound (18.8 and 14.9 s).
DENSE_BYTES, LINE_BYTES = 2**26, 64


@dataclass(frozen=True)
class Duals:
    """The dual variables of n examples and the C_i they were found with.

    ``stored`` is alpha, dense (n, k) or sparse; for Lee-Lin-Wahba it is C_i - alpha (see
    ``kernels.dual_variables``).
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


def has_lists(formulation: str, n: int, k: int, itemsize: int) -> bool:
    """Whether alpha (n, k) is kept as lists."""
    if k > DENSE_CLASSES:
        return True
    is_small = n * k * itemsize <= DENSE_BYTES or k * itemsize <= LINE_BYTES
    return not is_small and not FORMULATIONS[formulation].starts_at_bound
