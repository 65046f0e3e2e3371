"""The loop of a fit: run an epoch, certify, record, stop."""

from dask_mcsvm.data.block_source import ArraySource, Chunk, DatasetSource, Source

from .loop import Fit, OnEpoch, Problem
from .plan import (
    DASK_SOLVERS,
    EARLY_SHRINK,
    SCHEDULES,
    SOLVERS,
    SPLITTING_FEATURES,
    STOPS,
    PassPlan,
    Plan,
    RowScale,
    begun_by_second,
    check_solver_options,
    make_plan,
    parse_size,
    row_scale,
)
from .runs.early_shrink import check_early_shrink_options, train_early_shrink
from .runs.memory import certify_primal, train

__all__ = [
    "DASK_SOLVERS",
    "EARLY_SHRINK",
    "SCHEDULES",
    "SOLVERS",
    "SPLITTING_FEATURES",
    "STOPS",
    "ArraySource",
    "Chunk",
    "DatasetSource",
    "Fit",
    "OnEpoch",
    "PassPlan",
    "Plan",
    "Problem",
    "RowScale",
    "Source",
    "begun_by_second",
    "certify_primal",
    "check_early_shrink_options",
    "check_solver_options",
    "make_plan",
    "parse_size",
    "row_scale",
    "train",
    "train_early_shrink",
]
