"""What a lane changed of W: listed and added up."""

import numpy as np
import pytest

from dask_mcsvm.solvers.sdm.change import (
    Change,
    add_change,
    add_to_some,
    find_change,
    square_of,
    total_change,
)

SHAPE = (41, 9)
ALL = np.arange(40)


def random_change(rng, *, shift=False, dtype=np.float32):
    """Some entries of all rows but the last."""
    places = np.flatnonzero(rng.random((SHAPE[0] - 1) * SHAPE[1]) < 0.2)
    values = rng.normal(size=places.size).astype(dtype)
    common = rng.normal(size=SHAPE[0]) * (rng.random(SHAPE[0]) < 0.5)
    return Change(places, values, common.astype(dtype) if shift else np.empty(0, dtype))


def dense(change):
    W = np.zeros(SHAPE)
    add_change(W, change.places, change.values.astype(float), change.shift.astype(float))
    return W


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shift", [False, True], ids=["entries", "shift"])
def test_what_visits_change_is_listed(shift, dtype):
    rng = np.random.default_rng(0)
    before = rng.normal(size=SHAPE).astype(dtype)
    made = random_change(rng, shift=shift, dtype=dtype)
    W = before.copy()
    add_change(W, made.places, made.values, np.empty(0, dtype))
    W[-1] += 1  # the intercept is no part of it
    found, along = find_change(before, W, made.shift, ALL, 40)
    np.testing.assert_array_equal(found.places, made.places)
    np.testing.assert_allclose(found.values, made.values, rtol=0, atol=1e-6)
    np.testing.assert_array_equal(found.shift[:-1], made.shift[:-1])
    np.testing.assert_allclose(along, np.sum(before * dense(found)), rtol=1e-5)
    np.testing.assert_allclose(square_of(*found, SHAPE[1]), np.sum(dense(found) ** 2), rtol=1e-5)


def test_a_zero_that_changed_its_sign_is_no_change():
    before = np.zeros(SHAPE, np.float32)
    found, _ = find_change(before, -before, np.empty(0, np.float32), ALL, 40)
    assert found.places.size == 0


def test_a_long_list_grows():
    before = np.zeros((40_000, 3), np.float32)
    every = np.arange(39_999)
    found, along = find_change(before, before + 1, np.empty(0, np.float32), every, every.size)
    np.testing.assert_array_equal(found.places, np.arange(3 * 39_999))
    assert np.all(found.values == 1)
    assert along == 0


@pytest.mark.parametrize("shift", [False, True], ids=["entries", "shift"])
def test_some_rows_are_changed_and_found_like_all(shift):
    rng = np.random.default_rng(3)
    features = np.flatnonzero(rng.random(40) < 0.4)
    rows = np.append(features, 40)
    before = rng.normal(size=SHAPE)
    made = random_change(rng, shift=shift, dtype=np.float64)
    where = np.full(41, -1, np.int32)
    where[features] = np.arange(features.size)
    some = before[rows]
    add_to_some(some, where, *made)
    expected = before + dense(made)
    np.testing.assert_allclose(some[:-1], expected[features], rtol=1e-14)
    common = made.shift[rows] if shift else made.shift
    mine = np.isin(made.places // SHAPE[1], features)
    apart = some - common[:, None] if shift else some
    found, along = find_change(before[rows], apart, common, features, 40)
    np.testing.assert_array_equal(np.intersect1d(found.places, made.places), made.places[mine])
    np.testing.assert_allclose(dense(found)[features], dense(made)[features], atol=1e-14)
    np.testing.assert_allclose(along, np.sum((before * dense(found))[features]), rtol=1e-10)


@pytest.mark.parametrize("shift", [False, True], ids=["entries", "shift"])
def test_the_sum_of_changes_is_in_order_and_exact(shift):
    rng = np.random.default_rng(1)
    changes = [random_change(rng, shift=shift) for _ in range(3)]
    total = total_change(changes)
    assert np.all(np.diff(total.places) > 0)
    np.testing.assert_allclose(dense(total), sum(map(dense, changes)), atol=1e-6)
    alone = total_change(changes[:1])
    assert alone.places is changes[0].places
