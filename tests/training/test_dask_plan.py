"""The plan of a fit on Dask: which blocks, lanes and slices, from shape and parameters alone."""

from dataclasses import replace

import numpy as np
import pytest

from dask_mcsvm.training.dask_plan import make_dask_plan, round_slices, split_lanes
from dask_mcsvm.training.loop import epochs_to_tol

BIG = dict(n=400_000, d=100_000, nnz=52_000_000, chunks=8)


def plan(k=20, options=None, **shape):
    given = dict(n=1000, d=50, nnz=20_000, chunks=6) | shape
    return make_dask_plan(
        counts=np.full(k, given["n"] // k), mean_square=1.0, cost_square=1.0,
        dtype=np.dtype(np.float32), formulation="crammer_singer", tau=1.0, solver="auto",
        options=options, **given,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("shape", "lanes", "blocks", "slices"),
    [
        ({}, 1, 1, 1),
        (BIG, 1, 1, 1),
        (BIG | {"d": 5000, "k": 150}, 2, 2, 20),  # more work, and a smaller W to copy
        (BIG | {"nnz": 10**9, "chunks": 100}, 4, 100, 40),  # too many bytes to be joined
        (BIG | {"nnz": 140_000_000, "chunks": 3}, 1, 3, 40),
        (BIG | {"memory_limit": 10**8}, 1, 8, 40),
        ({"options": {"lanes": 2}}, 2, 2, 20),
        ({"options": {"lanes": 64}}, 6, 6, 60),  # no more than there are chunks
        ({"options": {"lanes": 2, "slices": 3}}, 2, 2, 3),
    ],
)
def test_blocks_lanes_and_slices(shape, lanes, blocks, slices):
    found = plan(**shape)
    assert (found.lanes, found.blocks, found.slices) == (lanes, blocks, slices)


def test_the_plan_in_words_says_where_the_rows_are():
    one = plan()
    assert "schedule     1 block of rows on one worker at a time, an epoch is one task" in str(one)
    assert "3 blocks of rows one after another, " in str(replace(one, blocks=3))
    assert "8 blocks of rows, 2 side by side, " in str(replace(one, blocks=8, lanes=2))


def test_visits_of_rounds_are_cut_where_they_are_long_and_copy_little():
    assert round_slices(6 * 30_000_000, groups=4, n_weights=1000) == 4
    assert round_slices(6 * 11_000_000, groups=4, n_weights=1000) == 2
    assert round_slices(6 * 30_000_000, groups=4, n_weights=50_000_000) == 1
    assert round_slices(0, groups=1, n_weights=10) == 1


def test_blocks_of_splitting_are_a_power_of_two():
    works = (0, 4e8, 5e8, 1.9e9, 2e9, 5.1e9)
    assert [split_lanes(int(work)) for work in works] == [1, 1, 1, 2, 4, 8]


@pytest.mark.parametrize(
    ("gaps", "epochs"),
    [
        ({}, 8.0),
        ({7: 0.1}, 8.0),  # a tenth in eight epochs, and a tenth is left
        ({3: 0.1}, 4.0),
        ({3: 0.1, 5: 0.02}, 2.0),  # sooner than two epochs would be one look after another
        ({3: 0.1, 7: 0.1}, 8.0),  # it does not fall
        ({3: 0.1, 7: 0.05, 9: 0.025}, 2 * np.log2(2.5)),
    ],
)
def test_a_look_is_due_where_the_gap_will_be_small_enough(gaps, epochs):
    history = [{"certified": e in gaps, "gap": gaps.get(e, np.nan)} for e in range(12)]
    assert epochs_to_tol(history, 1e-2) == pytest.approx(epochs)
