"""Random estimators, rows, labels and weights, as users have them and as they must be refused."""

import dask.array as da
import numpy as np
import pandas as pd
import scipy.sparse as sp

from dask_mcsvm import LaRankSVC, LinearMCSVC

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


def with_answers(rng: Rng, model, y) -> None:
    """Costs of mistakes between the classes of `y`, probabilities, standardized columns."""
    if rng.random() < 0.5:
        return
    model.set_params(margins=margins(rng, y))
    if isinstance(model, LinearMCSVC):
        model.set_params(
            probability=bool(rng.random() < 0.4),
            standardize=mostly(rng, one(rng, False, True, "scale"), "mean", 1, None, share=0.05),
        )
        if rng.random() < 0.7 and model.margins is not None:
            model.set_params(formulation=one(rng, "crammer_singer", "weston_watkins"))


def margins(rng: Rng, y):
    """A table, pairs or a tree of the classes, or what must be refused."""
    try:
        classes = np.unique(np.asarray(y).ravel())
    except TypeError:
        return None
    k, names = classes.size, classes.tolist()
    kind = mostly(
        rng, one(rng, None, "table", "pairs", "tree", "list"), "narrow", "negative", "nan", "huge",
        "diagonal", "text", "unknown", "cycle", "two roots", "no leaf", "missing", "number",
    )  # fmt: skip
    values = np.round(rng.random((k, k)) * one(rng, 1, 1, 3, 100), int(one(rng, 0, 3)))
    np.fill_diagonal(values, 0)
    last, first = names[-1], names[0]
    match kind:
        case "table" | "list":
            return values if kind == "table" else values.tolist()
        case "pairs":
            found = np.argwhere(rng.random((k, k)) < 0.5).tolist()
            return {(names[a], names[b]): float(values[a, b]) for a, b in found}
        case "tree" | "cycle" | "two roots" | "no leaf" | "missing":
            inner = [f"node {i}" for i in range(int(rng.integers(1, 4)))]
            tree = {name: one(rng, *inner) for name in names}
            tree |= {name: one(rng, "root", *inner[:i]) for i, name in enumerate(inner)}
            tree = {a: b for a, b in tree.items() if a in names or a in _reached(tree, names)}
            odd = {
                "tree": {}, "missing": {}, "cycle": {"root": names[0]}, "two roots": {last: "far"},
                "no leaf": {"leaf": "root"},
            }  # fmt: skip
            if kind == "missing":
                tree = {a: b for a, b in tree.items() if first not in (a, b)}
            return tree | odd[kind]
        case "narrow":
            return values[:, :-1]
        case "negative" | "nan" | "huge":
            values[0, -1] = {"negative": -1, "nan": np.nan, "huge": 1e300}[kind]
            return values
        case "diagonal":
            return values + np.eye(k)
        case "text":
            return "tree"
        case "unknown":
            return {("no class", first): 2.0}
        case "number":
            return 2.0
    return None


def _reached(tree: dict, names: list) -> set:
    """The nodes above some names."""
    above = {tree[name] for name in names}
    for _ in tree:
        above |= {tree[name] for name in above if name in tree}
    return above
