"""Mean and scale of columns are StandardScaler's, however the rows are held or divided."""

from functools import reduce

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.preprocessing import StandardScaler

from dask_mcsvm.formulations import Moments, Standardization, _standardize, is_constant, moments


def columns(n=200):
    """Unlike scales, zeros, a large mean, and constant columns; some rows count twice or not."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 6)) * [1e-3, 1, 1e4, 1, 1, 1] + [0, 1, 3e6, 0, 0, 0]
    X[rng.random((n, 6)) < 0.5] = 0
    X[:, 4], X[:, 5] = 0, 0.1
    return X, rng.integers(3, size=n).astype(float)


@pytest.mark.parametrize("csr", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_standard_scaler_finds_the_same(csr, weighted, monkeypatch):
    monkeypatch.setattr(_standardize, "BLOCK_VALUES", 60)  # many blocks
    X, w = columns()
    w = w if weighted else None
    found = moments(sp.csr_array(X) if csr else X, w)
    scaler = StandardScaler().fit(X, sample_weight=w)
    made = Standardization.of(found, centred=True)
    np.testing.assert_allclose(made.mean, scaler.mean_, rtol=1e-12)
    np.testing.assert_allclose(made.scale, scaler.scale_, rtol=1e-12)
    np.testing.assert_array_equal(is_constant(found), [False] * 4 + [True] * 2)
    np.testing.assert_allclose(made.rows(X), scaler.transform(X), atol=1e-9)
    scaled = Standardization.of(found, centred=False)
    want = StandardScaler(with_mean=False).fit(X, sample_weight=w).transform(X)
    np.testing.assert_allclose(scaled.rows(sp.csr_array(X)).toarray(), want, rtol=1e-12)


def test_rows_in_parts_are_rows_at_once():
    X, w = columns()
    none = Moments(0.0, np.zeros(6), np.zeros(6), 0)
    parts = [moments(X[a : a + 70], w[a : a + 70]) for a in range(0, 200, 70)]
    found, whole = reduce(Moments.merged, parts, none), moments(X, w)
    for one, other in zip(found, whole, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-20)


@pytest.mark.parametrize("centred", [False, True])
def test_norms_need_no_dense_rows(centred):
    X, w = columns()
    made = Standardization.of(moments(X, w), centred=centred)
    want = np.square(made.rows(X)).sum(axis=1)
    for rows in (X, sp.csr_array(X)):
        squares, scaled = made.square_norms(rows)
        np.testing.assert_allclose(squares, want, rtol=1e-8)
        np.testing.assert_allclose(scaled, np.square(X / made.scale).sum(axis=1), rtol=1e-12)


def test_raw_weights_score_raw_rows():
    X, w = columns()
    made = Standardization.of(moments(X, w), centred=True)
    W = np.random.default_rng(1).normal(size=(6, 3))
    V = made.raw_weights(W.copy())
    np.testing.assert_allclose(X @ V + made.offset(V), made.rows(X) @ W, atol=1e-8)


def test_a_column_without_zeros_is_constant_however_its_weights_are_summed():
    n = 400
    X = np.column_stack([np.full(n, 7.0), np.arange(n) % 2.0])
    found = moments(sp.csr_array(X), np.random.default_rng(0).random(n))
    assert is_constant(found).tolist() == [True, False]


@pytest.mark.parametrize("csr", [False, True])
@pytest.mark.parametrize("unit", [2.0**-60, 2.0**60])
def test_the_unit_of_weights_makes_no_column_constant(csr, unit):
    X, w = columns()
    rows = sp.csr_array(X) if csr else X
    found, usual = moments(rows, w * unit), moments(rows, w)
    assert found.rows == usual.rows == np.count_nonzero(w)
    made, want = (Standardization.of(these, centred=True) for these in (found, usual))
    np.testing.assert_array_equal(made.scale, want.scale)
    np.testing.assert_array_equal(is_constant(found), [False] * 4 + [True] * 2)
