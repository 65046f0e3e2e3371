"""What one-vs-rest and Lee-Lin-Wahba share: a group of classes visits all rows, chunk by chunk.

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
from dask_mcsvm.formulations import FORMULATIONS, Tally
from dask_mcsvm.solvers.groups.blocks import Classes, GroupWeights, Side, placed
from dask_mcsvm.solvers.groups.independent import (
    EVERYTHING,
    add_clip_weights,
    clip_visit,
    settle_zero_rows,
)
from dask_mcsvm.solvers.groups.schedule import Groups
from dask_mcsvm.solvers.kernels.rows import read_only
from dask_mcsvm.solvers.kernels.steps import LOSSES
from dask_mcsvm.solvers.row_block import RowBlock

from .certify import primal
from .group_tasks import (
    Average,
    Visit,
    finish_weights,
    pick,
    scratch_for,
    start_weights,
    sum_tallies,
    tally_bounds,
    zero_weights,
)
from .state import Block, Stage, State


@dataclass(frozen=True)
class ClipSolver:
    """The part of a `Solver` that both have.

    State is ``weights-g``, the columns of group g (`GroupWeights`), and ``duals-g-c``, alpha of the
    rows of chunk c for the classes of group g (`Side`).
    """

    rows: Rows
    groups: Groups
    seed: tuple[int, ...]
    run: str
    passes: int
    patience: int
    recall: int

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
        weights, dual = self._refresh(graph, state, f"{self.short}-refresh-{epoch}")
        left = dict(state) | weights
        looks, value = primal(
            self.rows.keys, self._judged(graph, left, epoch), formulation=self.formulation,
            tau=self.rows.tau, name=self.short, epoch=epoch, run=self.run,
        )  # fmt: skip
        report = (f"{self.short}-bounds-{epoch}", self.run)
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


# -- tasks -----------------------------------------------------------------------------------------


def start_side(rows: RowBlock, *, formulation: str, classes: Classes, tau: float) -> Side:
    """Variables of a chunk's rows for the classes of a group."""
    data, form = placed(rows, classes).data(tau), FORMULATIONS[formulation]
    shape = (data.y.size, classes.size)
    alpha = np.zeros(shape, data.C.dtype)
    if form.starts_at_bound:
        alpha[:] = data.C[:, None]
        mine = np.flatnonzero(data.y >= 0)
        alpha[mine, data.y[mine]] = 0
    settle_zero_rows(data, alpha, own=form.has_own_variable)
    return Side(alpha, np.zeros(shape, np.uint8))


def clip_step(
    weights: GroupWeights,
    duals: Side,
    rows: RowBlock,
    average: Average | None = None,
    *,
    visit: Visit,
    formulation: str,
    classes: Classes,
    tau: float,
) -> tuple[GroupWeights, Side]:
    """Visit the rows of a chunk; where w_bar was averaged before, move by it first [AVG]."""
    W, side = weights.W.copy(), duals.copy()
    tally = Tally() if visit.first else weights.tally
    if average is not None:
        W -= average.move.astype(W.dtype)[:, None]
        tally = tally.plus((average.rise * (visit.groups[0] == 0), 0.0, 0))
    data = placed(rows, classes).data(tau)
    loss = LOSSES[formulation](classes.size)
    done = clip_visit(
        loss, data, visit.order(data.y.size), W, side.alpha, side.rest, visit.patience,
        scratch_for(W),
    )  # fmt: skip
    return GroupWeights(W, tally.plus(done)), side


def add_chunk(
    weights: GroupWeights,
    duals: Side,
    rows: RowBlock,
    *,
    formulation: str,
    classes: Classes,
    tau: float,
) -> GroupWeights:
    """Add what the rows of a chunk put into the columns of a group; the tally gains Σ alpha."""
    W = weights.W.copy()
    data = placed(rows, classes).data(tau)
    loss = LOSSES[formulation](classes.size)
    linear = add_clip_weights(loss, data, read_only(rows.C), duals.alpha, W, scratch_for(W))
    return GroupWeights(W, weights.tally.plus((linear, 0.0, 0)))
