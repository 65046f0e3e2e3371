"""Rows in shards: blocks are solved side by side from the same W, then their changes are combined.

An epoch is a row of steps. In a step each lane visits some rows of one of its blocks, from the W
that all lanes have in common; each has a copy of it. The sum of what they changed, a few percent of
the entries of W, is taken as far as an exact line search along it says [LINE], and the intercept
follows softly [SOFT]. Only changes travel: the W of a lane, its rows and their variables stay.

    rows c, shard c ─ cs-draw ─┐                                  ┌─ cs-solve (lane 0, next)
    weights 0 ─────── cs-lane ─┴─ cs-solve (lane 0) ─┐            │
                                                     ├─ cs-combine
    weights 1 ─────── cs-lane ─┬─ cs-solve (lane 1) ─┘            │
    rows e, shard e ─ cs-draw ─┘                                  └─ cs-solve (lane 1, next)

A step is told of the rows, shard and weights as they were when the epoch began, and of all steps
since. It changes a copy of them that lies beside ``cs-draw`` and ``cs-lane`` where the step before
left it; a worker that has none makes it anew, by the same visits. ``cs-settle`` and ``cs-move``
take the copies as the shard and the weights of the next epoch. With one lane this is block
minimization (Yu et al. 2012): one block after another. Of one block all visits of an epoch are one
task, ``cs-solve``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from dask.task_spec import List, Task, TaskRef

from dask_mcsvm.data.rows import Graph, Key, Rows
from dask_mcsvm.formulations import FORMULATIONS
from dask_mcsvm.solvers.sdm.intercept import visits_between_moves
from dask_mcsvm.solvers.sdm.shard import Shard
from dask_mcsvm.solvers.sdm.shard_tasks import (
    ClassRange,
    How,
    Weights,
    add_columns,
    close_certificate,
    combine_slices,
    draw_steps,
    join_columns,
    look_at_rows,
    make_shard,
    move_weights,
    open_lane,
    pick_slice,
    renew_weights,
    report_bounds,
    report_tally,
    settle_shard,
    solve_rows,
    start_weights,
)
from dask_mcsvm.solvers.sdm.single_block import solve_epoch

from .state import Block, Stage, State

#: Chains in which the columns of W are summed when certifying, if there are few blocks of classes.
CHAINS = 4
#: float64 columns of W that a certifying task holds.
COLUMN_BYTES = 64 * 2**20


@dataclass(frozen=True)
class Shards:
    """Builds the graphs of a fit by shards; satisfies `Solver` for all four formulations.

    Attributes
    ----------
    rows : Rows
    formulation : str
    lanes : int
        Blocks that are solved side by side; block c belongs to lane c modulo lanes.
    slices : int
        Into so many steps, at least, an epoch is cut, unless it is one task.
    seed : int
    rho : float
        Stiffness of the soft intercept.
    run : str
        Unique id of this fit, part of every task key.
    """

    rows: Rows
    formulation: str
    lanes: int
    slices: int
    seed: int
    rho: float
    run: str

    kinds: ClassVar[Mapping[str, type[Block]]] = {"weights": Weights, "shard": Shard}

    @property
    def data(self) -> Graph:
        """The rows; stages refer to them by key."""
        return self.rows.graph

    @property
    def held(self) -> tuple[Key, ...]:
        """Blocks of rows, which every epoch reads."""
        return self.rows.keys

    @property
    def parts(self) -> int:
        """Steps of an epoch that visit a block."""
        return max(1, -(-self.slices * self.lanes // len(self.rows.keys)))

    def start(self) -> Stage:
        """The first alpha (0, or C where that is nearer) and W(alpha)."""
        rows, graph = self.rows, dict[Key, Any]()
        zeros, state = self._key("start-zeros"), dict[str, Key]()
        graph[zeros] = Task(
            zeros, start_weights, rows.n_features + 1, rows.n_classes, rows.dtype, len(rows.keys)
        )
        for c, block in enumerate(rows.keys):
            key = self._key("start", c)
            graph[key] = Task(
                key, make_shard, TaskRef(block), rows.n_classes, self.formulation, rows.tau
            )
            state[f"shard-{c}"] = key
        weights = self._weights(graph, {"weights": zeros, **state}, "start-{}")
        report = self._report(graph, "start-report", report_tally, weights, rows.n)
        lanes, places = self._for_all_lanes(graph, weights, "start-lane")
        return Stage(graph, lanes | state, report, places)

    def epoch(self, state: State, epoch: int) -> Stage:
        """Every row about once, in steps of `lanes` blocks."""
        if len(self.rows.keys) == 1:
            return self._epoch_of_one(state, epoch)
        graph: Graph = {}
        given = [self._open(graph, state, epoch, c) for c in range(len(self.rows.keys))]
        seen: list[tuple[int, ...]] = [() for _ in given]
        past: list[TaskRef] = []
        turns = [self._turns(epoch, lane) for lane in range(self.lanes)]
        steps = max(map(len, turns))
        for step, blocks in enumerate(zip_longest(*turns)):
            found = {}
            for c in (c for c in blocks if c is not None):  # a lane with fewer blocks rests
                seen[c] += (step,)
                key = self._key(f"solve-e{epoch}-r{step}", c)
                graph[key] = Task(
                    key, solve_rows, *given[c], List(*past), self._how, turns=seen[c]
                )
                found[c] = TaskRef(key)
            key = self._key(f"combine-e{epoch}-r{step}")
            graph[key] = Task(
                key, combine_slices, List(*found.values()), blocks=tuple(found), how=self._how,
                step=step, steps=steps,
            )  # fmt: skip
            past.append(TaskRef(key))
        now = {}
        for c, what in enumerate(given):
            key = now[f"shard-{c}"] = self._key(f"settle-e{epoch}", c)
            graph[key] = Task(
                key, settle_shard, *what, List(*past), self._how, turns=seen[c]
            )
        for lane in range(self.lanes):
            key = now[weights_name(lane)] = self._key(f"move-e{epoch}", lane)
            graph[key] = Task(key, move_weights, given[lane][-1], List(*past))
        report = self._report(graph, f"report-e{epoch}", report_tally, now["weights"], self.rows.n)
        return Stage(graph, {name: now[name] for name in state}, report)

    def _epoch_of_one(self, state: State, epoch: int) -> Stage:
        """The same of one block: nothing is side by side, and all visits are one task."""
        graph: Graph = {}
        solved = self._key(f"solve-e{epoch}-r0", 0)
        graph[solved] = Task(
            solved, solve_epoch, TaskRef(self.rows.keys[0]), TaskRef(state["shard-0"]),
            TaskRef(state["weights"]), self._how, (self.seed, epoch, 0),
        )  # fmt: skip
        now = {
            "shard-0": self._key(f"settle-e{epoch}", 0),
            "weights": self._key(f"combine-e{epoch}"),
        }
        for place, key in enumerate(now.values()):
            graph[key] = Task(key, pick_slice, TaskRef(solved), place)
        report = self._report(graph, f"report-e{epoch}", report_tally, now["weights"], self.rows.n)
        return Stage(graph, now, report)

    def certify(self, state: State, epoch: int) -> Stage:
        """W from alpha by blocks of classes, then the loss of every row at it."""
        graph: Graph = {}
        weights = self._weights(graph, state, f"certify-{{}}-e{epoch}")
        looks = {}
        for c, block in enumerate(self.rows.keys):
            looks[c] = self._key(f"certify-rows-e{epoch}", c)
            graph[looks[c]] = Task(
                looks[c], look_at_rows, TaskRef(block), TaskRef(state[f"shard-{c}"]),
                TaskRef(weights), self.formulation, self.rows.tau,
            )  # fmt: skip
        now, seen = {}, []
        for c, look in looks.items():
            kept, loss = self._key(f"certified-e{epoch}", c), self._key(f"certify-loss-e{epoch}", c)
            graph[kept] = Task(kept, pick_slice, TaskRef(look), 0)
            graph[loss] = Task(loss, pick_slice, TaskRef(look), 1)
            now[f"shard-{c}"] = kept
            seen.append(TaskRef(loss))
        closed = self._key(f"certify-e{epoch}")
        graph[closed] = Task(closed, close_certificate, TaskRef(weights), List(*seen))
        report = self._report(
            graph, f"certify-report-e{epoch}", report_bounds, closed, self.formulation
        )
        lanes, places = self._for_all_lanes(graph, closed, f"renew-lane-e{epoch}")
        return Stage(graph, lanes | now, report, places)

    def weights(self, state: State) -> list[tuple[npt.NDArray[np.intp], str]]:
        """All classes are in one block."""
        del state
        return [(np.arange(self.rows.n_classes), "weights")]

    # -- pieces ------------------------------------------------------------------------------------

    def _turns(self, epoch: int, lane: int) -> list[int]:
        """The block of every step of a lane: all its blocks for each part, in random order."""
        mine = np.arange(lane, len(self.rows.keys), self.lanes)
        turns: list[int] = []
        for part in range(self.parts):
            rng = np.random.default_rng([self.seed, epoch, part, lane])
            turns += rng.permutation(mine).tolist()
        return turns

    @property
    def _how(self) -> How:
        visits = visits_between_moves(self.rows.n, self.lanes)
        return How(self.formulation, self.rows.tau, self.rho, self.lanes, visits)

    def _open(
        self, graph: Graph, state: State, epoch: int, c: int
    ) -> tuple[TaskRef, TaskRef, TaskRef, TaskRef]:
        """What the steps that visit a block are told of it, and of its lane.

        Both tasks make a value that has room beside it for the work of those steps.
        """
        drawn, lane = self._key(f"draw-e{epoch}", c), self._key(f"lane-e{epoch}", c % self.lanes)
        rows, shard = TaskRef(self.rows.keys[c]), TaskRef(state[f"shard-{c}"])
        graph[drawn] = Task(drawn, draw_steps, rows, shard, (self.seed, epoch, c), self.parts)
        graph[lane] = Task(lane, open_lane, TaskRef(state[weights_name(c % self.lanes)]))
        return rows, shard, TaskRef(drawn), TaskRef(lane)

    def _weights(self, graph: Graph, state: State, stage: str) -> Key:
        """W made anew from alpha; what else the weights hold stays. ``stage`` names the tasks."""
        key = self._key(stage.format("weights"))
        columns = List(*map(TaskRef, self._columns(graph, state, stage.format("columns"))))
        graph[key] = Task(key, join_columns, TaskRef(state["weights"]), columns)
        return key

    def _for_all_lanes(
        self, graph: Graph, weights: Key, name: str
    ) -> tuple[dict[str, Key], dict[Key, int]]:
        """The same weights for every lane, and which of them belongs to which lane."""
        if self.lanes == 1:
            return {"weights": weights}, {}
        state, places = {}, {}
        for lane in range(self.lanes):
            key = state[weights_name(lane)] = self._key(name, lane)
            graph[key] = Task(key, renew_weights, TaskRef(weights))
            places[key] = lane
        return state, places

    def _columns(self, graph: Graph, state: State, name: str) -> list[Key]:
        """Chains of tasks over the chunks, for each block of classes; keys of their ends."""
        rows = self.rows
        width = max(1, min(rows.n_classes, COLUMN_BYTES // (8 * (rows.n_features + 1))))
        firsts = range(0, rows.n_classes, width)
        chains = min(len(rows.keys), -(-CHAINS // len(firsts)))
        ends = []
        for first in firsts:
            columns = ClassRange(first, min(first + width, rows.n_classes), rows.n_classes)
            for part in np.array_split(np.arange(len(rows.keys)), chains):
                last = None
                for c in part.tolist():
                    key = self._key(name, first, c)
                    graph[key] = Task(
                        key, add_columns, None if last is None else TaskRef(last),
                        TaskRef(rows.keys[c]), TaskRef(state[f"shard-{c}"]), columns,
                        self.formulation, rows.tau,
                    )  # fmt: skip
                    last = key
                ends.append(last)
        return ends

    def _report(self, graph: Graph, name: str, task: Any, weights: Key, *more: Any) -> Key:
        key = self._key(name)
        graph[key] = Task(key, task, TaskRef(weights), *more)
        return key

    def _key(self, name: str, *place: Any) -> Key:
        return (f"{FORMULATIONS[self.formulation].short_name}-{name}", self.run, *place)


def weights_name(lane: int) -> str:
    """Name of the block of state that holds the W of a lane."""
    return f"weights-{lane}" if lane else "weights"
