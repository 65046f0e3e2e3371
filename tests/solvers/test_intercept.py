"""The soft intercept: the same optimum, an exact certificate, and far fewer epochs."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from solvers.small import (
    NAMES,
    SCHEDULES,
    clusters,
    fit,
    make_hard_run,
    make_run,
    specification,
    with_constant,
)

from dask_mcsvm.solvers.sdm.intercept import (
    SoftIntercept,
    cut_visits,
    stiffness,
    visits_between_meetings,
    visits_between_moves,
)

every_loss = pytest.mark.parametrize("name", NAMES)
dense_or_csr = pytest.mark.parametrize("csr", [False, True], ids=["dense", "csr"])


def short_rows(name, *, tau=1.0, csr=False):
    """Rows of norm 0.3 beside a constant feature that outweighs them."""
    problem = clusters(name, tau=tau, n=100)
    X = 0.3 * problem.rows / np.linalg.norm(problem.rows, axis=1, keepdims=True)
    return replace(problem, rows=sp.csr_array(X) if csr else X, C=8 * problem.C)


def epochs_to(run, gap, most=2000):
    """Uniform epochs until the certified gap is small."""
    for epoch in range(1, most):
        run.uniform_epoch()
        primal, dual = run.certify()
        if primal - dual <= gap * primal:
            return epoch
    return np.inf


def test_stiffness_is_what_rows_weigh_beside_the_constant_feature():
    assert stiffness(1000, 1.0, 1.0) == pytest.approx(0.01)
    assert stiffness(1000, 4.0, 2.0) == pytest.approx(0.01)
    assert stiffness(1, 1.0, 1.0) == 1.0, "few rows"
    assert stiffness(1000, 1.0, 0.0) == 1.0, "no intercept"
    assert stiffness(1000, 0.0, 1.0) == 1.0, "nothing but an intercept"


def test_the_intercept_moves_ten_times_a_sweep_and_after_4096_visits_at_the_latest():
    for n in (1, 9, 10, 95, 11_314, 40_960, 1_800_000, 10**9):
        visits = visits_between_moves(n)
        assert 1 <= visits <= 4096
        assert n < 10 or n / visits >= 10
    assert visits_between_moves(40_960) == visits_between_moves(10**9) == 4096
    assert visits_between_moves(10**9, lanes=4) == 1024, "those of all lanes count"
    slices = cut_visits(np.arange(1_000_000), visits_between_moves(1_000_000))
    assert max(part.size for part in slices) <= 4200
    np.testing.assert_array_equal(np.concatenate(slices), np.arange(1_000_000))
    assert len(cut_visits(np.arange(11_313), visits_between_moves(11_314))) == 10
    assert len(cut_visits(np.arange(0), 5)) == 1, "a sweep over nothing"


def test_the_mean_of_what_lanes_make_of_the_multiplier_is_that_of_moves_made_together():
    rng = np.random.default_rng(0)
    changes, W = rng.normal(size=(3, 4, 5)), np.zeros((1, 5))  # moves, lanes, classes
    together, *lanes = (SoftIntercept(0.3, 5, lanes=4) for _ in range(5))
    start = rng.normal(size=5)
    for one in (together, *lanes):
        one.own, one.pull = start, 2 * start
    for change in changes:
        together.own = together.own + change.sum(axis=0)
        together.move(W)
        for lane, own in zip(lanes, change, strict=True):
            lane.loosen(W, np.empty(0))
            W[-1] += own * lane.root
            lane.take(W, np.empty(0), np.zeros(own.size))
            lane.move(W)
    np.testing.assert_allclose(np.mean([lane.pull for lane in lanes], axis=0), together.pull)


def test_what_other_threads_moved_is_not_counted_as_ones_own():
    rng = np.random.default_rng(0)
    W, nothing = rng.normal(size=(1, 5)), np.empty(0)
    soft, start = SoftIntercept(0.3, 5), W[-1].copy()
    mine, theirs = rng.normal(size=(2, 5))
    soft.loosen(W, nothing)
    W[-1] += (mine + theirs) * soft.root
    others = theirs * soft.root
    found, paid = soft.take(W, nothing, others)
    np.testing.assert_allclose(found, mine)
    np.testing.assert_allclose(soft.own, mine + theirs)
    assert paid == pytest.approx(start @ mine + 0.15 * (mine + theirs) @ mine)
    assert not others.any()


def test_threads_meet_ten_times_a_sweep_and_after_131072_visits_at_the_latest():
    assert [visits_between_meetings(n) for n in (1, 95, 900_000, 10**9)] == [1, 9, 90_000, 2**17]


def test_an_intercept_goes_on_from_where_copies_of_it_have_been():
    rng = np.random.default_rng(1)
    changes, start = rng.normal(size=(2, 2, 5)), rng.normal(size=5)  # moves, lanes, classes
    together, common = (SoftIntercept(0.3, 5, lanes=2) for _ in range(2))
    for one in (together, common):
        one.own, one.pull = start, 2 * start
    W, expected, nothing = np.zeros((1, 5)), np.zeros((1, 5)), np.empty(0)
    lanes = [common.copy() for _ in range(2)]
    for lane, (first, second) in zip(lanes, changes.swapaxes(0, 1), strict=True):
        lane.loosen(W, nothing)
        W[-1] += first * lane.root
        lane.take(W, nothing, np.zeros(5))
        lane.move(W)
        lane.loosen(W, nothing)
        W[-1] += second * lane.root
        lane.take(W, nothing, np.zeros(5))
    lost = common.follow(changes.sum(axis=(0, 1)), lanes, W, nothing)
    for change in changes:
        together.own = together.own + change.sum(axis=0)
        together.move(expected)
    np.testing.assert_allclose(common.own, together.own)
    np.testing.assert_allclose(common.pull, together.pull)
    np.testing.assert_allclose(W, expected)
    assert lost == pytest.approx(0.5 * (common.own @ common.own - start @ start))


@every_loss
@dense_or_csr
def test_the_estimate_and_the_certificate_are_those_of_the_specification(name, csr):
    problem = short_rows(name, csr=csr)
    svm, Z, y = specification(problem), with_constant(problem), problem.y
    run = make_run(problem)
    assert run.soft is not None
    for _ in range(3):
        run.uniform_epoch()
        alpha = run.duals().to_dense(y)
        x = svm.weights(alpha, Z, y)[-1]
        np.testing.assert_allclose(run.soft.own, x, atol=1e-12 * np.abs(alpha).sum())
        assert run.dual == pytest.approx(svm.dual(alpha, Z, y), rel=1e-10)
        b = run.W[-1] + (run.shift[-1] if run.shift.size else 0.0)
        primal, dual = run.certify()
        np.testing.assert_array_equal(run.W[-1], b)
        assert primal == pytest.approx(svm.primal(run.W, Z, y), rel=1e-12)
        assert dual == pytest.approx(svm.dual(alpha, Z, y), rel=1e-10)
        assert run.gap == pytest.approx(primal - dual, rel=1e-9)


@every_loss
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_optimum_is_that_of_a_hard_intercept(name, schedule):
    problem = short_rows(name)
    hard = make_hard_run(problem)
    epochs_to(hard, 1e-9)
    found = fit(problem, schedule=schedule, tol=1e-9)
    assert found.gap <= 1e-9
    np.testing.assert_allclose(found.W, hard.W, atol=3e-4 * np.abs(hard.W).max())


@every_loss
def test_a_heavy_constant_feature_costs_nothing(name):
    """Where its weight is large the intercept is nearly free of the penalty, as users want it."""
    heavy = short_rows(name, tau=10.0)
    soft = epochs_to(make_run(heavy), 1e-4)
    assert soft <= 400
    assert epochs_to(make_hard_run(heavy), 1e-4, most=3 * soft) == np.inf


@every_loss
def test_a_warm_start_goes_on_with_the_intercept_it_had(name):
    problem = short_rows(name)
    first = fit(problem, tol=1e-8)
    again = make_run(problem, start=first.alpha)
    np.testing.assert_allclose(again.W[-1], first.W[-1], atol=1e-3 * np.abs(first.W[-1]).max())
    again.uniform_epoch()
    primal, dual = again.certify()
    assert primal - dual <= 1e-7 * primal
