"""The soft intercept of a run in memory (docs/math.md, [SOFT])."""

from __future__ import annotations

import numpy as np

#: Stiffness in the unit of mean ‖x‖² / (tau² n): 10 to 300 take the same epochs to 1e-3 on
#: news20_bydate, reuters52 and banking77, but with 400,000 generated rows, most of which lie still,
#: 10, 30, 100 and 1000 take 40, 13, 9 and 9, and no intercept 9.
SOFT = 100.0
#: Visits see b / sqrt(rho) in the rows' float type: rows that are next to nothing beside tau must
#: not push it out of range.
SOFTEST = 2.0**-60
#: The intercept moves so many times in a sweep.
SLICES = 10
#: Share of its step that the multiplier takes after a slice of a sweep that visits all rows alike:
#: most rows that will answer have not been asked yet, and with whole steps b goes to and fro for
#: ever (100 short rows, Lee-Lin-Wahba, 0.3: 36 sweeps to 1e-9). Visits by preference or to the
#: active rows reach those that answer soon enough.
UNIFORM_PACE = 0.3


def stiffness(n: int, mean_square: float, tau: float) -> float:
    """rho in (0, 1]: what an intercept answers to a change while a slice of visits runs.

    Parameters
    ----------
    mean_square : float
        Mean ‖x_i‖², the constant feature apart.
    """
    if tau == 0 or mean_square == 0:
        return 1.0
    return min(1.0, max(SOFTEST, SOFT * mean_square / (tau**2 * n)))


class SoftIntercept:
    """An intercept b that follows x = tau Σ_i B(alpha_i) between slices instead of within visits.

    x is a sum over all rows, so one row that moves it by its own optimal step is undone by the
    next ones; a visit therefore sees b answer with rho times its weight, and ADMM brings b and x
    together: one lane of what shards do. Both parts of the certificate stay exact, the primal at
    (W, b) and the dual at alpha.
    """

    def __init__(self, rho: float, k: int) -> None:
        self.rho, self.root = rho, np.sqrt(rho)
        self.own = np.zeros(k)  # x
        self.pull = np.zeros(k)  # the multiplier u
        self.pace = 1.0
        self.before = (np.zeros(k), np.zeros(k))

    def start(self, W: np.ndarray, warm: bool) -> None:
        """Take x from W = W(alpha).

        Variables of an earlier fit go on where ADMM would rest, at b = x. Others begin at b = 0:
        the first ones of Lee-Lin-Wahba are all at their bounds and x is far from any optimum.
        """
        self.own = W[-1].astype(np.float64)
        if warm:
            self.pull = self.own / self.rho
        else:
            W[-1] = 0

    def loosen(self, W: np.ndarray, shift: np.ndarray) -> None:
        """Before a slice: the last row of W in the unit of visits, whose constant is root·tau."""
        b = W[-1].astype(np.float64)
        if shift.size:  # Lee-Lin-Wahba's common part of all columns
            b += shift[-1]
            shift[-1] = 0
        W[-1] = b / self.root
        self.before = b, W[-1].astype(np.float64)

    def settle(self, W: np.ndarray, shift: np.ndarray) -> float:
        """After it: move b. Returns what the rise of the dual that visits saw has to change by."""
        b, start = self.before
        moved = W[-1].astype(np.float64) - start
        if shift.size:
            moved += shift[-1]
            shift[-1] = 0
        moved /= self.root
        # Visits saw <b, moved> + rho/2 |moved|² fall off; the dual loses <x, moved> + |moved|²/2.
        change = (b - self.own) @ moved + 0.5 * (self.rho - 1.0) * moved @ moved
        self.own = self.own + moved
        if shift.size:  # columns of W sum to zero there; float32 forgets it
            self.own -= self.own.mean()
        z = self.rho * (self.pull + self.own) / (1.0 + self.rho)
        self.pull = self.pull + self.pace * (self.own - z)
        W[-1] = self.rho * (self.pull + self.own - z)
        return float(change)

    def distance(self, W: np.ndarray) -> float:
        """½‖b - x‖², this intercept's share of the duality gap."""
        apart = W[-1].astype(np.float64) - self.own
        return float(0.5 * apart @ apart)
