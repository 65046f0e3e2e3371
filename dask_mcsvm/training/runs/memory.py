"""A run in memory: sdm or splitting, and the one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dask_mcsvm.training.loop import Advance, Fit, Loop, OnEpoch, Problem, Run
from dask_mcsvm.training.plan import Plan
from dask_mcsvm.training.table import IN_MEMORY, solver_at

if TYPE_CHECKING:
    from dask_mcsvm.solvers.duals import Duals


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
    run = MemoryRun(problem, plan, tol, seed, n_jobs, start)
    return Loop(run, problem.relative, tol, max_epochs, on_epoch).fit()


class MemoryRun(Run):
    """Epochs of the solvers that have all rows in memory."""

    plan: Plan

    def __init__(
        self,
        problem: Problem,
        plan: Plan,
        tol: float,
        seed: int,
        n_jobs: int,
        start: Duals | None,
    ) -> None:
        self.problem, self.plan, self.tol, self.seed = problem, plan, tol, seed
        self.n_jobs, self.start = n_jobs, start
        self.solver, self.scores = plan.solver, plan.n * plan.k
        self.stops_by_gap = plan.stop == "gap"

    def begin(self) -> None:
        problem = self.problem
        self.state = solver_at(self.solver, IN_MEMORY).make()(
            problem.rows, problem.y, problem.C, n_classes=problem.n_classes,
            formulation=problem.formulation, tau=problem.tau, seed=self.seed, n_jobs=self.n_jobs,
            start=self.start, margins=problem.margins, **self.layout(),
        )  # fmt: skip
        self.dual, self.start = self.state.dual, None
        self.patience = self.state.patience

    def layout(self) -> dict[str, Any]:
        """What the plan says of W; splitting has one way."""
        if self.solver != "sdm":
            return {}
        plan = self.plan
        return {"weights": plan.weights, "limit": plan.memory_limit, "threads": plan.threads}

    def advance(self) -> Advance:
        schedule = "newton" if self.solver == "splitting" else self.plan.schedule
        cooling = {"cooling": self.plan.cooling} if schedule == "shrink" else {}
        self.result = getattr(self.state, f"{schedule}_epoch")(**cooling)
        self.epoch, self.dual = self.epoch + 1, self.state.dual
        is_settled = not self.stops_by_gap and self.result.violation <= self.tol
        return Advance(self.result.work, self.state.gap, stop="violation" if is_settled else None)

    def certify(self) -> tuple[float, float]:
        primal, self.dual = self.state.certify()
        return primal, self.dual

    def facts(self, history: Sequence[dict[str, Any]]) -> dict[str, Any]:
        del history
        return {"active": float(self.result.active), "violation": float(self.result.violation)}

    def take_over(self, *, from_duals: bool) -> None:
        assert self.plan.then is not None
        self.start = self.state.duals() if from_duals else None
        self.solver = self.plan.then
        self.begin()

    def model(self) -> dict[str, Any]:
        duals = self.state.duals()
        W = self.state.weights() if self.solver == "sdm" else self.state.W
        return {"W": W, "alpha": duals, "dual_density": duals.density}


def certify_primal(problem: Problem, W: Any, n_jobs: int = 1) -> float:
    """P(W) in float64; W (d + 1, k) is an array, or `SparseWeights` of which none is made."""
    from dask_mcsvm.solvers.sdm.run import primal_of

    primal: float = primal_of(
        problem.rows,
        problem.y,
        problem.C,
        W,
        formulation=problem.formulation,
        tau=problem.tau,
        n_jobs=n_jobs,
        margins=problem.margins,
    )
    return primal
