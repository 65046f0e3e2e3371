"""Size of a pruned model: within a certified gap, and by the fixed thresholds of others."""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from harness.measure import Watch  # isort: skip, before numba

import numpy as np
import scipy.sparse as sp
from harness import Case, Result, Table, number
from harness.case import DONE
from harness.data import Places, load
from threadpoolctl import threadpool_limits

from .threads import QUICK

SETS = ("onet_titles", "naics_index", "wordnet_hyper")
MAX_GAPS = (2e-3, 1e-2, 5e-2)
#: Weights below which others set them to zero: DiSMEC, and PECOS by default.
FIXED = {"DiSMEC": 0.01, "PECOS": 0.1}

Found = dict[str, Any]


def cases(quick: bool) -> Iterator[Case]:
    for data in QUICK.values() if quick else ({"name": name} for name in SETS):
        yield Case(data, "pruning:pruned", {"C": 1.0})


def pruned(case: Case, places: Places, limit: float) -> Found:
    """One fit, and what each way leaves of it."""
    from dask_mcsvm import LinearMCSVC

    data = load(case.data, places, test=True)
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")
        model = LinearMCSVC(random_state=0, **case.params).fit(data.X, data.y)
        ways = [size(model, data, "as fitted", model.gap_, 0.0)]
        for max_gap in MAX_GAPS:
            with Watch(limit) as watch:
                small = model.prune(data.X, data.y, max_gap=max_gap)
            name, seconds = f"gap {max_gap:g}", watch.found["cpu_seconds"]
            ways.append(size(small, data, name, small.gap_, seconds))
        for name, least in FIXED.items():
            small = copy.copy(model)
            coef = np.where(np.abs(model.coef_) < least, 0, model.coef_)
            small.coef_ = sp.csr_array(coef)
            gap = small.certify(data.X, data.y).relative_gap
            ways.append(size(small, data, f"|w| < {least:g} ({name})", gap, 0.0))
    return {"n": int(data.y.size), "k": data.k, "ways": ways}


def size(model: Any, data: Any, way: str, gap: float, seconds: float) -> Found:
    """Bytes, accuracy and the time to predict all test rows."""
    assert data.test is not None
    X, y = data.test
    coef = model.coef_
    parts = (coef.data, coef.indices, coef.indptr) if sp.issparse(coef) else (coef,)
    nonzero = coef.nnz if sp.issparse(coef) else np.count_nonzero(coef)
    times = []
    for _ in range(2):
        begun = time.process_time()
        predicted = model.predict(X)
        times.append(time.process_time() - begun)
    return {
        "way": way, "gap": float(gap), "seconds": seconds, "bytes": sum(p.nbytes for p in parts),
        "density": float(nonzero / (coef.shape[0] * coef.shape[1])),
        "accuracy": float(np.mean(predicted == y)), "predict": min(times),
    }  # fmt: skip


def tables(results: Sequence[Result]) -> dict[str, Table | str]:
    heads = (
        "set, weights kept", "gap", "not zero", "MB", "accuracy", "seconds to prune",
        "to predict",
    )  # fmt: skip
    rows = []
    for result in results:
        name = str(result.case.data["name"])
        name = f"{name}, {result['k']} classes" if name == "generated" else name
        if result.status != DONE:
            rows.append([name, *["-"] * 5, number(result)])
            continue
        rows += [
            [
                f"{name}, {way['way']}", f"{way['gap']:.1e}", f"{way['density']:.2%}",
                f"{way['bytes'] / 1e6:,.1f}", f"{way['accuracy']:.2%}",
                f"{way['seconds']:.2g}" if way["seconds"] else "-", f"{way['predict']:.2g}",
            ]
            for way in result["ways"]
        ]  # fmt: skip
    return {"sizes": Table(heads, rows)}
