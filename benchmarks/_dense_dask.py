"""The splitting solver on Dask: passes for any number of chunks, and one worker against two."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import dask
import dask.array as da
import numpy as np

from dask_mcsvm import LinearMCSVC

Result = dict[str, Any]


class Clusters(NamedTuple):
    """Overlapping clusters whose columns have scales from 0.1 to 10."""

    n: int
    d: int
    k: int

    def rows(self, first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows and codes first:last; those of one set are the same however it is cut in blocks."""
        centres = np.random.default_rng(0).standard_normal((self.k, self.d), np.float32)
        rng = np.random.default_rng([1, first])
        y = rng.integers(self.k, size=last - first)
        X = 0.25 * centres[y] + rng.standard_normal((last - first, self.d), np.float32)
        return X * np.logspace(-1, 1, self.d, dtype=np.float32), y


SMALL = {"tiny": Clusters(512, 12, 4), "full": Clusters(64_000, 64, 10)}
LARGE = {"tiny": Clusters(1_600, 16, 4), "full": Clusters(2_000_000, 256, 10)}
CHUNKS = (1, 2, 8, 64)
#: Chunks of the set that is generated on the workers.
BLOCKS = 16
EPOCHS = {"tiny": 8, "full": 24}


def by_chunks(size: str, tol: float) -> Iterator[Result]:
    """The same rows in 1, 2, 8 and 64 chunks, to the same gap."""
    X, y = SMALL[size].rows(0, SMALL[size].n)
    for chunks in CHUNKS:
        rows = da.from_array(X, chunks=(-(-X.shape[0] // chunks), -1))
        begun = time.perf_counter()
        model = fit(rows, y, tol=tol, solver_options={"lanes": chunks})
        yield {
            "chunks": chunks, "epochs": model.n_iter_, "graphs": len(model.history_),
            "gap": model.gap_, "wall": time.perf_counter() - begun,
        }  # fmt: skip


def by_workers(size: str) -> Iterator[Result]:
    """Equal epochs on one and on two single-thread worker processes; seconds of the epochs."""
    from distributed import Client, LocalCluster, get_task_stream, wait

    walls: list[float] = []
    for workers in (1, 2):
        with (
            LocalCluster(
                n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=None
            ) as cluster,
            Client(cluster) as client,
        ):
            X, y = dask.persist(*generated(LARGE[size]))
            wait([X, y])
            fit(X, y, tol=0, max_epochs=1)  # every worker has imported and compiled
            with get_task_stream(client=client) as stream:
                model = fit(X, y, tol=0, max_epochs=EPOCHS[size])
        spent = sum(record["epoch_seconds"] for record in model.history_)
        walls.append(spent)
        kernels = sum(
            part["stop"] - part["start"]
            for task in stream.data
            if "-pass-" in str(task["key"]) or "-advance-" in str(task["key"])
            for part in task["startstops"]
            if part["action"] == "compute"
        )
        yield {
            "workers": workers, "epochs": model.n_iter_, "wall": spent, "kernels": kernels,
            "outside": max(0.0, 1 - kernels / (workers * spent)), "speedup": walls[0] / spent,
        }  # fmt: skip


def generated(clusters: Clusters) -> tuple[Any, Any]:
    """A set in chunks that workers make themselves."""
    height = clusters.n // BLOCKS
    pairs = [
        dask.delayed(clusters.rows, nout=2)(first, first + height)
        for first in range(0, clusters.n, height)
    ]
    X = [da.from_delayed(pair[0], (height, clusters.d), np.float32) for pair in pairs]
    y = [da.from_delayed(pair[1], (height,), np.int64) for pair in pairs]
    return da.concatenate(X), da.concatenate(y)


def fit(X: Any, y: Any, **how: Any) -> LinearMCSVC:
    with quiet():
        return LinearMCSVC(solver="splitting", random_state=0, **how).fit(X, y)


@contextmanager
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
