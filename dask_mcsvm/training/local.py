"""The loop in memory: run an epoch, record it, certify when the estimate says so, stop."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from math import log
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from .plan import TRIAL, Plan, matrix_epochs
from .problem import Fit, OnEpoch, Problem, counted_epochs, is_over

logger = logging.getLogger("dask_mcsvm")

#: The first solver is judged after `TRIAL` epochs, by so many of them, and by how many more at that
#: rate are too many. The other one takes as long as 30 to 100. Judged after 10 standardized USPS
#: takes 1.8 s instead of 1.3, after 30 MNIST in [0, 1] 12.4 instead of 10.8.
STRETCH, TOO_MANY = 10.0, 60.0
#: What the other solver's matrices cost is added to that, up to here: a rate does not hold for
#: ever, and the largest matrices take seconds.
MOST_MATRIX_EPOCHS = 240.0
#: With a gap above this share of the primal dual variables are no start: of rows of unlike scales
#: they can make a W far worse than none (30 x 4, scales 1e-6 to 1e6: no end instead of 120 epochs).
USEFUL_GAP = 0.99
TINY = 1e-300

if TYPE_CHECKING:
    from dask_mcsvm.solvers.duals import Duals
    from dask_mcsvm.solvers.sequential import EpochResult

    from .dask_plan import DaskPlan


def train(
    problem: Problem,
    plan: Plan,
    *,
    tol: float,
    max_epochs: int,
    seed: int,
    n_jobs: int = 1,
    start: Duals | None = None,
    on_epoch: OnEpoch | None = None,
) -> Fit:
    """Train until the relative duality gap is at most ``tol``.

    Parameters
    ----------
    start : Duals, optional
        Dual variables of an earlier fit on the same rows; scaled to this problem's C.
    on_epoch : callable, optional
        Called with each record of the history; a true answer ends the fit, certified.
    """
    return _Loop(problem, plan, tol, max_epochs, seed, n_jobs, start, on_epoch).run()


def _run_class(solver: str) -> Any:
    """What runs the epochs of a solver; numba is imported when something is solved."""
    if solver == "splitting":
        from dask_mcsvm.solvers.splitting import Splitting

        return Splitting
    from dask_mcsvm.solvers.sequential import SequentialDual

    return SequentialDual


def second_is_due(plan: Plan | DaskPlan, history: Sequence[dict[str, Any]], tol: float) -> bool:
    """Whether the second solver of a plan, if it has one, should go on."""
    if plan.then is None or not history:
        return False
    prepared = min(matrix_epochs(plan.n, plan.d, plan.k), MOST_MATRIX_EPOCHS)
    return is_slow(history, tol, TOO_MANY + prepared)


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


def log_hand_over(solver: str, then: str, last: dict[str, Any]) -> None:
    """Say that another solver goes on, and why."""
    logger.info(
        "%s is slow here: a gap of %.1e after %.0f epochs; %s goes on",
        solver, last["gap"], last["epoch"], then,
    )  # fmt: skip


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
    rate = np.log(before / gap) / (last - first)
    return float(np.clip(np.log(gap / tol) / rate, 2.0, 8.0))


class _Loop:
    """One fit from first epoch to certificate."""

    def __init__(
        self,
        problem: Problem,
        plan: Plan,
        tol: float,
        max_epochs: int,
        seed: int,
        n_jobs: int,
        start: Duals | None,
        on_epoch: OnEpoch | None,
    ) -> None:
        self.problem, self.plan, self.tol, self.max_epochs = problem, plan, tol, max_epochs
        self.seed, self.n_jobs, self.on_epoch = seed, n_jobs, on_epoch
        self.begun = time.perf_counter()
        self.dual_run: Any = self._begin(plan.solver, start)
        self.history: list[dict[str, Any]] = []
        self.work = 0
        self.last_look = 0.0

    def _begin(self, solver: str, start: Duals | None) -> Any:
        problem, self.solver = self.problem, solver
        return _run_class(solver)(
            problem.rows,
            problem.y,
            problem.C,
            n_classes=problem.n_classes,
            formulation=problem.formulation,
            tau=problem.tau,
            seed=self.seed,
            n_jobs=self.n_jobs,
            start=start,
        )

    @property
    def epochs(self) -> float:
        """Effective loops so far: class scores computed over n·k."""
        return self.work / (self.plan.n * self.plan.k)

    def run(self) -> Fit:
        stop = "max_epochs"
        while not is_over(self.epochs, self.max_epochs):
            done = self._advance()
            if done:
                stop = done
                break
        run = self.dual_run
        primal, dual = self._closing_certificate()
        gap = self.problem.relative(primal, dual)
        duals = run.duals()
        return Fit(
            W=run.W,
            alpha=duals,
            primal=primal,
            dual=dual,
            gap=gap,
            history=self.history,
            n_iter=counted_epochs(self.epochs, self.max_epochs),
            converged=bool(np.isfinite(gap)) and (gap <= self.tol or stop == "violation"),
            stop=stop,
            dual_density=duals.density,
            solver=self.solver,
        )

    def _closing_certificate(self) -> tuple[float, float]:
        """Primal and dual of what is handed out; the last epoch's, if that was certified."""
        last = self.history[-1] if self.history else None
        if last is not None and last["certified"]:
            return last["primal"], last["dual"]
        primal, dual = self.dual_run.certify()
        if last is not None:
            gap = self.problem.relative(primal, dual)
            last.update(primal=primal, dual=dual, gap=gap, certified=True)
        return primal, dual

    def _advance(self) -> str | None:
        run = self.dual_run
        result = self._epoch()
        self.work += result.work
        dual, gap = run.dual, run.gap
        primal = dual + gap
        certified = self._time_to_look(self.problem.relative(primal, dual))
        if certified:
            primal, dual = run.certify()
        relative = self.problem.relative(primal, dual)
        record = {
            "epoch": self.epochs,
            "seconds": time.perf_counter() - self.begun,
            "primal": float(primal),
            "dual": float(dual),
            "gap": relative,
            "certified": certified,
            "active": float(result.active),
            "violation": float(result.violation),
        }
        self.history.append(record)
        if self.on_epoch is not None and self.on_epoch(dict(record)):
            return "callback"
        if certified and relative <= self.tol and self.plan.stop == "gap":
            return "gap"
        if self.plan.stop == "violation" and result.violation <= self.tol:
            return "violation"
        if self.solver == self.plan.solver and second_is_due(self.plan, self.history, self.tol):
            self._take_over()
        return None

    def _take_over(self) -> None:
        """The plan's second solver goes on, from the dual variables of the first if they help."""
        assert self.plan.then is not None
        start = self.dual_run.duals() if self.history[-1]["gap"] <= USEFUL_GAP else None
        log_hand_over(self.solver, self.plan.then, self.history[-1])
        self.dual_run = self._begin(self.plan.then, start)

    def _epoch(self) -> EpochResult:
        run, schedule = self.dual_run, self.plan.schedule
        if self.solver == "splitting":
            schedule = "newton"
        cooling = {"cooling": self.plan.cooling} if schedule == "shrink" else {}
        result: EpochResult = getattr(run, f"{schedule}_epoch")(**cooling)
        return result

    def _time_to_look(self, estimate: float) -> bool:
        """Certify when the estimate is near tol, and now and then to keep a float32 W exact."""
        if self.tol == 0:
            return False
        waited = self.epochs - self.last_look
        # What examples showed before the last moves of W is 1.3 to 1.5 times what they show now.
        near = estimate <= 1.4 * self.tol and waited >= min(8.0, 0.1 * self.epochs)
        drifted = 32.0 if self.plan.dtype == "float32" else max(32.0, 0.1 * self.epochs)
        if near or (waited >= drifted and getattr(self.dual_run, "drifts", True)):
            self.last_look = self.epochs
            return True
        return False


def certify_primal(problem: Problem, W: np.ndarray, n_jobs: int = 1) -> float:
    """P(W) in float64."""
    from dask_mcsvm.solvers.sequential import primal_of

    primal: float = primal_of(
        problem.rows,
        problem.y,
        problem.C,
        W,
        formulation=problem.formulation,
        tau=problem.tau,
        n_jobs=n_jobs,
    )
    return primal
