"""A cluster that is not there: a fit on Dask in one process, its graphs replayed on many workers.

The fit is the real one, with its real lanes or class groups, so that epochs, work and bytes are
those of a cluster. Each task is timed alone, on one core. Then every graph is replayed: tasks begin
when their inputs are there, on the worker where they end first, and what a worker does not have it
fetches at the given bandwidth. The scheduler handles one task after another.
"""

from __future__ import annotations

import heapq
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .measure import Watch  # isort: skip, before numba

import dask
from dask.callbacks import Callback
from dask.order import order
from dask.sizeof import sizeof

from .case import Case
from .data import Places, lazy
from .methods import estimator, facts, quiet, traffic

#: What the scheduler takes for a task, and what a graph costs besides (Dask on one machine).
TASK_SECONDS, GRAPH_SECONDS = 0.0015, 0.03
#: From asking a worker for data to their first byte.
FETCH_SECONDS = 0.001


@dataclass
class Done:
    """A task that ran, or a value that an earlier graph left."""

    seconds: float
    size: int
    inputs: tuple[Any, ...]
    rank: int  # in which order Dask would begin it


Graph = dict[Any, Done]


class Recorder(Callback):
    """Seconds, bytes and inputs of every task of every graph, on the synchronous scheduler."""

    def __init__(self) -> None:
        super().__init__(pretask=self.begin, posttask=self.end, start=self.open)
        self.graphs: list[Graph] = []
        self.began = 0.0
        self.ranks: Mapping[Any, int] = {}

    def open(self, dsk: Mapping[Any, Any]) -> None:
        self.graphs.append({})
        self.ranks = order(dict(dsk))

    def begin(self, key: Any, dsk: Any, state: Any) -> None:
        self.began = time.thread_time()

    def end(self, key: Any, result: Any, dsk: Mapping[Any, Any], state: Any, worker: Any) -> None:
        spent = time.thread_time() - self.began
        inputs = tuple(state["dependencies"].get(key, ()))
        self.graphs[-1][key] = Done(spent, sizeof(result), inputs, self.ranks.get(key, 0))


@dataclass
class Cluster:
    """Workers of one thread each; ``homes`` tells which of them have a value."""

    workers: int
    bandwidth: float  # bytes a second that a worker receives
    homes: dict[Any, set[int]] = field(default_factory=dict)
    sizes: dict[Any, int] = field(default_factory=dict)
    sent: float = 0.0

    def replay(self, graph: Graph) -> float:
        """Seconds from the first task to the last."""
        waiting = {key: sum(i in graph for i in set(done.inputs)) for key, done in graph.items()}
        followers = defaultdict(list)
        for key, done in graph.items():
            for other in set(done.inputs):
                followers[other].append(key)
        ready = [(0.0, graph[key].rank, n, key) for n, key in enumerate(graph) if not waiting[key]]
        heapq.heapify(ready)
        free, scheduler, end, count = [0.0] * self.workers, 0.0, 0.0, len(graph)
        while ready:
            at, _, _, key = heapq.heappop(ready)
            scheduler = max(scheduler, at) + TASK_SECONDS
            finish = self.run(key, graph[key], free, scheduler)
            end = max(end, finish)
            for other in followers[key]:
                waiting[other] -= 1
                if waiting[other] == 0:
                    count += 1
                    heapq.heappush(ready, (finish, graph[other].rank, count, other))
        return end + GRAPH_SECONDS

    def run(self, key: Any, done: Done, free: list[float], at: float) -> float:
        """Place a task where it ends first; returns when."""

        def missing(worker: int) -> list[Any]:
            return [i for i in set(done.inputs) if worker not in self.homes.get(i, {worker})]

        def begin(worker: int) -> float:
            fetched = missing(worker)
            size = sum(self.sizes.get(i, 0) for i in fetched)
            return max(at, free[worker]) + (FETCH_SECONDS if fetched else 0) + size / self.bandwidth

        chosen = min(range(self.workers), key=lambda worker: (begin(worker), worker))
        for other in missing(chosen):
            self.homes[other].add(chosen)
            self.sent += self.sizes.get(other, 0)
        finish = begin(chosen) + done.seconds
        free[chosen] = finish
        self.homes[key], self.sizes[key] = {chosen}, done.size
        return finish


def replayed(graphs: Sequence[Graph], workers: int, bandwidth: float) -> dict[str, float]:
    """Seconds and bytes of a fit on so many workers."""
    cluster, seconds, sent = Cluster(workers, bandwidth), 0.0, 0.0
    for graph in graphs:
        before = cluster.sent
        spent = cluster.replay(graph)
        if trains(graph):
            seconds, sent = seconds + spent, sent + cluster.sent - before
    return {"seconds": seconds, "sent": sent}


def simulated(case: Case, places: Places, limit: float) -> dict[str, Any]:
    """`LinearMCSVC` on Dask in this process, and on clusters that are not there."""
    X, y = lazy(case.data, places, case.options.get("chunks", 64))
    recorder = Recorder()
    with quiet(), dask.config.set(scheduler="synchronous"):
        estimator(case, limit, max_epochs=1).fit(X, y)
        model = estimator(case, limit)
        with recorder, Watch(2 * limit + 60) as watch:
            model.fit(X, y)
    steps = defaultdict(lambda: [0, 0.0, 0])
    for graph in filter(trains, recorder.graphs):
        for key, done in graph.items():
            kind = steps[kind_of(key)]
            kind[0] += 1
            kind[1] += done.seconds
            kind[2] += done.size
    bandwidth = float(case.options.get("bandwidth", 3e8))
    clusters = {
        str(workers): replayed(recorder.graphs, workers, bandwidth)
        for workers in case.options.get("workers", [1, 2, 4, 8, 16, 32, 64])
    }
    kinds = {kind: found for kind, found in steps.items() if found[1] > 0.01}
    return watch.found | facts(model) | traffic(model) | {
        "n": X.shape[0], "d": X.shape[1], "kinds": kinds, "clusters": clusters,
        "graphs": sum(map(trains, recorder.graphs)),
    }  # fmt: skip


def trains(graph: Graph) -> bool:
    """Whether a graph belongs to an epoch or a certificate, not to the intake of rows."""
    kinds = {kind_of(key) for key in graph}
    return any("-solve" in kind or "-pair" in kind or "certif" in kind for kind in kinds)


def kind_of(key: Any) -> str:
    """The kind of task of a key such as ("cs-solve-3", run, 2): without numbers."""
    name = key[0] if isinstance(key, tuple) else str(key)
    return "-".join(part for part in str(name).split("-") if not part.lstrip("er").isdigit())
