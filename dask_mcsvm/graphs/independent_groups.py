"""One-vs-rest and Lee-Lin-Wahba by class groups: a group visits all rows, chunk by chunk.

Given w_bar the classes of Lee-Lin-Wahba are as independent as those of one-vs-rest. So a group
needs its own columns of W and its own variables, and goes through the chunks one after the other,
while other groups do the same elsewhere.

    rows        c ──────────────────┐
    weights     g (chunk before) ───┼─ visit  g, c ─┬─ weights  g
    duals       g, c (epoch before) ┘               └─ duals    g, c
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from dask.task_spec import List, Task, TaskRef

from dask_mcsvm.data.rows import Graph, Key, Rows
from dask_mcsvm.formulations import FORMULATIONS
from dask_mcsvm.solvers.groups.blocks import GroupWeights, Side
from dask_mcsvm.solvers.groups.clips import (
    Visit,
    add_chunk,
    add_vectors,
    average,
    centre,
    clip_step,
    even,
    finish_weights,
    start_gain,
    start_side,
    start_weights,
    sum_columns,
    sum_tallies,
    tally_bounds,
    zero_weights,
)
from dask_mcsvm.solvers.groups.independent import EVERYTHING
from dask_mcsvm.solvers.groups.schedule import Groups

from .certify import primal
from .state import Block, Stage, State, pick

#: Sums that one task of the tree adds.
FAN_IN = 8
#: Within an epoch w_bar goes so many times as far as the mean of the u_m; at its end just there.
BEYOND = 1.9


@dataclass(frozen=True)
class ClipSolver:
    """The part of a `Solver` that both have.

    State is ``weights-g``, the columns of group g (`GroupWeights`), and ``duals-g-c``, alpha of the
    rows of chunk c for the classes of group g (`Side`).

    Parameters
    ----------
    rows : Rows
        The training set.
    groups : tuple of tuples of int
        Classes of each group (see `schedule.balanced_groups`).
    seed : tuple of int
        The order of chunks and rows depends on it, on the epoch and on the group.
    run : str
        Unique id of this fit, part of every task key.
    passes : int
        How often a visit goes over its rows, after the first time only over those that moved.
    patience : int
        A variable that stayed where it was in so many visits rests; 255 visits everything.
    recall : int
        Every so many epochs everything is visited.
    """

    rows: Rows
    groups: Groups
    seed: tuple[int, ...]
    run: str
    passes: int = 1
    patience: int = 3
    recall: int = 10

    formulation: ClassVar[str]
    kinds: ClassVar[Mapping[str, type[Block]]] = {"weights": GroupWeights, "duals": Side}

    @property
    def short(self) -> str:
        """What the names of tasks begin with."""
        return FORMULATIONS[self.formulation].short_name

    @property
    def data(self) -> Graph:
        """Graph of all that the stages read besides the state."""
        return self.rows.graph

    @property
    def held(self) -> tuple[Key, ...]:
        """What of it is worth keeping in memory."""
        return self.rows.keys

    def weights(self, state: State) -> list[tuple[npt.NDArray[np.intp], str]]:
        """Classes of each group and the name of its block."""
        return [(self._classes(g), f"weights-{g}") for g in range(len(self.groups))]

    def certify(self, state: State, epoch: int) -> Stage:
        """W made anew from alpha in float64; primal and dual of it."""
        graph: Graph = {}
        weights, dual = self._refresh(graph, state, f"{self.short}-refresh-e{epoch}")
        left = dict(state) | weights
        looks, value = primal(
            self.rows.keys, self._judged(graph, left, epoch), formulation=self.formulation,
            tau=self.rows.tau, name=self.short, epoch=epoch, run=self.run,
        )  # fmt: skip
        report = (f"{self.short}-bounds-e{epoch}", self.run)
        graph[report] = Task(report, tally_bounds, TaskRef(dual), TaskRef(value))
        return Stage(graph | looks, left, report)

    # -- parts of a graph --------------------------------------------------------------------------

    def _judged(
        self, graph: Graph, state: State, epoch: int
    ) -> list[tuple[npt.NDArray[np.intp], Key]]:
        """Classes and keys of the weights whose primal is the certificate's."""
        return [(classes, state[name]) for classes, name in self.weights(state)]

    def _classes(self, g: int) -> npt.NDArray[np.intp]:
        return np.array(self.groups[g], np.intp)

    def _common(self, g: int) -> dict[str, Any]:
        """What all tasks of a group are told."""
        return {
            "formulation": self.formulation,
            "classes": self._classes(g),
            "tau": self.rows.tau,
        }

    def _patience(self, epoch: int) -> int:
        """Now and then nothing rests."""
        return EVERYTHING if epoch % self.recall == self.recall - 1 else self.patience

    def _start_duals(self, graph: Graph) -> dict[str, Key]:
        """All variables at zero or at C, but for rows without features [BOX-Z]."""
        state: dict[str, Key] = {}
        for g in range(len(self.groups)):
            for c, rows in enumerate(self.rows.keys):
                key = state[f"duals-{g}-{c}"] = (f"{self.short}-start-duals", self.run, g, c)
                graph[key] = Task(key, start_side, TaskRef(rows), **self._common(g))
        return state

    def _start_weights(self, graph: Graph) -> dict[str, Key]:
        """W = 0 in the dtype of the rows."""
        state: dict[str, Key] = {}
        for g, group in enumerate(self.groups):
            key = state[f"weights-{g}"] = (f"{self.short}-start-weights", self.run, g)
            shape = self.rows.n_features + 1, len(group)
            graph[key] = Task(key, start_weights, *shape, self.rows.dtype)
        return state

    def _places(self, state: State) -> dict[Key, int]:
        """Each group begins on a worker of its own; else all would begin where the rows are."""
        return {key: int(name.split("-")[1]) for name, key in state.items()}

    def _add_step(
        self, graph: Graph, key: Key, state: dict[str, Key], visit: Visit, *extra: TaskRef
    ) -> None:
        """Add the visit of a chunk by a group, as `key` and `visit` name them; `state` moves on."""
        (g,), c = visit.groups, visit.step
        weights, duals = f"weights-{g}", f"duals-{g}-{c}"
        graph[key] = Task(
            key, clip_step, TaskRef(state[weights]), TaskRef(state[duals]),
            TaskRef(self.rows.keys[c]), *extra, visit=visit, **self._common(g),
        )  # fmt: skip
        name, *rest = key
        state[weights] = pick(graph, (name.replace("visit", "weights"), *rest), key, 0)
        state[duals] = pick(graph, (name.replace("visit", "duals"), *rest), key, 1)

    def _refresh(self, graph: Graph, state: State, name: str) -> tuple[dict[str, Key], Key]:
        """Make W from alpha in float64; the keys of the new weights and of the dual."""
        made: dict[str, Key] = {}
        key: Key
        for g in range(len(self.groups)):
            held: Key = (f"{name}-start", self.run, g)
            graph[held] = Task(held, zero_weights, TaskRef(state[f"weights-{g}"]))
            for c, rows in enumerate(self.rows.keys):
                key = (name, self.run, g, c)
                graph[key] = Task(
                    key, add_chunk, TaskRef(held), TaskRef(state[f"duals-{g}-{c}"]),
                    TaskRef(rows), **self._common(g),
                )  # fmt: skip
                held = key
            made[f"weights-{g}"] = held
        centre = self._centre(graph, made, name)
        for g in range(len(self.groups)):
            weights, key = f"weights-{g}", (f"{name}-done", self.run, g)
            graph[key] = Task(
                key, finish_weights, TaskRef(made[weights]), TaskRef(state[weights]), *centre
            )
            made[weights] = key
        return made, self._add_report(graph, made, f"{name}-dual")

    def _centre(self, graph: Graph, weights: State, name: str) -> list[TaskRef]:
        """What finished weights have to be moved by; nothing, unless a formulation says so."""
        return []

    def _add_report(self, graph: Graph, state: State, name: str) -> Key:
        """Sum the tallies of the groups, in their order; the weights stay where they are."""
        tallies = [
            pick(graph, (f"{name}-part", self.run, g), state[f"weights-{g}"], 1)
            for g in range(len(self.groups))
        ]
        report = (name, self.run)
        graph[report] = Task(report, sum_tallies, List(*map(TaskRef, tallies)))
        return report


@dataclass(frozen=True)
class Classes(ClipSolver):
    """One-vs-rest by class groups: a `Solver`.

    There is no barrier and no round. An epoch is one chain of visits per group, over all chunks in
    random order.
    """

    formulation: ClassVar[str] = "one_vs_rest"

    def start(self) -> Stage:
        """W = 0 and alpha = 0, but for rows without features, whose optimum is known [BOX-Z]."""
        graph: Graph = {}
        duals = self._start_duals(graph)
        report = ("ovr-start-report", self.run)
        graph[report] = Task(report, start_gain, List(*map(TaskRef, duals.values())))
        state = duals | self._start_weights(graph)
        return Stage(graph, state, report, self._places(state), rows_everywhere=True)

    def epoch(self, state: State, epoch: int) -> Stage:
        """Every group visits every chunk."""
        graph: Graph = {}
        left = dict(state)
        for g in range(len(self.groups)):
            rng = np.random.default_rng([*self.seed, epoch, g])
            for t, c in enumerate(rng.permutation(len(self.rows.keys)).tolist()):
                visit = Visit(
                    self.seed, epoch, (g,), c, 0, 1, self.passes, self._patience(epoch), t == 0
                )
                self._add_step(graph, (f"ovr-visit-e{epoch}-r{t}", self.run, g), left, visit)
        return Stage(graph, left, self._add_report(graph, left, f"ovr-report-e{epoch}"))


@dataclass(frozen=True)
class Averaging(ClipSolver):
    """Lee-Lin-Wahba by class groups and a barrier (Alber et al., Algorithms 1 and 2): a `Solver`.

    With w_bar held fixed the classes are independent, and a group visits some rows as in
    one-vs-rest. Then w_bar becomes the mean of all u_m = Σ_i alpha_im x_i: the columns of W are
    centred. That needs every group, and is a tree of sums with bounded fan-in; no task holds more
    than a few vectors.

        llw-visit  0 ─ llw-sum  0 ─┐                                  ┌─ llw-visit  0
        llw-visit  1 ─ llw-sum  1 ─┼─ (a tree) ─ llw-average-e3-r7 ───┼─ llw-visit  1
        llw-visit  2 ─ llw-sum  2 ─┘                                  └─ llw-visit  2

    Both halves raise one function, jointly concave in alpha and w_bar. Its maximum over w_bar is
    the dual, where every epoch begins and ends: the dual never falls [AVG].

    Parameters
    ----------
    slices : int
        So often in an epoch W is centred.
    """

    slices: int = 20

    formulation: ClassVar[str] = "lee_lin_wahba"

    def start(self) -> Stage:
        """alpha = C, which is where most of it stays, and the W that belongs to it."""
        graph: Graph = {}
        state = self._start_weights(graph) | self._start_duals(graph)
        weights, report = self._refresh(graph, state, "llw-start")
        places = self._places(state)
        return Stage(graph, state | weights, report, places, rows_everywhere=True)

    def epoch(self, state: State, epoch: int) -> Stage:
        """Every group visits every row, slice by slice, with a barrier after each slice."""
        graph: Graph = {}
        left = dict(state)
        groups = range(len(self.groups))
        barrier: list[TaskRef] = []
        key: Key
        slices = self._visits(epoch)
        for s, visits in enumerate(slices):
            for g in groups:
                before = barrier
                for t, (c, part, parts) in enumerate(visits):
                    visit = Visit(
                        self.seed, epoch, (g,), c, part, parts, self.passes,
                        self._patience(epoch), s == t == 0,
                    )  # fmt: skip
                    key = (f"llw-visit-e{epoch}-r{s}", self.run, g, t)
                    self._add_step(graph, key, left, visit, *before)
                    before = []
            beyond = BEYOND if s + 1 < len(slices) else 1.0
            barrier = [self._average(graph, left, beyond, f"llw-average-e{epoch}-r{s}")]
        for g in groups:
            key = (f"llw-centred-e{epoch}", self.run, g)
            graph[key] = Task(key, centre, TaskRef(left[f"weights-{g}"]), *barrier, counts=g == 0)
            left[f"weights-{g}"] = key
        return Stage(graph, left, self._add_report(graph, left, f"llw-report-e{epoch}"))

    # -- parts of a graph --------------------------------------------------------------------------

    def _visits(self, epoch: int) -> list[list[tuple[int, int, int]]]:
        """Chunk, part and number of parts of each visit of each slice, the same for all groups.

        Where there are fewer chunks than slices a chunk is cut into several parts.
        """
        chunks = len(self.rows.keys)
        parts = -(-self.slices // chunks)
        visits = [(c, part, parts) for c in range(chunks) for part in range(parts)]
        order = np.random.default_rng([*self.seed, epoch]).permutation(len(visits))
        slices = np.array_split(order, min(self.slices, len(visits)))
        return [[visits[v] for v in piece] for piece in slices]

    def _average(self, graph: Graph, weights: State, beyond: float, name: str) -> TaskRef:
        """The barrier: a tree of sums over the groups; its root is an `Average`."""
        keys: list[Key] = []
        for g in range(len(self.groups)):
            keys.append((name.replace("average", "sum"), self.run, g))
            graph[keys[-1]] = Task(keys[-1], sum_columns, TaskRef(weights[f"weights-{g}"]))
        level = 0
        while len(keys) > FAN_IN:
            pieces = [keys[p : p + FAN_IN] for p in range(0, len(keys), FAN_IN)]
            keys = [(name, self.run, level, p) for p in range(len(pieces))]
            for key, piece in zip(keys, pieces, strict=True):
                graph[key] = Task(key, add_vectors, List(*map(TaskRef, piece)))
            level += 1
        root: Key = (name, self.run)
        graph[root] = Task(root, average, List(*map(TaskRef, keys)), self.rows.n_classes, beyond)
        return TaskRef(root)

    def _judged(
        self, graph: Graph, state: State, epoch: int
    ) -> list[tuple[npt.NDArray[np.intp], Key]]:
        """Columns that sum to zero in float64, as the primal demands; as float32 they need not."""
        average = self._average(graph, state, 1.0, f"llw-even-average-e{epoch}")
        judged: list[tuple[npt.NDArray[np.intp], Key]] = []
        for classes, name in self.weights(state):
            key: Key = (f"llw-even-e{epoch}", self.run, name)
            graph[key] = Task(key, even, TaskRef(state[name]), average)
            judged.append((classes, key))
        return judged

    def _centre(self, graph: Graph, weights: State, name: str) -> list[TaskRef]:
        """W(alpha) is centred too."""
        return [self._average(graph, weights, 1.0, f"{name}-average")]
