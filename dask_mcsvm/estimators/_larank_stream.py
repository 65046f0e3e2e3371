"""LaRank over Dask arrays and datasets: chunks visited one at a time by a model that travels."""

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from dask_mcsvm._validation import check_largest, class_weights, encode_labels, working_dtype
from dask_mcsvm.estimators._larank_fit import Epochs, Outcome, costs_of
from dask_mcsvm.estimators._larank_settings import Settings, new_run, resolve_gamma
from dask_mcsvm.estimators._progress import progress
from dask_mcsvm.graphs import larank as graphs
from dask_mcsvm.graphs.lazy_input import column_names
from dask_mcsvm.solvers.larank import LaRank
from dask_mcsvm.storage import Dataset, open_dataset
from dask_mcsvm.training.lazy_source import like, row_chunks
from dask_mcsvm.training.runner import Runner, find_runner, not_in_processes

#: Chunks in one graph: more of them would be read long before their turn.
WINDOW = 4


def fit_stream(
    estimator: Any, settings: Settings, X: Any, y: Any, sample_weight: Any, classes: Any
) -> tuple[LaRank, Outcome, dict[str, Any], float]:
    """Run, outcome, what was learned about the data, and gamma."""
    if settings.kernel == "precomputed":
        raise ValueError(
            'kernel is "precomputed", which needs the whole matrix in memory; pass a NumPy array, '
            'or rows and a kernel with a name, for example kernel="rbf".'
        )
    names, where = column_names(X), not_in_processes()
    if isinstance(X, str | os.PathLike | Dataset):
        X, y, sample_weight = _open(X, y, sample_weight)
    chunks = _chunks(X, y, sample_weight, find_runner())
    seen = graphs.survey(chunks).compute(**where)
    _check(seen)
    labels = np.concatenate([look.labels for look in seen])
    known, places = encode_labels(labels, classes)
    totals = np.concatenate([look.cost for look in seen])
    counts = np.bincount(places, totals, minlength=known.size).astype(np.float64)
    factors = class_weights(estimator.class_weight, known, counts)
    weighed = np.bincount(places, totals * factors[places], minlength=known.size)
    _check_two(known, np.asarray(weighed, np.float64))
    d = seen[0].d
    dtype = working_dtype(seen[0].dtype, settings.dtype)
    check_largest(max(look.largest for look in seen), d, dtype)
    gamma = resolve_gamma(settings, d, lambda: _variance(seen, d * float(totals.sum())))
    run = new_run(settings, gamma, k=known.size, d=d, is_sparse=seen[0].is_sparse, dtype=dtype)
    cost = costs_of(settings.C, factors)
    total = float(costs_of(settings.C, factors[places] * totals).sum())
    bases = np.cumsum([0, *(look.n for look in seen)])
    with progress(settings.verbose, settings.callbacks) as on_epoch:
        plan = _Plan(
            settings, chunks, known, cost, bases.tolist(), Epochs(settings, total, on_epoch), where
        )
        run, outcome = plan.run(run)
    learned = {"classes_": known, "n_features_in_": d}
    learned |= {} if names is None else {"feature_names_in_": names}
    return run, outcome, learned, gamma


def _chunks(X: Any, y: Any, sample_weight: Any, runner: Runner) -> tuple[graphs.Chunk, ...]:
    """Rows, labels and weights in chunks that are cut alike."""
    rows = row_chunks(X, runner)
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None; type fit(X, y).")
    weights = None
    if sample_weight is not None:
        weights = like(sample_weight, rows, "sample_weight", runner)
    return graphs.chunks_of(rows, like(y, rows, "y", runner), weights)


class _Plan:
    """The epochs of one fit over chunks."""

    def __init__(
        self,
        settings: Settings,
        chunks: tuple[graphs.Chunk, ...],
        classes: npt.NDArray[Any],
        cost: npt.NDArray[np.float64],
        bases: list[int],
        epochs: Epochs,
        where: dict[str, str],
    ) -> None:
        self.settings, self.chunks, self.classes = settings, chunks, classes
        self.cost, self.bases, self.epochs, self.where = cost, bases, epochs, where

    def run(self, run: LaRank) -> tuple[LaRank, Outcome]:
        epochs, settings = self.epochs, self.settings
        for epoch in range(settings.max_epochs):
            run = self._epoch(run, epoch)
            primal, dual, certified = float("nan"), run.dual, False
            if settings.by_gap:
                primal, dual, certified = *self._certify(run), True
            stopped = epochs.record(run, primal, dual, certified)
            if certified and epochs.is_done(primal, dual):
                return run, epochs.outcome("gap")
            if stopped:
                return run, epochs.outcome("callback")
        return run, epochs.outcome("max_epochs" if settings.by_gap else "epochs")

    def _epoch(self, run: LaRank, epoch: int) -> LaRank:
        tau = self.epochs.tau(run)
        state: Any = run
        for window in self._windows(epoch):
            how = [self._visit(c, epoch, tau) for c in window]
            # Between windows the model stays on the cluster; only its size comes here.
            visits = graphs.visits(state, [self.chunks[c] for c in window], how)
            state = visits.persist(**self.where)
            graphs.progress_of(state).compute(**self.where)
        done: LaRank = state.compute(**self.where)
        return done

    def _windows(self, epoch: int) -> Iterator[list[int]]:
        order = np.arange(len(self.chunks))
        if self.settings.shuffle:
            order = np.random.default_rng([self.settings.seed, epoch]).permutation(order)
        for start in range(0, order.size, WINDOW):
            yield order[start : start + WINDOW].tolist()

    def _visit(self, chunk: int, epoch: int, tau: float) -> graphs.Visit:
        seed = (self.settings.seed, epoch, chunk) if self.settings.shuffle else None
        return graphs.Visit(self.classes, self.cost, self.bases[chunk], seed, tau)

    def _certify(self, run: LaRank) -> tuple[float, float]:
        """Primal and dual: what patterns tell here, and the losses of all other rows."""
        how = [self._visit(c, 0, 0.0) for c in range(len(self.chunks))]
        others = graphs.losses(run, self.chunks, how).compute(**self.where)
        losses, common = np.sum(others, axis=0)
        part = run.pattern_part(None)
        primal = part.half_square + part.slack + losses + common
        return float(primal), float(part.linear - part.half_square + common)


def _open(path: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, Any]:
    if y is not None or sample_weight is not None:
        raise ValueError(
            "X is a path, and a dataset has its own labels and weights; type fit(path)."
        )
    dataset = path if isinstance(path, Dataset) else open_dataset(path)
    X, labels = dataset.to_dask(labels=True)
    return X, labels, dataset.weights_to_dask()


def _check(seen: list[graphs.Survey]) -> None:
    """Refuse what `fit` refuses for rows in memory."""
    for b, look in enumerate(seen):
        if not look.is_finite:
            raise ValueError(
                f"chunk {b} of X contains NaN or infinity; fill the gaps with "
                "sklearn.impute.SimpleImputer, or drop those rows."
            )
        if look.n_labels != look.n or (look.n_weights != look.n):
            raise ValueError(
                f"chunk {b} has {look.n} rows, {look.n_labels} labels and {look.n_weights} "
                "weights; pass one label and weight per row."
            )
        if not look.worst_weight >= 0:
            raise ValueError(
                f"sample_weight has a value of {look.worst_weight:g} in chunk {b}; weights must be "
                "finite and at least 0: use 0 to leave a row out."
            )
        if look.d != seen[0].d:
            raise ValueError(
                f"chunk {b} has {look.d} columns and the first {seen[0].d}; pass the same columns."
            )


def _check_two(classes: npt.NDArray[Any], totals: npt.NDArray[np.float64]) -> None:
    if np.count_nonzero(totals) < 2:
        found = classes[totals > 0].tolist()
        raise ValueError(
            f"y has rows of positive weight of {len(found)} class(es) {found}; a classifier needs "
            "two: add rows of another class."
        )


def _variance(seen: list[graphs.Survey], size: float) -> float:
    total, square = sum(look.total for look in seen), sum(look.square for look in seen)
    return max(0.0, square / size - (total / size) ** 2)
