"""Crammer-Singer by rows and class groups: groups name candidates, visits decide, groups follow.

An epoch is a row of steps, each of some rows of one chunk. Every group of classes scores these rows
with its columns of W and names the best few rivals of each; ``cs-decide`` takes the union of what
all groups named, solves the rows one after another, exactly over these classes, and hands back what
changed. It is the barrier of a step: it needs every group, and every group needs it. (Dask's
dashboard would take the word exchange, of eight letters, for a hash and leave it out.)

    rows c, duals c ─ cs-draw ─ cs-rows-e3-b7 ─┬─ cs-rivals-e3-b7  0 ─┐
    weights 0 (step before) ───────────────────┤                      ├─ cs-decide-e3-b7
                                               ├─ cs-rivals-e3-b7  1 ─┘         │
    weights 1 (step before) ───────────────────┘                                │
                                       cs-weights-e3-b7  0, cs-weights-e3-b7  1 ┘

No task reads or returns more of W than the columns of one group: the exchange sees scores of a few
classes for each row, and the inner products of rows that it needs to keep them current. It also
moves the soft intercept, one number a class [SOFT].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from dask.task_spec import List, Task, TaskRef

from dask_mcsvm.data.rows import Graph, Key, Rows
from dask_mcsvm.solvers.groups.blocks import GroupWeights
from dask_mcsvm.solvers.groups.clips import start_weights, sum_tallies, tally_bounds
from dask_mcsvm.solvers.groups.exchange import (
    FORMULATION,
    Common,
    StepSeed,
    add_rows,
    begin_epoch,
    bottom,
    draw_rows,
    exchange,
    find_rivals,
    finish_group,
    follow,
    gap_of,
    hand_over,
    renew_common,
    report_epoch,
    settle_rows,
    start_common,
    start_gain,
    start_rows,
    take_piece,
)
from dask_mcsvm.solvers.groups.schedule import Groups
from dask_mcsvm.solvers.sdm.intercept import visits_between_moves
from dask_mcsvm.solvers.sdm.shard import Shard
from dask_mcsvm.solvers.sdm.shard_tasks import How

from .certify import primal
from .state import Block, Stage, State, pick

#: Rivals that a group names for a row, and how many of all groups' may join what the row holds.
RIVALS, FRESH = 4, 8
#: Rows of a step are made ready so many steps ahead.
AHEAD = 2
#: The first steps of a fit are short: W = 0 names the same rivals for all rows. Their shares of a
#: whole step.
FIRST_STEPS = (1 / 16, 1 / 16, 1 / 8, 1 / 4, 1 / 2)


@dataclass(frozen=True)
class Exchange:
    """Crammer-Singer by class groups: a `Solver`.

    State is ``weights-g``, the columns of group g (`GroupWeights`), ``duals-c``, what the rows of
    chunk c remember (`Shard`), and ``common``, the intercept (`Common`).

    Parameters
    ----------
    rows : Rows
        The training set.
    groups : tuple of tuples of int
        Classes of each group, which follow each other.
    seed : tuple of int
        The order of chunks and rows depends on it and on the epoch.
    run : str
        Unique id of this fit, part of every task key.
    slices : int
        Into so many steps, at least, an epoch is cut.
    passes : int
        How often a step goes over its rows, after the first time only over those that moved.
    rho : float
        Stiffness of the soft intercept.
    """

    rows: Rows
    groups: Groups
    seed: tuple[int, ...]
    run: str
    slices: int = 4
    passes: int = 2
    rho: float = 1.0

    kinds: ClassVar[Mapping[str, type[Block]]] = {
        "weights": GroupWeights, "duals": Shard, "common": Common,
    }  # fmt: skip

    def __post_init__(self) -> None:
        if [m for group in self.groups for m in group] != list(range(self.rows.n_classes)):
            raise ValueError(
                f"groups must hold each of the {self.rows.n_classes} classes once, in order."
            )

    @property
    def data(self) -> Graph:
        """The rows; stages refer to them by key."""
        return self.rows.graph

    @property
    def held(self) -> tuple[Key, ...]:
        """Blocks of rows, which every epoch reads."""
        return self.rows.keys

    def start(self) -> Stage:
        """W = 0 and alpha = 0, but for rows without features, whose optimum is known [CS-Z]."""
        rows, graph = self.rows, dict[Key, Any]()
        common = ("cs-start-common", self.run)
        graph[common] = Task(common, start_common, rows.n_classes)
        state: dict[str, Key] = {"common": common}
        places, duals = {}, []
        for g, group in enumerate(self.groups):
            key = state[weights_name(g)] = ("cs-start-weights", self.run, g)
            graph[key] = Task(key, start_weights, rows.n_features + 1, len(group), rows.dtype)
            places[key] = g
        for c, block in enumerate(rows.keys):
            key = state[f"duals-{c}"] = ("cs-start-duals", self.run, c)
            graph[key] = Task(
                key, start_rows, TaskRef(block), n_classes=rows.n_classes, tau=rows.tau
            )
            gain = ("cs-start-gain", self.run, c)
            graph[gain] = Task(gain, start_gain, TaskRef(block), TaskRef(key))
            duals.append(TaskRef(gain))
        report = ("cs-start-report", self.run)
        graph[report] = Task(report, sum_tallies, List(*duals))
        return Stage(graph, state, report, places)

    def epoch(self, state: State, epoch: int) -> Stage:
        """Every chunk in its parts, as often as its rows deserve; a step is a barrier."""
        graph: Graph = {}
        left = dict(state)
        begun = (f"cs-begin-e{epoch}", self.run)
        graph[begun] = Task(begun, begin_epoch, TaskRef(state["common"]))
        turns = self._turns(epoch)
        drawn = self._draw(graph, state, epoch, turns)
        done: list[list[TaskRef]] = [[] for _ in self.rows.keys]
        left["common"] = begun
        past: list[TaskRef] = []
        for number, (c, _) in enumerate(turns):
            name, part = f"e{epoch}-b{number}", len(done[c])
            piece: Key = (f"cs-rows-{name}", self.run, c)
            graph[piece] = Task(
                piece, take_piece, TaskRef(self.rows.keys[c]), TaskRef(state[f"duals-{c}"]),
                drawn[c], part=part, after=past[-AHEAD] if len(past) >= AHEAD else None,
            )  # fmt: skip
            key = self._add_step(graph, left, piece, name, StepSeed(self.seed, epoch, c, part))
            done[c].append(TaskRef(key))
            past.append(TaskRef(left["common"]))
        gaps = []
        for c, found in enumerate(done):
            name = f"duals-{c}"
            left[name] = (f"cs-settle-e{epoch}", self.run, c)
            graph[left[name]] = Task(
                left[name], settle_rows, TaskRef(state[name]), drawn[c], List(*found)
            )
            gap = (f"cs-gap-e{epoch}", self.run, c)
            graph[gap] = Task(gap, gap_of, TaskRef(left[name]))
            gaps.append(TaskRef(gap))
        report = (f"cs-report-e{epoch}", self.run)
        graph[report] = Task(
            report, report_epoch, TaskRef(left["common"]), List(*gaps), self.rows.n
        )
        return Stage(graph, left, report)

    def certify(self, state: State, epoch: int) -> Stage:
        """W made anew from alpha in float64, group by group; primal and dual of it."""
        graph: Graph = {}
        left = dict(state)
        bottoms = []
        common = left["common"] = (f"cs-renew-e{epoch}", self.run)
        for g in range(len(self.groups)):
            name = weights_name(g)
            held: TaskRef | None = None
            for c, rows in enumerate(self.rows.keys):
                key = (f"cs-refresh-e{epoch}", self.run, g, c)
                graph[key] = Task(
                    key, add_rows, held, TaskRef(state[f"duals-{c}"]), TaskRef(rows),
                    classes=self._classes(g), k=self.rows.n_classes, tau=self.rows.tau,
                )  # fmt: skip
                held = TaskRef(key)
            low = (f"cs-refresh-bottom-e{epoch}", self.run, g)
            graph[low] = Task(low, bottom, held)
            bottoms.append(TaskRef(low))
            done = left[name] = (f"cs-refreshed-e{epoch}", self.run, g)
            graph[done] = Task(
                done, finish_group, held, TaskRef(state[name]), TaskRef(state["common"]),
                classes=self._classes(g), rho=self.rho,
            )  # fmt: skip
        graph[common] = Task(
            common, renew_common, TaskRef(state["common"]), List(*bottoms), rho=self.rho
        )
        shares = [
            pick(graph, (f"cs-dual-e{epoch}-part", self.run, g), left[weights_name(g)], 1)
            for g in range(len(self.groups))
        ]
        dual = (f"cs-dual-e{epoch}", self.run)
        graph[dual] = Task(dual, sum_tallies, List(*map(TaskRef, shares)))
        parts = [(classes, left[name]) for classes, name in self.weights(left)]
        looks, value = primal(
            self.rows.keys, parts, formulation=FORMULATION, tau=self.rows.tau, name="cs",
            epoch=epoch, run=self.run,
        )  # fmt: skip
        report = (f"cs-bounds-e{epoch}", self.run)
        graph[report] = Task(report, tally_bounds, TaskRef(dual), TaskRef(value))
        return Stage(graph | looks, left, report)

    def weights(self, state: State) -> list[tuple[npt.NDArray[np.intp], str]]:
        """Classes of each group and the name of its block."""
        del state
        return [(self._classes(g), weights_name(g)) for g in range(len(self.groups))]

    # -- parts of a graph --------------------------------------------------------------------------

    def _turns(self, epoch: int) -> list[tuple[int, float]]:
        """The chunk of each step in random order, and the step's share of the chunk's visits."""
        chunks = len(self.rows.keys)
        parts = -(-self.slices // chunks)
        rng = np.random.default_rng([*self.seed, epoch])
        order = rng.permutation(np.repeat(np.arange(chunks), parts)).tolist()
        first = [(order[0], share) for share in FIRST_STEPS if epoch == 0]
        return [*first, *((c, 1.0) for c in order)]

    def _draw(
        self, graph: Graph, state: State, epoch: int, turns: Sequence[tuple[int, float]]
    ) -> list[TaskRef]:
        """What each chunk visits, dealt to its steps."""
        drawn = []
        for c, rows in enumerate(self.rows.keys):
            key = (f"cs-draw-e{epoch}", self.run, c)
            shares = np.array([share for chunk, share in turns if chunk == c])
            graph[key] = Task(
                key, draw_rows, TaskRef(rows), TaskRef(state[f"duals-{c}"]),
                seed=(*self.seed, epoch, c), shares=shares,
            )  # fmt: skip
            drawn.append(TaskRef(key))
        return drawn

    def _add_step(
        self, graph: Graph, state: dict[str, Key], piece: Key, name: str, seed: StepSeed
    ) -> Key:
        """All groups, the barrier, and all groups again; `state` moves on."""
        found = []
        before = TaskRef(state["common"])
        for g in range(len(self.groups)):
            key: Key = (f"cs-rivals-{name}", self.run, g)
            graph[key] = Task(
                key, find_rivals, TaskRef(state[weights_name(g)]), TaskRef(piece), before,
                classes=self._classes(g), tau=self.rows.tau, rivals=RIVALS,
            )  # fmt: skip
            found.append(TaskRef(key))
        done = (f"cs-decide-{name}", self.run)
        n = self.rows.n
        how = How(FORMULATION, self.rows.tau, self.rho, 1, visits_between_moves(n))
        graph[done] = Task(
            done, exchange, TaskRef(piece), List(*found), before,
            groups=[self._classes(g) for g in range(len(self.groups))], how=how, seed=seed,
            passes=self.passes, fresh=FRESH, span=n,
        )  # fmt: skip
        state["common"] = (f"cs-common-{name}", self.run)
        graph[state["common"]] = Task(state["common"], hand_over, TaskRef(done))
        for g in range(len(self.groups)):
            key = (f"cs-weights-{name}", self.run, g)
            graph[key] = Task(
                key, follow, TaskRef(state[weights_name(g)]), TaskRef(piece), TaskRef(done),
                classes=self._classes(g), tau=self.rows.tau,
            )  # fmt: skip
            state[weights_name(g)] = key
        return done

    def _classes(self, g: int) -> npt.NDArray[np.intp]:
        return np.array(self.groups[g], np.intp)


def weights_name(g: int) -> str:
    """Name of the block of state that holds the columns of a group."""
    return f"weights-{g}"
