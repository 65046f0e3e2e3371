"""When the solver that began a fit in memory is left for another."""

import pytest

from dask_mcsvm.training.local import STRETCH, TOO_MANY, TRIAL, is_slow


def records(rate, *, epochs, gap=1.0):
    """A history whose gap falls by the factor ``rate`` every epoch."""
    return [{"epoch": float(e), "gap": gap * rate**e} for e in range(1, epochs + 1)]


def test_a_solver_is_not_judged_before_it_was_tried():
    assert not is_slow(records(0.999, epochs=int(TRIAL) - 1), 1e-3)
    assert is_slow(records(0.999, epochs=int(TRIAL)), 1e-3)


@pytest.mark.parametrize(("factor", "answer"), [(0.9, False), (1.1, True)])
def test_it_is_slow_if_too_many_epochs_are_left_at_its_rate(factor, answer):
    history = records(0.9, epochs=30)
    tol = history[-1]["gap"] * 0.9 ** (factor * TOO_MANY)
    assert is_slow(history, tol) is answer


def test_a_gap_that_grows_is_slow_and_one_that_is_small_enough_is_not():
    history = records(1.05, epochs=30, gap=0.01)
    assert is_slow(history, 1e-3)
    assert not is_slow(history, 0.1)


def test_a_fit_without_a_tolerance_stays_with_its_solver():
    assert not is_slow(records(0.999, epochs=50), 0.0)


def test_one_lucky_estimate_does_not_make_the_next_ones_slow():
    history = records(0.7, epochs=24, gap=100.0)
    history[-5]["gap"] /= 10
    assert not is_slow(history, 1e-3)


def test_without_records_in_both_stretches_there_is_no_rate():
    history = [{"epoch": 4 * STRETCH * e, "gap": 0.5} for e in (1, 2)]
    assert not is_slow(history, 1e-3)
