"""Workers, clients and clusters that die in the middle of a fit: real processes, real signals."""

import os
import re
import signal
import subprocess
import sys
import time

import dask
import numpy as np
import pytest
import scipy.sparse as sp
from distributed import Client
from training.sets import (
    KillWorker,
    lazy,
    lazy_set,
    local_cluster,
    read_or_die,
    small_set,
    svm,
    weights,
)

from dask_mcsvm import LaRankSVC
from dask_mcsvm.errors import ClusterLostError, DatasetFormatError, WorkersKilledError
from dask_mcsvm.storage import write_dataset

DEADLINE_SECONDS = 120
EPOCHS = 6


def larank(**parameters):
    return LaRankSVC(gamma=1.0, random_state=0, **parameters)


def coefficients(model):
    return model.dual_coef_.toarray().tobytes(), model.support_.tobytes(), model.dual_


def undisturbed(solver="shards", **parameters):
    with dask.config.set(scheduler="synchronous"):
        return weights(svm(solver, max_epochs=EPOCHS, **parameters).fit(*lazy_set()))


@pytest.mark.parametrize(
    ("solver", "task"),
    [
        ("shards", "cs-solve-e3"),
        ("rounds", "ww-pair-e3"),
        ("averaging", "llw-visit-e3"),
        ("exchange", "cs-decide-e3"),
        ("splitting", "cs-pass-e3"),
    ],
)
def test_a_worker_killed_in_the_middle_of_an_epoch_changes_nothing(solver, task, two_processes):
    """It dies with a task of the fourth epoch done, and with its share of the rows and state."""
    pids = two_processes.run(os.getpid)
    two_processes.register_plugin(KillWorker(pids, task))
    model = svm(solver, max_epochs=EPOCHS).fit(*lazy_set())
    two_processes.wait_for_workers(2, DEADLINE_SECONDS)
    left = set(two_processes.run(os.getpid).values()) & set(pids.values())
    assert len(left) == 1
    assert weights(model) == undisturbed(solver)


def test_a_worker_killed_with_the_model_of_larank_changes_nothing(two_processes):
    """The model is on one worker at a time, and there it dies."""
    model = larank(max_epochs=2)
    with dask.config.set(scheduler="synchronous"):
        alone = model.fit(*lazy_set()).dual_coef_
    pids = two_processes.run(os.getpid)
    two_processes.register_plugin(KillWorker(pids, "larank-visit-e1"))
    on_cluster = model.fit(*lazy_set()).dual_coef_
    two_processes.wait_for_workers(2, DEADLINE_SECONDS)
    assert len(set(two_processes.run(os.getpid).values()) & set(pids.values())) == 1
    assert (on_cluster != alone).nnz == 0


CLIENT = """
import sys, dask
from training.sets import lazy_set, svm

def wait_to_be_killed(record):
    if record["epoch"] > 3.5:
        sys.stdin.read()

with dask.config.set(scheduler="synchronous"):
    svm(max_epochs=6, checkpoint=sys.argv[1], callbacks=(wait_to_be_killed,)).fit(*lazy_set())
"""


def test_a_client_that_was_killed_goes_on_in_a_new_process(tmp_path):
    path = tmp_path / "fit"
    where = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", CLIENT, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=where) as child:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not (path / "checkpoint.json").exists():
            assert child.poll() is None, "the fit ended before it was killed"
            assert time.monotonic() < deadline
            time.sleep(0.01)
        child.send_signal(signal.SIGKILL)
        assert child.wait(DEADLINE_SECONDS) == -signal.SIGKILL
    with dask.config.set(scheduler="synchronous"):
        model = svm(max_epochs=EPOCHS, checkpoint=path, resume=True).fit(*lazy_set())
    assert weights(model) == undisturbed()


@pytest.mark.parametrize(("make", "learned"), [(svm, weights), (larank, coefficients)])
@pytest.mark.parametrize("has_checkpoint", [True, False])
def test_a_cluster_that_goes_away_names_the_checkpoint(make, learned, has_checkpoint, tmp_path):
    path = tmp_path / "fit"
    sentence = r"the Dask cluster went away \(.*\)"
    if has_checkpoint:
        advice = f"; start one and type fit again with checkpoint={str(path)!r}, resume=True."
        sentence += re.escape(advice)
    with local_cluster(processes=False) as cluster, Client(cluster):
        seen = []

        def close_in_third(record):
            seen.append(record)
            if len(seen) == 3:
                cluster.close()

        model = make(max_epochs=EPOCHS, callbacks=(close_in_third,))
        model.set_params(checkpoint=path if has_checkpoint else None)
        with pytest.raises(ClusterLostError, match=f"^{sentence}$"):
            model.fit(*lazy_set())
    if has_checkpoint:
        with dask.config.set(scheduler="synchronous"):
            model.set_params(resume=True, callbacks=()).fit(*lazy_set())
            alone = make(max_epochs=EPOCHS).fit(*lazy_set())
        assert learned(model) == learned(alone)


def test_a_task_that_kills_its_workers_says_what_to_change(tmp_path):
    path, trap = tmp_path / "fit", tmp_path / "trap"
    X, y = lazy_set()
    X = X.map_blocks(read_or_die, str(trap), dtype=X.dtype)

    def set_trap(record):
        if record["epoch"] > 2.5:
            trap.touch()

    # Rows that do not stay in memory are read in every epoch.
    model = svm(max_epochs=EPOCHS, memory_limit=1000, callbacks=(set_trap,), checkpoint=path)
    sentence = (
        r"the task '.*' was running on 1 workers, one after another, when they died, the last one "
        r"with a memory limit of .* MiB: its chunk of rows is probably too large for them; use "
        r"smaller chunks, X.rechunk\({0: rows}\) or write_dataset\(..., block_rows=rows\), or "
        r"workers with more memory"
    )
    sentence += re.escape(
        f"; with the same chunks the fit goes on from checkpoint={str(path)!r}, resume=True."
    )
    # A cluster of its own: the first death is the last one, and workers may stay dead.
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        local_cluster(processes=True) as cluster,
        Client(cluster),
        pytest.raises(WorkersKilledError, match=f"^{sentence}$"),
    ):
        model.fit(X, y)


def test_a_bad_value_found_by_a_worker_names_its_row(two_processes):
    X, y = small_set()
    X[117, 3] = np.nan
    with pytest.raises(ValueError, match=r"in row 117 \(the chunk of rows 100:150\)"):
        svm().fit(lazy(X), y)


def cut(file):
    file.write_bytes(file.read_bytes()[:-4])


def other_version(file):
    file.write_text(file.read_text().replace('"format_version":', '"format_version": 9, "was":'))


@pytest.mark.parametrize(
    ("name", "damage", "found"),
    [
        ("X/data/c/0", os.remove, "chunk c/0 of X/data is missing"),
        ("X/indices/c/0", cut, "chunk c/0 of X/indices has 115 bytes, 119 were written"),
        ("zarr.json", other_version, "format_version is 9"),
    ],
)
def test_a_damaged_dataset_is_refused_before_training(name, damage, found, tmp_path):
    path = tmp_path / "train.zarr"
    X, y = small_set()
    write_dataset(path, sp.csr_array(X), y, block_rows=50)
    damage(path / name)
    seen = []
    with pytest.raises(DatasetFormatError, match=re.escape(found)):
        svm(callbacks=(seen.append,), checkpoint=tmp_path / "fit").fit(path)
    assert seen == []
    assert not (tmp_path / "fit").exists()
