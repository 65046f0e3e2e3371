"""Weston and Watkins: every rival class that comes too near costs something."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dask_mcsvm.formulations._base import FloatArray
from dask_mcsvm.formulations._box import BoxFormulation


@dataclass(frozen=True, eq=False)
class WestonWatkins(BoxFormulation):
    """Sum of the hinges of all rivals (Weston and Watkins, 1999).

    Sums over m leave out m = y_i; alpha_{i, y_i} = 0 is not a variable. Delta(y, m) is 1, or the
    margin asked for between m and y.

    [WW-P]  P(W) = 1/2 ||W||^2 + sum_i C_i sum_m max(0, Delta(y_i, m) - (w_{y_i} - w_m).x_i)
    [WW-D]  D(alpha) = sum_im Delta(y_i, m) alpha_im - 1/2 ||W(alpha)||^2,  0 <= alpha_im <= C_i
    [WW-W]  w_m = sum_{i: y_i = m} (sum_c alpha_ic) x_i - sum_{i: y_i != m} alpha_im x_i
    [WW-G]  g_im = (w_{y_i} - w_m).x_i - Delta(y_i, m)
    [WW-S]  alpha_im <- clip(v_m - S, 0, C_i),  v_m = alpha_im - g_im / A_i + sum_c alpha_ic,
            S the root of S = sum_m clip(v_m - S, 0, C_i)

    References
    ----------
    Keerthi et al. (2008), A Sequential Dual Method for Large Scale Multi-Class Linear SVMs.
    Alber et al. (2017), Distributed optimization of multi-class SVMs, Algorithms 3 to 5.
    """

    short_name, title = "ww", "Weston-Watkins"
    group_solver = "rounds"
    compares_with_own = True
    has_margins = True

    @staticmethod
    def loss_at_zero(n_classes: int) -> float:
        return n_classes - 1.0

    def coefficients(self, alpha: npt.ArrayLike, y: npt.ArrayLike) -> FloatArray:
        values = np.asarray(alpha, dtype=np.float64)
        return np.where(self.own(y), values.sum(axis=1, keepdims=True), -values)  # [WW-W]

    def losses_from_scores(self, scores: FloatArray, y: npt.ArrayLike) -> FloatArray:
        hinges = np.maximum(0.0, -self.gradients(scores, y))
        losses: FloatArray = np.sum(hinges, axis=1)  # [WW-P]
        return losses

    def gradients(self, scores: FloatArray, y: npt.ArrayLike) -> FloatArray:
        own = self.own(y)
        ahead = scores[own][:, None] - scores
        return np.where(own, 0.0, ahead - self.margin_rows(y))  # [WW-G]

    def dual_linear(self, alpha: npt.ArrayLike, y: npt.ArrayLike) -> FloatArray:
        values = np.asarray(alpha, dtype=np.float64) * self.margin_rows(y)
        sums: FloatArray = np.sum(values, axis=1)  # [WW-D]
        return sums

    def block_step(
        self, alpha_i: FloatArray, scores_i: FloatArray, sq_norm: float, y_i: int, C_i: float
    ) -> FloatArray:
        # A change of alpha_im moves w_m by -x and w_y by +x, w_y for all m: Hessian A (I + 1 1^T).
        return self.coupled_step(alpha_i, scores_i, sq_norm, y_i, C_i, kappa=1.0)  # [WW-S]
