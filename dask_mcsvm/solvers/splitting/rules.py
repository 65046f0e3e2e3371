"""The rules by which the splitting solver decides its next step ([SPLIT] of docs/math.md)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

#: The penalty in units of a row's own C_i, where a loss costs 1 and margins are about 1.
FIRST_PENALTY, WARM_PENALTY, LEAST_PENALTY, MOST_PENALTY = 0.1, 1.0, 1e-9, 1e9
#: Multipliers move when W - W(alpha) makes up less than this multiple of the rest of the gap.
INNER_GAP = 1.0
#: The penalty grows when so few Newton steps were enough, and falls when so many were needed.
FEW_STEPS, MANY_STEPS, MOST_STEPS = 2, 6, 10
PENALTY_UP, PENALTY_DOWN = 3.0, 0.5
#: A step that left at most this part of the gradient met no kink: it is not counted. With features
#: of scale 1e-8 and 1e8 a gradient has ten digits to lose, however easy the penalty makes it.
EASY = 0.1
#: CG ends at the first of these, and at the square of what the last step left of the gradient.
CG_TOLERANCE, CG_FINEST = 0.1, 1e-4
#: The most lengths of a step that are tried.
SLOPES = 8
#: While the gap is above this part of the primal, a part of the rows, at least so many, is enough
#: to work out a direction.
FAR, CURVED_ROWS = 0.1, 4096
#: A direction from a part of the rows is the last of its kind if W went less of its length: a
#: column that is zero in that part looks flat, and the direction is far too long there.
SHORT = 0.1


class Place(NamedTuple):
    """What depends on where the rows are: on Dask a pass costs more than what it computes."""

    slope_left: float  # a step is long enough where the slope is this part of the first
    #: Free variables per weight of W that are enough for a direction far from the solution. On
    #: Dask 100,000 rows of 10 overlapping classes take 48 passes with 32, and 88 with 4.
    curved_per_weight: int
    #: Up to so many bytes of active rows the machine is given them and solves Newton's system
    #: itself; to send 16 MiB takes as long as a few passes.
    gathered_bytes: float
    #: Numbers that the classes' own blocks of a preconditioner may take; above, all share one.
    most_factors: float
    keeps_scores: bool  # a slope takes no pass over X


IN_MEMORY = Place(0.1, 4, np.inf, np.inf, True)
ON_DASK = Place(0.3, 32, 2**24, 2**23, False)


def penalty_parts(square: Any, mean: float) -> Any:
    """The part of the penalty of each row; square (m,) are ‖x_i‖² + tau², ``mean`` by C_i theirs.

    A step of W moves the scores of a long row further than those of others, across many kinks of
    its loss; with a smaller penalty the kinks are as far apart as in other rows.
    """
    return mean / np.maximum(square, mean) if mean > 0 else np.ones_like(square)


def multipliers_move(primal: float, dual: float, g: Any, steps: int) -> bool:
    """Whether other multipliers can close more of the gap than more steps [SPLIT-GAP]."""
    residual = 0.5 * float(np.vdot(g, g))
    return residual <= INNER_GAP * (primal - dual - residual) or steps >= MOST_STEPS


def gradient_left(g: Any, before: float) -> float:
    """The part of the gradient that the last step left; 1 if ``before`` is 0: there was none."""
    return float(np.linalg.norm(g)) / before if before > 0 else 1.0


def cg_tolerance(left: float) -> float:
    """How exact a direction is to be: the steps converge faster and faster where nothing bends."""
    return min(CG_TOLERANCE, max(CG_FINEST, left * left))


def next_penalty(penalty: float, steps: int) -> float:
    """A penalty that suits the steps that the last one took, easy ones left out."""
    if steps <= FEW_STEPS:
        return min(penalty * PENALTY_UP, MOST_PENALTY)
    return max(penalty * PENALTY_DOWN, LEAST_PENALTY) if steps >= MANY_STEPS else penalty


def curved_stride(gap: float, primal: float, *, free: int, active: int, wanted: int) -> int:
    """One in so many of the active rows is enough for a direction; ``wanted`` are to be free."""
    spare = min(free // wanted, active // CURVED_ROWS)
    return max(1, spare) if gap > FAR * primal else 1


def sample_misled(stride: int, t: float) -> bool:
    """Whether a direction from one in ``stride`` rows was no good; W went t of its length."""
    return stride > 1 and t < SHORT


def best_multiple(linear: float, square: float) -> tuple[float, float]:
    """t in [0, 1] with the largest dual t l - t²/2 ‖W‖², and that dual; t alpha is feasible too."""
    t = 1.0 if linear >= square else linear / square
    return t, t * linear - 0.5 * t * t * square


class Length(NamedTuple):
    """False position for the length ``t`` of a step, along which the slope rises from ``first``."""

    first: float = 0.0
    left: float = 0.0  # the part of it at which t is long enough
    t: float = 1.0
    low: float = 0.0
    slope_low: float = 0.0
    high: float = np.inf
    slope_high: float = np.inf
    tried: int = 0

    @property
    def is_last(self) -> bool:
        """Whether t is to be taken whatever its slope."""
        return self.tried >= SLOPES

    def is_enough(self, slope: float) -> bool:
        """Whether little is left of the slope at t, or no more lengths are tried."""
        return abs(slope) <= -self.left * self.first or self.is_last

    def after(self, slope: float) -> Length:
        """The next length to try, or the last one to take, when t has this slope."""
        now = self._replace(tried=self.tried + 1)
        if slope < 0:
            now = now._replace(low=self.t, slope_low=slope)
        else:
            now = now._replace(high=self.t, slope_high=slope)
        if now.is_last:
            return now._replace(t=now.low or now.t)
        if not np.isfinite(now.high):
            return now._replace(t=2 * now.t)
        below = now.slope_low if now.low > 0 else now.first
        share = min(max(below / (below - now.slope_high), 0.1), 0.9)
        return now._replace(t=now.low + share * (now.high - now.low))
