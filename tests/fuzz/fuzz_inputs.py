"""Random estimators, parameters and inputs: accepted and right, or refused in one sentence.

    python tests/fuzz/fuzz_inputs.py --seconds 600 --seed 0
    python tests/fuzz/fuzz_inputs.py --case SEED

What is accepted is computed once more in dense float64 NumPy: scores, objective, certificate; and
the same rows dense, sparse and lazily must get the same labels. Labels that are called certain are
those of a fit that went on. Datasets and commands of the shell are tried as well.
"""

import json
import tempfile
from pathlib import Path

import dask
import dask.array as da
import numpy as np
import pandas as pd
import scipy.sparse as sp
from click.testing import CliRunner
from runner import Wrong, check, is_refusal, main

from dask_mcsvm import LaRankSVC, LinearMCSVC
from dask_mcsvm.cli import mcsvm
from dask_mcsvm.progress import printable
from dask_mcsvm.storage import write_dataset

FORMULATIONS = ("crammer_singer", "weston_watkins", "lee_lin_wahba", "one_vs_rest")
Rng = np.random.Generator


def one(rng: Rng, *choices):
    """One of several, types kept."""
    return choices[int(rng.integers(len(choices)))]


def mostly(rng: Rng, usual, *odd, share=0.12):
    """The usual thing, or now and then something odd."""
    return one(rng, *odd) if rng.random() < share else usual


# Rows -------------------------------------------------------------------------------------------


def table(rng: Rng):
    """A small dense problem in float64, and the codes of its classes."""
    n, d, k = int(rng.integers(4, 50)), int(rng.integers(1, 8)), int(rng.integers(2, 6))
    y = rng.permutation(np.arange(n) % k)
    X = rng.normal(size=(k, d))[y] + rng.normal(size=(n, d))
    X *= rng.random((n, d)) < one(rng, 0.3, 0.8, 1.0)
    X *= mostly(rng, 1.0, 1e-30, 1e-8, 1e4, 1e10, 1e30, 1e150, share=0.25)
    if rng.random() < 0.2:
        X = np.round(X)
    return X, y


def as_kind(rng: Rng, X: np.ndarray, kind: str):
    """The rows in one of the forms that users have them in."""
    n, d = X.shape
    match kind:
        case "dense":
            return X.copy()
        case "float32":
            return X.astype(np.float32)
        case "fortran":
            return np.asfortranarray(X)
        case "strided":
            return np.repeat(X, 2, axis=1)[:, ::2]
        case "readonly":
            X = X.copy()
            X.flags.writeable = False
            return X
        case "list":
            return X.tolist()
        case "object":
            return X.astype(object)
        case "frame":
            return pd.DataFrame(X, columns=[f"column {i}" for i in range(d)])
        case "csr" | "csc" | "coo":
            return sp.csr_matrix(X).asformat(kind)
        case "csr_array":
            return sp.csr_array(X.astype(np.float32))
        case "long":
            S = sp.csr_matrix(X)
            S.indices, S.indptr = S.indices.astype(np.int64), S.indptr.astype(np.int64)
            return S
        case "unsorted":
            S = sp.csr_matrix(X)
            for a, b in zip(S.indptr[:-1], S.indptr[1:], strict=True):
                order = a + rng.permutation(b - a)
                S.indices[a:b], S.data[a:b] = S.indices[order], S.data[order]
            S.has_sorted_indices = False
            return S
        case "double":  # entries that are to be added
            S = sp.csr_matrix(X)
            indices = np.repeat(S.indices, 2)
            return sp.csr_matrix((np.repeat(S.data / 2, 2), indices, 2 * S.indptr), shape=X.shape)
        case "dask":
            return da.from_array(X, chunks=(max(1, n // 3), -1))
        case "dask csr":
            blocks = da.from_array(X, chunks=(max(1, n // 3), -1))
            return blocks.map_blocks(sp.csr_matrix, dtype=X.dtype, meta=sp.csr_matrix((0, 0)))
    raise AssertionError(kind)


def as_seen(X: np.ndarray, kind: str, dtype) -> np.ndarray:
    """The rows as a model of some dtype sees them when they come in this form."""
    given = X.astype(np.float32) if kind in ("float32", "csr_array") else X
    return given.astype(dtype).astype(float)


KINDS = (
    "dense", "float32", "fortran", "strided", "readonly", "list", "object", "frame", "csr", "csc",
    "coo", "csr_array", "long", "unsorted", "double", "dask", "dask csr",
)  # fmt: skip


def broken(rng: Rng, X: np.ndarray):
    """Rows that must be refused, and what is wrong with them."""
    n, d = X.shape
    what = one(rng, "nan", "inf", "indices", "negative", "indptr", "long indptr", "short data",
               "1-d", "3-d", "none", "text", "complex", "no rows", "no columns", "overflow",
               "ragged", "csc indices", "zero indptr")  # fmt: skip
    X = X.copy()
    if what in ("nan", "inf"):
        X[rng.integers(n), rng.integers(d)] = {"nan": np.nan, "inf": -np.inf}[what]
        return as_kind(rng, X, one(rng, *KINDS)), what
    S = sp.csr_matrix(np.where(X == 0, 1.0, X))
    spot = int(rng.integers(S.nnz))
    far = int(one(rng, d, d + 1, 10**6, 2**31 - 1))
    match what:
        case "indices":
            S.indices[spot] = far
        case "negative":
            S.indices[spot] = -int(rng.integers(1, 10**6))
        case "indptr":
            S.indptr[int(rng.integers(1, n + 1))] = int(one(rng, -5, S.nnz + 1, 10**8))
        case "long indptr":
            S.indptr = np.append(S.indptr, S.indptr[-1] + 7).astype(np.int32)
        case "short data":
            S.data = S.data[:-1].copy()
        case "zero indptr":
            S.indptr[0] = int(one(rng, 3, -1))
        case "csc indices":
            S = S.tocsc()
            S.indices[spot] = int(one(rng, n, n + 5, 2**30, -3))
        case "1-d":
            return X[0], what
        case "3-d":
            return X[None], what
        case "none":
            return None, what
        case "text":
            return X.astype(str).astype(object) + "x", what
        case "complex":
            return X + 1j, what
        case "no rows":
            return X[:0], what
        case "no columns":
            return X[:, :0], what
        case "overflow":
            return np.full((n, d), 1e200), what
        case "ragged":
            return [[1.0] * (1 + i % 2) for i in range(n)], what
    return S, what


# Labels, weights, parameters --------------------------------------------------------------------


def labels(rng: Rng, y: np.ndarray):
    """Labels of some type, and whether they are such as must be accepted."""
    names = np.array(["a", "b b", "ç", "d\x1b[31m", "e" * 50])
    kind = mostly(
        rng, one(rng, "int", "int8", "uint64", "negative", "float", "text", "object", "bool",
                 "list", "category", "Int64", "column", "dask", "huge", "frozen"),
        "halves", "nan", "None", "mixed", "dates", "short", "one class", "2-d", "bytes",
    )  # fmt: skip
    good = {
        "int": lambda: y, "int8": lambda: y.astype(np.int8), "uint64": lambda: y.astype(np.uint64),
        "negative": lambda: y * 3 - 5, "float": lambda: y.astype(float), "text": lambda: names[y],
        "object": lambda: names[y].astype(object), "bool": lambda: y > 0,
        "list": lambda: y.tolist(), "category": lambda: pd.Series(names[y]).astype("category"),
        "Int64": lambda: pd.Series(y).astype("Int64"), "column": lambda: y[:, None],
        "dask": lambda: da.from_array(y, chunks=max(1, len(y) // 3)),
        "huge": lambda: y + 2**60, "frozen": lambda: np.broadcast_to(y, y.shape),
    }  # fmt: skip
    if kind in good:
        return good[kind](), kind, True
    odd = {
        "halves": lambda: y + 0.5, "nan": lambda: np.where(y == 0, np.nan, y),
        "None": lambda: np.where(y == 0, None, y.astype(object)),
        "mixed": lambda: np.where(y == 0, "a", y.astype(object)),
        "dates": lambda: np.array("2020-01-01", "M8[D]") + y, "short": lambda: y[:-1],
        "one class": lambda: np.zeros_like(y), "2-d": lambda: np.stack([y, y], axis=1),
        "bytes": lambda: names[y].astype("U1").astype("S", casting="unsafe")
        if (y < 2).all() else y.astype("S3"),
    }  # fmt: skip
    return odd[kind](), kind, False


def weights(rng: Rng, n: int):
    kind = mostly(rng, one(rng, None, None, "random", "zeros"), "negative", "nan", "all zero",
                  "spread", "short", "huge")  # fmt: skip
    w = rng.random(n) + 0.5
    match kind:
        case "zeros":
            w[rng.random(n) < 0.3] = 0
        case "negative":
            w[0] = -1
        case "nan":
            w[0] = np.nan
        case "all zero":
            w[:] = 0
        case "spread":
            w *= 10.0 ** rng.integers(-20, 20, n)
        case "short":
            w = w[:-1]
        case "huge":
            w *= 1e300
        case None:
            return None
    return w


def linear(rng: Rng) -> LinearMCSVC:
    return LinearMCSVC(
        formulation=one(rng, *FORMULATIONS),
        solver=mostly(rng, one(rng, "auto", "auto", "sdm", "splitting"), "shards", "nonsense", 3),
        C=mostly(rng, one(rng, 1e-3, 0.1, 1.0, 10.0), 1e39, 1e-39, 1e300, 0, -1, np.nan, "1", None),
        tol=mostly(rng, one(rng, 1e-2, 1e-3), 0, -1, np.nan, 1e-9),
        max_epochs=mostly(rng, one(rng, 1, 10, 60), 0, 2.5, -1),
        fit_intercept=bool(rng.random() < 0.7),
        intercept_scaling=mostly(rng, one(rng, 1.0, 0.1, "radius"), 100.0, 1e20, 0, np.inf),
        class_weight=mostly(rng, one(rng, None, None, "balanced"), {0: 2.0}, {0: -1}, "odd"),
        dtype=mostly(rng, one(rng, None, "float32", "float64"), "int8", "float16"),
        n_jobs=mostly(rng, None, 2, 0, -7),
        solver_options=mostly(rng, None, {}, {"no such": 1}, [1], share=0.06),
        random_state=0,
    )


def larank(rng: Rng) -> LaRankSVC:
    return LaRankSVC(
        kernel=mostly(rng, one(rng, "linear", "rbf", "poly", "sigmoid"), "nonsense", share=0.05),
        C=mostly(rng, one(rng, 0.01, 1.0, 10.0), 1e39, 1e-39, 0, np.nan),
        gamma=mostly(rng, one(rng, "scale", "auto", 0.5), 0, np.inf, 1e30),
        degree=mostly(rng, one(rng, 1, 3), 0, -1, 50),
        coef0=mostly(rng, one(rng, 0.0, 1.0), np.nan, 1e200),
        max_epochs=mostly(rng, one(rng, None, 2), 0, -1),
        stop=one(rng, "epochs", "epochs", "gap"),
        tol=mostly(rng, one(rng, None, 1e-2), -1, np.nan),
        cache_size=mostly(rng, 500.0, 1e-4, 0, -1),
        max_support=mostly(rng, None, 1, 5, 0),
        dtype=one(rng, None, "float32", "float64"),
        random_state=0,
    )


# What is right ----------------------------------------------------------------------------------


def losses(formulation: str, scores: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The four losses as their papers have them, in float64."""
    n, k = scores.shape
    own, rows = scores[np.arange(n), y][:, None], np.arange(n)
    rivals = np.ones((n, k), bool)
    rivals[rows, y] = False
    match formulation:
        case "crammer_singer":
            hinges = np.where(rivals, 1 + scores - own, 0)
            return np.maximum(hinges.max(axis=1), 0)
        case "weston_watkins":
            hinges = np.where(rivals, 1 + scores - own, 0)
        case "lee_lin_wahba":
            hinges = np.where(rivals, 1 + scores, 0)
        case _:
            hinges = np.where(rivals, 1 + scores, 1 - scores)
    return np.maximum(hinges, 0).sum(axis=1)


def same_labels(model, found, scores: np.ndarray, slack: np.ndarray, what: str) -> None:
    """Each label found has the largest score, up to rounding."""
    found = np.asarray(found)
    check(found.shape == (len(scores),), f"{what}: {found.shape} labels for {len(scores)} rows")
    codes = np.searchsorted(model.classes_, found)
    known = np.minimum(codes, len(model.classes_) - 1)
    check((model.classes_[known] == found).all(), f"{what}: a label that is no class")
    rows = np.arange(len(scores))
    short = scores.max(axis=1) - scores[rows, known]
    check((short <= slack.max(axis=1)).all(), f"{what}: a label whose score is not the largest")


def check_scores(rng: Rng, model, X: np.ndarray, scores_of, dtype) -> None:
    """decision_function and predict of the rows in several forms.

    `scores_of` takes rows and returns scores and what rounding may change in them. The rows are
    those that the model sees: a kernel of rows of 1e10 feels their rounding to float32.
    """
    k = len(model.classes_)
    for kind in ("dense", one(rng, *KINDS), one(rng, "dask", "dask csr")):
        rows = as_kind(rng, X, kind)
        if kind == "frame" or hasattr(model, "feature_names_in_"):
            names = getattr(model, "feature_names_in_", None)
            rows = X if names is None else pd.DataFrame(X, columns=names)
        scores, slack = scores_of(as_seen(X, kind, dtype))
        if k == 2 and getattr(model, "formulation", None) == "one_vs_rest":
            scores, slack = scores[:, 1:] * [-0.5, 0.5], slack[:, 1:] * [0.5, 0.5]  # one binary SVM
        found = np.asarray(model.decision_function(rows))
        two = scores if k > 2 else scores[:, 1] - scores[:, 0]
        spare = slack.sum(axis=1) if k == 2 else slack
        check(found.shape == two.shape, f"scores of {kind} rows have shape {found.shape}")
        far = ~(np.abs(found - two) <= spare)  # nan is far
        check(not far.any(), f"scores of {kind} rows are not those of coef_")
        same_labels(model, model.predict(rows), scores, slack, f"predict of {kind} rows")


def check_linear(rng: Rng, model: LinearMCSVC, X, kind: str, y, weight) -> None:
    """Scores, objective and certificate of a fit on rows of some kind, computed again."""
    W, b = np.asarray(model.coef_, float), np.asarray(model.intercept_, float)
    check(np.isfinite(W).all() and np.isfinite(b).all(), "weights that are not finite")

    def scores_of(X):
        return X @ W.T + b, 1e-5 * (np.abs(X) @ np.abs(W).T + np.abs(b)) + 1e-30

    check_scores(rng, model, X, scores_of, model.coef_.dtype)
    check(np.isfinite([model.primal_, model.dual_, model.gap_]).all(), "a gap that is not finite")
    check(model.gap_ >= -1e-6, f"a gap below zero: {model.gap_}")
    check(model.dual_ <= model.primal_ * (1 + 1e-6) + 1e-12, "a dual above the primal")
    X = as_seen(X, kind, model.coef_.dtype)
    scores, _ = scores_of(X)
    tau = model.intercept_scaling
    if tau == "radius":
        tau = np.sqrt(np.square(X[weight > 0]).sum(axis=1).max()) or 1.0  # weight 0: no row
    square = np.square(W).sum() + (np.square(b / tau).sum() if model.fit_intercept else 0)
    cost = model.C * weight * class_factors(model, y, weight)
    primal = 0.5 * square + (cost * losses(model.formulation, scores, y)).sum()
    # Scores are sums of d products and b in float64; C_i multiplies what rounding makes of a loss.
    sizes = (1 + np.abs(X) @ np.abs(W).T + np.abs(b)).sum(axis=1)
    rounding = (X.shape[1] + 2) * np.finfo(float).eps * (cost * sizes).sum()
    close = abs(primal - model.primal_) <= 1e-6 * max(primal, model.primal_) + rounding
    check(close, f"primal_ is {model.primal_:.6g}, W has {primal:.6g}")


def check_certain(rng: Rng, model: LinearMCSVC, X, y, weight) -> None:
    """A certain label is that of the optimum; the same rows in any form are as certain."""
    try:
        sure = np.asarray(model.certain(X))
    except BaseException as error:
        if not is_refusal(error):
            raise
        return
    check(sure.shape == (len(X),) and sure.dtype == bool, "certain gives no bool for each row")
    kind = one(rng, "csr", "dask", "dask csr", "fortran")
    same = np.asarray(model.certain(as_kind(rng, X, kind)))
    # The bound on rounding counts the entries of a row, and CSR rows have fewer.
    check(not (sure & ~same).any(), f"rows are certain, and not as {kind}")
    better = LinearMCSVC(**model.get_params() | {
        "tol": min(1e-6, model.tol), "max_epochs": 500, "dtype": "float64", "n_jobs": None,
        "solver": "auto", "solver_options": None,
    }).fit(X, model.classes_[y], weight)  # fmt: skip
    if (better.classes_.size, better.gap_ <= 1e-6) == (model.classes_.size, True):
        # What is certain of the better one, too, leaves no doubt of either.
        both = sure & np.asarray(better.certain(X))
        other = np.asarray(model.predict(X)) != np.asarray(better.predict(X))
        check(not (both & other).any(), "two certain labels of one optimum")


def class_factors(model: LinearMCSVC, y: np.ndarray, weight: np.ndarray) -> np.ndarray:
    k, given = len(model.classes_), model.class_weight
    if given is None:
        return np.ones(len(y))
    if given == "balanced":
        counts = np.bincount(y, weight, minlength=k)
        present = np.count_nonzero(counts)  # a class without weight is none
        return (weight.sum() / (present * np.where(counts > 0, counts, 1)))[y]
    by_class = [given.get(label, 1.0) for label in model.classes_.tolist()]
    return np.array(by_class, float)[y]


def check_larank(rng: Rng, model: LaRankSVC, X: np.ndarray) -> None:
    vectors = model.support_vectors_
    V = vectors.toarray() if sp.issparse(vectors) else np.asarray(vectors)
    V, A = V.astype(float), model.dual_coef_.toarray().astype(float)
    check(np.isfinite(A).all() and np.isfinite(V).all(), "coefficients that are not finite")
    near = np.abs(A.sum(axis=0)) <= 1e-3 * np.abs(A).sum(axis=0) + 1e-12
    check(near.all(), "coefficients of a pattern that do not sum to zero")

    def scores_of(X):
        K = kernel_values(model, X, V)
        return K @ A.T, 1e-4 * (np.abs(K) @ np.abs(A).T) + 1e-4 * np.abs(A).sum() + 1e-30

    check_scores(rng, model, X, scores_of, vectors.dtype)
    if model.stop == "gap" and model.history_:  # partial_fit certifies nothing
        check(model.gap_ >= -1e-6, f"a gap below zero: {model.gap_}")


def kernel_values(model: LaRankSVC, X: np.ndarray, V: np.ndarray) -> np.ndarray:
    inner = X @ V.T
    match model.kernel:
        case "rbf":
            square = np.square(X[:, None] - V).sum(axis=2)
            return np.exp(-model.gamma_ * square)
        case "poly":
            return (model.gamma_ * inner + model.coef0) ** model.degree
        case "sigmoid":
            return np.tanh(model.gamma_ * inner + model.coef0)
    return inner


# Cases ------------------------------------------------------------------------------------------


def refused(what: str, call, *arguments) -> None:
    """Call with something that must be refused."""
    try:
        call(*arguments)
    except BaseException as error:
        if not is_refusal(error):
            raise
        return
    raise Wrong(f"{what} was accepted")


def case_fit(rng: Rng) -> None:
    """A fit, and all that can be asked of the model; bad rows leave it as it is."""
    X, codes = table(rng)
    is_linear = rng.random() < 0.6
    model = linear(rng) if is_linear else larank(rng)
    y, label_kind, _ = labels(rng, codes)
    weight, kind = weights(rng, len(X)), one(rng, *KINDS)
    rows = as_kind(rng, X, kind)
    if not is_linear and rng.random() < 0.3:
        half = len(X) // 2 + 1
        classes = np.unique(np.asarray(y).ravel()) if label_kind in ("int", "text") else None
        part = None if weight is None else weight[:half]
        model.partial_fit(X[:half], np.asarray(y)[:half], classes, part)
        part = None if weight is None else weight[half:]
        model.partial_fit(X[half:], np.asarray(y)[half:], None, part)
    elif isinstance(y, da.Array) != isinstance(rows, da.Array):
        model.fit(rows, np.asarray(y), weight)
    else:
        model.fit(rows, y, weight)
    check(np.isfinite(X).all(), "rows with nan were accepted")
    if is_linear:
        known = np.unique(np.asarray(y).ravel(), return_inverse=True)[1]
        used = np.ones(len(X)) if weight is None else weight
        check_linear(rng, model, X, kind, known, used)
        if kind not in ("float32", "csr_array") and not hasattr(model, "feature_names_in_"):
            check_certain(rng, model, X, known, used)
    else:
        check_larank(rng, model, X)
    before = np.asarray(model.predict(X if not hasattr(model, "feature_names_in_") else rows))
    bad, what = broken(rng, X)
    if what == "overflow":
        return
    refused(f"predict of {what}", lambda Z: np.asarray(model.predict(Z)), bad)
    wide = np.hstack([X, X[:, :1]]) if rng.random() < 0.5 else X[:, :-1]
    if wide.shape[1]:
        lazy = one(rng, "dense", "csr", "dask", "dask csr")
        rows_wide = as_kind(rng, wide, lazy)
        refused(f"predict of {lazy} rows of another width", lambda Z: np.asarray(model.predict(Z)),
                rows_wide)  # fmt: skip
    after = np.asarray(model.predict(X if not hasattr(model, "feature_names_in_") else rows))
    check(np.array_equal(before, after), "the model changed by what it refused")


def case_broken(rng: Rng) -> None:
    """A fit on rows that must be refused."""
    X, codes = table(rng)
    bad, what = broken(rng, X)
    model = linear(rng) if rng.random() < 0.6 else larank(rng)
    weight = one(rng, None, np.zeros(len(codes)), weights(rng, len(codes)))
    refused(f"fit of {what}", lambda: model.fit(bad, codes, weight))


def written(rng: Rng, folder: str):
    """A dataset of random rows: its path, rows, labels and weights."""
    X, codes = table(rng)
    y = one(rng, codes, np.array(["a", "b b", "ç", "d\x1b[31m", "e" * 50])[codes])
    kind = one(rng, "dense", "float32", "csr", "csr_array", "dask", "dask csr")
    weight = one(rng, None, None, rng.random(len(X)) + 0.5)
    path = Path(folder, "set")
    rows = int(rng.integers(1, len(X) + 3))
    chunks = {} if kind.startswith("dask") else {"block_rows": rows}
    write_dataset(path, as_kind(rng, X, kind), y, sample_weight=weight, **chunks)
    return path, as_seen(X, kind, float), y, weight


def case_dataset(rng: Rng) -> None:
    """A fit on a dataset, whole or with little memory, stopped and gone on with."""
    with tempfile.TemporaryDirectory() as folder:
        path, X, y, weight = written(rng, folder)
        is_linear = rng.random() < 0.5
        model = linear(rng) if is_linear else larank(rng)
        if is_linear:
            limit = one(rng, None, "64MB", "1GB", 1, "no size")
            model.set_params(
                solver=one(rng, "auto", "shards", "early_shrink", "rounds", "averaging"),
                memory_limit=limit,
            )
        seen = []

        def stop(record):
            seen.append(record)
            return len(seen) == 2

        cut = type(model)(**model.get_params()).set_params(
            checkpoint=Path(folder, "fit"), resume=True, callbacks=(stop,)
        )
        try:
            cut.fit(path)
        except BaseException as error:
            if not is_refusal(error):
                raise
        if rng.random() < 0.3:  # a checkpoint of other parameters is refused or gone on with
            cut.set_params(C=model.C * 2 if isinstance(model.C, float) else 1.0)
        model.fit(path)
        known = np.unique(y, return_inverse=True)[1]
        if is_linear and np.isfinite(model.gap_):
            used = np.ones(len(X)) if weight is None else weight
            check_linear(rng, model, X, "dense", known, used)
        elif not is_linear:
            check_larank(rng, model, X)
        score = np.mean(np.asarray(model.predict(path)) == y)
        if weight is None:
            check(abs(model.score(path) - score) < 1e-12, "score is not the share of right labels")
        same = bool(rng.random() < 0.5) and isinstance(model.max_epochs, int | None)
        if same and cut.C == model.C:
            again = cut.set_params(callbacks=()).fit(path)
            if is_linear:
                check(np.array_equal(again.coef_, model.coef_), "a resumed fit is another model")
            else:
                near = np.array_equal(again.dual_coef_.toarray(), model.dual_coef_.toarray())
                check(near, "a resumed LaRank fit is another model")


def case_shell(rng: Rng) -> None:
    """Commands end with a code and a sentence, and what they say is so."""
    with tempfile.TemporaryDirectory() as folder:
        path, *_ = written(rng, folder)
        model, out = Path(folder, "model"), Path(folder, "out")
        is_linear = rng.random() < 0.6
        options = ["--estimator", "linear" if is_linear else "larank"]
        for option, values in {
            "--C": ("1", "0.1", "0", "-1", "nan", "1e39", "x"),
            "--tol": ("1e-2", "1e-3", "-1", "nan"),
            "--max-epochs": ("5", "50", "0", "-2"),
            "--kernel": ("rbf", "linear", "poly", "x"),
            "--solver": ("auto", "sdm", "splitting", "shards", "x"),
            "--formulation": ("ww", "cs", "llw", "ovr", "x"),
            "--memory-limit": ("64MB", "1", "x"),
            "--scheduler": ("threads", "synchronous", "x"),
            "--checkpoint": (str(Path(folder, "fit")), str(path), "/dev/null"),
            "--random-state": ("0", "-1", "x"),
        }.items():
            if rng.random() < 0.25:
                options += [option, one(rng, *values[: one(rng, 1, 2, len(values))])]
        fitted = shell("fit", path, "--model", model, *options)
        check(fitted.exit_code in (0, 1, 2, 3), f"fit ended with {fitted.exit_code}")
        failed = fitted.exit_code in (1, 2)
        check(model.exists() != failed, "a model without success, or none")
        if failed:
            model = path if rng.random() < 0.5 else model
        for name in ("predict", "score", "info"):
            arguments = [model] if name == "info" else [model, path]
            more = ["--output", out] if name == "predict" else []
            asked = shell(name, *arguments, *more, *one(rng, [], ["--json"], ["--quiet"]))
            # `info` also tells what a dataset is.
            fails = failed and not (name == "info" and model.exists())
            fine = asked.exit_code in ((1, 2) if fails else (0,))
            check(fine, f"{name} ended with {asked.exit_code}: {asked.output[-200:]}")
            check("\x1b" not in asked.output, f"{name} writes a terminal's commands")
        if not failed:
            kind = LinearMCSVC if is_linear else LaRankSVC
            labels = [printable(v) for v in np.asarray(kind.load(model).predict(path)).tolist()]
            lines = out.read_text(encoding="utf-8").split("\n")[:-1]
            check(lines == labels, "predictions of the shell are not those of Python")


def shell(*arguments):
    """A command in this process; what escapes it is raised."""
    done = CliRunner().invoke(mcsvm, [str(argument) for argument in arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    check("Traceback" not in done.output, "a traceback is printed")
    if "--json" in arguments and done.exit_code == 0:
        json.loads(done.stdout)
    return done


def case(rng: Rng) -> None:
    with dask.config.set(scheduler="threads", num_workers=2):
        cases = [case_fit] * 5 + [case_broken] * 2 + [case_dataset] * 2 + [case_shell]
        one(rng, *cases)(rng)


if __name__ == "__main__":
    main(case, __file__)
