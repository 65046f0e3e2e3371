"""Training on rows in memory: whatever road is taken, the same certified optimum."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from solvers.small import (
    IN_FLOAT32,
    NAMES,
    SCHEDULES,
    as_duals,
    clusters,
    combination_name,
    fit,
    lay_again,
    make_run,
    random_alpha,
    scaled_C,
    specification,
    with_constant,
)

from dask_mcsvm.solvers import duals
from dask_mcsvm.solvers.kernels.dual_variables import alpha_to_dense, compact_alpha, empty_alpha
from dask_mcsvm.solvers.sdm import initial_duals, moves, run
from dask_mcsvm.training import plan

every_formulation = pytest.mark.parametrize("name", NAMES)
every_schedule = pytest.mark.parametrize("schedule", SCHEDULES)
two_losses = pytest.mark.parametrize("name", ["crammer_singer", "lee_lin_wahba"])
small_and_large_k = pytest.mark.parametrize("large_k", [False, True], ids=["small-k", "large-k"])


@pytest.fixture
def as_if_k_were_large(monkeypatch):
    """A function that makes solvers treat every k as large: alpha is sparse.

    With `fresh` a visit adds at most so many classes to the list of its example.
    """

    def switch(on=True, fresh=None):
        for module in (initial_duals, duals):
            monkeypatch.setattr(module, "DENSE_CLASSES", (fresh or 1) if on else 64)
        monkeypatch.setattr(initial_duals, "FRESH_CLASSES", fresh or 8)
        monkeypatch.setattr(initial_duals, "FRESH_VARIABLES", 0 if fresh else 2**27)

    return switch


@pytest.fixture
def threads_pay(monkeypatch):
    """Threads visit even small problems, four rows next to each other."""
    monkeypatch.setattr(plan, "THREAD_WORK", 0)
    monkeypatch.setattr(run, "STRIPE", 4)


@pytest.fixture(scope="module")
def optimum():
    """A function: the optimal objective of a problem, to 1e-10 of it, found once."""
    known = {}

    def solve(problem):
        key = (problem.formulation, with_constant(problem).tobytes(), problem.C.tobytes())
        if key not in known:
            known[key] = fit(replace(problem, rows=dense_rows(problem)), tol=1e-10)
            assert known[key].converged
        return known[key].dual

    return solve


def dense_rows(problem):
    return problem.rows.toarray() if sp.issparse(problem.rows) else problem.rows


def assert_certified(found, problem, tol):
    """P, D and the gap of a fit are what the specification makes of its W and alpha."""
    svm, Z, y = specification(problem), with_constant(problem), problem.y
    alpha = svm.repair(found.alpha.to_dense(y), y)
    assert found.dual == pytest.approx(svm.dual(alpha, Z, y), rel=1e-11)
    assert found.primal == pytest.approx(svm.primal(found.W, Z, y), rel=1e-11)
    assert found.primal - found.dual == pytest.approx(
        svm.gap(alpha, Z, y), abs=1e-11 * found.primal
    )
    assert found.gap == problem.relative(found.primal, found.dual) <= tol


# -- one optimum -----------------------------------------------------------------------------------


@every_formulation
@every_schedule
@small_and_large_k
def test_every_schedule_reaches_the_same_certified_optimum(
    name, schedule, large_k, as_if_k_were_large, optimum
):
    """Dense rows with dense alpha as well as CSR rows with sparse alpha."""
    problem = clusters(name, csr=large_k)
    best = optimum(problem)
    as_if_k_were_large(large_k)
    found = fit(problem, schedule=schedule, tol=1e-8)
    assert_certified(found, problem, 1e-8)
    assert (found.converged, found.stop) == (True, "gap")
    assert found.primal == pytest.approx(best, rel=1e-6)
    assert isinstance(found.alpha.stored, np.ndarray) is not large_k


@pytest.mark.parametrize("combination", IN_FLOAT32, ids=combination_name)
def test_float32_reaches_the_optimum_of_float64(combination, as_if_k_were_large, optimum):
    name, csr, sparse, dtype = combination
    problem = clusters(name, csr=csr, dtype=dtype)
    best = optimum(replace(problem, rows=dense_rows(problem).astype(np.float64)))
    as_if_k_were_large(sparse)
    found = fit(problem, schedule="shrink" if name == "crammer_singer" else "uniform", tol=1e-4)
    assert found.converged
    assert found.W.dtype == np.float32
    assert found.primal == pytest.approx(best, rel=1e-4)


@every_formulation
def test_sparse_and_dense_alpha_end_at_the_same_optimum_however_few_classes_a_visit_adds(
    name, as_if_k_were_large, optimum
):
    problem = clusters(name, csr=True, k=7)
    best = optimum(problem)
    for fresh in (1, 2, None):
        as_if_k_were_large(fresh=fresh)
        found = fit(problem, tol=1e-8)
        assert_certified(found, problem, 1e-8)
        assert found.primal == pytest.approx(best, rel=1e-6)


def test_csr_and_dense_rows_take_the_same_road():
    """With the same alpha; CSR rows with another alpha are above."""
    problem = clusters("crammer_singer", csr=True)
    in_csr, in_dense = (
        fit(replace(problem, rows=rows), schedule="uniform", tol=1e-6)
        for rows in (problem.rows, dense_rows(problem))
    )
    np.testing.assert_allclose(in_csr.W, in_dense.W, rtol=0, atol=1e-9)
    assert in_csr.dual == pytest.approx(in_dense.dual, rel=1e-12)
    assert in_csr.n_iter == in_dense.n_iter


@every_formulation
def test_costs_per_example_are_repeated_rows(name):
    problem = clusters(name, weighted=False)
    times = np.random.default_rng(0).integers(1, 4, problem.y.size)
    weighted = fit(replace(problem, C=problem.C * times))
    copies = np.repeat(np.arange(problem.y.size), times)
    repeated = fit(
        replace(problem, rows=problem.rows[copies], y=problem.y[copies], C=problem.C[copies])
    )
    assert weighted.primal == pytest.approx(repeated.primal, rel=1e-8)
    np.testing.assert_allclose(weighted.W, repeated.W, rtol=0, atol=1e-4)


@every_formulation
@every_schedule
@small_and_large_k
@pytest.mark.parametrize("zero_rows", [5, 60], ids=["some", "all"])
def test_rows_without_features_leave_no_gap_open(
    name, schedule, large_k, zero_rows, as_if_k_were_large
):
    problem = clusters(name, csr=large_k, zero_rows=zero_rows, tau=0.0)
    as_if_k_were_large(large_k)
    found = fit(problem, schedule=schedule, tol=1e-8)
    assert_certified(found, problem, 1e-8)
    alpha, svm = found.alpha.to_dense(problem.y), specification(problem)
    np.testing.assert_array_equal(alpha[:zero_rows], svm.zero_row_alpha(problem.y)[:zero_rows])
    if zero_rows == problem.y.size:
        assert found.primal == pytest.approx(problem.primal_at_zero, rel=1e-14)
        assert not np.any(found.W)


@every_schedule
def test_rows_without_features_alone_end_after_max_epochs_too(schedule):
    problem = clusters("crammer_singer", zero_rows=60, tau=0.0)
    records = []

    def too_many(record):
        records.append(record)
        return len(records) > 10

    found = fit(problem, schedule=schedule, tol=0, max_epochs=3, on_epoch=too_many)
    assert found.stop != "callback", "epochs that find nothing to do must count as well"
    assert found.gap == pytest.approx(0, abs=1e-14)


def test_small_whole_numbers_and_their_ties_do_not_keep_a_visit_going():
    """Rounding once let the search for a threshold go round in circles (see test_steps)."""
    for seed in range(10):
        rng = np.random.default_rng(seed)
        X = 1.0 + rng.integers(0, 3, size=(9, 3))
        problem = clusters("crammer_singer", n=9, d=3, tau=0.0)
        C = np.full(9, rng.choice([0.1, 0.3, 1.0]))
        found = fit(replace(problem, rows=X, y=rng.integers(5, size=9), C=C), tol=1e-6)
        assert found.converged


@every_formulation
@pytest.mark.parametrize("length", [1e-9, 1e-4, 1e6])
def test_very_short_and_very_long_rows_are_solved_like_any_other(name, length):
    """Rows times t at costs over t squared are the same problem with W over t."""
    problem = clusters(name, n=20, tau=0.0)
    scaled = replace(problem, rows=problem.rows * length, C=problem.C / length**2)
    found, expected = fit(scaled), fit(problem)
    np.testing.assert_allclose(found.W * length, expected.W, rtol=0, atol=1e-4)
    assert found.primal * length**2 == pytest.approx(expected.primal, rel=1e-8)
    if length < 1:  # at the old costs there is next to nothing to learn from such rows
        assert fit(replace(scaled, C=problem.C), tol=1e-6).converged


# -- starts ----------------------------------------------------------------------------------------


@every_formulation
@small_and_large_k
def test_a_warm_start_is_as_good_at_once_and_ends_at_the_same_optimum(
    name, large_k, as_if_k_were_large
):
    problem = clusters(name, csr=large_k)
    as_if_k_were_large(large_k)
    early = fit(problem, tol=1e-2)
    at_once = fit(problem, start=early.alpha, max_epochs=0)
    assert (at_once.dual, at_once.primal) == pytest.approx((early.dual, early.primal), rel=1e-13)
    assert (at_once.n_iter, at_once.history) == (0, [])
    cold, warm = fit(problem, tol=1e-8), fit(problem, tol=1e-8, start=early.alpha)
    assert_certified(warm, problem, 1e-8)
    assert warm.primal == pytest.approx(cold.primal, rel=1e-7)
    done = fit(problem, tol=1e-7, start=warm.alpha)
    assert done.n_iter <= 1
    assert done.dual >= warm.dual * (1 - 1e-13)


@every_formulation
@small_and_large_k
@pytest.mark.parametrize("factor", [2.0, 0.5])
def test_a_warm_start_at_other_costs_ends_at_the_optimum_of_those_costs(
    name, large_k, factor, as_if_k_were_large, optimum
):
    problem = clusters(name, csr=large_k)
    other = scaled_C(problem, factor)
    best = optimum(other)
    as_if_k_were_large(large_k)
    found = fit(other, tol=1e-8, start=fit(problem, tol=1e-6).alpha)
    assert_certified(found, other, 1e-8)
    assert found.primal == pytest.approx(best, rel=1e-6)


@every_formulation
@small_and_large_k
def test_a_start_is_left_as_it_was(name, large_k, as_if_k_were_large):
    problem = clusters(name, csr=large_k)
    as_if_k_were_large(large_k)
    start = fit(problem, tol=1e-1).alpha
    arrays = start.stored if large_k else (start.stored,)
    before = [array.tobytes() for array in arrays]
    fit(problem, tol=1e-6, start=start)
    fit(scaled_C(problem, 2.0), tol=1e-2, start=start)
    assert [array.tobytes() for array in arrays] == before


# -- repeatable ------------------------------------------------------------------------------------


@every_formulation
@every_schedule
def test_a_seed_repeats_every_byte_and_another_seed_only_the_optimum(name, schedule):
    problem = clusters(name)
    first, again, other = (fit(problem, schedule=schedule, tol=1e-8, seed=s) for s in (3, 3, 4))
    assert first.W.tobytes() == again.W.tobytes()
    assert first.alpha.stored.tobytes() == again.alpha.stored.tobytes()
    assert first.dual == again.dual
    assert first.n_iter == again.n_iter
    assert first.W.tobytes() != other.W.tobytes()
    assert first.primal == pytest.approx(other.primal, rel=1e-7)


@small_and_large_k
@pytest.mark.parametrize("tau", [0.0, 1.0])
def test_threads_reach_the_optimum_of_one(tau, large_k, optimum, threads_pay, as_if_k_were_large):
    schedule, n_jobs = ("shrink", 3) if large_k else ("adaptive", 2)
    problem = clusters("crammer_singer", csr=large_k, zero_rows=3, tau=tau)
    best = optimum(problem)
    as_if_k_were_large(large_k)
    found = fit(problem, schedule=schedule, tol=1e-7, n_jobs=n_jobs)
    assert_certified(found, problem, 1e-7)
    assert found.primal == pytest.approx(best, rel=1e-6)


@every_schedule
def test_threads_may_have_nothing_to_do(schedule, threads_pay, as_if_k_were_large):
    as_if_k_were_large()
    problem = clusters("crammer_singer", csr=True, zero_rows=60, tau=0.0)
    found = fit(problem, schedule=schedule, tol=1e-8, n_jobs=2)
    assert found.primal == pytest.approx(problem.primal_at_zero, rel=1e-14)


@small_and_large_k
def test_what_threads_certify_is_never_better_than_the_truth(
    large_k, threads_pay, as_if_k_were_large
):
    as_if_k_were_large(large_k)
    for seed in range(100):
        problem = clusters("crammer_singer", n=40, csr=large_k, seed=seed, tau=float(seed % 3))
        true = fit(problem, tol=1e-6)
        found = fit(problem, tol=0, max_epochs=1 + seed % 4, n_jobs=2)
        assert found.dual <= true.primal
        assert found.primal >= true.dual
        assert_certified(found, problem, 1.0)


@small_and_large_k
def test_each_thread_repeats_the_moves_of_the_others(large_k, threads_pay, as_if_k_were_large):
    problem = clusters("crammer_singer", n=300, csr=large_k)
    as_if_k_were_large(large_k)
    state = make_run(problem, n_jobs=3, threads=3)
    for _ in range(2):
        state.adaptive_epoch()
    found = [W[:-1].copy() for W in state.all_W]
    state.certify()
    for W in found:
        np.testing.assert_allclose(W, state.W[:-1], rtol=1e-4, atol=1e-5)


def with_soft_intercept():
    """Short rows, beside which the constant feature weighs enough for the intercept to be soft."""
    problem = clusters("crammer_singer", n=3000)
    return replace(problem, rows=0.1 * problem.rows, C=8 * problem.C)


def test_threads_with_a_soft_intercept_reach_the_optimum_of_one(threads_pay):
    problem = with_soft_intercept()
    assert make_run(problem, n_jobs=2, threads=2).soft is not None
    one, two = (fit(problem, tol=1e-5, n_jobs=n) for n in (1, 2))
    assert two.gap <= 1e-5
    assert two.primal == pytest.approx(one.primal, rel=2e-5)
    assert two.n_iter <= 2 * one.n_iter


def test_a_thread_knows_what_others_added_to_its_intercept(threads_pay, monkeypatch):
    state = make_run(with_soft_intercept(), n_jobs=2, threads=2)
    visits = []
    monkeypatch.setattr(state, "_sweep", lambda orders, visit: visits.append(visit))
    state._full(state.visited_of, adapt=False)
    tau, W = state.visit_data.tau, state.all_W
    one, two = (moves.note_in(W[t], state.moves, t, tau) for t in range(2))
    visits[0](1, two, state.shift, state.visited_of[1][:100], 0)
    for t, note in ((1, two), (0, one)):  # the second publishes, the first repeats
        moves.exchange_moves(state.rows_of[t], note, state.scratches[t])
    assert np.abs(W[1][-1]).max() > 0.01
    np.testing.assert_allclose(W[0], W[1], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(one.others, W[0][-1], rtol=1e-5, atol=1e-6)
    assert not two.others.any()


@pytest.mark.parametrize("room", [0, 1])
def test_threads_without_room_for_their_moves_meet_earlier(room, threads_pay, monkeypatch):
    monkeypatch.setattr(moves, "CLASSES", room)  # for a move or two, or for half of them
    monkeypatch.setattr(run, "SPARE", 0)
    problem = clusters("crammer_singer", n=300)
    state = make_run(problem, n_jobs=2, threads=2)
    meet, met = state._make_alike, []
    monkeypatch.setattr(state, "_make_alike", lambda: met.append(meet()))
    done = state.uniform_epoch()
    assert len(met) > (60 if room == 0 else 10)
    assert done.work == 300 * problem.n_classes
    assert_certified(fit(problem, tol=1e-7, n_jobs=2), problem, 1e-7)


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_the_error_of_any_thread_is_told(failing, threads_pay, monkeypatch):
    state = make_run(clusters("crammer_singer", n=300), n_jobs=3, threads=3)

    def fail(t):
        if t == failing:
            raise MemoryError("no room")

    monkeypatch.setattr(state, "_make_room", fail)
    with pytest.raises(MemoryError, match="no room"):
        state.adaptive_epoch()


def test_threads_visit_rows_where_that_pays():
    given = {
        "n": 450_000, "d": 2**18, "k": 58, "nnz": 6_750_000, "is_sparse": True, "solver": "sdm",
        "dtype": np.dtype(np.float32), "formulation": "crammer_singer", "options": None,
    }  # fmt: skip
    assert plan.make_plan(n_jobs=1, **given).threads == 1
    two = plan.make_plan(n_jobs=2, **given)
    assert two.threads == 2
    assert "n_jobs=2\n" in str(two)
    assert "W 58.0 MiB, 2 of them, beyond X" in str(two)
    one = "n_jobs=2 (one thread visits rows, all certify)"
    others = {"formulation": "weston_watkins"}, {"k": 20}, {"is_centred": True}
    for other in others:
        assert one in str(plan.make_plan(n_jobs=2, **given | other)), other
    # Each has a W of its own: these take so much memory and no more.
    assert plan.make_plan(n_jobs=200, **given).threads == 8
    assert plan.make_plan(n_jobs=200, **given | {"d": 2**22}).threads == 4
    few = plan.make_plan(n_jobs=200, memory_limit=200_000_000, **given)
    assert few.threads == 3
    assert "n_jobs=200 (3 threads visit rows, all certify)" in str(few)


@small_and_large_k
def test_read_only_input_is_accepted_and_no_input_is_changed(large_k, as_if_k_were_large):
    problem = clusters("weston_watkins", csr=large_k)
    as_if_k_were_large(large_k)
    expected = fit(problem, tol=1e-6)
    X = problem.rows
    arrays = [*((X.data, X.indices, X.indptr) if large_k else (X,)), problem.y, problem.C]
    before = [array.tobytes() for array in arrays]
    for array in arrays:
        array.flags.writeable = False
    found = fit(problem, tol=1e-6, n_jobs=2)
    assert [array.tobytes() for array in arrays] == before
    assert found.W.tobytes() == expected.W.tobytes()
    assert found.W.flags.writeable


def test_the_integer_type_of_csr_indices_changes_no_byte(as_if_k_were_large):
    as_if_k_were_large()
    problem = clusters("crammer_singer", csr=True)
    X, found = problem.rows, set()
    for indices, indptr in ((np.int32, np.int32), (np.int32, np.int64), (np.int64, np.int64)):
        rows = X.copy()
        rows.indices, rows.indptr = rows.indices.astype(indices), rows.indptr.astype(indptr)
        found.add(fit(replace(problem, rows=rows), tol=1e-3).W.tobytes())
    assert len(found) == 1


# -- memory ----------------------------------------------------------------------------------------


def test_thousands_of_classes_take_far_less_memory_than_a_dense_alpha():
    n, d, k = 2000, 300, 3000
    rng = np.random.default_rng(0)
    y = rng.integers(k, size=n).astype(np.int32)
    columns = (y[:, None] * 7 + rng.integers(0, 9, size=(n, 5)) ** 2) % d
    X = sp.coo_array((np.ones(5 * n), (np.repeat(np.arange(n), 5), columns.ravel())), shape=(n, d))
    problem = replace(clusters("crammer_singer"), rows=X.tocsr(), y=y, C=np.ones(n), n_classes=k)
    run = make_run(problem)
    dual = 0.0
    for _ in range(8):
        run.adaptive_epoch()
        assert run.dual > dual
        dual = run.dual
    assert sum(array.nbytes for array in run.alpha) < 0.05 * n * k * 8
    primal, dual = run.certify()
    assert primal - dual < 0.5 * primal


@st.composite
def stores(draw):
    """Which example gets how many classes, in order, and where the pool is made anew."""
    n, k = draw(st.integers(1, 5)), draw(st.integers(2, 9))
    rounds = st.tuples(st.integers(0, n - 1), st.integers(0, k), st.booleans())
    return n, k, draw(st.lists(rounds, max_size=30)), draw(st.integers(0, 2**32 - 1))


@settings(max_examples=60)
@given(stores())
def test_lists_that_grow_shrink_and_move_lose_nothing(case):
    n, k, rounds, seed = case
    rng = np.random.default_rng(seed)
    alpha, expected = empty_alpha(n, k, np.dtype(float), sparse=True), np.zeros((n, k))
    for i, size, pack in rounds:
        if pack or alpha.used[0] + 2 * k > alpha.classes.size:
            alpha = compact_alpha(alpha, 2 * k)
        classes = rng.permutation(k)[:size].astype(np.int32)
        values = rng.integers(-1, 2, size=size).astype(float)  # zeros are not kept
        initial_duals.store_row(alpha, i, classes, values)
        expected[i] = 0.0
        expected[i, classes] = values
        np.testing.assert_array_equal(alpha_to_dense(alpha, n, k), expected)
        assert alpha.size.sum() == np.count_nonzero(expected)
    packed = compact_alpha(alpha, 0)
    np.testing.assert_array_equal(alpha_to_dense(packed, n, k), expected)
    assert packed.used[0] == packed.classes.size <= 3 * np.count_nonzero(expected) + 2 * n


@every_formulation
def test_the_size_of_the_pool_changes_no_byte(name, as_if_k_were_large):
    as_if_k_were_large(fresh=3)
    problem, found = clusters(name, csr=True), set()
    for spare in (0, 10**6):
        run = make_run(problem)
        lay_again(run, run.visit_data, compact_alpha(run.alpha, spare))
        for _ in range(4):
            run.adaptive_epoch()
            run.shrink_epoch()
        run.certify()
        found.add((run.dual, run.W.tobytes()))
    assert len(found) == 1


# -- the loop --------------------------------------------------------------------------------------


@every_formulation
@every_schedule
def test_a_tolerance_of_zero_runs_all_epochs_and_certifies_the_last(name, schedule):
    problem = clusters(name)
    found = fit(problem, schedule=schedule, tol=0, max_epochs=7)
    assert (found.stop, found.converged) == ("max_epochs", False)
    assert found.history[-1]["epoch"] >= 6.5  # to the nearest epoch
    assert all(record["epoch"] < 6.5 for record in found.history[:-1])
    assert [record["certified"] for record in found.history[:-1]] == [False] * (
        len(found.history) - 1
    )
    assert_certified(found, problem, 1.0)
    if schedule == "uniform":
        assert (found.n_iter, len(found.history)) == (7, 7)


@every_formulation
@every_schedule
def test_the_history_goes_forward_and_ends_with_the_certificate(name, schedule):
    records = []
    found = fit(clusters(name), schedule=schedule, tol=1e-5, on_epoch=records.append)
    epochs, seconds = ([record[key] for record in found.history] for key in ("epoch", "seconds"))
    assert all(np.diff([0.0, *epochs]) > 0)
    assert all(np.diff([0.0, *seconds]) > 0)
    last = found.history[-1]
    assert (last["primal"], last["dual"], last["gap"]) == (found.primal, found.dual, found.gap)
    assert last["certified"]
    assert len(records) == len(found.history)
    assert all(0.0 <= record["active"] <= 1.0 for record in found.history)
    assert all(record["violation"] >= 0.0 for record in found.history)


@every_formulation
def test_estimates_of_dual_and_gap_between_certificates_are_honest(name):
    """The dual is exact up to rounding, it never falls, and the primal is an estimate above it."""
    problem, svm = clusters(name), specification(clusters(name))
    run, Z, y = make_run(problem), with_constant(problem), problem.y
    before = -np.inf
    for epoch in range(6):
        (run.uniform_epoch, run.adaptive_epoch, run.shrink_epoch)[epoch % 3]()
        dual = svm.dual(run.duals().to_dense(y), Z, y)
        assert run.dual == pytest.approx(dual, rel=1e-10)
        assert before <= dual
        assert run.gap > 0
        before = dual


@every_schedule
def test_a_true_answer_of_the_callback_ends_the_fit_with_a_certificate(schedule):
    problem = clusters("crammer_singer")
    records = []

    def enough(record):
        records.append(record)
        return len(records) == 2

    found = fit(problem, schedule=schedule, on_epoch=enough)
    assert (found.stop, len(found.history), len(records)) == ("callback", 2, 2)
    assert not found.converged
    assert found.history[-1]["certified"]
    assert_certified(found, problem, 1.0)


@every_formulation
@every_schedule
def test_the_papers_stopping_rule_ends_where_no_variable_violates(name, schedule):
    problem = clusters(name)
    found = fit(problem, schedule=schedule, tol=1e-5, stop="violation")
    assert (found.stop, found.converged) == ("violation", True)
    svm, Z, y = specification(problem), with_constant(problem), problem.y
    alpha = svm.repair(found.alpha.to_dense(y), y)
    assert np.max(svm.violations(alpha, Z, y)) <= 1e-3


def test_shrinking_without_cooling_reaches_the_same_optimum(optimum):
    problem = clusters("crammer_singer")
    found = fit(problem, schedule="shrink", cooling=False, tol=1e-8)
    assert found.primal == pytest.approx(optimum(problem), rel=1e-6)


# -- duals as they are handed on -------------------------------------------------------------------


def some_duals(name, *, sparse, seed=0):
    rng = np.random.default_rng(seed)
    y, C = rng.integers(4, size=11), rng.choice([0.5, 1.0, 2.0], size=11)
    alpha = random_alpha(name, y, C, 4, rng)
    return as_duals(name, alpha, y, C, sparse=sparse), alpha, y


@every_formulation
@pytest.mark.parametrize("sparse", [False, True])
def test_duals_are_the_variables_of_the_specification_and_know_how_many_are_not_zero(name, sparse):
    duals, alpha, y = some_duals(name, sparse=sparse)
    np.testing.assert_array_equal(duals.to_dense(y), alpha)
    assert duals.density == pytest.approx(np.count_nonzero(alpha) / alpha.size)


@every_formulation
@pytest.mark.parametrize("sparse", [False, True])
def test_rescaled_duals_are_feasible_for_the_other_costs(name, sparse):
    duals, alpha, y = some_duals(name, sparse=sparse)
    factors = np.random.default_rng(1).choice([0.25, 1.0, 3.0], size=y.size)
    other = duals.rescaled(duals.C * factors)
    np.testing.assert_allclose(other.to_dense(y), alpha * factors[:, None], rtol=1e-14)
    np.testing.assert_array_equal(other.C, duals.C * factors)
    np.testing.assert_array_equal(duals.to_dense(y), alpha)
    svm = specification(replace(clusters(name), C=other.C, n_classes=4))
    assert svm.feasible(other.to_dense(y), y, atol=1e-14)


def test_rescaling_never_computes_with_memory_that_nobody_wrote(monkeypatch):
    duals, alpha, y = some_duals("crammer_singer", sparse=True)
    monkeypatch.setattr(
        np, "empty", lambda shape, dtype=float: np.full(shape, np.finfo(dtype).max)
        if np.issubdtype(dtype, np.floating) else np.zeros(shape, dtype),
    )  # fmt: skip
    other = duals.rescaled(4 * duals.C)
    monkeypatch.undo()
    np.testing.assert_array_equal(other.to_dense(y), 4 * alpha)
