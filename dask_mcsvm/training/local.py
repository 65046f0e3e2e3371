"""The loop in memory: run an epoch, record it, certify when the estimate says so, stop."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .plan import Plan
from .problem import Fit, OnEpoch, Problem

logger = logging.getLogger("dask_mcsvm")

#: Epochs of the first solver before it is judged, by how many of them, and how many more at that
#: rate are too many. The other one takes as long as 30 to 100. Judged after 10 standardized USPS
#: takes 1.8 s instead of 1.3, after 30 MNIST in [0, 1] 12.4 instead of 10.8.
TRIAL, STRETCH, TOO_MANY = 20.0, 10.0, 60.0

if TYPE_CHECKING:
    from dask_mcsvm.solvers.duals import Duals
    from dask_mcsvm.solvers.sequential import EpochResult


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


def is_slow(history: Sequence[dict[str, Any]], tol: float) -> bool:
    """Whether the gap, at its present rate, is still above ``tol`` in `TOO_MANY` epochs.

    Single estimates jump: the rate is that between the means of two stretches.
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
        (np.mean([r["epoch"] for r in part]), np.mean([np.log(r["gap"]) for r in part]))
        for part in stretches
    )
    return bool(np.log(gap / tol) > TOO_MANY * (high - low) / (end - begin))


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
        while self.epochs < self.max_epochs:
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
            n_iter=int(np.ceil(self.epochs)),
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
        if self.plan.then not in (None, self.solver) and is_slow(self.history, self.tol):
            self._take_over()
        return None

    def _take_over(self) -> None:
        """The plan's second solver goes on from the dual variables of the first."""
        assert self.plan.then is not None
        logger.info(
            "%s is slow here: a gap of %.1e after %.0f epochs; %s goes on",
            self.solver, self.history[-1]["gap"], self.epochs, self.plan.then,
        )  # fmt: skip
        self.dual_run = self._begin(self.plan.then, self.dual_run.duals())

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
