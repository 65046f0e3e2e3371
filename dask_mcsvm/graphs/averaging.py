"""Lee-Lin-Wahba by class groups and a barrier (Alber et al., Algorithms 1 and 2).

With w_bar held fixed the classes are independent, and a group visits some rows as in one-vs-rest.
Then w_bar becomes the mean of all u_m = Σ_i alpha_im x_i: the columns of W are centred. That needs
every group, and is a tree of sums with bounded fan-in; nobody holds more than a few vectors.

    llw-visit  0 ─ llw-sum  0 ─┐                                  ┌─ llw-visit  0
    llw-visit  1 ─ llw-sum  1 ─┼─ (a tree) ─ llw-average-e3-r7 ───┼─ llw-visit  1
    llw-visit  2 ─ llw-sum  2 ─┘                                  └─ llw-visit  2

Both halves raise one function, jointly concave in alpha and w_bar. Its maximum over w_bar is the
dual, where every epoch begins and ends: the dual never falls [AVG].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from dask.task_spec import List, Task, TaskRef

from dask_mcsvm.data.rows import Graph, Key
from dask_mcsvm.solvers.groups.blocks import GroupWeights

from .group_tasks import Average, Visit
from .independent_groups import ClipSolver
from .state import Stage, State

#: Sums that one task of the tree adds.
FAN_IN = 8
#: Within an epoch w_bar goes so many times as far as the mean of the u_m; at its end just there.
BEYOND = 1.9


@dataclass(frozen=True)
class Averaging(ClipSolver):
    """Lee-Lin-Wahba by class groups and averages of W: a `Solver`.

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
        Told apart by it are the tasks of fits that run at the same time.
    passes : int
        How often a visit goes over its rows, after the first time only over those that moved.
    patience : int
        A variable that stayed where it was in so many visits rests; 255 visits everything.
    recall : int
        Every so many epochs everything is visited.
    slices : int
        So often in an epoch W is centred.
    """

    passes: int = 1
    patience: int = 3
    recall: int = 10
    slices: int = 20

    formulation: ClassVar[str] = "lee_lin_wahba"

    def start(self) -> Stage:
        """alpha = C, which is where most of it stays, and the W that belongs to it."""
        graph: Graph = {}
        state = self._start_weights(graph) | self._start_duals(graph)
        weights, report = self._refresh(graph, state, "llw-start")
        return Stage(graph, state | weights, report)

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
                    key = (f"llw-visit-{epoch}", self.run, s, g, t)
                    self._add_step(graph, key, left, visit, *before)
                    before = []
            beyond = BEYOND if s + 1 < len(slices) else 1.0
            barrier = [self._average(graph, left, beyond, f"llw-average-e{epoch}-r{s}")]
        for g in groups:
            key = (f"llw-centred-{epoch}", self.run, g)
            graph[key] = Task(key, centre, TaskRef(left[f"weights-{g}"]), *barrier, counts=g == 0)
            left[f"weights-{g}"] = key
        return Stage(graph, left, self._add_report(graph, left, f"llw-report-{epoch}"))

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
        average = self._average(graph, state, 1.0, f"llw-even-average-{epoch}")
        judged: list[tuple[npt.NDArray[np.intp], Key]] = []
        for classes, name in self.weights(state):
            key: Key = (f"llw-even-{epoch}", self.run, name)
            graph[key] = Task(key, even, TaskRef(state[name]), average)
            judged.append((classes, key))
        return judged

    def _centre(self, graph: Graph, weights: State, name: str) -> list[TaskRef]:
        """W(alpha) is centred too."""
        return [self._average(graph, weights, 1.0, f"{name}-average")]


# -- tasks -----------------------------------------------------------------------------------------


def sum_columns(weights: GroupWeights) -> npt.NDArray[np.float64]:
    """Σ_m w_m over the classes of a group, float64 (d + 1,)."""
    total: npt.NDArray[np.float64] = weights.W.sum(axis=1, dtype=np.float64)
    return total


def add_vectors(vectors: Sequence[npt.NDArray[np.float64]]) -> npt.NDArray[np.float64]:
    """The sum, in the order given."""
    total = vectors[0].copy()
    for vector in vectors[1:]:
        total += vector
    return total


def average(vectors: Sequence[npt.NDArray[np.float64]], k: int, beyond: float) -> Average:
    """How far k columns are to move, and how much that raises what is maximized [AVG]."""
    mean = add_vectors(vectors) / k
    rise = 0.5 * k * (1 - (1 - beyond) ** 2) * float(mean @ mean)
    return Average(beyond * mean, rise)


def even(weights: GroupWeights, average: Average) -> GroupWeights:
    """Columns without their mean in float64."""
    return GroupWeights(weights.W.astype(np.float64) - average.move[:, None], weights.tally)


def centre(weights: GroupWeights, average: Average, *, counts: bool) -> GroupWeights:
    """Columns without their mean; the rise of the dual is counted by one group."""
    W = weights.W - average.move.astype(weights.W.dtype)[:, None]
    return GroupWeights(W, weights.tally.plus((average.rise * counts, 0.0, 0)))
