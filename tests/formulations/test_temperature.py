"""The temperature of a softmax, and what leaving one row out does to the scores."""

import numpy as np
import pytest
from formulations.test_against_reference import N_CLASSES, cyclic_ascent, small_problem
from reference import solve
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp

from dask_mcsvm.formulations import FORMULATIONS, HeldOut, best_temperature, logits, softmax
from dask_mcsvm.formulations._temperature import LADDER, NOISE


def some_rows(n, k, scale, seed=0):
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(n, k))
    y = (scores + rng.normal(size=(n, k))).argmax(axis=1)
    return scale * scores, y, rng.uniform(0.5, 2.0, n)


@pytest.mark.parametrize(
    ("n", "k", "scale"), [(2000, 5, 1.0), (500, 50, 1e-2), (300, 2, 30.0), (40, 3, 1e-4)]
)
def test_the_temperature_has_the_largest_likelihood(n, k, scale):
    scores, y, weights = some_rows(n, k, scale)

    def loss(log_t):
        t = np.exp(log_t)
        own = (1 - NOISE) * scores[np.arange(n), y] + NOISE * scores.mean(axis=1)
        return np.average(logsumexp(t * scores, axis=1) - t * own, weights=weights)

    best = minimize_scalar(loss, bounds=(-4, 12), method="bounded", options={"xatol": 1e-9}).x
    parts = np.array_split(np.arange(n), 3)
    found = best_temperature(HeldOut.of(scores[i], y[i], weights[i]) for i in parts)
    assert found == pytest.approx(np.exp(best), rel=3e-3)


def test_rows_that_are_all_right_or_all_wrong_have_a_finite_temperature():
    scores = np.eye(4)[[0, 1, 2, 3]]
    right = HeldOut.of(scores, np.arange(4), np.ones(4)).temperature()
    assert softmax(right * scores).max() == pytest.approx(1 - 0.75 * NOISE, rel=1e-4)
    assert HeldOut.of(scores, np.arange(4)[::-1], np.ones(4)).temperature() == LADDER[0]
    assert best_temperature([]) == 1.0


def test_two_classes_are_the_logistic_function_of_their_decision():
    decision = np.array([-3.0, 0.0, 800.0])
    P = softmax(2.0 * logits(decision))
    np.testing.assert_allclose(P[:, 1], 1 / (1 + np.exp(-2.0 * decision)), rtol=1e-12)
    np.testing.assert_allclose(P.sum(axis=1), 1.0, rtol=1e-15)


@pytest.mark.parametrize("name", FORMULATIONS)
def test_scores_without_a_row_are_exact_where_alpha_is_zero_and_pessimistic_elsewhere(name):
    X, y, costs = small_problem(name, 0.3)
    svm = FORMULATIONS[name](N_CLASSES, costs)
    alpha = cyclic_ascent(svm, X, y, max_sweeps=2000, target=1e-11)
    B, square = svm.coefficients(alpha, y), np.square(X).sum(axis=1)
    scores = svm.scores(svm.weights(alpha, X, y), X)
    exact = 0
    for i in range(y.size):
        others = np.arange(y.size) != i
        W, _ = solve(name, X[others], y[others], costs[others], N_CLASSES)
        without = X[i] @ W
        still = np.abs(B[i]) < 1e-9  # one class by itself, or all of them
        same = still if svm.classes_are_independent else np.full_like(still, still.all())
        np.testing.assert_allclose(without[same], scores[i][same], atol=1e-4)  # [LOO]
        exact += same.sum()
        assert B[i] @ without >= B[i] @ (scores[i] - B[i] * square[i]) - 1e-6
    assert exact > 0 or svm.columns_sum_to_zero  # few rows of its optimum have no variable
