"""Lazy predictions for Dask arrays, by row block and class group.

A model comes in parts, the columns of W of some classes each, and a task holds one row block and
one part: W as a whole need not fit a worker, and where only the best classes are asked for, the
scores of all of them never exist at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from dask.array import core as da
from dask.base import tokenize
from dask.delayed import Delayed
from dask.task_spec import DataNode, List, Task, TaskRef

from dask_mcsvm.checks import check_sparse
from dask_mcsvm.data.rows import Graph, Key, sources
from dask_mcsvm.formulations import FORMULATIONS, Nearness, logits, softmax

Array: TypeAlias = npt.NDArray[Any]
#: Some classes of the k, ascending, and numbers that belong to them: columns of W, or scores.
Part: TypeAlias = tuple[npt.NDArray[np.intp], Array]
#: The best classes of some rows, best first, and their scores: (n, top) each.
Best: TypeAlias = tuple[npt.NDArray[np.intp], Array]
#: Places and scores of a part or of its best classes, and how far a score of each row can be off.
Margins: TypeAlias = tuple[npt.NDArray[np.intp], Array, Array]

#: Scores that a task which only wants the best ones holds at a time.
BLOCK_BYTES = 32 * 2**20


@dataclass(frozen=True)
class ModelPart:
    """The columns of W of some classes.

    Attributes
    ----------
    places : tuple of int
        Which of the k classes they are, ascending.
    W : ndarray or Delayed of shape (d + 1, len(places))
        The last row belongs to the constant feature.
    """

    places: tuple[int, ...]
    W: Array | Delayed


@dataclass(frozen=True)
class Model:
    """A model as predictions see it.

    Attributes
    ----------
    parts : tuple of ModelPart
        Every class in one of them.
    tau : float
        Value of the constant feature.
    dtype : dtype
        Of W; scores are computed in it.
    formulation : str
        The long name: two classes decide differently in one_vs_rest.
    """

    parts: tuple[ModelPart, ...]
    tau: float
    dtype: np.dtype[Any]
    formulation: str

    def __post_init__(self) -> None:
        places = [place for part in self.parts for place in part.places]
        ascending = all(list(part.places) == sorted(part.places) for part in self.parts)
        if sorted(places) != list(range(len(places))) or not ascending:
            raise ValueError("the parts of a model must hold every class once, in ascending order.")

    @property
    def n_classes(self) -> int:
        return sum(len(part.places) for part in self.parts)


def decision_function(X: da.Array, model: Model) -> da.Array:
    """Scores of all classes, lazily, in the row chunks of X.

    Parameters
    ----------
    X : dask.array.Array of shape (n, d)
        Row chunks, dense or CSR, of known or unknown length.
    model : Model

    Returns
    -------
    dask.array.Array of shape (n, k)
        For two classes (n,): s1 - s0, or s1 in one_vs_rest.
    """
    k = model.n_classes
    combine = partial(join_scores, n_classes=k, formulation=model.formulation)
    look = partial(part_scores, tau=model.tau)
    return by_blocks("scores", X, model, look, combine, () if k == 2 else (k,), model.dtype)


def predict(X: da.Array, model: Model, classes: Array) -> da.Array:
    """The class of each row, lazily: shape (n,), the dtype of `classes` (k,)."""
    look, combine = best_tasks(model, 1)
    return by_blocks("predict", X, model, look, partial(one_label, combine), (), None, classes)


def predict_topk(X: da.Array, model: Model, classes: Array, top: int) -> da.Array:
    """The `top` best classes of each row, best first, lazily: shape (n, top)."""
    if not 1 <= top <= model.n_classes:
        raise ValueError(f"top={top}; the model has {model.n_classes} classes, use 1 to that many.")
    look, combine = best_tasks(model, top)
    return by_blocks("topk", X, model, look, partial(labels, combine), (top,), None, classes)


def probabilities(X: da.Array, model: Model, temperature: float) -> da.Array:
    """Probabilities of all classes, lazily: shape (n, k), in the dtype of the model."""
    k = model.n_classes
    join = partial(join_scores, n_classes=k, formulation=model.formulation)
    combine = partial(as_probabilities, join, temperature)
    look = partial(part_scores, tau=model.tau)
    return by_blocks(f"proba-{tokenize(temperature)}", X, model, look, combine, (k,), model.dtype)


def certain(X: da.Array, model: Model, near: Nearness) -> da.Array:
    """Whether the exact optimum gives each row the same label, lazily: shape (n,), bool."""
    look = partial(part_margins, tau=model.tau, two=model.n_classes == 2, near=near)
    combine = partial(join_margins, n_classes=model.n_classes, near=near)
    return by_blocks(f"certain-{tokenize(near)}", X, model, look, combine, (), np.dtype(bool))


def best_tasks(model: Model, top: int) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """What a task does with a part of the model, and what joins the parts of a row block."""
    if model.n_classes == 2:
        look: Callable[..., Any] = partial(part_scores, tau=model.tau)
        return look, partial(best_of_two, top=top, formulation=model.formulation)
    return partial(part_best, tau=model.tau, top=top), partial(join_best, top=top)


def by_blocks(
    what: str,
    X: da.Array,
    model: Model,
    look: Callable[..., Any],
    combine: Callable[..., Array],
    columns: tuple[int, ...],
    dtype: np.dtype[Any] | None,
    classes: Array | None = None,
) -> da.Array:
    """A lazy array in the row chunks of X: each block joins what every part of the model says.

    ``look(block, part)`` runs per row block and part, ``combine(found)`` (or ``combine(found,
    classes)``) per row block. `columns` is the shape of one row of the result.
    """
    if X.ndim != 2 or X.numblocks[1] != 1:
        raise ValueError(
            f"X is split along features (chunks {X.chunks[1:]}); rows must stay whole. "
            "Use X.rechunk({1: -1})."
        )
    token = tokenize(what, X, model, columns, classes)
    graph, parts = model_nodes(model, token)
    extra: list[TaskRef] = []
    if classes is not None:
        node = (f"{what}-classes-{token}",)
        graph[node] = DataNode(node, classes)
        extra, dtype = [TaskRef(node)], classes.dtype
    name = f"{what}-{token}"
    for i in range(X.numblocks[0]):
        found = [(f"{what}-part-{token}", i, p) for p in range(len(parts))]
        for key, part in zip(found, parts, strict=True):
            graph[key] = Task(key, look, TaskRef((X.name, i, 0)), TaskRef(part))
        out = (name, i) + (0,) * len(columns)
        graph[out] = Task(out, combine, List(*map(TaskRef, found)), *extra)
    lazy: list[Any] = [X, *(part.W for part in model.parts if isinstance(part.W, Delayed))]
    graph = sources(lazy) | graph
    chunks = (X.chunks[0], *((width,) for width in columns))
    meta: Array = np.empty((0,) * len(chunks), dtype)
    return da.Array(graph, name, chunks, dtype=dtype, meta=meta)


def model_nodes(model: Model, token: str) -> tuple[Graph, list[Key]]:
    """The parts of the model, each once in the graph, and their keys."""
    graph: Graph = {}
    keys: list[Key] = []
    for p, part in enumerate(model.parts):
        key = (f"model-part-{token}", p)
        places = np.array(part.places, np.intp)
        if isinstance(part.W, Delayed):
            graph[key] = Task(key, make_part, places, TaskRef(part.W.key))
        else:
            graph[key] = DataNode(key, (places, part.W))
        keys.append(key)
    return graph, keys


# -- tasks -----------------------------------------------------------------------------------------


def make_part(places: npt.NDArray[np.intp], W: Array) -> Part:
    return places, W


def score_blocks(X: Any, W: Array, tau: float, rows: int) -> Iterator[Array]:
    """X W + tau times W's last row, so many rows at a time, in the dtype of W."""
    check_sparse(X, "a chunk of X")
    intercept = tau * W[-1].astype(np.float64)
    for start in range(0, X.shape[0], rows):
        scores = np.asarray(X[start : start + rows].astype(W.dtype, copy=False) @ W[:-1])
        scores += intercept
        yield scores


def part_scores(X: Any, part: Part, *, tau: float) -> Part:
    """Scores of a row block for the classes of one part."""
    places, W = part
    found = [*score_blocks(X, W, tau, max(1, X.shape[0]))]
    return places, found[0] if found else np.empty((0, places.size), W.dtype)


def part_best(X: Any, part: Part, *, tau: float, top: int) -> Best:
    """The best classes of a part for each row of a block."""
    places, W = part
    top = min(top, places.size)
    chosen = np.empty((X.shape[0], top), np.intp)
    values: Array = np.empty((X.shape[0], top), W.dtype)
    rows = max(1, BLOCK_BYTES // (places.size * W.dtype.itemsize))
    for b, scores in enumerate(score_blocks(X, W, tau, rows)):
        here = slice(b * rows, b * rows + scores.shape[0])
        columns = largest(scores, top)
        chosen[here] = places[columns]
        values[here] = np.take_along_axis(scores, columns, axis=1)
    return chosen, values


def part_margins(X: Any, part: Part, *, tau: float, two: bool, near: Nearness) -> Margins:
    """The two best scores of a part, or both of two classes, and how far a score can be off."""
    found = part_scores(X, part, tau=tau) if two else part_best(X, part, tau=tau, top=2)
    return *found, near.reach(X)


def join_margins(
    found: Sequence[Margins], *, n_classes: int, near: Nearness
) -> npt.NDArray[np.bool_]:
    """Whether the labels of a row block are certain."""
    values = np.concatenate([values for _, values, _ in found], axis=1)
    if n_classes == 2:
        values = values[:, np.argsort(np.concatenate([places for places, *_ in found]))]
    else:
        values = np.partition(values, -2, axis=1)[:, -2:]
    return near.is_certain(values, found[0][2], n_classes)


def largest(scores: Array, top: int) -> npt.NDArray[np.intp]:
    """Columns of the `top` largest scores of each row, largest first, ties by column."""
    if top == 1:
        first: npt.NDArray[np.intp] = scores.argmax(axis=1)[:, None]
        return first
    return np.argsort(-scores, axis=1, kind="stable")[:, :top]


def join_scores(found: Sequence[Part], *, n_classes: int, formulation: str) -> Array:
    """The scores of all parts in the order of the classes; one number per row for two classes."""
    first = found[0][1]
    scores: Array = np.empty((first.shape[0], n_classes), first.dtype)
    for places, values in found:
        scores[:, places] = values
    if n_classes != 2:
        return scores
    # Both columns then solve one problem with signs exchanged.
    if FORMULATIONS[formulation].classes_are_independent:
        return scores[:, 1].copy()
    return np.asarray(scores[:, 1] - scores[:, 0])


def as_probabilities(
    join: Callable[..., Array], temperature: float, found: Sequence[Part]
) -> Array:
    """The softmax of what the parts found for a row block [PROB]."""
    return softmax(temperature * logits(join(found))).astype(found[0][1].dtype)


def join_best(found: Sequence[Best], *, top: int) -> npt.NDArray[np.intp]:
    """The best classes of all parts, (n, top), best first, ties by class."""
    places = np.concatenate([chosen for chosen, _ in found], axis=1)
    values = np.concatenate([values for _, values in found], axis=1)
    order = np.lexsort((places, -values), axis=1)[:, :top]
    return np.take_along_axis(places, order, axis=1)


def best_of_two(found: Sequence[Part], *, top: int, formulation: str) -> npt.NDArray[np.intp]:
    """Classes (n, top) of a model of two: the second where the decision function is above 0."""
    second = join_scores(found, n_classes=2, formulation=formulation) > 0
    return np.where(second[:, None], [[1, 0]], [[0, 1]])[:, :top].astype(np.intp)


def labels(combine: Callable[..., Any], found: Sequence[Any], classes: Array) -> Array:
    named: Array = classes[combine(found)]
    return named


def one_label(combine: Callable[..., Any], found: Sequence[Any], classes: Array) -> Array:
    return labels(combine, found, classes)[:, 0]
