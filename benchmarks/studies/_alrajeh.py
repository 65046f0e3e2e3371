"""Alrajeh et al.: tables 1 to 3, figure 1, and what the value of the constant feature does.

C = 1, one-vs-rest, tau = 1, features in [0, 1]. Of the paper's sets only MNIST could be had; COVER
is not of the paper. EPSILON and MNIST8M are generated in their shapes, a fraction of their rows:
dense rows of unit length whose labels a noisy plane decides; shifted images. Ours reads a Zarr
dataset while its clock runs; the others have their rows in memory before theirs begins.
"""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from harness import Case, Result, Table, number
from harness.case import DONE, OVER
from harness.data import Places
from harness.measure import Watch

import numpy as np  # isort: skip, after what sets the folder of compiled code
import scipy.sparse as sp
from baselines import CuttingPlane, Pegasos, as_rows
from baselines.block_minimization import block_minimization

from dask_mcsvm import LinearMCSVC
from dask_mcsvm.data.row_source import DatasetSource
from dask_mcsvm.storage import Scratch, open_dataset, write_dataset
from dask_mcsvm.training.loop import Loop
from dask_mcsvm.training.runs.budget import make_budget
from dask_mcsvm.training.runs.early_shrink import ShrinkRun
from dask_mcsvm.training.runs.passes import EarlyShrink

from ._keerthi import draw
from ._sets import compare, rows_of
from .threads import QUICK

Found = dict[str, Any]
EPSILON = {"name": "generated", "n": 60_000, "d": 2000, "k": 2, "words": 0}
SETS = {
    "MNIST": ({"name": "mnist"}, {"scale": str(1 / 255)}),
    "COVER": ({"name": "covtype"}, {"scale": "columns"}),
    "like EPSILON": (EPSILON, {"made": "epsilon"}),
    "like MNIST8M": ({"name": "mnist"}, {"scale": str(1 / 255), "made": "shifted"}),
}
METHODS = ("shrink", "LIBLINEAR", "Pegasos", "SVMperf-like")
#: Seconds and accuracy: LLSVM, LIBLINEAR; of EPSILON and MNIST8M LIBLINEAR's are of a quarter.
PAPER = {
    "MNIST": (33, 92.07, 41, 92.18, None, None, None, None),
    "like EPSILON": (329, 89.75, 108, 89.30, 250, 82.91, 185, 89.29),
    "like MNIST8M": (10465, 90.86, 3028, 88.95, None, None, None, None),
}
SHIFTS = ((0, 0), (1, 0), (-1, 0), (0, 1), (0, -1))
PEGASOS_EPOCHS = 5
#: Relative gap at which the cutting planes end.
PERF_GAP = 0.05
LIMIT = 250 * 10**6
OTHERS = ("crammer_singer", "weston_watkins", "lee_lin_wahba")


def cases(quick: bool) -> Iterator[Case]:
    sets = {"MNIST": (QUICK["few classes"], {"scale": "none"})} if quick else SETS
    for name, (data, options) in sets.items():
        for method in METHODS:
            if name in ("MNIST", "like EPSILON") or method in ("shrink", "LIBLINEAR"):
                yield Case(data, "_alrajeh:fit", {"tau": 1.0}, options | {"method": method})
    for tau in ("radius", 1.0):
        if not quick:
            options = {"scale": "none", "method": "published"}
            yield Case({"name": "mnist"}, "_alrajeh:fit", {"tau": tau}, options)
    for method in ("within", *METHODS[1:]):
        if not quick:
            options = {"made": "epsilon", "method": method, "bytes": LIMIT}
            yield Case(EPSILON, "_alrajeh:fit", {"tau": 1.0}, options)


# -- rows ------------------------------------------------------------------------------------------


def made_rows(case: Case, places: Places) -> tuple[Any, np.ndarray, Any, np.ndarray]:
    made = case.options.get("made")
    if made == "epsilon":
        return like_epsilon(case.data["n"], case.data["d"])
    X, y, X_test, y_test = rows_of(case, places)
    return (*shifted(X, y), X_test, y_test) if made == "shifted" else (X, y, X_test, y_test)


def like_epsilon(n: int, d: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Dense rows of unit length; a plane and noise decide the labels, nine of ten as it says."""
    rng = np.random.default_rng(0)
    plane, cut = rng.standard_normal(d, np.float32), n
    X = rng.standard_normal((n + n // 10, d), np.float32)
    X /= np.sqrt(np.einsum("ij,ij->i", X, X))[:, None]
    scores = X @ plane
    noise = 0.32 * scores.std() * rng.standard_normal(scores.size)
    y = (scores + noise > 0).astype(np.int32)
    return X[:cut], y[:cut], X[cut:], y[cut:]


def shifted(X: np.ndarray, y: np.ndarray) -> tuple[sp.csr_array, np.ndarray]:
    """Five copies of the images, four of them moved by a pixel, in random order."""
    images = X.reshape(-1, 28, 28)
    copies = [
        sp.csr_array(np.roll(images, shift, (1, 2)).reshape(X.shape)) for shift in SHIFTS
    ]  # borders of MNIST are empty, so that nothing comes in at the other side
    order = np.random.default_rng(0).permutation(len(SHIFTS) * y.size)
    return sp.csr_array(sp.vstack(copies, format="csr")[order]), np.tile(y, len(SHIFTS))[order]


# -- methods ---------------------------------------------------------------------------------------


def fit(case: Case, places: Places, limit: float) -> Found:
    X, y, X_test, y_test = made_rows(case, places)
    method, tau = case.options["method"], case.params["tau"]
    few = np.unique(np.linspace(0, y.size - 1, 300).astype(int))
    facts = {"n": int(y.size), "d": int(X.shape[1]), "k": int(y.max()) + 1, "row_bytes": size(X)}
    calls = {"LIBLINEAR": liblinear, "Pegasos": pegasos, "SVMperf-like": perf}
    with Watch(10 * limit) as watch:
        if method in calls:
            calls[method](X[few], y[few], X_test[:10], y_test[:10], tau, limit)
            keep_to(case.options.get("bytes"))
            try:
                found = calls[method](X, y, X_test, y_test, tau, limit)
            except MemoryError as error:
                return facts | {"status": DONE, "refused": str(error) or "no memory"}
        elif method == "shrink":
            found = shrink(X, y, X_test, y_test, limit)
        else:
            found = ours(case, X, y, X_test, y_test, few)
    return watch.found | facts | found


def size(X: Any) -> int:
    if isinstance(X, np.ndarray):
        return int(X.nbytes)
    return int(X.data.nbytes + X.indices.nbytes + X.indptr.nbytes)


def keep_to(more: int | None) -> None:
    """Let the system refuse memory beyond so many bytes more than there is now."""
    if more is not None:
        status = Path("/proc/self/status").read_text("utf-8")
        (line,) = [line for line in status.splitlines() if line.startswith("VmData:")]
        most = int(line.split()[1]) * 1024 + more
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def liblinear(X: Any, y: Any, X_test: Any, y_test: Any, tau: float, limit: float) -> Found:
    """LIBLINEAR -s 3 at its own epsilon, as scikit-learn calls it."""
    from sklearn.svm import LinearSVC

    if sp.issparse(X):
        X, X_test = sp.csr_matrix(X), sp.csr_matrix(X_test)
        for rows in (X, X_test):
            rows.indices, rows.indptr = rows.indices.astype("i4"), rows.indptr.astype("i4")
    model = LinearSVC(loss="hinge", tol=0.1, intercept_scaling=tau, random_state=0)
    begun = time.process_time()
    model.fit(X, y)
    spent = time.process_time() - begun
    return compare(y_test, model.predict(X_test)) | {"cpu": spent}


def pegasos(X: Any, y: Any, X_test: Any, y_test: Any, tau: float, limit: float) -> Found:
    rows = as_rows(X, tau)
    begun = time.process_time()
    run = Pegasos(rows, y, int(y.max()) + 1, 1.0)
    for _ in range(PEGASOS_EPOCHS):
        run.advance()
    spent = time.process_time() - begun
    scores = np.asarray(X_test @ run.W[:-1] + tau * run.W[-1])
    return compare(y_test, scores.argmax(axis=1)) | {"cpu": spent}


def perf(X: Any, y: Any, X_test: Any, y_test: Any, tau: float, limit: float) -> Found:
    """A cutting plane method per class; a binary problem of cost c is Crammer-Singer's of c/2."""
    rows, scores, spent, ended = as_rows(X, tau), [], 0.0, True
    k = int(y.max()) + 1
    for m in range(1 if k == 2 else k):
        signs = (y == (1 if k == 2 else m)).astype(np.int64)
        run = CuttingPlane(rows, signs, 2, 0.5)
        begun = time.process_time()
        while True:
            run.advance()
            margins = rows.matrix @ (run.W[:, 1] - run.W[:, 0])
            loss = np.maximum(0, 1 - np.where(signs == 1, 1, -1) * margins).sum()
            primal = 0.5 * float(np.vdot(run.W, run.W)) + 0.5 * float(loss)
            late = spent + time.process_time() - begun > limit
            if primal - run.dual() <= PERF_GAP * primal or late:
                ended = ended and not late
                break
        spent += time.process_time() - begun
        w = run.W[:, 1] - run.W[:, 0]
        scores.append(np.asarray(X_test @ w[:-1] + tau * w[-1]))
    predicted = (scores[0] > 0).astype(int) if k == 2 else np.argmax(scores, axis=0)
    return compare(y_test, predicted) | {"cpu": spent, "status": DONE if ended else OVER}


def ours(case: Case, X: Any, y: Any, X_test: Any, y_test: Any, few: np.ndarray) -> Found:
    """As published; or certified, within a limit of memory."""
    limited = "bytes" in case.options
    model = LinearMCSVC(
        formulation="ovr", solver="early_shrink", random_state=0,
        intercept_scaling=case.params["tau"], memory_limit=LIMIT // 2 if limited else None,
        solver_options={"certify": limited},
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "few.zarr")
        write_dataset(path, X[few], y[few])
        LinearMCSVC(formulation="ovr", solver="early_shrink", max_epochs=3).fit(str(path))
        path = Path(folder, "rows.zarr")
        write_dataset(path, X, y)
        del X
        keep_to(case.options.get("bytes"))
        begun = time.process_time()
        try:
            model.fit(str(path))
        except MemoryError as error:
            return {"status": DONE, "refused": str(error) or "no memory"}
        spent = time.process_time() - begun
    return compare(y_test, model.predict(X_test)) | {"cpu": spent, "gap": model.gap_}


def shrink(X: Any, y: Any, X_test: Any, y_test: Any, limit: float) -> Found:
    """As published, then to a gap of 1e-3; how their variables differ; block minimization."""
    k, found = int(y.max()) + 1, {}
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        write_dataset(Path(folder, "rows.zarr"), X, y)
        found["convert"] = time.perf_counter() - begun
        source = DatasetSource(write_dataset(Path(folder, "few.zarr"), X[:300], y[:300]))
        certified(source, 0.1, True, limit)  # compiles
        source = DatasetSource(open_dataset(Path(folder, "rows.zarr")))
        free = {}
        for name, certify in (("published", False), ("certified", True)):
            W, free[name], found[name] = certified(source, 1e-3, certify, limit)
            scores = np.asarray(X_test @ W[:-1] + W[-1])
            found[name] |= compare(y_test, scores.argmax(axis=1))
        order = np.random.default_rng(0).permutation(y.size)
        dealt = DatasetSource(write_dataset(Path(folder, "dealt.zarr"), X[order], y[order]))
        begun = time.process_time()
        blocks = block_minimization(
            dealt, C=1.0, tau=1.0, tol=1e-3, inner_passes=10, n_jobs=1, patience=limit
        )
        W = blocks.pop("W")
        scores = np.asarray(X_test @ W[:-1] + W[-1])
        found["blocks"] = blocks | compare(y_test, scores.argmax(axis=1)) | {
            "cpu": time.process_time() - begun
        }  # fmt: skip
    return found | {
        "at_bound": [int(np.sum(~free[name])) for name in ("published", "certified")],
        "mismatch": float(np.mean(free["published"] != free["certified"])), "variables": y.size * k,
        "cpu": found["published"]["cpu"], "error": found["published"]["error"],
    }  # fmt: skip


def certified(
    source: Any, tol: float, certify: bool, limit: float
) -> tuple[np.ndarray, np.ndarray, Found]:
    """A run of early shrinking: W, which variables are between their bounds, and its passes."""
    begun = time.process_time()
    end = time.perf_counter() + limit
    budget = make_budget(source, None, 1)
    with Scratch() as scratch, ThreadPoolExecutor(1) as pool:
        run = EarlyShrink(source, scratch, pool, 1.0, 1.0, 0, budget.load)
        shrinks = ShrinkRun(run, None, tol, certifies=certify)
        late = lambda record: time.perf_counter() > end  # noqa: E731
        done = Loop(shrinks, shrinks.relative, tol, 100_000, late).fit()
        spent = time.process_time() - begun
        free = np.zeros((run.n, run.k), np.bool_)
        for b in range(run.n_blocks):
            piece, first = run.store.piece(b), run.source.row_offsets[b]
            for m in range(run.k):  # what was left behind is at a bound
                ids, alpha = piece.held.of(m)
                free[first + piece.places[ids], m] = (alpha > 0) & (alpha < 1)
    passes = [[r["pass"], r["epoch"], r["active"], r["dual"]] for r in done.history]
    gap = done.gap if np.isfinite(done.gap) else None
    return done.W, free, {"cpu": spent, "gap": gap, "dual": done.dual, "passes": passes}


# -- what is shown ---------------------------------------------------------------------------------


def of(results: Sequence[Result], name: str, method: str) -> Result | None:
    data, options = SETS[name]
    wanted = Case(data, "_alrajeh:fit", {"tau": 1.0}, options | {"method": method}).key
    return next((r for r in results if r.case.key == wanted), None)


def tables(results: Sequence[Result]) -> dict[str, Table]:
    return {
        "alrajeh": methods(results), "alrajeh_variables": variables(results),
        "alrajeh_blocks": blocks(results), "alrajeh_tau": radius(results),
        "alrajeh_memory": memory(results),
    }  # fmt: skip


def accuracy(found: Found | Result | None) -> str:
    return "-" if found is None or found["error"] is None else f"{1 - found['error']:.2%}"


def methods(results: Sequence[Result]) -> Table:
    """Table 1."""
    heads = ("set", "rows", "method", "CPU s", "paper s", "accuracy", "paper %")
    rows = []
    for name in SETS:
        theirs = PAPER.get(name, (None,) * 8)
        one = of(results, name, "shrink")
        labels = {"published": "early shrinking", "certified": "early shrinking to 1e-3"}
        for place, (key, label) in enumerate(labels.items()):
            if one is not None and one[key]:
                paper = theirs[:2] if place == 0 else (None, None)
                rows.append([name, number(one, "n"), label, f"{one[key]['cpu']:.3g}",
                             show(paper[0]), accuracy(one[key]), show(paper[1])])  # fmt: skip
        for place, method in enumerate(METHODS[1:], 1):
            r = of(results, name, method)
            if r is not None:
                paper = theirs[2 * place : 2 * place + 2]
                rows.append([name, number(r, "n"), method, late(r), show(paper[0]), accuracy(r),
                             show(paper[1])])  # fmt: skip
    return Table(heads, rows)


def late(r: Result) -> str:
    return ("> " if r.status == OVER and r["cpu"] else "") + number(r, "cpu")


def show(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"


def variables(results: Sequence[Result]) -> Table:
    """Table 2."""
    heads = ("set", "variables", "at a bound: early", "at a gap of 1e-3", "mismatch")
    rows = []
    for name in SETS:
        r = of(results, name, "shrink")
        if r is not None and r["at_bound"]:
            early, last = r["at_bound"]
            rows.append([name, number(r, "variables"), f"{early:,}", f"{last:,}",
                         f"{r['mismatch']:.4f}"])  # fmt: skip
    return Table(heads, rows)


def blocks(results: Sequence[Result]) -> Table:
    """Table 3."""
    heads = ("set", "block minimization: s to write", "CPU s", "gap", "accuracy",
             "early shrinking to 1e-3: CPU s", "gap", "accuracy")  # fmt: skip
    rows = []
    for name in SETS:
        r = of(results, name, "shrink")
        if r is not None and r["blocks"]:
            one, other = r["blocks"], r["certified"]
            rows.append([
                name, f"{r['convert']:.2g}", f"{one['cpu']:.3g}", f"{one['gap']:.1e}",
                accuracy(one), f"{other['cpu']:.3g}", f"{other['gap']:.1e}", accuracy(other),
            ])  # fmt: skip
    return Table(heads, rows)


def radius(results: Sequence[Result]) -> Table:
    heads = ("raw MNIST, 0 to 255", "accuracy", "paper", "CPU s")
    theirs = {"radius": ("tau = R", "89.95 %"), 1.0: ("tau = 1", "-")}
    rows = []
    for r in results:
        if r.case.method == "_alrajeh:fit" and r.case.options["method"] == "published":
            label, paper = theirs[r.case.params["tau"]]
            rows.append([label, accuracy(r), paper, number(r, "cpu")])
    return Table(heads, rows)


def memory(results: Sequence[Result]) -> Table:
    heads = ("method, 250 MB beyond what it begins with", "MB of rows", "ends", "CPU s", "accuracy")
    rows = []
    for r in results:
        if r.case.method == "_alrajeh:fit" and "bytes" in r.case.options:
            method = r.case.options["method"]
            label = "early shrinking to 1e-3" if method == "within" else method
            end = "out of memory" if r["refused"] else "yes" if r.status == DONE else r.status
            cells = [number(r, "row_bytes", 1e6), end, number(r, "cpu"), accuracy(r)]
            rows.append([label, *cells])
    return Table(heads, rows)


def pictures(results: Sequence[Result], folder: Path) -> None:
    """Figure 1: active variables and the dual by epochs."""
    panels = []
    for name in SETS:
        r = of(results, name, "shrink")
        if r is None or not r["published"]:
            continue
        best = r["certified"]["dual"]
        for place, label in ((2, "active, %"), (3, "dual, % of the optimum's")):
            lines = []
            for key in ("published", "certified"):
                passes = r[key]["passes"]
                scale = 100 if place == 2 else 100 / best
                up = [scale * p[place] for p in passes]
                lines.append((key, [p[1] for p in passes], up))
            panels.append((name, lines, label))
    if panels:
        draw(folder / "papers-shrinking.png", panels, 4, "epochs")
