"""Weston-Watkins by rounds: the shape of the graph, the same bytes everywhere, the optimum."""

import pickle
from collections import Counter
from itertools import combinations, combinations_with_replacement

import dask
import dask.threaded
import numpy as np
import pytest
import scipy.sparse as sp
from distributed import Client
from hypothesis import given
from hypothesis import strategies as st
from reference import solve

from dask_mcsvm.formulations import WestonWatkins
from dask_mcsvm.graphs._visits import GroupWeights, Side, Tally
from dask_mcsvm.graphs.regroup import regroup
from dask_mcsvm.graphs.rounds import EVERYTHING, ww_epoch, ww_refresh, ww_start

GROUPS = ((0, 3), (1, 5), (2, 4))


def block_keys(counts):
    return tuple(tuple(("group-rows", "t", g, p) for p in range(n)) for g, n in enumerate(counts))


def epoch_of(counts, **options):
    """An epoch's graph for groups with so many blocks, and the keys it starts from."""
    blocks = block_keys(counts)
    groups = tuple((g,) for g in range(len(counts)))
    _, state = ww_start(blocks, groups, n_features=3, dtype="float32", tau=1.0, run="t")
    options = {"tau": 1.0, "seed": 0, "epoch": 7, "run": "t"} | options
    return ww_epoch(state, blocks, **options), state, blocks


def visits(graph):
    """(part, round, a, b, step) of each visit."""
    return [key[2:] for key in graph if key[0].startswith(("ww-own", "ww-pair"))]


# -- structure, nothing runs -----------------------------------------------------------------------


@given(n_groups=st.integers(1, 9), slices=st.integers(1, 3), seed=st.integers(0, 5))
def test_every_pair_is_visited_once_and_no_group_twice_in_a_round(n_groups, slices, seed):
    epoch, _, _ = epoch_of([1] * n_groups, slices=slices, seed=seed)
    expected = list(combinations_with_replacement(range(n_groups), 2))
    for part in range(slices):
        mine = [v for v in visits(epoch.graph) if v[0] == part]
        assert sorted((a, b) for _, _, a, b, _ in mine) == expected
        busy = Counter((r, g) for _, r, a, b, _ in mine for g in {a, b})
        assert set(busy.values()) == {1}


@given(counts=st.lists(st.integers(1, 3), min_size=1, max_size=6), epoch=st.integers(0, 99))
def test_the_number_of_tasks_does_not_depend_on_the_epoch(counts, epoch):
    own, steps = sum(counts), sum(map(max, combinations(counts, 2)))
    graph = epoch_of(counts, epoch=epoch)[0].graph
    # A visit and the picks of its weights and duals, a tally per group, the report.
    assert len(graph) == 3 * own + 4 * steps + len(counts) + 1


def test_keys_read_well_on_the_dashboard():
    epoch, _, _ = epoch_of([1, 1, 1])
    names = {key[0] for key in epoch.graph}
    assert names == {
        "ww-own-7", "ww-pair-7", "ww-weights-7", "ww-duals-7", "ww-tally-7", "ww-report-7",
    }  # fmt: skip
    assert epoch.report == ("ww-report-7", "t")
    assert dask.utils.key_split(("ww-pair-7", "t", 0, 1, 0, 1, 0)) == "ww-pair"


def test_two_runs_share_no_key():
    first, second = (epoch_of([1, 1], run=run)[0].graph for run in ("a", "b"))
    assert not set(first) & set(second)


@pytest.mark.parametrize("counts", [[1], [1, 1, 1], [2, 1, 3, 1]])
def test_the_graph_reads_only_the_state_before_and_the_rows(counts):
    epoch, state, blocks = epoch_of(counts, slices=2)
    outside = {
        key for task in epoch.graph.values() for key in task.dependencies if key not in epoch.graph
    }
    given = {*state.weights, *(k for keys in state.duals.values() for k in keys)}
    assert outside == given | {key for keys in blocks for key in keys}


def test_the_next_state_has_the_shape_of_the_last():
    epoch, state, _ = epoch_of([2, 1, 1], slices=2)
    assert len(epoch.state.weights) == len(state.weights)
    assert {p: len(k) for p, k in epoch.state.duals.items()} == {
        p: len(k) for p, k in state.duals.items()
    }
    assert all(key in epoch.graph for key in epoch.state.weights)
    assert all(key in epoch.graph for keys in epoch.state.duals.values() for key in keys)


def test_a_round_waits_for_the_round_before_by_its_weights_alone():
    graph = epoch_of([1] * 4)[0].graph
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
        return [v[1:4] for v in visits(epoch_of([1] * 6, **options)[0].graph)]

    assert rounds() == rounds()
    assert rounds(seed=1) != rounds(seed=2)
    assert rounds(epoch=1) != rounds(epoch=2)


# -- values ----------------------------------------------------------------------------------------


class Rounds:
    """A small problem solved by graphs, each epoch starting from the computed state."""

    def __init__(self, *, n=60, d=20, chunks=(25, 0, 35), groups=GROUPS, csr=False,
                 dtype="float64", n_blocks=1, zero_rows=0, tau=1.0, get=dask.get):  # fmt: skip
        rng = np.random.default_rng(0)
        self.k, self.groups, self.tau, self.get = sum(map(len, groups)), groups, tau, get
        self.y = np.sort(rng.integers(self.k, size=n))  # sorted, as sets on disk often are
        X = rng.normal(size=(self.k, d))[self.y] + rng.normal(size=(n, d))
        self.X = (X * (rng.random((n, d)) < 0.5)).astype(dtype)
        self.X[:zero_rows] = 0
        self.C = 0.25 * rng.choice([0.5, 1.0, 2.0], n)
        ends = np.cumsum(chunks)[:-1]
        rows = [sp.csr_array(x) if csr else x for x in np.split(self.X, ends)]
        plan = regroup(
            *([dask.delayed(piece) for piece in pieces]
              for pieces in (rows, np.split(self.y, ends), np.split(self.C, ends))),
            chunk_rows=chunks, groups=groups, tau=tau, dtype=dtype, n_blocks=n_blocks, run="t",
        )  # fmt: skip
        self.blocks = plan.blocks
        start, self.state = ww_start(
            plan.blocks, groups, n_features=d, dtype=dtype, tau=tau, run="t"
        )
        keys = [key for keys in plan.blocks for key in keys]
        self.values = self.computed(plan.graph | start, keys + self.keys_of(self.state))

    def keys_of(self, state):
        return [*state.weights, *(key for keys in state.duals.values() for key in keys)]

    def computed(self, graph, keys):
        return dict(zip(keys, self.get(graph, keys), strict=True))

    def advance(self, builder, **options):
        epoch = builder(self.state, self.blocks, tau=self.tau, run="t", **options)
        wanted = [*self.keys_of(epoch.state), epoch.report]
        done = self.computed(self.values | epoch.graph, wanted)
        kept = {key: self.values[key] for keys in self.blocks for key in keys}
        self.values, self.state = kept | done, epoch.state
        return self.values.pop(epoch.report)

    def epoch(self, number, **options):
        return self.advance(ww_epoch, epoch=number, seed=3, **options)

    @property
    def svm(self):
        return WestonWatkins(self.k, self.C)

    @property
    def Z(self):
        return np.hstack([self.X.astype(float), np.full((self.y.size, 1), self.tau)])

    @property
    def alpha(self):
        """(n, k) in the order of the rows of X."""
        alpha = np.full((self.y.size, self.k), np.nan)
        for (a, b), keys in self.state.duals.items():
            for step, key in enumerate(keys):
                held = self.values[key]
                sides = [(a, b, held)] if a == b else [(a, b, held.ab), (b, a, held.ba)]
                for own, other, side in sides:
                    if step < len(self.blocks[own]):
                        ids = self.values[self.blocks[own][step]].ids
                        alpha[np.ix_(ids, self.groups[other])] = side.alpha
        return alpha

    @property
    def W(self):
        W = np.empty((self.X.shape[1] + 1, self.k))
        for group, key in zip(self.groups, self.state.weights, strict=True):
            W[:, group] = self.values[key].W
        return W

    @property
    def dual(self):
        return self.svm.dual(self.alpha, self.Z, self.y)

    def bytes(self):
        values = (self.values[key] for key in self.keys_of(self.state))
        return [array.tobytes() for value in values for array in flat(value)]


def flat(value):
    if isinstance(value, np.ndarray):
        return [value]
    return [a for v in value for a in flat(v)] if isinstance(value, tuple) else []


@pytest.mark.parametrize("n_blocks", [1, (1, 2, 3)], ids=["one-block", "chains"])
def test_epochs_reach_the_reference_optimum(n_blocks):
    run = Rounds(n_blocks=n_blocks, zero_rows=2, tau=0.0)
    _, best = solve("weston_watkins", run.Z, run.y, run.C, run.k)
    for epoch in range(300):
        patience = EVERYTHING if epoch % 10 == 9 else 3
        report = run.epoch(epoch, passes=3, patience=patience)
        if patience == EVERYTHING and report.violation < 1e-8:
            break
    assert run.dual == pytest.approx(best, rel=1e-8)
    assert run.svm.feasible(run.alpha, run.y)
    assert run.svm.gap(run.alpha, run.Z, run.y) <= 1e-6 * best


@pytest.mark.parametrize(("csr", "dtype"), [(False, "float64"), (True, "float32")])
@pytest.mark.parametrize("slices", [1, 4])
def test_the_report_is_the_rise_of_the_dual_and_w_stays_w_of_alpha(csr, dtype, slices):
    run = Rounds(csr=csr, dtype=dtype)
    eps = 1e-9 if dtype == "float64" else 1e-4
    before = run.dual
    for epoch in range(4):
        report = run.epoch(epoch, slices=slices, passes=2)
        assert report.gain == pytest.approx(run.dual - before, abs=eps * run.y.size)
        assert report.gain >= 0
        assert report.work > 0
        before = run.dual
        np.testing.assert_allclose(run.W, run.svm.weights(run.alpha, run.Z, run.y), atol=10 * eps)
    assert run.svm.feasible(run.alpha, run.y, atol=0.0)


def test_an_epoch_in_slices_visits_every_variable():
    whole, cut = Rounds(), Rounds()
    scores = whole.y.size * whole.k
    assert whole.epoch(0).work == scores
    assert cut.epoch(0, slices=5).work == scores


def test_the_same_bytes_on_the_synchronous_and_the_threaded_scheduler():
    runs = [Rounds(get=dask.get), Rounds(get=dask.threaded.get)]
    reports = [[run.epoch(e, passes=2, slices=2) for e in range(3)] for run in runs]
    assert runs[0].bytes() == runs[1].bytes()
    assert reports[0] == reports[1]


def test_the_same_bytes_on_a_cluster():
    options = {"csr": True, "dtype": "float32", "n_blocks": (1, 2, 1)}
    cluster = {"n_workers": 2, "threads_per_worker": 1, "processes": False}
    with Client(**cluster, dashboard_address=None) as client:
        runs = [Rounds(**options), Rounds(**options, get=client.get)]
        for epoch in range(2):
            first, second = (run.epoch(epoch, slices=2) for run in runs)
            assert first == second
        assert runs[0].bytes() == runs[1].bytes()


def test_tasks_change_nothing_they_were_given():
    run = Rounds()
    run.epoch(0)
    before, state = run.bytes(), run.state
    values = dict(run.values)
    run.epoch(1)
    run.state, run.values = state, values
    assert run.bytes() == before


def test_a_refresh_makes_w_from_alpha_and_reports_the_dual():
    run = Rounds(dtype="float32", csr=True, n_blocks=(1, 2, 1), zero_rows=1, tau=0.0)
    for epoch in range(3):
        run.epoch(epoch)
    alpha = run.svm.repair(run.alpha, run.y)
    report = run.advance(ww_refresh, epoch=3)
    assert report.gain == pytest.approx(run.svm.dual(alpha, run.Z, run.y), rel=1e-12)
    expected = run.svm.weights(alpha, run.Z, run.y)
    np.testing.assert_allclose(run.W, expected, rtol=1e-6, atol=1e-7)
    assert {run.values[key].W.dtype for key in run.state.weights} == {np.dtype("float32")}
    run.epoch(4)  # and on it goes from there


@pytest.mark.parametrize(
    "groups",
    [
        ((0, 1, 2, 3, 4, 5),),
        ((0,), (1, 2, 3, 4, 5)),
        tuple((m,) for m in range(6)),
        ((0, 1), (2, 3), (4, 5, 6, 7)),
    ],
    ids=["one", "two", "single-classes", "three"],
)
def test_any_grouping_raises_the_dual(groups):
    run = Rounds(groups=groups, n=30, chunks=(0, 30))
    before = run.dual
    report = run.epoch(0)
    assert run.dual == pytest.approx(before + report.gain, abs=1e-9)
    assert run.dual > before


def test_resting_saves_work_and_a_full_epoch_visits_everything():
    run = Rounds()
    for epoch in range(30):
        report = run.epoch(epoch)
    scores = run.y.size * run.k
    assert report.work < scores
    assert run.epoch(30, patience=EVERYTHING).work == scores


# -- values on their way ---------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.9])
def test_only_nonzeros_of_a_mostly_empty_array_travel(dtype, share):
    rng = np.random.default_rng(0)
    W = np.where(rng.random((301, 7)) < share, rng.normal(size=(301, 7)), 0.0).astype(dtype)
    W[0, 0] = -0.0  # has bits, so that a copy has the same bytes
    rest = rng.integers(255, size=W.shape).astype(np.uint8)
    for value in (GroupWeights(W, Tally(1.0, 2.0, 3)), Side(W, rest)):
        sent = pickle.dumps(value, protocol=5)
        back = pickle.loads(sent)
        assert type(back) is type(value)
        assert [a.tobytes() for a in flat(back)] == [a.tobytes() for a in flat(value)]
        assert back[0].dtype == W.dtype
        assert back[0].shape == W.shape
        if share < 0.5:
            raw = W.nbytes + (rest.nbytes if isinstance(value, Side) else 0)
            assert len(sent) < raw - 0.7 * W.nbytes
    assert pickle.loads(pickle.dumps(GroupWeights(W, Tally(1.0, 2.0, 3)))).tally == (1.0, 2.0, 3)


def test_a_layout_other_than_rows_is_kept_by_value():
    W = np.asfortranarray(np.diag(np.arange(1.0, 9.0)))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(GroupWeights(W, Tally()))).W, W)
