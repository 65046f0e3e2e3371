"""Visits of class groups: exact on their block, and together the optimum of the formulation."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import solve

from dask_mcsvm.formulations import FORMULATIONS
from dask_mcsvm.formulations._box import coupled_clip
from dask_mcsvm.graphs.schedule import visit_rounds
from dask_mcsvm.solvers._rows import as_rows, read_only, square_norms
from dask_mcsvm.solvers._steps import LLW, OVR
from dask_mcsvm.solvers.groups import (
    add_clip_weights,
    add_ww_weights,
    clip_visit,
    make_group_scratch,
    settle_zero_rows,
    ww_own_visit,
    ww_pair_visit,
)
from dask_mcsvm.solvers.sdm import Data

EVERYTHING = 255
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

    def rows_of(self, g):
        return np.flatnonzero(np.isin(self.y, self.groups[g]))

    def data(self, rows, place):
        part = self.X[rows]
        return as_data(part, place, self.C[rows], self.tau)

    def group_data(self, g):
        rows = self.rows_of(g)
        return self.data(rows, np.searchsorted(self.groups[g], self.y[rows]))

    def block(self, a, b):
        """alpha_im with y_i in a and m in b, contiguous."""
        return np.ascontiguousarray(self.alpha[np.ix_(self.rows_of(a), self.groups[b])])

    def put(self, a, b, block):
        self.alpha[np.ix_(self.rows_of(a), self.groups[b])] = block

    def refresh(self):
        """W from alpha, rounded to the type of X."""
        W = self.svm.weights(self.alpha, self.Z, self.y)
        self.W = [np.ascontiguousarray(W[:, group], self.X.dtype) for group in self.groups]


def as_data(X, y, C, tau):
    rows = as_rows(X)
    square = square_norms(rows, X.shape[0], float(tau))
    return Data(
        rows, read_only(np.int32(y)), read_only(np.asarray(C, X.dtype)), read_only(square),
        X.dtype.type(tau), X.dtype.type(1),
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


def visit(problem, a, b, *, rest=None, patience=EVERYTHING, passes=1, rows=None, seed=0):
    """Visit two groups (or one); changes the problem, returns what the kernel returns."""
    rng, scratch = np.random.default_rng(seed), scratch_of(problem)
    rest = {} if rest is None else rest
    alpha = {pair: problem.block(*pair) for pair in {(a, b), (b, a)}}
    for pair, block in alpha.items():
        rest.setdefault(pair, np.zeros(block.shape, np.uint8))
    A, B = problem.group_data(a), problem.group_data(b)
    if a == b:
        order = orders(np.arange(A.y.size) if rows is None else rows, passes, rng)
        result = ww_own_visit(A, order, problem.W[a], alpha[a, a], rest[a, a], patience, scratch)
    else:
        order = orders(np.arange(A.y.size + B.y.size) if rows is None else rows, passes, rng)
        result = ww_pair_visit(
            A, B, order, problem.W[a], problem.W[b], alpha[a, b], alpha[b, a], rest[a, b],
            rest[b, a], patience, scratch,
        )  # fmt: skip
    for pair, block in alpha.items():
        problem.put(*pair, block)
    return result


def exact_block(problem, i, classes):
    """alpha_i with the given rivals solved exactly by the specification's scalar equation."""
    rivals = [m for m in classes if m != problem.y[i]]
    new = problem.alpha[i].astype(float)
    scores = problem.Z[i] @ problem.svm.weights(problem.alpha, problem.Z, problem.y)
    g = problem.svm.gradients(scores[None], problem.y[i : i + 1])[0, rivals]
    A = problem.Z[i] @ problem.Z[i]
    v = new[rivals] - g / A + new[rivals].sum()
    new[rivals] = coupled_clip(v, 1.0, problem.C[i])
    return new


def tolerance(problem):
    return 1e-9 if problem.X.dtype == np.float64 else 2e-4


# -- Weston-Watkins --------------------------------------------------------------------------------


@every_kind
@few
@given(
    seed=st.integers(0, 2**32 - 1),
    pair=st.sampled_from([(0, 1), (0, 2), (1, 2), (0, 0), (1, 1)]),
    tau=st.sampled_from([0.0, 1.0]),
)
def test_one_row_of_a_visit_is_the_exact_step_of_its_block(csr, dtype, seed, pair, tau):
    problem = toy("weston_watkins", n=15, csr=csr, dtype=dtype, start="random", seed=seed, tau=tau)
    a, b = pair
    rows_a, rows_b = problem.rows_of(a), problem.rows_of(b)
    candidates = rows_a if a == b else np.concatenate([rows_a, rows_b])
    if candidates.size == 0:
        return
    chosen = seed % candidates.size
    i = candidates[chosen]
    expected = problem.alpha.astype(float)
    rivals = problem.groups[b if chosen < rows_a.size else a]
    expected[i] = exact_block(problem, i, rivals)
    before = problem.dual()
    violations = problem.svm.violations(problem.alpha, problem.Z, problem.y)[i, list(rivals)]
    gain, worst, work = visit(problem, a, b, rows=np.array([chosen]))
    eps = tolerance(problem)
    scale = 1 + np.abs(problem.Z[i] @ np.hstack(problem.W)).max()
    np.testing.assert_allclose(problem.alpha, expected, rtol=0, atol=eps * scale)
    assert gain == pytest.approx(problem.dual(expected) - before, abs=eps * 10 * scale)
    assert worst == pytest.approx(violations.max(), abs=eps * 10 * scale)
    assert work in (0, len(rivals))


@pytest.mark.parametrize("seed", range(3))
def test_the_block_step_beats_every_feasible_point_nearby(seed):
    problem = toy("weston_watkins", n=12, start="random", seed=seed)
    rng = np.random.default_rng(seed)
    a = next(g for g in range(3) if problem.rows_of(g).size)
    b = (a + 1) % 3
    i = problem.rows_of(a)[0]
    visit(problem, a, b, rows=np.array([0]))
    best = problem.dual()
    for scale in (1e-3, 1e-1, 1.0):
        for _ in range(50):
            other = problem.alpha.copy()
            rivals = list(problem.groups[b])
            moved = other[i, rivals] + scale * problem.C[i] * rng.normal(size=len(rivals))
            other[i, rivals] = np.clip(moved, 0, problem.C[i])
            assert problem.dual(other) <= best + 1e-12


@every_kind
def test_the_dual_never_falls_alpha_stays_feasible_and_w_stays_w_of_alpha(csr, dtype):
    problem = toy("weston_watkins", csr=csr, dtype=dtype, start="random", seed=3)
    eps = tolerance(problem)
    before = problem.dual()
    for epoch in range(4):
        for pairs in visit_rounds(3):
            for a, b in pairs:
                gain, worst, _ = visit(problem, a, b, passes=2, seed=epoch)
                now = problem.dual()
                assert gain >= 0
                assert worst >= 0
                assert now - before == pytest.approx(gain, abs=eps * 10 * (1 + abs(before)))
                assert problem.svm.feasible(problem.alpha, problem.y)
                before = now
    W = problem.svm.weights(problem.alpha, problem.Z, problem.y)
    for group, columns in zip(problem.groups, problem.W, strict=True):
        np.testing.assert_allclose(columns, W[:, group], atol=eps * 10)


@pytest.mark.parametrize(
    "groups",
    [((0, 1, 2, 3, 4),), ((0, 3), (1, 4), (2,)), ((0,), (1,), (2,), (3,), (4,))],
    ids=["one", "three", "single-classes"],
)
def test_rounds_of_all_pairs_reach_the_reference_optimum(groups):
    problem = toy("weston_watkins", groups=groups, d=20)
    _, best = solve("weston_watkins", problem.Z, problem.y, problem.C, problem.k)
    rest = {}
    for epoch in range(400):
        patience = EVERYTHING if epoch % 10 == 9 else 3
        worst = 0.0
        for pairs in visit_rounds(len(groups)):
            for a, b in pairs:
                result = visit(problem, a, b, rest=rest, patience=patience, passes=3, seed=epoch)
                worst = max(worst, result[1])
        if patience == EVERYTHING and worst < 1e-9:
            break
    assert problem.dual() == pytest.approx(best, rel=1e-8)
    assert problem.svm.gap(problem.alpha, problem.Z, problem.y) <= 1e-6 * best


def test_a_pair_visit_with_one_side_empty_is_half_a_visit():
    whole, half = (toy("weston_watkins", groups=((0, 1), (2, 3)), start="random") for _ in "ab")
    A, nobody = half.group_data(0), half.data(np.arange(0), np.arange(0))
    expected = visit(whole, 0, 1, rows=np.arange(A.y.size), passes=2)
    alpha, none = half.block(0, 1), np.zeros((0, 2))
    order = orders(np.arange(A.y.size), 2, np.random.default_rng(0))
    result = ww_pair_visit(
        A, nobody, order, *half.W, alpha, none, np.zeros(alpha.shape, np.uint8),
        np.zeros((0, 2), np.uint8), EVERYTHING, scratch_of(half),
    )  # fmt: skip
    assert result == expected
    half.put(0, 1, alpha)
    np.testing.assert_array_equal(half.alpha, whole.alpha)
    np.testing.assert_array_equal(np.hstack(half.W), np.hstack(whole.W))


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


def test_untouched_variables_rest_after_three_visits_and_wake_when_asked():
    problem = toy("weston_watkins", groups=((0, 1), (2, 3, 4)))
    rest = {}
    for epoch in range(60):
        visit(problem, 0, 1, rest=rest, patience=3, seed=epoch)
    asleep = (rest[0, 1] >= 3).all(axis=1)
    before = problem.block(0, 1)
    work = visit(problem, 0, 1, rest=rest, patience=3)[2]
    np.testing.assert_array_equal(problem.block(0, 1)[asleep], before[asleep])
    everything = visit(problem, 0, 1, rest=rest, patience=EVERYTHING)[2]
    assert asleep.any()
    assert 0 < work < everything


def test_a_variable_that_moves_is_wide_awake():
    problem = toy("weston_watkins", groups=((0, 1), (2, 3, 4)))
    rest = {pair: np.full(problem.block(*pair).shape, 2, np.uint8) for pair in [(0, 1), (1, 0)]}
    before = problem.block(0, 1)
    visit(problem, 0, 1, rest=rest, patience=3)
    moved = problem.block(0, 1) != before
    assert moved.any()
    np.testing.assert_array_equal(rest[0, 1], np.where(moved, 0, 3))


def test_a_rested_variable_is_counted_and_stays_as_it_is():
    problem = toy("weston_watkins", groups=((0, 1), (2, 3)), start="random")
    before = problem.alpha.copy()
    rest = {pair: np.full(problem.block(*pair).shape, 3, np.uint8) for pair in [(0, 1), (1, 0)]}
    assert visit(problem, 0, 1, rest=rest, patience=3) == (0.0, 0.0, 0)
    np.testing.assert_array_equal(problem.alpha, before)
    assert all((counters == 4).all() for counters in rest.values())


def test_a_counter_does_not_run_over():
    problem = toy("weston_watkins", groups=((0, 1), (2, 3)))
    rest = {pair: np.full(problem.block(*pair).shape, 255, np.uint8) for pair in [(0, 1), (1, 0)]}
    visit(problem, 0, 1, rest=rest, patience=3)
    assert all((counters == 255).all() for counters in rest.values())
    visit(problem, 0, 1, rest=rest, patience=EVERYTHING)
    assert any((counters == 0).any() for counters in rest.values())


def test_one_awake_variable_among_many_is_solved_alone():
    groups = ((0,), tuple(range(1, 9)))
    problem = toy("weston_watkins", groups=groups, n=60, start="random")
    rest = {(0, 1): np.full(problem.block(0, 1).shape, 9, np.uint8)}
    rest[0, 1][:, 2] = 0
    i = problem.rows_of(0)[0]
    expected = problem.alpha.copy()
    expected[i] = exact_block(problem, i, [groups[1][2]])
    assert visit(problem, 0, 1, rest=rest, patience=3, rows=np.array([0]))[2] == 1
    np.testing.assert_allclose(problem.alpha, expected, atol=1e-12)


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


@every_kind
def test_ww_weights_by_blocks_are_the_weights_of_the_formulation(csr, dtype):
    problem = toy("weston_watkins", csr=csr, dtype=dtype, start="random")
    W = [np.zeros(columns.shape) for columns in problem.W]
    linear = 0.0
    for a in range(3):
        for b in range(3):
            linear += add_ww_weights(
                problem.group_data(a), problem.C[problem.rows_of(a)], problem.block(a, b), a == b,
                W[a], W[b], scratch_of(problem),
            )  # fmt: skip
    expected = problem.svm.weights(problem.alpha, problem.Z, problem.y)
    for group, columns in zip(problem.groups, W, strict=True):
        np.testing.assert_allclose(columns, expected[:, group], atol=1e-12)
    assert linear == pytest.approx(float(problem.alpha.sum(dtype=float)))


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
