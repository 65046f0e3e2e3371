"""A fit of a few rows that calls every kernel of a plan, for workers to compile them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.sparse as sp
from dask.delayed import delayed
from dask.local import get_sync

from dask_mcsvm.graphs.rows import row_blocks

from .dask_plan import DaskPlan, make_solver
from .runner import LocalRunner

#: Above so many classes alpha is stored as lists, by kernels of their own.
MANY_CLASSES = 65


def warm_name(plan: DaskPlan, *, is_sparse: bool) -> str:
    """Plans of the same name call the same kernels."""
    rows, alpha = "csr" if is_sparse else "dense", "many" if plan.k >= MANY_CLASSES else "few"
    return "-".join([plan.solver, plan.formulation, plan.dtype, rows, alpha])


def warm_up(plan: DaskPlan, *, is_sparse: bool) -> None:
    """One epoch and one certificate of a plan like this one, in this thread."""
    k = MANY_CLASSES if plan.k >= MANY_CLASSES else 4
    X = np.eye(k, 3, dtype=plan.dtype)
    chunk = [sp.csr_array(X) if is_sparse else X, np.arange(k, dtype=np.int32), np.ones(k)]
    rows = row_blocks(
        *([delayed(part)] for part in chunk), sizes=(k,), n_features=3, n_classes=k,
        dtype=plan.dtype, tau=1.0, run="warm",
    )  # fmt: skip
    halves = tuple(range(0, k, 2)), tuple(range(1, k, 2))
    toy = replace(
        plan, n=k, d=3, k=k, chunks=1, blocks=1, lanes=1, slices=1, groups=halves, passes=1
    )
    solver, runner = make_solver(toy, rows, 0, "warm"), LocalRunner(get_sync)
    runner.run(solver.data, solver.held, [])
    stage = solver.start()
    runner.run(stage.graph, list(stage.state.values()), [stage.report])
    for build in (solver.epoch, solver.certify):
        stage = build(stage.state, 0)
        runner.run(stage.graph, list(stage.state.values()), [stage.report])
