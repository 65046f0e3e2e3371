"""Dense rows: splitting, sdm, what auto makes of them, LIBLINEAR, scikit-learn to one objective.

    python benchmarks/bench_dense.py                             # a generated set
    python benchmarks/bench_dense.py --data-dir DATA --datasets usps,letter,mnist
    python benchmarks/bench_dense.py --dask                      # the solver on Dask alone

Crammer-Singer without bias, one thread, CPU seconds. LIBLINEAR -s 4 trains to its own epsilon; the
primal objective of its W, worked out in float64 by this script, is the target. scikit-learn's
LinearSVC is the same solver behind another interface, and trains to the same epsilon. Our seconds
are of a fit of its own for each target, and end when a certified primal is at most that. Rows come
as they are (raw), divided by the largest absolute value (unit), or with columns of mean 0 and
variance 1 (standard). A time after > is one at which a side gave up (--patience, seconds; the
others run in a child for that, and are not asked for a smaller epsilon then).

With --dask: epochs to a gap for 1, 2, 8 and 64 chunks of the same rows, and a generated array of
2,000,000 x 256 on one and two single-thread worker processes, with the share of the workers' time
outside the solver's tasks.
"""

from __future__ import annotations

import argparse
import json
import os
import warnings
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import _sides
import numpy as np
from _data import Dataset, load_dataset
from _dense_dask import SMALL, by_chunks, by_workers
from harness.measure import Stopwatch, describe, environment, within

DENSE_SETS = ("usps", "letter", "mnist", "satimage", "shuttle", "covtype")
SCALES = ("raw", "unit", "standard")
THEIRS = ("liblinear", "sklearn")
OURS = ("splitting", "sdm", "auto")


def scaled(data: Dataset, scale: str) -> Dataset:
    """The set with its columns as `scale` says."""
    X = data.X.toarray() if data.is_sparse else data.X
    if scale == "unit":
        X = X / np.abs(X).max()
    elif scale == "standard":
        spread = X.std(axis=0, dtype=np.float64)
        X = (X - X.mean(axis=0, dtype=np.float64)) / np.where(spread > 0, spread, 1.0)
    return replace(data, X=np.ascontiguousarray(X, np.float32))


def theirs(
    side: str, data: Dataset, C: float, options: argparse.Namespace
) -> list[dict[str, Any] | None]:
    """CPU seconds and primal of another's solver for each epsilon, None where it gave up.

    What it does not reach in time it does not reach at a smaller epsilon either.
    """
    _sides.C = C
    run = _sides.Liblinear(data).run if side == "liblinear" else partial(_sklearn, data, C)
    runs: list[dict[str, Any] | None] = []
    for epsilon in options.eps:
        gave_up = bool(runs) and runs[-1] is None
        call = partial(run, epsilon, judge=data)
        runs.append(None if gave_up else within(options.patience, call))
    return runs


def _sklearn(data: Dataset, C: float, epsilon: float, judge: Dataset) -> dict[str, Any]:
    """LinearSVC to its own stopping rule."""
    from sklearn.svm import LinearSVC

    model = LinearSVC(
        multi_class="crammer_singer", C=C, tol=epsilon, fit_intercept=False, max_iter=10**7,
        random_state=0,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of options that a release is about to drop
        watch = Stopwatch()
        model.fit(data.X, data.y)
        result: dict[str, Any] = watch.read()
    result["primal"] = _sides.crammer_singer_primal(judge, model.coef_.T)
    return result


def ours(
    data: Dataset, C: float, solver: str, targets: list[float], tol: float, patience: float
) -> dict[str, Any]:
    """A fit of ours to the relative gap `tol`, and CPU seconds of one to each target."""
    _sides.C = C
    problem = _sides.pose(data, "crammer_singer")
    whole = _sides.run_ours(problem, tol=tol, patience=patience, solver=solver)
    best, seconds = whole["dual"], list[float | None]()
    for target in targets:
        run = _sides.run_to_target(
            data, problem, target=target, optimum=best, patience=patience, solver=solver
        )
        best = max(best, run["dual"])
        seconds.append(run["cpu"] if run["reached"] else None)
    return whole | {"to": seconds}


def measure(data: Dataset, C: float, options: argparse.Namespace) -> dict[str, Any]:
    """All sides of one problem."""
    others = {side: theirs(side, data, C, options) for side in THEIRS}
    targets = [run["primal"] for run in others["liblinear"] if run]
    sides = {
        solver: ours(data, C, solver, targets, options.tol, options.patience) for solver in OURS
    }
    return others | sides


def line(result: dict[str, Any], options: argparse.Namespace) -> str:
    def show(value: float | None) -> str:
        return f"{value:8.2f}" if value is not None else f">{options.patience:7.0f}"

    cells = []
    for place in range(len(options.eps)):
        runs = [result[name][place] for name in THEIRS]
        cells += [show(run["cpu"] if run else None) for run in runs]
        cells += [show(result[name]["to"][place]) if runs[0] else "       -" for name in OURS]
    for name in OURS:
        run = result[name]
        cells.append(f"{'' if run['reached'] else '>'}{run['cpu']:.2f} ({run['gap']:.0e})")
    return "  ".join(cells)


def main(argv: list[str] | None = None) -> int:
    """Run the benchmark; returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    folder = os.environ.get("DASK_MCSVM_DATA")
    add("--data-dir", type=Path, default=Path(folder) if folder else None, metavar="DIR")
    add("--datasets", default=",".join(DENSE_SETS), metavar="A,B,C")
    add("--dask", action="store_true", help="the solver on Dask, on generated rows")
    add("--scales", default="raw,standard", metavar="S,S", help=f"of {', '.join(SCALES)}")
    add("--C", default="0.1,1,10", metavar="C,C")
    add("--eps", default="0.1,0.01", metavar="E,E", help="LIBLINEAR's stopping tolerances")
    add("--tol", type=float, default=1e-3, help="relative gap of whole fits")
    add("--patience", type=float, default=60.0, metavar="SECONDS")
    add("--size", choices=("tiny", "full"), default="full", help="tiny: seconds, for the tests")
    add("--json", type=Path, metavar="OUT")
    options = parser.parse_args(argv)
    options.eps = sorted((float(text) for text in options.eps.split(",")), reverse=True)
    report: dict[str, Any] = {"environment": environment()}
    print(describe(report["environment"]))
    part = "dask" if options.dask else "problems"
    report[part] = []
    for result in (on_dask if options.dask else in_memory)(options):
        report[part].append(result)
        if options.json:
            options.json.write_text(json.dumps(report, indent=1) + "\n", "utf-8")
    return 0


def in_memory(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """All sides of all problems, a line each."""
    heads = [f"{side} {eps:g}" for eps in options.eps for side in (*THEIRS, *OURS)]
    print("set, scale, C: " + ", ".join(heads) + f", gap {options.tol:g}: {', '.join(OURS)}")
    for name in options.datasets.split(",") if options.data_dir else ["clusters"]:
        for scale in options.scales.split(","):
            data = scaled(read(name, options), scale)
            for C in map(float, options.C.split(",")):
                for solver in OURS:
                    ours(data, C, solver, [], 0.5, options.patience)  # compile
                result = measure(data, C, options)
                print(f"{name:9} {scale:9} {C:<5g} {line(result, options)}", flush=True)
                yield {"name": name, "scale": scale, "C": C} | result


def read(name: str, options: argparse.Namespace) -> Dataset:
    """A set of the folder, or the generated one."""
    if options.data_dir:
        return load_dataset(name, options.data_dir, options.size)
    recipe = SMALL[options.size]
    X, y = recipe.rows(0, recipe.n)
    return Dataset(name, X, y.astype(np.int32), recipe.k)


def on_dask(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Epochs by chunks, then seconds by workers, a line each."""
    for result in by_chunks(options.size, options.tol):
        text = "{chunks:>3} chunks: {epochs} epochs in {graphs} graphs, gap {gap:.1e}, {wall:.2f} s"
        print(text.format(**result), flush=True)
        yield result
    for result in by_workers(options.size):
        text = (
            "{workers} worker(s): {epochs} epochs in {wall:.2f} s, {kernels:.2f} s in the solver's "
            "tasks, {outside:.0%} outside, speedup {speedup:.2f}"
        )
        print(text.format(**result), flush=True)
        yield result


if __name__ == "__main__":
    raise SystemExit(main())
