"""Which rows an epoch visits, how often, and in which of its steps."""

import numpy as np
import pytest

from dask_mcsvm.solvers.sdm.visits import deal_visits, draw_visits


@pytest.mark.parametrize("parts", [1, 4])
def test_rows_are_visited_as_often_as_they_prefer(parts):
    rng = np.random.default_rng(0)
    rows, preference = np.arange(10, 400), 5 * rng.random(400)
    visits = np.bincount(draw_visits(rows, preference, rng, parts), minlength=400)
    asked = preference[rows] / preference[rows].mean() / parts
    assert np.abs(visits[rows] - asked).max() <= 1
    assert not visits[:10].any()
    assert abs(visits.sum() - rows.size / parts) <= 1


def test_who_prefers_nothing_is_visited_once():
    order = draw_visits(np.arange(50), np.ones(50), np.random.default_rng(1))
    assert sorted(order.tolist()) == list(range(50))
    assert order.tolist() != list(range(50))


def test_of_no_rows_nobody_is_visited():
    nobody = np.empty(0, np.int64)
    order = draw_visits(nobody, np.ones(3), np.random.default_rng(0))
    assert order.size == 0
    assert [step.rows.size for step in deal_visits(order, 3, 2)] == [0, 0]


@pytest.mark.parametrize("steps", [1, 7, 90])
def test_steps_make_the_visits_in_their_order_and_find_each_row_where_it_was_last(steps):
    """Followed by hand: every row carries the number of its visits from step to step."""
    rng = np.random.default_rng(2)
    order = rng.integers(0, 30, 80)
    dealt = deal_visits(order, 30, steps)
    assert len(dealt) == steps
    np.testing.assert_array_equal(np.concatenate([step.rows[step.order] for step in dealt]), order)
    held = [np.zeros(30, int)]
    for step in dealt:
        assert np.unique(step.rows).size == step.rows.size
        before = np.array(
            [held[s][p] for s, p in zip(step.source, step.place, strict=True)], dtype=int
        )
        held.append(before + np.bincount(step.order, minlength=step.rows.size))
    last = np.zeros(30, int)
    for step, counts in zip(dealt, held[1:], strict=True):
        last[step.rows] = counts
    np.testing.assert_array_equal(last, np.bincount(order, minlength=30))
