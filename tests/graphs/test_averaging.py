"""The barrier of Lee-Lin-Wahba: a tree, several times an epoch, and what it does to W."""

import numpy as np
import pytest
from graphs.runs import Run, Toy, round_of
from hypothesis import given
from hypothesis import strategies as st

from dask_mcsvm.graphs.independent_groups import FAN_IN, Averaging


def epoch_of(n_groups=3, *, chunks=(5, 0, 7), slices=4):
    toy = Toy(n=sum(chunks), k=n_groups, chunks=chunks)
    solver = toy.solver(Averaging, groups=tuple((g,) for g in range(n_groups)), slices=slices)
    return solver.epoch(solver.start().state, 3)


def is_visit(key):
    return key[0].startswith("llw-visit-e3-r")


@pytest.mark.parametrize("n_groups", [2, 8, 9, 70])
def test_the_barrier_is_a_tree_with_bounded_fan_in(n_groups):
    graph = epoch_of(n_groups, slices=1).graph
    tree = {key: task for key, task in graph.items() if key[0] == "llw-average-e3-r0"}
    assert max(len(task.dependencies) for task in tree.values()) <= FAN_IN
    root = ("llw-average-e3-r0", "t")
    reached, todo = set(), [root]
    while todo:
        key = todo.pop()
        if key[0] == "llw-sum-e3-r0":
            reached.add(key[-1])
        elif key in tree:
            todo += tree[key].dependencies
    assert reached == set(range(n_groups))


@given(
    chunks=st.lists(st.integers(0, 9), min_size=1, max_size=6),
    slices=st.integers(1, 9),
)
def test_every_group_visits_every_chunk_and_waits_for_the_barrier(chunks, slices):
    graph = epoch_of(chunks=tuple(chunks), slices=slices).graph
    barriers = {key for key in graph if key[0].startswith("llw-average") and len(key) == 2}
    assert len(barriers) >= slices
    for g in range(3):
        visits = [task for key, task in graph.items() if is_visit(key) and key[2] == g]
        seen = [(task.kwargs["visit"].step, task.kwargs["visit"].part) for task in visits]
        parts = visits[0].kwargs["visit"].slices
        assert sorted(seen) == [(c, p) for c in range(len(chunks)) for p in range(parts)]
    for key, task in graph.items():
        if is_visit(key) and round_of(key) > 0 and key[3] == 0:
            assert (f"llw-average-e3-r{round_of(key) - 1}", "t") in task.dependencies


def test_columns_are_centred_after_every_epoch():
    run = Run(Toy(dtype="float32", csr=True), Averaging)
    for epoch in range(3):
        run.epoch(epoch)
        np.testing.assert_allclose(run.W.sum(axis=1), 0, atol=1e-4)


def test_averaging_more_often_comes_further_in_an_epoch():
    rarely, often = (Run(Toy(), Averaging, slices=slices) for slices in (1, 20))
    for run in (rarely, often):
        for epoch in range(10):
            run.epoch(epoch)
    assert often.dual > rarely.dual


@pytest.mark.parametrize("slices", [1, 7, 20])
def test_going_beyond_the_mean_never_lowers_the_dual_of_an_epoch(slices):
    run = Run(Toy(), Averaging, slices=slices, patience=255)
    before = run.dual
    for epoch in range(8):
        report = run.epoch(epoch)
        assert report.gain >= -1e-12
        assert run.dual == pytest.approx(before + report.gain, rel=1e-12, abs=1e-9)
        before = run.dual
