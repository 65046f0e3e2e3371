"""Against solvers that share no code with us: an interior-point method, and LIBLINEAR."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from reference import solve
from sklearn.datasets import load_digits, load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC

from dask_mcsvm import LinearMCSVC
from dask_mcsvm.formulations import FORMULATIONS


@pytest.mark.parametrize("layout", [np.asarray, sp.csr_array])
@pytest.mark.parametrize(
    ("n_classes", "C", "intercept", "weights"),
    [(2, 1.0, False, False), (3, 0.1, True, True), (5, 1.0, True, True)],
)
def test_the_optimum_is_that_of_the_interior_point_method(
    blobs, formulation, layout, n_classes, C, intercept, weights
):
    X, y = blobs(n_classes, n_samples=12 * n_classes)
    X[np.abs(X) < 0.1] = 0
    rng = np.random.default_rng(0)
    sample_weight = rng.integers(0, 4, y.size) if weights else None
    class_weight = {1: 2.5} if weights else None
    model = LinearMCSVC(
        formulation=formulation,
        C=C,
        fit_intercept=intercept,
        intercept_scaling=0.7,
        class_weight=class_weight,
        tol=1e-11,
        max_epochs=1_000_000,
        random_state=0,
    ).fit(layout(X), y, sample_weight)

    columns = np.c_[X, np.full(y.size, 0.7)] if intercept else X
    costs = C * np.ones(y.size)
    if weights:
        costs = C * sample_weight * np.where(y == 1, 2.5, 1.0)
    used = costs > 0
    W, objective = solve(formulation, columns[used], y[used], costs[used], n_classes)
    assert model.primal_ == pytest.approx(objective, rel=1e-8)
    assert model.dual_ == pytest.approx(objective, rel=1e-8)
    np.testing.assert_allclose(model.coef_, W[: X.shape[1]].T, atol=1e-5)
    if intercept:
        np.testing.assert_allclose(model.intercept_, 0.7 * W[-1], atol=1e-5)


def objective(formulation, X, y, coef, C):
    """P of LIBLINEAR's weights by our specification."""
    return FORMULATIONS[formulation](len(coef), C).primal(coef.T, X, y)


def liblinear(X, y, C, **options):
    model = LinearSVC(C=C, fit_intercept=False, tol=1e-5, max_iter=200_000, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", ConvergenceWarning
        )  # scikit-learn#34029: not to be believed
        return model.set_params(**options).fit(X, y).coef_


@pytest.mark.parametrize("name", ["iris", "digits"])
def test_crammer_singer_reaches_the_objective_of_liblinear(name):
    X, y = {"iris": load_iris, "digits": load_digits}[name](return_X_y=True)
    X = X / np.linalg.norm(X, axis=1, keepdims=True)
    coef = liblinear(X, y, 1.0, multi_class="crammer_singer")
    model = LinearMCSVC(fit_intercept=False, tol=1e-5, max_epochs=100_000, random_state=0).fit(X, y)
    assert model.primal_ == pytest.approx(objective("crammer_singer", X, y, coef, 1.0), rel=1e-3)


@pytest.mark.parametrize("name", ["iris", "digits"])
def test_one_vs_rest_reaches_the_objective_of_liblinear(name):
    X, y = {"iris": load_iris, "digits": load_digits}[name](return_X_y=True)
    X = X / np.linalg.norm(X, axis=1, keepdims=True)
    coef = liblinear(X, y, 1.0, loss="hinge")
    model = LinearMCSVC(
        formulation="ovr", fit_intercept=False, tol=1e-5, max_epochs=100_000, random_state=0
    )
    model.fit(X, y)
    assert model.primal_ == pytest.approx(objective("one_vs_rest", X, y, coef, 1.0), rel=1e-3)


@pytest.mark.parametrize(
    ("name", "C", "factor"),
    [("cs", 0.5, 1.0), ("ww", 0.5, 1.0), ("llw", 2.0, 2.0), ("ovr", 1.0, 1.0)],
)
def test_two_classes_are_a_binary_svm(blobs, name, C, factor):
    # With u = w_1 - w_0 the regularizer is ||u||^2 / 4 (CS, WW, LLW) and ||w_1||^2 / 2 per class
    # (OVR); LLW's hinge sees u / 2. Hence the C that equals a binary SVM with C = 1.
    X, y = blobs(2)
    binary = liblinear(X, y, 1.0, loss="hinge")[0]
    model = LinearMCSVC(
        formulation=name, C=C, fit_intercept=False, tol=1e-9, max_epochs=100_000, random_state=0
    )
    scores = model.fit(X, y).decision_function(X)
    np.testing.assert_allclose(scores, factor * (X @ binary), atol=2e-3)
