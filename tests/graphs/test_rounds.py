"""Rounds of Weston-Watkins: who meets whom and who waits for whom (values: test_group_solvers)."""

from collections import Counter
from itertools import combinations, combinations_with_replacement

import dask
import pytest
from distributed import Client
from graphs.runs import Run, Toy
from hypothesis import given
from hypothesis import strategies as st

from dask_mcsvm.graphs.rounds import Rounds


def epoch_of(n_groups, *, n_blocks=1, epoch=7, seed=0, **options):
    """An epoch's graph for groups of one class each."""
    toy = Toy(n=2 * n_groups, k=n_groups, chunks=(n_groups, 0, n_groups))
    groups = tuple((g,) for g in range(n_groups))
    solver = Rounds(toy.rows(), groups, (seed,), "t", n_blocks=n_blocks, **options)
    return solver.epoch(solver.start().state, epoch)


def visits(graph):
    """(part, round, a, b, step) of each visit."""
    return [key[2:] for key in graph if key[0].startswith(("ww-own", "ww-pair"))]


@given(n_groups=st.integers(2, 9), slices=st.integers(1, 3), seed=st.integers(0, 5))
def test_every_pair_is_visited_once_and_no_group_twice_in_a_round(n_groups, slices, seed):
    epoch = epoch_of(n_groups, slices=slices, seed=seed)
    expected = list(combinations_with_replacement(range(n_groups), 2))
    for part in range(slices):
        mine = [v for v in visits(epoch.graph) if v[0] == part]
        assert sorted((a, b) for _, _, a, b, _ in mine) == expected
        busy = Counter((r, g) for _, r, a, b, _ in mine for g in {a, b})
        assert set(busy.values()) == {1}


@given(counts=st.lists(st.integers(1, 3), min_size=2, max_size=6))
def test_blocks_of_rows_make_a_visit_a_chain(counts):
    own, steps = sum(counts), sum(map(max, combinations(counts, 2)))
    graph = epoch_of(len(counts), n_blocks=tuple(counts)).graph
    # A visit and the picks of its weights and duals, a tally per group, the report.
    assert len(graph) == 3 * own + 4 * steps + len(counts) + 1


def test_keys_read_well_on_the_dashboard():
    epoch = epoch_of(3)
    names = {key[0] for key in epoch.graph}
    assert names == {
        "ww-own-7", "ww-pair-7", "ww-weights-7", "ww-duals-7", "ww-report-7-part", "ww-report-7",
    }  # fmt: skip
    assert dask.utils.key_split(("ww-pair-7", "t", 0, 1, 0, 1, 0)) == "ww-pair"


def test_a_round_waits_for_the_round_before_by_its_weights_alone():
    graph = epoch_of(4).graph
    at = {(r, g): (a, b) for _, r, a, b, _ in visits(graph) for g in {a, b}}
    for key, task in graph.items():
        if not key[0].startswith("ww-pair"):
            continue
        _, _, _, r, a, b, _ = key
        sources = {graph[k].dependencies for k in task.dependencies if k[0] == "ww-weights-7"}
        came_from = {next(iter(s))[3:6] for s in sources}
        assert came_from == {(r - 1, *at[r - 1, a]), (r - 1, *at[r - 1, b])}


def test_an_epoch_of_its_own_order_and_the_seed_decides():
    def rounds(**options):
        return [v[1:4] for v in visits(epoch_of(6, **options).graph)]

    assert rounds() == rounds()
    assert rounds(seed=1) != rounds(seed=2)
    assert rounds(epoch=1) != rounds(epoch=2)


@pytest.mark.parametrize("n_blocks", [2, (1, 2, 3)])
def test_rows_in_several_blocks_give_a_certificate_of_the_same_problem(n_blocks):
    one, several = (Run(Toy(), Rounds, n_blocks=nb, passes=3) for n_blocks in (1, n_blocks)
                    for nb in [n_blocks])  # fmt: skip
    for run in (one, several):
        for epoch in range(60):
            run.epoch(epoch)
    first, second = one.certify(60), several.certify(60)
    assert first.dual == pytest.approx(second.dual, rel=1e-5)
    assert first.primal == pytest.approx(second.primal, rel=1e-3)


def test_an_epoch_in_slices_visits_every_variable():
    toy = Toy()
    for slices in (1, 5):
        run = Run(toy, Rounds, slices=slices)
        assert run.epoch(0).work == toy.n * toy.k


def test_resting_saves_work_and_a_recall_visits_everything():
    toy = Toy()
    run = Run(toy, Rounds, recall=31)
    work = [run.epoch(epoch).work for epoch in range(31)]
    assert work[29] < toy.n * toy.k == work[30]


def test_the_same_bytes_on_a_cluster():
    toy, options = Toy(csr=True, dtype="float32"), {"n_blocks": (1, 2, 1), "slices": 2}
    cluster = {"n_workers": 2, "threads_per_worker": 1, "processes": False}
    with Client(**cluster, dashboard_address=None) as client:
        runs = [Run(toy, Rounds, **options), Run(toy, Rounds, get=client.get, **options)]
        for epoch in range(2):
            for run in runs:
                run.epoch(epoch)
        assert runs[0].bytes() == runs[1].bytes()
