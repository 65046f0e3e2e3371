"""LaRank over chunks: a chain of visits that hands on the model, and lazy predictions.

The model goes from chunk to chunk, one task after the other; rows stay where they are. A task
copies the model it is given, so that it may run again after a worker was lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import dask.array as da
import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from dask.delayed import Delayed, delayed

from dask_mcsvm.checks import check_sparse
from dask_mcsvm.solvers.larank import LaRank

from .intake import sortable_labels

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Chunk:
    """Rows, labels and weights of one chunk, each still to be computed; weights may be None.

    `first` is the number of its first row.
    """

    X: Delayed
    y: Delayed
    weight: Delayed | None
    first: int


@dataclass(frozen=True)
class Survey:
    """What one look at a chunk tells: enough to plan a fit and to refuse bad input.

    Attributes
    ----------
    n, d : int
    dtype : dtype
    is_sparse, is_finite : bool
    largest : float
        Magnitude of the largest value.
    total, square : float
        Sums over all entries, of values and of their squares, rows counted by weight.
    labels : ndarray
        Those that occur, sorted.
    cost : ndarray of shape (labels,)
        Sum of weights per label.
    worst_weight : float
        The smallest; nan if one is not finite.
    n_labels, n_weights : int
    """

    n: int
    d: int
    dtype: np.dtype[Any]
    is_sparse: bool
    is_finite: bool
    largest: float
    total: float
    square: float
    labels: Array
    cost: npt.NDArray[np.float64]
    worst_weight: float
    n_labels: int
    n_weights: int


@dataclass(frozen=True)
class Visit:
    """How a chunk is visited.

    Attributes
    ----------
    classes : ndarray of shape (k,)
    cost : ndarray of shape (k,)
        C times the weight of each class.
    base : int
        Number of the chunk's first row.
    seed : tuple of int or None
        Of the order of its rows; None keeps the order.
    tau : float
    """

    classes: Array
    cost: npt.NDArray[np.float64]
    base: int
    seed: tuple[int, ...] | None
    tau: float


def chunks_of(X: da.Array, y: da.Array, weight: da.Array | None) -> tuple[Chunk, ...]:
    """The row chunks of Dask arrays that are cut alike, between rows only."""
    rows = X.to_delayed()[:, 0]
    weights = [None] * len(rows) if weight is None else weight.to_delayed()
    firsts = np.cumsum((0, *X.chunks[0][:-1])).tolist()
    parts = zip(rows, y.to_delayed(), weights, firsts, strict=True)
    return tuple(Chunk(*part) for part in parts)


def survey(chunks: Sequence[Chunk]) -> Delayed:
    """A list with the `Survey` of each chunk."""
    look = delayed(look_at, pure=True)
    looks: Delayed = delayed([look(c.X, c.y, c.weight, c.first) for c in chunks])
    return looks


def visits(run: Any, chunks: Sequence[Chunk], how: Sequence[Visit]) -> Delayed:
    """The model after visiting these chunks one after the other; `run` is one, or a Delayed."""
    state = run if isinstance(run, Delayed) else delayed(run, traverse=False)
    step = delayed(visit, pure=True)
    for chunk, settings in zip(chunks, how, strict=True):
        state = step(state, chunk.X, chunk.y, chunk.weight, settings)
    return state


def progress_of(run: Delayed) -> Delayed:
    """A number that is there when the model is: to wait without moving the model."""
    count: Delayed = delayed(count_patterns, pure=True)(run)
    return count


def losses(run: LaRank, chunks: Sequence[Chunk], how: Sequence[Visit]) -> Delayed:
    """Per chunk: losses of the rows that are no patterns, and the cost of rows of zeros."""
    state = delayed(run, traverse=False)
    look = delayed(losses_of, pure=True)
    parts = zip(chunks, how, strict=True)
    found: Delayed = delayed([look(state, c.X, c.y, c.weight, visit) for c, visit in parts])
    return found


def lazy_scores(X: da.Array, scorer: Any, decide: Callable[[Array], Array], k: int) -> da.Array:
    """The decision function of each row chunk, when it is asked for."""
    columns = () if k == 2 else (k,)
    return _by_chunk(X, _Decide(scorer, decide), columns, scorer.dtype)


def lazy_labels(
    X: da.Array, scorer: Any, best: Callable[[Array], Array], classes: Array
) -> da.Array:
    """The predicted class of each row, when it is asked for."""
    return _by_chunk(X, _Label(scorer, best, classes), (), classes.dtype)


def _by_chunk(X: da.Array, task: Any, columns: tuple[int, ...], dtype: Any) -> da.Array:
    meta: Array = np.empty((0,) * (1 + len(columns)), dtype)
    how = {"chunks": (X.chunks[0], columns)} if columns else {"drop_axis": 1}
    lazy: da.Array = X.map_blocks(task, dtype=dtype, meta=meta, **how)
    return lazy


# -- tasks -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Decide:
    scorer: Any
    decide: Callable[[Array], Array]

    def __call__(self, X: Any) -> Array:
        return self.decide(self.scorer(as_matrix(X)))


@dataclass(frozen=True)
class _Label:
    scorer: Any
    best: Callable[[Array], Array]
    classes: Array

    def __call__(self, X: Any) -> Array:
        labels: Array = self.classes[self.best(self.scorer(as_matrix(X)))]
        return labels


def look_at(X: Any, y: Any, weight: Any, first: int) -> Survey:
    """Survey a chunk."""
    X, y = as_matrix(X), sortable_labels(y, first)
    values = X.data if sp.issparse(X) else X
    wide = values.astype(np.float64, copy=False)
    with np.errstate(over="ignore"):  # the largest value tells, and is refused
        squares = X.astype(np.float64).power(2) if sp.issparse(X) else wide * wide
    labels, places = np.unique(y, return_inverse=True)
    given = np.ones(y.size) if weight is None else np.asarray(weight, np.float64)
    costs = np.asarray(np.bincount(places, given[: y.size], labels.size), np.float64)
    by_row = given if given.size == X.shape[0] else np.ones(X.shape[0])
    worst = given.min(initial=np.inf) if np.isfinite(given).all() else float("nan")
    return Survey(
        n=X.shape[0],
        d=X.shape[1],
        dtype=X.dtype,
        is_sparse=sp.issparse(X),
        is_finite=bool(np.isfinite(wide).all()),
        largest=float(max(wide.max(initial=0.0), -wide.min(initial=0.0))),
        total=float(by_row @ np.asarray(X.sum(axis=1, dtype=np.float64)).ravel()),
        square=float(by_row @ np.asarray(squares.sum(axis=1)).ravel()),
        labels=labels,
        cost=costs,
        worst_weight=float(worst),
        n_labels=y.size,
        n_weights=given.size,
    )


def as_matrix(X: Any) -> Any:
    """A chunk of an array or a frame as numbers, dense or CSR."""
    check_sparse(X, "a chunk of X")
    return X.tocsr() if sp.issparse(X) else np.asarray(X)


def visit(run: LaRank, X: Any, y: Any, weight: Any, how: Visit) -> LaRank:
    """The model after one visit of every row of a chunk."""
    run = run.copy()  # a task's arguments belong to others too
    run.tau = how.tau
    examples = _examples(run, X, y, weight, how)
    order = np.flatnonzero(examples.C > 0)
    if how.seed is not None:
        order = np.random.default_rng(how.seed).permutation(order)
    run.process(examples, order)
    return run.copy()  # without the cache: it would travel with the model


def losses_of(run: LaRank, X: Any, y: Any, weight: Any, how: Visit) -> tuple[float, float]:
    """Σ C_i ξ_i of the rows of a chunk that are no patterns, and Σ C_i of its rows of zeros."""
    run = run.copy()
    examples = _examples(run, X, y, weight, how)
    return run.other_losses(examples)


def _examples(run: LaRank, X: Any, y: Any, weight: Any, how: Visit) -> Any:
    X = as_matrix(X).astype(run.dtype, copy=False)
    if run.is_sparse:
        X = sp.csr_array(X)
        X.sum_duplicates()
        X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int64)
    else:
        X = np.ascontiguousarray(X.toarray() if sp.issparse(X) else X)
    places = np.searchsorted(how.classes, sortable_labels(y, how.base)).astype(np.int32)
    costs = how.cost[places]
    if weight is not None:
        costs = costs * np.asarray(weight, np.float64)
    return run.examples(X, places, costs, base=how.base)


def count_patterns(run: LaRank) -> int:
    return run.n_patterns
