"""CPU seconds to the same objective as LIBLINEAR -s 4, one thread, both sides in one process.

Crammer-Singer, C = 1, no intercept. LIBLINEAR, as scikit-learn's LinearSVC calls it, trains to its
own epsilon; the primal of its W, in float64 by this file alone, is the target. Our seconds are
those of a fit that ends when a certified primal is at most the target. All is compiled before.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from typing import Any

from harness import Case, Result, Table, number
from harness.case import DONE
from harness.data import Places, load
from harness.measure import Watch
from harness.methods import quiet

import numpy as np  # isort: skip, after what sets the folder of compiled code
import scipy.sparse as sp
from sklearn.svm import LinearSVC
from threadpoolctl import threadpool_limits

from dask_mcsvm import LinearMCSVC

from ._sets import scaled
from .threads import QUICK

TEXT = ("news20_bydate", "reuters52", "banking77", "clinc150", "naics_index", "onet_titles")
#: Dense sets and how they are scaled.
DENSE = (
    ("letter", "none"), ("letter", "deviation"), ("usps", "none"), ("usps", "deviation"),
    ("mnist", str(1 / 255)), ("satimage", "deviation"), ("shuttle", "deviation"),
)  # fmt: skip
SCALES = {"none": "raw", "deviation": "standardized", str(1 / 255): "[0, 1]"}
EPSILONS = (0.1, 0.01, 0.001)
#: The gap of the untimed fit that finds the optimum.
OPTIMUM = 1e-5
#: A time below which either side runs twice, and the better one counts.
SHORT = 5.0


def cases(quick: bool) -> Generator[Case, Result | None, None]:
    sets = [(data, "none") for data in QUICK.values()]
    if not quick:
        sets = [({"name": name}, "none") for name in TEXT]
        sets += [({"name": name}, scale) for name, scale in DENSE]
    for data, scale in sets:
        for epsilon in EPSILONS[: 3 if quick or data["name"] in TEXT else 2]:
            result = yield Case(data, "objective:both", {"epsilon": epsilon}, {"scale": scale})
            if result is not None and result.status != DONE:
                break


def both(case: Case, places: Places, limit: float) -> dict[str, Any]:
    """LIBLINEAR's seconds to its epsilon, and ours to its objective."""
    data = load(case.data, places)
    X, _ = scaled(case.options["scale"], data.X, data.X[:1])
    X, y, k = X.astype(np.float32), np.unique(data.y, return_inverse=True)[1], data.k
    rows = as_sklearn_wants(X)
    with quiet(), threadpool_limits(1), Watch(4 * limit + 600):
        ours(1e-3, max_epochs=1).fit(X, y)
        optimum = ours(OPTIMUM, dtype="float64", callbacks=(late(limit),)).fit(X, y).dual_
        theirs, mine = [], []
        while True:
            begun = time.process_time()
            model = liblinear(case.params["epsilon"]).fit(rows, y)
            theirs.append(time.process_time() - begun)
            target = primal(X, y, model.coef_ if k > 2 else np.vstack([-model.coef_, model.coef_]))
            tol = max(1e-6, 0.97 * (target - optimum) / target)
            stop = (reached(target), late(limit))
            begun = time.process_time()
            fit = ours(tol, callbacks=stop).fit(X, y)
            mine.append(time.process_time() - begun)
            if len(mine) == 2 or max(*theirs, *mine) > SHORT:
                break
    return {
        "seconds": min(mine), "theirs": min(theirs), "reached": bool(fit.primal_ <= target),
        "target": target, "objective": fit.primal_, "gap": fit.gap_, "epochs": fit.n_iter_,
        "solver": fit.solver_, "n": int(y.size), "k": k,
    }  # fmt: skip


def ours(tol: float, **more: Any) -> LinearMCSVC:
    return LinearMCSVC(tol=tol, fit_intercept=False, random_state=0, **{"max_epochs": 10**5} | more)


def liblinear(epsilon: float) -> LinearSVC:
    return LinearSVC(
        multi_class="crammer_singer", tol=epsilon, fit_intercept=False, random_state=0,
        max_iter=10**6,
    )  # fmt: skip


def reached(target: float) -> Any:
    return lambda record: record["certified"] and record["primal"] <= target


def late(limit: float) -> Any:
    return lambda record: record["seconds"] > limit


def as_sklearn_wants(X: Any) -> Any:
    """float64, and CSR with 32-bit indices: what it would convert to while the clock runs."""
    if not sp.issparse(X):
        return X.astype(np.float64)
    arrays = X.data.astype(np.float64), X.indices.astype(np.int32), X.indptr.astype(np.int32)
    return sp.csr_matrix(arrays, shape=X.shape)


def primal(X: Any, y: np.ndarray, W: np.ndarray) -> float:
    """P(W) of W (k, d) in float64, with no code of either side."""
    loss = 0.0
    for first in range(0, y.size, 2000):
        own = y[first : first + 2000]
        scores = X[first : first + 2000].astype(np.float64) @ W.T
        at = np.arange(own.size), own
        mine = scores[at]
        scores[at] = -np.inf
        loss += float(np.maximum(0, 1 + scores.max(axis=1) - mine).sum())
    return 0.5 * float(np.vdot(W, W)) + loss


def tables(results: Sequence[Result]) -> dict[str, Table | str]:
    return {"text": table(results, is_text=True), "dense": table(results, is_text=False)}


def table(results: Sequence[Result], is_text: bool) -> Table:
    """By set: seconds of either side and their ratio, by epsilon."""
    epsilons = EPSILONS[: 3 if is_text else 2]
    heads = ("set", "rows", "classes", *(
        head.format(f"{e:g}") for e in epsilons for head in ("LIBLINEAR, {}: s", "here", "ratio")
    ))  # fmt: skip
    rows = []
    for label in dict.fromkeys(map(set_of, results)):
        found = {r.case.params["epsilon"]: r for r in results if set_of(r) == label}
        first = next(iter(found.values()))
        if (first.case.data["name"] in (*TEXT, "generated")) == is_text:
            cells = [c for e in epsilons for c in triple(found.get(e))]
            rows.append([label, number(first, "n"), number(first, "k"), *cells])
    return Table(heads, rows)


def set_of(result: Result) -> str:
    name, scale = result.case.data["name"], result.case.options["scale"]
    if name == "generated":
        return f"{name}, {result['k']} classes"
    return name if name in TEXT else f"{name}, {SCALES[scale]}"


def triple(result: Result | None) -> list[str]:
    if result is None or not result["theirs"]:
        return ["-" if result is None else number(result), "-", "-"]
    mark = "" if result["reached"] else "> "
    share = result["theirs"] / result["seconds"]
    other = "" if result["reached"] else "< "
    return [number(result, "theirs"), mark + number(result), f"{other}{share:.2g}"]
