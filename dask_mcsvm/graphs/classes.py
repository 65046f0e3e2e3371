"""One-vs-rest by class groups: groups that know nothing of each other.

There is no barrier and no round. An epoch is one chain of visits per group, over all chunks in
random order (see `independent_groups`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from dask.task_spec import List, Task, TaskRef

from dask_mcsvm.data.rows import Graph

from .group_tasks import Visit, start_gain
from .independent_groups import ClipSolver
from .state import Stage, State


@dataclass(frozen=True)
class Classes(ClipSolver):
    """One-vs-rest by class groups: a `Solver`.

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
    """

    passes: int = 1
    patience: int = 3
    recall: int = 10

    formulation: ClassVar[str] = "one_vs_rest"

    def start(self) -> Stage:
        """W = 0 and alpha = 0, but for rows without features, whose optimum is known [BOX-Z]."""
        graph: Graph = {}
        duals = self._start_duals(graph)
        report = ("ovr-start-report", self.run)
        graph[report] = Task(report, start_gain, List(*map(TaskRef, duals.values())))
        return Stage(graph, duals | self._start_weights(graph), report)

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
                self._add_step(graph, (f"ovr-visit-{epoch}", self.run, g, t), left, visit)
        return Stage(graph, left, self._add_report(graph, left, f"ovr-report-{epoch}"))
