"""A small training set for fits on Dask, the clusters to run them on, and what to compare."""

import os
import signal
import sys

import dask.array as da
import numpy as np
import scipy.sparse as sp
from distributed import LocalCluster, SchedulerPlugin

from dask_mcsvm import LinearMCSVC

#: A formulation for each of the solvers on Dask.
SOLVERS = {
    "shards": "crammer_singer",
    "rounds": "weston_watkins",
    "averaging": "lee_lin_wahba",
    "classes": "one_vs_rest",
    "exchange": "crammer_singer",
    "splitting": "crammer_singer",
}
#: So few rows would be one block for one worker, and a graph of the splitting solver is to be about
#: an epoch, as those of the others are.
OPTIONS = {"shards": {"lanes": 2}, "splitting": {"passes": 1, "lanes": 4}}


def small_set(n=160, d=12, k=4, dtype="float64"):
    """Rows of unit norm around k overlapping centres, sorted by class as sets on disk often are."""
    rng = np.random.default_rng(0)
    y = np.sort(rng.integers(k, size=n))
    X = rng.normal(size=(k, d))[y] + rng.normal(size=(n, d))
    X /= np.linalg.norm(X, axis=1)[:, None]
    return X.astype(dtype), y


def lazy_set(chunk=50, csr=False, **shape):
    """The same as Dask arrays in row chunks."""
    X, y = small_set(**shape)
    return lazy(X, chunk, csr), da.from_array(y, chunks=chunk)


def lazy(X, chunk=50, csr=False):
    rows = da.from_array(X, chunks=(chunk, -1))
    return rows.map_blocks(sp.csr_matrix) if csr else rows


def svm(solver="shards", **parameters):
    """An estimator of few epochs, whose state goes through files more than once."""
    given = {"formulation": SOLVERS.get(solver), "tol": 0, "max_epochs": 5, "random_state": 0}
    given |= {"solver_options": {"save_every": 2} | OPTIONS.get(solver, {})} | parameters
    return LinearMCSVC(solver=solver, **{k: v for k, v in given.items() if v is not None})


def weights(model):
    """What must be the same to the last bit."""
    return model.coef_.tobytes(), model.intercept_.tobytes(), model.dual_, model.primal_


def local_cluster(processes, **options):
    """Two workers of one thread on this machine, no dashboard."""
    if processes:
        options["host"] = "127.0.0.1"
    return LocalCluster(
        n_workers=2, threads_per_worker=1, processes=processes, dashboard_address=":0",
        silence_logs=50, **options,
    )  # fmt: skip


def count_rows(block):
    """The block as it is; workers in this process leave its size in ``made``."""
    count_rows.made.append(len(block))
    return block


count_rows.made = []


class KillWorker(SchedulerPlugin):
    """Kill a worker's process, with no time to say goodbye, as soon as it has done a task.

    The name of the task begins with `task`.
    """

    def __init__(self, pids, task):
        self.pids, self.task = dict(pids), task
        self.name = f"kill-{task}"

    def transition(self, key, start, finish, *args, worker=None, **kwargs):
        name = key[0] if isinstance(key, tuple) else key.rpartition("-")[0]
        if finish == "memory" and worker in self.pids and name.startswith(self.task):
            os.kill(self.pids[worker], signal.SIGKILL)
            self.pids = {}


def read_or_die(block, trap):
    """Rows of a chunk; a worker that reads them when there is a trap dies.

    Here and not in a test module: workers import it by name, and cannot import those.
    """
    if os.path.exists(trap):
        os._exit(1)
    return block


def compiled_kernels():
    """Number of compiled versions of the sweep in this process, which nobody else compiles."""
    module = sys.modules.get("dask_mcsvm.solvers.sdm.sweeps")
    return 0 if module is None else len(module.full_sweep.signatures)
