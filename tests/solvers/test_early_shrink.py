"""Kernels of early shrinking against the specification, variable by variable and as a whole."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_mcsvm.formulations import FORMULATIONS
from dask_mcsvm.solvers.early_shrink.visits import ascend, certify_class, look, make_block, shuffle

KINDS = [(False, "float64"), (True, "float32")]
every_kind = pytest.mark.parametrize(("csr", "dtype"), KINDS, ids=["dense-64", "csr-32"])
K = 3


@dataclass
class Toy:
    """A small problem; W is W(alpha), a row per class as the kernels want it."""

    X: Any
    y: np.ndarray
    C: np.ndarray
    tau: float
    alpha: np.ndarray  # (n, k)

    @property
    def svm(self):
        return FORMULATIONS["one_vs_rest"](K, self.C)

    @property
    def Z(self):
        X = self.X.toarray() if sp.issparse(self.X) else self.X
        return np.hstack([np.float64(X), np.full((self.y.size, 1), self.tau)])

    @property
    def W(self):
        weights = self.svm.weights(self.alpha, self.Z, self.y)
        return np.ascontiguousarray(weights.T, self.X.dtype)

    @property
    def block(self):
        return make_block(self.X, self.y, self.C, self.tau)

    @property
    def everyone(self):
        return np.arange(self.y.size, dtype=np.int32)


def toy(*, n=50, d=6, csr=False, dtype="float64", tau=1.0, seed=0, start="random"):
    rng = np.random.default_rng(seed)
    y = rng.integers(K, size=n).astype(np.int32)
    X = rng.normal(size=(K, d))[y] + rng.normal(size=(n, d))
    X *= rng.random((n, d)) < 0.7
    X[:, 0] += X[:, 0] == 0
    C = 0.25 * rng.choice([0.5, 1.0, 2.0], n)
    alpha = np.zeros((n, K))
    if start == "random":  # multiples of C/1024 are exact in float32; many variables at a bound
        alpha = C[:, None] * np.clip(rng.integers(-1024, 2048, (n, K)), 0, 1024) / 1024
    X = X.astype(dtype)
    return Toy(sp.csr_array(X) if csr else X, y, C, tau, alpha)


def precision(problem):
    return {"rtol": 1e-9 if problem.X.dtype == np.float64 else 2e-4, "atol": 1e-6}


@every_kind
@pytest.mark.parametrize("m", range(K))
def test_a_visit_is_the_exact_step_of_the_specification(csr, dtype, m):
    problem = toy(csr=csr, dtype=dtype)
    for i in range(0, 50, 7):
        ids, w = np.array([i], np.int32), problem.W[m].copy()
        alpha = problem.alpha[ids, m].astype(dtype)
        gap = look(problem.block, m, ids, alpha, w, 0.0, np.empty(1, np.bool_))
        gain, visits, shown = ascend(problem.block, m, ids, alpha, w, 1, 0.0, 1)
        expected = problem.svm.example_step(
            i, problem.alpha, problem.W.T.astype(np.float64), problem.Z, problem.y
        )[m]
        after = problem.alpha.copy()
        after[i, m] = alpha[0]
        assert visits == 1
        np.testing.assert_allclose(shown, gap, rtol=1e-12)  # as it was before the step
        np.testing.assert_allclose(alpha[0], expected, **precision(problem))
        np.testing.assert_allclose(
            w, problem.svm.weights(after, problem.Z, problem.y)[:, m], **precision(problem)
        )
        rise = problem.svm.dual(after, problem.Z, problem.y) - problem.svm.dual(
            problem.alpha, problem.Z, problem.y
        )
        np.testing.assert_allclose(gain, rise, **precision(problem))


@every_kind
def test_passes_with_shrinking_reach_the_optimum_of_their_variables(csr, dtype):
    problem = toy(csr=csr, dtype=dtype, start="zero")
    for m in range(K):
        alpha, w = np.zeros(50, dtype), np.zeros(7, dtype)
        for seed in range(60):
            ascend(problem.block, m, problem.everyone, alpha, w, 20, 0.0, seed)
        problem.alpha[:, m] = alpha
    violation = problem.svm.violations(
        problem.svm.repair(problem.alpha, problem.y), problem.Z, problem.y
    )
    assert violation.max() <= (1e-7 if dtype == "float64" else 1e-3)


def test_what_is_not_listed_is_left_alone():
    problem = toy()
    ids = np.array([3, 8, 20], np.int32)
    alpha, w = problem.alpha[ids, 1].copy(), problem.W[1].copy()
    gain, *_ = ascend(problem.block, 1, ids, alpha, w, 5, 0.0, 0)
    before = problem.svm.dual(problem.alpha, problem.Z, problem.y)
    problem.alpha[ids, 1] = alpha
    assert gain > 0
    np.testing.assert_allclose(problem.svm.dual(problem.alpha, problem.Z, problem.y) - before, gain)
    np.testing.assert_allclose(w, problem.W[1])


def test_it_stops_when_the_variables_show_little_of_the_gap():
    problem = toy(start="zero")
    alpha, w = np.zeros(50), np.zeros(7)
    assert ascend(problem.block, 0, problem.everyone, alpha, w, 9, np.inf, 0)[1] == 50


def test_the_same_seed_gives_the_same_bytes():
    problem, results = toy(start="zero"), []
    for seed in (5, 5, 6):
        alpha, w = np.zeros(50), np.zeros(7)
        ascend(problem.block, 0, problem.everyone, alpha, w, 2, 0.0, seed)
        results.append(alpha.tobytes())
    assert results[0] == results[1] != results[2]


def test_a_row_without_features_gets_its_optimum_at_once():
    problem = toy(tau=0.0, start="zero")
    problem.X[4] = 0.0
    ids, alpha, w = np.array([4], np.int32), np.zeros(1), np.zeros(7)
    gain, *_ = ascend(problem.block, 0, ids, alpha, w, 1, 0.0, 0)
    assert alpha[0] == gain == problem.C[4]
    awake = np.ones(1, np.bool_)
    look(problem.block, 0, ids, alpha, w, np.inf, awake)
    assert not awake[0]


@every_kind
@pytest.mark.parametrize("slack", [-np.inf, 0.0, 0.5])
def test_a_look_sees_the_gap_and_who_may_still_move(csr, dtype, slack):
    problem = toy(csr=csr, dtype=dtype)
    gap = 0.0
    scores = problem.svm.scores(problem.W.T, problem.Z)
    g = problem.svm.gradients(scores, problem.y)
    C = np.broadcast_to(problem.C[:, None], g.shape)
    at_zero, at_end = problem.alpha == 0, problem.alpha == C
    expected = (~at_zero & ~at_end) | (at_zero & (g < slack)) | (at_end & (g > -slack))
    for m in range(K):
        awake = np.empty(50, np.bool_)
        alpha = np.ascontiguousarray(problem.alpha[:, m], dtype)
        gap += look(problem.block, m, problem.everyone, alpha, problem.W[m], slack, awake)
        np.testing.assert_array_equal(awake, expected[:, m])
    np.testing.assert_allclose(
        gap, problem.svm.gap(problem.alpha, problem.Z, problem.y), **precision(problem)
    )


@every_kind
def test_the_certifying_pass_is_the_specification_in_float64(csr, dtype):
    problem = toy(csr=csr, dtype=dtype)
    W = np.random.default_rng(1).normal(size=(K, 7))  # any W may be judged
    exact, loss, linear = np.zeros((K, 7)), 0.0, 0.0
    for m in range(K):
        alpha = np.ascontiguousarray(problem.alpha[:, m], dtype)
        awake = np.empty(50, np.bool_)
        lost, total = certify_class(problem.block, m, alpha, W[m], 0.5, exact[m], awake)
        loss, linear = loss + lost, linear + total
    primal = problem.svm.primal(W.T, problem.Z, problem.y)
    np.testing.assert_allclose(loss + 0.5 * np.sum(W * W), primal, rtol=1e-12)
    np.testing.assert_allclose(
        exact.T, problem.svm.weights(problem.alpha, problem.Z, problem.y), rtol=1e-10, atol=1e-12
    )
    np.testing.assert_allclose(
        linear - 0.5 * np.sum(exact * exact),
        problem.svm.dual(problem.alpha, problem.Z, problem.y),
        rtol=1e-10,
    )


@given(st.integers(0, 200), st.integers(0, 2**63 - 1))
@settings(max_examples=30)
def test_a_shuffle_is_a_permutation_and_its_seed_decides(count, seed):
    order, again = (np.arange(210, dtype=np.int32) for _ in range(2))
    shuffle(order, count, np.uint64(seed))
    shuffle(again, count, np.uint64(seed))
    np.testing.assert_array_equal(order, again)
    np.testing.assert_array_equal(np.sort(order[:count]), np.arange(count))
    np.testing.assert_array_equal(order[count:], np.arange(count, 210))
