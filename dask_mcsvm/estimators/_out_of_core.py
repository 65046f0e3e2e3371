"""Fits out of core on one machine: early shrinking, and block minimization within a limit."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dask_mcsvm.checks import check_range
from dask_mcsvm.data.validation import (
    TrainingSet,
    check_training_set,
    class_weights,
    is_lazy,
    working_dtype,
)
from dask_mcsvm.estimators._certificate import Trained, class_totals
from dask_mcsvm.estimators._settings import Settings, progress, warn_of_precision
from dask_mcsvm.formulations import FORMULATIONS
from dask_mcsvm.storage import Dataset, open_dataset
from dask_mcsvm.training import (
    EARLY_SHRINK,
    ArraySource,
    DatasetSource,
    Fit,
    PassPlan,
    Source,
    train_early_shrink,
)

#: Rows of a chunk when X is in memory.
BLOCK_ROWS = 10_000


class Posed(NamedTuple):
    """A fit that has not begun."""

    source: Source
    labels: Any
    features: dict[str, Any]
    totals: Any  # (k,) weights of the rows of each class
    weights: Any  # (n,) of the rows, the factors of their classes included
    n_given: int  # rows, those of weight 0 included
    plan: PassPlan


def pose_early_shrink(
    estimator: Any, X: Any, y: Any, sample_weight: Any, classes: Any, settings: Settings
) -> Posed:
    """What early shrinking would do with these rows."""
    if not FORMULATIONS[settings.formulation].classes_are_independent:
        raise ValueError(
            f"solver='early_shrink' solves one_vs_rest, not {settings.formulation}; use "
            "formulation='one_vs_rest', or solver='auto'."
        )
    read = _from_dataset if is_lazy(X) else _from_memory
    found = read(estimator, X, y, sample_weight, classes, settings)
    asked = "asked for by solver='early_shrink'"
    why = "memory_limit given, in this process" if settings.solver == "auto" else asked
    return _posed(found, settings, EARLY_SHRINK, why)


def pose_blocks(
    estimator: Any, X: Any, y: Any, sample_weight: Any, classes: Any, settings: Settings
) -> Posed:
    """The same of block minimization."""
    from dask_mcsvm.training.runs.block_minimization import check_block_options, cut_to_chunks

    check_block_options(settings.options)
    source, *rest = _from_dataset(estimator, X, y, sample_weight, classes, settings)
    found = (cut_to_chunks(source, settings.formulation), *rest)
    return _posed(found, settings, "shards", "memory_limit given, in this process")


def _posed(
    found: tuple[Source, Any, dict[str, Any], Any, Any, int],
    settings: Settings,
    solver: str,
    why: str,
) -> Posed:
    source, labels = found[:2]
    n, d = source.shape
    plan = PassPlan(
        why, n, d, labels.size, int(source.entries().sum()), source.dtype.name, settings.n_jobs,
        len(source.row_offsets) - 1, settings.memory_limit, solver, settings.formulation,
    )  # fmt: skip
    return Posed(*found, plan)


def fit_early_shrink(
    estimator: Any, X: Any, y: Any, sample_weight: Any, classes: Any, settings: Settings
) -> tuple[Fit, Any, dict[str, Any], Any, Trained]:
    """Train, and all that the estimator remembers of it."""
    posed = pose_early_shrink(estimator, X, y, sample_weight, classes, settings)
    return _fit(estimator, posed, settings, partial(train_early_shrink, n_jobs=settings.n_jobs))


def fit_blocks(
    estimator: Any, X: Any, y: Any, sample_weight: Any, classes: Any, settings: Settings
) -> tuple[Fit, Any, dict[str, Any], Any, Trained]:
    """The same by block minimization, for all formulations."""
    from dask_mcsvm.training.runs.block_minimization import train_block_minimization  # imports Dask

    posed = pose_blocks(estimator, X, y, sample_weight, classes, settings)
    train = partial(train_block_minimization, formulation=settings.formulation)
    return _fit(estimator, posed, settings, train)


def _fit(
    estimator: Any, posed: Posed, settings: Settings, train: Callable[..., Fit]
) -> tuple[Fit, Any, dict[str, Any], Any, Trained]:
    source = posed.source
    warn_of_precision(settings, source.dtype)
    radius = source.radius()
    tau = radius or 1.0 if settings.tau is None else settings.tau
    costs = settings.cost_range(posed.weights)
    check_range(costs, radius, tau, source.dtype, are_zero=radius == 0)
    with progress(settings.verbose, settings.callbacks) as on_epoch:
        fit = train(
            source, C=settings.C, tau=tau, tol=settings.tol, max_epochs=settings.max_epochs,
            seed=settings.seed, memory_limit=settings.memory_limit, scratch=settings.scratch,
            checkpoint=settings.checkpoint, resume=settings.resume, options=settings.options,
            on_epoch=on_epoch,
        )  # fmt: skip
    trained = Trained(
        formulation=settings.formulation, C=settings.C, tau=float(tau),
        class_weight=estimator.class_weight, dtype=source.dtype, n_given=posed.n_given,
        totals=settings.C * posed.totals,
    )  # fmt: skip
    return fit, posed.labels, posed.features, posed.plan, trained


def _from_dataset(
    estimator: Any, X: Any, y: Any, sample_weight: Any, classes: Any, settings: Settings
) -> tuple[DatasetSource, Any, dict[str, Any], Any, Any, int]:
    if not isinstance(X, Dataset):
        try:
            X = open_dataset(X)
        except TypeError:
            raise ValueError(
                f"solver='early_shrink' reads datasets and rows in memory, not {type(X).__name__}; "
                "write one with dask_mcsvm.storage.write_dataset, or use solver='auto'."
            ) from None
    if y is not None or sample_weight is not None:
        raise ValueError(
            f"{X.path} is a dataset, which has labels and weights of its own; type fit(path) "
            "without y and sample_weight."
        )
    if classes is not None and not np.array_equal(np.unique(classes), X.classes):
        raise ValueError("classes differ from those of the dataset; leave classes out.")
    codes, weights = X.read_labels(), X.read_weights()
    counts = np.bincount(codes, weights, minlength=X.n_classes).astype(np.float64)
    factors = class_weights(estimator.class_weight, X.classes, counts)
    dtype = working_dtype(X.dtype, settings.dtype)
    source = DatasetSource(X, dtype, factors)
    each = factors[codes] if weights is None else factors[codes] * weights
    features = {"n_features_in_": X.shape[1]}
    return source, X.classes, features, factors * counts, each, X.shape[0]


def _from_memory(
    estimator: Any, X: Any, y: Any, sample_weight: Any, classes: Any, settings: Settings
) -> tuple[Source, Any, dict[str, Any], Any, Any, int]:
    data = X
    if not isinstance(X, TrainingSet):  # a path has checked its rows already
        data = check_training_set(
            estimator, X, y, sample_weight=sample_weight, classes=classes,
            class_weight=estimator.class_weight, dtype=settings.dtype,
        )  # fmt: skip
    k = data.classes.size
    source = ArraySource(data.rows, data.y, data.weights, n_classes=k, block_rows=BLOCK_ROWS)
    totals = class_totals(data.y, data.weights, k)
    return source, data.classes, data.features, totals, data.weights, data.n_given
