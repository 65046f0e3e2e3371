"""The certificate: primal, dual and weights in float64, true whatever rounding did to alpha."""

from dataclasses import replace

import numpy as np
import pytest
from solvers.small import (
    IN_FLOAT32,
    IN_FLOAT64,
    NAMES,
    clusters,
    combination_name,
    fit,
    make_run,
    nonzeros,
    specification,
    with_constant,
)

from dask_mcsvm.solvers import duals
from dask_mcsvm.solvers.sdm import initial_duals
from dask_mcsvm.solvers.sdm import run as sdm_run
from dask_mcsvm.training import certify_primal

in_float64 = pytest.mark.parametrize("combination", IN_FLOAT64, ids=combination_name)
in_float32 = pytest.mark.parametrize("combination", IN_FLOAT32, ids=combination_name)


def unfinished_run(combination, monkeypatch, **options):
    """A few epochs of training, far from the optimum."""
    name, csr, sparse, dtype = combination
    for module in (initial_duals, duals):
        monkeypatch.setattr(module, "DENSE_CLASSES", 1 if sparse else 64)
    problem = clusters(name, csr=csr, dtype=dtype, **options)
    run = make_run(problem)
    for _ in range(3):
        run.uniform_epoch()
    return problem, run


def spoil(run, size):
    """Push stored variables out of the feasible set, as rounding would but further."""
    rng = np.random.default_rng(1)
    values = run.alpha if isinstance(run.alpha, np.ndarray) else run.alpha.values
    used = ... if isinstance(run.alpha, np.ndarray) else nonzeros(run.alpha)
    values[used] += size * rng.normal(size=values[used].shape) * (values[used] != 0)


@in_float64
@pytest.mark.parametrize("tau", [0.0, 1.0])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("size", [0.0, 1e-3])
def test_the_certificate_is_that_of_the_specification_for_the_repaired_alpha(
    combination, tau, weighted, size, monkeypatch
):
    problem, run = unfinished_run(combination, monkeypatch, tau=tau, weighted=weighted)
    spoil(run, size)
    svm, Z, y = specification(problem), with_constant(problem), problem.y
    alpha = svm.repair(run.duals().to_dense(y), y)
    primal, dual = run.certify()
    W = svm.weights(alpha, Z, y)
    np.testing.assert_allclose(run.W, W, rtol=0, atol=1e-12 * np.max(np.abs(W)))
    assert primal == pytest.approx(svm.primal(W, Z, y), rel=1e-12)
    assert dual == pytest.approx(svm.dual(alpha, Z, y), rel=1e-12)
    assert primal - dual == pytest.approx(svm.gap(alpha, Z, y), rel=1e-9)
    assert primal > dual
    assert (run.dual, not np.any(run.shift)) == (dual, True)


@in_float64
def test_the_shares_of_the_examples_add_up_to_the_gap(combination, monkeypatch):
    problem, run = unfinished_run(combination, monkeypatch)
    primal, dual = run.certify()
    svm, Z, y = specification(problem), with_constant(problem), problem.y
    alpha = svm.repair(run.duals().to_dense(y), y)
    scores = svm.scores(svm.weights(alpha, Z, y), Z)
    losses = svm.losses_from_scores(scores, y)
    # P - D = sum of C loss - l(alpha) + B.scores, since ||W||^2 = sum of B.scores
    shares = np.sum(svm.coefficients(alpha, y) * scores, axis=1) - svm.dual_linear(alpha, y)
    shares += problem.C * losses
    np.testing.assert_allclose(run.seen, np.column_stack([losses, shares]), rtol=0, atol=1e-11)
    assert np.all(run.seen[:, 1] >= -1e-12)
    assert run.gap == pytest.approx(primal - dual, rel=1e-10)


@in_float64
@pytest.mark.parametrize("columns", [1, 2])
def test_weights_made_by_blocks_of_classes_are_those_made_at_once(
    combination, columns, monkeypatch
):
    _, run = unfinished_run(combination, monkeypatch)
    primal, dual = run.certify()
    W = run.W.copy()
    run.W[:] = np.nan
    monkeypatch.setattr(sdm_run, "BLOCK_BYTES", 8 * W.shape[0] * columns)
    in_blocks = run.certify()
    np.testing.assert_array_equal(run.W, W)
    assert in_blocks == pytest.approx((primal, dual), rel=1e-14)


@in_float64
def test_the_number_of_threads_changes_no_byte_of_the_certificate(combination, monkeypatch):
    problem, run = unfinished_run(combination, monkeypatch)
    monkeypatch.setattr(sdm_run, "BLOCK_BYTES", 1)  # a task per class ...
    monkeypatch.setattr(sdm_run, "ROWS_PER_TASK", 7)  # ... and many of rows
    found = set()
    for n_jobs in (1, 2, 3):
        again = make_run(problem, start=run.duals(), n_jobs=n_jobs)
        primal, dual = again.certify()
        found.add((primal, dual, again.W.tobytes(), again.seen.tobytes()))
    assert len(found) == 1


@in_float32
def test_weak_duality_holds_after_training_in_float32(combination, monkeypatch):
    """Long after rounding ended all progress the dual is still a bound, here and by NumPy."""
    name, csr, sparse, dtype = combination
    for module in (initial_duals, duals):
        monkeypatch.setattr(module, "DENSE_CLASSES", 1 if sparse else 64)
    problem = replace(clusters(name, csr=csr, dtype=dtype), C=np.full(60, 0.1))  # no float32 number
    found = fit(problem, schedule="uniform", tol=0, max_epochs=1000)
    assert found.W.dtype == np.float32
    svm, Z, y = specification(problem), with_constant(problem), problem.y
    alpha = svm.repair(found.alpha.to_dense(y), y)
    dual, optimum = svm.dual(alpha, Z, y), svm.primal(svm.weights(alpha, Z, y), Z, y)
    assert found.dual == pytest.approx(dual, rel=1e-11)
    W = svm.project_weights(found.W.astype(np.float64))
    assert found.primal == pytest.approx(svm.primal(W, Z, y), rel=1e-12)
    assert optimum >= dual - 1e-14 * optimum
    assert found.primal >= found.dual - 1e-14 * found.primal
    assert found.gap <= 1e-4


@pytest.mark.parametrize("name", NAMES)
def test_the_primal_of_any_weights_can_be_certified(name):
    problem = clusters(name, zero_rows=3)
    svm = specification(problem)
    W = svm.project_weights(np.random.default_rng(0).normal(size=(13, problem.n_classes)))
    expected = svm.primal(W, with_constant(problem), problem.y)
    assert certify_primal(problem, W) == pytest.approx(expected, rel=1e-13)
    assert certify_primal(problem, np.asfortranarray(W), n_jobs=2) == certify_primal(problem, W)
