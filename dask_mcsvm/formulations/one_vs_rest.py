"""One versus rest: k binary SVMs written as one problem."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dask_mcsvm.formulations._base import FloatArray
from dask_mcsvm.formulations._box import BoxFormulation


@dataclass(frozen=True, eq=False)
class OneVsRest(BoxFormulation):
    """Every class against the others, no coupling; s_im = +1 where m = y_i, else -1.

    [OVR-P]  P(W) = 1/2 ||W||^2 + sum_i C_i sum_m max(0, 1 - s_im w_m.x_i)
    [OVR-D]  D(alpha) = sum_im alpha_im - 1/2 ||W(alpha)||^2,  0 <= alpha_im <= C_i
    [OVR-W]  w_m = sum_i s_im alpha_im x_i
    [OVR-G]  g_im = s_im w_m.x_i - 1
    [OVR-S]  alpha_im <- clip(alpha_im - g_im / A_i, 0, C_i)
    """

    short_name, title = "ovr", "One-vs-rest"
    group_solver = "classes"
    has_own_variable = True
    classes_are_independent = True

    @staticmethod
    def loss_at_zero(n_classes: int) -> float:
        return float(n_classes)

    def signs(self, y: npt.ArrayLike) -> FloatArray:
        """s_im, shape (n, k)."""
        return np.where(self.own(y), 1.0, -1.0)

    def coefficients(self, alpha: npt.ArrayLike, y: npt.ArrayLike) -> FloatArray:
        return self.signs(y) * np.asarray(alpha, dtype=np.float64)  # [OVR-W]

    def losses_from_scores(self, scores: FloatArray, y: npt.ArrayLike) -> FloatArray:
        hinges = np.maximum(0.0, -self.gradients(scores, y))
        losses: FloatArray = np.sum(hinges, axis=1)  # [OVR-P]
        return losses

    def gradients(self, scores: FloatArray, y: npt.ArrayLike) -> FloatArray:
        return self.signs(y) * scores - 1.0  # [OVR-G]

    def block_step(
        self, alpha_i: FloatArray, scores_i: FloatArray, sq_norm: float, y_i: int, C_i: float
    ) -> FloatArray:
        g: FloatArray = self.gradients(scores_i[None], [y_i])[0]
        return np.clip(alpha_i - g / sq_norm, 0.0, C_i)  # [OVR-S]
