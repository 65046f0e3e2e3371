"""Weston-Watkins by rounds of class groups, one epoch as one graph (Alber et al., Algorithm 4).

A visit of the groups (a, b) changes alpha_im with y_i in a and m in b, and the other way round. It
reads W_a, W_b and the rows of a and b, nothing else, so the visits of a round run side by side.
There is no barrier task: a visit waits for the weights that the round before left behind.

    group-rows  a ───────────────┐
    ww-weights  a (round r - 1) ─┤                ┌─ ww-weights  a (round r)
    ww-duals    a, b (epoch - 1) ┼─ ww-pair  a, b ┼─ ww-duals    a, b
    ww-weights  b (round r - 1) ─┤                └─ ww-weights  b (round r)
    group-rows  b ───────────────┘

Where a group has its rows in several blocks, a visit is a chain of tasks, one block of each side
at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from dask.task_spec import List, Task, TaskRef

from ._visits import (
    Visit,
    add_own,
    add_pair,
    finish_weights,
    item,
    own_visit,
    pair_visit,
    start_own,
    start_pair,
    start_weights,
    sum_tallies,
    zero_weights,
)
from .regroup import Graph, Key
from .schedule import Groups, Round, visit_rounds

#: Visits in which a variable may stay where it is before it rests, and the number for "no rest".
PATIENCE, EVERYTHING = 3, 255


@dataclass(frozen=True)
class RoundsState:
    """Keys of all that an epoch reads and writes.

    Attributes
    ----------
    weights : tuple of keys
        ``weights[g]`` is a `GroupWeights`.
    duals : mapping of (a, b), a <= b, to a tuple of keys
        One per step of the visit: a `PairDuals`, or where a = b a `Side`.
    """

    weights: tuple[Key, ...]
    duals: Mapping[tuple[int, int], tuple[Key, ...]]


@dataclass(frozen=True)
class Epoch:
    """A graph, the keys of the state it leaves, and the key of its `Tally`."""

    graph: Graph
    state: RoundsState
    report: Key


def ww_start(
    blocks: Sequence[Sequence[Key]],
    groups: Groups,
    *,
    n_features: int,
    dtype: npt.DTypeLike,
    tau: float,
    run: str,
) -> tuple[Graph, RoundsState]:
    """W = 0 and alpha = 0, but for rows without features, whose optimum is known [BOX-Z].

    Parameters
    ----------
    blocks : sequence of sequences of keys
        Of the `RowBlock` s of each group (see `regroup`).
    groups : tuple of tuples of int
        Classes of each group.
    n_features : int
        Columns of X.
    """
    graph: Graph = {}
    sizes = [len(group) for group in groups]
    weights = tuple(("ww-start-weights", run, g) for g in range(len(groups)))
    for g, key in enumerate(weights):
        graph[key] = Task(key, start_weights, n_features + 1, sizes[g], np.dtype(dtype))
    duals = {}
    for a, b in pairs_of(visit_rounds(len(groups))):
        steps = range(steps_of(blocks, a, b))
        duals[a, b] = tuple(("ww-start-duals", run, a, b, step) for step in steps)
        for step, made in zip(steps, duals[a, b], strict=True):
            rows = [block_ref(blocks, g, step) for g in members(a, b)]
            graph[made] = Task(
                made, start_own if a == b else start_pair, *rows, sizes[a], sizes[b],
                np.dtype(dtype), tau=tau,
            )  # fmt: skip
    return graph, RoundsState(weights, duals)


def ww_epoch(
    state: RoundsState,
    blocks: Sequence[Sequence[Key]],
    *,
    tau: float,
    seed: int | tuple[int, ...],
    epoch: int,
    run: str,
    passes: int = 1,
    slices: int = 1,
    patience: int = PATIENCE,
) -> Epoch:
    """Every variable is visited once: all groups with themselves, then all pairs, in rounds.

    Parameters
    ----------
    state : RoundsState
        Keys of the state before; the graph refers to them and does not hold them.
    blocks : sequence of sequences of keys
        Of the `RowBlock` s of each group.
    seed, epoch : int
        The order of rounds and rows depends on these and on the groups that meet.
    run : str
        Told apart by it are the tasks of fits that run at the same time.
    passes : int
        How often a visit goes over its rows, after the first time only over those that moved.
    slices : int
        The rows of each group are cut at random into so many slices, and the rounds are gone
        through once for each.
    patience : int
        A variable that stayed where it was in so many visits rests; 255 visits everything.

    Returns
    -------
    Epoch
    """
    graph: Graph = {}
    seeds = (seed,) if isinstance(seed, int) else tuple(seed)
    weights, duals = list(state.weights), dict(state.duals)
    for part in range(slices):
        for r, pairs in enumerate(shuffled_rounds(len(weights), (*seeds, epoch, part))):
            for a, b in pairs:
                task, name = (own_visit, "own") if a == b else (pair_visit, "pair")
                keys = []
                for step, held in enumerate(duals[a, b]):
                    how = Visit(seeds, epoch, (a, b), step, part, slices, passes, patience, tau)
                    key = (f"ww-{name}-{epoch}", run, part, r, a, b, step)
                    left = (f"ww-weights-{epoch}", *key[1:])
                    add_visit(graph, key, task, weights, held, blocks, left, visit=how)
                    keys.append(pick(graph, (f"ww-duals-{epoch}", *key[1:]), key, 1 + (a != b)))
                duals[a, b] = tuple(keys)
    report = add_report(graph, weights, epoch, run)
    return Epoch(graph, RoundsState(tuple(weights), duals), report)


def ww_refresh(
    state: RoundsState,
    blocks: Sequence[Sequence[Key]],
    *,
    tau: float,
    epoch: int,
    run: str,
) -> Epoch:
    """W made anew from alpha in float64, which stops the drift of a float32 W.

    The same rounds as an epoch. ``gain`` of its report is the dual objective itself, with alpha
    clipped to its box; the weights it leaves have the dtype that they had.
    """
    graph: Graph = {}
    weights: list[Key] = []
    for g, old in enumerate(state.weights):
        weights.append(("ww-refresh-start", run, epoch, g))
        graph[weights[g]] = Task(weights[g], zero_weights, TaskRef(old))
    for r, pairs in enumerate(visit_rounds(len(weights))):
        for a, b in pairs:
            task = add_own if a == b else add_pair
            for step, held in enumerate(state.duals[a, b]):
                key = (f"ww-refresh-{epoch}", run, 0, r, a, b, step)
                left = (f"ww-refresh-weights-{epoch}", *key[1:])
                add_visit(graph, key, task, weights, held, blocks, left, tau=tau)
    for g, old in enumerate(state.weights):
        done = (f"ww-refreshed-{epoch}", run, g)
        graph[done] = Task(done, finish_weights, TaskRef(weights[g]), TaskRef(old))
        weights[g] = done
    report = add_report(graph, weights, epoch, run, name="ww-refresh")
    return Epoch(graph, RoundsState(tuple(weights), dict(state.duals)), report)


def add_visit(
    graph: Graph,
    key: Key,
    task: Callable[..., Any],
    weights: list[Key],
    duals: Key,
    blocks: Sequence[Sequence[Key]],
    left: Key,
    **how: Any,
) -> None:
    """Add one step of a visit of the groups that `key` names.

    `weights` moves on to what it leaves, under the key `left` and the group's number.
    """
    *_, a, b, step = key
    groups = members(a, b)
    graph[key] = Task(
        key,
        task,
        *(TaskRef(weights[g]) for g in groups),
        TaskRef(duals),
        *(block_ref(blocks, g, step) for g in groups),
        **how,
    )
    for place, g in enumerate(groups):
        weights[g] = pick(graph, (*left, g), key, place)


def pick(graph: Graph, key: Key, source: Key, place: int) -> Key:
    """Add a task that takes one item of a result, so that the others need not travel with it."""
    graph[key] = Task(key, item, TaskRef(source), place)
    return key


def add_report(graph: Graph, weights: Sequence[Key], epoch: int, run: str, name: str = "ww") -> Key:
    """Sum the tallies of the groups, in their order; the weights stay where they are."""
    tallies = [
        pick(graph, (f"{name}-tally-{epoch}", run, g), key, 1) for g, key in enumerate(weights)
    ]
    report = (f"{name}-report-{epoch}", run)
    graph[report] = Task(report, sum_tallies, List(*map(TaskRef, tallies)))
    return report


def members(a: int, b: int) -> tuple[int, ...]:
    """The groups that meet."""
    return (a,) if a == b else (a, b)


def steps_of(blocks: Sequence[Sequence[Key]], a: int, b: int) -> int:
    """Tasks of a visit: as many as the longer side has blocks."""
    return max(len(blocks[a]), len(blocks[b]))


def block_ref(blocks: Sequence[Sequence[Key]], g: int, step: int) -> TaskRef | None:
    """The block of a group that a step works on; None where it has no more."""
    return TaskRef(blocks[g][step]) if step < len(blocks[g]) else None


def pairs_of(rounds: Sequence[Round]) -> Iterator[tuple[int, int]]:
    return (pair for pairs in rounds for pair in pairs)


def shuffled_rounds(n_groups: int, seed: tuple[int, ...]) -> list[Round]:
    """The groups with themselves first, the other rounds in random order."""
    alone, *rounds = visit_rounds(n_groups)
    order = np.random.default_rng(seed).permutation(len(rounds))
    return [alone, *(rounds[r] for r in order)]
