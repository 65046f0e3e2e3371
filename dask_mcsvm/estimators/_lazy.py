"""Rows that are read chunk by chunk: fit and predict without holding them."""

from typing import Any

import numpy as np
import scipy.sparse as sp

from dask_mcsvm.checks import check_range
from dask_mcsvm.data.validation import check_rows, class_weights, is_lazy, working_dtype
from dask_mcsvm.estimators._certificate import Trained
from dask_mcsvm.estimators._lazy_rows import check_lazy_rows
from dask_mcsvm.estimators._out_of_core import pose_blocks, pose_early_shrink
from dask_mcsvm.estimators._settings import (
    Settings,
    progress,
    wants_blocks,
    wants_early_shrink,
    warn_of_precision,
)
from dask_mcsvm.formulations import Nearness
from dask_mcsvm.graphs.model_files import model_parts, one_chunk
from dask_mcsvm.graphs.predict import (
    Model,
    ModelPart,
    certain,
    decision_function,
    predict,
    predict_topk,
)
from dask_mcsvm.training import PassPlan
from dask_mcsvm.training.dask_plan import DaskPlan, make_dask_plan
from dask_mcsvm.training.lazy_source import LazySource, read_source
from dask_mcsvm.training.loop import Fit
from dask_mcsvm.training.runner import Runner, find_runner
from dask_mcsvm.training.runs.on_dask import DaskProblem, Keeping, train_on_dask


def pose_lazy(
    X: Any, y: Any, sample_weight: Any, classes: Any, class_weight: Any, settings: Settings
) -> tuple[DaskProblem, DaskPlan, Runner]:
    """Look at every chunk once, and decide how to go on."""
    runner = find_runner()
    source = read_source(X, y, sample_weight, classes, runner, settings.memory_limit)
    check_two_classes(source)
    weights = class_weights(class_weight, source.classes, source.class_totals)
    norm = source.largest_norm
    tau = norm or 1.0 if settings.tau is None else settings.tau
    dtype = working_dtype(source.dtype, settings.dtype)
    costs = settings.cost_range(source.extreme_costs(weights))
    check_range(costs, norm, tau, dtype, are_zero=norm == 0)
    factors = settings.C * weights
    problem = DaskProblem(source, factors, settings.formulation, float(tau), dtype)
    plan = make_dask_plan(
        n=source.n, d=source.n_features, nnz=source.nnz, counts=source.counts,
        chunks=len(source.sizes), mean_square=source.mean_square,
        cost_square=source.cost_square(factors), dtype=dtype, formulation=settings.formulation,
        tau=problem.tau, solver=settings.solver, options=settings.options,
        memory_limit=settings.memory_limit, scale=source.row_scale(factors),
    )  # fmt: skip
    return problem, plan, runner


def plan_chunks(estimator: Any, X: Any, y: Any, settings: Settings) -> DaskPlan | PassPlan:
    """How a fit of rows that are read chunk by chunk would go, here or on Dask."""
    if wants_early_shrink(X, settings):
        return pose_early_shrink(estimator, X, y, None, None, settings).plan
    if wants_blocks(X, settings):
        return pose_blocks(estimator, X, y, None, None, settings).plan
    return pose_lazy(X, y, None, None, estimator.class_weight, settings)[1]


def check_two_classes(source: LazySource, weights: Any = 1.0) -> None:
    """Refuse rows of fewer classes; ``weights`` (k,) are those of the classes."""
    present = np.flatnonzero(source.counts * weights)
    if present.size >= 2:
        return
    found = f"1 class ({source.classes[present].tolist()[0]!r})" if present.size else "no class"
    raise ValueError(
        f"y has rows of positive weight of {found}; a classifier needs rows of at least two "
        "classes: add rows of another class."
    )


def learned_features(source: LazySource) -> dict[str, Any]:
    """`n_features_in_`, and `feature_names_in_` if X has names."""
    features: dict[str, Any] = {"n_features_in_": source.n_features}
    return features if source.columns is None else features | {"feature_names_in_": source.columns}


def fit_lazy(
    estimator: Any, X: Any, y: Any, sample_weight: Any, classes: Any, settings: Settings
) -> tuple[Fit, Any, dict[str, Any], Any, Trained]:
    """Train on the workers, and all that the estimator remembers of it."""
    problem, plan, runner = pose_lazy(
        X, y, sample_weight, classes, estimator.class_weight, settings
    )
    warn_of_precision(settings, problem.dtype)
    keeping = Keeping(
        settings.checkpoint, settings.resume, settings.scratch, settings.memory_limit,
        settings.carry,
    )  # fmt: skip
    with progress(settings.verbose, settings.callbacks) as on_epoch:
        fit = train_on_dask(
            problem, plan, runner, keeping, tol=settings.tol, max_epochs=settings.max_epochs,
            seed=settings.seed, seed_is_given=estimator.random_state is not None,
            on_epoch=on_epoch,
        )  # fmt: skip
    source = problem.source
    trained = Trained(
        formulation=problem.formulation, C=settings.C, tau=problem.tau,
        class_weight=estimator.class_weight, dtype=problem.dtype, n_given=source.n,
        totals=problem.factors * source.class_totals,
    )  # fmt: skip
    return fit, source.classes, learned_features(source), plan, trained


def lazy_model(estimator: Any) -> Model:
    """A fitted estimator as the tasks of a prediction see it."""
    coef, formulation = estimator.coef_, estimator._trained.formulation
    # The weights of the constant feature are numbers of coef's type, the intercept need not be.
    tau = estimator._trained.tau or 1.0
    bias = np.asarray(estimator.intercept_, np.float64) / tau
    if is_lazy(coef):
        return Model(model_parts(coef, bias), tau, coef.dtype, formulation)
    coef = coef.toarray() if sp.issparse(coef) else coef
    W = np.vstack([coef.T, bias[None].astype(coef.dtype)])
    part = ModelPart(tuple(range(W.shape[1])), W)
    return Model((part,), tau, W.dtype, formulation)


def lazy_scores(estimator: Any, X: Any) -> Any:
    """Scores as a Dask array in the row chunks of X; an ndarray of rows in memory."""
    return _answer(X, decision_function(_columns(estimator, X), lazy_model(estimator)))


def lazy_labels(estimator: Any, X: Any) -> Any:
    """Predicted labels as a Dask array in the row chunks of X."""
    rows, model = _columns(estimator, X), lazy_model(estimator)
    return _answer(X, predict(rows, model, estimator.classes_))


def lazy_topk(estimator: Any, X: Any, top: int) -> Any:
    """The best labels of each row as a Dask array (n, top)."""
    rows, model = _columns(estimator, X), lazy_model(estimator)
    return _answer(X, predict_topk(rows, model, estimator.classes_, top))


def lazy_certain(estimator: Any, X: Any, near: Nearness) -> Any:
    """Whether each label is certain, as a Dask array (n,) in the row chunks of X."""
    return _answer(X, certain(_columns(estimator, X), lazy_model(estimator), near))


def _answer(X: Any, found: Any) -> Any:
    """As lazy as the rows are."""
    return found if is_lazy(X) else found.compute()


def _columns(estimator: Any, X: Any) -> Any:
    if not is_lazy(X):  # but the model is
        return one_chunk(check_rows(estimator, X))
    return check_lazy_rows(estimator, X)
