"""Thousands of classes: what a W of lists takes, what others take, and how fast it predicts."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from harness import Case, Result, Table, best, number, ratio

MB = 1e6
#: As many classes and features as the larger sets of web pages, and rows to test.
PAGES = {"name": "generated pages", "d": 500_000, "k": 28_000, "test": 10_000}
PAGES_ROWS = (40_000, 100_000, 400_000)
QUICK = {"name": "generated pages", "n": 1_500, "d": 16_000, "k": 600, "test": 200}
#: To compile by: rows of the same types, classes enough for lists.
SMALL = {"name": "generated pages", "n": 1_200, "d": 13_000, "k": 600, "test": 0}
PACKAGES = {"name": "debfiles by package", "parts": 2}
MORE = {"name": "debfiles by package", "parts": 8}
#: LIBLINEAR keeps d·k float64 weights, and 12 bytes for each row and class: together 6 GB.
FEWER = {"name": "debfiles by package", "parts": 2, "classes": 2_000, "rows": 75_000}
LISTED = ("wordnet_hyper", "naics_index", "onet_titles")
#: Fewer classes than lists are for.
ARRAYS = ("news20_bydate", "banking77", "clinc150")
LAYOUTS, REPEATS = ("hybrid", "dense"), 2
PECOS, LIBLINEAR = "PECOS xlinear", "LIBLINEAR -s 4"
TOP = 5
#: Rows that an array scores to see how fast that is, and bytes of one of some classes' weights.
SCORED, BLOCK_BYTES = 10_000, 2**29


def cases(quick: bool) -> Iterator[Case]:
    for data in [QUICK] if quick else [PAGES | {"n": n} for n in PAGES_ROWS]:
        for formulation in ("cs", "ww"):
            yield fit_of(data, formulation)
    if not quick:
        yield fit_of(PACKAGES, "cs")
        yield peer_of(PACKAGES, PECOS, "libpecos")
        yield fit_of(FEWER, "cs")
        yield peer_of(FEWER, LIBLINEAR, "liblinear-multicore")
        yield fit_of(MORE, "cs")
    sets = [QUICK] if quick else [{"name": name} for name in LISTED]
    for data in sets:
        for repeat in range(REPEATS):
            for weights in LAYOUTS:
                yield fit_of(data, "cs", weights, repeat)
    for data in [] if quick else [{"name": name} for name in ARRAYS]:
        yield fit_of(data, "cs")
    for data in sets:
        yield fit_of(data, "ovr")


def fit_of(
    data: dict[str, Any], formulation: str, weights: str | None = None, repeat: int = 0
) -> Case:
    options = {} if weights is None else {"solver_options": {"weights": weights}}
    params = {"formulation": formulation, "tol": 1e-2} | options
    return Case(data, "extreme:fit", params, {}, repeat)


def peer_of(data: dict[str, Any], peer: str, environment: str) -> Case:
    options = {"peer": peer, "environment": environment, "top": TOP}
    return Case(data, "peers:peer", {"C": 1.0}, options)


# -- ours ------------------------------------------------------------------------------------------


def fit(case: Case, places: Any, limit: float) -> dict[str, Any]:
    """Train in memory; then score rows by what the fit left, and by an array of it."""
    from harness import methods
    from harness.data import load
    from harness.measure import Watch
    from threadpoolctl import threadpool_limits

    data, small = load(case.data, places, test=True), load(SMALL, places)
    assert data.test is not None
    with methods.quiet(), threadpool_limits(1):
        for weights in LAYOUTS:  # both are compiled: which one it takes depends on the rows
            how = {"max_epochs": 2, "tol": 0, "solver_options": {"weights": weights}}
            methods.estimator(case, limit, **how).fit(small.X, small.y).predict(small.X)
        model = methods.estimator(case, limit)
        with Watch(2 * limit + 60) as watch:
            model.fit(data.X, data.y)
        X, y = data.test
        return watch.found | methods.shape(data) | methods.facts(model) | {
            "weights": model.plan_.weights, "weights_per_nonzero": model.coef_.size / data.nnz,
        } | ranked(model, X, y)  # fmt: skip


def ranked(model: Any, X: Any, y: np.ndarray) -> dict[str, Any]:
    """Accuracy of the best class and of the best five; rows a second by the model and an array."""
    from harness.measure import Watch

    some = X[:SCORED]
    model.predict_topk(some[:100], TOP)
    with Watch(3600) as watch:
        found = model.predict_topk(X, TOP)
    return {
        "test_rows": int(y.size),
        "accuracy": float(np.mean(found[:, 0] == y)),
        "top_accuracy": float(np.mean((found == y[:, None]).any(axis=1))),
        "rows_a_second": y.size / watch.found["cpu_seconds"],
        "predict_peak": watch.found["peak_bytes"],
        "rows_a_second_by_array": some.shape[0] / product_seconds(model, some),
    }


def product_seconds(model: Any, X: Any) -> float:
    """CPU seconds of the scores and best classes of X by an array of all weights.

    It is made and used for a block of classes, and these seconds, without those to make it, taken
    for all blocks.
    """
    k, d = model.coef_.shape
    width = min(k, max(1, BLOCK_BYTES // (4 * d)))
    some = model.coef_[:width]
    W = np.ascontiguousarray((some.toarray() if hasattr(some, "toarray") else some).T)
    spent = 0.0
    for first in range(0, X.shape[0], 1000):
        rows = X[first : first + 1000]
        begun = time.process_time()
        scores = rows @ W
        np.argpartition(-scores, TOP - 1, axis=1)
        spent += time.process_time() - begun
    return spent * k / width


# -- tables ----------------------------------------------------------------------------------------


def tables(results: Sequence[Result]) -> dict[str, Table | str]:
    ours = [r for r in results if r.case.method == "extreme:fit"]
    asked = [r for r in ours if "solver_options" in r.case.params]
    return {
        "fits": fits([r for r in ours if r not in asked and r.case.params["formulation"] != "ovr"]),
        "others": others([r for r in results if r.case.data["name"] == PACKAGES["name"]]),
        "layouts": layouts(asked),
        "losses": losses(ours),
        "predict": predictions([r for r in ours if r["weights"] == "hybrid"]),
    }


def fits(results: Sequence[Result]) -> Table:
    heads = (
        "set, loss", "classes", "features", "rows", "W is", "gap", "epochs", "CPU seconds",
        "peak MB beyond rows", "MB of an array", "density of W",
    )  # fmt: skip
    rows = []
    for r in results:
        layout = {"hybrid": "lists", "dense": "an array"}.get(r["weights"], "-")
        rows.append([
            name_of(r), *(number(r, name) for name in ("k", "d", "n")), layout, number(r, "gap"),
            number(r, "epochs"), number(r, "cpu_seconds"), number(r, "peak_bytes", MB),
            array_size(r), percent(r, "density"),
        ])  # fmt: skip
    return Table(heads, rows)


def others(results: Sequence[Result]) -> Table:
    heads = (
        "method", "classes", "rows", "gap", "best class right", "among the best five", "seconds",
        "CPU seconds", "peak MB",
    )  # fmt: skip
    rows = [
        [
            r.case.options.get("peer", "Crammer-Singer"), *(number(r, name) for name in ("k", "n")),
            number(r, "gap"), percent(r, "accuracy"), percent(r, "top_accuracy"), number(r),
            number(r, "cpu_seconds"), number(r, "peak_bytes", MB),
        ]
        for r in results
    ]  # fmt: skip
    return Table(heads, rows)


def layouts(results: Sequence[Result]) -> Table:
    """Lists and an array in alternation, the better of each."""
    heads = (
        "set", "classes", "lists, CPU s", "array", "lists over array", "lists, peak MB", "array",
        "epochs: lists", "array",
    )  # fmt: skip
    found: dict[str, dict[str, Result]] = {}
    for r in best(results, "cpu_seconds"):
        layout = r.case.params["solver_options"]["weights"]
        found.setdefault(str(r.case.data), {})[layout] = r
    rows = []
    for sides in found.values():
        one, other = (sides.get(layout) for layout in LAYOUTS)
        shown = one or other
        assert shown is not None
        rows.append([
            str(shown.case.data["name"]), number(shown, "k"), number(one, "cpu_seconds"),
            number(other, "cpu_seconds"), ratio(one, other, "cpu_seconds"),
            number(one, "peak_bytes", MB), number(other, "peak_bytes", MB), number(one, "epochs"),
            number(other, "epochs"),
        ])  # fmt: skip
    return Table(heads, rows)


def losses(results: Sequence[Result]) -> Table:
    """One-vs-rest beside Crammer-Singer by lists."""
    heads = (
        "set", "classes", "CS, CPU s", "OVR", "OVR over CS", "CS, epochs", "OVR", "CS, peak MB",
        "OVR", "CS, best class right", "OVR",
    )  # fmt: skip
    found: dict[str, dict[str, Result]] = {}
    for r in best(results, "cpu_seconds"):
        if r.case.params.get("solver_options") != {"weights": "dense"}:
            found.setdefault(str(r.case.data), {})[r.case.params["formulation"]] = r
    rows = []
    for sides in found.values():
        if "ovr" in sides:
            pair = sides.get("cs"), sides["ovr"]
            cells = [f(r, *how) for f, *how in CELLS for r in pair]
            ratios = ratio(pair[1], pair[0], "cpu_seconds")
            data = sides["ovr"].case.data
            rows.append([str(data["name"]), number(pair[1], "k"), *cells[:2], ratios, *cells[2:]])
    return Table(heads, rows)


def predictions(results: Sequence[Result]) -> Table:
    heads = (
        "set, loss", "classes", "rows", "by lists, rows a second", "by an array",
        "peak MB, with the labels",
    )  # fmt: skip
    rows = [
        [
            name_of(r), number(r, "k"), number(r, "test_rows"), number(r, "rows_a_second"),
            number(r, "rows_a_second_by_array"), number(r, "predict_peak", MB),
        ]
        for r in best(results, "cpu_seconds")
    ]  # fmt: skip
    return Table(heads, rows)


def name_of(result: Result) -> str:
    data = result.case.data
    few = f" {data['rows']:,}" if "rows" in data else ""
    return f"{data['name']}{few}, {result.case.params['formulation'].upper()}"


def array_size(result: Result) -> str:
    if result["k"] is None:
        return "-"
    return f"{4 * result['k'] * result['d'] / MB:,.0f}"


def percent(result: Result | None, name: str) -> str:
    value = None if result is None else result[name]
    return "-" if value is None else f"{100 * value:.3g}%"


#: What the table of losses shows of both.
CELLS: tuple[Any, ...] = (
    (number, "cpu_seconds"), (number, "epochs"), (number, "peak_bytes", MB), (percent, "accuracy"),
)  # fmt: skip
