"""Crammer and Singer: only the nearest rival class costs something."""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from dask_mcsvm.formulations._base import FloatArray, Formulation, Rows
from dask_mcsvm.formulations.margins import dearest_rival

# A variable nearer to its bound than this part of C_i counts as at it. alpha_{i, y_i} = -sum of
# rivals misses C_i by rounding; without the slack an optimal block would show a violation of 1.
BOUND_SLACK = 1e-10


@dataclass(frozen=True, eq=False)
class CrammerSinger(Formulation):
    """Hinge of the strongest rival (Crammer and Singer, 2001).

    Delta(y, m) is 1, or the margin asked for between m and y; Delta(y, y) = 0.

    [CS-P]  P(W) = 1/2 ||W||^2 + sum_i C_i max_m Delta(y_i, m) + (w_m - w_{y_i}).x_i
    [CS-D]  D(alpha) = -sum_im Delta(y_i, m) alpha_im - 1/2 ||W(alpha)||^2,
            alpha_im <= C_i [m = y_i],  sum_m alpha_im = 0
    [CS-W]  w_m = sum_i alpha_im x_i
    [CS-G]  g_im = w_m.x_i + Delta(y_i, m)
    [CS-S]  alpha_im <- C_i [m = y_i] - p_m,  p the projection of
            u_m = C_i [m = y_i] - alpha_im + g_im / A_i onto {p >= 0, sum_m p_m = C_i}
    [CS-V]  v_i = max_m g_im - min_{m: alpha_im < C_i [m = y_i]} g_im  (< beyond rounding)
    [CS-Z]  x_i = 0: alpha_{i, y_i} = C_i and the rival with the largest margin -C_i

    References
    ----------
    Keerthi et al. (2008), A Sequential Dual Method for Large Scale Multi-Class Linear SVMs.
    """

    short_name, title = "cs", "Crammer-Singer"
    linear_svc = "crammer_singer"
    group_solver = "exchange"
    loss_is_maximum = True
    compares_with_own = True
    has_own_variable = True
    has_margins = True
    rival_sign = 1

    @staticmethod
    def loss_at_zero(n_classes: int) -> float:
        return 1.0

    def coefficients(self, alpha: npt.ArrayLike, y: npt.ArrayLike) -> FloatArray:
        return np.array(alpha, dtype=np.float64)  # [CS-W]

    def losses_from_scores(self, scores: FloatArray, y: npt.ArrayLike) -> FloatArray:
        # g at m = y_i is the own score, so the maximum over all m is never below it: the hinge.
        g = self.gradients(scores, y)
        losses: FloatArray = np.max(g, axis=1) - scores[self.own(y)]  # [CS-P]
        return losses

    def dual_linear(self, alpha: npt.ArrayLike, y: npt.ArrayLike) -> FloatArray:
        values = np.asarray(alpha, dtype=np.float64)
        return -self._rival_sums(values * self.margin_rows(y), y)  # [CS-D]

    def gradients(self, scores: FloatArray, y: npt.ArrayLike) -> FloatArray:
        return scores + self.margin_rows(y)  # [CS-G]

    def upper(self, y: npt.ArrayLike) -> FloatArray:
        """C_i [m = y_i], shape (n, k)."""
        own = self.own(y)
        return np.where(own, self.costs(own.shape[0])[:, None], 0.0)

    def feasible(self, alpha: npt.ArrayLike, y: npt.ArrayLike, atol: float = 0.0) -> bool:
        values = np.asarray(alpha, dtype=np.float64)
        # The sum is tested as `repair` writes it, so that atol=0 means something in floats.
        imbalance = values[self.own(y)] + self._rival_sums(values, y)
        return bool(np.all(values <= self.upper(y) + atol) and np.all(np.abs(imbalance) <= atol))

    def repair(self, alpha: npt.ArrayLike, y: npt.ArrayLike) -> FloatArray:
        """Rivals clipped to <= 0 and shrunk to a sum >= -C_i; alpha_{i, y_i} balances them."""
        own = self.own(y)
        costs = self.costs(own.shape[0])
        rivals = np.where(own, 0.0, np.minimum(np.asarray(alpha, dtype=np.float64), 0.0))
        total = -self._rival_sums(rivals, y)
        # A hair below C_i / total: a rounded sum of k scaled terms must not end above C_i.
        hair = 1.0 - 4 * self.n_classes * np.finfo(np.float64).eps
        scale = np.ones_like(total)
        np.divide(costs * hair, total, out=scale, where=total > costs)
        rivals *= scale[:, None]
        # 0 - sum, not -sum: a row of zeros keeps +0.
        return np.where(own, (0.0 - self._rival_sums(rivals, y))[:, None], rivals)

    def zero_row_alpha(self, y: npt.ArrayLike) -> FloatArray:
        """The rival of a row is the first of those with the largest margin."""
        labels = np.asarray(y)
        alpha = self.upper(labels)
        rivals = [dearest_rival(self.margins, label, self.n_classes) for label in labels]
        alpha[np.arange(labels.size), rivals] = -self.costs(labels.size)
        return alpha  # [CS-Z]

    def violations(self, alpha: npt.ArrayLike, X: Rows, y: npt.ArrayLike) -> FloatArray:
        """v (n,); 0 where C_i = 0, a block without room to move."""
        values = np.asarray(alpha, dtype=np.float64)
        g = self.gradients(self.scores(self.weights(values, X, y), X), y)
        has_room = self.upper(y) - values > BOUND_SLACK * self.costs(g.shape[0])[:, None]
        highest: FloatArray = np.max(g, axis=1)
        lowest: FloatArray = np.min(np.where(has_room, g, highest[:, None]), axis=1)
        return highest - lowest  # [CS-V]

    def block_step(
        self, alpha_i: FloatArray, scores_i: FloatArray, sq_norm: float, y_i: int, C_i: float
    ) -> FloatArray:
        one = replace(self, C=C_i)
        g = one.gradients(scores_i[None], [y_i])[0]
        upper = one.upper([y_i])[0]
        # The projection ignores a constant, and g / A of a short row would swallow alpha's digits.
        u = upper - alpha_i + (g - np.max(g)) / sq_norm
        # Rounding leaves a sum of 1e-16 or so: repair makes the block feasible to the last bit.
        new: FloatArray = one.repair((upper - project_to_simplex(u, C_i))[None], [y_i])[0]  # [CS-S]
        return new

    def _rival_sums(self, alpha: FloatArray, y: npt.ArrayLike) -> FloatArray:
        """sum_{m != y_i} alpha_im, shape (n,)."""
        # One memory order, so that the same row always gives the same rounding.
        rivals = np.where(self.own(y), 0.0, np.ascontiguousarray(alpha))
        sums: FloatArray = np.sum(rivals, axis=1)
        return sums


def project_to_simplex(u: FloatArray, total: float) -> FloatArray:
    """The point of {p >= 0, sum p = total} nearest to u, both of shape (k,), by sorting."""
    descending = np.sort(u)[::-1]
    thresholds = (np.cumsum(descending) - total) / np.arange(1, u.size + 1)
    # The threshold of the largest set whose smallest member is still above it. The first
    # always qualifies unless total = 0, and then it is right as well.
    above = np.flatnonzero(descending > thresholds)
    theta = float(thresholds[above[-1]] if above.size else thresholds[0])
    return np.maximum(u - theta, 0.0)
