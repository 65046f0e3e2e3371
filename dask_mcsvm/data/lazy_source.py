"""Rows that are not in memory: Dask arrays and frames, Zarr arrays, datasets on disk.

Whatever was given becomes one list of delayed row chunks with codes and weights to match. The
first pass looks at every chunk once, on the workers; the client sees a few numbers of each.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, zip_longest
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from dask.array import core as da
from dask.delayed import Delayed, delayed

from dask_mcsvm.checks import (
    check_range,
    check_sparse,
    nullable_dtype,
    plain_labels,
    refuse_masked,
    refuse_shapeless,
)
from dask_mcsvm.formulations import Moments, Standardization
from dask_mcsvm.formulations.margins import EQUAL, Margins
from dask_mcsvm.solvers.row_block import as_block
from dask_mcsvm.storage import Dataset, of_tasks, open_dataset

from .lazy_input import (
    ChunkFacts,
    chunk_costs,
    chunk_facts,
    chunk_moments,
    column_names,
    encode_chunk,
    lazy_rows,
    of_dtype,
    refuse_labels,
    sortable_labels,
    standardized_facts,
    unique_labels,
    whole_rows,
)
from .row_source import RowScale, WeightsByClass
from .rows import Graph, Rows, row_blocks, sources

Array = npt.NDArray[Any]


class Runner(Protocol):
    """What runs the tasks; here they are only made."""

    def run(self, graph: Graph, hold: Sequence[Any], fetch: Sequence[Any]) -> list[Any]:
        """The values of ``fetch``; those of ``hold`` stay where they are."""

    def room_for_rows(self, memory_limit: int | None) -> float:
        """Bytes of rows that may stay in memory."""


@dataclass(frozen=True)
class LazySource:
    """Row chunks, coded labels and weights, all lazy, and what the first pass found.

    The `RowSource` of rows that Dask reads.
    """

    X: Sequence[Delayed]
    codes: Sequence[Delayed]
    weights: Sequence[Delayed] | None
    sizes: tuple[int, ...]
    n_features: int
    dtype: np.dtype[Any]
    classes: Array
    facts: Sequence[ChunkFacts]
    names: Array | None  # of the features, if all are strings
    factors: Array  # (k,) class weights
    held: Sequence[Any] = ()  # keys of the chunks that the first pass left in memory
    columns: Standardization | None = None  # by which solvers see the rows; so do the facts

    @property
    def n_given(self) -> int:
        return sum(self.sizes)

    @property
    def features(self) -> dict[str, Any]:
        names = {} if self.names is None else {"feature_names_in_": self.names}
        return {"n_features_in_": self.n_features, **names}

    @property
    def nnz(self) -> int:
        return sum(fact.nnz for fact in self.facts)

    @property
    def n_bytes(self) -> int:
        return sum(fact.n_bytes for fact in self.facts)

    @property
    def is_sparse(self) -> bool:
        return any(fact.is_sparse for fact in self.facts)

    @property
    def mean_square(self) -> float:
        """Mean of ‖x_i‖² over the rows of positive weight."""
        used = sum(int(fact.counts.sum()) for fact in self.facts)
        return sum(fact.square_sum for fact in self.facts) / max(1, used)

    @property
    def cost_square(self) -> float:
        """Mean of ‖x_i‖² by C_i."""
        squares = np.sum([fact.weighted_squares for fact in self.facts], axis=0)
        return float(self.factors @ squares) / float(self.totals.sum())

    def row_scale(self, C: float) -> RowScale | None:
        """How large dense rows are, times their mean cost; None of rows that are not all dense."""
        sums = [fact.row_sum for fact in self.facts]
        if self.mean_square == 0 or not all(total.size for total in sums):
            return None
        used = max(1, int(self.counts.sum()))
        mean, cost = sum(sums, np.zeros(1)) / used, C * float(self.totals.sum()) / used
        return RowScale(cost * float(mean @ mean), cost * self.mean_square)

    def radius(self) -> float:
        return max(fact.largest for fact in self.facts)

    def check_range(self, costs: tuple[float, float], tau: float) -> None:
        norm = max(self.radius(), *(fact.largest_part for fact in self.facts))
        check_range(costs, norm, tau, self.dtype, are_zero=norm == 0)

    @property
    def counts(self) -> Array:
        """Rows of positive weight of each class, (k,)."""
        return np.asarray(np.sum([fact.counts for fact in self.facts], axis=0))

    @property
    def weights_by_class(self) -> WeightsByClass:
        """Sample weights of each class."""
        found = [fact.weights for fact in self.facts]
        return WeightsByClass(
            np.sum([each.totals for each in found], axis=0),
            np.min([each.lightest for each in found], axis=0),
            np.max([each.heaviest for each in found], axis=0),
        )

    @property
    def totals(self) -> Array:
        """Sum of the weights of each class, (k,)."""
        return self.factors * self.weights_by_class.totals

    def weight_range(self) -> tuple[float, float]:
        return self.weights_by_class.range(self.factors)

    @property
    def variance(self) -> float:
        """Of all entries of X, rows counted by their weights."""
        size = self.n_features * float(self.weights_by_class.totals.sum())
        total = sum(fact.weighted_sum for fact in self.facts)
        square = sum(float(fact.weighted_squares.sum()) for fact in self.facts)
        return max(0.0, square / size - (total / size) ** 2)

    def rows(
        self, C: float, *, tau: float, run: str, all_rows: bool = False, margins: Margins = EQUAL
    ) -> Rows:
        """The rows as solvers read them."""
        weights: Sequence[Delayed | None] = self.weights or [None] * len(self.X)
        shared = delayed(C * self.factors)
        costs = [
            delayed(chunk_costs, name="costs")(code, w, shared)
            for code, w in zip(self.codes, weights, strict=True)
        ]
        return row_blocks(
            self.X, self.codes, costs, sizes=self.sizes, n_features=self.n_features,
            n_classes=self.classes.size, dtype=self.dtype, tau=tau, run=run, all_rows=all_rows,
            margins=margins, columns=self.columns,
        )  # fmt: skip

    def moments(self, runner: Runner) -> Moments:
        """Mean and squares of the columns, those of neighbouring chunks merged in a tree."""
        factors = delayed(self.factors)
        level = [
            delayed(chunk_moments, name="moments")(*chunk, factors) for chunk in self._chunks()
        ]
        merge = delayed(Moments.merged, name="merge-moments")
        while len(level) > 1:
            pairs = zip_longest(level[::2], level[1::2])
            level = [a if b is None else merge(a, b) for a, b in pairs]
        (found,) = _compute(level, runner, self.held)
        assert isinstance(found, Moments)
        return found

    def standardized(self, columns: Standardization, runner: Runner) -> LazySource:
        """The same rows for solvers that are to see them standardized: the facts are theirs."""
        shared = delayed(columns)
        tasks = [
            delayed(standardized_facts, name="look-again")(fact, *chunk, shared)
            for fact, chunk in zip(self.facts, self._chunks(), strict=True)
        ]
        return replace(self, columns=columns, facts=_compute(tasks, runner, self.held))

    def _chunks(self) -> Iterator[tuple[Delayed, Delayed, Delayed | None]]:
        """Rows as solvers take them, codes and weights of each chunk."""
        weights: Sequence[Delayed | None] = self.weights or [None] * len(self.X)
        for X, codes, w in zip(self.X, self.codes, weights, strict=True):
            yield delayed(as_block, name="as-rows")(X, self.dtype), codes, w


def read_source(
    X: Any,
    y: Any,
    sample_weight: Any,
    classes: Any,
    runner: Runner,
    memory_limit: int | None = None,
    *,
    mixed: bool = False,
) -> LazySource:
    """Make one form of all that can be given, and look at every chunk once.

    Chunks that are sure to be few stay in memory, so that they are made once.

    Parameters
    ----------
    X : dask array or frame, zarr array, Dataset, or path of a dataset
        A dataset holds its labels and weights; y and sample_weight are None then.
    y, sample_weight : lazy or in memory, of shape (n,)
    classes : array-like of shape (k,), optional
        All labels; saves the pass over y that finds them.
    mixed : bool
        Whether some chunks may be dense and some sparse.
    """
    names, room = column_names(X), runner.room_for_rows(memory_limit)
    if isinstance(X, str | os.PathLike | Dataset):
        dataset = X if isinstance(X, Dataset) else open_dataset(X)
        refuse_labels(dataset, y, sample_weight, classes)
        lazy_X, codes = dataset.to_dask()
        weights = dataset.weights_to_dask()
        known = dataset.classes
        code_blocks = _blocks(codes)
        size: float = stored_bytes(dataset)
    else:
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None; type fit(X, y).")
        lazy_X = row_chunks(X, runner)
        size = np.inf if sp.issparse(lazy_X._meta) else lazy_X.nbytes
        labels = _blocks(like(y, lazy_X, "y", runner))
        weights = None
        if sample_weight is not None:
            weights = like(sample_weight, lazy_X, "sample_weight", runner)
        known = _find_classes(labels, _spans(lazy_X), classes, runner)
        code_blocks = [
            delayed(encode_chunk, name="codes")(block, known, first=first, stop=stop)
            for block, (first, stop) in zip(labels, _spans(lazy_X), strict=True)
        ]
    weight_blocks = None if weights is None else _blocks(weights)
    # Until they are made to blocks, both exist.
    held = [block.key for block in _blocks(lazy_X)] if 2 * size <= room else []
    facts = _look(lazy_X, code_blocks, weight_blocks, known.size, runner, held)
    if not mixed:
        _refuse_mixed(facts)
    n, d = lazy_X.shape
    if n == 0 or d == 0:
        raise ValueError(f"X has shape {(n, d)}; there must be rows and columns.")
    return LazySource(
        _blocks(lazy_X), code_blocks, weight_blocks, tuple(lazy_X.chunks[0]), d,
        np.dtype(lazy_X.dtype), known, facts, names, np.ones(known.size), held,
    )  # fmt: skip


def row_chunks(X: Any, runner: Runner) -> da.Array:
    """X as a Dask array whose chunks are whole rows of known number."""
    return counted(whole_rows(lazy_rows(X)), "X", runner)


def like(column: Any, X: da.Array, name: str, runner: Runner) -> da.Array:
    """y or weights as a Dask array with the row chunks of X."""
    refuse_shapeless(name, column)
    if getattr(column, "ndim", 1) != 1:
        raise ValueError(f"{name} has {column.ndim} dimensions; pass shape (n,), one per row.")
    if hasattr(column, "to_dask_array"):
        numbers = nullable_dtype(column.dtype)
        if not isinstance(column.dtype, np.dtype):  # strings, categories, nullable numbers
            column = column.astype(object)
        column = of_tasks(column.to_dask_array())
        if numbers is not None:
            column = column.map_blocks(of_dtype, numbers, dtype=numbers, meta=np.empty(0, numbers))
    elif not isinstance(column := of_tasks(column), da.Array):
        if name == "y":
            column = plain_labels(column)
        refuse_masked(name, column)
        values = np.asarray(column)
        column = da.from_array(values, chunks=max(1, values.shape[0] if values.ndim else 1))
    if column.ndim != 1:
        raise ValueError(f"{name} has {column.ndim} dimensions; pass shape (n,), one per row.")
    column = counted(column, name, runner)
    if column.shape[0] != X.shape[0]:
        raise ValueError(
            f"X has {X.shape[0]} rows and {name} has {column.shape[0]}; pass one per row."
        )
    alike: da.Array = column
    return alike if alike.chunks[0] == X.chunks[0] else alike.rechunk((X.chunks[0],))


def counted(lazy: da.Array, name: str, runner: Runner) -> da.Array:
    """The same array with chunks of known size; the user's own is left as it is."""
    if not np.isnan(lazy.shape).any():
        return lazy
    tasks = [delayed(np.shape, name="count-rows")(block) for block in _blocks(lazy)]
    shapes = _compute(tasks, runner)
    width = shapes[0][1:]
    for c, shape in enumerate(shapes):
        if shape[1:] != width:
            raise ValueError(
                f"chunk {c} of {name} has shape {shape} and chunk 0 has shape {shapes[0]}; every "
                "chunk needs the same columns, in the same order."
            )
    chunks = (tuple(shape[0] for shape in shapes), *((size,) for size in width))
    return da.Array(lazy.dask, lazy.name, chunks, dtype=lazy.dtype, meta=lazy._meta)


def _blocks(lazy: Any) -> list[Delayed]:
    return list(lazy.to_delayed().ravel())


def _spans(X: da.Array) -> list[tuple[int, int]]:
    return list(pairwise(np.cumsum((0, *X.chunks[0])).tolist()))


def _find_classes(
    labels: Sequence[Delayed], spans: Sequence[tuple[int, int]], classes: Any, runner: Runner
) -> Array:
    if classes is not None:
        known = np.unique(np.asarray(classes))
        return known.astype(str) if known.dtype.kind == "O" else known
    tasks = [
        delayed(unique_labels, name="labels")(block, first=first)
        for block, (first, _) in zip(labels, spans, strict=True)
    ]
    found = [part for part in _compute(tasks, runner) if part.size]
    if not found:
        raise ValueError("y has no labels; there must be rows of at least two classes.")
    known = np.unique(np.concatenate(found))
    if known.dtype.kind == "f" and not np.array_equal(known, np.round(known)):
        raise ValueError("Unknown label type: continuous; classes must be integers or strings.")
    return known


def _look(
    X: da.Array,
    codes: Sequence[Delayed],
    weights: Sequence[Delayed] | None,
    k: int,
    runner: Runner,
    held: Sequence[Any],
) -> list[ChunkFacts]:
    given: Sequence[Delayed | None] = weights or [None] * len(codes)
    tasks = [
        delayed(chunk_facts, name="look")(
            x, code, w, chunk=c, first=first, stop=stop, d=X.shape[1], k=k
        )
        for c, (x, code, w, (first, stop)) in enumerate(
            zip(_blocks(X), codes, given, _spans(X), strict=True)
        )
    ]
    return _compute(tasks, runner, held)


def _refuse_mixed(facts: Sequence[ChunkFacts]) -> None:
    for c, fact in enumerate(facts):
        if fact.is_sparse != facts[0].is_sparse:
            kinds = ("sparse", "dense") if fact.is_sparse else ("dense", "sparse")
            raise ValueError(
                f"chunk {c} of X is {kinds[0]} and chunk 0 is {kinds[1]}; chunks must be all dense "
                "or all sparse: type X.map_blocks(scipy.sparse.csr_matrix)."
            )


def _compute(tasks: Sequence[Delayed], runner: Runner, held: Sequence[Any] = ()) -> list[Any]:
    return runner.run(sources(tasks), held, [task.key for task in tasks])


def stored_bytes(dataset: Dataset) -> int:
    """Bytes of a dataset's rows in memory."""
    index = np.dtype(np.int64).itemsize if dataset.is_sparse else 0
    return int(dataset.block_entries().sum()) * (dataset.dtype.itemsize + index)


def hold_back(
    X: Any, y: Any, sample_weight: Any, share: float, seed: int, runner: Runner
) -> tuple[tuple[Any, Any, Any], tuple[Any, Any]]:
    """Lazy rows to learn from, with labels and weights, and rows to score on, with labels.

    Of every chunk the same share is held back, at random.
    """
    if isinstance(X, str | os.PathLike | Dataset):
        dataset = X if isinstance(X, Dataset) else open_dataset(X)
        X, y = dataset.to_dask(labels=True)
        sample_weight = dataset.weights_to_dask()
    X = row_chunks(X, runner)
    held = [round(share * size) for size in X.chunks[0]]
    if not 0 < sum(held) < X.shape[0]:
        raise ValueError(
            f"validation={share:g} of {X.shape[0]} rows in {len(held)} chunks is {sum(held)}; it "
            "must leave rows to learn from and at least one to score on."
        )
    columns = [X, _named_gaps(like(y, X, "y", runner))]
    if sample_weight is not None:
        columns.append(like(sample_weight, X, "sample_weight", runner))
    learn = [_some_rows(column, held, seed, learn=True) for column in columns]
    score = [_some_rows(column, held, seed, learn=False) for column in columns[:2]]
    return (learn[0], learn[1], learn[2] if len(learn) > 2 else None), (score[0], score[1])


def _named_gaps(y: da.Array) -> da.Array:
    """y whose chunks are checked as they are: among some of its rows, a gap has another number."""
    parts = []
    for block, (first, stop) in zip(_blocks(y), _spans(y), strict=True):
        labels = delayed(sortable_labels, name="labels")(block, first)
        parts.append(da.from_delayed(labels, (stop - first,), y.dtype, meta=y._meta))
    whole: da.Array = da.concatenate(parts)
    return whole


def _some_rows(lazy: Any, held: Sequence[int], seed: int, *, learn: bool) -> Any:
    """The rows held back of each chunk, or the others."""
    parts = []
    for c, (block, n) in enumerate(zip(_blocks(lazy), held, strict=True)):
        size = lazy.chunks[0][c] - n if learn else n
        rows = delayed(take_part, name="hold-back")(block, n, [seed, c], learn=learn)
        shape = (size, *lazy.shape[1:])
        parts.append(da.from_delayed(rows, shape, lazy.dtype, meta=lazy._meta))
    return da.concatenate(parts)


def take_part(block: Any, n: int, seed: Sequence[int], *, learn: bool) -> Any:
    """n rows of a block, drawn at random, or all but those, in their order."""
    check_sparse(block)
    order = np.random.default_rng(seed).permutation(block.shape[0])
    return block[np.sort(order[n:] if learn else order[:n])]


def summed_columns(X: da.Array, task: Callable[[Any], Array], runner: Runner) -> Array:
    """The sum over all row chunks of what `task` makes of each."""
    found = _compute([delayed(task, name="columns")(block) for block in _blocks(X)], runner)
    return np.asarray(np.sum(found, axis=0))


def share_of_hits(predicted: da.Array, X: Any, y: Any, sample_weight: Any, runner: Runner) -> float:
    """Weighted share of the rows whose predicted label is that of y, or of the dataset X."""
    if isinstance(X, str | os.PathLike):
        X = open_dataset(X)
    if isinstance(X, Dataset) and y is None:
        y = X.to_dask(labels=True)[1]
        sample_weight = X.weights_to_dask() if sample_weight is None else sample_weight
    if y is None:
        raise ValueError("score needs the labels of these rows; type score(X, y).")
    if np.isnan(predicted.shape[0]):  # rows are counted without predicting them
        chunks = row_chunks(X, runner).chunks[:1]
        predicted = da.Array(predicted.dask, predicted.name, chunks, meta=predicted._meta)
    truth = _blocks(like(y, predicted, "y", runner))
    given: Sequence[Delayed | None] = [None] * len(truth)
    if sample_weight is not None:
        given = _blocks(like(sample_weight, predicted, "sample_weight", runner))
    tasks = [
        delayed(count_hits, name="score")(*blocks, first=first)
        for *blocks, (first, _) in zip(
            _blocks(predicted), truth, given, _spans(predicted), strict=True
        )
    ]
    hits, total = np.sum(_compute(tasks, runner), axis=0)
    return float(hits / total)


def count_hits(predicted: Array, truth: Any, weights: Any, *, first: int) -> tuple[float, float]:
    """Weights of the rows that were right, and of all; `first` is the number of the first row."""
    right = predicted == sortable_labels(truth, first)
    refuse_masked("sample_weight", weights, f" of the {right.size} rows from {first} on")
    w = np.ones(right.size) if weights is None else np.asarray(weights, np.float64)
    return float(w[right].sum()), float(w.sum())
