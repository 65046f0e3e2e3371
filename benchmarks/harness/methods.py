"""Methods: each runs one case and returns what it measured, plain JSON values.

Kernels are compiled and rows are in memory, or files in the system's cache, before a clock starts:
every method first runs an epoch of the same problem. Ours stops by itself at the limit and says how
far it came; others are ended.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .measure import Stopwatch, Watch, forget_peak, resident_bytes  # isort: skip, before numba

import numpy as np
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from dask_mcsvm import LinearMCSVC

from .case import DONE, OVER, Case
from .data import Dataset, Places, lazy, load

Found = dict[str, Any]
#: Chunks of a set of a folder, for Dask.
CHUNKS = 8


def memory(case: Case, places: Places, limit: float) -> Found:
    """`LinearMCSVC` on rows in memory."""
    data = load(case.data, places, test=bool(case.options.get("test")))
    with quiet(), threadpool_limits(case.params.get("n_jobs") or 1):
        estimator(case, limit, max_epochs=1).fit(data.X, data.y)
        model = estimator(case, limit)
        with Watch(2 * limit + 60) as watch:
            model.fit(data.X, data.y)
    return watch.found | shape(data) | facts(model) | scores(model, data)


def dask(case: Case, places: Places, limit: float) -> Found:
    """`LinearMCSVC` on worker processes, which read their chunks themselves."""
    X, y = lazy(case.data, places, case.options.get("chunks", CHUNKS))
    with quiet(), cluster(case.options) as client:
        estimator(case, limit, max_epochs=1).fit(X, y)
        before = on_workers(client, forget_and_read)
        model, clocks = estimator(case, limit), Stopwatch()
        model.fit(X, y)
        spent = clocks.read()
        after = on_workers(client, read_peak)
    peaks = [now[0] - then[0] for now, then in zip(after, before, strict=True)]
    cpu = sum(now[1] - then[1] for now, then in zip(after, before, strict=True))
    return {
        "seconds": spent["wall"], "cpu_seconds": spent["cpu"] + cpu, "peak_bytes": max(peaks),
        "peak_bytes_of_all": sum(peaks), "n": X.shape[0], "d": X.shape[1],
    } | facts(model) | traffic(model)  # fmt: skip


# -- what a fit of ours tells ----------------------------------------------------------------------


def estimator(case: Case, limit: float, **changed: Any) -> LinearMCSVC:
    """The model of a case; a callback ends its fit at the limit, certified."""
    stop = (lambda record: record["seconds"] > limit,)
    return LinearMCSVC(**{"random_state": 0, "callbacks": stop} | case.params | changed)


def facts(model: LinearMCSVC) -> Found:
    """Epochs, gap, objective, size of the model; the history, a list of its `HISTORY` a record."""
    history = model.history_
    arrays = [model.coef_, model.intercept_]
    return {
        "status": OVER if model.stop_ == "callback" else DONE,
        "epochs": history[-1]["epoch"], "gap": model.gap_, "objective": model.primal_,
        "dual": model.dual_, "stop": model.stop_, "solver": model.solver_,
        "k": model.classes_.size, "model_bytes": sum(map(bytes_of, arrays)),
        "density": model.density_, "plan": str(model.plan_),
        "history": [[_short(record[name]) for name in HISTORY] for record in history],
    }  # fmt: skip


def bytes_of(array: Any) -> int:
    """Of an array, or of a CSR's three."""
    parts = (array.data, array.indices, array.indptr) if sp.issparse(array) else (array,)
    return sum(int(part.nbytes) for part in parts)


HISTORY = ("epoch", "seconds", "estimate", "gap", "certified", "certify_seconds")


def _short(value: float | bool) -> float | bool | None:
    if isinstance(value, bool):
        return value
    return float(f"{value:.5g}") if np.isfinite(value) else None


def shape(data: Dataset) -> Found:
    return {"n": data.X.shape[0], "d": data.X.shape[1], "nnz": data.nnz, "row_bytes": data.nbytes}


def scores(model: Any, data: Dataset) -> Found:
    """Accuracy, macro F1 and certain labels of the test rows, if any; the seconds to predict."""
    from sklearn.metrics import accuracy_score, f1_score

    if data.test is None:
        return {}
    X, y = data.test
    begun = time.perf_counter()
    predicted = model.predict(X)
    return {
        "predict_seconds": time.perf_counter() - begun, "test_rows": int(y.size),
        "accuracy": float(accuracy_score(y, predicted)), "certain": float(model.certain(X).mean()),
        "macro_f1": float(f1_score(y, predicted, average="macro", zero_division=0)),
    }  # fmt: skip


def traffic(model: LinearMCSVC) -> Found:
    """Bytes sent and seconds by kind of task."""
    records = model.history_
    kinds = sorted({kind for record in records for kind in record.get("task_seconds", {})})
    return {
        "sent_bytes": sum(record.get("bytes", 0) for record in records),
        "tasks": sum(record["tasks"] for record in records),
        "epoch_seconds": sum(record["epoch_seconds"] for record in records),
        "task_seconds": {
            kind: sum(record.get("task_seconds", {}).get(kind, 0.0) for record in records)
            for kind in kinds
        },
    }


# -- clusters --------------------------------------------------------------------------------------


@contextmanager
def cluster(options: dict[str, Any]) -> Iterator[Any]:
    """Worker processes (threads of this one if "processes" is false)."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=options["workers"], threads_per_worker=options["threads"],
            processes=options.get("processes", True), dashboard_address=":0",
            memory_limit=options.get("memory", "auto"),
        ) as workers,
        Client(workers) as client,
    ):  # fmt: skip
        yield client


def on_workers(client: Any, function: Any) -> list[tuple[int, float]]:
    return [answer for _, answer in sorted(client.run(function).items())]


def forget_and_read() -> tuple[int, float]:
    forget_peak()
    return resident_bytes(), time.process_time()


def read_peak() -> tuple[int, float]:
    return resident_bytes(peak=True), time.process_time()


@contextmanager
def quiet() -> Iterator[None]:
    """Fits of one epoch do not converge, and say so."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
