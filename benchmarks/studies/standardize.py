"""Standardized columns: epochs, time and accuracy as they come, standardized here, and by a scaler.

"scaler" is scikit-learn's StandardScaler and a fit on its dense rows; its time counts both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.measure import Watch  # isort: skip, before numba

import numpy as np
import scipy.sparse as sp
from harness import Case, Result, Table, number
from harness.case import DONE
from harness.data import Dataset, Places, load
from harness.methods import Found, estimator, facts, quiet
from threadpoolctl import threadpool_limits

from .threads import QUICK

#: As in the source: columns of unlike scales, and pixels from 0 to 255; with C for all ways.
DENSE = {"covtype": 1e-3, "mnist": 1e-4}
#: Rows of unit length, with C = 1; standardized their squared length is the number of features.
TEXT = ("reuters52", "trec50", "banking77", "clinc150", "news20_bydate")
STANDARD_C = 1e-4
WAYS = {"as they come": False, "standardize=True": True, 'standardize="scale"': "scale"}
SCALER = "scaler"
#: Of news20_bydate a dense copy takes 2.5 GB.
TOO_LARGE = ("news20_bydate",)


def cases(quick: bool) -> Iterator[Case]:
    for data in QUICK.values() if quick else ({"name": name} for name in (*DENSE, *TEXT)):
        name = data["name"]
        for way, value in (WAYS | {SCALER: None}).items():
            C = DENSE.get(name, STANDARD_C if value is not False else 1.0)
            params = {"C": C} if value is None else {"C": C, "standardize": value}
            if way != SCALER or name not in TOO_LARGE:
                yield Case(data, "standardize:fitted", params, {"way": way})


def fitted(case: Case, places: Places, limit: float) -> Found:
    """A fit, and the share of test rows that it gets right."""
    data = load(case.data, places, test=True)
    assert data.test is not None
    X_test, y_test = data.test
    with quiet(), threadpool_limits(1):
        compile_all(case, data, limit)
        model = estimator(case, limit)
        with Watch(2 * limit + 60) as watch:
            X = data.X
            if case.options["way"] == SCALER:
                X, X_test = scaled(X, X_test)
            model.fit(X, data.y)
        right = model.predict(X_test) == y_test
    more = {"n": int(data.y.size), "accuracy": float(np.mean(right))}
    return watch.found | facts(model) | more


def compile_all(case: Case, data: Dataset, limit: float) -> None:
    """A few rows by each solver that may take all of them."""
    X = data.X[: max(500, data.k)]
    y = np.arange(X.shape[0]) % data.k
    is_sparse = data.is_sparse and case.options["way"] != SCALER
    if data.is_sparse and not is_sparse:
        X = X.toarray()
    for solver in ("sdm",) if is_sparse else ("sdm", "splitting"):
        if solver == "sdm" or X.shape[1] <= 1000:
            estimator(case, limit, max_epochs=1, solver=solver).fit(X, y)


def scaled(X: object, X_test: object) -> tuple[np.ndarray, np.ndarray]:
    """Dense standardized copies, in float32."""
    from sklearn.preprocessing import StandardScaler

    both = [part.toarray() if sp.issparse(part) else part for part in (X, X_test)]
    scaler = StandardScaler(copy=False)
    return scaler.fit_transform(both[0]), scaler.transform(both[1])


def tables(results: Sequence[Result]) -> dict[str, Table | str]:
    heads = (
        "set, columns", "C", "solver", "epochs", "gap", "CPU seconds", "peak MB beyond rows",
        "accuracy",
    )  # fmt: skip
    return {"columns": Table(heads, [row(result) for result in results])}


def row(result: Result) -> list[str]:
    name = str(result.case.data["name"])
    name = f"{name}, {result['k']} classes" if name == "generated" else name
    name = f"{name}, {result.case.options['way']}"
    if result.status != DONE and result["epochs"] is None:
        return [name, f"{result.case.params['C']:g}", *["-"] * 3, number(result), "-", "-"]
    return [
        name, f"{result.case.params['C']:g}", str(result["solver"]), number(result, "epochs"),
        f"{result['gap']:.1e}", f"{result['cpu_seconds']:.1f}", number(result, "peak_bytes", 1e6),
        f"{result['accuracy']:.2%}",
    ]  # fmt: skip
