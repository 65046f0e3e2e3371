"""A fit that is itself a task, and the scheduler that a fit does not take."""

from concurrent.futures import ThreadPoolExecutor

import dask
import numpy as np
import pytest
from distributed import Client, LocalCluster, worker_client
from training.sets import count_rows, lazy_set, svm, weights

from dask_mcsvm import LaRankSVC
from dask_mcsvm.training.runner import THREADS_INSTEAD, tell_of_threads

SECONDS = 250  # a task that waits for its own thread would wait for ever


@pytest.fixture(scope="module")
def one_thread():
    """One worker of one thread."""
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


def fit_linear(seed=0):
    """Weights and accuracy; rows are made here, as arguments they would be computed."""
    X, y = lazy_set()
    keep = y >= 0  # rows of unknown number
    model = svm(random_state=seed, max_epochs=1).fit(X[keep], y[keep])
    return weights(model), model.score(X[keep], y), model.predict(X).compute().tolist()


def fit_path():
    X, y = lazy_set()
    return svm(max_epochs=1).path(X, y, [1.0], validation=0.2).scores.tolist()


def fit_larank():
    X, y = lazy_set()
    model = LaRankSVC(kernel="linear", stop="gap", tol=0.1, random_state=0).fit(X, y)
    return model.coef_.tobytes(), model.score(X, y)


def fit_as_guest():
    """In a task that has left the worker's threads already."""
    with worker_client():
        return fit_linear()


def alone(work, *args):
    """What it gives without a cluster: the same bytes."""
    with dask.config.set(scheduler="synchronous"):
        return work(*args)


@pytest.mark.parametrize("work", [fit_path, fit_larank])
def test_a_fit_inside_a_task_of_the_only_thread(one_thread, work):
    assert one_thread.submit(work).result(timeout=SECONDS) == alone(work)
    (worker,) = one_thread.cluster.workers.values()
    assert len(worker.executor._threads) == 1  # it has its thread back


def test_two_fits_at_a_time_share_the_only_thread(one_thread):
    futures = one_thread.compute([dask.delayed(fit_linear)(seed) for seed in (1, 2)])
    found = [future.result(timeout=SECONDS) for future in futures]
    assert found == [alone(fit_linear, seed) for seed in (1, 2)]


def test_a_task_that_has_left_the_threads_already(one_thread):
    assert one_thread.submit(fit_as_guest).result(timeout=SECONDS) == alone(fit_linear)


@pytest.mark.parametrize("name", ["pool", "scheduler"])
@pytest.mark.parametrize("work", [fit_path, fit_larank])
def test_a_fit_inside_a_task_of_the_users_only_thread(name, work):
    with ThreadPoolExecutor(1) as pool, dask.config.set({name: pool}):
        found = dask.compute(dask.delayed(work)(), dask.delayed(work)())
    assert found == (alone(work),) * 2


def test_processes_for_one_graph_are_threads_for_a_fit(caplog):
    tell_of_threads.cache_clear()
    X, y = lazy_set()
    rows = X.map_blocks(count_rows, dtype=X.dtype, meta=np.empty((0, 0)))
    count_rows.made.clear()
    usual = weights(alone(svm(max_epochs=1).fit, X, y))
    with dask.config.set(scheduler="processes"):
        model = svm(max_epochs=1).fit(rows, y)
        stream = LaRankSVC(kernel="linear", random_state=0).fit(rows, y)
        scores = model.score(rows, y), stream.score(rows, y)
    assert weights(model) == usual
    assert sum(count_rows.made) >= 4 * len(y)  # two fits and two scores, all in this process
    assert min(scores) > 0.5
    assert [r.getMessage() for r in caplog.records if r.name == "dask_mcsvm"] == [THREADS_INSTEAD]
