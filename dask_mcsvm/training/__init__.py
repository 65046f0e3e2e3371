"""The loop of a fit: run an epoch, certify, record, stop."""

from dask_mcsvm.data.row_source import ArraySource, Chunk, DatasetSource, Source

from .loop import Fit, OnEpoch, Problem
from .plan import (
    HYBRID_CLASSES,
    SPLITTING_FEATURES,
    PassPlan,
    Plan,
    begun_by_second,
    make_plan,
    parse_size,
)
from .runs.early_shrink import train_early_shrink
from .runs.memory import certify_primal, train

__all__ = [
    "HYBRID_CLASSES",
    "SPLITTING_FEATURES",
    "ArraySource",
    "Chunk",
    "DatasetSource",
    "Fit",
    "OnEpoch",
    "PassPlan",
    "Plan",
    "Problem",
    "Source",
    "begun_by_second",
    "certify_primal",
    "make_plan",
    "parse_size",
    "train",
    "train_early_shrink",
]
