"""A dataset whose files take three times the memory of both workers: one epoch, a certificate."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from harness import Case, Result, Table, number

from .intercept import MB

#: Of a worker; one with all imports takes 340 MiB.
WORKER_BYTES = 640 * 2**20
WORKERS = 2
#: Few features and classes, so that it is the rows that are too large. Eight parts differ.
RECIPE = {"name": "generated", "n": 4_600_000, "d": 20_000, "k": 10, "words": 250, "parts": 230}
QUICK = {"name": "generated", "n": 2_000, "d": 1_000, "k": 8, "words": 20, "parts": 4}
DISTINCT = 8


def cases(quick: bool) -> Iterator[Case]:
    options = {"workers": WORKERS, "threads": 1, "memory": WORKER_BYTES}
    yield Case(QUICK if quick else RECIPE, "larger:fit", {"tol": 0, "max_epochs": 1}, options)


def fit(case: Case, places: Any, limit: float) -> dict[str, Any]:
    """Write the dataset part by part, then fit it from its path."""
    from harness import methods
    from harness.data import lazy

    small = Case(QUICK, "dask", case.params, case.options)
    with tempfile.TemporaryDirectory(prefix="larger-") as folder, methods.quiet():
        path = Path(folder, "rows.zarr")
        write(path, case.data)
        with methods.cluster(case.options) as client:
            methods.estimator(small, limit).fit(*lazy(QUICK, places, 1))  # imported, compiled
            workers = client.run(os.getpid)
            methods.on_workers(client, methods.forget_and_read)
            model = methods.estimator(case, limit, dtype="float32")
            begun = time.perf_counter()
            model.fit(str(path))
            seconds = time.perf_counter() - begun
            peaks = [peak for peak, _ in methods.on_workers(client, methods.read_peak)]
            lived = client.run(os.getpid) == workers
        disk = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    return {
        "seconds": seconds, "n": case.data["n"], "disk_bytes": disk, "worker_peak": max(peaks),
        "disk_over_memory": disk / (WORKERS * WORKER_BYTES), "lived": lived,
    } | methods.facts(model) | methods.traffic(model)  # fmt: skip


def write(path: Path, data: dict[str, Any]) -> None:
    """Never all rows in memory: parts are made as they are written, a chunk each."""
    import dask
    import numpy as np

    from dask_mcsvm.storage import write_dataset

    with dask.config.set(scheduler="synchronous"):
        X, y = repeated(data)
        rows = -(-data["n"] // data["parts"])
        write_dataset(path, X, y, classes=np.arange(data["k"]), block_rows=rows)


def repeated(data: dict[str, Any]) -> tuple[Any, Any]:
    """Parts after the first eight are these again: to make them takes longer than to fit them."""
    import dask.array as da
    from harness.data import Places, lazy

    rounds = -(-data["parts"] // DISTINCT)
    part = data["n"] // data["parts"]
    X, y = lazy(data | {"n": DISTINCT * part, "parts": DISTINCT}, Places(), 1)
    return da.concatenate([X] * rounds)[: data["n"]], da.concatenate([y] * rounds)[: data["n"]]


def tables(results: Sequence[Result]) -> dict[str, Table | str]:
    heads = (
        "rows", "MB on disk", "times the workers' memory", "seconds", "of them in solving tasks",
        "peak MB of a worker", "workers lived",
    )  # fmt: skip
    rows = [
        [
            f"{r.case.data['n']:,}", number(r, "disk_bytes", MB), number(r, "disk_over_memory"),
            number(r), f"{(r['task_seconds'] or {}).get('cs-solve', 0.0):.1f}",
            number(r, "worker_peak", MB), "yes" if r["lived"] else "no",
        ]
        for r in results
    ]  # fmt: skip
    return {"fit": Table(heads, rows)}
