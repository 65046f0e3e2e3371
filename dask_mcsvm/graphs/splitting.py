"""Score splitting by chunks of rows: Newton's method whose path no partition changes.

An epoch is a row of passes over all rows ([SPLIT] of docs/math.md). In a pass every block of rows
answers the pilot's question, a tree adds up the answers if they are many, and the pilot decides
what to ask next (`_pilot`): its direction, its step and its penalty follow from sums over all rows.

    rows 0 ─┐                                              ┌─ cs-visit (block 0)
    block 0 ┼─ cs-visit ─ cs-answer ─┐                     │
    ask ────┤                        ├─ cs-steer ─ cs-ask ─┤        (next pass)
    block 1 ┼─ cs-visit ─ cs-answer ─┘                     │
    rows 1 ─┘                                              └─ cs-visit (block 1)

Multipliers stay with their rows; what travels is one (k, d + 1) array each way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from dask.task_spec import List, Task, TaskRef

from dask_mcsvm.formulations import SHORT_NAMES

from ._pilot import Course, Pilot
from ._split_tasks import (
    Visited,
    add_answers,
    answer_of,
    ask,
    bundle_rows,
    close_certificate,
    examine_rows,
    multipliers_of,
    report_bounds,
    report_tally,
    start_pilot,
    start_rows,
    steer,
    take_shards,
    visit,
    warm_pilot,
)
from .rows import Rows
from .state import Block, Graph, Key, Stage, State

#: "crammer_singer" -> "cs", for the names of tasks.
SHORT = {name: short for short, name in SHORT_NAMES.items()}
#: Answers that one task of the tree adds.
FAN_IN = 32


@dataclass(frozen=True)
class ChunkedSplitting:
    """Builds the graphs of a fit by splitting; satisfies `Solver` for all four formulations.

    State is ``pilot`` (`Pilot`) and ``rows-p``, the multipliers of block p (`Visited`).

    Attributes
    ----------
    rows : Rows
    formulation : str
    blocks : int
        Chunks next to each other make up so many blocks, each a task of a pass.
    passes : int
        Passes over the rows in the graph of an epoch.
    square : float
        Mean of ‖x_i‖² + tau²; longer rows have a smaller penalty.
    run : str
        Told apart by it are the tasks of fits that run at the same time.
    """

    rows: Rows
    formulation: str
    blocks: int
    passes: int
    square: float
    run: str

    kinds: ClassVar[Mapping[str, type[Block]]] = {"pilot": Pilot, "rows": Visited}

    @property
    def data(self) -> Graph:
        """The rows, bundled to blocks; stages refer to them by key."""
        graph = dict(self.rows.graph)
        pieces = np.array_split(np.arange(len(self.rows.keys)), len(self.held))
        for key, piece in zip(self.held, pieces, strict=True):
            chunks = List(*(TaskRef(self.rows.keys[c]) for c in piece))
            graph[key] = Task(key, bundle_rows, chunks)
        return graph

    @cached_property
    def held(self) -> tuple[Key, ...]:
        """Blocks of rows, which every pass reads."""
        count = max(1, min(self.blocks, len(self.rows.keys)))
        return tuple(("bundle-rows", self.run, p) for p in range(count))

    @property
    def course(self) -> Course:
        """What does not change in a fit."""
        rows = self.rows
        return Course(
            self.formulation, rows.n, rows.n_classes, rows.n_features + 1, rows.tau, self.square
        )

    def start(self) -> Stage:
        """No multipliers, and W = 0."""
        graph: Graph = {}
        state = {"pilot": self._key("start-pilot")}
        graph[state["pilot"]] = Task(state["pilot"], start_pilot, self.course, self.rows.dtype)
        for p, block in enumerate(self.held):
            key = state[f"rows-{p}"] = self._key("start", p)
            graph[key] = Task(key, start_rows, TaskRef(block), self.course)
        return Stage(graph, state, self._report(graph, state, "start-report"))

    def start_from(self, shards: Sequence[Key]) -> Stage:
        """The dual variables of shards, in the order of the rows, and their W.

        There are as many shards as blocks, or as chunks.
        """
        graph: Graph = {}
        state, looks = {"pilot": self._key("warm-pilot")}, []
        pieces = np.array_split(np.arange(len(shards)), len(self.held))
        for p, (block, piece) in enumerate(zip(self.held, pieces, strict=True)):
            taken, look = self._key("take", p), self._key("take-look", p)
            alphas = List(*(TaskRef(shards[c]) for c in piece.tolist()))
            graph[taken] = Task(taken, take_shards, TaskRef(block), alphas, self.course)
            graph[look] = Task(look, answer_of, TaskRef(taken))
            looks.append(look)
            key = state[f"rows-{p}"] = self._key("taken", p)
            graph[key] = Task(key, multipliers_of, TaskRef(taken))
        few = List(*map(TaskRef, self._fewer(graph, looks, "take-sum")))
        cold = self._key("start-pilot")
        graph[cold] = Task(cold, start_pilot, self.course, self.rows.dtype)
        graph[state["pilot"]] = Task(
            state["pilot"], warm_pilot, TaskRef(cold), few, self.course
        )
        return Stage(graph, state, self._report(graph, state, "start-report"))

    def epoch(self, state: State, epoch: int) -> Stage:
        """Some passes over all rows; what each finds out, the pilot decides on the way."""
        graph: Graph = {}
        now = dict(state)
        for turn in range(self.passes):
            self._pass(graph, now, epoch, turn)
        for p in range(len(self.held)):
            key = self._key(f"left-{epoch}", p)
            graph[key] = Task(key, multipliers_of, TaskRef(now[f"rows-{p}"]))
            now[f"rows-{p}"] = key
        return Stage(graph, now, self._report(graph, now, f"report-{epoch}"))

    def certify(self, state: State, epoch: int) -> Stage:
        """Loss at the best W and dual of the better multipliers, in float64."""
        graph: Graph = {}
        now, seen = {}, []
        for p, block in enumerate(self.held):
            before = TaskRef(state[f"rows-{p}"])
            looked, kept = self._key(f"certify-rows-{epoch}", p), self._key(f"kept-{epoch}", p)
            graph[looked] = Task(
                looked, examine_rows, TaskRef(block), before, TaskRef(state["pilot"]),
                self.course,
            )  # fmt: skip
            graph[kept] = Task(kept, multipliers_of, before)
            now[f"rows-{p}"] = kept
            seen.append(looked)
        few = self._fewer(graph, seen, f"certify-sum-{epoch}")
        now["pilot"] = self._key(f"certify-{epoch}")
        graph[now["pilot"]] = Task(
            now["pilot"], close_certificate, TaskRef(state["pilot"]), List(*map(TaskRef, few)),
            self.course,
        )  # fmt: skip
        report = self._key(f"certify-report-{epoch}")
        graph[report] = Task(report, report_bounds, TaskRef(now["pilot"]))
        return Stage(graph, now, report)

    def weights(self, state: State) -> list[tuple[npt.NDArray[np.intp], str]]:
        """All classes are in one block."""
        del state
        return [(np.arange(self.rows.n_classes), "pilot")]

    # -- pieces ------------------------------------------------------------------------------------

    def _pass(self, graph: Graph, now: dict[str, Key], epoch: int, turn: int) -> None:
        """One question, and the answer of every block."""
        asked = self._key(f"ask-{epoch}", turn)
        graph[asked] = Task(asked, ask, TaskRef(now["pilot"]), self.course)
        answers = []
        for p, block in enumerate(self.held):
            seen = self._key(f"visit-{epoch}", turn, p)
            graph[seen] = Task(
                seen, visit, TaskRef(block), TaskRef(now[f"rows-{p}"]), TaskRef(asked),
                self.course,
            )  # fmt: skip
            answers.append(self._key(f"answer-{epoch}", turn, p))
            graph[answers[-1]] = Task(answers[-1], answer_of, TaskRef(seen))
            now[f"rows-{p}"] = seen
        few = self._fewer(graph, answers, f"sum-{epoch}", turn)
        key = self._key(f"steer-{epoch}", turn)
        graph[key] = Task(
            key, steer, TaskRef(now["pilot"]), List(*map(TaskRef, few)), self.course,
            first=turn == 0,
        )  # fmt: skip
        now["pilot"] = key

    def _fewer(self, graph: Graph, keys: list[Key], name: str, *place: int) -> list[Key]:
        """At most `FAN_IN` sums, by a tree and in the order of the blocks.

        Who asked adds those up: each task between a pass and the next is a round trip.
        """
        level = 0
        while len(keys) > FAN_IN:
            pieces = [keys[p : p + FAN_IN] for p in range(0, len(keys), FAN_IN)]
            keys = [self._key(name, *place, level, p) for p in range(len(pieces))]
            for key, piece in zip(keys, pieces, strict=True):
                graph[key] = Task(key, add_answers, List(*map(TaskRef, piece)))
            level += 1
        return keys

    def _report(self, graph: Graph, now: State, name: str) -> Key:
        key = self._key(name)
        graph[key] = Task(key, report_tally, TaskRef(now["pilot"]), self.rows.n)
        return key

    def _key(self, name: str, *place: Any) -> Key:
        return (f"{SHORT[self.formulation]}-{name}", self.run, *place)
