"""Lee, Lin and Wahba: rivals' scores pushed below -1, scores sum to zero."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dask_mcsvm.formulations._base import FloatArray
from dask_mcsvm.formulations._box import BoxFormulation


@dataclass(frozen=True, eq=False)
class LeeLinWahba(BoxFormulation):
    """Hinges on the rivals' scores alone, under a sum-to-zero constraint (Lee et al., 2004).

    Sums over m in [LLW-P] and [LLW-D] leave out m = y_i; alpha_{i, y_i} = 0 is not a variable.

    [LLW-P]  P(W) = 1/2 ||W||^2 + sum_i C_i sum_m max(0, 1 + w_m.x_i),  subject to sum_m w_m = 0
    [LLW-D]  D(alpha) = sum_im alpha_im - 1/2 ||W(alpha)||^2,  0 <= alpha_im <= C_i
    [LLW-W]  w_m = w_bar - sum_i alpha_im x_i,  w_bar = (1/k) sum_i (sum_c alpha_ic) x_i
    [LLW-G]  g_im = -1 - w_m.x_i
    [LLW-S]  alpha_im <- clip(v_m + S/k, 0, C_i),  v_m = alpha_im - g_im / A_i - sum_c alpha_ic / k,
             S the root of S = sum_m clip(v_m + S/k, 0, C_i)

    `primal` and `gradients` take the constraint for granted: a W whose columns do not sum to zero
    could undercut the dual, so pass a W from elsewhere through `project_weights` first.

    References
    ----------
    Alber et al. (2017), Distributed optimization of multi-class SVMs, Algorithms 1 and 2.
    """

    short_name, title = "llw", "Lee-Lin-Wahba"
    group_solver = "averaging"
    starts_at_bound = True
    columns_sum_to_zero = True
    gap_by_gain = True

    @staticmethod
    def loss_at_zero(n_classes: int) -> float:
        return n_classes - 1.0

    def coefficients(self, alpha: npt.ArrayLike, y: npt.ArrayLike) -> FloatArray:
        values = np.asarray(alpha, dtype=np.float64)
        B: FloatArray = values.mean(axis=1, keepdims=True) - values  # [LLW-W]
        return B

    def project_weights(self, W: npt.ArrayLike) -> FloatArray:
        values = np.asarray(W, dtype=np.float64)
        centred: FloatArray = values - values.mean(axis=1, keepdims=True)
        return centred

    def losses_from_scores(self, scores: FloatArray, y: npt.ArrayLike) -> FloatArray:
        hinges = np.maximum(0.0, -self.gradients(scores, y))
        losses: FloatArray = np.sum(hinges, axis=1)  # [LLW-P]
        return losses

    def gradients(self, scores: FloatArray, y: npt.ArrayLike) -> FloatArray:
        return np.where(self.own(y), 0.0, -1.0 - scores)  # [LLW-G]

    def block_step(
        self, alpha_i: FloatArray, scores_i: FloatArray, sq_norm: float, y_i: int, C_i: float
    ) -> FloatArray:
        # w_bar follows every alpha_im by x/k, which takes A/k off each pair: Hessian
        # A (I - 1 1^T / k).
        kappa = -1.0 / self.n_classes
        return self.coupled_step(alpha_i, scores_i, sq_norm, y_i, C_i, kappa)  # [LLW-S]
