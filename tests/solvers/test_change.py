"""What a lane changed of W: listed, taken back and added up."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from dask_mcsvm.solvers.kernels.rows import as_rows
from dask_mcsvm.solvers.sdm.at_work import ROOM, WeightsAtWork
from dask_mcsvm.solvers.sdm.change import Change, add_change, square_of, total_change

SHAPE = (41, 9)


def random_change(rng, *, shift=False, dtype=np.float32):
    """Some entries of all rows but the last."""
    places = np.flatnonzero(rng.random((SHAPE[0] - 1) * SHAPE[1]) < 0.2).astype(np.int32)
    values = rng.normal(size=places.size).astype(dtype)
    common = rng.normal(size=SHAPE[0]) * (rng.random(SHAPE[0]) < 0.5)
    common[-1] = 0
    return Change(places, values, common.astype(dtype) if shift else np.empty(0, dtype))


def dense(change):
    W = np.zeros(SHAPE, change.values.dtype)
    add_change(W, change)
    return W.astype(float)


def save(weights, features, *, is_sparse=True):
    """As visits to one row would that has these features."""
    d, dtype = weights.W.shape[0] - 1, weights.W.dtype
    row = np.ones(features.size, dtype), features, [0, features.size]
    X = csr_array(row, shape=(1, d)) if is_sparse else np.ones((1, d), dtype)
    weights.save(as_rows(X), np.zeros(1, np.int64))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shift", [False, True], ids=["entries", "shift"])
@pytest.mark.parametrize("is_sparse", [True, False], ids=["csr", "dense"])
def test_what_visits_change_is_listed_and_taken_back(shift, dtype, is_sparse):
    rng = np.random.default_rng(0)
    before = rng.normal(size=SHAPE).astype(dtype)
    made = random_change(rng, shift=shift, dtype=dtype)
    weights = WeightsAtWork(before)
    for _ in range(2):  # nothing of the first step is left for the second
        save(weights, rng.permutation(SHAPE[0] - 1).astype(np.int32), is_sparse=is_sparse)
        add_change(weights.W, made._replace(shift=np.empty(0, dtype)))
        weights.W[-1] += 1  # the intercept is no part of it
        found, along = weights.take_change(made.shift, before[-1])
        np.testing.assert_array_equal(weights.W, before)
        np.testing.assert_array_equal(found.places, made.places)
        assert found.places.dtype == np.int32
        np.testing.assert_allclose(found.values, made.values, rtol=0, atol=1e-6)
        assert found.shift is made.shift
        np.testing.assert_allclose(along, np.sum(before * dense(found)), rtol=1e-4)
    np.testing.assert_allclose(square_of(*found, SHAPE[1]), np.sum(dense(found) ** 2), rtol=1e-5)


def test_only_rows_of_features_that_visits_may_change_are_looked_at():
    before = np.ones(SHAPE, np.float32)
    weights = WeightsAtWork(before)
    save(weights, np.array([30, 4], np.int32))
    save(weights, np.array([4, 17], np.int32))  # saved as it was first
    weights.W[[4, 5, 30], 2] = 3
    found, _ = weights.take_change(np.empty(0, np.float32), before[-1])
    np.testing.assert_array_equal(found.places, [4 * 9 + 2, 30 * 9 + 2])
    assert weights.W[5, 2] == 3
    assert np.all(weights.W[[4, 17, 30]] == 1)


def test_a_zero_that_changed_its_sign_is_no_change():
    weights = WeightsAtWork(np.zeros(SHAPE, np.float32))
    save(weights, np.arange(40, dtype=np.int32))
    weights.W[:] = -weights.W
    found, _ = weights.take_change(np.empty(0, np.float32), weights.W[-1])
    assert found.places.size == 0
    assert not np.signbit(weights.W[:-1]).any()


def test_a_long_list_grows():
    weights = WeightsAtWork(np.zeros((ROOM, 3), np.float32))
    features = np.arange(ROOM - 1, dtype=np.int32)
    save(weights, features)
    weights.W += 1
    found, along = weights.take_change(np.empty(0, np.float32), np.zeros(3))
    np.testing.assert_array_equal(found.places, np.arange(3 * features.size))
    assert np.all(found.values == 1)
    assert along == 0


@pytest.mark.parametrize("shift", [False, True], ids=["entries", "shift"])
def test_the_sum_of_changes_is_in_order_and_exact(shift):
    rng = np.random.default_rng(1)
    changes = [random_change(rng, shift=shift) for _ in range(3)]
    total = total_change(changes)
    assert np.all(np.diff(total.places) > 0)
    np.testing.assert_allclose(dense(total), sum(map(dense, changes)), atol=1e-6)
    alone = total_change(changes[:1])
    assert alone.places is changes[0].places
