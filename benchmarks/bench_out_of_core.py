"""Early shrinking from disk against LIBLINEAR -s 3 in memory and against block minimization.

    python benchmarks/bench_out_of_core.py                    # generated rows, 20 million nonzeros
    python benchmarks/bench_out_of_core.py --data-dir DATA    # covtype and mnist, see _data.py

It prints what the tables and the figure of Alrajeh et al. show, C = 1, tau = 1, features in [0, 1].

1. Time and accuracy: LIBLINEAR (its own epsilon 0.1, rows in memory in its format before its clock
   starts); early shrinking without a certificate (the method of the paper); with one, to the
   objective that LIBLINEAR reached and to the relative gap --tol. Ours read Zarr, and the clock
   runs meanwhile; what the conversion to Zarr took is a column of its own.
2. Dual variables at a bound in either of ours, and the share on which the two disagree.
3. Block minimization to the same gap, from a Zarr store whose rows were dealt to chunks at random,
   as that method needs; ours read the store in the order of the file.
4. The share of active variables, and the dual objective, by pass.
5. solver="shards" within a limit of memory, which the paper does not have: block minimization of
   the other formulations from that second store, in a quarter of the memory of its rows.

With --raw also mnist as it is, 0 to 255, with tau = 1 and tau = R, the largest norm of a row; the
paper has 85.21 % of LIBLINEAR and 89.95 % of its own method with tau = R. No run of ours takes much
more than --patience seconds; one that was stopped then has a gap above --tol, or a ">".
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from _block_minimization import block_minimization
from _disk_sets import DiskSet, load_set, set_names
from _sides import INSTALL, liblinearutil
from bench_local import table
from harness.measure import Stopwatch, describe, environment

from dask_mcsvm.storage import Scratch
from dask_mcsvm.training import ArraySource, DatasetSource
from dask_mcsvm.training.loop import Loop
from dask_mcsvm.training.runs.block_minimization import train_block_minimization
from dask_mcsvm.training.runs.budget import FIXED, chunk_bytes, make_block_budget, make_budget
from dask_mcsvm.training.runs.early_shrink import ShrinkRun
from dask_mcsvm.training.runs.passes import EarlyShrink

C = 1.0
#: What early shrinking does not solve.
OTHERS = ("crammer_singer", "weston_watkins", "lee_lin_wahba")
Result = dict[str, Any]


def main(argv: list[str] | None = None) -> int:
    """Run the benchmark; returns the exit status."""
    options = parse(argv)
    arguments = {key: str(value) for key, value in vars(options).items()}
    report: Result = {"environment": environment(), "arguments": arguments, "sets": []}
    print(describe(report["environment"]))
    if liblinearutil is None:
        print(f"\nLIBLINEAR is not installed, so these are our own times only; type: {INSTALL}")
    for name in options.datasets or set_names(options.data_dir):
        report["sets"].append(measure(load_set(name, options.data_dir, options.size), options))
        print_tables(report["sets"][-1])
        if options.json:
            options.json.write_text(json.dumps(report, indent=1) + "\n", "utf-8")
    if options.raw:
        report["raw"] = measure_raw(
            load_set("mnist", options.data_dir, options.size, raw=True), options
        )
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n", "utf-8")
    return 0


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench_out_of_core.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    folder = os.environ.get("DASK_MCSVM_DATA")
    add = parser.add_argument
    add("--data-dir", type=Path, default=Path(folder) if folder else None, metavar="DIR")
    add("--datasets", type=lambda text: text.split(","), metavar="A,B")
    add("--size", choices=["full", "tiny"], default="full", help="tiny: seconds, for the tests")
    add("--tol", type=float, default=1e-3, help="relative gap of the certified fit; default 1e-3")
    add("--n-jobs", type=int, default=1, help="threads of ours; LIBLINEAR has one")
    add("--memory-limit", type=int, metavar="BYTES", help="of ours; default: none")
    add("--block-rows", type=int, metavar="N", help="rows of a chunk on disk")
    add("--patience", type=float, default=300.0, help="seconds for one run of ours; default 300")
    add("--raw", action="store_true", help="also raw mnist with tau = 1 and tau = R")
    add("--raw-liblinear", action="store_true", help="and LIBLINEAR on it: many minutes")
    add("--json", type=Path, metavar="OUT")
    return parser.parse_args(argv)


# -- runs ------------------------------------------------------------------------------------------


def run_liblinear(data: DiskSet, tau: float, epsilon: float = 0.1) -> Result:
    """LIBLINEAR's one-vs-rest hinge loss solver on rows in memory."""
    problem = liblinearutil.problem(data.y.astype(np.float64), sp.csr_matrix(data.X), bias=tau)
    ctypes.CDLL(None).srand(1)  # as in a fresh process, so that runs are repeatable
    watch = Stopwatch()
    model = liblinearutil.train(
        problem, liblinearutil.parameter(f"-s 3 -c {C} -e {epsilon} -B {tau!r} -q")
    )
    result: Result = watch.read()
    if data.k == 2:  # it keeps the weights of its first class only
        w = np.ctypeslib.as_array(model.w, (model.nr_feature + 1, 1))
        W = np.hstack([w, -w])[:, np.argsort(model.get_labels())]
    else:
        w = np.ctypeslib.as_array(model.w, (model.nr_feature + 1, model.nr_class))
        W = np.empty_like(w)
        W[:, model.get_labels()] = w
    return result | {"primal": data.primal(W, tau, C), "accuracy": data.accuracy(W, tau)}


def run_ours(
    data: DiskSet, source: Any, options: argparse.Namespace, *, tau: float, certify: bool,
    tol: float = 1e-3, target: float = -math.inf, keep: bool = False,
) -> Result:  # fmt: skip
    """Early shrinking to the gap ``tol``, or to a certified primal of at most ``target``."""
    watch = Stopwatch()

    def on_epoch(record: Result) -> bool:
        return record["primal"] <= target or watch.read()["wall"] > options.patience

    budget = make_budget(source, options.memory_limit, options.n_jobs)
    with Scratch() as scratch, ThreadPoolExecutor(options.n_jobs) as pool:
        run = EarlyShrink(source, scratch, pool, C, tau, 0, budget.load)
        shrinks = ShrinkRun(run, None, tol, certifies=certify)
        fit = Loop(shrinks, shrinks.relative, tol, 100_000, on_epoch).fit()
        result: Result = watch.read()
        free = free_variables(run) if keep else None
    history = [
        {key: record[key] for key in ("pass", "epoch", "seconds", "active", "dual", "loads")}
        for record in fit.history
    ]
    return result | {
        "primal": data.primal(fit.W, tau, C), "dual": fit.dual, "gap": fit.gap, "stop": fit.stop,
        "accuracy": data.accuracy(fit.W, tau), "epochs": fit.history[-1]["epoch"],
        "certificates": sum(record["certified"] for record in fit.history), "history": history,
        "free": free,
    }  # fmt: skip


def run_blocks(source: DatasetSource, formulation: str, options: argparse.Namespace) -> Result:
    """Block minimization within a quarter of what the rows take, and what the solver needs."""
    say(f"{formulation} within a limit")
    sizes = chunk_bytes(source, formulation)
    fixed = make_block_budget(source, 1 << 50, formulation)
    needed = FIXED + fixed.model + fixed.chunk
    limit = options.memory_limit or needed + int(sizes.sum()) // 4
    watch = Stopwatch()
    fit = train_block_minimization(
        source, formulation=formulation, C=C, tol=options.tol, memory_limit=limit,
        on_epoch=lambda record: watch.read()["wall"] > options.patience,
    )  # fmt: skip
    last = fit.history[-1]
    return watch.read() | {
        "limit": limit, "gap": fit.gap, "primal": fit.primal, "passes": len(fit.history),
        "epochs": last["epoch"], "loads": last["loads"],
        "certificates": sum(record["certified"] for record in fit.history),
    }  # fmt: skip


def free_variables(run: EarlyShrink) -> np.ndarray:
    """Which dual variables are between their bounds, (n, k) bool."""
    free = np.zeros((run.n, run.k), np.bool_)
    for b in range(run.n_blocks):
        piece, first = run.store.piece(b), run.source.row_offsets[b]
        for m in range(run.k):  # what was left behind is at a bound
            ids, alpha = piece.held.of(m)
            free[first + piece.places[ids], m] = (alpha > 0) & (alpha < C)
    return free


# -- measuring -------------------------------------------------------------------------------------


def measure(data: DiskSet, options: argparse.Namespace) -> Result:
    """All numbers of one set."""
    result: Result = {"name": data.name, "n": data.y.size, "d": data.X.shape[1], "k": data.k}
    result["nnz"] = int(data.X.nnz if sp.issparse(data.X) else np.count_nonzero(data.X))
    few = ArraySource(data.X[:300], data.y[:300], np.ones(300), data.k, 100)
    run_ours(data, few, options, tau=1.0, certify=True, tol=0.1)  # compiled
    with tempfile.TemporaryDirectory() as folder:
        watch = Stopwatch()
        source = DatasetSource(data.write(Path(folder, "set.zarr"), options.block_rows))
        result["convert"] = watch.read()
        target = -math.inf
        if liblinearutil is not None:
            say(f"{data.name}: LIBLINEAR")
            result["liblinear"] = run_liblinear(data, 1.0)
            target = result["liblinear"]["primal"]
            say(f"{data.name}: to LIBLINEAR's objective")
            result["same"] = run_ours(
                data, source, options, tau=1.0, certify=True, tol=1e-6, target=target
            )
        say(f"{data.name}: the paper's method")
        paper = run_ours(data, source, options, tau=1.0, certify=False, keep=True)
        say(f"{data.name}: to gap {options.tol:g}")
        ours = run_ours(data, source, options, tau=1.0, certify=True, tol=options.tol, keep=True)
        say(f"{data.name}: block minimization")
        watch = Stopwatch()
        dealt = DatasetSource(data.dealt().write(Path(folder, "split.zarr"), options.block_rows))
        result["split"] = watch.read()
        result["limited"] = {
            formulation: run_blocks(dealt, formulation, options) for formulation in OTHERS
        }
        blocks = block_minimization(
            dealt, C=C, tau=1.0, tol=options.tol, inner_passes=10, n_jobs=options.n_jobs,
            patience=options.patience,
        )  # fmt: skip
    free, optimum = paper.pop("free"), ours.pop("free")
    result["inactive"] = {
        "paper": int(np.sum(~free)), "optimum": int(np.sum(~optimum)),
        "mismatch": float(np.mean(free != optimum)),
    }  # fmt: skip
    blocks["accuracy"] = data.accuracy(blocks.pop("W"), 1.0)
    result.get("same", {}).pop("free", None)
    return result | {"paper": paper, "ours": ours, "blocks": blocks}


def measure_raw(data: DiskSet, options: argparse.Namespace) -> Result:
    """Unscaled pixels: what the value of the constant feature does."""
    radius = float(np.sqrt(np.square(data.X, dtype=np.float64).sum(axis=1).max()))
    rows, results = [], {}
    with tempfile.TemporaryDirectory() as folder:
        source = DatasetSource(data.write(Path(folder, "raw.zarr"), options.block_rows))
        for name, tau in (("1", 1.0), ("R", radius)):
            say(f"raw {data.name}, tau = {name}")
            paper = run_ours(data, source, options, tau=tau, certify=False)
            cells = [name, f"{paper['wall']:.1f}", f"{paper['accuracy']:.2%}"]
            results[name] = {"ours": paper}
            if liblinearutil is not None and options.raw_liblinear:
                theirs = results[name]["liblinear"] = run_liblinear(data, tau)
                cells += [f"{theirs['wall']:.1f}", f"{theirs['accuracy']:.2%}"]
            rows.append([*cells, *["-"] * (5 - len(cells))])
    rows.append(["paper", "-", "89.95%", "-", "85.21%"])
    table(
        "Raw mnist, 0 to 255, the method of the paper",
        "tau ours accuracy LIBLINEAR accuracy", rows,
    )  # fmt: skip
    return results


def say(text: str) -> None:
    """Progress, apart from the tables."""
    print(text, file=sys.stderr, flush=True)


# -- printing --------------------------------------------------------------------------------------


def print_tables(result: Result) -> None:
    convert = result["convert"]["wall"]
    title = f"{result['name']}: {result['n']:,} x {result['d']:,}, {result['k']} classes"
    labels = {
        "liblinear": "LIBLINEAR",
        "paper": "paper",
        "same": "same-objective",
        "ours": "to-gap",
    }
    rows = [
        [label, *cells(result[key], convert if key != "liblinear" else None)]
        for key, label in labels.items() if key in result
    ]  # fmt: skip
    table(
        f"Table 1. {title}, {result['nnz']:,} nonzeros; seconds",
        "run convert wall cpu accuracy primal gap epochs certificates", rows,
    )  # fmt: skip
    inactive = result["inactive"]
    table(
        "Table 2. Dual variables at a bound",
        "set paper to-gap mismatch",
        [[result["name"], f"{inactive['paper']:,}", f"{inactive['optimum']:,}",
          f"{inactive['mismatch']:.4f}"]],
    )  # fmt: skip
    blocks = result["blocks"]
    mark, split = "" if blocks["reached"] else ">", result["split"]["wall"]
    table(
        "Table 3. Block minimization to the same gap; seconds",
        "set split train total accuracy passes gap early-shrinking",
        [[result["name"], f"{split:.1f}", f"{mark}{blocks['wall']:.1f}",
          f"{mark}{split + blocks['wall']:.1f}", f"{blocks['accuracy']:.2%}",
          str(blocks["passes"]), f"{blocks['gap']:.1e}", f"{result['ours']['wall']:.1f}"]],
    )  # fmt: skip
    table(
        "Within a limit of memory: shards, one block of chunks after another",
        "formulation limit(MB) blocks wall cpu passes epochs certificates gap primal",
        [[name, f"{run['limit'] / 1e6:.0f}", str(run["loads"]), f"{run['wall']:.1f}",
          f"{run['cpu']:.1f}", str(run["passes"]), f"{run['epochs']:.1f}",
          str(run["certificates"]), f"{run['gap']:.1e}", f"{run['primal']:.1f}"]
         for name, run in result["limited"].items()],
    )  # fmt: skip
    table(
        "Figure 1. Active variables and dual objective by pass",
        "run pass kind seconds epochs active dual loads",
        [row for key in ("paper", "ours") for row in figure(labels[key], result[key]["history"])],
    )


def cells(run: Result, convert: float | None) -> list[str]:
    return [
        "-" if convert is None else f"{convert:.1f}", f"{run['wall']:.2f}", f"{run['cpu']:.2f}",
        f"{run['accuracy']:.2%}", f"{run['primal']:.1f}", f"{run.get('gap', math.nan):.1e}",
        f"{run.get('epochs', math.nan):.1f}", str(run.get("certificates", "-")),
    ]  # fmt: skip


def figure(label: str, history: list[Result]) -> list[list[str]]:
    return [
        [label, str(number), record["pass"], f"{record['seconds']:.2f}", f"{record['epoch']:.1f}",
         f"{record['active']:.2%}", f"{record['dual']:.1f}", str(record["loads"])]
        for number, record in enumerate(history, 1)
    ]  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
