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
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from dask.task_spec import List, Task, TaskRef

from dask_mcsvm.solvers.groups import EVERYTHING

from ._blocks import GroupWeights, PairDuals, Side
from ._pairs import add_own, add_pair, own_visit, pair_visit, start_own, start_pair
from ._tasks import (
    Visit,
    finish_weights,
    pick,
    start_weights,
    sum_tallies,
    tally_bounds,
    zero_weights,
)
from .certify import primal
from .regroup import regroup
from .rows import Rows
from .schedule import Groups, Round, visit_rounds
from .state import Block, Graph, Key, Stage, State

#: Visits in which a variable may stay where it is before it rests.
PATIENCE = 3


@dataclass(frozen=True)
class Rounds:
    """Weston-Watkins by rounds of class groups: a `Solver`.

    State is ``weights-g``, the columns of group g (`GroupWeights`); ``own-a-s``, alpha of the rows
    of block s of group a for the classes of a (`Side`); and ``duals-a-b-s``, alpha of the rows of
    blocks s of the groups a < b for the classes of the other (`PairDuals`).

    Parameters
    ----------
    rows : Rows
        The training set.
    groups : tuple of tuples of int
        Classes of each group (see `schedule.balanced_groups`).
    seed : tuple of int
        The order of rounds and rows depends on it, on the epoch and on the groups that meet.
    run : str
        Told apart by it are the tasks of fits that run at the same time.
    n_blocks : int or tuple of int
        In how many blocks the rows of a group (of each group) are kept.
    passes : int
        How often a visit goes over its rows, after the first time only over those that moved.
    slices : int
        The rows of each group are cut at random into so many slices, and an epoch goes through
        the rounds once for each.
    patience : int
        A variable that stayed where it was in so many visits rests; 255 visits everything.
    recall : int
        Every so many epochs everything is visited.
    """

    rows: Rows
    groups: Groups
    seed: tuple[int, ...]
    run: str
    n_blocks: int | tuple[int, ...] = 1
    passes: int = 1
    slices: int = 1
    patience: int = PATIENCE
    recall: int = 10
    #: Graph of all that the stages read besides the state, and what of it is worth keeping.
    data: Graph = field(init=False)
    held: tuple[Key, ...] = field(init=False)
    blocks: tuple[tuple[Key, ...], ...] = field(init=False)

    kinds: ClassVar[Mapping[str, type[Block]]] = {
        "weights": GroupWeights,
        "own": Side,
        "duals": PairDuals,
    }

    def __post_init__(self) -> None:
        dealt = regroup(self.rows, self.groups, n_blocks=self.n_blocks, run=self.run)
        object.__setattr__(self, "data", self.rows.graph | dealt.graph)
        object.__setattr__(self, "blocks", dealt.blocks)
        object.__setattr__(self, "held", tuple(key for keys in dealt.blocks for key in keys))

    def start(self) -> Stage:
        """W = 0 and alpha = 0, but for rows without features, whose optimum is known [BOX-Z]."""
        graph: Graph = {}
        state: dict[str, Key] = {}
        key: Key
        for g, group in enumerate(self.groups):
            key = state[f"weights-{g}"] = ("ww-start-weights", self.run, g)
            shape = self.rows.n_features + 1, len(group)
            graph[key] = Task(key, start_weights, *shape, self.rows.dtype)
        tallies = []
        for a, b in pairs_of(visit_rounds(len(self.groups))):
            for step in range(self._steps(a, b)):
                key = ("ww-start", self.run, a, b, step)
                graph[key] = Task(
                    key, start_own if a == b else start_pair, *self._rows_of(a, b, step),
                    **self._common(a, b),
                )  # fmt: skip
                state[duals_name(a, b, step)] = pick(graph, ("ww-start-duals", *key[1:]), key, 0)
                tallies.append(pick(graph, ("ww-start-tally", *key[1:]), key, 1))
        report = ("ww-start-report", self.run)
        graph[report] = Task(report, sum_tallies, List(*map(TaskRef, tallies)))
        return Stage(graph, state, report)

    def epoch(self, state: State, epoch: int) -> Stage:
        """All groups with themselves, then all pairs, in rounds; once for each slice."""
        graph: Graph = {}
        left = dict(state)
        patience = EVERYTHING if epoch % self.recall == self.recall - 1 else self.patience
        for part in range(self.slices):
            for r, pairs in enumerate(self._shuffled_rounds(epoch, part)):
                for a, b in pairs:
                    task, name = (own_visit, "own") if a == b else (pair_visit, "pair")
                    for step in range(self._steps(a, b)):
                        how = Visit(
                            self.seed, epoch, members(a, b), step, part, self.slices, self.passes,
                            patience, first=a == b and part == step == 0,
                        )  # fmt: skip
                        key = (f"ww-{name}-{epoch}", self.run, part, r, a, b, step)
                        self._add_visit(graph, key, task, left, left, f"ww-weights-{epoch}",
                                        visit=how)  # fmt: skip
                        picked = (f"ww-duals-{epoch}", *key[1:])
                        left[duals_name(a, b, step)] = pick(graph, picked, key, 1 + (a != b))
        report = self._add_report(graph, left, f"ww-report-{epoch}")
        return Stage(graph, left, report)

    def certify(self, state: State, epoch: int) -> Stage:
        """W made anew from alpha in float64 by the rounds of an epoch; primal and dual of it."""
        graph: Graph = {}
        left: dict[str, Key] = {}
        key: Key
        for g in range(len(self.groups)):
            key = left[f"weights-{g}"] = (f"ww-refresh-start-{epoch}", self.run, g)
            graph[key] = Task(key, zero_weights, TaskRef(state[f"weights-{g}"]))
        for r, (a, b) in enumerate(pairs_of(visit_rounds(len(self.groups)))):
            for step in range(self._steps(a, b)):
                key = (f"ww-refresh-{epoch}", self.run, r, a, b, step)
                self._add_visit(graph, key, add_own if a == b else add_pair, left, state,
                                f"ww-refresh-weights-{epoch}")  # fmt: skip
        for g in range(len(self.groups)):
            done, name = (f"ww-refreshed-{epoch}", self.run, g), f"weights-{g}"
            graph[done] = Task(done, finish_weights, TaskRef(left[name]), TaskRef(state[name]))
            left[name] = done
        dual = self._add_report(graph, left, f"ww-dual-{epoch}")
        parts = [(classes, left[name]) for classes, name in self.weights(left)]
        looks, primal_key = primal(
            self.held, parts, formulation="weston_watkins", tau=self.rows.tau, name=f"ww-{epoch}",
            run=self.run,
        )  # fmt: skip
        report = (f"ww-bounds-{epoch}", self.run)
        graph[report] = Task(report, tally_bounds, TaskRef(dual), TaskRef(primal_key))
        return Stage(graph | looks, dict(state) | left, report)

    def weights(self, state: State) -> list[tuple[npt.NDArray[np.intp], str]]:
        """Classes of each group and the name of its block."""
        return [(np.array(group, np.intp), f"weights-{g}") for g, group in enumerate(self.groups)]

    # -- parts of a graph --------------------------------------------------------------------------

    def _add_visit(
        self,
        graph: Graph,
        key: Key,
        task: Callable[..., Any],
        weights: dict[str, Key],
        duals: State,
        leaves: str,
        **how: Any,
    ) -> None:
        """Add one step of a visit of the groups that `key` names; `weights` moves on."""
        *_, a, b, step = key
        names = [f"weights-{g}" for g in members(a, b)]
        graph[key] = Task(
            key,
            task,
            *(TaskRef(weights[name]) for name in names),
            TaskRef(duals[duals_name(a, b, step)]),
            *self._rows_of(a, b, step),
            **how,
            **self._common(a, b),
        )
        for place, name in enumerate(names):
            weights[name] = pick(graph, (leaves, *key[1:], place), key, place)

    def _add_report(self, graph: Graph, state: State, name: str) -> Key:
        """Sum the tallies of the groups, in their order; the weights stay where they are."""
        tallies = [
            pick(graph, (f"{name}-part", self.run, g), state[f"weights-{g}"], 1)
            for g in range(len(self.groups))
        ]
        report = (name, self.run)
        graph[report] = Task(report, sum_tallies, List(*map(TaskRef, tallies)))
        return report

    def _common(self, a: int, b: int) -> dict[str, Any]:
        """What all tasks of a pair are told."""
        classes = tuple(np.array(self.groups[g], np.intp) for g in members(a, b))
        return {"classes": classes, "tau": self.rows.tau}

    def _steps(self, a: int, b: int) -> int:
        """Tasks of a visit: as many as the longer side has blocks."""
        return max(len(self.blocks[a]), len(self.blocks[b]))

    def _rows_of(self, a: int, b: int, step: int) -> list[TaskRef | None]:
        """The blocks of the groups that a step works on; None where one has no more."""
        return [
            TaskRef(self.blocks[g][step]) if step < len(self.blocks[g]) else None
            for g in members(a, b)
        ]

    def _shuffled_rounds(self, epoch: int, part: int) -> list[Round]:
        """The groups with themselves first, the other rounds in random order."""
        alone, *rounds = visit_rounds(len(self.groups))
        order = np.random.default_rng([*self.seed, epoch, part]).permutation(len(rounds))
        return [alone, *(rounds[r] for r in order)]


def members(a: int, b: int) -> tuple[int, ...]:
    """The groups that meet."""
    return (a,) if a == b else (a, b)


def duals_name(a: int, b: int, step: int) -> str:
    """Name of the block of alpha of one step of a visit."""
    return f"own-{a}-{step}" if a == b else f"duals-{a}-{b}-{step}"


def pairs_of(rounds: Sequence[Round]) -> Iterator[tuple[int, int]]:
    """All visits of some rounds."""
    return (pair for pairs in rounds for pair in pairs)
