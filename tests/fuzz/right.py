"""What is right: models of the fuzzers computed once more in dense float64 NumPy."""

import numpy as np
import pandas as pd
import scipy.sparse as sp
from random_inputs import KINDS, Rng, as_kind, as_seen, one
from runner import check, is_refusal

from dask_mcsvm import LaRankSVC, LinearMCSVC


def losses(formulation: str, scores: np.ndarray, y: np.ndarray, costs: np.ndarray) -> np.ndarray:
    """The four losses as their papers have them, in float64; costs (k, k) are the margins."""
    n, k = scores.shape
    own, rows = scores[np.arange(n), y][:, None], np.arange(n)
    rivals = np.ones((n, k), bool)
    rivals[rows, y] = False
    match formulation:
        case "crammer_singer":
            hinges = np.where(rivals, costs[y] + scores - own, 0)
            return np.maximum(hinges.max(axis=1), 0)
        case "weston_watkins":
            hinges = np.where(rivals, costs[y] + scores - own, 0)
        case "lee_lin_wahba":
            hinges = np.where(rivals, 1 + scores, 0)
        case _:
            hinges = np.where(rivals, 1 + scores, 1 - scores)
    return np.maximum(hinges, 0).sum(axis=1)


def costs_of(model) -> np.ndarray:
    """The margins between all classes (k, k), of what a user wrote down."""
    names = model.classes_.tolist()
    k, given = len(names), model.margins
    costs = 1.0 - np.eye(k)
    if given is not None and not isinstance(given, dict):
        return np.array(given, float)
    if not given:
        return costs
    if any(isinstance(key, tuple) for key in given):
        for (a, b), value in given.items():
            costs[names.index(a), names.index(b)] = value
        return costs
    above = {name: chain(given, name) for name in names}
    for a, one_name in enumerate(names):
        for b, other in enumerate(names):
            common = len(set(above[one_name]) & set(above[other]))
            costs[a, b] = len(above[one_name]) + len(above[other]) - 2 * common
    return costs / costs.max()


def chain(tree: dict, name) -> list:
    """A node and all above it."""
    found = [name]
    while found[-1] in tree:
        found.append(tree[found[-1]])
    return found


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
    Z, V, bias = standardized(model, X, W, b, weight)
    scores, _ = scores_of(X)
    tau = model.intercept_scaling
    if tau == "radius":
        tau = np.sqrt(np.square(Z[weight > 0]).sum(axis=1).max()) or 1.0  # weight 0: no row
    square = np.square(V).sum() + (np.square(bias / tau).sum() if model.fit_intercept else 0)
    cost = model.C * weight * class_factors(model, y, weight)
    primal = 0.5 * square + (cost * losses(model.formulation, scores, y, costs_of(model))).sum()
    # Scores are sums of d products and b in float64; C_i multiplies what rounding makes of a loss.
    sizes = (1 + np.abs(X) @ np.abs(W).T + np.abs(b)).sum(axis=1)
    unit = np.finfo(float).eps
    if model.standardize:  # coef_ is rounded once more, and b lacks what then is not there
        unit = np.finfo(model.coef_.dtype).eps
    rounding = (X.shape[1] + 2) * unit * (cost * sizes).sum()
    if model.standardize:
        rounding += np.square(unit * (np.abs(W) @ np.abs(model.mean_))).sum() / (tau or 1.0) ** 2
    close = abs(primal - model.primal_) <= 1e-6 * max(primal, model.primal_) + rounding
    check(close, f"primal_ is {model.primal_:.6g}, W has {primal:.6g}")
    check_probabilities(rng, model, X)


def standardized(model: LinearMCSVC, X, W, b, weight) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The rows, weights and intercept that the fit saw, and whether mean_ and scale_ are right."""
    if not model.standardize:
        check(not hasattr(model, "mean_"), "mean_ without standardize")
        return X, W, b
    mean = weight @ X / weight.sum()
    scale = np.sqrt(weight @ np.square(X - mean) / weight.sum())
    largest = np.abs(X[weight > 0]).max(axis=0)
    near = np.abs(model.mean_ - mean) <= 1e-9 * largest
    check(near.all(), "mean_ is not the mean")
    flat = scale <= 1e-6 * largest  # so much may be rounding
    near = (np.abs(model.scale_ - scale) <= 1e-6 * scale) | flat
    check(near.all() and (model.scale_ > 0).all(), "scale_ is not the deviation")
    if model.standardize == "scale":
        return X / model.scale_, W * model.scale_, b
    return (X - model.mean_) / model.scale_, W * model.scale_, b + W @ model.mean_


def check_probabilities(rng: Rng, model: LinearMCSVC, X) -> None:
    """predict_proba is a softmax of the scores, for rows of all kinds."""
    if not model.probability:
        check(not hasattr(model, "predict_proba"), "predict_proba without probability")
        return
    if hasattr(model, "feature_names_in_"):
        X = pd.DataFrame(X, columns=model.feature_names_in_)
    check(model.temperature_ > 0 and np.isfinite(model.temperature_), "no temperature")
    found = np.asarray(model.predict_proba(X), float)
    check(found.shape == (len(X), len(model.classes_)), f"probabilities of shape {found.shape}")
    check((found >= 0).all() and (np.abs(found.sum(axis=1) - 1) < 1e-4).all(), "no probabilities")
    best = model.classes_[found.argmax(axis=1)]
    two = np.sort(found, axis=1)[:, -2:]
    doubt = two[:, 1] - two[:, 0] < 1e-5
    check((doubt | (best == np.asarray(model.predict(X)))).all(), "another label is more probable")
    if not hasattr(model, "feature_names_in_"):
        kind = one(rng, "csr", "dask", "dask csr", "fortran")
        other = np.asarray(model.predict_proba(as_kind(rng, X, kind)), float)
        far = np.abs(found - other) > 1e-3
        slack = np.abs(X) @ np.abs(np.asarray(model.coef_, float)).T * model.temperature_
        check((~far | (slack > 1e2)).all(), f"other probabilities as {kind}")


def check_proof(rng: Rng, model: LinearMCSVC, X, y, weight) -> None:
    """certify says what the fit said, and a pruned model keeps what it promises."""
    given = X, model.classes_[y], weight
    try:
        proof = model.certify(*given)
    except BaseException as error:
        if not is_refusal(error):
            raise
        return
    scores = np.abs(X) @ np.abs(np.asarray(model.coef_, float)).T + np.abs(model.intercept_)
    unit = np.finfo(model.coef_.dtype).eps if model.standardize else np.finfo(float).eps
    cost = model.C * weight * class_factors(model, y, weight)
    rounding = 1e-6 * model.primal_ + 100 * X.shape[1] * unit * (cost * scores.sum(axis=1)).sum()
    check(abs(proof.primal - model.primal_) <= rounding + 1e-12, "certify finds another primal")
    if model.formulation == "lee_lin_wahba" or rng.random() < 0.5:
        return
    small = model.prune(*given, max_gap=(most := max(5e-3, 2 * proof.relative_gap)))
    check(small.gap_ <= most and small.density_ <= model.density_ + 1e-12, "pruned in vain")
    again = small.certify(*given).relative_gap
    check(abs(again - small.gap_) <= 1e-9 + 1e-6 * most, f"gap_ {small.gap_}, certified {again}")


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
