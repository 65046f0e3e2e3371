"""The loop of a fit: run an epoch, certify, record, stop."""

from .local import certify_primal, train
from .out_of_core import check_early_shrink_options, train_early_shrink
from .plan import DASK_SOLVERS, SCHEDULES, SOLVERS, STOPS, Plan, check_solver_options, make_plan
from .problem import Fit, OnEpoch, Problem
from .sources import ArraySource, Chunk, DatasetSource, Source

__all__ = [
    "DASK_SOLVERS",
    "SCHEDULES",
    "SOLVERS",
    "STOPS",
    "ArraySource",
    "Chunk",
    "DatasetSource",
    "Fit",
    "OnEpoch",
    "Plan",
    "Problem",
    "Source",
    "certify_primal",
    "check_early_shrink_options",
    "check_solver_options",
    "make_plan",
    "train",
    "train_early_shrink",
]
