"""Duals over a box: every variable in [0, C_i], at most one sum tying the block together."""

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dask_mcsvm.formulations._base import BoolArray, FloatArray, Formulation, Rows


@dataclass(frozen=True, eq=False)
class BoxFormulation(Formulation):
    """Shared by Weston-Watkins, Lee-Lin-Wahba and one-vs-rest.

    [BOX-D]  l_i(alpha_i) = sum_m alpha_im, or [WW-D],  0 <= alpha_im <= C_i
    [BOX-V]  v_im = max(0, -g_im) where alpha_im < C_i, max(0, g_im) where alpha_im > 0
    [BOX-Z]  x_i = 0: alpha_im = C_i for every variable of the row
    """

    def variables(self, y: npt.ArrayLike) -> BoolArray:
        """Which entries of alpha (n, k) are variables: all, or all but alpha_{i, y_i}."""
        own = self.own(y)
        return np.ones_like(own) if self.has_own_variable else ~own

    def upper(self, y: npt.ArrayLike) -> FloatArray:
        """Upper end of each entry's box, shape (n, k): C_i, and 0 where there is no variable."""
        mask = self.variables(y)
        return np.where(mask, self.costs(mask.shape[0])[:, None], 0.0)

    def dual_linear(self, alpha: npt.ArrayLike, y: npt.ArrayLike) -> FloatArray:
        sums: FloatArray = np.sum(np.asarray(alpha, dtype=np.float64), axis=1)  # [BOX-D]
        return sums

    def feasible(self, alpha: npt.ArrayLike, y: npt.ArrayLike, atol: float = 0.0) -> bool:
        values = np.asarray(alpha, dtype=np.float64)
        return bool(np.all((values >= -atol) & (values <= self.upper(y) + atol)))

    def repair(self, alpha: npt.ArrayLike, y: npt.ArrayLike) -> FloatArray:
        return np.clip(np.asarray(alpha, dtype=np.float64), 0.0, self.upper(y))

    def zero_row_alpha(self, y: npt.ArrayLike) -> FloatArray:
        return self.upper(y)  # [BOX-Z]

    def violations(self, alpha: npt.ArrayLike, X: Rows, y: npt.ArrayLike) -> FloatArray:
        """v (n, k); 0 where there is no variable."""
        values = np.asarray(alpha, dtype=np.float64)
        g = self.gradients(self.scores(self.weights(values, X, y), X), y)
        to_grow = np.where(values < self.upper(y), -g, 0.0)
        to_fall = np.where(values > 0, g, 0.0)
        return np.maximum(0.0, np.maximum(to_grow, to_fall))  # [BOX-V]

    def coupled_step(
        self,
        alpha_i: FloatArray,
        scores_i: FloatArray,
        sq_norm: float,
        y_i: int,
        C_i: float,
        kappa: float,
    ) -> FloatArray:
        """`block_step` where the block's Hessian is A (I + kappa 1 1^T) over m != y_i."""
        rival = self.variables([y_i])[0]
        g = self.gradients(scores_i[None], [y_i])[0, rival]
        v = alpha_i[rival] - g / sq_norm + kappa * np.sum(alpha_i[rival])
        new = np.zeros(self.n_classes)
        new[rival] = coupled_clip(v, kappa, C_i)
        return new


def coupled_clip(v: FloatArray, kappa: float, C: float) -> FloatArray:
    """a_m = clip(v_m - kappa S, 0, C) with S = sum_m a_m, by a walk of sorted breakpoints.

    Parameters
    ----------
    v : ndarray of shape (q,)
        Where each variable would go if kappa S were 0.
    kappa : float
        Coupling, not 0 and above -1/q.
    C : float
        Upper end of the box.

    Returns
    -------
    ndarray of shape (q,)
    """

    def excess(S: float) -> float:
        """S minus the sum it implies: increasing and piecewise linear, its root is sought."""
        return S - float(np.sum(np.clip(v - kappa * S, 0.0, C)))

    # Pieces end where a variable meets an end of its box; 0 <= S <= q C brackets the root.
    largest = v.size * C
    ends = np.concatenate([[0.0, largest], v / kappa, (v - C) / kappa])
    breakpoints = np.sort(np.clip(ends, 0.0, largest))
    right = min(max(bisect_left(breakpoints, 0.0, key=excess), 1), breakpoints.size - 1)
    low, high = float(breakpoints[right - 1]), float(breakpoints[right])

    inside = v - kappa * (low + high) / 2
    free = (inside > 0) & (inside < C)
    S = float(np.sum(v[free]) + C * np.sum(inside >= C)) / (1 + kappa * int(np.sum(free)))
    return np.clip(v - kappa * min(max(S, low), high), 0.0, C)
