"""Probabilities of one fit and of five: log loss, Brier score, calibration error, and their cost.

"here" is ``LinearMCSVC(probability=True)``, "dual" the same with scores that the dual variables say
each row would have without itself; the others are scikit-learn's CalibratedClassifierCV around the
same model, five folds. It refuses classes of fewer rows than folds; "shuffled" are five folds
drawn at random, of which some may lack a class: then it says nothing sensible.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from harness.measure import Watch  # isort: skip, before numba

import numpy as np
from harness import Case, Result, Table, number
from harness.case import DONE
from harness.data import Dataset, Places, load
from threadpoolctl import threadpool_limits

from .threads import QUICK

TEXT = (
    "news20_bydate", "reuters52", "trec50", "banking77", "clinc150", "naics_index", "onet_titles",
)  # fmt: skip
#: The scores of all its rows and classes, which scikit-learn holds several times, take 5 GB.
LARGEST = "wordnet_hyper"
METHODS = ("here", "temperature", "sigmoid", "isotonic", "temperature, shuffled", "dual")
#: Rows that a calibration error compares with what was said of them, by confidence.
BINS = 15
COVERED = (1.0, 0.9, 0.8, 0.7, 0.5)

Found = dict[str, Any]


def cases(quick: bool) -> Iterator[Case]:
    for data in QUICK.values() if quick else ({"name": name} for name in TEXT):
        for method in METHODS:
            yield Case(data, "calibration:calibrated", {"C": 1.0}, {"method": method})
    for formulation in ("ww", "ovr"):
        for data in QUICK.values() if quick else ({"name": name} for name in TEXT[:4]):
            for method in METHODS[:2]:
                params = {"C": 1.0, "formulation": formulation}
                yield Case(data, "calibration:calibrated", params, {"method": method})
    if not quick:
        yield Case({"name": LARGEST}, "calibration:calibrated", {"C": 1.0}, {"method": "here"})


def calibrated(case: Case, places: Places, limit: float) -> Found:
    """Fit, and compare what is said of the test rows with what they are."""
    data = load(case.data, places, test=True)
    assert data.test is not None
    X_test, y_test = data.test
    model = estimator(case, data)
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")
        ours(case, probability=True, max_epochs=1).fit(data.X, data.y)  # compiles
        with Watch(limit) as watch:
            try:
                model.fit(data.X, data.y)
            except ValueError as error:
                if "less than" not in str(error):
                    raise
                return watch.found | {"n": data.y.size, "k": data.k, "refused": str(error)}
        if case.options["method"] == "dual":
            model.temperature_ = dual_temperature(model, data)
        P = np.asarray(model.predict_proba(X_test), np.float64)
        known = np.searchsorted(model.classes_, y_test)
    found = {"n": int(data.y.size), "temperature": getattr(model, "temperature_", None)}
    return watch.found | found | {"k": data.k} | compare(P, known)


def estimator(case: Case, data: Dataset) -> Any:
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.model_selection import KFold

    method = case.options["method"]
    if method in ("here", "dual"):
        return ours(case, probability=True, warm_start=method == "dual")
    kind, _, shuffled = method.partition(", ")
    folds = 5
    if shuffled:  # as a list, which it does not count
        folds = list(KFold(5, shuffle=True, random_state=0).split(data.X))
    return CalibratedClassifierCV(ours(case), method=kind, cv=folds, ensemble=not shuffled)


def ours(case: Case, **more: Any) -> Any:
    from dask_mcsvm import LinearMCSVC

    return LinearMCSVC(random_state=0, **case.params, **more)


def dual_temperature(model: Any, data: Dataset) -> float:
    """From s_i - B(alpha_i) A_i [LOO] of all training rows."""
    from dask_mcsvm.formulations import FORMULATIONS, HeldOut, best_temperature

    X, y, alpha = data.X, data.y, model._alpha.alpha
    form = FORMULATIONS[alpha.formulation](alpha.n_classes, alpha.C)
    B = form.coefficients(alpha.to_dense(y), y)
    square = np.asarray(X.multiply(X).sum(axis=1)).ravel() + model.intercept_scaling**2
    scores = model.decision_function(X) - B * square[:, None]
    blocks = np.array_split(np.arange(y.size), 100)
    return best_temperature(HeldOut.of(scores[i], y[i], np.ones(i.size)) for i in blocks)


def compare(P: np.ndarray, y: np.ndarray) -> Found:
    """Scores of probabilities (n, k) of rows with codes y (n,)."""
    own, said, right = P[np.arange(y.size), y], P.max(axis=1), P.argmax(axis=1) == y
    order = np.argsort(-said, kind="stable")
    parts = np.array_split(order, BINS)
    error = sum(part.size * abs(said[part].mean() - right[part].mean()) for part in parts) / y.size
    return {
        "log_loss": float(-np.log(np.maximum(own, np.finfo(np.float64).tiny)).mean()),
        "brier": float((np.square(P).sum(axis=1) - 2 * own + 1).mean()),
        "calibration_error": float(error), "accuracy": float(right.mean()),
        "covered": [float(right[order[: round(share * y.size)]].mean()) for share in COVERED],
    }  # fmt: skip


def tables(results: Sequence[Result]) -> dict[str, Table | str]:
    heads = (
        "set, method", "log loss", "of five folds", "Brier", "calibration error", "accuracy",
        "CPU seconds",
    )  # fmt: skip
    fives = {set_of(r): r for r in reversed(results) if is_five(r)}
    shown = [r for r in results if r.case.options["method"] != "dual"]
    rows = [row(r, fives.get(set_of(r))) for r in shown if not r["refused"]]
    covered = [
        [set_of(r), *(f"{share:.1%}" for share in r["covered"])]
        for r in results if r.case.options["method"] == "here" and r["covered"]
    ]  # fmt: skip
    shares = [f"{share:.0%} answered" for share in COVERED]
    duals = [row(r, fives.get(set_of(r))) for r in results if r.case.options["method"] == "dual"]
    return {
        "all": Table(heads, rows), "coverage": Table(("set", *shares), covered),
        "dual": Table(heads, duals), "refused": refused(results),
    }  # fmt: skip


def refused(results: Sequence[Result]) -> Table | str:
    """Which sets have classes of fewer rows than folds, in a sentence."""
    names = dict.fromkeys(str(r.case.data["name"]) for r in results if r["refused"])
    if not names:
        return Table(("set",), [])
    return f"Five folds are refused for {', '.join(names)}: some class has fewer than five rows."


def is_five(result: Result) -> bool:
    """Whether this is a temperature of five folds, and better than a blind guess."""
    loss = result["log_loss"]
    is_one = str(result.case.options["method"]).startswith("temperature")
    return is_one and loss is not None and loss < 0.9 * float(np.log(result["k"]))


def row(result: Result, five: Result | None) -> list[str]:
    name = f"{set_of(result)}, {result.case.options['method']}"
    if result.status != DONE:
        return [name, *["-"] * 5, number(result, "cpu_seconds")]
    ratio = f"{result['log_loss'] / five['log_loss']:.3f}" if five else "-"
    return [
        name, number(result, "log_loss"), ratio, number(result, "brier"),
        f"{result['calibration_error']:.3f}", f"{result['accuracy']:.1%}",
        number(result, "cpu_seconds"),
    ]  # fmt: skip


def set_of(result: Result) -> str:
    """Name of the set, and the formulation where it is not Crammer-Singer."""
    name, form = str(result.case.data["name"]), result.case.params.get("formulation")
    name = f"{name}, {result['k']} classes" if name == "generated" else name
    return name if form is None else f"{name}, {form}"
