"""LaRank over Dask arrays and datasets: chunks visited one at a time by a model that travels."""

from typing import Any

from dask_mcsvm.data.intake import dask_rows
from dask_mcsvm.data.validation import check_largest
from dask_mcsvm.estimators._larank_settings import (
    Settings,
    check_classes,
    costs_of,
    parameters_of,
    resolve_gamma,
)
from dask_mcsvm.estimators._settings import progress
from dask_mcsvm.solvers.larank import LaRank
from dask_mcsvm.training import Fit
from dask_mcsvm.training.runner import find_runner
from dask_mcsvm.training.runs.larank_on_dask import LaRankPlan, train_larank_on_dask
from dask_mcsvm.training.runs.on_dask import DaskProblem


def fit_chunks(
    estimator: Any, settings: Settings, X: Any, y: Any, sample_weight: Any, classes: Any
) -> tuple[LaRank, Fit, dict[str, Any], float]:
    """Run, fit, what was learned about the data, and gamma."""
    if settings.kernel == "precomputed":
        raise ValueError(
            'kernel is "precomputed", which needs the whole matrix in memory; pass a NumPy array, '
            'or rows and a kernel with a name, for example kernel="rbf".'
        )
    runner = find_runner()
    known = None if classes is None else check_classes(classes)
    source = dask_rows(
        X, y, sample_weight, known, runner, class_weight=estimator.class_weight,
        dtype=settings.dtype, mixed=True,
    )  # fmt: skip
    is_sparse = source.facts[0].is_sparse
    dtype, d, k = source.dtype, source.n_features, source.classes.size
    check_largest(source.radius(), d, dtype)
    gamma = resolve_gamma(settings, d, lambda: source.variance)
    costs_of(settings.C, source.factors)  # refuses what overflows
    total = float(costs_of(settings.C, source.totals).sum())
    problem = DaskProblem(source, settings.C, "crammer_singer", 0.0)
    parameters = parameters_of(settings, gamma, k=k, d=d, is_sparse=is_sparse, dtype=dtype)
    plan = LaRankPlan(parameters, settings.aim(total), settings.shuffle, k)
    with progress(settings.verbose, settings.callbacks) as on_epoch:
        fit, run = train_larank_on_dask(
            problem, plan, runner, max_epochs=settings.max_epochs, checkpoint=settings.checkpoint,
            resume=settings.resume, seed_is_given=estimator.random_state is not None,
            on_epoch=on_epoch,
        )  # fmt: skip
    return run, fit, {"classes_": source.classes, **source.features}, gamma
