"""Predictions of rows that are read chunk by chunk, or of a model in files."""

from typing import Any

import numpy as np
import scipy.sparse as sp

from dask_mcsvm.data.validation import check_rows, is_lazy
from dask_mcsvm.estimators._lazy_rows import check_lazy_rows
from dask_mcsvm.formulations import Nearness
from dask_mcsvm.graphs.model_files import dense_parts, model_parts, one_chunk
from dask_mcsvm.graphs.predict import (
    Model,
    ModelPart,
    certain,
    decision_function,
    predict,
    predict_topk,
    probabilities,
)
from dask_mcsvm.training import HYBRID_CLASSES


def lazy_model(estimator: Any) -> Model:
    """A fitted estimator as the tasks of a prediction see it."""
    coef, formulation = estimator.coef_, estimator._trained.formulation
    # The weights of the constant feature are numbers of coef's type, the intercept need not be.
    tau = estimator._trained.tau or 1.0
    bias = np.asarray(estimator.intercept_, np.float64) / tau
    if sp.issparse(coef) and coef.shape[0] >= HYBRID_CLASSES:
        coef = dense_parts(sp.csr_array(coef))
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


def lazy_probabilities(estimator: Any, X: Any, temperature: float) -> Any:
    """Probabilities as a Dask array (n, k) in the row chunks of X."""
    return _answer(X, probabilities(_columns(estimator, X), lazy_model(estimator), temperature))


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
