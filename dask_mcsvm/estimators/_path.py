"""A path over C: each model starts from the dual variables of the one before."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from sklearn.base import clone

from dask_mcsvm.data.validation import TrainingSet, check_number, is_lazy
from dask_mcsvm.errors import bad_parameter
from dask_mcsvm.estimators._delayed import fit_span, runs_on_dask
from dask_mcsvm.estimators._fits import memory_rows, pose, standardized
from dask_mcsvm.estimators._predict import best_classes
from dask_mcsvm.estimators._settings import read_settings
from dask_mcsvm.estimators._shown import table
from dask_mcsvm.estimators._warm import KeptAlpha

if TYPE_CHECKING:
    from dask_mcsvm.estimators.linear import LinearMCSVC


@dataclass(frozen=True, repr=False)
class PathResult:
    """Models along a path of C, smallest C first.

    Attributes
    ----------
    models : tuple of LinearMCSVC
        One fitted estimator per C.
    Cs : tuple of float
        Ascending.
    scores : ndarray of shape (n_models,), or None
        Accuracy on the validation rows; None without any.
    best_index : int or None
        Of the highest score; of several, the smallest C.
    """

    models: "tuple[LinearMCSVC, ...]"
    Cs: tuple[float, ...]
    scores: npt.NDArray[np.float64] | None
    best_index: int | None

    @property
    def best_(self) -> "LinearMCSVC | None":
        """The model with the best validation score; None without validation rows."""
        return None if self.best_index is None else self.models[self.best_index]

    @property
    def histories(self) -> tuple[list[dict[str, Any]], ...]:
        """`history_` of each model."""
        return tuple(model.history_ for model in self.models)

    def __repr__(self) -> str:
        width = [max(map(len, column)) for column in zip(*self._rows(), strict=True)]
        lines = [
            "  ".join(cell.rjust(w) for cell, w in zip(row, width, strict=True))
            for row in self._rows()
        ]
        if self.best_index is not None:
            lines[self.best_index + 1] += "  best"
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        marked = None if self.best_index is None else self.best_index + 1
        return table(self._rows(), marked)

    def _rows(self) -> list[tuple[str, ...]]:
        """A head, then a row per C."""
        rows: list[tuple[str, ...]] = [("C", "epochs", "relative gap", "accuracy")]
        scores = ["-"] * len(self.Cs) if self.scores is None else [f"{s:.4f}" for s in self.scores]
        for C, model, score in zip(self.Cs, self.models, scores, strict=True):
            rows.append((f"{C:g}", str(model.n_iter_), f"{model.gap_:.1e}", score))
        return rows


def fit_path(
    estimator: "LinearMCSVC",
    X: Any,
    y: Any,
    Cs: Any,
    validation: Any,
    sample_weight: Any,
) -> PathResult:
    """Fit a clone of `estimator` for every C; see `LinearMCSVC.path`."""
    costs = check_costs(Cs)
    if estimator.checkpoint is not None:
        raise ValueError("checkpoint holds one fit, and a path is several; leave it out.")
    if is_lazy(X):
        return fit_lazy_path(estimator, X, y, costs, validation, sample_weight)
    settings = read_settings(estimator)
    data = memory_rows(estimator, X, y, sample_weight, None, settings)
    held_out = None
    share = share_held_back(validation)
    if share is not None:
        data, held_out = split(data, share, settings.seed)

    data = standardized(data, settings)
    models: list[LinearMCSVC] = []
    last: KeptAlpha | None = None
    for C in costs:
        model = clone(estimator).set_params(C=C)
        own = replace(settings, C=C, last_C=costs[-1])
        last = model._learn(pose(model, data, None, None, None, own, last), own)
        models.append(model)
    scores = None
    if held_out is not None:
        scores = np.array([accuracy(model, held_out) for model in models])
    elif validation is not None:
        scores = np.array([model.score(*validation) for model in models])
    return path_result(models, costs, scores)


def path_result(
    models: "Sequence[LinearMCSVC]",
    costs: tuple[float, ...],
    scores: npt.NDArray[np.float64] | None,
) -> PathResult:
    """The models with the best one chosen."""
    # argmax takes the first of equals, which is the smallest C: the simplest model that is as good.
    best = None if scores is None else int(scores.argmax())
    return PathResult(tuple(models), costs, scores, best)


def fit_lazy_path(
    estimator: "LinearMCSVC",
    X: Any,
    y: Any,
    costs: tuple[float, ...],
    validation: Any,
    sample_weight: Any,
) -> PathResult:
    """On Dask each fit leaves its alpha in files for the next; out of core it stands alone."""
    from dask_mcsvm.data.lazy_input import column_names  # these import Dask
    from dask_mcsvm.data.lazy_source import hold_back
    from dask_mcsvm.training.runner import find_runner
    from dask_mcsvm.training.runs.on_dask import state_folder

    settings = read_settings(estimator, lazy=True)
    share, names = share_held_back(validation), None
    if share is not None:
        names = column_names(X)
        (X, y, sample_weight), validation = hold_back(
            X, y, sample_weight, share, settings.seed, find_runner()
        )
    models = [clone(estimator).set_params(C=C) for C in costs]
    with ExitStack() as stack:
        on_dask = runs_on_dask(X, settings)
        stack.enter_context(fit_span(estimator, on_dask, "path"))
        if on_dask:
            folder = stack.enter_context(state_folder(settings.scratch, find_runner()))
            settings = replace(settings, carry=folder)
        for model in models:
            # Of constant columns the first fit tells.
            own = replace(settings, C=model.C, last_C=costs[-1], told=model is not models[0])
            with fit_span(estimator, on_dask, "fit", f"C={model.C:g}"):
                model._learn(pose(model, X, y, sample_weight, None, own), own)
    scores = None
    if validation is not None:
        scores = np.array([model.score(*validation) for model in models])
    if names is not None:  # the rows held back and the others are arrays, which have none
        for model in models:
            model.feature_names_in_ = names
    return path_result(models, costs, scores)


def share_held_back(validation: Any) -> float | None:
    """The share of the rows to score on; None if rows are given for it, or nothing is."""
    if validation is None:
        return None
    if isinstance(validation, tuple | list):
        if len(validation) != 2:
            needed = "a pair (X_val, y_val) or a share of the rows"
            found = f"{len(validation)} objects"
            raise bad_parameter("validation", found, needed, "validation=0.2")
        return None
    example = "validation=0.2, or validation=(X_val, y_val)"
    return check_number("validation", validation, above=0.0, example=example)


def check_costs(Cs: Any) -> tuple[float, ...]:
    """Values of C, ascending and each once: a solution stays feasible as C grows."""
    if isinstance(Cs, str) or not isinstance(Cs, Sequence | np.ndarray) or len(Cs) == 0:
        raise bad_parameter("Cs", Cs, "a list of numbers above 0", "Cs=[0.01, 0.1, 1.0]")
    example = "Cs=[0.01, 0.1, 1.0]"
    return tuple(sorted({check_number("Cs", C, above=0.0, example=example) for C in Cs}))


def split(data: TrainingSet, share: float, seed: int) -> tuple[TrainingSet, TrainingSet]:
    """Rows to learn from and rows to score on, at random; every class keeps a row to learn from."""
    n = data.y.size
    order = np.random.default_rng(seed).permutation(n)
    first_of_class = np.unique(data.y[order], return_index=True)[1]
    movable = np.delete(order, first_of_class)
    n_held = round(share * n)
    if not 0 < n_held <= movable.size:
        raise ValueError(
            f"validation={share:g} of {n} rows is {n_held}; it must leave a row of each class to "
            f"learn from and at least one to score on: between 1 and {movable.size} rows."
        )
    held = np.sort(movable[:n_held])
    learn = np.setdiff1d(order, held, assume_unique=True)
    learn.sort()
    return part(data, learn), part(data, held)


def part(data: TrainingSet, places: npt.NDArray[np.intp]) -> TrainingSet:
    """Some of the rows of a training set, in the order of `places`."""
    rows = data.rows[places]
    if not isinstance(rows, np.ndarray):
        rows.indices = rows.indices.astype(np.int32, copy=False)  # slicing widened them
        rows.indptr = rows.indptr.astype(np.int64, copy=False)
    given = None if data.given is None else data.given[places]
    return TrainingSet(
        rows, data.y[places], data.weights[places], data.classes, None, data.features, given
    )


def accuracy(model: "LinearMCSVC", held_out: TrainingSet) -> float:
    """Share of the rows whose best class is their own."""
    form = model._trained.formulation
    best = best_classes(held_out.rows, model.coef_, model.intercept_, form)
    return float(np.mean(best[:, 0] == held_out.y))
