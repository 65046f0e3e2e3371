"""Crammer-Singer by class groups: who waits for whom, and steps that are exact.

What it has in common with the other solvers by class groups is in test_group_solvers.
"""

import re

import dask
import dask.array
import numpy as np
import pytest
from dask.sizeof import sizeof
from distributed import Client
from graphs.runs import IN_ORDER, Run, Toy

from dask_mcsvm import LinearMCSVC
from dask_mcsvm.formulations.margins import MarginTable, margin_rows, toy_margins
from dask_mcsvm.graphs.exchange import FIRST_STEPS, Exchange
from dask_mcsvm.solvers.groups.exchange import (
    StepSeed,
    draw_rows,
    exchange,
    find_rivals,
    follow,
    take_piece,
)
from dask_mcsvm.solvers.kernels.dual_variables import alpha_to_dense
from dask_mcsvm.solvers.sdm.shard_tasks import How

ALL = 6  # rivals that a group may name, and that may join: every class there is


def epoch_of(toy=None, *, epoch=7, **options):
    """An epoch's graph; nothing runs."""
    solver = (toy or Toy()).solver(Exchange, **options)
    return solver.epoch(solver.start().state, epoch)


def names_of(keys):
    return {key[0] for key in keys}


# -- structure -------------------------------------------------------------------------------------


def test_keys_read_well_on_the_dashboard():
    epoch = epoch_of(Toy(chunks=(60,)), slices=2)
    steps = (f"cs-{what}-e7-b{b}" for b in (0, 1)
             for what in ("rows", "rivals", "decide", "common", "weights"))  # fmt: skip
    once = (f"cs-{what}-e7" for what in ("begin", "draw", "settle", "gap", "report"))
    assert names_of(epoch.graph) == {*steps, *once}
    assert dask.utils.key_split(("cs-decide-e3-b7", "t")) == "cs-decide"


def test_the_exchange_is_a_barrier_that_needs_all_groups_and_that_all_groups_need():
    graph = epoch_of(slices=3).graph
    groups = range(len(IN_ORDER))
    for b in range(3):
        barrier = (f"cs-decide-e7-b{b}", "t")
        needs = {key for key in graph[barrier].dependencies if key[0] == f"cs-rivals-e7-b{b}"}
        assert {key[2] for key in needs} == set(groups)
        for g in groups:
            assert barrier in graph[f"cs-weights-e7-b{b}", "t", g].dependencies
            if b:
                before = (f"cs-weights-e7-b{b - 1}", "t", g)
                assert before in graph[f"cs-rivals-e7-b{b}", "t", g].dependencies


def test_the_first_steps_of_a_fit_are_short():
    def shares(epoch):
        solver = Toy(chunks=(60,)).solver(Exchange, slices=3)
        return [share for _, share in solver._turns(epoch)]

    assert shares(0) == [*FIRST_STEPS, 1, 1, 1]
    assert shares(1) == [1, 1, 1]


def test_every_row_is_in_one_step_of_an_epoch():
    run = Run(Toy(chunks=(60,)), Exchange)
    (rows,), shard = run.data.values(), run.block("duals-0")
    drawn = draw_rows(rows, shard, seed=(1,), shares=np.ones(4))
    pieces = [take_piece(rows, shard, drawn, part=part) for part in range(4)]
    assert [piece.rows.y.size for piece in pieces] == [15, 15, 15, 15]
    assert sorted(np.concatenate([piece.rows.ids for piece in pieces])) == list(range(60))


def test_classes_of_a_group_follow_each_other():
    with pytest.raises(
        ValueError, match=r"^groups must hold each of the 6 classes once, in order\.$"
    ):
        Toy().solver(Exchange, groups=((0, 3), (1, 5), (2, 4)))


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"formulation": "ww"}, "solver='exchange' solves crammer_singer, not weston_watkins; use "
         "formulation='crammer_singer', or solver='auto'."),
        ({"solver_options": {"lanes": 2}}, "solver_options has 'lanes', which solver='exchange' "
         "does not know; use 'groups', 'slices', 'passes', 'save_every'."),
    ],
)  # fmt: skip
def test_what_it_does_not_solve_is_refused(given, sentence):
    toy = Toy()
    model = LinearMCSVC(solver="exchange", **given)
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        model.fit(dask.array.from_array(toy.X, chunks=(30, -1)), toy.y)


def test_explain_says_how_it_runs():
    toy = Toy()
    model = LinearMCSVC(solver="exchange", solver_options={"groups": 2, "slices": 3})
    said = model.explain(dask.array.from_array(toy.X, chunks=(30, -1)), toy.y)
    assert "solver       exchange: asked for by solver='exchange'" in said
    assert "schedule     2 groups of classes, 3 steps an epoch or more, saved every 10" in said


# -- a step ----------------------------------------------------------------------------------------


class OneStep:
    """The tasks of one step over all rows of a toy, from what a run came to."""

    def __init__(self, run, epoch=9):
        self.run, toy = run, run.toy
        (self.rows,), shard = run.data.values(), run.block("duals-0")
        self.common, self.tau = run.block("common"), toy.tau
        drawn = draw_rows(self.rows, shard, seed=(epoch,), shares=np.ones(1))
        self.piece = take_piece(self.rows, shard, drawn, part=0)
        self.groups = [np.array(group) for group in run.solver.groups]
        self.weights = [run.block(f"weights-{g}") for g in range(len(self.groups))]

    def rivals(self, count=ALL):
        return [
            find_rivals(W, self.piece, self.common, classes=classes, tau=self.tau, rivals=count)
            for W, classes in zip(self.weights, self.groups, strict=True)
        ]

    def exchange(self, found, *, rho=1.0, passes=1, fresh=ALL):
        how = How("crammer_singer", self.tau, rho, 1, 7)
        return exchange(
            self.piece, found, self.common, groups=self.groups, how=how,
            seed=StepSeed((3,), 9, 0, 0), passes=passes, fresh=fresh, span=self.run.toy.n,
        )  # fmt: skip

    def follow(self, done):
        return np.hstack([
            follow(W, self.piece, done, classes=classes, tau=self.tau).W
            for W, classes in zip(self.weights, self.groups, strict=True)
        ])  # fmt: skip


def after(epochs, toy, **options):
    run = Run(toy, Exchange, slices=2, **options)
    for epoch in range(epochs):
        run.epoch(epoch)
    return OneStep(run)


def specification(step, passes=1):
    """The same visits in NumPy: W is made anew before each, all classes are candidates."""
    toy, svm, alpha = step.run.toy, step.run.svm, step.run.alpha
    ids, rng = step.piece.rows.ids, StepSeed((3,), 9, 0, 0).rng()
    stirred = np.ones(ids.size, bool)
    for turn in range(passes + 1):
        rows = np.arange(ids.size) if turn == 0 else np.repeat(
            np.arange(ids.size), step.piece.often - 1)  # fmt: skip
        for t in rng.permutation(rows if turn < 2 else np.flatnonzero(stirred)):
            W = svm.weights(alpha, toy.Z, toy.y)
            new = svm.example_step(ids[t], alpha, W, toy.Z, toy.y)
            stirred[t] = not np.allclose(new, alpha[ids[t]], rtol=0, atol=1e-13)
            alpha[ids[t]] = new
    return alpha


@pytest.mark.parametrize(("csr", "tau"), [(True, 1.0), (False, 1.0), (True, 0.0)])
@pytest.mark.parametrize("passes", [1, 2])
def test_a_step_is_a_row_of_exact_visits(csr, tau, passes):
    """Scores follow what earlier visits of the step changed, of dense and of sparse rows."""
    step = after(2, Toy(chunks=(60,), csr=csr, tau=tau))
    done = step.exchange(step.rivals(), passes=passes)
    toy, expected = step.run.toy, specification(step, passes)
    found = np.zeros((toy.n, toy.k))
    found[step.piece.rows.ids[done.held.rows()], done.held.classes] = done.held.values
    seen = np.isin(np.arange(toy.n), step.piece.rows.ids)
    np.testing.assert_allclose(found[seen], expected[seen], atol=1e-9)
    W = step.run.svm.weights(expected, toy.Z, toy.y)
    np.testing.assert_allclose(step.follow(done), W, atol=1e-9)
    rise = step.run.svm.dual(expected, toy.Z, toy.y) - step.run.dual
    assert done.common.tally[0] - step.common.tally[0] == pytest.approx(rise, abs=1e-9)


@pytest.mark.parametrize("rho", [1.0, 0.03])
def test_any_few_rivals_are_an_exact_step_whose_rise_is_counted(rho):
    """With one rival of each group, of which two may join, W stays W(alpha), and b follows."""
    step = after(1, Toy(chunks=(60,), csr=True))
    done = step.exchange(step.rivals(1), rho=rho, fresh=2)
    toy, svm, alpha = step.run.toy, step.run.svm, step.run.alpha
    ids = step.piece.rows.ids
    alpha[ids] = 0
    alpha[ids[done.held.rows()], done.held.classes] = done.held.values
    assert svm.feasible(alpha, toy.y, atol=1e-12)
    W = svm.weights(alpha, toy.Z, toy.y)
    np.testing.assert_allclose(step.follow(done)[:-1], W[:-1], atol=1e-9)
    np.testing.assert_allclose(done.common.own, W[-1], atol=1e-9)
    rise = svm.dual(alpha, toy.Z, toy.y) - step.run.dual
    assert done.common.tally[0] - step.common.tally[0] == pytest.approx(rise, abs=1e-9)


@pytest.mark.parametrize("with_margins", [False, True])
def test_a_group_names_its_best_rivals_by_score_intercept_and_margin(with_margins):
    toy = Toy(chunks=(60,))
    step = after(3, toy)
    if with_margins:
        margins = toy_margins(MarginTable, 6)
        step.piece = step.piece._replace(rows=step.piece.rows._replace(margins=margins))
    common = step.common._replace(b=np.linspace(-1, 1, 6))
    rows, held = step.piece.rows, step.piece.held
    W = np.hstack([block.W for block in step.weights])[:-1]
    scores = rows.X @ W
    value = scores + toy.tau * common.b + margin_rows(rows.margins, rows.y, 6)
    value[held.rows(), held.classes] = value[np.arange(rows.y.size), rows.y] = -np.inf
    for block, classes in zip(step.weights, step.groups, strict=True):
        found = find_rivals(block, step.piece, common, classes=classes, tau=1.0, rivals=1)
        best = classes[np.argmax(value[:, classes], axis=1)]
        there = np.isfinite(value[:, classes].max(axis=1))
        np.testing.assert_array_equal(found.classes[:, 0], np.where(there, best, -1))
        at = np.flatnonzero(there)
        np.testing.assert_allclose(found.scores[at, 0], scores[at, best[at]], rtol=1e-12)
        here = np.isin(held.classes, classes)
        known = scores[held.rows()[here], held.classes[here]]
        np.testing.assert_allclose(found.known, known, rtol=1e-12)


# -- fits ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rho", [1.0, 0.05])
def test_dense_and_sparse_rows_take_the_same_steps(rho):
    runs = [Run(Toy(csr=csr), Exchange, rho=rho) for csr in (False, True)]
    first, second = (run.epoch(0) for run in runs)
    assert first.gain == pytest.approx(second.gain, rel=1e-9)
    assert first.gap == pytest.approx(second.gap, rel=1e-6)
    np.testing.assert_allclose(runs[0].alpha, runs[1].alpha, atol=1e-9)
    for epoch in range(1, 40):  # rounding decides between rivals of the same score
        for run in runs:
            run.epoch(epoch)
    first, second = (run.certify(40) for run in runs)
    assert first.dual == pytest.approx(second.dual, rel=1e-4)
    assert first.primal == pytest.approx(second.primal, rel=2e-3)


def test_the_estimate_comes_to_the_certified_gap():
    run = Run(Toy(), Exchange, rho=0.05)
    for epoch in range(40):
        report = run.epoch(epoch)
    bounds = run.certify(40)
    assert report.gap == pytest.approx(bounds.primal - bounds.dual, rel=0.5)
    assert bounds.primal - bounds.dual < 1e-2 * bounds.primal


def test_rows_that_gain_little_are_visited_less_often():
    run = Run(Toy(), Exchange)
    for epoch in range(30):
        report = run.epoch(epoch)
    assert report.active < 0.8
    assert report.work == round(report.active * 60) * 6


def test_no_task_is_given_or_returns_more_of_w_than_one_group():
    """Bytes of all that a task is given, its rows apart, and of what it returns."""
    toy = Toy(n=24, d=3000, k=6, chunks=(24,), csr=True)
    run = Run(toy, Exchange)
    group, whole = 3001 * 2 * 8, 3001 * 6 * 8
    for stage in (run.solver.epoch(run.state, 0), run.solver.certify(run.state, 0)):
        values = run.computed(run.data | run.values | stage.graph, list(stage.graph))
        values |= run.data | run.values
        for key, task in stage.graph.items():
            given = sum(held_bytes(values[name]) for name in task.dependencies)
            assert given < 2.2 * group, key  # the columns as they are and as they become
            assert held_bytes(values[key]) < 1.1 * group, key
        assert 2.2 * group < whole


def held_bytes(value):
    """Bytes of all arrays in a value but for those of rows."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, tuple) and not hasattr(value, "ids"):
        return sum(map(held_bytes, value))
    return sizeof(value) if isinstance(value, (int, float)) else 0


@pytest.mark.parametrize("csr", [False, True])
def test_the_same_bytes_on_a_cluster(csr):
    toy = Toy(csr=csr, dtype="float32")
    cluster = {"n_workers": 2, "threads_per_worker": 1, "processes": False}
    with Client(**cluster, dashboard_address=None) as client:
        runs = [Run(toy, Exchange, rho=0.1), Run(toy, Exchange, rho=0.1, get=client.get)]
        for epoch in range(2):
            for run in runs:
                run.epoch(epoch)
        assert runs[0].bytes() == runs[1].bytes()


def test_rows_without_features_begin_at_their_optimum():
    toy = Toy(chunks=(60,), tau=0.0, zero_rows=2)
    run = Run(toy, Exchange)
    assert run.report.gain == pytest.approx(toy.C[:2].sum())
    shard = run.block("duals-0")
    np.testing.assert_array_equal(
        alpha_to_dense(shard.alpha, 60, 6)[:2], run.svm.zero_row_alpha(toy.y)[:2]
    )
    before = shard.arrays()["alpha_values"][:4].copy()
    run.epoch(0)
    np.testing.assert_array_equal(run.alpha[:2][run.alpha[:2] != 0], before)
