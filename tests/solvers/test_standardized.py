"""Centred sparse rows: scores, sums and products are those of dense standardized rows."""

import numpy as np
import pytest
import scipy.sparse as sp

from dask_mcsvm.formulations import Standardization, moments
from dask_mcsvm.solvers.splitting.newton import squares_of_columns
from dask_mcsvm.solvers.splitting.products import row_views, scores_of, weighted_rows
from dask_mcsvm.solvers.standardized import (
    DenseStandardized,
    centre_weights,
    shift_of,
    shift_scores,
    standardized_rows,
)

TAU = 1.5


@pytest.fixture
def problem():
    """X, its dense standardized rows with their constant, the sparse ones, and what to sum."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 7)) * 10.0 ** np.arange(-3, 4) + 5
    X[rng.random(X.shape) < 0.6] = 0
    columns = Standardization.of(moments(X), centred=True)
    Z = np.hstack([columns.rows(X), np.full((30, 1), TAU)])
    csr = sp.csr_array(X)
    csr.indices, csr.indptr = csr.indices.astype(np.int32), csr.indptr.astype(np.int64)
    return X, Z, columns, standardized_rows(csr, columns), rng.normal(size=(30, 4))


def parts_of(rows, B):
    """S, u and r of W = Z^T B [STD-W]."""
    S, u = rows.X.T @ B, B.sum(axis=0)
    return S, u, S.T @ rows.shift - rows.far * u


def test_two_vectors_stand_for_the_mean_of_all_columns(problem):
    _, Z, _, rows, B = problem
    W, (S, u, r) = Z[:, :-1].T @ B, parts_of(rows, B)
    np.testing.assert_allclose(r, shift_scores(np.vstack([W, u]), rows.shift), atol=1e-9)
    scores = rows.X @ S - np.outer(rows.common, u) - r  # [STD-S]
    np.testing.assert_allclose(scores, Z[:, :-1] @ W, atol=1e-9)
    squares = rows.X.power(2).sum(axis=1) - 2 * rows.common + rows.far  # [STD-A]
    np.testing.assert_allclose(squares, np.square(Z[:, :-1]).sum(axis=1), rtol=1e-9)
    after = rows.X[:1].T @ B[1:2], B[1], (rows.common[0] - rows.far) * B[1]  # a visit of row 0
    for part, moved, new in zip(
        (S, u, r), after, parts_of(rows, np.vstack([B[:1] + B[1:2], B[1:]])), strict=True
    ):
        np.testing.assert_allclose(part + moved, new, atol=1e-9)


def test_sums_over_sparse_rows_become_those_of_standardized_ones(problem):
    X, Z, columns, rows, B = problem
    W = np.vstack([rows.X.T @ B, B.sum(axis=0)])
    centre_weights(W, rows.shift, TAU)
    np.testing.assert_allclose(W, Z.T @ B, atol=1e-9)
    dense = standardized_rows(X, columns)
    assert isinstance(dense, DenseStandardized)
    weights = np.abs(B[:, 0])
    members = np.arange(30)
    for kind in (rows, dense):
        np.testing.assert_allclose(weighted_rows(kind, B, TAU), B.T @ Z, atol=1e-9)
        np.testing.assert_allclose(scores_of(kind, W.T, TAU), Z @ W, atol=1e-9)
        np.testing.assert_allclose(kind.block(), Z[:, :-1], atol=1e-9)
        out = np.empty(8)
        squares_of_columns(kind, TAU, members, weights, out)
        np.testing.assert_allclose(out, weights @ Z**2, rtol=1e-9, atol=1e-12)


def test_slices_keep_what_belongs_to_rows(problem):
    X, _, columns, rows, _ = problem
    for kind in (rows, standardized_rows(X, columns)):
        for some in (slice(5, 12), np.array([3, 20])):
            np.testing.assert_array_equal(kind[some].block(), kind.block()[some])
        ((here, view),) = row_views(kind)
        assert here == slice(0, 30)
        np.testing.assert_array_equal(view.block(), kind.block())
    assert shift_of(kind) is None
