"""What a fit will do, wherever its rows are: their source, a plan, and a way to run it.

Dask and Numba are imported by those who use them.
"""

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from dask_mcsvm.checks import check_scales
from dask_mcsvm.data.row_source import ArraySource, RowSource
from dask_mcsvm.data.validation import TrainingSet, check_training_set, is_lazy
from dask_mcsvm.estimators._margins import read_margins
from dask_mcsvm.estimators._settings import Settings, plan_for, wants_blocks, wants_early_shrink
from dask_mcsvm.estimators._warm import KeptAlpha
from dask_mcsvm.formulations import Moments, Standardization, is_constant, moments
from dask_mcsvm.formulations.margins import Margins
from dask_mcsvm.solvers.standardized import DenseStandardized, standardized_rows
from dask_mcsvm.training import (
    Fit,
    PassPlan,
    Problem,
    begun_by_second,
    train,
)
from dask_mcsvm.training.table import BY_CHUNKS, EARLY_SHRINK, solver_at

logger = logging.getLogger("dask_mcsvm")

#: Rows of a chunk when X is in memory and early shrinking reads it.
BLOCK_ROWS = 10_000


@dataclass(frozen=True, eq=False)
class Posed:
    """A fit that has not begun; ``train`` takes tol, max_epochs, seed and on_epoch.

    ``blocks`` are the chunks that passes over a dataset read; ``solve`` trains on such chunks.
    """

    source: RowSource
    tau: float
    plan: Any
    margins: Margins
    train: Callable[..., Fit]
    blocks: Any = None
    solve: Any = None
    #: Of a fit on Dask: the graph of its epoch of some number.
    epoch_graph: Callable[[int], Any] | None = None
    columns: Standardization | None = None


def pose(
    estimator: Any,
    X: Any,
    y: Any,
    sample_weight: Any,
    classes: Any,
    settings: Settings,
    last: KeptAlpha | None = None,
) -> Posed:
    """Check what was given, look at all rows once, and decide how to go on.

    A `TrainingSet` has been checked already; ``last`` is what the fit starts from.
    """
    given = (X, y, sample_weight, classes)
    if wants_early_shrink(X, settings) or wants_blocks(X, settings):
        return pose_passes(estimator, *given, settings)
    if is_lazy(X):
        return pose_dask(estimator, *given, settings)
    data = standardized(memory_rows(estimator, *given, settings), settings)
    return pose_memory(data, settings, last)


def memory_rows(
    estimator: Any, X: Any, y: Any, sample_weight: Any, classes: Any, settings: Settings
) -> TrainingSet:
    """X, y and weights in memory, checked."""
    if isinstance(X, TrainingSet):
        return X
    return check_training_set(
        estimator, X, y, sample_weight=sample_weight, classes=classes,
        class_weight=estimator.class_weight, dtype=settings.dtype,
    )  # fmt: skip


def checked_tau(source: RowSource, settings: Settings) -> float:
    """The value of the constant feature, if the arithmetic holds it, the costs and the rows."""
    # Of rows that are all zero any constant will do.
    tau = source.radius() or 1.0 if settings.tau is None else settings.tau
    source.check_range(settings.cost_range(source.weight_range()), tau)
    # As kernels see it: solver, certificate and `intercept_` are of the same number.
    return float(source.dtype.type(tau))


def pose_memory(data: TrainingSet, settings: Settings, last: KeptAlpha | None) -> Posed:
    """By sdm or splitting."""
    margins = read_margins(settings.margins, data.classes)
    tau = checked_tau(data, settings)  # before the costs are multiplied: they may overflow
    problem = Problem(
        data.rows, data.y, settings.C * data.weights, data.classes.size, settings.formulation,
        tau, margins,
    )  # fmt: skip
    plan = plan_for(problem.rows, problem.C, problem.n_classes, data.dtype, settings)
    start = None if last is None else last.start_for(problem, data)
    if last is not None and plan.then == last.solver:
        plan = begun_by_second(plan)
    run = partial(train, problem, plan, n_jobs=settings.n_jobs, start=start)
    return Posed(data, problem.tau, plan, margins, run, columns=data.columns)


def standardized(data: TrainingSet, settings: Settings) -> TrainingSet:
    """The same rows by mean and scale of their columns, if that was asked for and is not done."""
    if not settings.standardize or data.columns is not None:
        return data
    columns = standardization_of(moments(data.rows, data.given), data.dtype, settings)
    squares = columns.square_norms(data.rows)  # of the rows, and of what they are made of
    norms = tuple(math.sqrt(float(part.max(initial=0.0))) for part in squares)
    rows = standardized_rows(data.rows, columns)
    return replace(data, rows=rows, columns=columns, norms=norms)


def standardized_source(source: Any, settings: Settings, *runner: Any) -> Any:
    """The same of rows that are read chunk by chunk; ``runner`` is that of Dask's tasks."""
    if not settings.standardize:
        return source
    columns = standardization_of(source.moments(*runner), source.dtype, settings)
    return source.standardized(columns, *runner)


def standardization_of(found: Moments, dtype: Any, settings: Settings) -> Standardization:
    """Mean and scale of columns that are solved in ``dtype``; constant ones are said once."""
    count = int(is_constant(found).sum())
    if count and not settings.told:
        logger.warning(
            "%d of %d columns of X are constant; standardize leaves their scale at 1.",
            count,
            found.mean.size,
        )
    columns = Standardization.of(found, centred=settings.standardize is True)
    check_scales(columns.scale, dtype)
    return columns


def pose_passes(
    estimator: Any, X: Any, y: Any, sample_weight: Any, classes: Any, settings: Settings
) -> Posed:
    """By early shrinking, or by block minimization of a dataset within a limit."""
    shrinks, why = wants_early_shrink(X, settings), "memory_limit given, in this process"
    if not is_lazy(X):
        data = memory_rows(estimator, X, y, sample_weight, classes, settings)
        refuse_centred(not isinstance(data.rows, np.ndarray | DenseStandardized), settings)
        source: Any = standardized(data, settings)
        blocks: Any = ArraySource(
            source.rows, source.y, source.weights, source.classes.size, BLOCK_ROWS
        )
    else:
        from dask_mcsvm.data.intake import dataset_rows  # imports Dask

        source = dataset_rows(
            X, y, sample_weight, classes, class_weight=estimator.class_weight,
            dtype=settings.dtype,
        )  # fmt: skip
        if shrinks:
            refuse_centred(source.is_sparse, settings)
        source = blocks = standardized_source(source, settings)
    how = {
        "C": settings.C, "memory_limit": settings.memory_limit, "scratch": settings.scratch,
        "checkpoint": settings.checkpoint, "resume": settings.resume, "options": settings.options,
    }  # fmt: skip
    row = solver_at(EARLY_SHRINK if shrinks else "shards", BY_CHUNKS, settings.formulation)
    row.chosen(settings.options)
    margins = read_margins(settings.margins, source.classes)
    run = partial(row.make(), n_jobs=settings.n_jobs)
    if not shrinks:
        from dask_mcsvm.training.runs.block_minimization import cut_to_chunks  # imports Dask

        blocks = cut_to_chunks(blocks, settings.formulation)
        run = partial(row.make(), formulation=settings.formulation, margins=margins)
    elif settings.solver == row.name:
        why = f"asked for by solver={row.name!r}"
    (n, d), k = blocks.shape, source.classes.size
    plan = PassPlan(
        why, n, d, k, int(blocks.entries().sum()), blocks.dtype.name, settings.n_jobs,
        len(blocks.row_offsets) - 1, settings.memory_limit, row.name, settings.formulation,
    )  # fmt: skip
    tau = checked_tau(source, settings)
    solve = partial(run, tau=tau, **how)
    begin = partial(solve, blocks)
    return Posed(source, tau, plan, margins, begin, blocks, solve, columns=source.columns)


def refuse_centred(is_sparse: bool, settings: Settings) -> None:
    """Early shrinking works on the weights of one class, and on rows that it wrote to disk."""
    if is_sparse and settings.standardize is True:
        raise ValueError(
            "solver='early_shrink' does not take the mean off sparse rows; use "
            "standardize='scale', or solver='auto'."
        )


def pose_dask(
    estimator: Any, X: Any, y: Any, sample_weight: Any, classes: Any, settings: Settings
) -> Posed:
    """By graphs of tasks."""
    from dask_mcsvm.data.intake import dask_rows
    from dask_mcsvm.training.dask_plan import make_dask_plan, refuse_large_model
    from dask_mcsvm.training.delayed import epoch_graph
    from dask_mcsvm.training.runner import find_runner
    from dask_mcsvm.training.runs.on_dask import DaskProblem, Keeping, train_on_dask

    runner = find_runner()
    source = dask_rows(
        X, y, sample_weight, classes, runner, class_weight=estimator.class_weight,
        dtype=settings.dtype, memory_limit=settings.memory_limit,
    )  # fmt: skip
    source = standardized_source(source, settings, runner)
    margins = read_margins(settings.margins, source.classes)
    tau = checked_tau(source, settings)
    problem = DaskProblem(source, settings.C, settings.formulation, tau, margins)
    plan = make_dask_plan(
        n=source.n_given, d=source.n_features, nnz=source.nnz, counts=source.counts,
        chunks=len(source.sizes), mean_square=source.mean_square, cost_square=source.cost_square,
        dtype=source.dtype, formulation=settings.formulation, tau=problem.tau,
        solver=settings.solver, options=settings.options, memory_limit=settings.memory_limit,
        scale=source.row_scale(settings.C), configured=settings.configured,
        scratch=settings.scratch,
    )  # fmt: skip
    refuse_large_model(plan, runner.memory_of_each)
    keeping = Keeping(
        settings.checkpoint, settings.resume, settings.scratch, settings.memory_limit,
        settings.carry,
    )  # fmt: skip
    run = partial(
        train_on_dask, problem, plan, runner, keeping,
        seed_is_given=estimator.random_state is not None,
    )  # fmt: skip
    graph = partial(epoch_graph, problem, plan)
    return Posed(source, tau, plan, margins, run, columns=source.columns, epoch_graph=graph)
