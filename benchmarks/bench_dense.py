"""Dense rows in memory: score splitting, sdm and LIBLINEAR to the same primal objective.

    python benchmarks/bench_dense.py --data-dir DATA --datasets usps,letter,mnist

Crammer-Singer without bias, one thread, CPU seconds. LIBLINEAR -s 4 trains to its own epsilon; the
primal objective of its W, worked out in float64 by this script, is the target. Our seconds end when
a pass shows a primal at most the target. Rows come as they are (raw), divided by the largest
absolute value (unit), or with columns of mean 0 and variance 1 (standard). A time after > is one at
which a side gave up (--patience, CPU seconds; LIBLINEAR runs in a child for that).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from _data import Dataset, load_dataset
from _measure import Stopwatch, describe, environment
from threadpoolctl import threadpool_limits

from dask_mcsvm.training import Problem, make_plan, train

DENSE_SETS = ("usps", "letter", "mnist", "satimage", "shuttle", "covtype")
SCALES = ("raw", "unit", "standard")


def scaled(data: Dataset, scale: str) -> Dataset:
    """The set with its columns as `scale` says."""
    X = data.X.toarray() if data.is_sparse else data.X
    if scale == "unit":
        X = X / np.abs(X).max()
    elif scale == "standard":
        spread = X.std(axis=0, dtype=np.float64)
        X = (X - X.mean(axis=0, dtype=np.float64)) / np.where(spread > 0, spread, 1.0)
    return replace(data, X=np.ascontiguousarray(X, np.float32))


def liblinear(data: Dataset, C: float, epsilon: float, patience: float) -> dict[str, Any] | None:
    """CPU seconds and primal of LIBLINEAR, or None if it took longer than `patience`."""
    answer = multiprocessing.get_context("fork").SimpleQueue()
    child = multiprocessing.get_context("fork").Process(
        target=_liblinear_child, args=(answer, data, C, epsilon, patience)
    )
    child.start()
    child.join()
    return answer.get() if child.exitcode == 0 else None


def _liblinear_child(answer: Any, data: Dataset, C: float, epsilon: float, patience: float) -> None:
    import _sides

    _sides.C = C
    side = _sides.Liblinear(data)
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = int(used.ru_utime + used.ru_stime + patience) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
    answer.put(side.run(epsilon, judge=data))


def ours(
    data: Dataset, C: float, solver: str, targets: list[float], tol: float, patience: float
) -> dict[str, Any]:
    """One run of ours: CPU seconds to each target and to the relative gap `tol`."""
    n, d = data.X.shape
    problem = Problem(data.X, data.y, np.full(n, C), data.k, "crammer_singer", 0.0)
    plan = make_plan(
        n=n, d=d, k=data.k, nnz=n * d, is_sparse=False, dtype=data.X.dtype,
        formulation="crammer_singer", solver=solver, n_jobs=1, options=None,
    )  # fmt: skip
    seconds: dict[float, float] = {}

    def on_epoch(record: dict[str, Any]) -> bool:
        now = watch.read()["cpu"]
        for target in targets:
            if record["primal"] <= target:
                seconds.setdefault(target, now)
        return now > patience

    with threadpool_limits(1):
        watch = Stopwatch()
        fit = train(problem, plan, tol=tol, max_epochs=100_000, seed=0, on_epoch=on_epoch)
        whole = watch.read()["cpu"]
    return {
        "to": [seconds.get(target) for target in targets],
        "cpu": whole, "gap": fit.gap, "epochs": fit.history[-1]["epoch"], "primal": fit.primal,
        "reached": fit.gap <= tol,
    }  # fmt: skip


def measure(data: Dataset, C: float, options: argparse.Namespace) -> dict[str, Any]:
    """All sides of one problem."""
    theirs = [liblinear(data, C, epsilon, options.patience) for epsilon in options.eps]
    targets = [side["primal"] if side else -np.inf for side in theirs]
    sides = {
        solver: ours(data, C, solver, targets, options.tol, options.patience)
        for solver in ("splitting", "sdm")
    }
    return {"liblinear": theirs, **sides}


def line(result: dict[str, Any], options: argparse.Namespace) -> str:
    def show(value: float | None) -> str:
        return f"{value:8.2f}" if value is not None else f">{options.patience:7.0f}"

    cells = []
    for place in range(len(options.eps)):
        side = result["liblinear"][place]
        cells.append(show(side["cpu"] if side else None))
        cells += [
            show(result[name]["to"][place]) if side else "       -" for name in ("splitting", "sdm")
        ]
    for name in ("splitting", "sdm"):
        run = result[name]
        cells.append(f"{'' if run['reached'] else '>'}{run['cpu']:.2f} ({run['gap']:.0e})")
    return "  ".join(cells)


def main(argv: list[str] | None = None) -> int:
    """Run the benchmark; returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--data-dir", type=Path, required=True, metavar="DIR", help="folder of .npz sets")
    add("--datasets", default=",".join(DENSE_SETS), metavar="A,B,C")
    add("--scales", default="raw,standard", metavar="S,S", help=f"of {', '.join(SCALES)}")
    add("--C", default="0.1,1,10", metavar="C,C")
    add("--eps", default="0.1,0.01", metavar="E,E", help="LIBLINEAR's stopping tolerances")
    add("--tol", type=float, default=1e-3, help="relative gap of whole fits")
    add("--patience", type=float, default=60.0, metavar="SECONDS")
    add("--size", choices=("tiny", "full"), default="full")
    add("--json", type=Path, metavar="OUT")
    options = parser.parse_args(argv)
    options.eps = [float(text) for text in options.eps.split(",")]
    report: dict[str, Any] = {"environment": environment(), "problems": []}
    print(describe(report["environment"]))
    heads = [f"{side} {eps:g}" for eps in options.eps for side in ("LIBLINEAR", "ours", "sdm")]
    print("set, scale, C: " + ", ".join(heads) + f", gap {options.tol:g}: ours, sdm")
    for name in options.datasets.split(","):
        for scale in options.scales.split(","):
            data = scaled(load_dataset(name, options.data_dir, options.size), scale)
            for C in map(float, options.C.split(",")):
                ours(data, C, "splitting", [], options.tol, options.patience)  # compile
                result = measure(data, C, options)
                problem = {"name": name, "scale": scale, "C": C}
                report["problems"].append(problem | result)
                print(f"{name:9} {scale:9} {C:<5g} {line(result, options)}", flush=True)
                if options.json:
                    options.json.write_text(json.dumps(report, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
