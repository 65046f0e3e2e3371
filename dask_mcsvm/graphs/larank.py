"""LaRank over chunks: a chain of visits that hands on the model, and lazy predictions.

The model goes from chunk to chunk, one task after the other; rows stay where they are. A task
copies the model it is given, so that it may run again after a worker was lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import nan
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from dask.array import core as da
from dask.task_spec import List, Task, TaskRef

from dask_mcsvm.data.rows import Graph, Rows
from dask_mcsvm.formulations import Bounds, Tally
from dask_mcsvm.solvers.larank import Aim, LaRank, checked_state, rebuild
from dask_mcsvm.solvers.row_block import RowBlock

from .state import Stage, State

Array = npt.NDArray[Any]
#: The one block of state.
MODEL = "model"


@dataclass(frozen=True, eq=False)
class Travelling:
    """The model, and what this epoch's visits have seen.

    Attributes
    ----------
    losses : float
        Σ C_i ξ_i of the rows that are no patterns, each when it was visited.
    common : float
        Σ C_i of the rows of zeros visited, which primal and dual have in common.
    primal, dual : float
        As far as known: the primal is an estimate, or nan.
    """

    run: LaRank
    losses: float = 0.0
    common: float = 0.0
    primal: float = nan
    dual: float = 0.0

    def arrays(self) -> dict[str, Array]:
        """All that the next epoch needs."""
        state: dict[str, Array] = self.run.export()
        return state


@dataclass(frozen=True, eq=False)
class Reader:
    """Makes the model again from its arrays; ``parameters`` are those of a `LaRank`."""

    parameters: dict[str, Any]

    def from_arrays(self, arrays: Mapping[str, Array]) -> Travelling:
        """The model that `arrays` came from; an error if they are none."""
        given = {**arrays, "n_seen": int(arrays["n_seen"])}
        return Travelling(rebuild(self.parameters, checked_state(self.parameters, given)))


class Passed(NamedTuple):
    """What the visits of an epoch came to."""

    primal: float
    dual: float
    support: int
    kernel_evaluations: int
    arg_max: int


class Visits:
    """Builds the graphs of a fit; see `Solver`.

    Parameters
    ----------
    rows : Rows
        All rows, those that cost nothing included: they have numbers.
    parameters : dict
        Of the `LaRank` to train.
    aim : Aim
    shuffle : bool
        Visit chunks, and the rows of each, in random order.
    run : str
        Unique id of this fit, part of every task key.
    """

    def __init__(
        self, rows: Rows, parameters: dict[str, Any], aim: Aim, shuffle: bool, run: str
    ) -> None:
        self.rows, self.aim, self.shuffle, self.run = rows, aim, shuffle, run
        self.parameters, self.seed = parameters, int(parameters["seed"])
        self.kinds: dict[str, Any] = {MODEL: Reader(parameters)}
        self.data, self.held = rows.graph, rows.keys
        self.bases = np.cumsum([0, *rows.sizes[:-1]]).tolist()

    def start(self) -> Stage:
        """A model without any example."""
        model, report = ("larank-start", self.run), ("larank-tally", self.run)
        graph = {model: Task(model, begin, self.parameters), report: Task(report, Tally)}
        return Stage(graph, {MODEL: model}, report)

    def windows(self, epoch: int, size: int) -> list[list[int]]:
        """The chunks in the order of an epoch, so many at a time."""
        order = np.arange(len(self.bases))
        if self.shuffle:
            order = np.random.default_rng([self.seed, epoch]).permutation(order)
        return [order[first : first + size].tolist() for first in range(0, order.size, size)]

    def visits(self, state: State, epoch: int, chunks: Sequence[int], *, ends: bool) -> Stage:
        """Visit these chunks one after the other; the report is `Passed`.

        The visits of an epoch may be several graphs; the last one ``ends`` it.
        """
        graph: Graph = {}
        model, starts = state[MODEL], chunks[0] == self.windows(epoch, 1)[0][0]
        key: tuple[str | int, ...]
        for chunk in chunks:
            key = (f"larank-visit-e{epoch}", self.run, chunk)
            seed = (self.seed, epoch, chunk) if self.shuffle else None
            graph[key] = Task(
                key, visit, TaskRef(model), TaskRef(self.rows.keys[chunk]), self.bases[chunk], seed,
                self.aim if starts and chunk == chunks[0] else None,
            )  # fmt: skip
            model = key
        if ends:
            key = (f"larank-estimate-e{epoch}", self.run)
            graph[key] = Task(key, estimate, TaskRef(model), by_gap=self.aim.by_gap)
            model = key
        report = (f"larank-passed-e{epoch}", self.run, chunks[-1])
        graph[report] = Task(report, passed, TaskRef(model))
        return Stage(graph, {MODEL: model}, report)

    def certify(self, state: State, epoch: int) -> Stage:
        """Gradients made anew, and the losses of all rows; the report is `Bounds`."""
        model = (f"larank-renew-e{epoch}", self.run)
        graph: Graph = {model: Task(model, renew, TaskRef(state[MODEL]))}
        losses = [(f"larank-losses-e{epoch}", self.run, c) for c in range(len(self.bases))]
        for key, rows, base in zip(losses, self.rows.keys, self.bases, strict=True):
            graph[key] = Task(key, losses_of, TaskRef(model), TaskRef(rows), base)
        report = (f"larank-bounds-e{epoch}", self.run)
        graph[report] = Task(report, bounds, TaskRef(model), List(*map(TaskRef, losses)))
        return Stage(graph, {MODEL: model}, report)


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
        return self.decide(self.scorer(X))


@dataclass(frozen=True)
class _Label:
    scorer: Any
    best: Callable[[Array], Array]
    classes: Array

    def __call__(self, X: Any) -> Array:
        labels: Array = self.classes[self.best(self.scorer(X))]
        return labels


def begin(parameters: dict[str, Any]) -> Travelling:
    """A model without any example."""
    return Travelling(LaRank(**parameters))


def visit(
    model: Travelling, rows: RowBlock, base: int, seed: tuple[int, ...] | None, aim: Aim | None
) -> Travelling:
    """The model after one visit of every row of a chunk; an ``aim`` begins an epoch."""
    run = model.run.copy()  # a task's arguments belong to others too
    if aim is not None:
        run.tau = aim.tau(run.dual)
        model = Travelling(run)
    examples = run.examples(rows.X, rows.y, rows.C, base=base)
    order = np.flatnonzero(examples.C > 0)
    if seed is not None:
        order = np.random.default_rng(seed).permutation(order)
    run.process(examples, order)
    losses, common = run.other_losses(examples, exact=False)
    # Without the cache: it would travel with the model.
    return Travelling(run.copy(), model.losses + losses, model.common + common)


def renew(model: Travelling) -> Travelling:
    """The model with gradients made anew; primal and dual are the share of its patterns."""
    run = model.run.copy()
    primal, dual = run.pattern_part(None).bounds(0.0, 0.0)
    return Travelling(run.copy(), primal=primal, dual=dual)


def estimate(model: Travelling, *, by_gap: bool) -> Travelling:
    """The model at the end of an epoch, with its dual, and the primal as visits saw it."""
    if not by_gap:
        return Travelling(model.run, dual=model.run.dual + model.common)
    new = renew(model)
    primal = new.primal + model.losses + model.common
    return Travelling(new.run, primal=primal, dual=new.dual + model.common)


def passed(model: Travelling) -> Passed:
    """A few numbers of the model, which stays where it is."""
    run = model.run
    counters = run.counters
    return Passed(
        model.primal,
        model.dual,
        run.n_patterns,
        counters["kernel_evaluations"],
        counters["arg_max"],
    )


def losses_of(model: Travelling, rows: RowBlock, base: int) -> tuple[float, float]:
    """Σ C_i ξ_i of the rows of a chunk that are no patterns, and Σ C_i of its rows of zeros."""
    run = model.run.copy()
    found: tuple[float, float] = run.other_losses(run.examples(rows.X, rows.y, rows.C, base=base))
    return found


def bounds(model: Travelling, found: Sequence[tuple[float, float]]) -> Bounds:
    """A certificate from the model's share of it, just computed, and the losses of all chunks."""
    losses, common = np.sum(found, axis=0).tolist()
    return Bounds(model.primal + losses + common, model.dual + common)
