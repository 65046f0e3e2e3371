"""Rows in shards: chunks are solved side by side from the same W, then their changes are combined.

An epoch is a row of steps. In a step some chunks, one per lane, each visit a slice of their rows
from the weights the step before left behind; the sum of what they found is taken as far as an
exact line search along it says [LINE], and the intercept follows softly [SOFT].

    rows c ─┐                                            ┌─ cs-settle  (chunk c)
    shard c ┼─ cs-solve (chunk c) ─┐                     │
    weights ┤                      ├─ cs-combine ─ weights (next step)
    shard e ┼─ cs-solve (chunk e) ─┘                     │
    rows e ─┘                                            └─ cs-settle  (chunk e)

With one lane this is block minimization (Yu et al. 2012): one chunk after another. Of one chunk all
steps are one task, ``cs-solve``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from dask.task_spec import List, Task, TaskRef

from dask_mcsvm.formulations import SHORT_NAMES
from dask_mcsvm.solvers.intercept import visits_between_moves
from dask_mcsvm.solvers.shard import Shard

from ._alone import solve_epoch
from ._shard_tasks import (
    ClassRange,
    SliceOf,
    Weights,
    add_columns,
    close_certificate,
    combine_slices,
    join_columns,
    look_at_rows,
    make_shard,
    pick_slice,
    report_bounds,
    report_tally,
    settle_shard,
    solve_rows,
    start_weights,
)
from .rows import Rows
from .state import Block, Graph, Key, Stage, State

#: "crammer_singer" -> "cs", for the names of tasks.
SHORT = {name: short for short, name in SHORT_NAMES.items()}
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
        Chunks that are solved side by side.
    slices : int
        Into so many steps, at least, an epoch is cut.
    seed : int
    rho : float
        Stiffness of the soft intercept.
    run : str
        Told apart by it are the tasks of fits that run at the same time.
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
        """Slices of one chunk in an epoch."""
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
        return Stage(graph, {"weights": weights, **state}, report)

    def epoch(self, state: State, epoch: int) -> Stage:
        """Every row about once, in steps of `lanes` chunks."""
        if len(self.rows.keys) == 1:
            return self._epoch_of_one(state, epoch)
        graph: Graph = {}
        now = dict(state)
        for step, chunks in enumerate(self._steps(epoch)):
            part = step // self._steps_per_part
            solved = {c: self._solve(graph, now, epoch, part, c) for c in chunks}
            combined = self._key(f"combine-{epoch}", step)
            slices = List(*(self._pick(graph, epoch, part, c, solved[c]) for c in chunks))
            graph[combined] = Task(
                combined, combine_slices, TaskRef(now["weights"]), slices, chunks=chunks,
                lanes=self.lanes, rho=self.rho, first=step == 0,
            )  # fmt: skip
            for c in chunks:
                key = self._key(f"settle-{epoch}", part, c)
                before = TaskRef(now[f"shard-{c}"])
                graph[key] = Task(key, settle_shard, before, TaskRef(solved[c]), TaskRef(combined))
                now[f"shard-{c}"] = key
            now["weights"] = combined
        report = self._report(graph, f"report-{epoch}", report_tally, now["weights"], self.rows.n)
        return Stage(graph, now, report)

    def _epoch_of_one(self, state: State, epoch: int) -> Stage:
        """The same of one chunk: nothing is side by side, and all slices are one task."""
        graph: Graph = {}
        solved = self._key(f"solve-{epoch}", 0)
        graph[solved] = Task(
            solved, solve_epoch, TaskRef(self.rows.keys[0]), TaskRef(state["shard-0"]),
            TaskRef(state["weights"]), self._slice_of(epoch, 0, 0),
        )  # fmt: skip
        now = {"shard-0": self._key(f"settle-{epoch}", 0), "weights": self._key(f"combine-{epoch}")}
        for place, key in enumerate(now.values()):
            graph[key] = Task(key, pick_slice, TaskRef(solved), place)
        report = self._report(graph, f"report-{epoch}", report_tally, now["weights"], self.rows.n)
        return Stage(graph, now, report)

    def certify(self, state: State, epoch: int) -> Stage:
        """W from alpha by blocks of classes, then the loss of every row at it."""
        graph: Graph = {}
        weights = self._weights(graph, state, f"certify-{{}}-{epoch}")
        looks = {}
        for c, block in enumerate(self.rows.keys):
            looks[c] = self._key(f"certify-rows-{epoch}", c)
            graph[looks[c]] = Task(
                looks[c], look_at_rows, TaskRef(block), TaskRef(state[f"shard-{c}"]),
                TaskRef(weights), self.formulation, self.rows.tau,
            )  # fmt: skip
        now, seen = {}, []
        for c, look in looks.items():
            kept, loss = self._key(f"certified-{epoch}", c), self._key(f"certify-loss-{epoch}", c)
            graph[kept] = Task(kept, pick_slice, TaskRef(look), 0)
            graph[loss] = Task(loss, pick_slice, TaskRef(look), 1)
            now[f"shard-{c}"] = kept
            seen.append(TaskRef(loss))
        closed = self._key(f"certify-{epoch}")
        graph[closed] = Task(closed, close_certificate, TaskRef(weights), List(*seen))
        report = self._report(graph, f"certify-report-{epoch}", report_bounds, closed)
        return Stage(graph, {"weights": closed, **now}, report)

    def weights(self, state: State) -> list[tuple[npt.NDArray[np.intp], str]]:
        """All classes are in one block."""
        del state
        return [(np.arange(self.rows.n_classes), "weights")]

    # -- pieces ------------------------------------------------------------------------------------

    @property
    def _steps_per_part(self) -> int:
        return -(-len(self.rows.keys) // self.lanes)

    def _steps(self, epoch: int) -> list[tuple[int, ...]]:
        """The chunks of each step: all of them once for each part, dealt anew every time."""
        steps = []
        for part in range(self.parts):
            order = np.random.default_rng([self.seed, epoch, part]).permutation(len(self.rows.keys))
            steps += [tuple(part.tolist()) for part in np.array_split(order, self._steps_per_part)]
        return steps

    def _solve(self, graph: Graph, now: Mapping[str, Key], epoch: int, part: int, c: int) -> Key:
        key = self._key(f"solve-{epoch}", part, c)
        graph[key] = Task(
            key, solve_rows, TaskRef(self.rows.keys[c]), TaskRef(now[f"shard-{c}"]),
            TaskRef(now["weights"]), self._slice_of(epoch, part, c),
        )  # fmt: skip
        return key

    def _slice_of(self, epoch: int, part: int, c: int) -> SliceOf:
        seed = (self.seed, epoch, c)
        return SliceOf(
            self.formulation, seed, part, self.parts, self.rows.tau, self.rho, self.lanes,
            visits_between_moves(self.rows.n, self.lanes),
        )  # fmt: skip

    def _pick(self, graph: Graph, epoch: int, part: int, c: int, solved: Key) -> TaskRef:
        """The change of W alone: alpha need not travel with it."""
        key = self._key(f"change-{epoch}", part, c)
        graph[key] = Task(key, pick_slice, TaskRef(solved), 1)
        return TaskRef(key)

    def _weights(self, graph: Graph, state: State, stage: str) -> Key:
        """W made anew from alpha; what else the weights hold stays. ``stage`` names the tasks."""
        key = self._key(stage.format("weights"))
        columns = List(*map(TaskRef, self._columns(graph, state, stage.format("columns"))))
        graph[key] = Task(key, join_columns, TaskRef(state["weights"]), columns)
        return key

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

    def _report(self, graph: Graph, name: str, task: Any, weights: Key, *more: int) -> Key:
        key = self._key(name)
        graph[key] = Task(key, task, TaskRef(weights), *more)
        return key

    def _key(self, name: str, *place: Any) -> Key:
        return (f"{SHORT[self.formulation]}-{name}", self.run, *place)
