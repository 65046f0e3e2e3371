"""A fit of a few rows that calls every kernel of a plan, for workers to compile them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.sparse as sp
from dask.delayed import delayed
from dask.local import get_sync

from dask_mcsvm.graphs.rows import row_blocks
from dask_mcsvm.solvers.duals import DENSE_CLASSES, has_lists

from .dask_plan import DaskPlan, make_solver
from .runner import LocalRunner


def warm_name(plan: DaskPlan, *, is_sparse: bool) -> str:
    """Plans of the same name call the same kernels."""
    rows, alpha = "csr" if is_sparse else "dense", "lists" if keeps_lists(plan) else "array"
    side = "steps" if plan.solver == "shards" and plan.blocks > 1 else "whole"
    return "-".join([plan.solver, plan.formulation, plan.dtype, rows, alpha, side])


def keeps_lists(plan: DaskPlan) -> bool:
    """Whether dual variables are stored as lists, by kernels of their own."""
    n = plan.n // plan.blocks if plan.solver == "shards" else 0
    return has_lists(plan.formulation, n, plan.k, np.dtype(plan.dtype).itemsize)


def warm_up(plan: DaskPlan, *, is_sparse: bool) -> None:
    """One epoch and one certificate of a plan like this one, in this thread."""
    k = DENSE_CLASSES + 1 if keeps_lists(plan) else 4
    X = np.eye(k, 3, dtype=plan.dtype)
    chunk = [sp.csr_array(X) if is_sparse else X, np.arange(k, dtype=np.int32), np.ones(k)]
    chunks = min(2, plan.blocks) if plan.solver == "shards" else 1
    rows = row_blocks(
        *([delayed(part)] * chunks for part in chunk), sizes=(k,) * chunks, n_features=3,
        n_classes=k, dtype=plan.dtype, tau=1.0, run="warm",
    )  # fmt: skip
    halves = tuple(range(0, k, 2)), tuple(range(1, k, 2))
    toy = replace(
        plan, n=k * chunks, d=3, k=k, chunks=chunks, blocks=chunks, lanes=min(plan.lanes, chunks),
        slices=1, groups=halves, passes=1,
    )  # fmt: skip
    solver, runner = make_solver(toy, rows, 0, "warm"), LocalRunner(get_sync)
    runner.run(solver.data, solver.held, [])
    stage = solver.start()
    runner.run(stage.graph, list(stage.state.values()), [stage.report])
    for build in (solver.epoch, solver.certify):
        stage = build(stage.state, 0)
        runner.run(stage.graph, list(stage.state.values()), [stage.report])
