"""Fits on Dask: what they cost beside a fit in memory, how they scale, data larger than memory.

    python benchmarks/bench_dask.py                        # generated sets, 52 M nonzeros and more
    python benchmarks/bench_dask.py --data-dir DATA        # news20_bydate and onet_titles as well
    python benchmarks/bench_dask.py --parts larger --size middle

Parts of a run:

overhead
    Crammer-Singer and Weston-Watkins by shards on two worker processes against the solver in
    memory with n_jobs=2, both to the same relative gap; Weston-Watkins by rounds beside them, on
    the sets of a folder. The rows are on disk for Dask and in memory for the other. Two generated
    sets, of which one has a tenth of the rows, tell from which size on Dask takes no longer.
scaling
    The same blocks and the same plan on one and on two single-thread workers: wall seconds of the
    same epochs.
larger
    A dataset whose files take three times the memory of both workers: one epoch and a certificate,
    and whether the workers lived.

Each line gives wall seconds, seconds inside solving tasks (kernels), the share of the workers' time
outside them, the gap, the peak memory of a worker, the bytes moved between workers and the number
of tasks. Kernels are compiled before a clock starts. No fit takes longer than --patience by more
than an epoch; one that was stopped by it is marked.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from _dask_sets import LARGER, TEXT, OnDisk, from_folder, generated
from distributed import Client, LocalCluster, get_task_stream
from harness.measure import describe, environment, forget_peak, resident_bytes

from dask_mcsvm import LinearMCSVC
from dask_mcsvm.storage import open_dataset

PARTS = ("overhead", "scaling", "larger")
FOLDER_SETS = ("news20_bydate", "onet_titles")
KERNEL_TASKS = ("-solve-", "-own-", "-pair-", "-visit-")
#: Bytes of a worker in the part "larger": one with all imports takes 340 MiB.
WORKER_BYTES = 640 * 2**20
#: A dataset of so many times the memory of the workers is larger than it.
TIMES = 3.0

Result = dict[str, Any]


def main(argv: list[str] | None = None) -> int:
    """Run the benchmark; returns the exit status."""
    options = parse(argv)
    env = environment()
    print(describe(env))
    results: list[Result] = []
    warm_up()
    with tempfile.TemporaryDirectory(prefix="bench-dask-", dir=options.scratch) as folder:
        for part in options.parts:
            print(f"\n{part}", flush=True)
            for result in RUN[part](folder, options):
                results.append({"part": part, **result})
                print(line(result), flush=True)
                if options.json:
                    document = {"environment": env, "results": results}
                    options.json.write_text(json.dumps(document, indent=1) + "\n", "utf-8")
    return 0


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    folder = os.environ.get("DASK_MCSVM_DATA")
    add = parser.add_argument
    add("--data-dir", type=Path, default=Path(folder) if folder else None, metavar="DIR")
    add("--datasets", type=lambda text: text.split(","), metavar="A,B",
        help="of the folder; default: news20_bydate,onet_titles")  # fmt: skip
    add("--parts", type=lambda text: text.split(","), default=list(PARTS), metavar="A,B")
    add("--size", choices=list(TEXT), default="full", help="tiny: seconds, for the test suite")
    add("--chunks", type=int, default=8, help="row chunks of a dataset; default 8")
    add("--tol", type=float, default=1e-2, help="relative gap to reach; default 1e-2")
    add("--epochs", type=int, default=4, help="epochs of the part scaling; default 4")
    add("--patience", type=float, default=240.0, help="seconds for one fit; default 240")
    add("--scratch", type=Path, metavar="DIR", help="where datasets are written; some 5 GB")
    add("--json", type=Path, metavar="OUT")
    options = parser.parse_args(argv)
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"--parts has {sorted(unknown)[0]!r}; use {', '.join(PARTS)}")
    if options.datasets and options.data_dir is None:
        parser.error("--datasets needs --data-dir, the folder they are in")
    return options


# -- parts -----------------------------------------------------------------------------------------


def overhead(folder: str, options: argparse.Namespace) -> Iterator[Result]:
    """Shards and rounds on two processes against two threads in memory."""
    recipe, sizes = TEXT[options.size], []
    small = replace(recipe, n=recipe.n // 10)
    for name, made in (("generated", recipe), ("generated-tenth", small)):
        data = generated(name, f"{folder}/{name}", made, options.chunks)
        ratios = []
        for result in against_memory(data, ("shards",), options):
            ratios.append(result.get("against memory", 0.0))
            yield result
        sizes.append((data.nnz, max(ratios)))
    yield {"name": "break-even", "nonzeros": break_even(*reversed(sizes))}
    names = options.datasets or (FOLDER_SETS if options.data_dir else ())
    for name in names:
        data = from_folder(name, f"{folder}/{name}", options.data_dir, options.size, options.chunks)
        yield from against_memory(data, ("shards", "rounds"), options)


def against_memory(
    data: OnDisk, solvers: tuple[str, ...], options: argparse.Namespace
) -> Iterator[Result]:
    """Both formulations in memory and on Dask, to the same gap."""
    print(f"  {data}", flush=True)
    for formulation in ("cs", "ww"):
        local = in_memory(data, formulation, options)
        yield local
        kernel = None
        for solver in solvers[: 2 if formulation == "ww" else 1]:
            with workers(2) as client:
                name = f"{formulation} {solver}, 2 processes"
                result = on_cluster(
                    client, name, data, formulation, options, solver=solver, tol=options.tol
                )
            result["against memory"] = result["wall"] / local["wall"]
            if kernel is not None:
                result["kernel against shards"] = result["kernel"] / kernel
            kernel = kernel or result["kernel"]
            yield result


def break_even(small: tuple[int, float], large: tuple[int, float]) -> float:
    """Nonzeros from which on Dask takes no longer, by a line through two ratios and sizes.

    Seconds on Dask are a + b nnz where those in memory are c nnz, so that the ratio is
    b / c + (a / c) / nnz; nan where it stays above 1.
    """
    (n, r), (m, s) = small, large
    slope = (r - s) / (1 / n - 1 / m)
    limit = s - slope / m
    return max(0.0, slope / (1 - limit)) if limit < 1 else float("nan")


def scaling(folder: str, options: argparse.Namespace) -> Iterator[Result]:
    """Equal epochs of an equal plan on one and on two workers."""
    data = generated("generated", f"{folder}/scaling", TEXT[options.size], options.chunks)
    print(f"  {data}", flush=True)
    walls = []
    for n in (1, 2):
        with workers(n) as client:
            result = on_cluster(
                client, f"cs shards, {n} worker{'s' * (n > 1)}", data, "cs", options, tol=0,
                max_epochs=options.epochs, solver_options={"lanes": 2, "slices": 4},
            )  # fmt: skip
        walls.append(result["epochs wall"])
        if n == 2:
            result["speedup"] = walls[0] / walls[1]
        yield result


def larger(folder: str, options: argparse.Namespace) -> Iterator[Result]:
    """Files of three times the memory of all workers, which go on living."""
    recipe = LARGER[options.size]
    data = generated("generated", f"{folder}/larger", recipe, -(-recipe.n // 20_000))
    print(f"  {data}", flush=True)
    with workers(2, memory_limit=WORKER_BYTES) as client:
        before = client.run(os.getpid)
        name = f"cs shards, 2 workers of {WORKER_BYTES / 2**20:.0f} MiB"
        result = on_cluster(client, name, data, "cs", options, tol=0, max_epochs=1)
        result["lived"] = client.run(os.getpid) == before
    result["disk over memory"] = data.disk_bytes / (2 * WORKER_BYTES)
    result["is larger"] = result["disk over memory"] >= TIMES
    yield result


RUN = {"overhead": overhead, "scaling": scaling, "larger": larger}


# -- one fit ---------------------------------------------------------------------------------------


class Patience:
    """A callback that ends a fit when its time is over."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __call__(self, record: dict[str, Any]) -> bool:
        return bool(record["seconds"] > self.seconds)


@contextmanager
def workers(n: int, **how: Any) -> Iterator[Client]:
    """A cluster of single-thread worker processes."""
    with (
        LocalCluster(
            n_workers=n, threads_per_worker=1, processes=True, dashboard_address=":0", **how
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


@contextmanager
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def warm_up() -> None:
    """Fill Numba's cache, which worker processes read."""
    with tempfile.TemporaryDirectory() as folder, quiet():
        for k in (8, 70):  # few classes and many are stored differently
            recipe = replace(TEXT["tiny"], n=400, k=k)
            path = generated("warm-up", f"{folder}/{k}", recipe, 2).path
            data = open_dataset(path)
            X, y = data.read_rows(0, recipe.n), data.read_labels()
            for formulation in ("cs", "ww"):
                LinearMCSVC(formulation=formulation, max_epochs=2, n_jobs=2).fit(X, y)
                fit_lazy(path, formulation, max_epochs=2)
            fit_lazy(path, "ww", solver="rounds", max_epochs=2)


def fit_lazy(path: str, formulation: str, **how: Any) -> LinearMCSVC:
    model = LinearMCSVC(formulation=formulation, dtype="float32", random_state=0, **how)
    return model.fit(path)


def on_cluster(
    client: Client,
    name: str,
    data: OnDisk,
    formulation: str,
    options: argparse.Namespace,
    **how: Any,
) -> Result:
    """One fit, and what the scheduler and the workers saw of it."""
    with quiet(), tempfile.TemporaryDirectory() as folder:
        small = generated("small", f"{folder}/small", replace(TEXT["tiny"], n=400), 2).path
        fit_lazy(small, formulation, max_epochs=1)  # every worker has imported and compiled
        client.run(forget_peak)
        before = moved(client)
        with get_task_stream(client=client) as stream:
            begun = time.perf_counter()
            model = fit_lazy(data.path, formulation, callbacks=(Patience(options.patience),), **how)
            wall = time.perf_counter() - begun
    kernel = sum(
        s["stop"] - s["start"]
        for task in stream.data
        if any(part in str(task["key"]) for part in KERNEL_TASKS)
        for s in task["startstops"]
        if s["action"] == "compute"
    )
    return {
        "name": name,
        "dataset": data.name,
        "wall": wall,
        "kernel": kernel,
        "outside": 1 - kernel / (wall * len(client.scheduler_info()["workers"])),
        "epochs": model.n_iter_,
        "epochs wall": sum(record["epoch_seconds"] for record in model.history_),
        "gap": model.gap_,
        "stop": model.stop_,
        "peak": max(client.run(resident_bytes, peak=True).values()),
        "moved": moved(client) - before,
        "tasks": len(stream.data),
    }


def moved(client: Client) -> int:
    """Bytes that workers have received from each other."""
    return sum(client.run(received).values())


def received(dask_worker: Any) -> int:
    return sum(entry["total"] for entry in dask_worker.transfer_incoming_log)


def in_memory(data: OnDisk, formulation: str, options: argparse.Namespace) -> Result:
    """The solver in memory with two threads."""
    stored = open_dataset(data.path)
    X, y = stored.read_rows(0, stored.shape[0]), stored.read_labels()
    model = LinearMCSVC(
        formulation=formulation, dtype="float32", random_state=0, n_jobs=2, tol=options.tol,
        callbacks=(Patience(options.patience),),
    )  # fmt: skip
    forget_peak()
    begun = time.perf_counter()
    with quiet():
        model.fit(X, y)
    return {
        "name": f"{formulation} in memory, n_jobs=2",
        "dataset": data.name,
        "wall": time.perf_counter() - begun,
        "epochs": model.n_iter_,
        "gap": model.gap_,
        "stop": model.stop_,
        "peak": resident_bytes(peak=True),
    }


def line(result: Result) -> str:
    """One result in words."""
    known = {
        "wall": "wall {:.2f} s", "kernel": "kernels {:.2f} s", "outside": "outside {:.0%}",
        "epochs": "epochs {}", "gap": "gap {:.1e}", "tasks": "tasks {}",
        "against memory": "{:.2f} x memory", "kernel against shards": "{:.2f} x shards' kernels",
        "speedup": "speedup {:.2f}", "disk over memory": "on disk / memory {:.2f}",
        "nonzeros": "{:,.0f} nonzeros",
    }  # fmt: skip
    parts = [text.format(result[name]) for name, text in known.items() if name in result]
    parts += [
        f"{name} {result[name] / 2**20:,.0f} MiB" for name in ("peak", "moved") if name in result
    ]
    if result.get("stop") == "callback":
        parts.append("stopped: out of patience")
    if "lived" in result:
        parts.append("workers lived" if result["lived"] else "WORKERS DIED")
    return f"  {result['name']:<34}" + ", ".join(parts)


if __name__ == "__main__":
    sys.exit(main())
