"""The loop of a fit: run an epoch, certify, record, stop."""

from .local import certify_primal, train
from .plan import DASK_SOLVERS, SCHEDULES, SOLVERS, STOPS, Plan, check_solver_options, make_plan
from .problem import Fit, OnEpoch, Problem

__all__ = [
    "DASK_SOLVERS",
    "SCHEDULES",
    "SOLVERS",
    "STOPS",
    "Fit",
    "OnEpoch",
    "Plan",
    "Problem",
    "certify_primal",
    "check_solver_options",
    "make_plan",
    "train",
]
