"""Visits of independent classes: exact on their block, and together the optimum."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import solve

from dask_mcsvm.formulations import FORMULATIONS
from dask_mcsvm.solvers.groups.independent import (
    EVERYTHING,
    add_clip_weights,
    clip_visit,
    make_group_scratch,
    settle_zero_rows,
)
from dask_mcsvm.solvers.kernels.rows import as_rows, read_only, square_norms
from dask_mcsvm.solvers.kernels.steps import LLW, OVR
from dask_mcsvm.solvers.sdm.sweeps import Data

# Dense float64 and CSR float32: both kinds of rows, both float types, two compilations.
KINDS = [(False, "float64"), (True, "float32")]
every_kind = pytest.mark.parametrize(("csr", "dtype"), KINDS, ids=["dense-64", "csr-32"])
every_loss = pytest.mark.parametrize("loss", [OVR, LLW])
few = settings(max_examples=30)


@dataclass
class Toy:
    """A small problem cut by class groups, its state as kernels want it."""

    name: str
    X: Any
    y: np.ndarray
    C: np.ndarray
    groups: tuple[tuple[int, ...], ...]
    tau: float
    W: list[np.ndarray]
    alpha: np.ndarray  # (n, k), the same numbers as the blocks

    @property
    def k(self):
        return sum(map(len, self.groups))

    @property
    def svm(self):
        return FORMULATIONS[self.name](self.k, self.C)

    @property
    def Z(self):
        """Rows in float64 with the constant feature."""
        X = self.X.toarray() if sp.issparse(self.X) else self.X
        return np.hstack([np.float64(X), np.full((self.y.size, 1), self.tau)])

    def dual(self, alpha=None):
        return self.svm.dual(self.alpha if alpha is None else alpha, self.Z, self.y)

    def data(self, rows, place):
        part = self.X[rows]
        return as_data(part, place, self.C[rows], self.tau)

    def refresh(self):
        """W from alpha, rounded to the type of X."""
        W = self.svm.weights(self.alpha, self.Z, self.y)
        self.W = [np.ascontiguousarray(W[:, group], self.X.dtype) for group in self.groups]


def as_data(X, y, C, tau):
    rows = as_rows(X)
    square = square_norms(rows, X.shape[0], float(tau))
    return Data(
        rows, read_only(np.int32(y)), read_only(np.asarray(C, X.dtype)), read_only(square),
        X.dtype.type(tau),
    )  # fmt: skip


def toy(name, *, n=40, d=6, groups=((0, 3), (1,), (2, 4)), csr=False, dtype="float64",
        tau=1.0, start="zero", seed=0, C=0.25):  # fmt: skip
    rng = np.random.default_rng(seed)
    k = sum(map(len, groups))
    y = rng.integers(k, size=n)
    X = rng.normal(size=(k, d))[y] + rng.normal(size=(n, d))
    X *= rng.random((n, d)) < 0.7
    X[:, 0] += X[:, 0] == 0
    X = X.astype(dtype)
    costs = C * rng.choice([0.5, 1.0, 2.0], n)
    alpha = np.zeros((n, k))
    if start == "random":  # multiples of C/1024 are exact in float32; many variables at a bound
        alpha = costs[:, None] * np.clip(rng.integers(-1024, 2048, (n, k)), 0, 1024) / 1024
        if name != "one_vs_rest":
            alpha[np.arange(n), y] = 0.0
    made = Toy(name, sp.csr_array(X) if csr else X, y, costs, groups, tau, [], alpha.astype(dtype))
    made.refresh()
    return made


def orders(rows, passes, rng):
    return np.stack([rng.permutation(rows) for _ in range(passes)])


def scratch_of(problem):
    return make_group_scratch(problem.k, problem.X.dtype)


def tolerance(problem):
    return 1e-9 if problem.X.dtype == np.float64 else 2e-4


# -- independent classes ---------------------------------------------------------------------------


def clip_group(problem, loss, g, *, rest=None, patience=EVERYTHING, passes=1, rows=None, seed=0):
    group = np.array(problem.groups[g])
    place = np.full(problem.k, -1)
    place[group] = np.arange(group.size)
    data = problem.data(np.arange(problem.y.size), place[problem.y])
    alpha = np.ascontiguousarray(problem.alpha[:, group])
    rest = np.zeros(alpha.shape, np.uint8) if rest is None else rest
    order = orders(
        np.arange(problem.y.size) if rows is None else rows, passes, np.random.default_rng(seed)
    )
    result = clip_visit(
        loss(problem.k), data, order, problem.W[g], alpha, rest, patience, scratch_of(problem)
    )
    problem.alpha[:, group] = alpha
    return result


NAME_OF = {OVR: "one_vs_rest", LLW: "lee_lin_wahba"}


@every_kind
@every_loss
@few
@given(seed=st.integers(0, 2**32 - 1), g=st.integers(0, 2), tau=st.sampled_from([0.0, 1.0]))
def test_one_row_against_a_group_is_clipped_class_by_class(csr, dtype, loss, seed, g, tau):
    problem = toy(NAME_OF[loss], n=12, csr=csr, dtype=dtype, start="random", seed=seed, tau=tau)
    i, group = seed % 12, list(problem.groups[g])
    W = problem.svm.weights(problem.alpha, problem.Z, problem.y)
    slope = problem.svm.gradients((problem.Z[i] @ W)[None], problem.y[i : i + 1])[0, group]
    expected = problem.alpha.astype(float)
    A = problem.Z[i] @ problem.Z[i]
    upper = np.full(len(group), problem.C[i])
    if loss is LLW:
        upper[np.array(group) == problem.y[i]] = 0.0
    expected[i, group] = np.clip(expected[i, group] - slope / A, 0.0, upper)
    change = expected[i, group] - problem.alpha[i, group]
    gain, _, work = clip_group(problem, loss, g, rows=np.array([i]))
    eps = tolerance(problem) * (1 + np.abs(problem.Z[i] @ W).max())
    np.testing.assert_allclose(problem.alpha, expected, rtol=0, atol=eps)
    assert gain == pytest.approx(-change @ (slope + 0.5 * A * change), abs=10 * eps)
    assert work == (0 if loss is LLW and group == [problem.y[i]] else len(group))


@every_kind
def test_one_vs_rest_groups_reach_the_reference_optimum(csr, dtype):
    problem = toy("one_vs_rest", csr=csr, dtype=dtype)
    _, best = solve("one_vs_rest", problem.Z, problem.y, problem.C, problem.k)
    before = problem.dual()
    for epoch in range(300):
        for g in range(3):
            gain, _, _ = clip_group(problem, OVR, g, passes=3, seed=epoch)
            assert gain >= -1e-6
    eps = 1e-9 if dtype == "float64" else 1e-4
    assert problem.dual() == pytest.approx(best, rel=eps)
    assert problem.dual() >= before
    assert problem.svm.feasible(problem.alpha, problem.y)


def test_lee_lin_wahba_with_averages_reaches_the_reference_optimum():
    problem = toy("lee_lin_wahba", C=1.0)
    _, best = solve("lee_lin_wahba", problem.Z, problem.y, problem.C, problem.k)
    for epoch in range(2000):
        before = problem.dual()
        for g in range(3):
            gain, _, _ = clip_group(problem, LLW, g, seed=epoch)
            assert gain >= 0
        problem.refresh()  # w_bar becomes the mean
        assert problem.dual() >= before - 1e-12
    assert problem.dual() == pytest.approx(best, rel=1e-7)
    assert problem.svm.feasible(problem.alpha, problem.y)


# -- resting ---------------------------------------------------------------------------------------


def columns(problem, g):
    """alpha of all rows for the classes of a group."""
    return problem.alpha[:, problem.groups[g]]


def test_untouched_variables_rest_after_three_visits_and_wake_when_asked():
    problem = toy("one_vs_rest", groups=((0, 1), (2, 3, 4)))
    rest = np.zeros(columns(problem, 1).shape, np.uint8)
    for epoch in range(60):
        clip_group(problem, OVR, 1, rest=rest, patience=3, seed=epoch)
    asleep = (rest >= 3).all(axis=1)
    before = columns(problem, 1)
    work = clip_group(problem, OVR, 1, rest=rest, patience=3)[2]
    np.testing.assert_array_equal(columns(problem, 1)[asleep], before[asleep])
    everything = clip_group(problem, OVR, 1, rest=rest, patience=EVERYTHING)[2]
    assert asleep.any()
    assert 0 < work < everything


def test_a_variable_that_moves_is_wide_awake():
    problem = toy("one_vs_rest", groups=((0, 1), (2, 3, 4)))
    before = columns(problem, 1)
    rest = np.full(before.shape, 2, np.uint8)
    clip_group(problem, OVR, 1, rest=rest, patience=3)
    moved = columns(problem, 1) != before
    assert moved.any()
    np.testing.assert_array_equal(rest, np.where(moved, 0, 3))


def test_a_rested_variable_is_counted_and_stays_as_it_is():
    problem = toy("one_vs_rest", groups=((0, 1), (2, 3)), start="random")
    before = problem.alpha.copy()
    rest = np.full(columns(problem, 0).shape, 3, np.uint8)
    assert clip_group(problem, OVR, 0, rest=rest, patience=3) == (0.0, 0.0, 0)
    np.testing.assert_array_equal(problem.alpha, before)
    assert (rest == 4).all()


def test_a_counter_does_not_run_over():
    problem = toy("one_vs_rest", groups=((0, 1), (2, 3)))
    rest = np.full(columns(problem, 0).shape, 255, np.uint8)
    clip_group(problem, OVR, 0, rest=rest, patience=3)
    assert (rest == 255).all()
    clip_group(problem, OVR, 0, rest=rest, patience=EVERYTHING)
    assert (rest == 0).any()


def test_one_awake_variable_among_many_is_solved_alone():
    problem = toy("one_vs_rest", groups=(tuple(range(9)),), n=60, start="random")
    rest = np.full(problem.alpha.shape, 9, np.uint8)
    rest[:, 2] = 0
    before = problem.alpha.copy()
    assert clip_group(problem, OVR, 0, rest=rest, patience=3, rows=np.array([0]))[2] == 1
    changed = np.argwhere(problem.alpha != before)
    assert changed.tolist() in ([], [[0, 2]])


def test_rows_without_features_are_settled_once_and_never_visited():
    X = np.array([[0.0, 0.0], [1.0, 2.0], [0.0, 0.0]])
    data = as_data(X, [0, 1, -1], np.array([1.0, 2.0, 3.0]), 0.0)
    for own, first in [(True, [1.0, 1.0]), (False, [0.0, 1.0])]:
        alpha = np.zeros((3, 2))
        settle_zero_rows(data, alpha, own)
        np.testing.assert_array_equal(alpha, [first, [0.0, 0.0], [3.0, 3.0]])
    W, alpha = np.zeros((3, 2)), np.zeros((3, 2))
    order = np.array([[0, 2]])
    rest = np.zeros((3, 2), np.uint8)
    scratch = make_group_scratch(2, "float64")
    assert clip_visit(OVR(2), data, order, W, alpha, rest, EVERYTHING, scratch) == (0.0, 0.0, 0)
    assert not alpha.any()


# -- weights from alpha ----------------------------------------------------------------------------


@every_loss
def test_clip_weights_by_blocks_are_the_weights_of_the_formulation(loss):
    problem = toy(NAME_OF[loss], start="random")
    W = np.zeros((problem.Z.shape[1], problem.k))
    for group in problem.groups:
        place = np.full(problem.k, -1)
        place[list(group)] = np.arange(len(group))
        data = problem.data(np.arange(problem.y.size), place[problem.y])
        alpha = np.ascontiguousarray(problem.alpha[:, group])
        columns = np.zeros((W.shape[0], len(group)))
        add_clip_weights(loss(problem.k), data, problem.C, alpha, columns, scratch_of(problem))
        W[:, group] = columns
    if loss is LLW:
        W -= W.mean(axis=1, keepdims=True)
    expected = problem.svm.weights(problem.alpha, problem.Z, problem.y)
    np.testing.assert_allclose(W, expected, atol=1e-12)
