"""The same bytes wherever a fit runs."""

import asyncio
import logging
import operator
from functools import partial

import dask
import dask.multiprocessing
import numpy as np
import pytest
from dask.sizeof import sizeof
from dask.task_spec import Task, TaskRef
from distributed import Client, LocalCluster
from training.sets import SOLVERS, count_rows, lazy_set, small_set, svm, weights

from dask_mcsvm.training import runner
from dask_mcsvm.training.runner import NO_WORKERS, ClientRunner, LocalRunner

every_solver = pytest.mark.parametrize("solver", list(SOLVERS))


@every_solver
def test_every_scheduler_gives_the_same_bytes(solver, two_threads, two_processes):
    X, y = lazy_set()
    found = {}
    for scheduler in ("synchronous", "threads"):
        with dask.config.set(scheduler=scheduler):
            found[scheduler] = weights(svm(solver, max_epochs=3).fit(X, y))
    for name, client in (("in-process", two_threads), ("processes", two_processes)):
        with client.as_current():
            found[name] = weights(svm(solver, max_epochs=3).fit(X, y))
    assert len(set(found.values())) == 1, {name: hash(parts) for name, parts in found.items()}


def test_values_held_from_one_graph_serve_the_next_also_between_processes():
    runner = LocalRunner(partial(dask.multiprocessing.get, num_workers=1))
    unwanted = Task("unwanted", operator.truediv, 1, 0)
    assert runner.run({"x": Task("x", operator.add, 1, 2), "unwanted": unwanted}, ["x"], []) == []
    assert runner.run({"y": Task("y", operator.neg, TaskRef("x"))}, [], ["y"]) == [-3]
    runner.release(["x"])
    assert runner.held == {}


def test_lines_of_work_begin_on_different_workers(two_threads):
    """Also where the same graph needs what begins there, as a report does; who reads may copy."""
    client = ClientRunner(two_threads)
    client.run({"rows": Task("rows", operator.add, 1, 2)}, ["rows"], [])
    graph = {"base": Task("base", operator.neg, TaskRef("rows"))}
    for line in range(4):
        names = f"begin-{line}", f"next-{line}"
        graph[names[0]] = Task(names[0], operator.add, TaskRef("base"), line)
        graph[names[1]] = Task(names[1], operator.add, TaskRef(names[0]), TaskRef("rows"))
    graph["sum"] = Task("sum", add_four, *(TaskRef(f"next-{line}") for line in range(4)))
    begins = [f"begin-{line}" for line in range(4)]
    places = {name: line for line, name in enumerate(begins)}
    assert client.run(graph, begins, ["sum"], places) == [sum(range(4))]
    workers = sorted(two_threads.scheduler_info()["workers"])
    where = two_threads.who_has([client.held[name] for name in begins])
    for line, name in enumerate(begins):
        assert workers[line % 2] in where[name]


def add_four(*values):
    return sum(values)


@pytest.mark.parametrize("room", [10**9, 0])
def test_rows_are_taken_to_every_worker_only_where_they_fit(room, monkeypatch):
    seen, run = [], LocalRunner.run

    def watched(self, graph, hold, fetch, places=runner.NO_PLACES):
        seen.append(dict(places))
        return run(self, graph, hold, fetch, places)

    monkeypatch.setattr(LocalRunner, "run", watched)
    monkeypatch.setattr(LocalRunner, "memory_of_each", property(lambda self: room))
    with dask.config.set(scheduler="synchronous"):
        svm("classes", max_epochs=1).fit(*lazy_set())
    assert any(seen) == (room > 0)


@pytest.mark.parametrize(("memory_limit", "times"), [(None, 1), (10_000, 2)])
@pytest.mark.parametrize("where", ["threads", "cluster"])
def test_chunks_that_fit_are_made_once(where, memory_limit, times, two_threads):
    """The first pass needs them, and so do the blocks of rows that stay in memory."""
    X, y = lazy_set()
    made = count_rows.made
    made.clear()
    rows = X.map_blocks(count_rows, dtype=X.dtype, meta=np.empty((0, 0)))
    model = svm(max_epochs=2, memory_limit=memory_limit)
    if where == "cluster":
        model.fit(rows, y)
    else:
        with dask.config.set(scheduler="threads"):
            model.fit(rows, y)
    assert sum(made) // len(y) >= times if memory_limit else sum(made) == len(y)


def test_a_certificate_leaves_the_rows_on_the_workers(two_threads, monkeypatch):
    X, y = lazy_set(n=600)
    model = svm(max_epochs=2).fit(X, y)
    gather, largest = Client.gather, [0]

    def watched(self, futures, *args, **how):
        found = gather(self, futures, *args, **how)
        if isinstance(found, list | tuple | dict | np.ndarray):
            largest.append(sizeof(found))
        return found

    monkeypatch.setattr(Client, "gather", watched)
    made = count_rows.made
    made.clear()
    rows = X.map_blocks(count_rows, dtype=X.dtype, meta=np.empty((0, 0)))
    assert model.certify(rows, y).primal == pytest.approx(model.primal_, rel=1e-9)
    assert sum(made) == len(y)
    assert max(largest) < X.nbytes / 2  # of 12 chunks: what the first look tells of each


def test_a_cluster_without_workers_is_waited_for_and_told(caplog):
    """A worker is started by the warning itself: without it the fit would wait for ever."""
    with (
        LocalCluster(n_workers=0, processes=False, dashboard_address=":0") as cluster,
        Client(cluster),
    ):

        class StartWorker(logging.Handler):
            def emit(self, record):
                if record.getMessage() == NO_WORKERS:
                    cluster.scale(1)

        handler = StartWorker()
        logging.getLogger("dask_mcsvm").addHandler(handler)
        try:
            model = svm(max_epochs=1).fit(*lazy_set())
        finally:
            logging.getLogger("dask_mcsvm").removeHandler(handler)
    assert [r.getMessage() for r in caplog.records if r.name == "dask_mcsvm"] == [NO_WORKERS]
    assert model.stop_ == "max_epochs"


def test_a_fit_in_memory_uses_no_cluster(two_threads):
    model = svm("sdm", formulation="cs", solver_options=None, max_epochs=2).fit(*small_set())
    assert model.solver_ == "sdm"
    assert two_threads.cluster.scheduler.task_prefixes == {}


@every_solver
def test_the_cluster_is_left_as_it_was(solver, two_threads, monkeypatch):
    """No key of any epoch stays on the scheduler: state goes through files, rows are released."""
    monkeypatch.setattr(runner, "LOOK_SECONDS", 0.01)  # as if every graph took long
    X, y = lazy_set()
    svm(solver, max_epochs=3).fit(X, y)
    scheduler = two_threads.cluster.scheduler
    two_threads.sync(_until_empty, scheduler)
    assert not scheduler.tasks


async def _until_empty(scheduler):
    """Releases travel to the scheduler as messages; the cluster's own deadline is the test's."""
    while scheduler.tasks:
        await asyncio.sleep(0.01)


def test_the_history_counts_epochs_and_tasks(two_threads):
    X, y = lazy_set()
    model = svm(tol=1e-2, C=0.1, max_epochs=300).fit(X, y)
    assert model.stop_ == "gap"
    assert model.gap_ <= 1e-2
    assert model.history_[-1]["certified"]
    for record in model.history_:
        assert 0 < record["active"] <= 1
        assert record["tasks"] == model.history_[0]["tasks"]
        assert record["primal"] >= record["dual"]
    epochs = np.array([record["epoch"] for record in model.history_])
    np.testing.assert_allclose(np.diff(epochs), 1, atol=0.2)


def test_the_history_of_a_cluster_says_what_workers_did(two_processes):
    model = svm(max_epochs=3).fit(*lazy_set())
    for record in model.history_:
        assert {"cs-solve", "cs-combine", "cs-settle"} <= set(record["task_seconds"])
        assert min(record["task_seconds"].values()) > 0
        assert record["bytes"] > 0  # two lanes on two workers


def test_an_asynchronous_client_is_refused():
    async def attempt():
        async with Client(processes=False, asynchronous=True, dashboard_address=":0", n_workers=1):
            X, y = lazy_set()
            with pytest.raises(TypeError) as caught:
                svm().fit(X, y)
            return str(caught.value)

    assert asyncio.run(attempt()) == (
        "the current Dask client is asynchronous, and fit would block its event loop; use "
        "Client(...) without asynchronous=True, or call fit in a thread with a client of its own."
    )
