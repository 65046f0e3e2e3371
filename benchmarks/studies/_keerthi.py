"""Keerthi et al. (2008): figures 1 to 5, tables 4.2 and 4.3.

SECTOR and RCV1 could not be had: clinc150 and reuters52 stand in their places. COVER is a quarter
of covtype, its columns in [0, 1]; MNIST is in [0, 1]. For curves over time they are a third of
MNIST and half of that COVER. No intercept, as in the paper; float64.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

from harness import Case, Result, Table, number
from harness.case import DONE, OVER
from harness.data import Places
from harness.measure import Watch

import numpy as np  # isort: skip, after what sets the folder of compiled code
from baselines import CuttingPlane, ExponentiatedGradient, as_rows

from dask_mcsvm import LinearMCSVC
from dask_mcsvm.solvers.sdm.run import SequentialDual

from ._sets import rows_of
from .threads import QUICK

Found = dict[str, Any]
Cases = Generator[Case, Result | None, None]
#: Names of the paper, our sets, scales.
SETS = {
    "NEWS20": ({"name": "news20_bydate"}, "none"),
    "SECTOR": ({"name": "clinc150"}, "none"),
    "MNIST": ({"name": "mnist"}, str(1 / 255)),
    "RCV1": ({"name": "reuters52"}, "none"),
    "COVER": ({"name": "covtype", "rows": 116_000}, "columns"),
}
DENSE = ("MNIST", "COVER")
#: Rows of dense sets for curves over time.
FEWER = {"MNIST": 20_000, "COVER": 58_000}
#: CPU seconds of a curve; six where a set has no entry.
SECONDS = {"MNIST": 12, "COVER": 12}
LONG = {"cs": "crammer_singer", "ww": "weston_watkins", "ovr": "one_vs_rest"}
SCHEDULES = ("in order", "shuffled", "shrinking", "shrinking and cooling", "adaptive")
OTHERS = ("exponentiated gradient", "cutting plane")
C_VALUES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
SPLITS = 10
#: Mean and deviation of the accuracy, %: tables 4.2 and 4.3 of the paper.
PAPER = {
    "NEWS20": ("85.39 ± 0.37", "85.26 ± 0.37", "85.10 ± 0.43", "0.43", "0.0039"),
    "SECTOR": ("94.83 ± 0.56", "95.17 ± 0.62", "94.37 ± 0.57", "0.01", "0.0020"),
    "MNIST": ("91.46 ± 0.23", "92.50 ± 0.20", "91.84 ± 0.21", "0.0020", "0.0020"),
    "RCV1": ("90.85 ± 0.10", "91.19 ± 0.07", "91.10 ± 0.11", "0.0020", "0.0020"),
    "COVER": ("71.35 ± 0.33", "72.31 ± 0.37", "72.40 ± 0.25", "0.01", "0.0020"),
}


def sets(quick: bool, fewer: bool = True) -> dict[str, tuple[dict[str, Any], str]]:
    if quick:
        return {"MNIST": (QUICK["few classes"], "none")}
    if not fewer:
        return SETS
    return {
        name: (data | ({"rows": FEWER[name]} if name in FEWER else {}), scale)
        for name, (data, scale) in SETS.items()
    }


def cases(quick: bool) -> Iterator[Case]:
    have = sets(quick)
    for name in have:
        seconds = 0.3 if quick else SECONDS.get(name, 6)
        for C in (1.0, 0.1, 10.0) if name == "MNIST" and not quick else (1.0,):
            yield race(have[name], "cs", C, "optimum", seconds)
            for method in ("adaptive", "shrinking and cooling", *OTHERS):
                yield race(have[name], "cs", C, method, seconds)
    for name in sorted(set(have) & set(DENSE)):
        seconds = 0.3 if quick else SECONDS[name]
        for formulation in ("cs", "ww", "ovr"):
            yield race(have[name], formulation, 1.0, "shuffled", seconds)
        yield race(have[name], "ww", 1.0, "optimum", seconds)
        for formulation in ("cs", "ww"):
            for method in SCHEDULES[-2:] if quick else SCHEDULES:
                yield race(have[name], formulation, 1.0, method, seconds)


def split_cases(quick: bool) -> Iterator[Case]:
    """By number of split, so that an early end leaves whole splits of all sets."""
    for split in range(2 if quick else SPLITS):
        for data, scale in sets(quick, fewer=False).values():
            yield Case(data, "_keerthi:splits", {}, {"scale": scale, "split": split})


def race(
    given: tuple[dict[str, Any], str], formulation: str, C: float, method: str, seconds: float
) -> Case:
    data, scale = given
    options = {"scale": scale, "method": method, "seconds": seconds}
    return Case(data, "_keerthi:run", {"formulation": formulation, "C": C}, options)


# -- methods ---------------------------------------------------------------------------------------


def run(case: Case, places: Places, limit: float) -> Found:
    """One method for so many CPU seconds: seconds, dual and test accuracy on the way."""
    X, y, X_test, y_test = rows_of(case, places)
    given, method = case.params, case.options["method"]
    k, seconds = int(np.unique(y).size), case.options["seconds"]
    if method == "optimum":
        return optimum(X, y, given, 10 * seconds)
    few = np.unique(np.linspace(0, y.size - 1, 50).astype(int))
    start(method, X[few], y[few], int(y.max()) + 1, given).advance()  # compiles
    one = start(method, X, y, int(y.max()) + 1, given)
    curve, spent, wanted = [], 0.0, 0.0
    with Watch(20 * seconds + 600) as watch:
        while spent < seconds:
            begun = time.process_time()
            one.advance()
            spent += time.process_time() - begun
            if spent >= wanted:  # points of a curve over the logarithm of time
                wanted = spent * 1.15
                right = np.asarray((X_test @ one.W).argmax(axis=1) == y_test)
                curve.append([round(spent, 4), float(one.dual()), float(right.mean())])
    return watch.found | {"seconds": spent, "curve": curve, "k": k, "n": int(y.size)}


def optimum(X: Any, y: np.ndarray, given: Found, seconds: float) -> Found:
    stop = (lambda record: record["seconds"] > seconds,)
    model = LinearMCSVC(
        formulation=LONG[given["formulation"]], C=given["C"], tol=1e-5, dtype="float64",
        fit_intercept=False, random_state=0, max_epochs=10**6, callbacks=stop,
    ).fit(X, y)  # fmt: skip
    return {
        "dual": model.dual_, "objective": model.primal_, "gap": model.gap_,
        "status": OVER if model.stop_ == "callback" else DONE,
        "seconds": model.history_[-1]["seconds"],
    }  # fmt: skip


def start(method: str, X: Any, y: np.ndarray, k: int, given: Found) -> Any:
    if method == "exponentiated gradient":
        return ExponentiatedGradient(as_rows(X), y, k, given["C"])
    if method == "cutting plane":
        return CuttingPlane(as_rows(X), y, k, given["C"])
    return Sequential(method, X, y, k, given)


class Sequential:
    """A schedule of the sequential dual method, a quarter of an epoch at a time where it can."""

    def __init__(self, method: str, X: Any, y: np.ndarray, k: int, given: Found) -> None:
        n = y.size
        self.inner = SequentialDual(
            X.astype(np.float64), y, np.full(n, given["C"]), n_classes=k, tau=0.0, seed=0,
            formulation=LONG[given["formulation"]],
        )  # fmt: skip
        self.method, self.rng = method, np.random.default_rng(0)
        self.left: list[np.ndarray] = []

    def advance(self) -> None:
        inner = self.inner
        if self.method == "adaptive":
            inner.adaptive_epoch()
        elif self.method.startswith("shrinking"):
            inner.shrink_epoch(cooling=self.method.endswith("cooling"))
        else:
            if not self.left:
                is_ordered = self.method == "in order"
                order = inner.visited if is_ordered else self.rng.permutation(inner.visited)
                self.left = np.array_split(order, 4)
            inner._full(self.left.pop(0), adapt=False)

    @property
    def W(self) -> np.ndarray:
        return np.asarray(self.inner.W[:-1])

    def dual(self) -> float:
        return float(self.inner.dual)


def splits(case: Case, places: Places, limit: float) -> Found:
    """A split 60/20/20: C by validation, then train and validation rows together."""
    import scipy.sparse as sp
    from sklearn.model_selection import train_test_split

    X, y, X_test, y_test = rows_of(case, places)
    X = sp.vstack([X, X_test], format="csr") if sp.issparse(X) else np.vstack([X, X_test])
    y, seed = np.concatenate([y, y_test]), case.options["split"]
    few = np.bincount(y)[y] < 5  # too few for strata: they share one
    strata = np.where(few, -1, y)
    rest, test = train_test_split(np.arange(y.size), test_size=0.2, random_state=seed,
                                  stratify=strata)  # fmt: skip
    train, held = train_test_split(rest, test_size=0.25, random_state=seed, stratify=strata[rest])
    found: Found = {}
    begun = time.process_time()
    for short, formulation in LONG.items():
        model = LinearMCSVC(
            formulation=formulation, tol=1e-2, fit_intercept=False, random_state=0,
            max_epochs=300,
        )  # fmt: skip
        path = model.path(X[train], y[train], C_VALUES, (X[held], y[held]))
        best = path.Cs[path.best_index]
        model.set_params(C=best).fit(X[rest], y[rest])
        found[short] = {"C": best, "accuracy": float(model.score(X[test], y[test]))}
    return found | {"seconds": time.process_time() - begun, "n": int(train.size)}


# -- what is shown ---------------------------------------------------------------------------------


def races(results: Sequence[Result]) -> list[Result]:
    return [r for r in results if r.case.method == "_keerthi:run" and r["curve"]]


def name_of(result: Result, quick: bool = False) -> str:
    for name, (data, _) in SETS.items():
        if data["name"] == result.case.data["name"]:
            return name
    return "generated"


def best_dual(result: Result, results: Sequence[Result]) -> float:
    """The largest dual that any run on the same problem reached."""
    same = [
        r for r in results
        if r.case.method == "_keerthi:run" and r.case.data == result.case.data
        and r.case.params == result.case.params
    ]  # fmt: skip
    duals = [r["dual"] for r in same if r["dual"] is not None]
    return max([*duals, *(point[1] for r in same for point in r["curve"] or ())])


def seconds_to(result: Result, difference: float, best: float) -> str:
    for seconds, dual, _ in result["curve"]:
        if (best - dual) / best <= difference:
            return f"{seconds:.2g}"
    return f"> {result['seconds']:.2g}"


def tables(results: Sequence[Result]) -> dict[str, Table]:
    return {
        "keerthi_heuristics": heuristics(results), "keerthi_methods": methods(results),
        "keerthi_time": over_time(results), "keerthi_accuracy": accuracy(results),
    }  # fmt: skip


def heuristics(results: Sequence[Result]) -> Table:
    heads = ("set, formulation, visits", "10 %", "1 %", "0.1 %", "0.01 %", "difference at the end")
    rows = []
    for r in races(results):
        method = r.case.options["method"]
        if name_of(r) in (*DENSE, "generated") and method in SCHEDULES and r.case.params["C"] == 1:
            best = best_dual(r, results)
            label = f"{name_of(r)}, {r.case.params['formulation'].upper()}, {method}"
            last = (best - r["curve"][-1][1]) / best
            cells = [seconds_to(r, by, best) for by in (0.1, 0.01, 1e-3, 1e-4)]
            if r.case.params["formulation"] != "ovr":
                rows.append([label, *cells, f"{last:.1e}"])
    return Table(heads, sorted(rows, key=lambda row: row[0].rsplit(",", 1)[0]))


def methods(results: Sequence[Result]) -> Table:
    heads = (
        "set, C, method", "10 %", "1 %", "0.1 %", "difference at the end", "accuracy at the end",
        "seconds to within 0.1 of it",
    )  # fmt: skip
    rows = []
    for r in races(results):
        method = r.case.options["method"]
        if r.case.params["formulation"] != "cs" or method in ("in order", "shuffled", "shrinking"):
            continue
        best, curve = best_dual(r, results), r["curve"]
        near = next(s for s, _, a in curve if a >= curve[-1][2] - 1e-3)
        rows.append([
            f"{name_of(r)}, {r.case.params['C']:g}, {method}",
            *(seconds_to(r, by, best) for by in (0.1, 0.01, 1e-3)),
            f"{(best - curve[-1][1]) / best:.1e}", f"{curve[-1][2]:.2%}", f"{near:.2g}",
        ])  # fmt: skip
    return Table(heads, rows)


def over_time(results: Sequence[Result]) -> Table:
    """Figure 5."""
    heads = ("set, formulation", "after 1 epoch", "after 4", "at the end", "seconds an epoch")
    rows = []
    for r in races(results):
        if r.case.options["method"] == "shuffled":
            curve = r["curve"]
            epoch = 4 * curve[0][0]
            at = [next((a for s, _, a in curve if s >= e * epoch), curve[-1][2]) for e in (1, 4)]
            cells = [f"{a:.2%}" for a in (*at, curve[-1][2])]
            label = f"{name_of(r)}, {r.case.params['formulation'].upper()}"
            rows.append([label, *cells, f"{epoch:.2g}"])
    return Table(heads, rows)


def accuracy(results: Sequence[Result]) -> Table:
    """Tables 4.2 and 4.3, ours above the paper's."""
    heads = ("set", "splits", "OVR", "CS", "WW", "p, OVR and CS", "p, OVR and WW")
    rows = []
    for name, paper in PAPER.items():
        found = [r for r in results if r.case.method == "_keerthi:splits" and r["cs"]]
        own = [r for r in found if name_of(r) == name]
        if own:
            values = {f: np.array([100 * r[f]["accuracy"] for r in own]) for f in LONG}
            cells = [
                f"{values[f].mean():.2f} ± {values[f].std(ddof=min(1, len(own) - 1)):.2f}"
                for f in ("ovr", "cs", "ww")
            ]
            tests = [wilcoxon(values["ovr"], values[f]) for f in ("cs", "ww")]
            label = f"{name}: {own[0].case.data['name']}"
            rows.append([label, number(own[0], "n") and str(len(own)), *cells, *tests])
            rows.append([f"{name}: paper", "10", *paper])
    return Table(heads, rows)


def wilcoxon(one: np.ndarray, other: np.ndarray) -> str:
    from scipy.stats import wilcoxon as test

    if one.size < 5 or not np.any(one != other):
        return "-"
    return f"{test(one, other).pvalue:.2g}"


def pictures(results: Sequence[Result], folder: Path) -> None:
    """Figures 1 and 4, 2 and 3, 5."""
    found = races(results)
    if not found:
        return
    panels = [(n, f) for n in DENSE for f in ("cs", "ww")]
    draw(folder / "papers-heuristics.png", [
        (f"{n}, {f.upper()}", [
            (r.case.options["method"], *distance(r, results)) for r in found
            if name_of(r) == n and r.case.params == {"formulation": f, "C": 1.0}
            and r.case.options["method"] in SCHEDULES
        ], "(f* - f) / f*") for n, f in panels
    ], 4)  # fmt: skip
    methods = ("adaptive", "shrinking and cooling", *OTHERS)
    problems = [(n, 1.0) for n in SETS] + [("MNIST", 0.1), ("MNIST", 10.0)]
    both = []
    for n, C in problems:
        runs = [
            r for r in found if name_of(r) == n
            and r.case.params == {"formulation": "cs", "C": C}
            and r.case.options["method"] in methods
        ]  # fmt: skip
        lines = [(r.case.options["method"], *distance(r, results)) for r in runs]
        both.append((f"{n}, C = {C:g}", lines, "(f* - f) / f*"))
        lines = [(r.case.options["method"], *right(r)) for r in runs]
        both.append((f"{n}, C = {C:g}", lines, "accuracy, %"))
    draw(folder / "papers-methods.png", both, 4)
    draw(folder / "papers-formulations.png", [
        (n, [(r.case.params["formulation"].upper(), *right(r)) for r in found
             if name_of(r) == n and r.case.options["method"] == "shuffled"], "accuracy, %")
        for n in DENSE
    ], 2)  # fmt: skip


def distance(r: Result, results: Sequence[Result]) -> tuple[list[float], list[float]]:
    best = best_dual(r, results)
    points = [(s, (best - dual) / best) for s, dual, _ in r["curve"]]
    return [s for s, _ in points], [max(v, 1e-9) for _, v in points]


def right(r: Result) -> tuple[list[float], list[float]]:
    return [point[0] for point in r["curve"]], [100 * point[2] for point in r["curve"]]


Panel = tuple[str, list[tuple[str, list[float], list[float]]], str]


def draw(path: Path, panels: list[Panel], columns: int, x: str = "CPU seconds") -> None:
    """Lines in panels over a logarithmic axis; a vertical axis of differences is one, too."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    panels = [panel for panel in panels if panel[1]]
    if not panels:
        return
    columns = min(columns, len(panels))
    height = -(-len(panels) // columns)
    figure, axes = plt.subplots(
        height, columns, figsize=(3.4 * columns, 2.8 * height), squeeze=False,
        layout="constrained",
    )  # fmt: skip
    names = list(dict.fromkeys(line[0] for _, lines, _ in panels for line in lines))
    for axis, (title, lines, label) in zip(axes.flat, panels, strict=False):
        for name, across, up in lines:
            axis.plot(across, up, ".-", ms=3, color=f"C{names.index(name)}")
        axis.set(title=title, xscale="log", xlabel=x, ylabel=label)
        if "f*" in label:
            axis.set_yscale("log")
            axis.set_ylim(1e-7, 2)
    for axis in list(axes.flat)[len(panels) :]:
        axis.remove()
    handles = [plt.Line2D([], [], color=f"C{i}") for i in range(len(names))]
    figure.legend(handles, names, loc="outside lower center", ncols=len(names), fontsize=8)
    folder = path.parent
    folder.mkdir(exist_ok=True)
    figure.savefig(path, dpi=100)
    plt.close(figure)
