"""Which rows an epoch visits, how often, and in which of its steps."""

import numpy as np
import pytest

from dask_mcsvm.solvers.sdm.visits import draw_visits, ends_of_turns


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


@pytest.mark.parametrize(("turns", "short"), [(1, 0), (3, 0), (20, 5), (40, 6)])
def test_the_last_turns_of_an_epoch_are_short(turns, short):
    ends = ends_of_turns(10_000, turns)
    sizes = np.diff(ends, prepend=0)
    assert ends.size == turns
    assert ends[-1] == 10_000
    assert np.ptp(sizes[: turns - short]) <= 1
    for before, after in zip(sizes[turns - short - 1 :], sizes[turns - short :], strict=False):
        assert abs(after - before / 2) <= 2
    assert ends_of_turns(0, turns).tolist() == [0] * turns
