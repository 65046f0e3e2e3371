"""Rounds of Weston-Watkins: who meets whom and who waits for whom (values: test_group_solvers)."""

from collections import Counter
from itertools import combinations

import dask
import numpy as np
import pytest
from distributed import Client
from graphs.runs import GROUPS, Run, Toy, round_of
from hypothesis import given
from hypothesis import strategies as st
from reference import solve

from dask_mcsvm.graphs.rounds import Rounds
from dask_mcsvm.solvers.groups import pairs


def epoch_of(n_groups, *, n_blocks=1, epoch=7, seed=0, **options):
    """An epoch's graph for groups of one class each."""
    toy = Toy(n=2 * n_groups, k=n_groups, chunks=(n_groups, 0, n_groups))
    groups = tuple((g,) for g in range(n_groups))
    options = {"slices": 1} | options
    solver = Rounds(toy.rows(), groups, (seed,), "t", n_blocks=n_blocks, **options)
    return solver.epoch(solver.start().state, epoch)


def visits(graph):
    """(round, a, b, step) of each visit, rounds counted through the epoch."""
    return [(round_of(key), *key[2:]) for key in graph if key[0].startswith("ww-pair")]


@given(n_groups=st.integers(2, 9), slices=st.integers(1, 3), seed=st.integers(0, 5))
def test_every_pair_meets_once_and_no_group_twice_in_a_round(n_groups, slices, seed):
    epoch = epoch_of(n_groups, slices=slices, seed=seed)
    expected = list(combinations(range(n_groups), 2))
    found = visits(epoch.graph)
    rounds = 1 + max(r for r, *_ in found)
    for part in range(slices):
        mine = [v for v in found if part == v[0] * slices // rounds]
        assert sorted((a, b) for _, a, b, _ in mine) == expected
        busy = Counter((r, g) for r, a, b, _ in mine for g in {a, b})
        assert set(busy.values()) == {1}


@given(counts=st.lists(st.integers(1, 3), min_size=2, max_size=6))
def test_blocks_of_rows_make_a_visit_a_chain(counts):
    steps = sum(map(max, combinations(counts, 2)))
    graph = epoch_of(len(counts), n_blocks=tuple(counts)).graph
    pairs, rounds = len(list(combinations(counts, 2))), len({v[0] for v in visits(graph)})
    of_last = sum(r == rounds - 1 and step == 0 for r, _, _, step in visits(graph))
    # A visit and the picks of its weights and duals; a tally per pair and a barrier per round but
    # the last, which the report ends, after a tally per group.
    barriers = pairs - of_last + rounds - 1
    assert len(graph) == 4 * steps + barriers + len(counts) + 1


def test_keys_read_well_on_the_dashboard():
    epoch = epoch_of(3)
    names = {key[0] for key in epoch.graph}
    assert names == {
        *(f"ww-{name}-e7-r{r}" for name in ("pair", "weights", "duals") for r in range(3)),
        "ww-met-e7-r0", "ww-round-e7-r0", "ww-met-e7-r1", "ww-round-e7-r1",
        "ww-report-e7-part", "ww-report-e7",
    }  # fmt: skip
    assert dask.utils.key_split(("ww-pair-e7-r1", "t", 0, 1, 0)) == "ww-pair"
    assert dask.utils.key_split(("ww-round-e7-r1", "t")) == "ww-round"


@pytest.mark.parametrize("slices", [1, 2])
def test_a_round_waits_for_the_barrier_of_the_round_before(slices):
    graph = epoch_of(4, slices=slices).graph
    at = {(r, g): (a, b) for r, a, b, _ in visits(graph) for g in (a, b)}
    for key, task in graph.items():
        if not key[0].startswith("ww-pair"):
            continue
        number = round_of(key)
        barriers = {k[0] for k in task.dependencies if k[0].startswith("ww-round")}
        assert barriers == ({f"ww-round-e7-r{number - 1}"} if number else set())
        if number:
            weights = [k for k in task.dependencies if k[0].startswith("ww-weights")]
            came_from = {next(iter(graph[k].dependencies)) for k in weights}
            assert {round_of(k) for k in came_from} == {number - 1}
            assert {k[2:4] for k in came_from} == {at[number - 1, g] for g in key[2:4]}
    for number in range(max(r for r, _ in at)):
        met = graph[f"ww-round-e7-r{number}", "t"].dependencies
        assert {key[0] for key in met} == {f"ww-met-e7-r{number}"}
        assert {key[2:] for key in met} == {at[number, g] for g in range(4)}


def test_one_group_meets_itself():
    toy = Toy(n=12, k=3, chunks=(5, 7))
    solver = toy.solver(Rounds, groups=((0, 1, 2),), slices=1)
    epoch = solver.epoch(solver.start().state, 0)
    assert visits(epoch.graph) == [(0, 0, 0)]


def test_an_epoch_of_its_own_order_and_the_seed_decides():
    def rounds(**options):
        return [v[:3] for v in visits(epoch_of(6, **options).graph)]

    assert rounds() == rounds()
    assert rounds(seed=1) != rounds(seed=2)
    assert rounds(epoch=1) != rounds(epoch=2)


@pytest.mark.parametrize("n_blocks", [2, (1, 2, 3)])
def test_rows_in_several_blocks_solve_the_same_problem(n_blocks):
    runs = [Run(Toy(), Rounds, n_blocks=blocks) for blocks in (1, n_blocks)]
    for run in runs:
        for epoch in range(60):
            run.epoch(epoch)
    first, second = (run.certify(60) for run in runs)
    assert first.dual == pytest.approx(second.dual, rel=1e-4)
    assert first.primal == pytest.approx(second.primal, rel=2e-3)


@pytest.mark.parametrize("slices", [1, 5])
def test_a_recall_visits_every_row_with_every_group_once(slices):
    toy = Toy()
    run = Run(toy, Rounds, slices=slices, recall=3)
    counted = [run.epoch(epoch).work for epoch in range(4)]
    assert counted[0] == counted[3] == 2 * 4 * toy.n  # two meetings, classes of two groups each


def test_rows_that_gain_little_are_visited_less_often():
    run = Run(Toy(), Rounds)
    for epoch in range(30):
        run.epoch(epoch)
    duals = [run.block(name) for name in run.state if name.startswith("duals")]
    preference = np.concatenate([p for d in duals for p in (d.preference_a, d.preference_b)])
    assert preference.min() < 0.1 < 1 < preference.max()


@pytest.mark.parametrize("csr", [False, True], ids=["dense", "csr"])
def test_many_classes_are_kept_in_lists_that_grow(csr, monkeypatch):
    runs, gains = [], []
    for most in (64, 0):
        monkeypatch.setattr("dask_mcsvm.solvers.groups.sparse_duals.DENSE_CLASSES", most)
        runs.append(Run(Toy(csr=csr), Rounds))
        gains.append([runs[-1].epoch(epoch).gain for epoch in range(3)])
    assert gains[0] == pytest.approx(gains[1], rel=1e-6)
    np.testing.assert_allclose(runs[0].alpha, runs[1].alpha, atol=1e-6)


def test_intercepts_are_traded_softly_at_first_and_exactly_in_the_end():
    solver = Toy().solver(Rounds, rho=0.01)
    weights = [solver.theta(epoch) for epoch in range(400)]
    assert weights[0] == 0.01
    assert weights == sorted(weights)
    assert weights[-1] == 1.0


@pytest.mark.parametrize("groups", [GROUPS, ((0, 1, 2), (3, 4, 5))], ids=["three", "two"])
def test_a_soft_trade_counts_the_rise_of_the_dual_itself_and_reaches_the_optimum(groups):
    toy = Toy()
    run, before = Run(toy, Rounds, rho=0.05, groups=groups), 0.0
    for epoch in range(120):
        report = run.epoch(epoch)
        if epoch < 10:
            assert run.dual == pytest.approx(before + report.gain, abs=1e-9)
            before = run.dual
    _, best = solve("weston_watkins", toy.Z, toy.y, toy.C, toy.k)
    bounds = run.certify(120)
    assert bounds.dual == pytest.approx(best, rel=1e-5)
    assert bounds.primal == pytest.approx(best, rel=1e-3)


@pytest.mark.parametrize("csr", [False, True], ids=["dense", "csr"])
@pytest.mark.parametrize("side", [0, 1])
def test_one_row_of_a_visit_is_solved_exactly_over_the_classes_of_both_groups(
    csr, side, monkeypatch
):
    toy = Toy(csr=csr)
    run = Run(toy, Rounds, slices=1, groups=((0, 3, 5), (1, 2, 4)))
    run.epoch(0)
    alpha, W = run.alpha, run.svm.weights(run.alpha, toy.Z, toy.y)
    monkeypatch.setattr(pairs, "order_of", lambda table, meeting, s, turn: np.arange(s == side))
    run.epoch(1)
    i = run.data[run.solver.blocks[side][0]].ids[0]
    expected = alpha.copy()
    expected[i] = run.svm.example_step(i, alpha, W, toy.Z, toy.y)
    np.testing.assert_allclose(run.alpha, expected, atol=1e-9)


def test_the_same_bytes_on_a_cluster():
    toy, options = Toy(csr=True, dtype="float32"), {"n_blocks": (1, 2, 1), "slices": 2}
    cluster = {"n_workers": 2, "threads_per_worker": 1, "processes": False}
    with Client(**cluster, dashboard_address=None) as client:
        runs = [Run(toy, Rounds, **options), Run(toy, Rounds, get=client.get, **options)]
        for epoch in range(2):
            for run in runs:
                run.epoch(epoch)
        assert runs[0].bytes() == runs[1].bytes()
