"""Shards of rows: exact for all four formulations, pure, repeatable, and a graph one can read."""

import pickle

import dask.threaded
import numpy as np
import pytest
from dask.local import get_sync
from dask.task_spec import GraphNode
from graphs.runs import Toy, kinds_of, round_of
from reference import solve

from dask_mcsvm.formulations import FORMULATIONS
from dask_mcsvm.graphs.shards import Shards
from dask_mcsvm.solvers.kernels.dual_variables import positions
from dask_mcsvm.solvers.sdm.shard import Shard
from dask_mcsvm.solvers.sdm.shard_tasks import (
    Weights,
    combine_slices,
    draw_steps,
    move_weights,
    open_lane,
    report_tally,
    settle_shard,
    solve_rows,
)
from dask_mcsvm.solvers.sdm.single_block import solve_epoch

every_formulation = pytest.mark.parametrize("formulation", list(FORMULATIONS))
# Sums in float32 are as they come, whatever the loss: one loss shows it, and compiles for it.
in_either_float = pytest.mark.parametrize(
    ("formulation", "dtype"),
    [(name, "float32" if name == "crammer_singer" else "float64") for name in FORMULATIONS],
)
MANY = dict(n=90, d=12, k=70, chunks=(40, 50))
# A combination of loss, rows, alpha and float type is one more kernel to compile: the tests keep to
# few classes of dense float64 and of CSR rows, and to many classes of CSR rows in float64.


def solver_of(toy, formulation, *, lanes=2, slices=4, rho=0.3, run="t"):
    return Shards(toy.rows(run), formulation, lanes, slices, 3, rho if toy.tau else 1.0, run)


class Steps:
    """Values of the state of a fit by shards, moved on stage by stage."""

    def __init__(self, toy, formulation, *, get=get_sync, **options):
        self.toy, self.solver, self.get = toy, solver_of(toy, formulation, **options), get
        self.data = self.computed(self.solver.data, self.solver.held)
        self.values, self.state = {}, {}
        self.report = self.advance(self.solver.start())

    def computed(self, graph, keys):
        return dict(zip(keys, self.get(graph, list(keys)), strict=True))

    def advance(self, stage):
        keys = [*stage.state.values(), stage.report]
        done = self.computed(self.data | self.values | stage.graph, keys)
        report = done.pop(stage.report)
        self.state, self.values = stage.state, done
        return report

    def epoch(self, number):
        return self.advance(self.solver.epoch(self.state, number))

    def certify(self, number):
        return self.advance(self.solver.certify(self.state, number))

    def block(self, name):
        return self.values[self.state[name]]

    def until(self, gap, epochs):
        """Certificates after every tenth epoch, the last one within a relative gap."""
        bounds = []
        for epoch in range(epochs):
            self.epoch(epoch)
            if epoch % 10 == 9:
                bounds.append(self.certify(epoch))
                if bounds[-1].primal - bounds[-1].dual <= gap * bounds[-1].primal:
                    break
        return bounds


def bytes_of(run):
    """All of the state; lists of variables without their spare room, which nobody fills."""
    found = {}
    for name in run.state:
        arrays = run.block(name).arrays()
        if "alpha_start" in arrays:
            used = positions(arrays["alpha_start"], arrays["alpha_size"])
            for part in ("alpha_classes", "alpha_values"):
                arrays[part] = arrays[part][used]
        found |= {(name, part): array.tobytes() for part, array in arrays.items()}
    return found


def stages(formulation="crammer_singer", toy=None, **options):
    """The start, two epochs and a certificate; nothing runs."""
    solver = solver_of(toy or Toy(chunks=(20, 0, 25, 15)), formulation, **options)
    start = solver.start()
    first = solver.epoch(start.state, 0)
    second = solver.epoch(first.state, 1)
    return solver, start, first, second, solver.certify(second.state, 2)


def outside(stage):
    return {key for task in stage.graph.values() for key in task.dependencies} - set(stage.graph)


# -- structure, nothing runs -----------------------------------------------------------------------


@every_formulation
def test_tasks_have_names_that_read_well(formulation):
    _, start, first, second, proof = stages(formulation)
    short = FORMULATIONS[formulation].short_name
    assert {key[0] for key in start.graph} == {
        f"{short}-{name}"
        for name in ("start-zeros", "start", "start-columns", "start-weights", "start-report",
                     "start-lane")
    }  # fmt: skip
    for epoch, stage in enumerate((first, second)):
        assert kinds_of(stage.graph) == {
            f"{short}-{name}-e{epoch}"
            for name in ("draw", "lane", "solve", "combine", "settle", "move", "report")
        }
    assert {key[0] for key in proof.graph} == {
        f"{short}-{name}-e2"
        for name in ("certify-columns", "certify-weights", "certify-rows", "certified",
                     "certify-loss", "certify", "certify-report", "renew-lane")
    }  # fmt: skip


def test_a_stage_reads_the_rows_and_the_state_before_and_nothing_older():
    solver, start, first, second, proof = stages()
    assert outside(start) == set(solver.held)
    for before, stage in ((start, first), (first, second), (second, proof)):
        lanes = {key for name, key in before.state.items() if name.startswith("weights-")}
        unread = lanes if stage is proof else set()  # one W is as good as the others
        assert outside(stage) == set(before.state.values()) - unread | set(solver.held)
        assert stage.state.keys() == before.state.keys()
        assert set(stage.state.values()) <= set(stage.graph)
        assert stage.report in stage.graph


@pytest.mark.parametrize(("lanes", "slices"), [(1, 1), (2, 4), (3, 7), (4, 20)])
def test_an_epoch_has_as_many_tasks_as_its_plan_says(lanes, slices):
    solver, _, first, second, proof = stages(lanes=lanes, slices=slices)
    chunks = 4
    parts = max(1, -(-slices * lanes // chunks))
    steps = parts * -(-chunks // lanes)
    # Of each chunk draw, settle, and solve for each part of it; of each step combine; of each lane
    # what it begins with and ends with.
    tasks = 2 * chunks + parts * chunks + steps + 2 * lanes
    for stage in (first, second):
        assert len(stage.graph) == tasks + 1
        combines = [task for key, task in stage.graph.items() if "combine" in key[0]]
        assert max((len(task.dependencies) for task in combines), default=1) <= lanes
    assert steps >= slices
    assert solver.parts == parts
    assert len(proof.graph) == 4 * chunks + 3 + lanes * (lanes > 1)


def test_an_epoch_visits_every_part_of_every_chunk_once():
    """Each is told of all steps before it, and which of them visited its chunk."""
    _, _, first, _, _ = stages(lanes=3, slices=7)
    solves = {key: task for key, task in first.graph.items() if key[0].startswith("cs-solve")}
    for c in range(4):
        mine = {round_of(key): task for key, task in solves.items() if key[-1] == c}
        assert len(mine) == 6
        for turn, (step, task) in enumerate(mine.items(), 1):
            assert task.kwargs["turns"] == tuple(mine)[:turn]
            past = [key for key in task.dependencies if key[0].startswith("cs-combine")]
            assert sorted(map(round_of, past)) == list(range(step))


def test_a_lane_keeps_its_blocks_and_its_weights():
    """So that all it needs is where its last step was."""
    _, start, first, _, _ = stages(lanes=2, slices=4)
    blocks = {}
    for key, task in first.graph.items():
        if key[0].startswith("cs-solve"):
            (lane,) = (k for k in task.dependencies if k[0].startswith("cs-lane"))
            blocks.setdefault(lane[-1], set()).add(key[-1])
    assert blocks == {0: {0, 2}, 1: {1, 3}}
    for lane, name in enumerate(("weights", "weights-1")):
        task = first.graph[("cs-lane-e0", "t", lane)]
        assert task.dependencies == {start.state[name]}


def test_every_lane_begins_in_a_place_of_its_own():
    _, start, first, _, proof = stages(lanes=2, slices=4)
    assert [start.places[start.state[name]] for name in ("weights", "weights-1")] == [0, 1]
    assert [proof.places[proof.state[name]] for name in ("weights", "weights-1")] == [0, 1]
    assert not first.places


@in_either_float
def test_all_lanes_have_the_same_weights_after_every_epoch(formulation, dtype):
    run = Steps(Toy(chunks=(20, 25, 15), dtype=dtype, csr=True), formulation, lanes=2, slices=5)
    for epoch in range(4):
        run.epoch(epoch)
        one, two = run.block("weights"), run.block("weights-1")
        assert one.W.tobytes() == two.W.tobytes()
        assert pickle.dumps(one[1:]) == pickle.dumps(two[1:])


@every_formulation
@pytest.mark.parametrize("k", [6, 70], ids=["few", "many"])
@pytest.mark.parametrize("lanes", [1, 2])
def test_what_lies_beside_values_is_only_speed(formulation, k, lanes):
    """Values that were sent to another worker before every task give the same bytes."""
    toy = Toy(k=k, csr=k > 6, chunks=(20, 25, 15))
    found = []
    for get in (get_sync, forgetful):
        run = Steps(toy, formulation, lanes=lanes, slices=5, get=get)
        for epoch in range(3):
            run.epoch(epoch)
        found.append(bytes_of(run))
    assert found[0] == found[1]


def forgetful(graph, keys):
    """Run every task on copies, as if it were alone on a worker."""
    done = {key: value for key, value in graph.items() if not isinstance(value, GraphNode)}

    def value(key):
        if key not in done:
            known = {k: value(k) for k in graph[key].dependencies}
            done[key] = graph[key](pickle.loads(pickle.dumps(known)))
        return done[key]

    return [value(key) for key in keys]


def test_two_runs_share_no_key():
    def keys(run):
        solver, *found = stages(run=run)
        ours = {key for key in solver.data if isinstance(key, tuple)}
        return ours.union(*(stage.graph for stage in found))

    assert not keys("a") & keys("b")


# -- values ----------------------------------------------------------------------------------------


@every_formulation
@pytest.mark.parametrize(("csr", "tau"), [(False, 1.0), (True, 0.0)], ids=["dense", "csr"])
def test_epochs_reach_the_reference_optimum(formulation, csr, tau):
    toy = Toy(csr=csr, tau=tau, zero_rows=2 * csr)  # an empty chunk, chunks without some classes
    _, best = solve(formulation, toy.Z, toy.y, toy.C, toy.k)
    bounds = Steps(toy, formulation).until(1e-5, 400)
    for found in bounds:
        assert found.dual <= best * (1 + 1e-9)
        assert found.primal >= best * (1 - 1e-9)
    assert bounds[-1].primal - bounds[-1].dual <= 1e-5 * best


@every_formulation
def test_many_classes_keep_alpha_as_lists_and_reach_the_optimum(formulation):
    toy = Toy(**MANY, csr=True)
    run = Steps(toy, formulation)
    bounds = run.until(1e-3, 200)
    assert not isinstance(run.block("shard-0").alpha, np.ndarray)
    _, best = solve(formulation, toy.Z, toy.y, toy.C, toy.k)
    assert bounds[-1].primal - bounds[-1].dual <= 1e-3 * bounds[-1].primal
    for found in bounds:
        assert found.dual <= best * (1 + 1e-8) <= found.primal * (1 + 2e-8)


@every_formulation
@pytest.mark.parametrize("chunks", [(25, 0, 35), (60,)], ids=["chunks", "one chunk"])
@pytest.mark.parametrize("tau", [0.0, 1.0])
def test_gains_add_up_to_the_dual_and_raise_it_without_an_intercept(formulation, tau, chunks):
    run = Steps(Toy(zero_rows=1, tau=tau, chunks=chunks), formulation)
    dual = run.report.gain
    for epoch in range(5):
        report = run.epoch(epoch)
        assert report.gain >= 0 or tau > 0  # a soft intercept may overshoot
        dual += report.gain
        assert dual == pytest.approx(run.block("weights").dual, abs=1e-9)
        assert 0 < report.active <= 1
    bounds = run.certify(5)
    assert bounds.dual == pytest.approx(dual, rel=1e-9)
    # With every row seen at the same W, what an epoch reports of the gap is exact.
    assert bounds.dual + report_tally(run.block("weights"), 1).gap == pytest.approx(bounds.primal)


@every_formulation
@pytest.mark.parametrize("k", [6, 70], ids=["few", "many"])
def test_one_chunk_in_one_task_takes_the_steps_of_a_task_per_slice(formulation, k):
    """An empty second chunk makes the slices tasks; it has nothing to visit."""
    size = dict(n=60, k=k, csr=k > 6, tau=0.0, zero_rows=1)
    alone = Steps(Toy(chunks=(60,), **size), formulation, lanes=1, slices=4)
    beside = Steps(Toy(chunks=(60, 0), **size), formulation, lanes=1, slices=8)
    for epoch in range(4):
        one, other = alone.epoch(epoch), beside.epoch(epoch)
        assert one.work == other.work
        assert one.gain == pytest.approx(other.gain, abs=1e-9)
        assert one.gap == pytest.approx(other.gap)
        # A second visit right after the first moves its row by rounding or not at all, and the
        # row is preferred accordingly: both go on with the preferences of one of them.
        shard, mine = beside.block("shard-0"), alone.block("shard-0")
        beside.values[beside.state["shard-0"]] = shard._replace(preference=mine.preference)
    np.testing.assert_allclose(alone.block("weights").W, beside.block("weights").W, atol=1e-9)


@every_formulation
@pytest.mark.parametrize("k", [6, 70], ids=["few", "many"])
def test_a_task_moves_the_intercept_as_often_as_a_lane_alone(formulation, k):
    """A slice of 60 visits, ten moves: nine of them in the task, the last where it is combined."""
    toy = Toy(n=60, k=k, csr=k > 6, chunks=(60,))
    run = Steps(toy, formulation, lanes=1, slices=1)
    (rows,), how = run.data.values(), run.solver._how
    assert how.visits == 6
    shard, weights = solve_epoch(rows, run.block("shard-0"), run.block("weights"), how, (3, 0, 0))
    for epoch in range(1, 4):
        seed = (3, epoch, 0)
        alone, expected = solve_epoch(rows, shard, weights, how, seed)
        block = rows, shard, draw_steps(rows, shard, seed, 1), open_lane(weights)
        found = solve_rows(*block, [], how, turns=[0])
        past = [combine_slices([found], blocks=[0], how=how, step=0, steps=1)]
        shard = settle_shard(*block, past, how, turns=[0])
        weights = move_weights(block[-1], past)
        for name in ("W", "own", "pull", "gaps", "tally"):
            one, other = getattr(weights, name), getattr(expected, name)
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9 * abs(weights.W).max())
        assert weights.dual == pytest.approx(expected.dual)
        np.testing.assert_allclose(shard.seen, alone.seen, rtol=1e-7, atol=1e-9)


@every_formulation
def test_the_first_weights_are_those_of_the_first_alpha(formulation):
    """Lee-Lin-Wahba starts at alpha = C, whose W is not zero."""
    run = Steps(Toy(zero_rows=1, tau=0.0), formulation)
    started = run.block("weights")
    bounds = run.certify(0)
    assert run.block("weights").W.tobytes() == started.W.tobytes()
    assert bounds.dual == run.report.gain == started.dual
    assert np.any(started.W) == (formulation == "lee_lin_wahba")


@pytest.mark.parametrize(("many", "dtype"), [(False, "float32"), (True, "float64")])
def test_a_state_read_back_is_the_same_to_the_last_bit(many, dtype):
    run = Steps(Toy(**(MANY if many else {}), dtype=dtype, csr=True), "crammer_singer", lanes=1)
    run.epoch(0)
    for name in run.state:
        block = run.block(name)
        again = type(block).from_arrays(block.arrays())
        assert type(block) is (Weights if name.startswith("weights") else Shard)
        assert pickle.dumps(again.arrays()) == pickle.dumps(block.arrays())
        assert type(again) is type(block)


@every_formulation
@pytest.mark.parametrize("chunks", [(40, 50), (90,)], ids=["chunks", "one chunk"])
@pytest.mark.parametrize("many", [False, True], ids=["few", "many"])
def test_tasks_leave_their_arguments_alone(formulation, many, chunks):
    toy = Toy(**(MANY if many else {"n": 90}) | {"chunks": chunks}, csr=many)
    run = Steps(toy, formulation)
    for stage in (run.solver.epoch(run.state, 0), run.solver.certify(run.state, 0)):
        before = pickle.dumps((run.data, run.values))
        keys = [*stage.graph]
        once = run.computed(run.data | run.values | stage.graph, keys)
        held = pickle.dumps(once)
        for key, task in stage.graph.items():
            task({k: (once | run.data | run.values)[k] for k in task.dependencies})
            assert pickle.dumps(once) == held, key
        assert pickle.dumps((run.data, run.values)) == before


@in_either_float
def test_threads_and_one_loop_give_the_same_bytes(formulation, dtype):
    def state_bytes(get):
        run = Steps(Toy(dtype=dtype, csr=True), formulation, get=get)
        for epoch in range(3):
            run.epoch(epoch)
        run.certify(3)
        return bytes_of(run)

    assert state_bytes(get_sync) == state_bytes(dask.threaded.get)
