"""Fits in memory against LIBLINEAR: time to the same primal objective, threads, memory.

    python benchmarks/bench_local.py                                  # generated text-like sets
    python benchmarks/bench_local.py --data-dir DATA --json out.json  # real sets, see _data.py

One run prints four tables.

1. Crammer-Singer against LIBLINEAR -s 4 (C = 1, no bias), one thread, CPU seconds. LIBLINEAR trains
   to its own epsilon; the primal objective of its W, worked out in float64 by this script, is the
   target. Our seconds end when a certified primal is at most the target, certifying passes
   included. Either side has the rows in memory, in its own format, before its clock starts.
2. Two threads against one, wall seconds of a whole fit to the relative gap 1e-3.
3. Weston-Watkins against Crammer-Singer, CPU seconds of a whole fit to the relative gap 1e-3.
4. Peak memory of one fit in a fresh process beyond imports and compiled code, rows included.

Runs of the two sides take turns, because neighbours on the machine come and go, and the best of
--repeats counts on either side. Everything is compiled before a clock starts. A time after > is one
at which a side gave up (--patience); LIBLINEAR runs in a forked child for that, and is not asked
for a smaller epsilon then. The tables of a set are printed as soon as it is done, those of all sets
at the end. Sets of more than 5000 classes are trained to the gap 1e-2 only, without LIBLINEAR and
Weston-Watkins, unless --all is given.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from _data import RECIPES, Dataset, UnknownDatasetError, dataset_names, load_dataset
from _sides import INSTALL, Liblinear, liblinearutil, pose, run_ours, run_to_target, warm_up
from harness.measure import describe, environment, within

HUGE_CLASSES = 5000
HUGE_TOL = 1e-2
TOL = 1e-3
#: The gap of the untimed run that finds the optimum, in float64.
OPTIMUM_TOL = 1e-6

Result = dict[str, Any]


def main(argv: list[str] | None = None) -> int:
    """Run the benchmark; returns the exit status."""
    options = parse(argv)
    report: Result = {
        "environment": environment(),
        "arguments": {key: _plain(value) for key, value in vars(options).items()},
        "datasets": [],
    }
    print(describe(report["environment"]))
    if liblinearutil is None:
        print(f"\nLIBLINEAR is not installed, so these are our own times only; type: {INSTALL}")
    for name in options.datasets:
        data = load_dataset(name, options.data_dir, options.size)
        report["datasets"].append(measure(data, options))
        print_tables(report["datasets"][-1:])  # a run cut short leaves what it has
        if options.json:
            options.json.write_text(json.dumps(report, indent=1) + "\n", "utf-8")
    if len(report["datasets"]) > 1:
        print("\nAll sets")
        print_tables(report["datasets"])
    return 0


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench_local.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    folder = os.environ.get("DASK_MCSVM_DATA")
    add = parser.add_argument
    add(
        "--data-dir",
        type=Path,
        default=Path(folder) if folder else None,
        metavar="DIR",
        help="folder of .npz sets; default: $DASK_MCSVM_DATA, and without it generated sets",
    )
    add("--datasets", type=_names, metavar="A,B,C", help="only these sets, dense or not")
    add(
        "--dense",
        action="store_true",
        help="also the dense sets usps, letter, mnist (LIBLINEAR takes 40 s and more for a run)",
    )
    add(
        "--all",
        action="store_true",
        help=f"LIBLINEAR also above {HUGE_CLASSES} classes (it needs 12 n k + 8 d k bytes)",
    )
    add(
        "--eps",
        type=_numbers,
        default=[0.1, 0.01, 0.001],
        metavar="E,E",
        help="LIBLINEAR's stopping tolerances; default 0.1,0.01,0.001",
    )
    add("--repeats", type=int, default=3, metavar="N", help="runs per number; default 3")
    add(
        "--patience",
        type=float,
        default=300.0,
        metavar="SECONDS",
        help="give up on a run of either side after so long; default 300",
    )
    add(
        "--size",
        choices=sorted(RECIPES),
        default="full",
        help="tiny: seconds, for the test suite; sets of a folder are cut to 400 rows",
    )
    add("--json", type=Path, metavar="OUT", help="write results and environment to this file")
    options = parser.parse_args(argv)
    if options.repeats < 1:
        parser.error(f"--repeats is {options.repeats}; type 1 or more")
    if options.data_dir and not options.data_dir.is_dir():
        parser.error(f"--data-dir is {options.data_dir}, which is not a folder")
    try:  # now, not after an hour
        options.datasets = dataset_names(
            options.datasets, options.data_dir, options.size, dense=options.dense
        )
    except UnknownDatasetError as error:
        parser.error(str(error))
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.touch()
    return options


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _numbers(text: str) -> list[float]:
    return sorted((float(number) for number in text.split(",")), reverse=True)


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value


def say(text: str) -> None:
    """Progress, apart from the tables."""
    print(text, file=sys.stderr, flush=True)


# -- measuring -------------------------------------------------------------------------------------


def measure(data: Dataset, options: argparse.Namespace) -> Result:
    """All numbers of one set."""
    (n, d), is_huge = data.X.shape, data.k > HUGE_CLASSES and not options.all
    against = liblinearutil is not None and not is_huge
    say(f"{data.name}: {n:,} x {d:,}, {data.k:,} classes; compiling")
    warm_up(data)
    result: Result = {
        "name": data.name, "n": n, "d": d, "k": data.k, "nnz": data.nnz,
        "rows_bytes": data.nbytes, "tol": HUGE_TOL if is_huge else TOL,
    }  # fmt: skip
    if against:
        result |= same_objective(data, options)
        against = result["targets"][0]["liblinear"] is not None
    result["to_gap"] = to_gap(data, result["tol"], options, ww=not is_huge)
    result["peak"] = peaks(data, result["tol"], options, against=against)
    return result


def same_objective(data: Dataset, options: argparse.Namespace) -> Result:
    """LIBLINEAR to each epsilon, and we to the primal objective it reached."""
    say(f"{data.name}: optimum")
    optimum = run_ours(
        pose(data, "crammer_singer", np.float64), tol=OPTIMUM_TOL, patience=options.patience
    )
    liblinear, problem = Liblinear(data), pose(data, "crammer_singer")
    targets: list[Result] = []
    for epsilon in options.eps:
        gave_up = bool(targets) and targets[-1]["liblinear"] is None
        theirs, ours = [], []
        for repeat in range(0 if gave_up else options.repeats):
            say(f"{data.name}: epsilon {epsilon:g}, repeat {repeat + 1} of {options.repeats}")
            other = within(options.patience, partial(liblinear.run, epsilon, judge=data))
            if other is None:
                break
            theirs.append(other)
            run = run_to_target(
                data,
                problem,
                target=other["primal"],
                optimum=optimum["dual"],
                patience=options.patience,
            )
            ours.append(run)
        row: Result = {"epsilon": epsilon, "liblinear": None}
        if theirs:
            row |= {"liblinear": best(theirs, "cpu"), "ours": best(ours, "cpu")}
            row["target_gap"] = 1 - optimum["dual"] / row["liblinear"]["primal"]
            row["ratio"] = row["liblinear"]["cpu"] / row["ours"]["cpu"]
        targets.append(row | {"runs": {"liblinear": theirs, "ours": ours}})
    return {"optimum": optimum, "targets": targets, "patience": options.patience}


def to_gap(data: Dataset, tol: float, options: argparse.Namespace, *, ww: bool) -> Result:
    """Whole fits to a relative gap: one thread, two threads, Weston-Watkins."""
    cs = pose(data, "crammer_singer")
    cases = {"cs_1": (cs, 1), "cs_2": (cs, 2)}
    if ww:
        cases["ww_1"] = (pose(data, "weston_watkins"), 1)
    runs: dict[str, list[Result]] = {case: [] for case in cases}
    for repeat in range(options.repeats):
        say(f"{data.name}: gap {tol:g}, repeat {repeat + 1} of {options.repeats}")
        for case, (problem, n_jobs) in cases.items():
            run = run_ours(problem, tol=tol, patience=options.patience, n_jobs=n_jobs)
            runs[case].append(run)
    return {
        case: {"by_cpu": best(done, "cpu"), "by_wall": best(done, "wall"), "runs": done}
        for case, done in runs.items()
    }


def peaks(data: Dataset, tol: float, options: argparse.Namespace, *, against: bool) -> Result:
    """Peak memory of each side, each in its own process."""
    say(f"{data.name}: memory")
    job = {
        "name": data.name, "folder": _plain(options.data_dir), "size": options.size,
        "k": data.k, "is_sparse": data.is_sparse,
        "epsilon": max(options.eps), "tol": tol, "patience": options.patience,
    }  # fmt: skip
    sides = ["liblinear", "ours"] if against else ["ours"]
    return {side: measure_in_child("_fit_once.py", side=side, **job) for side in sides}


def measure_in_child(script: str, **job: Any) -> Result:
    """Run a script of this folder in a fresh interpreter; it prints one line of JSON last."""
    command = [sys.executable, str(Path(__file__).with_name(script)), json.dumps(job)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-4000:]}")
    answer: Result = json.loads(done.stdout.splitlines()[-1])
    return answer


def best(runs: list[Result], clock: str) -> Result:
    """The fastest of those that got there, or of all if none did."""
    arrived = [run for run in runs if run.get("reached", True)]
    return min(arrived or runs, key=lambda run: run[clock])


# -- printing --------------------------------------------------------------------------------------


def print_tables(datasets: list[Result]) -> None:
    table(
        "Crammer-Singer to LIBLINEAR's primal objective (or to a gap), one thread, CPU seconds",
        "dataset n d k epsilon LIBLINEAR ours ratio epochs gap",
        [row for result in datasets for row in objective_rows(result)],
    )
    table(
        "Two threads against one, whole fit, wall seconds",
        "dataset k tol one two speedup epochs(1) epochs(2) gap(1) gap(2)",
        [compare(result, "cs_1", "cs_2", "by_wall", "wall") for result in datasets],
    )
    with_ww = [result for result in datasets if "ww_1" in result["to_gap"]]
    table(
        "Weston-Watkins against Crammer-Singer, whole fit, one thread, CPU seconds",
        "dataset k tol WW CS WW/CS epochs(WW) epochs(CS) gap(WW) gap(CS)",
        [compare(result, "ww_1", "cs_1", "by_cpu", "cpu") for result in with_ww],
    )
    table(
        "Peak memory of one fit beyond imports, MiB",
        "dataset k rows LIBLINEAR ours ratio",
        [memory_row(result) for result in datasets],
    )


def objective_rows(result: Result) -> list[list[str]]:
    head = [result["name"], *(f"{result[key]:,}" for key in "ndk")]
    if "targets" not in result:
        ours = result["to_gap"]["cs_1"]["by_cpu"]
        goal = f"gap {result['tol']:g}"
        return [[*head, goal, "-", seconds(ours, "cpu"), "-", *work(ours)]]
    rows = []
    for row in result["targets"]:
        if row["liblinear"] is None:
            gave_up = f">{result['patience']:g}"
            rows.append([*head, f"{row['epsilon']:g}", gave_up, "-", "-", "-", "-"])
            continue
        theirs, ours = row["liblinear"], row["ours"]
        ratio = f"{row['ratio']:.2f}" if ours["reached"] else f"<{row['ratio']:.2f}"
        times = [seconds(theirs, "cpu"), seconds(ours, "cpu"), ratio]
        rows.append([*head, f"{row['epsilon']:g}", *times, *work(ours)])
    return rows


def compare(result: Result, left: str, right: str, which: str, clock: str) -> list[str]:
    one, two = result["to_gap"][left][which], result["to_gap"][right][which]
    head = [result["name"], f"{result['k']:,}", f"{result['tol']:g}"]
    ratio = f"{one[clock] / two[clock]:.2f}" if one["reached"] and two["reached"] else "-"
    times = [seconds(one, clock), seconds(two, clock), ratio]
    (epochs_one, gap_one), (epochs_two, gap_two) = work(one), work(two)
    return [*head, *times, epochs_one, epochs_two, gap_one, gap_two]


def memory_row(result: Result) -> list[str]:
    peak = {side: measured["bytes"] for side, measured in result["peak"].items()}
    theirs, ours = peak.get("liblinear"), peak["ours"]
    sizes = [result["rows_bytes"], theirs, ours]
    text = ["-" if size is None else f"{size / 2**20:,.1f}" for size in sizes]
    ratio = "-" if theirs is None or ours <= 0 else f"{theirs / ours:.2f}"
    return [result["name"], f"{result['k']:,}", *text, ratio]


def seconds(run: Result, clock: str) -> str:
    return f"{'' if run.get('reached', True) else '>'}{run[clock]:.3f}"


def work(run: Result) -> tuple[str, str]:
    return f"{run['epochs']:.1f}", f"{run['gap']:.1e}"


def table(title: str, headers: str, rows: list[list[str]]) -> None:
    """Columns set wide enough, the first to the left and numbers to the right."""
    lines = [headers.split(), *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    print(f"\n{title}")
    for first, *rest in lines:
        cells = [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
        print("  ".join([first.ljust(widths[0]), *cells]))


if __name__ == "__main__":
    sys.exit(main())
