"""Tables 2 and 3 and figures 1 and 2 of Bordes et al. (2007), beside the paper's numbers.

    python benchmarks/bench_larank.py --data-dir FOLDER [--full] [--plot DIR]

USPS is scaled by 0.61, which gives the paper's optimal dual of 537 (its feature scale is not
stated); LETTER is as in its file, 16000 rows to train. MNIST is 6000 rows unless --full; the
paper's numbers are of all 60000. LaRankx1 is the mean over --seeds runs. Averaged perceptron, MIRA
and MCSVM hold n x n kernel values; --no-others leaves them out. No part takes more than --patience
CPU seconds (scikit-learn's SVC apart): a method with a ">" was stopped then. Last comes a stream
of a million generated rows.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from _larank_figures import draw
from _online import Trained, averaged_perceptron, mcsvm, mira
from harness.measure import describe, environment, resident_bytes
from sklearn.svm import SVC

from dask_mcsvm import LaRankSVC
from dask_mcsvm.solvers.larank import Kernel, LaRank, kernel_matrix


@dataclass(frozen=True)
class Case:
    """A dataset of the paper: parameters, and its numbers (error, dual, kernels, arg max)."""

    C: float
    gamma: float
    scale: float
    one: tuple[float, float, float, float]
    gap: tuple[float, float, float, float]


CASES = {
    "usps": Case(10.0, 0.025, 0.61, (4.25, 503, 9.4, 25), (4.38, 518, 13.7, 86)),
    "letter": Case(10.0, 0.025, 1.0, (2.80, 5226, 55, 190), (2.40, 5462, 156, 550)),
    "mnist": Case(1000.0, 0.005, 2 / 255, (1.41, 3608, 399, 200), (1.44, 3718, 4769, 2020)),
}
MNIST_ROWS = 6000
ABLATION = {
    "new": (1.0, 0.0, 0.0),
    "new+old": (1.0, 1.0, 0.0),
    "new+optimize": (1.0, 0.0, 1.0),
    "all": (1.0, 1.0, 1.0),
}
HEADERS = "method error% dual kernels(1e6) arg-max(1e3) support seconds"
NUMBERS = ("error", "dual", "kernels", "arg_max", "support", "seconds")


def load(name: str, folder: Path | None, full: bool) -> tuple[np.ndarray, ...]:
    """Training and test rows and labels, scaled; without a folder a small made-up set."""
    if folder is None:
        rng = np.random.default_rng(0)
        y = rng.integers(0, 5, 400)
        X = (rng.normal(size=(5, 16))[y] * 2 + rng.normal(size=(400, 16))).astype(np.float32)
        return X[:300], y[:300], X[300:], y[300:]
    with np.load(folder / f"{name}.npz") as file:
        X, y, Xt, yt = (file[key] for key in ("X_train", "y_train", "X_test", "y_test"))
    if name == "letter":
        X, y = np.vstack([X, Xt]), np.concatenate([y, yt])
        X, Xt, y, yt = X[:16000], X[16000:], y[:16000], y[16000:]
    if name == "mnist" and not full:
        X, y = X[:MNIST_ROWS], y[:MNIST_ROWS]
    scale = np.float32(CASES[name].scale)
    return X.astype(np.float32) * scale, y, Xt.astype(np.float32) * scale, yt


def larank(
    case: Case, data: tuple[np.ndarray, ...], *, seed: int = 0, patience: float = math.inf,
    **settings: Any,
) -> dict[str, Any]:  # fmt: skip
    X, y, Xt, yt = data
    end = time.process_time() + patience
    model = LaRankSVC(
        C=case.C, gamma=case.gamma, random_state=seed,
        callbacks=(lambda record: time.process_time() > end,), **settings,
    )  # fmt: skip
    began = time.process_time()
    model.fit(X, y)
    return {
        "finished": model.stop_ != "callback" or "stop" not in settings,
        "seconds": time.process_time() - began,
        "error": 100 * float(np.mean(model.predict(Xt) != yt)),
        "dual": model.dual_,
        "kernels": model.kernel_evaluations_ / 1e6,
        "arg_max": model.n_arg_max_ / 1e3,
        "support": model.n_support_,
    }


def mean_of(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over seeds, and every error."""
    means = {key: float(np.mean([run[key] for run in runs])) for key in NUMBERS}
    return means | {"finished": True, "errors": [run["error"] for run in runs]}


def sklearn_svc(case: Case, data: tuple[np.ndarray, ...]) -> dict[str, Any]:
    X, y, Xt, yt = data
    model = SVC(C=case.C, gamma=case.gamma, cache_size=500)
    began = time.process_time()
    model.fit(X, y)
    seconds = time.process_time() - began
    error = 100 * float(np.mean(model.predict(Xt) != yt))
    return {"seconds": seconds, "error": error, "support": len(model.support_)}


def ablation(case: Case, data: tuple[np.ndarray, ...]) -> dict[str, Any]:
    """Figure 2: one pass with some of the operations."""
    X, y, Xt, yt = data
    kernel, found = Kernel("rbf", case.gamma), {}
    for name, operations in ABLATION.items():
        run = LaRank(
            n_classes=int(y.max()) + 1, n_features=X.shape[1], is_sparse=False, dtype=X.dtype,
            kernel=kernel, seed=0, operations=operations,
        )  # fmt: skip
        order = np.random.default_rng(0).permutation(y.size)
        run.process(run.examples(X, y, np.full(y.size, case.C)), order)
        scores = kernel_matrix(kernel, Xt, run.pattern_rows()) @ run.coefficients().T
        found[f"only {name}"] = {
            "error": 100 * float(np.mean(scores.argmax(axis=1) != yt)),
            "dual": run.dual,
            "kernels": run.counters["kernel_evaluations"] / 1e6,
            "arg_max": run.counters["arg_max"] / 1e3,
            "support": run.n_patterns,
        }
    return found


def others(case: Case, data: tuple[np.ndarray, ...], patience: float) -> dict[str, Any]:
    """Figure 1's other points."""
    X, y, Xt, yt = data
    k, kernel = int(y.max()) + 1, Kernel("rbf", case.gamma)
    matrix = kernel_matrix(kernel, X, X)
    test = kernel_matrix(kernel, Xt, X)
    rows = matrix.__getitem__
    made: dict[str, Trained] = {
        "AvgPerceptronx1": averaged_perceptron(rows, y, k, 1, 0, patience),
        "AvgPerceptronx10": averaged_perceptron(rows, y, k, 10, 0, patience),
        "MIRA": mira(rows, y, k, case.C, 0, patience),
        "MCSVM": mcsvm(rows, y, k, case.C, case.C, patience),
    }
    return {
        name: {
            "error": 100 * float(np.mean((test @ one.beta).argmax(axis=1) != yt)),
            "kernels": one.kernels / 1e6,
            "arg_max": one.arg_max / 1e3,
            "support": int(np.count_nonzero(one.beta.any(axis=1))),
            "finished": one.finished,
        }
        for name, one in made.items()
    }


def paper(numbers: tuple[float, float, float, float]) -> dict[str, float]:
    return dict(zip(("error", "dual", "kernels", "arg_max"), numbers, strict=True))


def measure(name: str, options: argparse.Namespace) -> dict[str, Any]:
    case, data = CASES[name], load(name, options.data_dir, options.full)
    larank(case, tuple(part[:200] for part in data))  # compile
    once = [larank(case, data, seed=seed) for seed in range(options.seeds)]
    results = {"LaRankx1": mean_of(once), "paper: LaRankx1": paper(case.one)}
    if not options.only_one:
        results["LaRankGap"] = larank(case, data, stop="gap", patience=options.patience)
        results["paper: LaRankGap"] = paper(case.gap)
        results |= ablation(case, data)
    results["scikit-learn SVC"] = sklearn_svc(case, data)
    if not options.no_others:
        results |= others(case, data, options.patience / 4)
    return results


def stream(options: argparse.Namespace) -> list[dict[str, float]]:
    """partial_fit on generated rows: throughput and memory per tenth of the stream."""
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(10, 20)).astype(np.float32)
    model = LaRankSVC(C=1.0, gamma=0.05, max_support=500, cache_size=50, random_state=0)
    lines, chunk = [], 5000
    report = max(chunk, options.stream // 10)
    began = time.process_time()
    end = began + options.patience
    for done in range(chunk, options.stream + 1, chunk):
        y = rng.integers(0, 10, chunk)
        X = centers[y] + 0.7 * rng.normal(size=(chunk, 20)).astype(np.float32)
        model.partial_fit(X, y, classes=np.arange(10))
        if done % report == 0:
            seconds, began = time.process_time() - began, time.process_time()
            line = {
                "rows": done, "rows_per_second": report / seconds, "support": model.n_support_,
                "MiB": resident_bytes() / 2**20, "score": model.score(X, y),
            }  # fmt: skip
            lines.append(line)
            print("  ".join(f"{key} {value:,.4g}" for key, value in line.items()), flush=True)
            if time.process_time() > end:
                break
    return lines


def print_table(name: str, results: dict[str, Any]) -> None:
    print(f"\n{name}\n{HEADERS}")
    for method, row in results.items():
        cells = [f"{row[key]:.4g}" if key in row else "-" for key in NUMBERS]
        method = method if row.get("finished", True) else f">{method}"
        print(f"{method:18}" + "".join(cell.rjust(10) for cell in cells), flush=True)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    folder = os.environ.get("DASK_MCSVM_DATA")
    parser.add_argument(
        "--data-dir", type=Path, default=Path(folder) if folder else None, metavar="DIR",
        help="folder of .npz sets; default: $DASK_MCSVM_DATA, and without it 400 made-up rows",
    )  # fmt: skip
    parser.add_argument("--datasets", default="usps,letter,mnist")
    parser.add_argument("--full", action="store_true", help="all of MNIST")
    parser.add_argument("--no-others", action="store_true", help="no perceptrons, MIRA, MCSVM")
    parser.add_argument("--seeds", type=int, default=5, help="runs of LaRankx1; default 5")
    parser.add_argument(
        "--patience", type=float, default=120.0, help="CPU seconds for one part; default 120"
    )
    parser.add_argument("--plot", type=Path, metavar="DIR", help="figures 1 and 2 as PNG")
    parser.add_argument("--only-one", action="store_true", help="one pass, and scikit-learn's SVC")
    parser.add_argument(
        "--stream", type=int, default=1_000_000, metavar="ROWS", help="partial_fit on so many"
    )
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    env = environment()
    print(describe(env))
    report: dict[str, Any] = {"environment": env, "results": {}}
    for name in filter(None, options.datasets.split(",")):
        report["results"][name] = measure(name, options)
        title = name if options.data_dir else f"{name} (made-up rows with its parameters)"
        print_table(title, report["results"][name])
        for path in draw(name, report["results"][name], options.plot) if options.plot else ():
            print(path)
    if options.stream:
        report["stream"] = stream(options)
    if options.json:
        options.json.write_text(json.dumps(report, indent=1), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
