"""What an intercept, a second thread and a second worker do on millions of real rows.

    python benchmarks/bench_scale.py --parts FOLDER --rows 450000 1800000 6530000

FOLDER holds ``part-*.npz``: CSR rows (data, indices, indptr), labels y_section and a mask ``test``,
in parts that are read until there are rows enough. Each case is a process of its own, so that its
peak of memory is its own, and compiles its kernels on a few rows first. One line of JSON a case.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import _measure  # noqa: F401  sets the folder of compiled kernels before numba is imported
import numpy as np
import scipy.sparse as sp

#: Name of a case: threads in memory, or workers and threads of each; with or without an intercept.
CASES: dict[str, dict[str, Any]] = {
    "memory": {},
    "memory, no intercept": {"fit_intercept": False},
    "memory, two threads": {"n_jobs": 2},
    "Dask, one worker": {"workers": (1, 1)},
    "Dask, two workers": {"workers": (2, 1)},
    "Dask, one worker of two threads": {"workers": (1, 2)},
}
FEATURES = 2**18


def read_part(path: Path) -> tuple[sp.csr_array, np.ndarray]:
    """The training rows of one file."""
    with np.load(path) as part:
        shape = part["indptr"].size - 1, FEATURES
        X = sp.csr_array((part["data"], part["indices"], part["indptr"]), shape=shape)
        rows = np.flatnonzero(part["test"] == 0)
        return X[rows].astype(np.float32), part["y_section"][rows]


def read_rows(folder: Path, n: int) -> tuple[sp.csr_array, np.ndarray, list[int]]:
    """The first n rows, and how many of them came from each file."""
    parts, sizes = [], []
    for path in sorted(folder.glob("part-*.npz")):
        if sum(sizes) < n:
            X, y = read_part(path)
            sizes.append(min(X.shape[0], n - sum(sizes)))
            parts.append((X[: sizes[-1]], y[: sizes[-1]]))
    rows, labels = zip(*parts, strict=True)
    return sp.csr_array(sp.vstack(rows, format="csr")), np.concatenate(labels), sizes


def lazy_rows(folder: Path, sizes: list[int]) -> tuple[Any, Any]:
    """The same as Dask arrays whose chunks workers read from the files."""
    import dask.array as da
    from dask.delayed import delayed

    columns: list[list[Any]] = [[], []]
    meta = sp.csr_array((0, FEATURES), dtype=np.float32)
    for path, size in zip(sorted(folder.glob("part-*.npz")), sizes, strict=False):
        part = delayed(read_part)(path)
        X = da.from_delayed(part[0][:size], (size, FEATURES), np.float32, meta=meta)
        columns[0].append(X)
        columns[1].append(da.from_delayed(part[1][:size], (size,), np.int64))
    return da.concatenate(columns[0]), da.concatenate(columns[1])


def run_case(folder: Path, n: int, tol: float, formulation: str, **case: Any) -> dict[str, Any]:
    """Fit once; seconds, epochs, gap, and memory beyond the rows and what was loaded before."""
    from dask_mcsvm import LinearMCSVC

    model = LinearMCSVC(formulation=formulation, tol=tol, random_state=0)
    workers = case.pop("workers", None)
    X, y, sizes = read_rows(folder, n)
    model.set_params(**case).fit(X[:4000], y[:4000])
    if workers is None:
        held = peak_bytes()
        seconds = timed(lambda: model.fit(X, y))
        extra = {"peak_mb": (peak_bytes() - held) / 1e6}
    else:
        del X, y
        seconds = on_cluster(model, folder, sizes, *workers)
        records = model.history_
        kinds = {kind for record in records for kind in record.get("task_seconds", {})}
        spent = {
            kind: sum(record.get("task_seconds", {}).get(kind, 0.0) for record in records)
            for kind in sorted(kinds)
        }
        extra = {
            "sent_mb": sum(record.get("bytes", 0) for record in records) / 1e6,
            "task_seconds": {kind: round(s, 2) for kind, s in spent.items() if s > 0.05},
        }
    looks = [(round(r["epoch"], 1), r["gap"]) for r in model.history_ if r["certified"]]
    return {"seconds": seconds, "epochs": model.n_iter_, "gap": model.gap_, "looks": looks, **extra}


def on_cluster(model: Any, folder: Path, sizes: list[int], workers: int, threads: int) -> float:
    """Seconds of a fit on worker processes; rows are read within them."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=workers, threads_per_worker=threads, dashboard_address=None,
            memory_limit=f"{20 // workers}GB",
        ) as cluster,
        Client(cluster),
    ):  # fmt: skip
        model.fit(*lazy_rows(folder, [2000]))
        rows, labels = lazy_rows(folder, sizes)
        return timed(lambda: model.fit(rows, labels))


def timed(work: Any) -> float:
    """Seconds of a call."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def peak_bytes() -> int:
    """The most memory that this process has had."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main(arguments: list[str] | None = None) -> int:
    """Run the cases one after another."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--parts", type=Path, required=True)
    parser.add_argument("--rows", type=int, nargs="+", default=[450_000, 1_800_000])
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--formulation", default="crammer_singer")
    parser.add_argument("--tol", type=float, default=1e-2)
    parser.add_argument("--inner", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.inner:
        found = run_case(
            given.parts, given.rows[0], given.tol, given.formulation, **CASES[given.inner]
        )
        print(json.dumps(found))
        return 0
    for n in given.rows:
        for case in given.cases:
            command = [
                sys.executable, __file__, "--parts", str(given.parts), "--rows", str(n),
                "--formulation", given.formulation, "--tol", str(given.tol), "--inner", case,
            ]  # fmt: skip
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                print(done.stderr[-2000:], file=sys.stderr)
                return 1
            print(json.dumps({"case": case, "rows": n, **json.loads(done.stdout)}), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
