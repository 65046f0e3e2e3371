"""Probabilities from one fit and a part of a second one: the temperature of held-out rows [PROB].

The rows of a part are left out of a short fit, which then scores them; how sure it may be of them
is how sure the model may be of new rows.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from dask_mcsvm.data.block_source import Source
from dask_mcsvm.data.validation import TrainingSet
from dask_mcsvm.errors import ConvergenceWarning, PrecisionWarning
from dask_mcsvm.estimators._path import part as some_of
from dask_mcsvm.estimators._predict import decision_blocks
from dask_mcsvm.estimators._settings import Settings
from dask_mcsvm.formulations import HeldOut, best_temperature, logits, softmax
from dask_mcsvm.training import Fit
from dask_mcsvm.training.held_out import (
    PARTS,
    chosen_parts,
    count_parts,
    held_out_tol,
    parts_of_rows,
)

#: Scores from which sums are taken at a time: they stay in the cache.
BLOCK = 2**16


def has_probabilities(estimator: Any) -> bool:
    """For `available_if`: whether `predict_proba` is asked for."""
    if not estimator.probability:
        raise AttributeError(
            "predict_proba needs a model fitted for it; type "
            f"{type(estimator).__name__}(probability=True) and fit it."
        )
    return True


def fitted_temperature(estimator: Any) -> float:
    """The temperature that the fit found."""
    found: float | None = getattr(estimator, "temperature_", None)
    if found is None:
        raise NotFittedError(
            "this model was fitted with probability=False; type fit(X, y) again, now that "
            "probability is True."
        )
    return found


def probabilities(
    X: Any, coef: Any, intercept: npt.NDArray[Any], formulation: str, temperature: float
) -> npt.NDArray[Any]:
    """Of the classes of rows in memory, (n, k), in the precision of `coef`."""
    out = np.empty((X.shape[0], coef.shape[0]), coef.dtype)
    for rows, decision in decision_blocks(X, coef, intercept, formulation):
        out[rows] = softmax(temperature * logits(decision))
    return out


def shorter(settings: Settings, fit: Fit) -> Settings:
    """The settings of fits that hold rows out, after one that `settings` are of.

    They leave nothing in the checkpoint: a folder that the workers see is all that they want.
    """
    epochs = max(1, fit.n_iter) if fit.stop == "callback" else settings.max_epochs
    return replace(
        settings, probability=False, tol=held_out_tol(settings.tol), max_epochs=epochs,
        warm_start=False, checkpoint=None, resume=False, callbacks=(), verbose=0, carry=None,
        scratch=settings.scratch or settings.checkpoint,
    )  # fmt: skip


def temperature_in_memory(estimator: Any, data: TrainingSet, settings: Settings) -> float:
    """The temperature of rows in memory; `settings` are those of `shorter`."""
    part, k = parts_of_rows(data.rows), data.classes.size
    found = []
    for held in chosen_parts(count_parts(part, data.y, data.weights, k)[0]):
        model, out = clone(estimator), some_of(data, np.flatnonzero(part == held))
        with silent():
            model._learn(some_of(data, np.flatnonzero(part != held)), settings, None)
        form = model._trained.formulation
        found.append(sums_of(out.rows, out.y, out.weights, model.coef_, model.intercept_, form))
    return best_temperature(found)


def temperature_out_of_core(source: Source, train: Any, formulation: str, tau: float) -> float:
    """The same of rows that are read chunk by chunk; ``train(source)`` is the fit."""
    (n, d), k = source.shape, source.n_classes
    part, counts = np.empty(n, np.int8), np.zeros((2, PARTS, k))
    spans = [slice(*pair) for pair in zip(source.row_offsets, source.row_offsets[1:], strict=False)]
    for b, rows in enumerate(spans):
        chunk = source.read(b)
        part[rows] = parts_of_rows(chunk.X)
        counts += count_parts(part[rows], chunk.y, chunk.weight, k)
    found = []
    for held in chosen_parts(counts[0]):
        with silent():
            W = train(source.without(part == held)).W
        for b, rows in enumerate(spans):
            chunk, mine = source.read(b), np.flatnonzero(part[rows] == held)
            found.append(
                sums_of(
                    chunk.X[mine], chunk.y[mine], chunk.weight[mine], W[:d].T,
                    tau * W[d].astype(np.float64), formulation,
                )
            )  # fmt: skip
    return best_temperature(found)


def sums_of(
    X: Any,
    y: npt.NDArray[np.int32],
    weights: npt.NDArray[np.float64],
    coef: Any,
    intercept: npt.NDArray[Any],
    formulation: str,
) -> HeldOut:
    """What held-out rows (n, d) in memory say of the temperature."""
    step = max(1, BLOCK // coef.shape[0])
    sums = HeldOut.of(np.zeros((0, coef.shape[0])), y[:0], weights[:0])
    for rows, decision in decision_blocks(X, coef, intercept, formulation):
        for start in range(0, decision.shape[0], step):
            here = slice(rows.start + start, min(rows.start + start + step, rows.stop))
            some = logits(decision[start : start + step])
            sums = sums.plus(HeldOut.of(some, y[here], weights[here]))
    return sums


@contextmanager
def silent() -> Iterator[None]:
    """The fit that the user asked for has warned already."""
    with warnings.catch_warnings():
        for kind in (ConvergenceWarning, PrecisionWarning):
            warnings.simplefilter("ignore", kind)
        yield
