"""The formulations against an interior-point solver that shares no code with them."""

import numpy as np
import pytest
from reference import solve

from dask_mcsvm.formulations import FORMULATIONS
from dask_mcsvm.formulations.margins import make_table

N_CLASSES = 4


def small_problem(name, C):
    """Three features, overlapping classes, costs that differ, and one row of zeros."""
    rng = np.random.default_rng([len(name), int(10 * C)])
    y = np.arange(18) % N_CLASSES
    X = rng.normal(size=(18, 3)) + 1.5 * np.eye(N_CLASSES)[y, :3]
    X[7] = 0.0
    return X, y, C * rng.uniform(0.5, 2.0, size=18)


def cyclic_ascent(svm, X, y, *, max_sweeps, target):
    """Exact example steps in order, until the gap is at most `target`."""
    alpha = np.zeros((y.size, svm.n_classes))
    W = svm.weights(alpha, X, y)
    for sweep in range(max_sweeps):
        for i in range(y.size):
            new = svm.example_step(i, alpha, W, X, y)
            W += svm.weights_change(new - alpha[i], X[i], y[i])
            alpha[i] = new
        if sweep % 10 == 9 and svm.gap(alpha, X, y) <= target:
            break
    return alpha


@pytest.mark.parametrize("C", [0.03, 0.3, 1.0])
@pytest.mark.parametrize("name", FORMULATIONS)
class TestReference:
    def test_primal_is_the_reference_objective(self, name, C):
        X, y, costs = small_problem(name, C)
        W, objective = solve(name, X, y, costs, N_CLASSES)
        svm = FORMULATIONS[name](N_CLASSES, costs)
        assert svm.primal(W, X, y) == pytest.approx(objective, rel=1e-10)

    def test_reference_is_a_minimum_of_the_primal(self, name, C):
        """A primal that agreed at one point only would not pass this."""
        X, y, costs = small_problem(name, C)
        W, objective = solve(name, X, y, costs, N_CLASSES)
        svm = FORMULATIONS[name](N_CLASSES, costs)
        rng = np.random.default_rng(0)
        for size in (1e-3, 0.1, 1.0):
            other = svm.project_weights(W + size * rng.normal(size=W.shape))
            assert svm.primal(other, X, y) >= objective * (1 - 1e-10)

    def test_example_steps_reach_the_reference(self, name, C):
        X, y, costs = small_problem(name, C)
        W, objective = solve(name, X, y, costs, N_CLASSES)
        svm = FORMULATIONS[name](N_CLASSES, costs)
        alpha = cyclic_ascent(svm, X, y, max_sweeps=2000, target=1e-8 * objective)
        assert svm.feasible(alpha, y)
        assert svm.dual(alpha, X, y) == pytest.approx(objective, rel=1e-6)
        assert svm.primal(svm.weights(alpha, X, y), X, y) == pytest.approx(objective, rel=1e-6)
        np.testing.assert_allclose(svm.weights(alpha, X, y), W, atol=1e-3)
        assert np.max(svm.violations(alpha, X, y)) < 1e-3


@pytest.mark.parametrize("name", [n for n in FORMULATIONS if FORMULATIONS[n].has_margins])
def test_steps_with_margins_reach_the_reference(name):
    X, y, costs = small_problem(name, 0.3)
    margins = np.random.default_rng(3).uniform(0, 3, size=(N_CLASSES, N_CLASSES))
    np.fill_diagonal(margins, 0.0)
    W, objective = solve(name, X, y, costs, N_CLASSES, margins)
    svm = FORMULATIONS[name](N_CLASSES, costs, make_table(margins))
    assert svm.primal(W, X, y) == pytest.approx(objective, rel=1e-10)
    alpha = cyclic_ascent(svm, X, y, max_sweeps=2000, target=1e-8 * objective)
    assert svm.feasible(alpha, y)
    assert svm.dual(alpha, X, y) == pytest.approx(objective, rel=1e-6)
    np.testing.assert_allclose(svm.weights(alpha, X, y), W, atol=1e-3)
