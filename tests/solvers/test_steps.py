"""One visit of one example: the exact step of the specification, whatever rows and alpha are."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import example, given, settings
from hypothesis import strategies as st
from solvers.small import (
    IN_FLOAT32,
    IN_FLOAT64,
    as_duals,
    combination_name,
    make_hard_run,
    random_alpha,
    specification,
    with_constant,
)

from dask_mcsvm.formulations.crammer_singer import project_to_simplex
from dask_mcsvm.solvers.kernels.candidate_classes import take_largest
from dask_mcsvm.solvers.kernels.steps import clipped_sum_root, simplex_threshold
from dask_mcsvm.training import Problem

every_combination = pytest.mark.parametrize(
    "combination", IN_FLOAT64 + IN_FLOAT32, ids=combination_name
)
in_float64 = pytest.mark.parametrize("combination", IN_FLOAT64, ids=combination_name)
few = settings(max_examples=25)


@dataclass(frozen=True)
class Sketch:
    """A problem without the choices that cost a compilation."""

    X: np.ndarray
    y: np.ndarray
    C: np.ndarray
    k: int
    tau: float
    i: int
    seed: int


@st.composite
def sketches(draw, most_classes=40):
    """A few rows, some with many ties, C a power of two, and the example to visit."""
    n, d = draw(st.integers(2, 5)), draw(st.integers(1, 9))  # one row is laid out in its own way
    k = draw(st.integers(2, 9) | st.just(most_classes))  # kernels take stretches of 8 and of 32
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    X = rng.integers(-1, 2, size=(n, d)) if draw(st.booleans()) else rng.normal(size=(n, d))
    X = np.float32(X) * np.float32(draw(st.sampled_from([0.0625, 1.0, 8.0])))
    X[:, 0] += X[:, 0] == 0  # a row of zeros is never visited
    C = draw(st.sampled_from([0.0625, 1.0, 16.0])) * rng.choice([0.5, 1.0, 2.0], size=n)
    tau = draw(st.sampled_from([0.0, 1.0]))
    return Sketch(X, rng.integers(k, size=n), C, k, tau, draw(st.integers(0, n - 1)), seed)


@dataclass(frozen=True)
class Visit:
    """A run that starts from a feasible alpha, and what the specification knows about it."""

    run: Any
    problem: Problem
    svm: Any
    Z: np.ndarray
    alpha: np.ndarray
    i: int
    eps: float

    @property
    def now(self):
        """alpha as it is."""
        return self.run.duals().to_dense(self.problem.y)

    def dual(self, alpha):
        return self.svm.dual(alpha, self.Z, self.problem.y)

    def weights(self, alpha):
        return self.svm.weights(alpha, self.Z, self.problem.y)

    @property
    def exact(self):
        """The step of the specification."""
        W = self.weights(self.alpha)
        return self.svm.example_step(self.i, self.alpha, W, self.Z, self.problem.y)

    @property
    def alpha_error(self):
        """What rounding may do to alpha_i: scores count in units of 1/A."""
        scores = self.svm.scores(self.weights(self.alpha), self.Z[self.i : self.i + 1])
        A = np.sum(self.Z[self.i] ** 2)
        return self.eps * (self.problem.C[self.i] + (1 + np.max(np.abs(scores))) / A)

    @property
    def dual_error(self):
        W = self.weights(self.alpha)
        return self.eps * (1 + self.svm.primal(W, self.Z, self.problem.y) + np.sum(W**2))

    def full(self):
        """One full visit of the example."""
        self.run.visited_of = [np.array([self.i])]
        return self.run.uniform_epoch()


def prepare(sketch, combination):
    name, csr, sparse, dtype = combination
    rows = sp.csr_array(sketch.X.astype(dtype)) if csr else sketch.X.astype(dtype)
    problem = Problem(rows, sketch.y, sketch.C, sketch.k, name, sketch.tau)
    alpha = random_alpha(name, sketch.y, sketch.C, sketch.k, np.random.default_rng(sketch.seed))
    start = as_duals(name, alpha, sketch.y, sketch.C, sparse=sparse, dtype=dtype)
    return Visit(
        make_hard_run(problem, start=start), problem, specification(problem),
        with_constant(problem), alpha, sketch.i, 1e-9 if dtype == "float64" else 1e-4,
    )  # fmt: skip


@every_combination
@few
@given(sketch=sketches())
def test_a_visit_makes_the_exact_step_of_its_example_and_of_no_other(combination, sketch):
    visit = prepare(sketch, combination)
    visit.full()
    now, others = visit.now, np.arange(sketch.y.size) != visit.i
    np.testing.assert_allclose(now[visit.i], visit.exact, rtol=0, atol=visit.alpha_error)
    np.testing.assert_array_equal(now[others], visit.alpha[others])


@every_combination
@few
@given(sketch=sketches())
def test_a_visit_stays_feasible_and_never_lowers_the_dual(combination, sketch):
    visit = prepare(sketch, combination)
    visit.full()
    now = visit.now
    assert visit.svm.feasible(now, sketch.y, atol=1e-3 * visit.eps * sketch.C.max())
    assert visit.dual(now) >= visit.dual(visit.alpha) - 1e-3 * visit.dual_error


@every_combination
@few
@given(sketch=sketches())
def test_a_visit_keeps_the_weights_the_image_of_alpha_and_knows_its_gain(combination, sketch):
    visit = prepare(sketch, combination)
    visit.full()
    W = visit.run.W + (visit.run.shift[:, None] if visit.run.shift.size else 0.0)
    expected = visit.weights(visit.now)
    scale = 1 + sketch.C.max() * np.max(np.abs(visit.Z))
    np.testing.assert_allclose(W, expected, rtol=0, atol=visit.eps * scale)
    assert visit.run.dual == pytest.approx(visit.dual(visit.now), abs=visit.dual_error)


@every_combination
@few
@given(sketch=sketches())
def test_a_visit_sees_the_loss_and_the_share_of_the_gap_from_before_its_step(combination, sketch):
    visit = prepare(sketch, combination)
    visit.run.seen[:] = np.nan
    visit.full()
    scores = visit.svm.scores(visit.weights(visit.alpha), visit.Z)
    loss = visit.svm.losses_from_scores(scores, sketch.y)[visit.i]
    # P - D = sum of C loss - l(alpha) + B.scores, since ||W||^2 = sum of B.scores
    B = visit.svm.coefficients(visit.alpha, sketch.y)[visit.i]
    share = B @ scores[visit.i] - visit.svm.dual_linear(visit.alpha, sketch.y)[visit.i]
    share += sketch.C[visit.i] * loss
    error = visit.eps * (1 + loss + np.max(np.abs(scores)))
    assert visit.run.seen[visit.i] == pytest.approx([loss, share], abs=error * (1 + sketch.C.max()))
    assert np.all(np.isnan(np.delete(visit.run.seen, visit.i, axis=0)))


@in_float64
@few
@given(sketch=sketches(most_classes=9))
def test_visits_that_may_add_one_class_at_a_time_climb_to_the_exact_step(combination, sketch):
    visit = prepare(sketch, combination)
    visit.run.fresh = 1
    before = visit.dual(visit.alpha)
    for _ in range(8 * sketch.k):
        visit.full()
        after = visit.dual(visit.now)
        assert after >= before - 1e-3 * visit.dual_error
        before = after
    np.testing.assert_allclose(visit.now[visit.i], visit.exact, rtol=0, atol=visit.alpha_error)


@in_float64
@few
@given(sketch=sketches())
def test_a_shrunk_visit_solves_the_variables_it_may_move_and_leaves_the_rest(combination, sketch):
    """Crammer-Singer may move the nonzeros, the others what is strictly inside the box."""
    visit = prepare(sketch, combination)
    old, i, label, C = visit.alpha[visit.i], visit.i, sketch.y[visit.i], sketch.C[visit.i]
    visit.run._shrunk([np.array([i])])
    now = visit.now
    others = np.arange(sketch.y.size) != i
    np.testing.assert_array_equal(now[others], visit.alpha[others])
    assert visit.svm.feasible(now, sketch.y, atol=1e-12 * C)
    assert visit.dual(now) >= visit.dual(visit.alpha) - 1e-3 * visit.dual_error
    scores = visit.svm.scores(visit.weights(now), visit.Z)
    error = visit.eps * (1 + np.max(np.abs(scores)))
    if combination[0] == "crammer_singer":
        np.testing.assert_array_equal(now[i, old == 0], 0.0)
        if np.count_nonzero(old) <= 2 and old[label] in (0.0, C):  # such an example rests
            np.testing.assert_array_equal(now[i], old)
            return
        g = visit.svm.gradients(scores, sketch.y)[i, old != 0]
        room = (visit.svm.upper(sketch.y)[i] - now[i] > 1e-9 * C)[old != 0]
        assert not np.any(room) or np.max(g) - np.min(g[room]) <= error
        return
    free = (old > 0) & (old < C)
    if combination[0] == "one_vs_rest" and np.any(free):
        free[label] = True  # the own class is always on the list
    np.testing.assert_array_equal(now[i, ~free], old[~free])
    assert np.max(visit.svm.violations(now, visit.Z, sketch.y)[i, free], initial=0.0) <= error


# -- the pieces of a step --------------------------------------------------------------------------

lengths = st.integers(1, 12)
totals = st.sampled_from([1e-6, 0.1, 0.3, 1.0, 10.0, 1e6])


class Impatient:
    """An array that may be read only so many times from end to end."""

    def __init__(self, values, passes):
        self.values, self.reads = values, passes * values.size

    def __getitem__(self, position):
        self.reads -= 1
        assert self.reads >= 0, "the search for the threshold does not end"
        return self.values[position]


def threshold(u, total):
    """The threshold, compiled, once the same code in Python is known to come to an end."""
    simplex_threshold.py_func(Impatient(u, 2 * (u.size + 2)), u.size, total)
    return simplex_threshold(u, u.size, total)


@st.composite
def simplex_points(draw):
    size, seed = draw(lengths), draw(st.integers(0, 2**32 - 1))
    rng, total = np.random.default_rng(seed), draw(totals)
    if draw(st.booleans()):
        u = rng.integers(-3, 4, size=size) * total / 2
    else:
        u = rng.normal(size=size) * draw(st.sampled_from([1e-3, 1.0, 1e3])) * total
    return u.astype(np.float64), total


@given(simplex_points())
def test_the_simplex_threshold_is_that_of_a_sort(case):
    u, total = case
    theta = threshold(u, total)
    scale = np.max(np.abs(u)) + total
    expected = project_to_simplex(u, total)
    np.testing.assert_allclose(np.maximum(0.0, u - theta), expected, rtol=0, atol=1e-13 * scale)


@given(simplex_points(), st.integers(0, 2**32 - 1))
@example((np.array([0.2, 0.3]), 0.1), 0)
def test_an_entry_at_the_threshold_does_not_keep_the_search_going(case, seed):
    u, total = case
    tied = np.random.default_rng(seed).permutation(np.append(u, threshold(u, total)))
    scale = np.max(np.abs(tied)) + total
    assert np.sum(np.maximum(0.0, tied - threshold(tied, total))) == pytest.approx(
        total, abs=1e-13 * scale
    )


@pytest.mark.parametrize("far", [1e3, 1e12, 1e17, 1e20])
@pytest.mark.parametrize("size", [1, 3])
def test_a_total_lost_in_rounding_does_not_keep_the_search_for_the_threshold_going(far, size):
    theta = threshold(np.full(size, -far), 1.0)
    assert theta == pytest.approx(-far - 1.0 / size, rel=1e-15)


in_bounds = st.floats(-3.0, 3.0) | st.sampled_from([-1e12, 1e12, 0.0, 1.0])


@given(
    st.lists(in_bounds, min_size=1, max_size=12),
    st.sampled_from([1e-8, 0.3, 1.0, 1e8]),
    st.none() | st.integers(1, 5),
    st.floats(-1.0, 13.0),
)
def test_the_root_solves_the_equation_of_the_coupled_step(values, bound, more_classes, start):
    v = np.array([np.nan, *values]) * bound  # v[0] is the own class, which takes no part
    q = v.size
    kappa = 1.0 if more_classes is None else -1.0 / (q - 1 + more_classes)
    S = clipped_sum_root(v, q, kappa, bound, start * bound)
    total = np.sum(np.clip(v[1:] - kappa * S, 0.0, bound))
    assert total == pytest.approx(S, abs=1e-13 * bound * q)


@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 100),
    st.booleans(),
    st.sampled_from([-10.0, -1.0, 0.0, 2.5]),
    st.integers(0, 2),
    st.integers(1, 12) | st.just(100),
)
def test_the_classes_taken_are_the_largest_above_the_threshold(
    seed, size, ties, above, listed, fresh
):
    rng = np.random.default_rng(seed)
    s = rng.integers(-3, 4, size=size).astype(float) if ties else rng.normal(size=size)
    s[rng.random(size) < 0.2] = -np.inf  # what is on the list already
    classes, scores = np.full(listed + size + 1, -1, np.int32), np.full(listed + size + 1, 9.0)
    stop = take_largest(s, above, classes, scores, listed, fresh)
    taken = classes[listed:stop]
    assert np.unique(taken).size == taken.size
    np.testing.assert_array_equal(scores[listed:stop], s[taken])
    np.testing.assert_array_equal(np.sort(s[taken])[::-1], np.sort(s[s > above])[::-1][:fresh])
    np.testing.assert_array_equal(classes[:listed], -1)
    np.testing.assert_array_equal(scores[:listed], 9.0)
