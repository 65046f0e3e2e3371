"""Products of rows and weights, whatever number of classes fills or overfills a vector."""

import numpy as np
import pytest
import scipy.sparse as sp

from dask_mcsvm.solvers.kernels.candidate_classes import largest
from dask_mcsvm.solvers.kernels.dense_weights import updates_all
from dask_mcsvm.solvers.kernels.jit import kernel
from dask_mcsvm.solvers.kernels.rows import (
    as_rows,
    row_scores,
    row_scores_of,
    row_update,
    row_update_all,
)
from dask_mcsvm.solvers.sdm.sweeps import Frequencies, prefer

CLASSES = [1, 2, 7, 8, 9, 15, 16, 17, 20, 24, 25, 31, 32, 33, 40, 64, 65, 77, 131]


@kernel
def all_scores(rows, i, W, tau, s):
    row_scores(rows, i, W, tau, s)


@kernel
def scores_of_list(rows, i, W, tau, classes, s):
    row_scores_of(rows, i, W, tau, classes, classes.size, s)


@kernel
def add_to_list(rows, i, W, tau, classes, delta):
    row_update(rows, i, W, tau, classes, delta, classes.size)


@kernel
def add_to_all(rows, i, W, tau, delta):
    row_update_all(rows, i, W, tau, delta)


def a_row(csr, dtype, nonzeros, seed):
    """Five rows, the third of which is looked at, and the same with the constant feature."""
    rng = np.random.default_rng(seed)
    X = np.zeros((5, 30), dtype)
    X[2, rng.permutation(30)[:nonzeros]] = rng.normal(size=nonzeros)
    X[1], X[3] = rng.normal(size=30), rng.normal(size=30)
    tau = dtype.type(rng.choice([0.0, 0.75]))
    return as_rows(sp.csr_array(X) if csr else X), tau, np.append(X[2], tau).astype(np.float64)


@pytest.mark.parametrize("csr", [False, True], ids=["dense", "csr"])
@pytest.mark.parametrize(
    ("dtype", "sums"), [("float64", "float64"), ("float32", "float32"), ("float32", "float64")]
)
@pytest.mark.parametrize("nonzeros", [0, 1, 2, 13])
def test_scores_are_products_with_the_columns_of_w(csr, dtype, sums, nonzeros):
    dtype = np.dtype(dtype)
    for k in CLASSES:
        rows, tau, x = a_row(csr, dtype, nonzeros, k)
        W = np.random.default_rng(k).normal(size=(31, k)).astype(dtype)
        s = np.full(k + 1, np.nan, sums)
        all_scores(rows, 2, W, tau, s[:k])
        accurate = 1e-14 if sums == "float64" else 1e-5
        np.testing.assert_allclose(s[:k], x @ W.astype(np.float64), rtol=0, atol=30 * accurate)
        assert np.isnan(s[k]), "written past the last class"


@pytest.mark.parametrize("csr", [False, True], ids=["dense", "csr"])
@pytest.mark.parametrize("q", [0, 1, 2, 3, 4, 5, 8, 11])
def test_listed_classes_alone_are_scored_and_changed(csr, q):
    dtype = np.dtype("float64")
    rows, tau, x = a_row(csr, dtype, 9, q)
    rng = np.random.default_rng(q)
    W, classes = rng.normal(size=(31, 12)), rng.permutation(12)[:q].astype(np.int32)
    s, delta = np.full(q, np.nan), rng.normal(size=q)
    scores_of_list(rows, 2, W, tau, classes, s)
    np.testing.assert_allclose(s, (x @ W)[classes], rtol=0, atol=1e-13)
    expected = W.copy()
    expected[:, classes] += np.outer(x, delta)
    add_to_list(rows, 2, W, tau, classes, delta)
    np.testing.assert_allclose(W, expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("csr", [False, True], ids=["dense", "csr"])
def test_all_classes_are_changed_at_once_where_they_fill_one_to_four_vectors(csr):
    changed = []
    for k in CLASSES:
        rows, tau, x = a_row(csr, np.dtype("float64"), 9, k)
        rng = np.random.default_rng(k)
        W, delta = rng.normal(size=(31, k)), rng.normal(size=k)
        if not updates_all(W):
            continue
        expected = W + np.outer(x, delta)
        add_to_all(rows, 2, W, tau, delta)
        np.testing.assert_allclose(W, expected, rtol=0, atol=1e-14)
        changed.append(k)
    assert changed == [k for k in CLASSES if 8 <= k <= 32]


def test_the_largest_score_is_found_wherever_it_is():
    rng = np.random.default_rng(0)
    for size in range(1, 41):
        s = rng.normal(size=size).astype(np.float32)
        for at in range(size):
            s[at] += 10
            for start in range(at + 1):
                assert largest(s, start, size) == s[at]
                assert largest(s, start, at + 1) == s[at]
            s[at] -= 10
    assert largest(np.full(9, -np.inf), 0, 9) == -np.inf


def test_preferences_follow_gains_within_their_bounds():
    preference, average = np.ones(2), np.array([1.0])
    frequencies = Frequencies(preference, average, 2)
    for gain, moved in ((4.0, True), (0.25, True), (0.0, False), (-1e-12, True)):
        before = preference.copy()
        prefer(frequencies, 0, gain, moved)
        assert (preference[0] > before[0]) == (gain > 1)
        assert preference[1] == 1
        assert np.isfinite(average[0])
    for _ in range(100):
        average[0] = 1.0
        prefer(frequencies, 0, 100.0, True)
        prefer(frequencies, 1, 0.0, False)
    assert (preference[0], preference[1]) == (5.0, 0.01)
