"""The proximal step of a row and its derivative, against the specification and by differences."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from solvers.small import NAMES

from dask_mcsvm.formulations import FORMULATIONS
from dask_mcsvm.solvers.kernels.jit import kernel
from dask_mcsvm.solvers.kernels.rows import read_only
from dask_mcsvm.solvers.kernels.steps import LOSSES
from dask_mcsvm.solvers.splitting.newton import (
    ConjugateGradients,
    Preconditioner,
    curve,
    find_active,
)
from dask_mcsvm.solvers.splitting.products import weighted_rows
from dask_mcsvm.solvers.splitting.prox import (
    certify_scores,
    free_classes,
    project_free,
    prox_row,
    prox_rows,
    slope,
)

K = 5
every_formulation = pytest.mark.parametrize("name", NAMES)


@kernel
def prox(loss, v, y, penalty, b):
    return prox_row(loss, v, y, penalty, b, np.empty(loss.k))


@kernel
def change(loss, b, y, direction):
    """J·direction, as the two kernels together make it."""
    classes, t = np.empty(loss.k, np.int32), np.empty(loss.k)
    out = np.zeros(loss.k)
    q = free_classes(loss, b, y, classes)
    for c in range(q):
        t[c] = direction[classes[c]]
    project_free(loss, t, q)
    for c in range(q):
        out[classes[c]] = t[c]
    return out


def centred(name, rows):
    return rows - rows.mean(axis=-1, keepdims=True) if name == "lee_lin_wahba" else rows


def block_step(name, v, y, penalty):
    """alpha of the prox by the specification, and its coefficients."""
    form = FORMULATIONS[name](K, 1.0)
    alpha = form.block_step(np.zeros(K), v, 1 / penalty, y, 1.0)
    return alpha, form.coefficients(alpha[None], [y])[0], form.dual_linear(alpha[None], [y])[0]


rows = st.lists(st.floats(-5, 5), min_size=K, max_size=K).map(np.array)


@every_formulation
@given(v=rows, y=st.integers(0, K - 1), penalty=st.sampled_from([1e-3, 0.3, 1.0, 40.0]))
def test_the_prox_is_the_block_step_from_zero(name, v, y, penalty):
    v = centred(name, v)
    b = np.empty(K)
    linear = prox(LOSSES[name](K), v, y, penalty, b)
    _, B, expected = block_step(name, v, y, penalty)
    np.testing.assert_allclose(centred(name, b), B, atol=1e-12)
    assert linear == pytest.approx(expected, abs=1e-12)


@every_formulation
def test_the_projection_is_the_derivative_of_the_prox(name):
    rng, penalty, loss = np.random.default_rng(0), 0.7, LOSSES[name](K)
    moved = 0
    for _ in range(200):
        v, direction = centred(name, rng.normal(size=K)), centred(name, rng.normal(size=K))
        y, step = int(rng.integers(K)), 1e-7
        b, there = np.empty(K), np.empty(K)
        prox(loss, v, y, penalty, b)
        prox(loss, v + step * direction, y, penalty, there)
        by_kernel = centred(name, change(loss, b, y, direction))
        by_difference = centred(name, (b - there) / step / penalty)
        if not np.array_equal(free(name, b), free(name, there)):
            continue  # a kink lies between the two points
        np.testing.assert_allclose(by_kernel, by_difference, atol=1e-5)
        moved += np.any(by_kernel != 0)
    assert moved > 50


def free(name, b):
    return (b != 0) & (np.abs(b) != 1)


def random_block(name, m=30, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(K, size=m).astype(np.int32)
    scores = centred(name, rng.normal(size=(m, K)))
    fixed = np.empty((m, K))
    for i in range(m):
        prox(LOSSES[name](K), scores[i], y[i], 0.4, fixed[i])
    C = rng.choice([0.25, 1.0, 3.0], m)
    return centred(name, rng.normal(size=(m, K))), fixed, read_only(y), read_only(C), rng


@every_formulation
def test_a_block_is_settled_as_its_rows_are(name):
    S, fixed, y, C, _ = random_block(name)
    penalty, loss, form = np.linspace(0.5, 2.0, y.size), LOSSES[name](K), FORMULATIONS[name](K, 1.0)
    b, Cb, out = np.empty_like(S), np.empty_like(S), np.empty(3)
    prox_rows(loss, S, fixed, penalty, y, C, b, Cb, out)
    linear = 0.0
    for i in range(y.size):
        v = S[i] - centred(name, fixed[i]) / penalty[i]
        _, B, one = block_step(name, v, y[i], penalty[i])
        np.testing.assert_allclose(centred(name, b[i]), B, atol=1e-12)
        linear += C[i] * one
    np.testing.assert_allclose(Cb, C[:, None] * b)
    assert out[0] == pytest.approx(C @ form.losses_from_scores(S, y))
    assert out[1] == pytest.approx(linear)
    assert out[2] == pytest.approx((np.abs(b - fixed) / penalty[:, None]).max())


@every_formulation
def test_the_slope_is_that_of_the_smoothed_losses(name):
    S, fixed, y, C, rng = random_block(name, seed=1)
    T, penalty = centred(name, rng.normal(size=S.shape)), np.linspace(0.5, 2.0, y.size)
    loss, form = LOSSES[name](K), FORMULATIONS[name](K, 1.0)

    def envelope(t):
        total = 0.0
        for i in range(y.size):
            v = S[i] + t * T[i] - centred(name, fixed[i]) / penalty[i]
            _, B, _ = block_step(name, v, y[i], penalty[i])
            z = v + B / penalty[i]
            loss_z = form.losses_from_scores(z[None], y[i : i + 1])[0]
            total += C[i] * (loss_z + penalty[i] / 2 * np.sum((z - v) ** 2))
        return total

    for t in (0.3, 1.0):
        by_difference = (envelope(t + 1e-6) - envelope(t - 1e-6)) / 2e-6
        assert slope(loss, S, T, t, fixed, penalty, y, C) == pytest.approx(by_difference, rel=1e-5)


@every_formulation
def test_products_with_the_curvature_are_symmetric_and_positive(name):
    S, fixed, y, C, rng = random_block(name, seed=2)
    X, tau, loss = rng.normal(size=(y.size, 4)), 0.5, LOSSES[name](K)
    X.flags.writeable = False
    b, Cb, active = np.empty_like(S), np.empty_like(S), np.empty(y.size, np.int64)
    free = np.zeros(K, np.int64)
    prox_rows(loss, S, fixed, np.full(y.size, 2.0), y, C, b, Cb, np.empty(3))
    count = find_active(loss, b, y, active, free)
    assert 0 < count <= free.sum()

    def product(P):
        out = np.zeros_like(P)
        curve(loss, X, tau, active[:count], y, C, b, P, out)
        return centred(name, out.T).T

    P, Q = (centred(name, rng.normal(size=(5, K))).T.copy() for _ in range(2))
    assert np.vdot(Q, product(P)) == pytest.approx(np.vdot(P, product(Q)))
    assert np.vdot(P, product(P)) >= 0


def test_conjugate_gradients_solve_with_any_preconditioner():
    rng = np.random.default_rng(3)
    A = rng.normal(size=(6, 6))
    gram = A @ A.T
    blocks = np.stack([np.eye(6) + 2.0 * gram * (m + 1) for m in range(3)])
    g = rng.normal(size=(3, 6))
    exact = -np.linalg.solve(blocks, g[:, :, None])[:, :, 0]
    per_class = Preconditioner.of_grams([gram * (m + 1) for m in range(3)], 2.0, centred=False)
    np.testing.assert_allclose(per_class.solve(-g), exact, rtol=1e-10)
    for grams in ([gram.copy()], [gram * (m + 1) for m in range(3)]):
        solve = Preconditioner.of_grams(grams, 2.0, centred=False).solve
        cg = ConjugateGradients.begin(g, solve)
        while not cg.is_done(0.1):
            cg = cg.after(np.einsum("mij,mj->mi", blocks, cg.direction), solve)
        error = cg.P - exact
        size = np.vdot(exact, np.einsum("mij,mj->mi", blocks, exact))
        assert np.vdot(error, np.einsum("mij,mj->mi", blocks, error)) <= 0.1 * size
        assert 1 <= cg.products < 20


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_preconditioner_of_singular_blocks_is_symmetric_and_positive(dtype):
    rng = np.random.default_rng(5)
    A = rng.normal(size=(30, 12)) * np.geomspace(1e-6, 1e6, 12)
    A[:, 7] = A[:, 3]  # a column twice
    grams = [(A.T @ A).astype(dtype) for _ in range(3)]
    solve = Preconditioner.of_grams(grams, 1e3, centred=False).solve
    R, Q = rng.normal(size=(2, 3, 12))
    assert np.vdot(Q, solve(R)) == pytest.approx(np.vdot(R, solve(Q)), rel=1e-4)
    assert np.vdot(R, solve(R)) > 0


def test_a_block_that_overflows_in_float32_is_refused_and_a_large_penalty_is_not():
    large = Preconditioner.of_grams([np.full((2, 2), 1e35, np.float32)], 1e9, centred=False)
    assert np.isfinite(large.factors).all()
    with pytest.raises(FloatingPointError, match=r"^the curvature of the rows is not finite: .*"):
        Preconditioner.of_grams([np.full((2, 2), np.inf, np.float32)], 1.0, centred=False)


@pytest.mark.parametrize("share", [0.02, 0.5])
@pytest.mark.parametrize("csr", [False, True], ids=["dense", "csr"])
def test_weights_from_few_and_many_multipliers_are_the_same_sums(share, csr):
    rng = np.random.default_rng(6)
    X = rng.normal(size=(300, 70)).astype(np.float32)
    B = (rng.normal(size=(300, 4)) * (rng.random((300, 4)) < share)).astype(np.float32)
    found = weighted_rows(sp.csr_array(X) if csr else X, B, 0.5)
    exact = B.astype(np.float64).T @ np.column_stack([X, np.full(300, 0.5)])
    np.testing.assert_allclose(found, exact, atol=1e-4)
    assert found.dtype == np.float64


@every_formulation
def test_the_certificate_repairs_what_rounding_left_outside(name):
    S, fixed, y, C, _ = random_block(name, seed=4)
    form = FORMULATIONS[name](K, C)
    off = (C[:, None] * fixed * (1 + 1e-6)).astype(np.float32)
    B = np.empty_like(S)
    primal, linear = certify_scores(LOSSES[name](K), S, y, C, off, B)
    assert primal == pytest.approx(C @ form.losses_from_scores(S, y))
    alpha = {
        "crammer_singer": B,
        "one_vs_rest": np.where(form.own(y), B, -B),
    }.get(name, np.where(form.own(y), 0.0, -B))
    assert form.feasible(alpha, y, atol=1e-12)
    assert linear == pytest.approx(form.dual_linear(alpha, y).sum())
