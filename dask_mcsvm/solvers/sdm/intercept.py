"""The soft intercept of a run in memory (docs/math.md, [SOFT])."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

#: Stiffness in the unit of mean ‖x‖² / (tau² m), m visits between two moves of the intercept: with
#: 1 the m rows would undo in those visits what b moved, if all of them answered. Not all do; 1 to
#: 10 take the same epochs on texts of 6,000 to 1,800,000 rows with tau = 1, and 10 with a large
#: tau, too (reuters52, tau = 10: 14 epochs with 1, 12 with 10).
SOFT = 10.0
#: The intercept moves so many times in a sweep ...
MOVES = 10
#: ... and after so many visits at the latest. Its stiffness would otherwise fall with the number of
#: rows, and b be left behind by all other weights: moved ten times an epoch, 1,800,000 rows took 19
#: epochs to a gap of 1e-2 where they take 8 now, and 8 without an intercept.
MOST_VISITS = 4096
#: Threads have one and the same intercept again after so many visits; in between each moves one of
#: its own, which knows of the others' visits a moment later.
MEETING_VISITS = 2**17
#: Visits see b / sqrt(rho) in the rows' float type: rows that are next to nothing beside tau must
#: not push it out of range.
SOFTEST = 2.0**-60
#: Share of its step that the multiplier takes after a slice of a sweep that visits all rows alike:
#: most rows that will answer have not been asked yet, and with whole steps b goes to and fro for
#: ever (100 short rows, Lee-Lin-Wahba, 0.3: 36 sweeps to 1e-9). Visits by preference or to the
#: active rows reach those that answer soon enough.
UNIFORM_PACE = 0.3


def visits_between_moves(n: int, lanes: int = 1) -> int:
    """After so many visits by each lane, of n rows in all, the intercept moves."""
    return max(1, min(MOST_VISITS, n // MOVES) // lanes)


def stiffness(visits: int, mean_square: float, tau: float) -> float:
    """rho in (0, 1]: what an intercept answers to a change while a slice of visits runs.

    Parameters
    ----------
    visits : int
        Those of a lane between two moves of the intercept.
    mean_square : float
        Mean ‖x_i‖², the constant feature apart.
    """
    if tau == 0 or mean_square == 0:
        return 1.0
    rho = SOFT * mean_square / (tau**2 * visits)
    return min(1.0, max(SOFTEST, rho))


def visits_between_meetings(n: int) -> int:
    """After so many visits by all threads together, their intercepts become one again."""
    return max(1, min(MEETING_VISITS, n // MOVES))


def cut_visits(order: np.ndarray, visits: int) -> list[np.ndarray]:
    """Visits in the given order, in slices after each of which the intercept moves."""
    return np.array_split(order, max(1, round(order.size / visits)))


@dataclass(frozen=True)
class Sweep:
    """What some visits did: rise of the dual, largest violation, class scores computed."""

    gain: float = 0.0
    violation: float = 0.0
    work: int = 0

    def __add__(self, other: Sweep) -> Sweep:
        worst = max(self.violation, other.violation)
        return Sweep(self.gain + other.gain, worst, self.work + other.work)


class SoftIntercept:
    """An intercept b that follows x = tau Σ_i B(alpha_i) between slices instead of within visits.

    x is a sum over all rows, so one row that moves it by its own optimal step is undone by the
    next ones; a visit therefore sees b answer with rho times its weight, and ADMM brings b and x
    together: one lane of what shards do. Both parts of the certificate stay exact, the primal at
    (W, b) and the dual at alpha.

    One of several lanes on Dask moves b as if the others changed x by as much as it does. The moves
    are linear in x, so that the mean of the lanes' multipliers is that of moves made together.
    Threads learn of each other's moves soon enough to be one lane.
    """

    def __init__(self, rho: float, k: int, lanes: int = 1) -> None:
        self.rho, self.root, self.lanes = rho, np.sqrt(rho), lanes
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

    def take(
        self, W: np.ndarray, shift: np.ndarray, others: np.ndarray
    ) -> tuple[np.ndarray, float]:
        """After it: how far visits moved x, and <b, moved> + rho/2 |moved|², what they lost.

        ``others`` (k,) is what visits of other threads added to the last row meanwhile, half of
        which these visits saw; it is set to zero.
        """
        b, start = self.before
        moved = W[-1].astype(np.float64) - start
        if shift.size:
            moved += shift[-1]
            shift[-1] = 0
        moved /= self.root
        self.own = self.own + self.lanes * moved
        if shift.size:  # columns of W sum to zero there; float32 forgets it
            self.own -= self.own.mean()
        mine = moved - others / self.root
        others[:] = 0
        return mine, float(b @ mine + 0.5 * self.rho * moved @ mine)

    def move(self, W: np.ndarray) -> None:
        """b towards x; the multiplier holds the mean of the lanes' parts of x to z."""
        mean = self.own / self.lanes
        z = self.rho * (self.pull + mean) / (self.lanes + self.rho)
        self.pull = self.pull + self.pace * (mean - z)
        W[-1] = self.rho * (self.pull + mean - z)

    def visit(
        self,
        order: np.ndarray,
        visits: int,
        W: np.ndarray,
        shift: np.ndarray,
        sweep: Callable[[np.ndarray], Sweep],
        others: np.ndarray | None = None,
    ) -> tuple[Sweep, np.ndarray]:
        """Sweep ``order`` in slices of so many ``visits``, and move b between them.

        ``others`` is where a sweep says what other threads' visits added to x (see `take`).

        b does not move after the last slice: whoever knows what other lanes did meanwhile moves
        it. Returns what the visits did, their rise without what they saw x cost it, and how far x
        moved (k,).
        """
        done, all_moved = Sweep(), np.zeros(self.own.size)
        others = np.zeros(self.own.size) if others is None else others
        for place, part in enumerate(cut_visits(order, visits)):
            if place > 0:
                self.move(W)
            self.loosen(W, shift)
            done += sweep(part)
            moved, paid = self.take(W, shift, others)
            done += Sweep(paid)
            all_moved += moved
        return done, all_moved

    def copy(self) -> SoftIntercept:
        """For a lane to move by itself."""
        other = SoftIntercept(self.rho, self.own.size, self.lanes)
        other.own, other.pull, other.pace = self.own, self.pull, self.pace
        return other

    def follow(
        self, moved: np.ndarray, lanes: list[SoftIntercept], W: np.ndarray, shift: np.ndarray
    ) -> float:
        """Move b after lanes that together moved x by ``moved``; returns what the dual loses."""
        x = self.own
        self.own = x + moved
        if shift.size:
            self.own -= self.own.mean()
        self.pull = np.mean([lane.pull for lane in lanes], axis=0)
        self.move(W)
        return fall(x, moved)

    def distance(self, W: np.ndarray) -> float:
        """½‖b - x‖², this intercept's share of the duality gap."""
        apart = W[-1].astype(np.float64) - self.own
        return float(0.5 * apart @ apart)


def fall(x: np.ndarray, moved: np.ndarray) -> float:
    """½|x + moved|² - ½|x|²: what the dual loses where x moves."""
    return float(x @ moved + 0.5 * moved @ moved)
