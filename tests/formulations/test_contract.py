"""What every formulation must satisfy, written once; four classes at the end run it."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dask_mcsvm.formulations import CrammerSinger, LeeLinWahba, OneVsRest, WestonWatkins
from dask_mcsvm.formulations.margins import make_table, margin_rows

# The contract's methods run under four subclasses on purpose; nothing is shared between them.
quick = settings(
    deadline=None, max_examples=30, suppress_health_check=[HealthCheck.differing_executors]
)
GRID = 1024  # feasible alphas are multiples of C / GRID: their sums are exact in float64


@dataclass(frozen=True)
class Problem:
    """Small random data; C is a power of two or one per example."""

    X: Any
    y: np.ndarray
    C: Any
    n_classes: int
    seed: int

    @property
    def costs(self):
        return np.broadcast_to(self.C, self.y.shape)

    @property
    def rng(self):
        return np.random.default_rng(self.seed)


@st.composite
def problems(draw, zero_rows=True):
    """Dense or CSR rows of several lengths, some of them zero."""
    n, d, k = draw(st.integers(1, 7)), draw(st.integers(1, 5)), draw(st.integers(2, 5))
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * draw(st.sampled_from([0.125, 1.0, 8.0]))
    X *= rng.random((n, d)) < 0.7
    if zero_rows:
        X[rng.random(n) < 0.2] = 0.0
    else:
        X[:, 0] += 0.5 * (X[:, 0] == 0)
    C = draw(st.sampled_from([0.125, 1.0, 16.0]))
    if draw(st.booleans()):
        C = C * rng.choice([0.0, 0.5, 1.0, 4.0], size=n)
    if draw(st.booleans()):
        X = sp.csr_array(X)
    return Problem(X, rng.integers(k, size=n), C, k, seed)


def random_box(problem, rng, has_own_variable=False):
    """A feasible alpha of a box formulation, about a third of it at each end of the box."""
    shape = (problem.y.size, problem.n_classes)
    parts = np.clip(rng.integers(-GRID, 2 * GRID, size=shape), 0, GRID)
    if not has_own_variable:
        parts[np.arange(problem.y.size), problem.y] = 0
    return problem.costs[:, None] * parts / GRID


def random_simplex(problem, rng):
    """A feasible alpha of Crammer-Singer: rivals share at most C_i, the own class balances."""
    alpha = np.zeros((problem.y.size, problem.n_classes))
    for row, label, cost in zip(alpha, problem.y, problem.costs, strict=True):
        share = rng.choice([0, GRID, rng.integers(GRID)])
        cuts = np.sort(rng.integers(share + 1, size=problem.n_classes - 2))
        row[np.arange(row.size) != label] = -cost * np.diff([0, *cuts, share]) / GRID
        row[label] = cost * share / GRID
    return alpha


def close(value, *, scale):
    return pytest.approx(value, rel=1e-9, abs=1e-9 * (1 + abs(scale)))


class FormulationContract:
    make: Any
    random_alpha: Any

    def start(self, problem):
        """The formulation, a feasible alpha and its W."""
        svm = self.make(problem.n_classes, problem.C)
        alpha = self.random_alpha(problem, problem.rng)
        return svm, alpha, svm.weights(alpha, problem.X, problem.y)

    @quick
    @given(problems(), st.sampled_from([0.0, 0.01, 1.0, 100.0]))
    def test_weak_duality(self, p, size):
        svm, alpha, W = self.start(p)
        dual = svm.dual(alpha, p.X, p.y)
        other = svm.project_weights(size * p.rng.normal(size=W.shape))
        assert svm.feasible(alpha, p.y)
        for candidate in (W, other):
            primal = svm.primal(candidate, p.X, p.y)
            assert dual <= primal + 1e-12 * (1 + abs(primal) + abs(dual))
        assert svm.gap(alpha, p.X, p.y) == close(svm.primal(W, p.X, p.y) - dual, scale=dual)

    @quick
    @given(problems())
    def test_weights_are_the_dual_map(self, p):
        """The slope of the dual is -g at the scores of W(alpha); D is a parabola in the step."""
        svm, alpha, W = self.start(p)
        direction = p.rng.normal(size=alpha.shape) * (self.random_alpha(p, p.rng) != 0)
        there, back = svm.dual(alpha + direction, p.X, p.y), svm.dual(alpha - direction, p.X, p.y)
        g = svm.gradients(svm.scores(W, p.X), p.y)
        scale = abs(there) + abs(back)
        assert -np.sum(g * direction) == close((there - back) / 2, scale=scale)

    @quick
    @given(problems())
    def test_weights_change_is_the_difference_of_weights(self, p):
        svm, alpha, W = self.start(p)
        new = alpha.copy()
        new[0] = self.random_alpha(p, np.random.default_rng(0))[0]
        row = p.X[:1] if sp.issparse(p.X) else p.X[0]
        moved = W + svm.weights_change(new[0] - alpha[0], row, int(p.y[0]))
        np.testing.assert_allclose(moved, svm.weights(new, p.X, p.y), atol=1e-9)

    @quick
    @given(problems())
    def test_two_copies_at_half_the_cost_are_the_same_problem(self, p):
        svm, alpha, W = self.start(p)
        half = self.make(p.n_classes, np.tile(p.costs / 2, 2))
        X = sp.vstack([p.X, p.X], format="csr") if sp.issparse(p.X) else np.vstack([p.X, p.X])
        y, halves = np.tile(p.y, 2), np.vstack([alpha, alpha]) / 2
        assert half.feasible(halves, y)
        np.testing.assert_allclose(half.weights(halves, X, y), W, atol=1e-9)
        primal, dual = svm.primal(W, p.X, p.y), svm.dual(alpha, p.X, p.y)
        assert half.primal(W, X, y) == close(primal, scale=primal)
        assert half.dual(halves, X, y) == close(dual, scale=primal)

    @quick
    @given(problems())
    def test_integer_costs_are_replicated_rows(self, p):
        weight = p.rng.integers(4, size=p.y.size)
        weighted = self.make(p.n_classes, 0.5 * weight)
        alpha = self.random_alpha(Problem(p.X, p.y, 0.5, p.n_classes, p.seed), p.rng)
        rows = np.repeat(np.arange(p.y.size), weight)
        copies, X, y = self.make(p.n_classes, 0.5), p.X[rows], p.y[rows]
        total = weight[:, None] * alpha
        assert weighted.feasible(total, p.y)
        W = weighted.weights(total, p.X, p.y)
        np.testing.assert_allclose(copies.weights(alpha[rows], X, y), W, atol=1e-9)
        primal = copies.primal(W, X, y)
        assert weighted.primal(W, p.X, p.y) == close(primal, scale=primal)
        assert weighted.dual(total, p.X, p.y) == close(copies.dual(alpha[rows], X, y), scale=primal)

    @quick
    @given(problems())
    def test_renaming_classes_permutes_columns(self, p):
        svm, alpha, W = self.start(p)
        new_name = p.rng.permutation(p.n_classes)
        y, renamed, W_renamed = new_name[p.y], np.empty_like(alpha), np.empty_like(W)
        renamed[:, new_name], W_renamed[:, new_name] = alpha, W
        np.testing.assert_allclose(svm.weights(renamed, p.X, y), W_renamed, atol=1e-9)
        gap = svm.gap(alpha, p.X, p.y)
        assert svm.gap(renamed, p.X, y) == close(gap, scale=svm.primal(W, p.X, p.y))

    @quick
    @given(problems())
    def test_filled_zero_rows_close_their_part_of_the_gap(self, p):
        svm, alpha, W = self.start(p)
        zero = np.abs(p.X).sum(axis=1) == 0
        filled = svm.fill_zero_rows(alpha, p.X, p.y)
        assert svm.feasible(filled, p.y)
        np.testing.assert_array_equal(filled[~zero], alpha[~zero])
        rest = self.make(p.n_classes, p.costs[~zero])
        gap_of_rest = rest.gap(alpha[~zero], p.X[~zero], p.y[~zero])
        scale = svm.primal(W, p.X, p.y)
        assert svm.gap(filled, p.X, p.y) == close(gap_of_rest, scale=scale)
        empty = svm.fill_zero_rows(np.zeros_like(alpha), 0 * p.X, p.y)
        assert svm.gap(empty, 0 * p.X, p.y) == close(0.0, scale=scale)
        assert np.all(svm.violations(filled, p.X, p.y)[zero] == 0)

    @quick
    @given(problems())
    def test_repair(self, p):
        svm, alpha, _ = self.start(p)
        noise = 1e-6 * p.rng.normal(size=(2, *alpha.shape))
        rounded = (alpha * (1 + noise[0]) + noise[1]).astype(np.float32)
        repaired = svm.repair(rounded, p.y)
        assert repaired.dtype == np.float64
        assert svm.feasible(repaired, p.y)
        np.testing.assert_allclose(repaired, alpha, atol=2e-5 * (1 + p.costs.max()))
        np.testing.assert_array_equal(svm.repair(alpha, p.y), alpha)
        np.testing.assert_array_equal(svm.repair(repaired, p.y), repaired)
        assert svm.feasible(svm.repair(100 * p.rng.normal(size=alpha.shape), p.y), p.y)

    @quick
    @given(problems())
    def test_feasible_sees_what_is_wrong(self, p):
        svm, alpha, _ = self.start(p)
        for entry in np.ndindex(alpha.shape):
            for off in (p.costs[entry[0]] + 0.25, -p.costs[entry[0]] - 0.25, np.nan):
                wrong = alpha.copy()
                wrong[entry] += off
                assert not svm.feasible(wrong, p.y)
                assert not svm.feasible(wrong, p.y, atol=0.125)
        assert svm.feasible(alpha + 1e-8, p.y, atol=1e-7)

    @quick
    @given(problems())
    def test_example_step(self, p):
        """Feasible, no other block is better, and a second step does not move."""
        svm, alpha, W = self.start(p)
        start = svm.dual(alpha, p.X, p.y)
        tolerance = 1e-10 * (1 + abs(start) + svm.primal(W, p.X, p.y))
        for i in range(p.y.size):
            new = alpha.copy()
            new[i] = svm.example_step(i, alpha, W, p.X, p.y)
            best = svm.dual(new, p.X, p.y)
            assert svm.feasible(new, p.y)
            assert best >= start - tolerance
            for seed in range(5):
                other = alpha.copy()
                other[i] = self.random_alpha(p, np.random.default_rng(seed))[i]
                assert best >= svm.dual(other, p.X, p.y) - tolerance
            W_new = svm.weights(new, p.X, p.y)
            again = svm.example_step(i, new, W_new, p.X, p.y)
            np.testing.assert_allclose(again, new[i], atol=1e-9 * (1 + p.costs[i]))
            assert np.max(svm.violations(new, p.X, p.y)[i]) <= tolerance

    @quick
    @given(problems(zero_rows=False))
    def test_a_step_from_zero_is_the_prox_of_the_loss(self, p):
        """[SPLIT]: z = v + B(alpha) A minimizes C loss(z) + ||z - v||^2 / (2 A)."""
        svm, _, W = self.start(p)
        v, A, C, label = svm.scores(W, p.X)[0], 0.5, 2.0, int(p.y[0])
        alpha = svm.block_step(np.zeros_like(v), v, A, label, C)
        z = v + A * svm.coefficients(alpha[None], [label])[0]

        def objective(candidate):
            loss = svm.losses_from_scores(candidate[None], [label])[0]
            return C * loss + np.sum((candidate - v) ** 2) / (2 * A)

        for size in (1e-4, 1e-2, 1.0):
            step = svm.project_weights(size * p.rng.normal(size=(1, v.size)))[0]
            assert objective(z) <= objective(z + step) * (1 + 1e-12) + 1e-12

    @quick
    @given(problems())
    def test_sparse_and_float32_input_is_computed_in_float64(self, p):
        dense = np.asarray(p.X.todense() if sp.issparse(p.X) else p.X).astype(np.float32)
        svm, alpha, _ = self.start(p)
        W = svm.weights(alpha, dense.astype(np.float64), p.y)
        gap = svm.gap(alpha, dense.astype(np.float64), p.y)
        step = svm.example_step(0, alpha, W, dense.astype(np.float64), p.y)
        for X in (dense, sp.csr_array(dense), sp.csr_matrix(dense)):
            same = svm.weights(alpha, X, p.y)
            assert type(same) is np.ndarray
            assert same.dtype == svm.scores(W.astype(np.float32), X).dtype == np.float64
            np.testing.assert_allclose(same, W, atol=1e-12 * (1 + np.abs(W).max()))
            assert svm.gap(alpha, X, p.y) == close(gap, scale=svm.primal(W, X, p.y))
            same_step = svm.example_step(0, alpha, W, X, p.y)
            np.testing.assert_allclose(same_step, step, atol=1e-10 * (1 + p.costs[0]))

    @quick
    @given(problems())
    def test_primal_at_zero(self, p):
        svm, _, W = self.start(p)
        at_zero = svm.primal(np.zeros_like(W), p.X, p.y)
        assert svm.primal_at_zero(p.y.size) == close(at_zero, scale=at_zero)

    def test_facts_are_those_of_the_formulas(self):
        svm, y, scores = self.make(3, 10.0), np.array([0]), np.array([[0.3, 0.2, -0.1]])
        weaker = scores - [0.0, 0.0, 0.1]  # class 2 is not the strongest rival
        loss, higher, weak = (
            svm.losses_from_scores(s, y)[0] for s in (scores, scores + 1.0, weaker)
        )
        assert svm.loss_at_zero(3) == svm.losses_from_scores(np.zeros((1, 3)), y)[0]
        assert svm.compares_with_own == (abs(higher - loss) < 1e-12)
        assert svm.loss_is_maximum == (abs(weak - loss) < 1e-12)
        assert svm.has_own_variable == (svm.zero_row_alpha(y)[0, 0] != 0)
        assert svm.rival_sign == np.sign(svm.coefficients([[0.0, 1.0, 0.0]], y)[0, 1])
        assert svm.columns_sum_to_zero == (not svm.project_weights(np.ones((1, 3))).all())
        steps = [svm.block_step(np.zeros(3), s[0], 1.0, 0, 10.0) for s in (scores, weaker)]
        assert svm.classes_are_independent == (steps[0][1] == steps[1][1])

    def test_bad_parameters_are_refused(self):
        with pytest.raises(ValueError, match=r"n_classes=1; a classifier needs 2 classes or more"):
            self.make(1, 1.0)
        with pytest.raises(ValueError, match=r"every cost must be finite and at least 0"):
            self.make(3, np.array([1.0, -1.0]))
        with pytest.raises(ValueError, match=r"C has shape \(1, 2\); use a number or an array"):
            self.make(3, np.ones((1, 2)))
        with pytest.raises(ValueError, match=r"C has 2 costs, but there are 3 examples"):
            self.make(3, np.ones(2)).primal(np.zeros((1, 3)), np.ones((3, 1)), np.arange(3))


class TestCrammerSinger(FormulationContract):
    make = CrammerSinger
    random_alpha = staticmethod(random_simplex)

    @quick
    @given(problems())
    def test_two_classes_are_weston_watkins(self, p):
        y = p.y % 2
        cs, ww = CrammerSinger(2, p.C), WestonWatkins(2, p.C)
        alpha = np.zeros((y.size, 2))
        alpha[np.arange(y.size), 1 - y] = p.costs / 2
        W = ww.weights(alpha, p.X, y)
        signed = np.where(cs.own(y), alpha[:, ::-1], -alpha)
        np.testing.assert_allclose(cs.weights(signed, p.X, y), W, atol=1e-12)
        assert cs.gap(signed, p.X, y) == close(ww.gap(alpha, p.X, y), scale=ww.primal(W, p.X, y))

    def test_a_full_own_class_is_at_its_bound_in_spite_of_rounding(self):
        """alpha_iy = -sum of rivals may miss C_i by an ulp, which is no room to grow."""
        rng = np.random.default_rng(0)
        svm, y = CrammerSinger(7, 0.3), np.zeros(200, dtype=int)
        rivals = rng.dirichlet(np.ones(6), size=200)
        alpha = svm.repair(np.hstack([np.full((200, 1), 0.3), -0.3 * rivals]), y)
        assert np.any(alpha[:, 0] < 0.3)
        assert np.all(svm.violations(alpha, np.zeros((200, 1)), y) == 0)


@quick
@given(problems())
def test_two_classes_are_one_binary_svm(p):
    """[TWO]: which C and which v make a binary SVM of each formulation."""
    y, v = p.y % 2, p.rng.normal(size=p.X.shape[1])

    def binary(C):
        hinges = np.maximum(0, 1 - np.where(y == 1, 1, -1) * (p.X @ v))
        return 0.5 * v @ v + np.sum(C * hinges)

    pair = np.column_stack([-v, v])
    for make in (CrammerSinger, WestonWatkins):
        assert make(2, p.C).primal(pair / 2, p.X, y) == pytest.approx(binary(2 * p.costs) / 2)
    assert LeeLinWahba(2, p.C).primal(pair, p.X, y) == pytest.approx(2 * binary(p.costs / 2))
    assert OneVsRest(2, p.C).primal(pair, p.X, y) == pytest.approx(2 * binary(p.costs))


class TestWestonWatkins(FormulationContract):
    make = WestonWatkins
    random_alpha = staticmethod(random_box)


class TestLeeLinWahba(FormulationContract):
    make = LeeLinWahba
    random_alpha = staticmethod(random_box)

    @quick
    @given(problems())
    def test_weights_sum_to_zero_over_classes(self, p):
        svm, _, W = self.start(p)
        scale = 1 + np.abs(p.X).max() * p.costs.sum()
        np.testing.assert_allclose(W.sum(axis=1), 0.0, atol=1e-13 * scale)
        projected = svm.project_weights(W + p.rng.normal(size=(W.shape[0], 1)))
        np.testing.assert_allclose(projected, W, atol=1e-13 * scale)


class TestOneVsRest(FormulationContract):
    make = OneVsRest

    @staticmethod
    def random_alpha(problem, rng):
        return random_box(problem, rng, has_own_variable=True)

    @quick
    @given(problems())
    def test_classes_are_independent(self, p):
        svm, alpha, W = self.start(p)
        other = self.random_alpha(p, np.random.default_rng(p.seed + 1))
        other[:, 0] = alpha[:, 0]
        np.testing.assert_array_equal(svm.weights(other, p.X, p.y)[:, 0], W[:, 0])


def some_margins(n_classes):
    """Margins in quarters, so that sums are exact; not symmetric, some zero."""
    values = np.random.default_rng(n_classes).integers(8, size=(n_classes, n_classes)) / 4
    np.fill_diagonal(values, 0.0)
    return values


class MarginContract(FormulationContract):
    """The same where a mistake costs something else than 1."""

    kind: Any

    def make(self, n_classes, C):
        return self.kind(n_classes, C, make_table(some_margins(max(n_classes, 2))))

    @quick
    @given(problems())
    def test_primal_at_zero(self, p):
        svm, _, W = self.start(p)
        at_zero = svm.primal(np.zeros_like(W), p.X, p.y)
        assert p.costs @ svm.losses_at_zero(p.y) == close(at_zero, scale=at_zero)

    @quick
    @given(problems())
    def test_renaming_classes_permutes_columns(self, p):
        svm, alpha, W = self.start(p)
        new_name = p.rng.permutation(p.n_classes)
        values = some_margins(p.n_classes)
        renamed, margins = np.empty_like(alpha), np.empty_like(values)
        renamed[:, new_name], margins[np.ix_(new_name, new_name)] = alpha, values
        other = self.kind(p.n_classes, p.C, make_table(margins))
        gap = svm.gap(alpha, p.X, p.y)
        scale = svm.primal(W, p.X, p.y)
        assert other.gap(renamed, p.X, new_name[p.y]) == close(gap, scale=scale)

    def test_facts_are_those_of_the_formulas(self):
        svm = self.make(3, 1.0)
        assert svm.has_margins
        np.testing.assert_array_equal(margin_rows(svm.margins, [2, 0], 3), some_margins(3)[[2, 0]])

    @quick
    @given(problems())
    def test_margins_of_one_are_none(self, p):
        alpha = self.random_alpha(p, p.rng)
        ones = make_table(1.0 - np.eye(p.n_classes))
        gaps = [self.kind(p.n_classes, p.C, m).gap(alpha, p.X, p.y) for m in ((), ones)]
        assert gaps[0] == gaps[1]


class TestCrammerSingerWithMargins(MarginContract):
    kind = CrammerSinger
    random_alpha = staticmethod(random_simplex)


class TestWestonWatkinsWithMargins(MarginContract):
    kind = WestonWatkins
    random_alpha = staticmethod(random_box)


@pytest.mark.parametrize("kind", [LeeLinWahba, OneVsRest])
def test_other_formulations_have_no_margins(kind):
    with pytest.raises(ValueError, match=rf"^{kind.title} has no margins between two classes\.$"):
        kind(3, 1.0, make_table(some_margins(3)))
