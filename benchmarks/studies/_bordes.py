"""Bordes et al. (2007): tables 2 and 3, figures 1 and 2.

USPS is scaled by 0.61, which gives the paper's optimal dual (its scale is not stated). LETTER: the
first 16,000 rows train. MNIST: all rows for LaRank, one pass; 6,000 for the others, which hold all
kernel values. INEX could not be had: 20 Newsgroups with a linear kernel and INEX's C instead.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from harness import Case, Result, Table, number
from harness.case import DONE
from harness.data import Places
from harness.measure import Watch

import numpy as np  # isort: skip, after what sets the folder of compiled code
import baselines

from dask_mcsvm import LaRankSVC
from dask_mcsvm.solvers.larank import Kernel, LaRank, kernel_matrix

from ._keerthi import draw
from ._sets import compare, rows_of
from .threads import QUICK

Found = dict[str, Any]
#: Sets, scales, C, gamma (0: a linear kernel).
SETS = {
    "USPS": ({"name": "usps"}, "0.61", 10.0, 0.025),
    "LETTER": ({"name": "letter"}, "none", 10.0, 0.025),
    "INEX": ({"name": "news20_bydate"}, "none", 100.0, 0.0),
    "MNIST, 6,000": ({"name": "mnist", "rows": 6000}, str(2 / 255), 1000.0, 0.005),
    "MNIST": ({"name": "mnist"}, str(2 / 255), 1000.0, 0.005),
}
LETTER_ROWS = 16_000
#: Error %, dual, seconds, millions of kernel values, thousands of searches: tables 2 and 3.
PAPER = {
    ("USPS", "MCSVM"): (4.24, 537, 60, 51.2, None),
    ("USPS", "SVMstruct"): (4.38, 528, 6300, 1063.3, 56),
    ("USPS", "LaRankGap"): (4.38, 518, 175, 13.7, 86),
    ("USPS", "LaRankx1"): (4.25, 503, 85, 9.4, 25),
    ("USPS", "AvgPerceptronx1"): (None, None, None, None, 7),
    ("USPS", "AvgPerceptronx10"): (None, None, None, None, 73),
    ("LETTER", "MCSVM"): (2.42, 5548, 1200, 241, None),
    ("LETTER", "SVMstruct"): (2.40, 5495, 23000, 2083, 141),
    ("LETTER", "LaRankGap"): (2.40, 5462, 2900, 156, 550),
    ("LETTER", "LaRankx1"): (2.80, 5226, 940, 55, 190),
    ("LETTER", "AvgPerceptronx1"): (None, None, None, None, 16),
    ("LETTER", "AvgPerceptronx10"): (None, None, None, None, 160),
    ("INEX", "MCSVM"): (26.26, 235204, 520, 32.9, None),
    ("INEX", "SVMstruct"): (26.25, 235631, 14500, None, 78),
    ("INEX", "LaRankGap"): (26.25, 235183, 1050, 19.3, 73),
    ("INEX", "LaRankx1"): (27.20, 214224, 300, 17.2, 28),
    ("MNIST", "MCSVM"): (1.44, 3718, 25000, 6908, None),
    ("MNIST", "SVMstruct"): (1.40, 3730, 265000, 158076, 559),
    ("MNIST", "LaRankGap"): (1.44, 3718, 82000, 4769, 2020),
    ("MNIST", "LaRankx1"): (1.41, 3608, 30000, 399, 200),
}
METHODS = (
    "LaRankx1", "LaRankGap", "MCSVM", "SVMstruct", "AvgPerceptronx1", "AvgPerceptronx10", "MIRA",
    "SVC",
)  # fmt: skip
#: The working sets' tolerance, SVMstruct's own default.
EPSILON = 0.1
OPERATIONS = {
    "ProcessNew": (1.0, 0.0, 0.0), "ProcessNew, ProcessOld": (1.0, 1.0, 0.0),
    "ProcessNew, Optimize": (1.0, 0.0, 1.0), "all": (1.0, 1.0, 1.0),
}  # fmt: skip
SEEDS, POINTS = 3, 12


def cases(quick: bool) -> Iterator[Case]:
    sets = {"USPS": (QUICK["few classes"], "none", 1.0, 0.5)} if quick else SETS
    for name, (data, scale, C, gamma) in sets.items():
        for method in METHODS[:1] if name == "MNIST" else METHODS:
            for seed in range(1 if quick or name == "MNIST" or method != "LaRankx1" else SEEDS):
                options = {"scale": scale, "method": method, "seed": seed}
                yield Case(data, "_bordes:fit", {"C": C, "gamma": gamma}, options)
        if name == "USPS":
            for only in OPERATIONS:
                options = {"scale": scale, "method": only, "seed": 0}
                yield Case(data, "_bordes:fit", {"C": C, "gamma": gamma}, options)


# -- methods ---------------------------------------------------------------------------------------


def fit(case: Case, places: Places, limit: float) -> Found:
    """Error, dual, kernel values, searches and CPU seconds of a method."""
    X, y, X_test, y_test = rows_of(case, places)
    if case.data["name"] == "letter":
        X, y = np.vstack([X, X_test]), np.concatenate([y, y_test])
        X, X_test, y, y_test = *np.split(X, [LETTER_ROWS]), *np.split(y, [LETTER_ROWS])
    rows, method = (X, y, X_test, y_test), case.options["method"]
    with Watch(5 * limit) as watch:
        if method in OPERATIONS:
            found = some_operations(case, *rows)
        elif method.startswith("LaRank"):
            found = larank(case, limit, *rows)
        elif method == "SVC":
            found = svc(case, *rows)
        else:
            found = other(case, *rows)
    return watch.found | {"n": int(y.size), "k": int(y.max()) + 1} | found


def larank(case: Case, limit: float, X: Any, y: Any, X_test: Any, y_test: Any) -> Found:
    """One pass in pieces of a random order, looked at after each; or to the gap."""
    one = case.options["method"] == "LaRankx1"
    given = case.params
    model = LaRankSVC(
        C=given["C"], kernel="rbf" if given["gamma"] else "linear",
        gamma=given["gamma"] or "auto", random_state=case.options["seed"],
        shuffle=not one, stop="epochs" if one else "gap",
        callbacks=() if one else (lambda record: record["seconds"] > 2 * limit,),
    )  # fmt: skip
    curve: list[tuple[float, float]] = []
    spent = 0.0
    if one:
        from sklearn.base import clone

        clone(model).fit(X[:100], y[:100])  # compiles
        order = np.random.default_rng(case.options["seed"]).permutation(y.size)
        cuts = np.unique(np.geomspace(100, y.size, POINTS).astype(int))
        for part in np.split(order, cuts[:-1]):
            begun = time.process_time()
            model.partial_fit(X[part], y[part], classes=np.arange(int(y.max()) + 1))
            spent += time.process_time() - begun
            error = float(np.mean(model.predict(X_test) != y_test))
            curve.append((model.kernel_evaluations_ / 1e6, error))
    else:
        model.set_params(max_epochs=1).fit(X[:100], y[:100])
        begun = time.process_time()
        model.set_params(max_epochs=None).fit(X, y)
        spent = time.process_time() - begun
    return compare(y_test, model.predict(X_test)) | {
        "cpu": spent, "dual": model.dual_, "kernels": model.kernel_evaluations_ / 1e6,
        "arg_max": model.n_arg_max_ / 1e3, "support": model.n_support_, "curve": curve,
        "stopped": model.stop_ == "callback",
    }  # fmt: skip


def some_operations(case: Case, X: Any, y: Any, X_test: Any, y_test: Any) -> Found:
    """Figure 2: one pass with some of the operations."""
    kernel = Kernel("rbf", case.params["gamma"])
    run = LaRank(
        n_classes=int(y.max()) + 1, n_features=X.shape[1], is_sparse=not isinstance(X, np.ndarray),
        dtype=X.dtype, kernel=kernel, seed=0, operations=OPERATIONS[case.options["method"]],
    )  # fmt: skip
    order = np.random.default_rng(0).permutation(y.size)
    begun = time.process_time()
    run.process(run.examples(X, y, np.full(y.size, case.params["C"])), order)
    spent = time.process_time() - begun
    scores = kernel_matrix(kernel, X_test, run.pattern_rows()) @ run.coefficients().T
    return compare(y_test, scores.argmax(axis=1)) | {
        "cpu": spent, "dual": run.dual, "kernels": run.counters["kernel_evaluations"] / 1e6,
        "arg_max": run.counters["arg_max"] / 1e3, "support": run.n_patterns,
    }  # fmt: skip


def kernels(gamma: float, X: Any, Z: Any) -> np.ndarray:
    if gamma:
        return kernel_matrix(Kernel("rbf", gamma), X, Z)
    products = X @ Z.T
    dense = products if isinstance(products, np.ndarray) else products.toarray()
    return np.ascontiguousarray(dense, np.float32)


def other(case: Case, X: Any, y: Any, X_test: Any, y_test: Any) -> Found:
    C, gamma, method = case.params["C"], case.params["gamma"], case.options["method"]
    k = int(y.max()) + 1
    K = kernels(gamma, X, X)
    calls = {
        "MCSVM": lambda K, y: baselines.mcsvm(K, y, k, C, C),
        "SVMstruct": lambda K, y: baselines.svm_struct(K, y, k, C, EPSILON),
        "AvgPerceptronx1": lambda K, y: baselines.averaged_perceptron(K, y, k, 1),
        "AvgPerceptronx10": lambda K, y: baselines.averaged_perceptron(K, y, k, 10),
        "MIRA": lambda K, y: baselines.mira(K, y, k, C),
    }
    calls[method](np.ascontiguousarray(K[:40, :40]), y[:40])  # compiles
    begun = time.process_time()
    found = calls[method](K, y)
    spent = time.process_time() - begun
    scores = kernels(gamma, X_test, X) @ found.beta
    return compare(y_test, scores.argmax(axis=1)) | {
        "cpu": spent, "kernels": found.kernels / 1e6, "arg_max": found.arg_max / 1e3,
        "support": int(np.count_nonzero(found.beta.any(axis=1))),
        "dual": None if "Perceptron" in method else found.dual(K, y),
    }  # fmt: skip


def svc(case: Case, X: Any, y: Any, X_test: Any, y_test: Any) -> Found:
    import scipy.sparse as sp
    from sklearn.svm import SVC

    if sp.issparse(X):
        X, X_test = sp.csr_matrix(X), sp.csr_matrix(X_test)
        for rows in (X, X_test):
            rows.indices, rows.indptr = rows.indices.astype("i4"), rows.indptr.astype("i4")
    gamma = case.params["gamma"]
    model = SVC(C=case.params["C"], kernel="rbf" if gamma else "linear",
                gamma=gamma or "auto", cache_size=500)  # fmt: skip
    begun = time.process_time()
    model.fit(X, y)
    spent = time.process_time() - begun
    found = {"cpu": spent, "support": int(model.n_support_.sum())}
    return compare(y_test, model.predict(X_test)) | found


# -- what is shown ---------------------------------------------------------------------------------


def of(results: Sequence[Result], name: str, method: str) -> list[Result]:
    data = SETS[name][0]
    return [
        r for r in results if r.case.method == "_bordes:fit" and r.case.data == data
        and r.case.options["method"] == method
    ]  # fmt: skip


def show(value: float | None, form: str = ".3g") -> str:
    return "-" if value is None else format(value, form)


def tables(results: Sequence[Result]) -> dict[str, Table]:
    return {"bordes": methods(results), "bordes_operations": operations(results)}


def methods(results: Sequence[Result]) -> Table:
    """Tables 2 and 3."""
    heads = ("set, method", "error %", "paper", "dual", "paper", "CPU s", "paper",
             "kernel values, millions", "paper", "searches, thousands", "paper",
             "support patterns")  # fmt: skip
    rows = []
    for name in SETS:
        for method in METHODS:
            found = of(results, name, method)
            done = [r for r in found if r.status == DONE]
            if not found:
                continue
            theirs = PAPER.get((name, method), (None,) * 5)
            ours = (mean(done, "error", 100), mean(done, "dual"), mean(done, "cpu"),
                    mean(done, "kernels"), mean(done, "arg_max"))  # fmt: skip
            cells = []
            forms = (".2f", ".0f", ".3g", ".3g", ".3g")
            for one, other_, form in zip(ours, theirs, forms, strict=True):
                cells += [show(one, form), show(other_, ".2f" if form == ".2f" else "g")]
            if not done:
                cells[4] = number(found[0])
            elif any(r["stopped"] for r in done):
                cells[4] = f"> {cells[4]}"
            support = mean(done, "support")
            rows.append([f"{name}, {method}", *cells, show(support, ".0f")])
    return Table(heads, rows)


def mean(results: Sequence[Result], name: str, factor: float = 1.0) -> float | None:
    values = [r[name] for r in results if r[name] is not None]
    return factor * float(np.mean(values)) if values else None


def operations(results: Sequence[Result]) -> Table:
    """Figure 2."""
    heads = ("operations, one pass of USPS", "error %", "dual", "kernel values, millions",
             "searches, thousands", "support patterns", "CPU s")  # fmt: skip
    rows = []
    for method in OPERATIONS:
        for r in of(results, "USPS", method):
            names = ("dual", "kernels", "arg_max", "support", "cpu")
            rows.append([method, f"{100 * r['error']:.2f}", *(show(r[n]) for n in names)])
    return Table(heads, rows)


def pictures(results: Sequence[Result], folder: Path) -> None:
    """Figure 1: error over kernel values."""
    panels = []
    for name in SETS:
        lines = []
        for method in METHODS:
            found = [r for r in of(results, name, method) if r.status == DONE and r["kernels"]]
            if found:
                points = found[0]["curve"] or [(found[0]["kernels"], found[0]["error"])]
                across, up = zip(*points, strict=True)
                lines.append((method, list(across), [100 * value for value in up]))
        if lines:
            panels.append((name, lines, "error, %"))
    if panels:
        draw(folder / "papers-larank.png", panels, 3, "kernel values, millions")
