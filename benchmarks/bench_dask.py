"""Fits on Dask: what they cost beside a fit in memory, how they scale, data larger than memory.

    python benchmarks/bench_dask.py                              # a generated set, 50 M nonzeros
    python benchmarks/bench_dask.py --data-dir DATA --datasets news20_bydate,onet_titles
    python benchmarks/bench_dask.py --parts larger               # one of: overhead scaling larger

Parts of a run:

overhead
    Crammer-Singer and Weston-Watkins by shards on two worker processes against the solver in
    memory with n_jobs=2, both to the same relative gap; Weston-Watkins by rounds beside them.
scaling
    The same chunks and the same plan on one and on two single-thread workers: wall seconds of the
    same number of epochs.
larger
    A dataset on disk of three times the workers' memory limit, or more: a few epochs, and whether
    every worker lived through them.

Each line gives wall seconds, seconds inside solving tasks (kernels), the share of the workers' time
outside them, the gap, the peak memory of a worker, the bytes moved between workers and the number
of tasks. Kernels are compiled before a clock starts, and rows are on disk as a dataset.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from _data import Dataset, Recipe, load_dataset, text_like
from _measure import describe, environment
from distributed import Client, LocalCluster, get_task_stream

from dask_mcsvm import LinearMCSVC
from dask_mcsvm.storage import open_dataset, write_dataset

LARGE = {
    "tiny": Recipe(2_000, 1_000, 8, 20),
    "full": Recipe(500_000, 100_000, 20, 160),
}
PARTS = ("overhead", "scaling", "larger")
KERNEL_TASKS = ("-solve-", "-own-", "-pair-", "-visit-", "ovr-classes", "llw-classes")
#: Memory of the workers in the part "larger", as a share of the dataset's bytes.
SHARE = 3.0

Result = dict[str, Any]


def main(argv: list[str] | None = None) -> int:
    """Run the benchmark; returns the exit status."""
    options = parse(argv)
    env = environment()
    print(describe(env))
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="bench-dask-") as folder:
        for data in datasets(options):
            path = f"{folder}/{data.name}"
            write_dataset(path, data.X, data.y, block_rows=-(-data.y.size // options.chunks))
            print(
                f"\n{data.name}: {data.y.size:,} x {data.X.shape[1]:,}, {data.nnz:,} nonzeros, "
                f"{data.k} classes, {open_dataset(path).n_blocks} chunks, "
                f"{size_on_disk(path) / 2**20:,.0f} MiB on disk"
            )
            warm_up(options)
            for part in options.parts:
                for result in RUN[part](data, path, options):
                    results.append({"dataset": data.name, "part": part, **result})
                    print(line(result), flush=True)
            if options.json:
                options.json.write_text(json.dumps({"environment": env, "results": results}))
    return 0


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    folder = os.environ.get("DASK_MCSVM_DATA")
    add = parser.add_argument
    add("--data-dir", type=Path, default=Path(folder) if folder else None, metavar="DIR")
    add("--datasets", type=lambda text: text.split(","), default=[], metavar="A,B")
    add("--parts", type=lambda text: text.split(","), default=list(PARTS), metavar="A,B")
    add("--size", choices=sorted(LARGE), default="full", help="tiny: seconds, for the test suite")
    add("--chunks", type=int, default=8, help="row chunks of a dataset; default 8")
    add("--tol", type=float, default=1e-2, help="relative gap to reach; default 1e-2")
    add("--epochs", type=int, default=4, help="epochs of scaling and larger; default 4")
    add("--json", type=Path, metavar="OUT")
    options = parser.parse_args(argv)
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"--parts has {sorted(unknown)[0]!r}; use {', '.join(PARTS)}")
    if options.datasets and options.data_dir is None:
        parser.error("--datasets needs --data-dir, the folder they are in")
    return options


def datasets(options: argparse.Namespace) -> list[Dataset]:
    if options.datasets:
        return [load_dataset(name, options.data_dir, options.size) for name in options.datasets]
    return [text_like("generated", LARGE[options.size])]


def size_on_disk(path: str) -> int:
    return sum(file.stat().st_size for file in Path(path).rglob("*") if file.is_file())


@contextmanager
def workers(n: int, **how: Any) -> Any:
    """A cluster of single-thread worker processes, compiled and measured from here on."""
    with (
        LocalCluster(
            n_workers=n, threads_per_worker=1, processes=True, dashboard_address=None, **how
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


def warm_up(options: argparse.Namespace) -> None:
    """Fill Numba's cache, which worker processes read."""
    small = text_like("warm-up", LARGE["tiny"])
    X, y = small.X[:400], small.y[:400]
    with tempfile.TemporaryDirectory() as folder, quiet():
        write_dataset(f"{folder}/small", X, y)
        for formulation in ("cs", "ww"):
            LinearMCSVC(formulation=formulation, max_epochs=2, n_jobs=2).fit(X, y)
            fit_lazy(f"{folder}/small", formulation, max_epochs=2)
        fit_lazy(f"{folder}/small", "ww", solver="rounds", max_epochs=2)


@contextmanager
def quiet() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def fit_lazy(path: str, formulation: str, **how: Any) -> LinearMCSVC:
    model = LinearMCSVC(formulation=formulation, dtype="float32", random_state=0, **how)
    return model.fit(path)


def on_cluster(client: Client, name: str, path: str, formulation: str, **how: Any) -> Result:
    """One fit, and what the scheduler and the workers saw of it."""
    with quiet():
        fit_lazy(path, formulation, max_epochs=1)  # every worker has imported and compiled
        before = moved(client)
        with get_task_stream(client=client) as stream:
            begun = time.perf_counter()
            model = fit_lazy(path, formulation, **how)
            wall = time.perf_counter() - begun
    kernel = busy = 0.0
    for task in stream.data:
        spent = sum(s["stop"] - s["start"] for s in task["startstops"] if s["action"] == "compute")
        busy += spent
        if any(part in str(task["key"]) for part in KERNEL_TASKS):
            kernel += spent
    n_workers = len(client.scheduler_info()["workers"])
    return {
        "name": name,
        "wall": wall,
        "kernel": kernel,
        "outside": 1 - kernel / (wall * n_workers),
        "epochs": model.n_iter_,
        "gap": model.gap_,
        "peak": max(client.run(peak_memory).values()),
        "moved": moved(client) - before,
        "tasks": len(stream.data),
        "history_wall": model.history_[-1]["seconds"],
    }


def peak_memory() -> int:
    """Peak resident bytes of this process."""
    with open("/proc/self/status") as status:
        return next(int(row.split()[1]) * 1024 for row in status if row.startswith("VmHWM"))


def moved(client: Client) -> int:
    """Bytes that workers have received from each other."""
    return sum(client.run(received).values())


def received(dask_worker: Any) -> int:
    return sum(entry["total"] for entry in dask_worker.transfer_incoming_log)


def in_memory(data: Dataset, formulation: str, **how: Any) -> Result:
    model = LinearMCSVC(formulation=formulation, dtype="float32", random_state=0, n_jobs=2, **how)
    begun = time.perf_counter()
    with quiet():
        model.fit(data.X, data.y)
    wall = time.perf_counter() - begun
    return {
        "name": f"{formulation} in memory, n_jobs=2",
        "wall": wall,
        "epochs": model.n_iter_,
        "gap": model.gap_,
        "peak": peak_memory(),
    }


def overhead(data: Dataset, path: str, options: argparse.Namespace) -> Any:
    """Shards and rounds on two processes against two threads in memory."""
    for formulation in ("cs", "ww"):
        local = in_memory(data, formulation, tol=options.tol)
        yield local
        with workers(2) as client:
            solvers = ("shards", "rounds") if formulation == "ww" else ("shards",)
            kernel = None
            for solver in solvers:
                result = on_cluster(
                    client, f"{formulation} {solver}, 2 processes", path, formulation,
                    solver=solver, tol=options.tol, max_epochs=200,
                )  # fmt: skip
                result["against memory"] = result["wall"] / local["wall"]
                if kernel is not None:
                    result["kernel against shards"] = result["kernel"] / kernel
                kernel = kernel or result["kernel"]
                yield result


def scaling(data: Dataset, path: str, options: argparse.Namespace) -> Any:
    """Equal epochs of an equal plan on one and on two workers."""
    walls = []
    for n in (1, 2):
        with workers(n) as client:
            result = on_cluster(
                client, f"cs shards, {n} worker(s)", path, "cs", tol=0, max_epochs=options.epochs,
                solver_options={"lanes": 2, "slices": 10},
            )  # fmt: skip
        walls.append(result["history_wall"])
        if n == 2:
            result["speedup"] = walls[0] / walls[1]
        yield result


def larger(data: Dataset, path: str, options: argparse.Namespace) -> Any:
    """Workers whose memory limit is a third of the dataset."""
    limit = max(int(size_on_disk(path) / SHARE / 2), 350 * 2**20)
    copies = max(1, int(np.ceil(SHARE * 2 * limit / size_on_disk(path))))
    with tempfile.TemporaryDirectory(dir=Path(path).parent) as folder:
        big = f"{folder}/big"
        repeat_dataset(path, big, copies, options.chunks)
        with workers(2, memory_limit=limit) as client:
            result = on_cluster(
                client, f"cs shards, 2 workers of {limit / 2**20:.0f} MiB", big, "cs", tol=0,
                max_epochs=options.epochs,
            )  # fmt: skip
            result["workers alive"] = len(client.scheduler_info()["workers"])
        result["on disk"] = size_on_disk(big)
        result["disk over memory"] = size_on_disk(big) / (2 * limit)
        yield result


def repeat_dataset(path: str, target: str, copies: int, chunks: int) -> None:
    """The same rows several times over, in chunks a quarter of the size, written as a stream."""
    import dask.array as da

    X, y = open_dataset(path).to_dask()
    rows = max(1, -(-X.shape[0] // (4 * chunks)))
    X, y = (da.concatenate([part] * copies) for part in (X, y))
    write_dataset(target, X.rechunk({0: rows}), y.rechunk(rows))


RUN = {"overhead": overhead, "scaling": scaling, "larger": larger}


def line(result: Result) -> str:
    """One result in words."""
    known = {
        "wall": "wall {:.2f} s", "kernel": "kernels {:.2f} s", "outside": "outside {:.0%}",
        "epochs": "epochs {}", "gap": "gap {:.1e}", "tasks": "tasks {}",
        "against memory": "{:.2f} x memory", "kernel against shards": "{:.2f} x shards' kernels",
        "speedup": "speedup {:.2f}", "workers alive": "{} workers alive",
        "disk over memory": "disk / memory {:.1f}",
    }  # fmt: skip
    sizes = {"peak": "peak", "moved": "moved", "on disk": "on disk"}
    parts = [text.format(result[name]) for name, text in known.items() if name in result]
    parts += [
        f"{text} {result[name] / 2**20:,.0f} MiB" for name, text in sizes.items() if name in result
    ]
    return f"  {result['name']:<34}" + ", ".join(parts)


if __name__ == "__main__":
    sys.exit(main())
