"""The two sides: `train` of this package, and LIBLINEAR's Crammer-Singer solver (-s 4, no bias)."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import scipy.sparse as sp
from _data import Dataset, warm_up_rows
from harness.measure import Stopwatch
from threadpoolctl import threadpool_limits

from dask_mcsvm.data.row_source import row_scale
from dask_mcsvm.training import Problem, make_plan, train

try:
    from liblinear import liblinearutil
except ImportError:
    liblinearutil = None

INSTALL = "pip install 'liblinear-official>=2.47'   (or this package with its extra: '.[bench]')"
C = 1.0
MAX_EPOCHS = 10_000
#: Both primals are sums of n float64 terms from the same W; more than this apart is a bug.
SAME_PRIMAL = 1e-6


def crammer_singer_primal(data: Dataset, W: np.ndarray) -> float:
    """P(W) of W (d, k) in float64: the judge of both sides, with no code of either."""
    W = W.astype(np.float64, copy=False)
    height = max(1, 2**26 // (8 * data.k))
    loss = 0.0
    for first in range(0, data.y.size, height):
        y = data.y[first : first + height]
        scores = data.X[first : first + height].astype(np.float64) @ W
        at = np.arange(y.size), y
        own = scores[at]
        scores[at] = -np.inf
        loss += np.maximum(0, 1 + scores.max(axis=1) - own).sum()
    square = sum(float(np.vdot(row, row)) for row in W)
    return 0.5 * square + C * float(loss)


class Liblinear:
    """LIBLINEAR on one set, which is converted once, outside all times."""

    def __init__(self, data: Dataset) -> None:
        rows = sp.csr_matrix(data.X)  # csr_array is refused; zeros of dense rows are left out
        self.problem = liblinearutil.problem(data.y.astype(np.float64), rows)

    def run(self, epsilon: float, judge: Dataset | None = None) -> dict[str, Any]:
        """Train to LIBLINEAR's own stopping rule; the primal is worked out if asked for."""
        options = liblinearutil.parameter(f"-s 4 -c {C} -e {epsilon!r} -B -1 -q")
        # It draws from the C library's rand(): seeded as in a fresh process, runs are repeatable.
        ctypes.CDLL(None).srand(1)
        watch = Stopwatch()
        model = liblinearutil.train(self.problem, options)
        result: dict[str, Any] = watch.read()
        if judge is not None:
            w = np.ctypeslib.as_array(model.w, (model.nr_feature, model.nr_class))
            W = np.empty_like(w)
            W[:, model.get_labels()] = w  # its classes are in order of appearance
            result["primal"] = crammer_singer_primal(judge, W)
        return result


def pose(data: Dataset, formulation: str, dtype: type = np.float32) -> Problem:
    """The problem LIBLINEAR solves, as this package's solvers see it."""
    return Problem(
        rows=data.X.astype(dtype, copy=False),
        y=data.y,
        C=np.full(data.y.size, C),
        n_classes=data.k,
        formulation=formulation,
        tau=0.0,
    )


def run_ours(
    problem: Problem,
    *,
    tol: float,
    patience: float,
    n_jobs: int = 1,
    target: float | None = None,
    judge: Dataset | None = None,
    solver: str = "auto",
) -> dict[str, Any]:
    """Train to the relative gap ``tol``, or until a certified primal is at most ``target``.

    ``cpu`` and ``wall`` end where the callback sees such a primal, certifying passes included;
    without a target they are those of the whole of `train`, the closing certificate included.
    ``reached`` is False when ``patience`` (wall seconds) or the epochs ended first.
    """
    at_target: dict[str, float] = {}

    def on_epoch(record: dict[str, Any]) -> bool:
        now = watch.read()
        if target is not None and record["certified"] and record["primal"] <= target:
            at_target.update(now, epochs=record["epoch"])
        return bool(at_target) or now["wall"] > patience

    with threadpool_limits(n_jobs):
        plan = _plan(problem, n_jobs, solver)
        watch = Stopwatch()
        fit = train(
            problem, plan, tol=tol, max_epochs=MAX_EPOCHS, seed=0, n_jobs=n_jobs, on_epoch=on_epoch
        )
        whole = watch.read()
    if judge is not None:
        _check_primal(fit.primal, crammer_singer_primal(judge, fit.W[: judge.X.shape[1]]))
    return {
        **whole,
        "epochs": fit.history[-1]["epoch"],
        **at_target,
        "fit_cpu": whole["cpu"],
        "fit_wall": whole["wall"],
        "primal": fit.primal,
        "dual": fit.dual,
        "gap": fit.gap,
        "reached": bool(at_target) if target is not None else fit.gap <= tol,
        "stop": fit.stop,
        "solver": fit.solver,
        "schedule": plan.schedule,
    }


def _plan(problem: Problem, n_jobs: int, solver: str) -> Any:
    n, d = problem.rows.shape
    is_sparse = sp.issparse(problem.rows)
    return make_plan(
        n=n,
        d=d,
        k=problem.n_classes,
        nnz=int(problem.rows.nnz) if is_sparse else n * d,
        is_sparse=is_sparse,
        dtype=problem.rows.dtype,
        formulation=problem.formulation,
        solver=solver,
        n_jobs=n_jobs,
        options=None,
        scale=None if is_sparse or solver != "auto" else row_scale(problem.rows, C),
    )


def _check_primal(certified: float, judged: float) -> None:
    if abs(certified - judged) > SAME_PRIMAL * abs(judged):
        raise RuntimeError(
            f"the certified primal {certified!r} is not the {judged!r} that NumPy finds for the "
            "same W; no time of this run means anything until that is mended."
        )


def tol_for(target: float, optimum: float) -> float:
    """A tol at which the solver certifies in time to see P <= target.

    When P comes down to the target, the gap is at least (target - D*) / target, whatever D is; so a
    tol just below it is never met before the target is. The solver looks when its estimate, which
    is above the true gap by about a third, comes below 1.4 times the tol.
    """
    return max(1e-6, 0.97 * (target - optimum) / target)


def run_to_target(
    data: Dataset,
    problem: Problem,
    *,
    target: float,
    optimum: float,
    patience: float,
    solver: str = "auto",
) -> dict[str, Any]:
    """Our run to a primal objective, on one thread; ``optimum`` is the best dual value known.

    A run that meets its tol above the target has found a better dual value, which the one that
    looked for the optimum ran out of patience for: it is no measurement, and is made again.
    """
    while True:
        tol = tol_for(target, optimum)
        run = run_ours(
            problem, tol=tol, patience=patience, target=target, judge=data, solver=solver
        )
        if run["reached"] or run["stop"] != "gap" or run["dual"] <= optimum:
            return run
        optimum = run["dual"]


def warm_up(data: Dataset) -> None:
    """Compile for rows, dtype and number of classes like these, and load LIBLINEAR."""
    few = warm_up_rows(data.k, is_sparse=data.is_sparse)
    for formulation in ("crammer_singer", "weston_watkins"):
        for n_jobs in (1, 2):
            run_ours(pose(few, formulation), tol=1e-4, patience=10.0, n_jobs=n_jobs)
    if liblinearutil is not None:
        run_ours(pose(few, "crammer_singer", np.float64), tol=1e-4, patience=10.0)
        Liblinear(few).run(0.1)
