"""The one loop of a fit: an epoch, a record of it, a certificate when that may be enough.

What it drives is a `Run`: rows in memory (`local`, `larank`), out of core (`out_of_core`,
`block_minimization`) or on Dask (`dask_run`, `larank_on_dask`). The loop alone keeps the history,
decides when to certify, to save, to let another solver go on and to stop.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil, isfinite, isnan, log, nan
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dask_mcsvm.formulations import FORMULATIONS, relative_gap
from dask_mcsvm.formulations.margins import EQUAL, Margins

from .plan import TRIAL, Plan, matrix_epochs, pass_epochs

if TYPE_CHECKING:
    import scipy.sparse as sp

    from dask_mcsvm.solvers.duals import Duals
    from dask_mcsvm.solvers.standardized import Standardized

    from .dask_plan import DaskPlan


OnEpoch = Callable[[dict[str, Any]], bool | None]


def is_over(epochs: float, max_epochs: int) -> bool:
    """Whether no epoch is left, to the nearest: visits by preference are n·k scores on average."""
    return round(epochs) >= max_epochs


def counted_epochs(epochs: float, max_epochs: int) -> int:
    """`n_iter_`: epochs begun, of which the last may have had a few scores more than its n·k."""
    return min(ceil(epochs), max_epochs)


@dataclass(frozen=True)
class Problem:
    """What a local solver sees.

    Attributes
    ----------
    rows : ndarray, csr_array or standardized rows of shape (n, d)
        float32 or float64, validated.
    y : ndarray of shape (n,), int32
        Codes of the classes.
    C : ndarray of shape (n,), float64
        Weight of each example's loss, all positive.
    n_classes : int
    formulation : str
        The long name.
    tau : float
        Value of the constant feature; 0.0 without an intercept.
    margins : Margins
        What mistakes cost.
    """

    rows: np.ndarray | sp.csr_array | Standardized
    y: np.ndarray
    C: np.ndarray
    n_classes: int
    formulation: str
    tau: float
    margins: Margins = EQUAL

    @cached_property
    def primal_at_zero(self) -> float:
        """P(0), which the relative gap of Lee-Lin-Wahba is measured by."""
        return float(
            FORMULATIONS[self.formulation](self.n_classes, self.C).primal_at_zero(self.y.size)
        )

    def relative(self, primal: float, dual: float) -> float:
        """The relative duality gap of this problem's formulation."""
        return float(relative_gap(self.formulation, primal, dual, self.primal_at_zero))


@dataclass(frozen=True)
class Fit:
    """A trained W (d + 1, k) with its certificate; its last row belongs to the constant feature.

    ``W`` is `SparseWeights` where it was hybrid; it is a Dask array that reads files, and ``alpha``
    None, where it was never in memory as a whole.
    """

    W: Any
    alpha: Duals | None
    primal: float
    dual: float
    gap: float
    history: list[dict[str, Any]]
    n_iter: int
    converged: bool
    stop: str
    dual_density: float
    solver: str | None = None  # that ended the fit, where the plan has two


logger = logging.getLogger("dask_mcsvm")

#: The first solver is judged after `TRIAL` epochs, by so many of them, and by how many more at that
#: rate are too many, where a pass of the other one costs no more than an epoch: it takes 30 to 100.
#: Judged after 10 standardized USPS takes 1.8 s instead of 1.3, after 30 MNIST in [0, 1] 12.4
#: instead of 10.8.
STRETCH, TOO_MANY = 10.0, 60.0
#: What the other solver's matrices cost is added to that, up to here: a rate does not hold for
#: ever, and the largest matrices take seconds.
MOST_MATRIX_EPOCHS = 240.0
#: With a gap above this share of the primal dual variables are no start: of rows of unlike scales
#: they can make a W far worse than none (30 x 4, scales 1e-6 to 1e6: no end instead of 120 epochs).
USEFUL_GAP = 0.99
#: The gap over its estimate before there was a certificate: what visits saw before the last moves
#: of W is 1.2 to 1.5 times what they would see now.
FIRST_CORRECTION = 0.75
#: An estimate may turn out far too large once; it is not trusted to be so ever after.
LEAST_CORRECTION = 0.5
TINY = 1e-300


class Advance(NamedTuple):
    """What an epoch of a run did."""

    work: int  # class scores computed
    gap: float = nan  # P - D as visits saw it on their way; nan where they see too little
    bounds: tuple[float, float] | None = None  # P and D, where the epoch was a certificate itself
    stop: str | None = None  # why the run thinks that it is over


class Run:
    """What the loop drives; the defaults are those of a run that saves nothing.

    Attributes
    ----------
    solver : str
        What runs now.
    dual : float
        D of the present variables, as the steps have counted it.
    scores : int
        Class scores of one epoch, n·k.
    epoch : int
        Epochs so far, each of about so many scores.
    plan : Plan or DaskPlan, optional
        Where it names a second solver, `take_over` begins that one.
    patience : float
        Epochs after which a certificate is due in any case: W drifts from W(alpha) meanwhile.
    save_every : int, optional
        Epochs between two saves; None where nothing is saved.
    is_kept : bool
        Whether what is saved is read after the fit is over.
    stops_by_gap : bool
        Whether a certified gap of at most tol ends the fit.
    absolute : float
        A difference P - D that is enough, whatever tol is.
    looks_itself : bool
        Whether the run, not the loop, decides when it is time for a certificate.
    certifies : bool
        Whether a model is to be certified at all.
    """

    solver: str
    dual: float
    scores: int
    epoch: int = 0
    plan: Plan | DaskPlan | None = None
    patience: float = 16.0
    save_every: int | None = None
    is_kept = False
    stops_by_gap = True
    absolute = 0.0
    looks_itself = False
    certifies = True

    def begin(self) -> None:
        """Make the first state, or read the one that `resume` found."""

    def advance(self) -> Advance:
        """Run an epoch."""
        raise NotImplementedError

    def certify(self) -> tuple[float, float]:
        """P and D in float64; W becomes that of alpha."""
        raise NotImplementedError

    def facts(self, history: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """What else belongs into the last record of the history."""
        raise NotImplementedError

    def take_over(self, *, from_duals: bool) -> None:
        """Have the second solver of the plan go on."""
        raise NotImplementedError

    def save(self, counted: dict[str, Any]) -> None:
        """Write the state, and what the loop has counted."""
        raise NotImplementedError

    def model(self) -> dict[str, Any]:
        """W, alpha and dual_density of a `Fit`."""
        raise NotImplementedError


#: What the loop itself is after an epoch; all of it is saved with a run's state.
COUNTED = ("work", "last_look", "correction", "history", "seconds")


class Loop:
    """One fit from its first epoch to its certificate.

    Parameters
    ----------
    relative : callable
        The relative duality gap of P and D.
    on_epoch : callable, optional
        Called with each record of the history; a true answer ends the fit, certified.
    counted : dict, optional
        `COUNTED` of the fit to go on with.
    """

    def __init__(
        self,
        run: Run,
        relative: Callable[[float, float], float],
        tol: float,
        max_epochs: int,
        on_epoch: OnEpoch | None,
        counted: dict[str, Any] | None = None,
    ) -> None:
        self.run, self.relative = run, relative
        self.tol, self.max_epochs, self.on_epoch = tol, max_epochs, on_epoch
        self.history: list[dict[str, Any]] = []
        self.work, self.last_look, self.seconds = 0, 0.0, 0.0
        #: The gap over its estimate at the last certificate.
        self.correction = FIRST_CORRECTION
        vars(self).update(counted or {})
        self.begun = time.perf_counter() - self.seconds
        #: Epochs of the run that are in the history, and that are saved.
        self.whole = self.saved = run.epoch

    @property
    def epochs(self) -> float:
        """Effective loops so far: class scores computed over n·k."""
        return self.work / self.run.scores

    def fit(self) -> Fit:
        """Run epochs until it is enough."""
        self.run.begin()
        stop = self._reached_tol()
        while stop is None and not is_over(self.epochs, self.max_epochs):
            self._hand_over_if_slow()
            stop = self._epoch()
        return self._finish(stop or "max_epochs")

    def save_whole(self) -> int:
        """Save the last whole epoch, if the run still holds it; which one is on disk then."""
        if self.run.epoch == self.whole != self.saved:
            self._save()
        return self.saved

    def _hand_over_if_slow(self) -> None:
        """The plan's second solver goes on, from the dual variables of the first if they help."""
        run, plan = self.run, self.run.plan
        if plan is None or run.solver != plan.solver:
            return
        if not second_is_due(plan, self.history, self.tol):
            return
        last = self.history[-1]
        logger.info(
            "%s is slow here: a gap of %.1e after %.0f epochs; %s goes on",
            run.solver, last["gap"], last["epoch"], plan.then,
        )  # fmt: skip
        run.take_over(from_duals=last["gap"] <= USEFUL_GAP)
        self.correction = FIRST_CORRECTION

    def _epoch(self) -> str | None:
        run = self.run
        done = run.advance()
        self.work += max(1, done.work)
        primal, dual, bounds = run.dual + done.gap, run.dual, done.bounds
        estimate = nan if isnan(done.gap) else self.relative(primal, dual)
        begun = time.perf_counter()
        if bounds is None and self._time_to_look(estimate, self._enough(primal)):
            bounds = run.certify()
        certify_seconds = time.perf_counter() - begun
        if bounds is not None:
            primal, dual = bounds
        gap = estimate if bounds is None else self.relative(primal, dual)
        if bounds is not None:
            self.last_look = self.epochs
            self.correction = max(LEAST_CORRECTION, gap / estimate) if estimate > 0 else 1.0
        self.seconds = time.perf_counter() - self.begun
        record = {
            "epoch": self.epochs,
            "seconds": self.seconds,
            "primal": float(primal),
            "dual": float(dual),
            "gap": gap,
            "estimate": estimate,
            "certified": bounds is not None,
            "certify_seconds": certify_seconds,
        }
        self.history.append(record)
        record |= run.facts(self.history)
        self.whole = run.epoch
        if run.save_every is not None and self.whole - self.saved >= run.save_every:
            self._save()
        if self.on_epoch is not None and self.on_epoch(dict(record)):
            return "callback"
        return done.stop or self._reached_tol()

    def _enough(self, primal: float) -> float:
        """The relative gap that ends the fit, at an objective of this size."""
        return max(self.tol, self.run.absolute / primal) if primal > 0 else self.tol

    def _time_to_look(self, estimate: float, enough: float) -> bool:
        """Certify when the estimate is near enough, and now and then in any case."""
        if enough == 0 or self.run.looks_itself:
            return False
        waited = self.epochs - self.last_look
        is_near = self.correction * estimate <= enough
        patience = self.run.patience
        if isnan(estimate):
            patience = min(patience, epochs_to_tol(self.history, enough))
        return (is_near and waited >= min(4.0, 0.1 * self.epochs)) or (
            waited >= max(patience, 0.1 * self.epochs)
        )

    def _reached_tol(self) -> str | None:
        """Whether the last epoch, perhaps one before a resume, was certified to be good enough."""
        if not self.history or not self.run.stops_by_gap:
            return None
        last = self.history[-1]
        enough = self._enough(last["primal"])
        return "gap" if enough > 0 and last["certified"] and last["gap"] <= enough else None

    def _finish(self, stop: str) -> Fit:
        run = self.run
        last: dict[str, Any] = self.history[-1] if self.history else {"certified": False}
        # Before the last certificate, which makes W anew: a fit that goes on from here takes the
        # same steps as one that was never stopped.
        if run.is_kept and self.saved != self.whole:
            self._save()
        if run.certifies and not last["certified"]:
            begun = time.perf_counter()
            primal, dual = run.certify()
            gap, spent = self.relative(primal, dual), time.perf_counter() - begun
            last.update(primal=primal, dual=dual, gap=gap, certified=True, certify_seconds=spent)
        gap, enough = last["gap"], self._enough(last["primal"])
        is_enough = gap <= enough or stop == "violation"
        return Fit(
            primal=last["primal"],
            dual=last["dual"],
            gap=gap,
            history=self.history,
            n_iter=counted_epochs(self.epochs, self.max_epochs),
            converged=stop == "dual" or (isfinite(gap) and is_enough),
            stop=stop,
            solver=run.solver,
            **run.model(),
        )

    def _save(self) -> None:
        self.run.save({name: getattr(self, name) for name in COUNTED})
        self.saved = self.whole


# -- another solver ------------------------------------------------------------------------------


def second_is_due(plan: Plan | DaskPlan, history: Sequence[dict[str, Any]], tol: float) -> bool:
    """Whether the second solver of a plan, if it has one, should go on."""
    if plan.then is None or not history:
        return False
    shape = plan.n, plan.d, plan.k, plan.nnz
    prepared = min(matrix_epochs(*shape), MOST_MATRIX_EPOCHS)
    return is_slow(history, tol, TOO_MANY * max(1.0, pass_epochs(*shape)) + prepared)


def is_slow(history: Sequence[dict[str, Any]], tol: float, too_many: float = TOO_MANY) -> bool:
    """Whether the gap, at its present rate, is still above ``tol`` in ``too_many`` epochs.

    Single estimates jump: the rate is that between the means of two stretches. It is that of P - D:
    the relative gap stays near 1 while P is far above D, however fast P falls. All follows from the
    history, so that a fit that was resumed decides as one that was never stopped.
    """
    now, gap = history[-1]["epoch"], history[-1]["gap"]
    if now < TRIAL or tol == 0 or gap <= tol:
        return False
    stretches = [
        [record for record in history if last - STRETCH < record["epoch"] <= last]
        for last in (now - STRETCH, now)
    ]
    if not all(stretches):
        return False
    (begin, high), (end, low) = (
        (fmean(r["epoch"] for r in part), fmean(_log_gap(r, tol) for r in part))
        for part in stretches
    )
    # Not "greater than": a gap that is not a number does not fall.
    return not log(gap / tol) <= too_many * (high - low) / (end - begin)


def _log_gap(record: dict[str, Any], tol: float) -> float:
    """log(P - D); a lucky estimate counts as what is small enough."""
    primal = record["primal"]
    return log(max(primal - record["dual"], tol * primal, TINY))


def epochs_to_tol(history: Sequence[dict[str, Any]], tol: float) -> float:
    """From the last certificate, if the gap goes on to fall as it did; 2 to 8."""
    looks = [(e, record["gap"]) for e, record in enumerate(history) if record["certified"]]
    (first, before), (last, gap) = [(-1, 1.0), (-1, 1.0), *looks][-2:]
    if not tol < gap < before:
        return 8.0
    rate = log(before / gap) / (last - first)
    return min(max(log(gap / tol) / rate, 2.0), 8.0)
