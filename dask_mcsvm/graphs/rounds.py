"""Weston-Watkins by rounds of class groups, one epoch as one graph (Alber et al., Algorithm 4).

A visit of the groups (a, b) changes alpha_im with both y_i and m in a or b. It reads W_a, W_b and
the rows of a and b, nothing else, so the visits of a round run side by side. ``ww-round`` is the
barrier: it sums what the visits of a round did, and those of the next one wait for it.

    group-rows  a ───────────────┐                ┌─ ww-weights  a ── ww-met ─┐
    ww-weights  a ───────────────┤                │                           ├─ ww-round-e3-r0
    ww-duals    a, b (epoch - 1) ┼─ ww-pair  a, b ┼─ ww-duals    a, b         │
    ww-weights  b ───────────────┤                └─ ww-weights  b            │
    group-rows  b ───────────────┘                   (another pair) ─ ww-met ─┘

Where a group has its rows in several blocks, a visit is a chain of tasks, one block of each side
at a time. The variables of a group's rows for its own classes take part in every visit and travel
with its weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from dask.task_spec import List, Task, TaskRef

from dask_mcsvm.data.rows import Graph, Key, Rows
from dask_mcsvm.solvers.groups.blocks import PairDuals, RoundWeights
from dask_mcsvm.solvers.groups.clips import sum_tallies, tally_bounds
from dask_mcsvm.solvers.groups.pairs import (
    Meeting,
    add_own,
    add_pair,
    finish_group,
    solve_pair,
    start_group,
    start_own,
    start_pair,
    zero_group,
)
from dask_mcsvm.solvers.groups.schedule import Groups, circle_rounds
from dask_mcsvm.solvers.sdm.intercept import visits_between_moves

from .certify import primal
from .regroup import regroup
from .state import Block, Stage, State, pick

#: The stiffness of the soft intercept doubles every so many epochs, until it is 1 and rounds are
#: plain coordinate ascent.
STIFFER_EPOCHS = 50


@dataclass(frozen=True)
class Rounds:
    """Weston-Watkins by rounds of class groups: a `Solver`.

    State is ``weights-g``, the columns of group g and the variables of its rows for its own classes
    (`RoundWeights`), and ``duals-a-b-s``, the variables of the rows of blocks s of the groups a < b
    for the classes of the other (`PairDuals`).

    Parameters
    ----------
    rows : Rows
        The training set.
    groups : tuple of tuples of int
        Classes of each group (see `schedule.balanced_groups`).
    seed : tuple of int
        The order of rounds and rows depends on it, on the epoch and on the groups that meet.
    run : str
        Unique id of this fit, part of every task key.
    n_blocks : int or tuple of int
        In how many blocks the rows of a group (of each group) are kept.
    slices : int
        The rounds are gone through so often in an epoch, each time for a part of the visits.
    passes : int
        How often a visit goes over its rows.
    rho : float
        Stiffness of the soft intercept at first, above 0 and at most 1.
    recall : int
        Every so many epochs each row is visited with each group once, whatever its preference.
    """

    rows: Rows
    groups: Groups
    seed: tuple[int, ...]
    run: str
    n_blocks: int | tuple[int, ...] = 1
    slices: int = 4
    passes: int = 1
    rho: float = 1.0
    recall: int = 20
    data: Graph = field(init=False)
    held: tuple[Key, ...] = field(init=False)
    blocks: tuple[tuple[Key, ...], ...] = field(init=False)

    kinds: ClassVar[Mapping[str, type[Block]]] = {"weights": RoundWeights, "duals": PairDuals}

    def __post_init__(self) -> None:
        dealt = regroup(self.rows, self.groups, n_blocks=self.n_blocks, run=self.run)
        object.__setattr__(self, "data", self.rows.graph | dealt.graph)
        object.__setattr__(self, "blocks", dealt.blocks)
        object.__setattr__(self, "held", tuple(key for keys in dealt.blocks for key in keys))

    def start(self) -> Stage:
        """W = 0 and alpha = 0, but for rows without features, whose optimum is known [BOX-Z]."""
        graph: Graph = {}
        state: dict[str, Key] = {}
        tallies: list[Key] = []
        key: Key
        for g, group in enumerate(self.groups):
            own = []
            for step, rows in enumerate(self.blocks[g]):
                key = ("ww-start-own", self.run, g, step)
                graph[key] = Task(key, start_own, TaskRef(rows), classes=self._classes(g))
                own.append(TaskRef(key))
            key = state[f"weights-{g}"] = ("ww-start-weights", self.run, g)
            shape = self.rows.n_features + 1, len(group)
            rows_here = List(*map(TaskRef, self.blocks[g]))
            graph[key] = Task(
                key, start_group, List(*own), rows_here, classes=self._classes(g),
                n_classes=self.rows.n_classes, shape=shape, dtype=self.rows.dtype,
            )  # fmt: skip
            tallies.append(pick(graph, ("ww-start-tally", *key[1:]), key, 1))
        for members in self._pairs():
            classes = [self._classes(g) for g in members]
            for step in range(self._steps(members)):
                key = ("ww-start", self.run, *members, step)
                graph[key] = Task(
                    key, start_pair, *self._rows_of(members, step), classes=classes,
                    n_classes=self.rows.n_classes,
                )  # fmt: skip
                name = duals_name(members, step)
                state[name] = pick(graph, ("ww-start-duals", *key[1:]), key, 0)
                tallies.append(pick(graph, ("ww-start-tally", *key[1:]), key, 1))
        report = ("ww-start-report", self.run)
        graph[report] = Task(report, sum_tallies, List(*map(TaskRef, tallies)))
        return Stage(graph, state, report)

    def epoch(self, state: State, epoch: int) -> Stage:
        """All pairs of groups, in rounds; once for each slice."""
        graph: Graph = {}
        left = dict(state)
        met: set[int] = set()
        after: TaskRef | None = None
        rounds = [self._shuffled_rounds(epoch, part) for part in range(self.slices)]
        for part, mine in enumerate(rounds):
            for r, pairs in enumerate(mine):
                number = part * len(mine) + r
                for members in pairs:
                    for step in range(self._steps(members)):
                        meeting = Meeting(
                            self.seed, epoch, members, step, part, self.slices, self.passes,
                            epoch % self.recall == 0, self.theta(epoch),
                            visits_between_moves(self.rows.n), tuple(g not in met for g in members),
                        )  # fmt: skip
                        met |= set(members)
                        key = (f"ww-pair-e{epoch}-r{number}", self.run, *members, step)
                        self._add_meeting(graph, key, left, meeting, after)
                if number + 1 < self.slices * len(mine):  # the report ends the last one
                    after = self._close_round(graph, left, pairs, epoch, number)
        return Stage(graph, left, self._add_report(graph, left, f"ww-report-e{epoch}"))

    def certify(self, state: State, epoch: int) -> Stage:
        """W made anew from alpha in float64 by the rounds of an epoch; primal and dual of it."""
        graph: Graph = {}
        left: dict[str, Key] = {}
        for g in range(len(self.groups)):
            left[f"weights-{g}"] = self._add_own(graph, state[f"weights-{g}"], g, epoch)
        for members in self._pairs():
            for step in range(self._steps(members) if len(members) == 2 else 0):
                key = (f"ww-refresh-e{epoch}", self.run, *members, step)
                graph[key] = Task(
                    key, add_pair, *self._arguments(left, state, members, step),
                    **self._common(members),
                )  # fmt: skip
                for place, g in enumerate(members):
                    moved = (f"ww-refresh-weights-e{epoch}", *key[1:], place)
                    left[f"weights-{g}"] = pick(graph, moved, key, place)
        for g in range(len(self.groups)):
            done, name = (f"ww-refreshed-e{epoch}", self.run, g), f"weights-{g}"
            graph[done] = Task(
                done, finish_group, TaskRef(left[name]), TaskRef(state[name]),
                theta=self.theta(epoch),
            )  # fmt: skip
            left[name] = done
        dual = self._add_report(graph, left, f"ww-dual-e{epoch}")
        parts = [(classes, left[name]) for classes, name in self.weights(left)]
        looks, value = primal(
            self.held, parts, formulation="weston_watkins", tau=self.rows.tau, name="ww",
            epoch=epoch, run=self.run,
        )  # fmt: skip
        report = (f"ww-bounds-e{epoch}", self.run)
        graph[report] = Task(report, tally_bounds, TaskRef(dual), TaskRef(value))
        return Stage(graph | looks, dict(state) | left, report)

    def weights(self, state: State) -> list[tuple[npt.NDArray[np.intp], str]]:
        """Classes of each group and the name of its block."""
        return [(self._classes(g), f"weights-{g}") for g in range(len(self.groups))]

    def theta(self, epoch: int) -> float:
        """How much a change of the intercepts weighs in this epoch [TRADE]."""
        return float(min(1.0, self.rho * 2.0 ** (epoch / STIFFER_EPOCHS)))

    # -- parts of a graph --------------------------------------------------------------------------

    def _close_round(
        self, graph: Graph, state: State, pairs: Iterable[tuple[int, ...]], epoch: int, number: int
    ) -> TaskRef:
        """The barrier after a round: what has been done so far, of every pair."""
        name = f"e{epoch}-r{number}"
        tallies = [
            pick(graph, (f"ww-met-{name}", self.run, *pair), state[f"weights-{pair[0]}"], 1)
            for pair in pairs
        ]
        key = (f"ww-round-{name}", self.run)
        graph[key] = Task(key, sum_tallies, List(*map(TaskRef, tallies)))
        return TaskRef(key)

    def _add_meeting(
        self,
        graph: Graph,
        key: Key,
        state: dict[str, Key],
        meeting: Meeting,
        after: TaskRef | None,
    ) -> None:
        """Add one step of a visit and pick its results; `state` moves on."""
        members, step = meeting.groups, meeting.step
        graph[key] = Task(
            key, solve_pair, *self._arguments(state, state, members, step), meeting=meeting,
            after=after, **self._common(members),
        )  # fmt: skip
        name, *rest = key
        for place, g in enumerate(members):
            moved = (name.replace("pair", "weights"), *rest, g)
            state[f"weights-{g}"] = pick(graph, moved, key, place)
        kept = (name.replace("pair", "duals"), *rest)
        state[duals_name(members, step)] = pick(graph, kept, key, len(members))

    def _add_own(self, graph: Graph, weights: Key, g: int, epoch: int) -> Key:
        """Begin a refresh of a group with its own rows and classes."""
        held: Key = (f"ww-refresh-start-e{epoch}", self.run, g)
        graph[held] = Task(held, zero_group, TaskRef(weights))
        for step, rows in enumerate(self.blocks[g]):
            key = (f"ww-refresh-own-e{epoch}", self.run, g, step)
            graph[key] = Task(
                key, add_own, TaskRef(held), TaskRef(rows), step=step, classes=self._classes(g),
                tau=self.rows.tau,
            )  # fmt: skip
            held = key
        return held

    def _arguments(
        self, weights: State, duals: State, members: tuple[int, ...], step: int
    ) -> tuple[Any, ...]:
        """Weights, duals and rows of a step of a visit."""
        return (
            List(*(TaskRef(weights[f"weights-{g}"]) for g in members)),
            TaskRef(duals[duals_name(members, step)]),
            List(*self._rows_of(members, step)),
        )

    def _add_report(self, graph: Graph, state: State, name: str) -> Key:
        """Sum the tallies of the groups, in their order; the weights stay where they are."""
        tallies = [
            pick(graph, (f"{name}-part", self.run, g), state[f"weights-{g}"], 1)
            for g in range(len(self.groups))
        ]
        report = (name, self.run)
        graph[report] = Task(report, sum_tallies, List(*map(TaskRef, tallies)))
        return report

    def _classes(self, g: int) -> npt.NDArray[np.intp]:
        return np.array(self.groups[g], np.intp)

    def _common(self, members: tuple[int, ...]) -> dict[str, Any]:
        """What all tasks of a pair are told."""
        return {"classes": [self._classes(g) for g in members], "tau": self.rows.tau}

    def _pairs(self) -> Iterator[tuple[int, ...]]:
        """All pairs of groups; one group alone meets itself."""
        return (members for pairs in self._rounds() for members in pairs)

    def _rounds(self) -> tuple[tuple[tuple[int, ...], ...], ...]:
        return circle_rounds(len(self.groups)) or (((0,),),)

    def _shuffled_rounds(self, epoch: int, part: int) -> list[tuple[tuple[int, ...], ...]]:
        """The rounds in random order."""
        rounds = self._rounds()
        order = np.random.default_rng([*self.seed, epoch, part]).permutation(len(rounds))
        return [rounds[r] for r in order]

    def _steps(self, members: tuple[int, ...]) -> int:
        """Tasks of a visit: as many as the longest side has blocks."""
        return max(len(self.blocks[g]) for g in members)

    def _rows_of(self, members: tuple[int, ...], step: int) -> list[TaskRef | None]:
        """The blocks of the groups that a step works on; None where one has no more."""
        return [
            TaskRef(self.blocks[g][step]) if step < len(self.blocks[g]) else None for g in members
        ]


def duals_name(members: tuple[int, ...], step: int) -> str:
    """Name of the block of alpha of one step of a visit."""
    return f"duals-{members[0]}-{members[-1]}-{step}"
