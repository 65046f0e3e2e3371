"""Kernels are ready on a worker before its first task."""

import logging
import os
import signal
import time
from functools import partial

import pytest
from distributed import Client
from training.sets import compiled_kernels, lazy_set, local_cluster, svm

from dask_mcsvm.plugin import CompileKernels
from dask_mcsvm.training.runner import ClientRunner
from dask_mcsvm.training.runs.on_dask import warm_up

DEADLINE_SECONDS = 120


def test_workers_compile_before_they_work_also_when_restarted():
    with local_cluster(processes=True) as cluster, Client(cluster) as client:
        assert set(client.run(compiled_kernels).values()) == {0}
        model = svm(max_epochs=1).fit(*lazy_set())
        (name,) = (name for name in cluster.scheduler.worker_plugins if "mcsvm" in name)
        assert name == "dask-mcsvm-shards-crammer_singer-float64-dense-array-steps"
        ready = set(client.run(compiled_kernels).values())
        assert len(ready) == 1
        assert min(ready) > 0
        pids = client.run(os.getpid)
        os.kill(min(pids.values()), signal.SIGKILL)
        # Not a task in sight: what the new process has compiled, the plugin has.
        new = _pids_without(client, min(pids.values()))
        assert len(new) == 2
        assert set(client.run(compiled_kernels).values()) == ready
        model.fit(*lazy_set())
        assert [name for name in cluster.scheduler.worker_plugins if "mcsvm" in name] == [name]


def _pids_without(client, dead):
    """Pids of two workers, once the nanny has replaced the dead one."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline:
        client.wait_for_workers(2, DEADLINE_SECONDS)
        try:
            pids = client.run(os.getpid, on_error="ignore")
        except OSError:
            continue
        if len(pids) == 2 and dead not in pids.values():
            return set(pids.values())
    raise AssertionError("no worker was restarted")


CALLS = []


def test_a_second_plugin_of_the_same_name_is_ignored():
    with local_cluster(processes=False) as cluster, Client(cluster) as client:
        for call in (1, 2):
            ClientRunner(client).prepare("toy", partial(note, call))
    assert CALLS == [1, 1]  # one for each worker


def note(call):
    CALLS.append(call)


def fails():
    raise ZeroDivisionError


def test_a_worker_whose_compilation_fails_says_so_and_lives(caplog):
    with local_cluster(processes=False) as cluster, Client(cluster) as client:
        with caplog.at_level(logging.ERROR, "dask_mcsvm"):
            client.register_plugin(CompileKernels("broken", fails))
        assert client.submit(sum, [1, 2]).result() == 3
    assert "dask-mcsvm-broken: kernels were not compiled on inproc://" in caplog.text


@pytest.mark.parametrize(
    ("solver", "is_sparse"),
    [("shards", False), ("shards", True), ("rounds", False), ("averaging", False),
     ("classes", False), ("exchange", False), ("exchange", True)],
)  # fmt: skip
def test_the_toy_fit_of_every_plan_runs(solver, is_sparse):
    X, y = lazy_set(csr=is_sparse)
    warm_up(svm(solver, max_epochs=1).fit(X, y).plan_, is_sparse=is_sparse)
