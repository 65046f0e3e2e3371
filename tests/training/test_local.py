"""When the solver that began a fit is left for another, and how epochs are counted."""

from dataclasses import dataclass

import pytest

from dask_mcsvm.training.loop import (
    STRETCH,
    TOO_MANY,
    counted_epochs,
    is_over,
    is_slow,
    second_is_due,
)
from dask_mcsvm.training.plan import TRIAL, matrix_epochs, pass_epochs


def history_of(gaps, *, dual=1.0):
    """Records of P = D + gap, an epoch each; D stays."""
    return [
        {"epoch": float(e), "gap": gap / (dual + gap), "primal": dual + gap, "dual": dual}
        for e, gap in enumerate(gaps, 1)
    ]


def records(rate, *, epochs, gap=1.0):
    """A history whose gap falls by the factor ``rate`` every epoch."""
    return history_of([gap * rate**e for e in range(1, epochs + 1)])


def test_a_solver_is_not_judged_before_it_was_tried():
    assert not is_slow(records(0.999, epochs=int(TRIAL) - 1), 1e-3)
    assert is_slow(records(0.999, epochs=int(TRIAL)), 1e-3)


@pytest.mark.parametrize(("factor", "answer"), [(0.9, False), (1.1, True)])
def test_it_is_slow_if_too_many_epochs_are_left_at_its_rate(factor, answer):
    history = records(0.9, epochs=30)
    tol = history[-1]["gap"] * 0.9 ** (factor * TOO_MANY)
    assert is_slow(history, tol) is answer
    assert is_slow(history, tol, factor * 1.01 * TOO_MANY) is False


def test_a_gap_that_grows_is_slow_and_one_that_is_small_enough_is_not():
    history = records(1.05, epochs=30, gap=0.01)
    assert is_slow(history, 1e-3)
    assert not is_slow(history, 0.1)


def test_a_primal_that_falls_fast_is_not_slow_however_far_it_is_from_the_dual():
    history = records(0.7, epochs=25, gap=1e7)
    assert history[-1]["gap"] > 0.99
    assert not is_slow(history, 1e-3)


def test_a_dual_that_rises_alone_is_slow():
    history = [
        {"epoch": float(e), "gap": 1 - 1e-6 * e, "primal": 1e6, "dual": float(e)}
        for e in range(1, 25)
    ]
    assert is_slow(history, 1e-3)


@pytest.mark.parametrize("gap", [float("nan"), float("inf")])
def test_a_gap_that_is_no_number_is_slow(gap):
    history = records(0.9, epochs=30)
    for record in history[5:]:
        record.update(gap=gap, primal=gap)
    assert is_slow(history, 1e-3)


def test_a_fit_without_a_tolerance_stays_with_its_solver():
    assert not is_slow(records(0.999, epochs=50), 0.0)


def test_one_lucky_estimate_does_not_make_the_next_ones_slow():
    gaps = [100.0 * 0.7**e for e in range(1, 25)]
    gaps[-5] /= 10
    assert not is_slow(history_of(gaps), 1e-3)
    gaps[-5] = 0.0
    assert not is_slow(history_of(gaps), 1e-3)


def test_without_records_in_both_stretches_there_is_no_rate():
    history = [{"epoch": 4 * STRETCH * e, "gap": 0.5} for e in (1, 2)]
    assert not is_slow(history, 1e-3)


# -- what the other solver would cost --------------------------------------------------------------


@dataclass
class Shape:
    n: int
    d: int
    k: int
    then: str | None = "splitting"

    @property
    def nnz(self):
        return self.n * self.d


def test_matrices_are_weighed_in_epochs():
    assert matrix_epochs(178, 13, 3, 178 * 13) < 1  # wine
    assert 3 < matrix_epochs(60_000, 784, 10, 60_000 * 784) < 5  # MNIST
    assert matrix_epochs(500, 4096, 2, 500 * 4096) > 1000


def test_a_pass_is_weighed_in_epochs():
    """Epochs visit few classes a row where there are many; a pass looks at all of them."""
    assert pass_epochs(178, 13, 3, 178 * 13) < 1  # wine
    assert pass_epochs(60_000, 784, 10, 60_000 * 784) < 1  # MNIST
    assert 1 < pass_epochs(15_000, 16, 26, 15_000 * 16) < 3  # letter
    assert 10 < pass_epochs(20_000, 64, 500, 20_000 * 64) < 20
    assert pass_epochs(5_000, 3_000, 100, 150_000) > 40


def test_the_dearer_its_matrices_the_later_the_second_solver_is_due():
    history = records(0.95, epochs=30)
    left = 100  # epochs, at this rate
    tol = history[-1]["gap"] * 0.95**left
    assert second_is_due(Shape(178, 13, 3), history, tol)
    assert not second_is_due(Shape(500, 4096, 2), history, tol)
    assert not second_is_due(Shape(178, 13, 3, then=None), history, tol)
    assert not second_is_due(Shape(178, 13, 3), [], tol)
    assert second_is_due(Shape(500, 4096, 2), records(1.0, epochs=30), 1e-3)  # it stands still


# -- epochs ----------------------------------------------------------------------------------------


def test_epochs_are_over_at_the_nearest_and_counted_up_to_those_allowed():
    assert [is_over(epochs, 300) for epochs in (0.0, 299.4, 299.6, 300.98)] == [
        False, False, True, True,
    ]  # fmt: skip
    assert [counted_epochs(epochs, 300) for epochs in (0.0, 0.3, 12.02, 299.6, 300.98)] == [
        0, 1, 13, 300, 300,
    ]  # fmt: skip
