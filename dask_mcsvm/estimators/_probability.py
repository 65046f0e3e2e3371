"""Probabilities from one fit and a part of a second one: the temperature of held-out rows [PROB].

The rows of a part are left out of a short fit, which then scores them; how sure it may be of them
is how sure the model may be of new rows.
"""

import os
import warnings
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from dask_mcsvm.data.held_out import (
    PARTS,
    chosen_parts,
    count_parts,
    held_out_tol,
    parts_of_rows,
)
from dask_mcsvm.data.validation import TrainingSet
from dask_mcsvm.errors import ConvergenceWarning, PrecisionWarning
from dask_mcsvm.estimators._certificate import raw_weights
from dask_mcsvm.estimators._fits import Posed, pose, standardized_source
from dask_mcsvm.estimators._path import part as some_of
from dask_mcsvm.estimators._predict import decision_blocks
from dask_mcsvm.estimators._settings import Settings
from dask_mcsvm.formulations import HeldOut, best_temperature, logits, softmax
from dask_mcsvm.solvers.standardized import raw_rows
from dask_mcsvm.training import Fit

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


def find_temperature(estimator: Any, posed: Posed, fit: Fit, settings: Settings) -> float:
    """The temperature of rows that a short second fit leaves out, wherever they are [PROB]."""
    brief = shorter(settings, fit)
    with warnings.catch_warnings():  # the fit that the user asked for has warned already
        for kind in (ConvergenceWarning, PrecisionWarning):
            warnings.simplefilter("ignore", kind)
        if isinstance(posed.source, TrainingSet):
            return best_temperature(parts_in_memory(estimator, posed.source, brief))
        if posed.blocks is not None:
            return best_temperature(parts_by_passes(posed, brief))
        return best_temperature(parts_on_dask(estimator, posed.source, brief))


def shorter(settings: Settings, fit: Fit) -> Settings:
    """The settings of fits that hold rows out, after one that `settings` are of.

    They leave nothing in the checkpoint: a folder that the workers see is all that they want.
    """
    epochs = max(1, fit.n_iter) if fit.stop == "callback" else settings.max_epochs
    return replace(
        settings, probability=False, tol=held_out_tol(settings.tol), max_epochs=epochs,
        warm_start=False, checkpoint=None, resume=False, callbacks=(), verbose=0, carry=None,
        told=True,
        scratch=settings.scratch or settings.checkpoint,
    )  # fmt: skip


def parts_in_memory(estimator: Any, data: TrainingSet, brief: Settings) -> Iterator[HeldOut]:
    """What each part of rows in memory says, after a fit without it."""
    k, rows = data.classes.size, raw_rows(data.rows, data.columns)
    data = replace(data, rows=rows, columns=None)  # each fit standardizes the rows that it sees
    part = parts_of_rows(rows)
    for held in chosen_parts(count_parts(part, data.y, data.weights, k)[0]):
        model, out = clone(estimator), np.flatnonzero(part == held)
        others = some_of(data, np.flatnonzero(part != held))
        model._learn(pose(model, others, None, None, None, brief), brief)
        coef, bias, form = model.coef_, model.intercept_, model._trained.formulation
        yield sums_of(rows[out], data.y[out], data.weights[out], coef, bias, form)


def parts_by_passes(posed: Posed, brief: Settings) -> Iterator[HeldOut]:
    """The same of a dataset that this process reads chunk by chunk."""
    blocks, tau = posed.blocks, posed.tau
    raw = replace(blocks, columns=None)  # which rows are held out follows from them
    (n, d), k = blocks.shape, blocks.n_classes
    part, counts = np.empty(n, np.int8), np.zeros((2, PARTS, k))
    spans = [slice(*pair) for pair in pairwise(blocks.row_offsets)]
    for b, rows in enumerate(spans):
        chunk = raw.read(b)
        part[rows] = parts_of_rows(chunk.X)
        counts += count_parts(part[rows], chunk.y, chunk.weight, k)
    for held in chosen_parts(counts[0]):
        others = standardized_source(raw.without(part == held), brief)
        W = posed.solve(
            others, tol=brief.tol, max_epochs=brief.max_epochs, seed=brief.seed,
            scratch=brief.scratch, checkpoint=None, resume=False,
        ).W  # fmt: skip
        V, offset = raw_weights(W[:d], others.columns)
        bias = tau * W[d].astype(np.float64) + offset
        for b, rows in enumerate(spans):
            chunk, mine = raw.read(b), np.flatnonzero(part[rows] == held)
            y, weight = chunk.y[mine], chunk.weight[mine]
            yield sums_of(chunk.X[mine], y, weight, V.T, bias, brief.formulation)


def parts_on_dask(estimator: Any, source: Any, brief: Settings) -> Iterator[HeldOut]:
    """The same on the workers; state, and a W too large for the client, are removed in the end."""
    from dask_mcsvm.data.lazy_held_out import lazy_parts  # these import Dask
    from dask_mcsvm.training.runner import find_runner
    from dask_mcsvm.training.runs.on_dask import state_folder

    runner = find_runner()
    parts = lazy_parts(source, runner)
    with state_folder(brief.scratch, runner) as folder:
        os.makedirs(folder, exist_ok=True)
        for held in parts.chosen:
            model, own = clone(estimator), replace(brief, scratch=folder)
            others = parts.X, parts.y, parts.weights_without(held), source.classes
            model._learn(pose(model, *others, own), own)
            yield parts.sums(held, model.decision_function(parts.rows_of(held)))


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
