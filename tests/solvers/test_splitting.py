"""Score splitting: the certified optimum of every formulation, also of badly scaled rows."""

import numpy as np
import pytest
import scipy.sparse as sp
from reference import solve
from solvers.small import NAMES, clusters, fit, scaled_C, specification, with_constant

from dask_mcsvm.data.row_source import RowScale
from dask_mcsvm.solvers.splitting import Splitting, newton, products, rules
from dask_mcsvm.solvers.splitting import run as in_memory
from dask_mcsvm.training import Problem, make_plan, train

every_formulation = pytest.mark.parametrize("name", NAMES)


def split_fit(problem, *, tol=1e-9, max_epochs=3000, n_jobs=1, **options):
    """Train with solver="splitting"."""
    (n, d), is_sparse = problem.rows.shape, sp.issparse(problem.rows)
    plan = make_plan(
        n=n, d=d, k=problem.n_classes, nnz=problem.rows.nnz if is_sparse else n * d,
        is_sparse=is_sparse, dtype=problem.rows.dtype, formulation=problem.formulation,
        solver="splitting", n_jobs=n_jobs, options=None,
    )  # fmt: skip
    return train(problem, plan, tol=tol, max_epochs=max_epochs, seed=0, n_jobs=n_jobs, **options)


def split_run(problem, **options):
    return Splitting(
        problem.rows, problem.y, problem.C, n_classes=problem.n_classes,
        formulation=problem.formulation, tau=problem.tau, **options,
    )  # fmt: skip


# -- the optimum -----------------------------------------------------------------------------------


@every_formulation
@pytest.mark.parametrize("factor", [1.0, 100.0])
@pytest.mark.parametrize("csr", [False, True], ids=["dense", "csr"])
def test_the_optimum_is_that_of_the_interior_point_method(name, factor, csr):
    problem = scaled_C(clusters(name, csr=csr, n=40), factor)
    found = split_fit(problem)
    X = with_constant(problem)
    W, objective = solve(name, X, problem.y, problem.C, problem.n_classes)
    assert found.converged
    assert found.primal == pytest.approx(objective, rel=1e-7)
    assert found.dual == pytest.approx(objective, rel=1e-7)
    np.testing.assert_allclose(found.W, W, atol=2e-4 * np.abs(W).max())


@every_formulation
def test_the_certificate_is_that_of_the_specification(name):
    problem = clusters(name, zero_rows=3)
    form, X = specification(problem), with_constant(problem)
    run = split_run(problem)
    for _ in range(12):
        run.newton_epoch()
        primal, dual = run.certify()
        alpha = run.duals().to_dense(problem.y)
        assert form.feasible(alpha, problem.y, atol=1e-12)
        assert primal == pytest.approx(form.primal(run.W, X, problem.y), rel=1e-12)
        assert dual == pytest.approx(form.dual(alpha, X, problem.y), rel=1e-9, abs=1e-9)
        assert 0 <= dual <= primal


@every_formulation
def test_the_estimates_are_those_of_the_certificate(name):
    run = split_run(clusters(name))
    for _ in range(6):
        run.newton_epoch()
    primal, dual = run.state.best_primal, run.dual
    assert run.certify() == pytest.approx((primal, dual), rel=1e-9)


@every_formulation
def test_sdm_and_splitting_agree(name):
    problem = clusters(name, n=90, k=4)
    by_sdm, by_splitting = fit(problem, tol=1e-8), split_fit(problem, tol=1e-8)
    assert by_splitting.primal == pytest.approx(by_sdm.primal, rel=1e-7)


@every_formulation
def test_a_weight_of_two_is_two_rows(name):
    once = clusters(name, n=40, weighted=False)
    C = once.C * np.where(np.arange(40) < 10, 2.0, 1.0)
    twice = Problem(
        np.vstack([once.rows, once.rows[:10]]), np.append(once.y, once.y[:10]),
        np.full(50, once.C[0]), once.n_classes, name, once.tau,
    )  # fmt: skip
    weighted = Problem(once.rows, once.y, C, once.n_classes, name, once.tau)
    left, right = split_fit(weighted, tol=1e-8), split_fit(twice, tol=1e-8)
    assert left.primal == pytest.approx(right.primal, rel=1e-7)


def test_float32_rows_reach_what_float32_can():
    problem = clusters("crammer_singer", n=200, dtype="float32")
    found = split_fit(problem, tol=1e-5)
    assert found.converged
    assert found.W.dtype == np.float32
    assert found.alpha.stored.dtype == np.float32


# -- other roads to the same place -----------------------------------------------------------------


def test_threads_change_nothing(monkeypatch):
    monkeypatch.setattr(newton, "CURVED_BLOCK", 16)
    monkeypatch.setattr(products, "block_rows", lambda X: 16)
    problem = clusters("weston_watkins", n=150)
    one, two = (split_fit(problem, tol=1e-6, n_jobs=n_jobs) for n_jobs in (1, 2))
    assert one.W.tobytes() == two.W.tobytes()
    assert one.dual == two.dual


@every_formulation
def test_a_warm_start_begins_at_the_dual_it_was_given(name):
    problem = clusters(name)
    cold = split_fit(problem, tol=1e-6)
    run = split_run(problem, start=cold.alpha)
    assert run.dual >= cold.dual - 1e-6 * cold.primal
    warm = split_fit(problem, tol=1e-6, start=cold.alpha)
    assert warm.converged
    assert warm.n_iter < cold.n_iter


@every_formulation
def test_a_fit_by_sdm_can_be_polished(name):
    problem = clusters(name)
    rough = fit(problem, tol=1e-2)
    assert split_fit(problem, tol=1e-8, start=rough.alpha).converged


def test_one_preconditioner_for_all_classes_is_enough():
    # k (d + 1) > n: blocks per class would take more room than the rows.
    problem = clusters("crammer_singer", n=30, d=40, k=6)
    found = split_fit(problem, tol=1e-8)
    _, objective = solve(
        "crammer_singer", with_constant(problem), problem.y, problem.C, problem.n_classes
    )
    assert found.primal == pytest.approx(objective, rel=1e-7)


def test_an_even_choice_of_rows_is_enough_for_the_preconditioner(monkeypatch):
    monkeypatch.setattr(newton, "ROWS_PER_FEATURE", 1)
    problem = clusters("one_vs_rest", n=300)
    assert split_fit(problem, tol=1e-8).converged


def test_a_part_of_the_rows_is_enough_for_the_first_directions(monkeypatch):
    monkeypatch.setattr(rules, "CURVED_ROWS", 20)
    monkeypatch.setattr(in_memory, "IN_MEMORY", rules.IN_MEMORY._replace(curved_per_weight=1))
    problem = clusters("lee_lin_wahba", n=300)
    run = split_run(problem)
    strides = []
    for _ in range(3):
        run.newton_epoch()
        strides.append(run.state.stride)
    assert max(strides) > 1
    assert split_fit(problem, tol=1e-8).converged


def test_a_part_of_the_rows_that_misled_is_not_asked_again(monkeypatch):
    monkeypatch.setattr(rules, "CURVED_ROWS", 20)
    monkeypatch.setattr(in_memory, "IN_MEMORY", rules.IN_MEMORY._replace(curved_per_weight=1))
    problem = clusters("crammer_singer", n=300)
    rare = np.zeros((300, 1))
    rare[1::4] = 1e4  # in few rows of a sample, or in none
    problem = rescaled(problem, np.hstack([problem.rows, rare]))
    run = split_run(problem)
    run.newton_epoch()
    assert run.state.stride > 1
    for _ in range(4):
        run.newton_epoch()
    assert (run.state.samples, run.state.stride) == (False, 1)
    assert split_fit(problem, tol=1e-6).converged


def test_long_rows_have_a_smaller_penalty_and_rows_without_features_a_whole_one():
    parts = rules.penalty_parts(np.array([0.0, 1.0, 2.0, 8.0]), 2.0)
    assert parts.tolist() == [1.0, 1.0, 1.0, 0.25]
    assert rules.penalty_parts(np.zeros(2), 0.0).tolist() == [1.0, 1.0]


def test_a_direction_is_as_exact_as_the_last_step_was_good():
    g = np.array([[3.0, 4.0]])
    assert rules.gradient_left(g, 0.0) == 1.0
    assert rules.gradient_left(g, 50.0) == pytest.approx(0.1)
    tolerances = [rules.cg_tolerance(left) for left in (2.0, 0.2, 0.05, 1e-9)]
    assert tolerances == pytest.approx([0.1, 0.04, 0.0025, 1e-4])


# -- bad scaling -----------------------------------------------------------------------------------


def rescaled(problem, X):
    return Problem(
        np.ascontiguousarray(X), problem.y, problem.C, problem.n_classes, problem.formulation,
        problem.tau,
    )  # fmt: skip


@every_formulation
@pytest.mark.parametrize("C", [1e-6, 1e6])
def test_any_C(name, C):
    problem = clusters(name, n=90, weighted=False)
    problem = scaled_C(problem, C / problem.C[0])
    found = split_fit(problem, tol=1e-3, max_epochs=5000)
    assert found.converged, found.gap


@every_formulation
def test_constant_and_repeated_columns(name):
    problem = clusters(name, n=60)
    X = problem.rows
    X = np.hstack([X, np.full((60, 1), 3.0), X[:, :4], np.zeros((60, 2))])
    assert split_fit(rescaled(problem, X), tol=1e-7).converged


@every_formulation
def test_features_of_scale_1e_8_and_1e8_together(name):
    problem = clusters(name, n=90)
    X = problem.rows * np.logspace(-8, 8, problem.rows.shape[1])
    found = split_fit(rescaled(problem, X), tol=1e-6, max_epochs=1000)
    assert found.converged, found.gap


def test_nothing_can_go_wrong_with_rows_of_zeros_only():
    problem = clusters("crammer_singer", zero_rows=60, tau=0.0)
    found = split_fit(problem, tol=1e-6)
    assert found.primal == pytest.approx(problem.C.sum())
    assert found.converged


# -- refusals --------------------------------------------------------------------------------------


def plan_of(d=10, options=None):
    return make_plan(
        n=100, d=d, k=3, nnz=1000, is_sparse=True, dtype=np.dtype("float32"),
        formulation="crammer_singer", solver="splitting", n_jobs=1, options=options,
    )  # fmt: skip


def test_too_many_features_are_refused_and_sdm_named():
    message = (
        r"^solver='splitting' keeps d x d matrices and takes up to 4,096 features, but X has "
        r"5,000; use solver='sdm'\.$"
    )
    with pytest.raises(ValueError, match=message):
        plan_of(d=5000)


def test_options_of_other_solvers_are_refused():
    message = (
        r"^solver_options has 'schedule', which solver='splitting' does not know; leave it out\.$"
    )
    with pytest.raises(ValueError, match=message):
        plan_of(options={"schedule": "uniform"})


@pytest.mark.parametrize(
    ("n", "scale", "solver"),
    [
        (15_000, RowScale(614.0, 698.0), "splitting"),  # letter as it comes
        (15_000, RowScale(0.0, 16.0), "sdm"),  # standardized
        (15_000, RowScale(0.9, 1.0), "sdm"),  # of unit length
        (15_000, RowScale(66.0, 183.0), "sdm"),  # the larger part differs from row to row
        (800, RowScale(614.0, 698.0), "splitting"),
        (15_000, None, "sdm"),
    ],
)
def test_auto_takes_it_for_many_rows_that_are_not_centred(n, scale, solver):
    plan = make_plan(
        n=n, d=16, k=26, nnz=n * 16, is_sparse=False, dtype=np.dtype("float32"),
        formulation="crammer_singer", solver="auto", n_jobs=1, options=None, scale=scale,
    )  # fmt: skip
    assert plan.solver == solver
    is_common = "dense rows that are not centred (their mean makes up 88% of their squares)"
    assert plan.reason == (is_common if solver == "splitting" else "dense rows in memory")
    assert plan.then == ("splitting" if solver == "sdm" and n > 1000 else None)


def test_auto_takes_sdm_if_an_option_of_sdm_is_given():
    plan = make_plan(
        n=15_000, d=16, k=26, nnz=240_000, is_sparse=False, dtype=np.dtype("float32"),
        formulation="crammer_singer", solver="auto", n_jobs=1, options={"schedule": "uniform"},
        scale=RowScale(614.0, 698.0),
    )  # fmt: skip
    assert (plan.solver, plan.schedule, plan.then) == ("sdm", "uniform", None)


def test_the_plan_says_how_epochs_are_run():
    plan = plan_of()
    assert (plan.solver, plan.schedule, plan.stop) == ("splitting", "newton", "gap")
    assert plan.reason == "asked for by solver='splitting'"
