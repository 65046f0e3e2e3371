"""The loop: run an epoch, record it, certify when the estimate says so, stop."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from .formulations import FORMULATIONS, relative_gap

if TYPE_CHECKING:
    import scipy.sparse as sp

    from .solvers.duals import Duals
    from .solvers.sequential import EpochResult, SequentialDual

OnEpoch = Callable[[dict[str, Any]], bool | None]

SOLVERS: tuple[str, ...] = ("sdm",)
SCHEDULES: tuple[str, ...] = ("adaptive", "shrink", "uniform")
STOPS: tuple[str, ...] = ("gap", "violation")


@dataclass(frozen=True)
class Problem:
    """What a local solver sees.

    Attributes
    ----------
    rows : ndarray or csr_array of shape (n, d)
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
    """

    rows: np.ndarray | sp.csr_array
    y: np.ndarray
    C: np.ndarray
    n_classes: int
    formulation: str
    tau: float

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
    """A trained W (d + 1, k) with its certificate; its last row belongs to the constant feature."""

    W: np.ndarray
    alpha: Duals
    primal: float
    dual: float
    gap: float
    history: list[dict[str, Any]]
    n_iter: int
    converged: bool
    stop: str
    dual_density: float


@dataclass(frozen=True)
class Plan:
    """What a fit will do: a pure function of shape, nonzeros, n_jobs and parameters."""

    solver: str
    reason: str
    formulation: str
    schedule: str
    cooling: bool
    stop: str
    n: int
    d: int
    k: int
    nnz: int
    dtype: str
    n_jobs: int

    @property
    def model_bytes(self) -> int:
        return (self.d + 1) * self.k * np.dtype(self.dtype).itemsize

    def __str__(self) -> str:
        rows = "dense rows" if self.nnz == self.n * self.d else f"{self.nnz:,} nonzeros"
        return "\n".join(
            [
                f"solver       {self.solver}: {self.reason}",
                f"formulation  {self.formulation}",
                f"data         {self.n:,} x {self.d:,}, {rows}, {self.k:,} classes, {self.dtype}",
                f"schedule     {self.schedule}, stops by {self.stop}, n_jobs={self.n_jobs}",
                f"memory       W {self.model_bytes / 2**20:,.1f} MiB, beyond X",
                f"one epoch    {(self.nnz + self.n) * self.k / 1e6:,.0f} million multiply-adds",
            ]
        )


def check_solver_options(solver: str, options: Mapping[str, Any] | None) -> dict[str, Any]:
    """The options of a solver with defaults filled in; unknown names and values are refused."""
    chosen: dict[str, Any] = {"schedule": None, "cooling": True, "stop": "gap"}
    allowed = {"schedule": (None, *SCHEDULES), "cooling": (True, False), "stop": STOPS}
    for name, value in dict(options or {}).items():
        if name not in allowed:
            known = ", ".join(repr(key) for key in allowed)
            raise ValueError(
                f"solver_options has {name!r}, which solver={solver!r} does not know; use {known}."
            )
        if value not in allowed[name]:
            accepted = ", ".join(repr(item) for item in allowed[name])
            raise ValueError(f"solver_options[{name!r}] is {value!r}; use one of {accepted}.")
        chosen[name] = value
    return chosen


def make_plan(
    *,
    n: int,
    d: int,
    k: int,
    nnz: int,
    is_sparse: bool,
    dtype: np.dtype[Any],
    formulation: str,
    solver: str,
    n_jobs: int,
    options: Mapping[str, Any] | None,
) -> Plan:
    """Decide how to solve a problem of this shape."""
    settings = check_solver_options(solver, options)
    kind = "sparse" if is_sparse else "dense"
    asked = f"{kind} rows in memory" if solver == "auto" else "asked for by solver='sdm'"
    return Plan(
        solver="sdm",
        reason=asked,
        formulation=formulation,
        schedule=settings["schedule"] or "adaptive",
        cooling=settings["cooling"],
        stop=settings["stop"],
        n=n,
        d=d,
        k=k,
        nnz=nnz,
        dtype=np.dtype(dtype).name,
        n_jobs=n_jobs,
    )


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
        from .solvers.sequential import SequentialDual  # numba: imported when something is solved

        self.problem, self.plan, self.tol, self.max_epochs = problem, plan, tol, max_epochs
        self.on_epoch = on_epoch
        self.begun = time.perf_counter()
        self.dual_run: SequentialDual = SequentialDual(
            problem.rows,
            problem.y,
            problem.C,
            n_classes=problem.n_classes,
            formulation=problem.formulation,
            tau=problem.tau,
            seed=seed,
            n_jobs=n_jobs,
            start=start,
        )
        self.history: list[dict[str, Any]] = []
        self.work = 0
        self.last_look = 0.0

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
        primal, dual = run.certify()
        gap = self.problem.relative(primal, dual)
        if self.history:
            self.history[-1].update(primal=primal, dual=dual, gap=gap, certified=True)
        duals = run.duals()
        return Fit(
            W=run.W,
            alpha=duals,
            primal=primal,
            dual=dual,
            gap=gap,
            history=self.history,
            n_iter=int(np.ceil(self.epochs)),
            converged=gap <= self.tol or stop == "violation",
            stop=stop,
            dual_density=duals.density,
        )

    def _advance(self) -> str | None:
        run = self.dual_run
        result = self._epoch()
        self.work += result.work
        dual, gap = run.dual, run.gap
        certified = self._time_to_look(self.problem.relative(dual + gap, dual))
        if certified:
            primal, dual = run.certify()
            gap = primal - dual
        relative = self.problem.relative(dual + gap, dual)
        record = {
            "epoch": self.epochs,
            "seconds": time.perf_counter() - self.begun,
            "primal": float(dual + gap),
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
        return None

    def _epoch(self) -> EpochResult:
        if self.plan.schedule == "shrink":
            return self.dual_run.shrink_epoch(cooling=self.plan.cooling)
        if self.plan.schedule == "uniform":
            return self.dual_run.uniform_epoch()
        return self.dual_run.adaptive_epoch()

    def _time_to_look(self, estimate: float) -> bool:
        """Certify when the estimate is near tol, and now and then to keep a float32 W exact."""
        if self.tol == 0:
            return False
        waited = self.epochs - self.last_look
        near = estimate <= 1.2 * self.tol and waited >= min(8.0, 0.1 * self.epochs)
        drifted = 16.0 if self.plan.dtype == "float32" else max(16.0, 0.1 * self.epochs)
        if near or waited >= drifted:
            self.last_look = self.epochs
            return True
        return False


def certify_primal(problem: Problem, W: np.ndarray, n_jobs: int = 1) -> float:
    """P(W) in float64."""
    from .solvers.sequential import primal_of

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
