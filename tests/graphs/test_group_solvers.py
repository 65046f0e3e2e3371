"""What the class-group solvers have in common: exact, pure, repeatable, never downhill."""

import pickle

import dask.threaded
import numpy as np
import pytest
from graphs.runs import NAMES, Run, Toy
from reference import solve

from dask_mcsvm.formulations import Tally
from dask_mcsvm.graphs.exchange import Exchange
from dask_mcsvm.graphs.independent_groups import Averaging, Classes
from dask_mcsvm.graphs.rounds import Rounds
from dask_mcsvm.solvers.groups.blocks import GroupWeights, RoundWeights, Side

KINDS = (Rounds, Averaging, Classes, Exchange)
every_solver = pytest.mark.parametrize("kind", KINDS)
# Both kinds of rows in float64, and either of them once in float32: each is one more compilation.
every_kind_of_rows = pytest.mark.parametrize(
    ("kind", "csr", "dtype"),
    [
        *((kind, csr, "float64") for kind in KINDS for csr in (False, True)),
        (Rounds, False, "float32"),
        (Averaging, True, "float32"),
        (Exchange, True, "float32"),
    ],
)


def stages(kind, **options):
    """The start, an epoch and a certificate of a solver; nothing runs."""
    solver = Toy().solver(kind, **options)
    start = solver.start()
    return solver, start, solver.epoch(start.state, 7), solver.certify(start.state, 7)


def outside(stage):
    return {key for task in stage.graph.values() for key in task.dependencies} - set(stage.graph)


# -- structure, nothing runs -----------------------------------------------------------------------


@every_solver
def test_a_stage_reads_the_data_and_the_state_before_and_holds_neither(kind):
    solver, start, epoch, certificate = stages(kind)
    assert outside(start) <= set(solver.held)
    assert outside(epoch) == set(start.state.values()) | set(solver.held)
    assert outside(certificate) == set(start.state.values()) | set(solver.held)
    assert set(solver.held) <= set(solver.data)
    for stage in (start, epoch, certificate):
        assert stage.report in stage.graph


@pytest.mark.parametrize("kind", [Averaging, Classes])
def test_every_group_begins_in_a_place_of_its_own(kind):
    solver, start, epoch, certificate = stages(kind)
    assert start.rows_everywhere
    for name in start.state:
        if name.startswith("duals"):
            assert start.places[start.state[name]] == int(name.split("-")[1])
    for key in start.places:
        assert start.graph[key].dependencies <= set(solver.held)
    assert sorted(set(start.places.values())) == list(range(len(solver.groups)))
    assert not epoch.places
    assert not certificate.places


@every_solver
def test_the_next_state_has_the_names_of_the_last(kind):
    solver, start, *later = stages(kind)
    for stage in later:
        assert stage.state.keys() == start.state.keys()
    assert {name.split("-")[0] for name in start.state} == set(solver.kinds)
    assert set(later[0].state.values()) <= set(later[0].graph)


@every_solver
def test_the_number_of_tasks_does_not_depend_on_the_epoch(kind):
    solver, start, _, _ = stages(kind)
    # The first steps of `exchange` are short, and there are more of them.
    sizes = {len(solver.epoch(start.state, epoch).graph) for epoch in range(1, 13)}
    assert len(sizes) == 1


@every_solver
def test_two_runs_share_no_key(kind):
    def keys(run):
        toy = Toy()
        solver = toy.solver(kind, run=run)
        start = solver.start()
        epoch, proof = solver.epoch(start.state, 0), solver.certify(start.state, 0)
        ours = {key for key in solver.data if isinstance(key, tuple)}
        return ours | set(start.graph) | set(epoch.graph) | set(proof.graph)

    assert not keys("a") & keys("b")


@every_solver
def test_no_task_holds_the_weights_of_more_than_two_groups(kind):
    _, start, epoch, certificate = stages(kind, groups=tuple((m,) for m in range(6)))
    for stage in (epoch, certificate):
        held = {key for key in {*stage.graph, *start.state.values()} if "weights" in str(key[0])}
        most = max(len(held & task.dependencies) for task in stage.graph.values())
        assert most <= (2 if kind is Rounds else 1)


# -- values ----------------------------------------------------------------------------------------


@every_solver
@pytest.mark.parametrize(("csr", "tau"), [(False, 1.0), (True, 0.0)], ids=["dense", "csr"])
def test_epochs_reach_the_reference_optimum(kind, csr, tau):
    toy = Toy(csr=csr, tau=tau, zero_rows=2 * csr)
    run = Run(toy, kind, **({} if kind is Rounds else {"passes": 3}))
    _, best = solve(NAMES[kind], toy.Z, toy.y, toy.C, toy.k)
    for epoch in range(300):
        run.epoch(epoch)
        if epoch % 20 == 19:
            bounds = run.certify(epoch)
            if bounds.primal - bounds.dual <= 2e-5 * best:
                break
    assert bounds.primal - bounds.dual <= 2e-5 * best
    assert bounds.dual <= best * (1 + 1e-9) <= bounds.primal * (1 + 1e-8)
    assert bounds.dual == pytest.approx(best, rel=1e-6)


@every_kind_of_rows
def test_the_dual_never_falls_and_w_stays_w_of_alpha(kind, csr, dtype):
    toy = Toy(csr=csr, dtype=dtype, zero_rows=1, tau=0.0 if csr else 1.0)
    run = Run(toy, kind)
    eps = 1e-9 if dtype == "float64" else 1e-4
    before = run.dual
    assert run.report.gain == pytest.approx(before, abs=eps * toy.n)
    for epoch in range(5):
        report = run.epoch(epoch)
        assert report.gain == pytest.approx(run.dual - before, abs=eps * toy.n)
        assert report.gain >= 0
        assert report.work > 0
        before = run.dual
        expected = run.svm.weights(run.alpha, toy.Z, toy.y)
        np.testing.assert_allclose(run.W, expected, atol=10 * eps)
    # Where variables of a row have to sum to zero, they do but for rounding.
    slack = eps / 100 if kind is Exchange else 0.0
    assert run.svm.feasible(run.alpha, toy.y, atol=slack)


@every_kind_of_rows
def test_a_certificate_makes_w_from_alpha_and_bounds_the_optimum(kind, csr, dtype):
    toy = Toy(csr=csr, dtype=dtype, zero_rows=1, tau=0.0)
    run = Run(toy, kind)
    for epoch in range(3):
        run.epoch(epoch)
    alpha = run.svm.repair(run.alpha, toy.y)
    bounds = run.certify(3)
    expected = run.svm.weights(alpha, toy.Z, toy.y)
    assert bounds.dual == pytest.approx(run.svm.dual(alpha, toy.Z, toy.y), rel=1e-12)
    np.testing.assert_allclose(run.W, expected, rtol=1e-6, atol=1e-7)
    W = run.W.astype(np.float64)
    if kind is Averaging:  # its primal demands columns that sum to zero, float32 rounds them
        W -= W.mean(axis=1, keepdims=True)
    assert bounds.primal == pytest.approx(run.svm.primal(W, toy.Z, toy.y), rel=1e-12)
    assert {run.block(name).W.dtype for _, name in run.solver.weights(run.state)} == {
        np.dtype(dtype)
    }
    run.epoch(4)  # and on it goes from there


@every_solver
def test_the_same_bytes_on_the_synchronous_and_the_threaded_scheduler(kind):
    runs = [Run(Toy(), kind), Run(Toy(), kind, get=dask.threaded.get)]
    for epoch in range(3):
        first, second = (run.epoch(epoch) for run in runs)
        assert first._replace(gap=0.0) == second._replace(gap=0.0)
    assert runs[0].certify(3) == runs[1].certify(3)
    assert runs[0].bytes() == runs[1].bytes()


@every_solver
def test_tasks_change_nothing_they_were_given(kind):
    run = Run(Toy(), kind)
    run.epoch(0)
    before, data = run.bytes(), pickle.dumps(run.data)
    state, values = run.state, dict(run.values)
    run.epoch(1)
    run.state, run.values = state, values
    run.certify(1)
    run.state, run.values = state, values
    assert run.bytes() == before
    assert pickle.dumps(run.data) == data


@every_solver
def test_a_state_survives_its_arrays_to_the_last_bit(kind):
    dtype = "float32" if kind is Averaging else "float64"
    run = Run(Toy(dtype=dtype, csr=True), kind)
    run.epoch(0)
    kept = {}
    for name, key in run.state.items():
        block, made = run.values[key], run.solver.kinds[name.split("-")[0]]
        kept[key] = made.from_arrays(block.arrays())
        assert type(kept[key]) is type(block)
    other = Run(Toy(dtype=dtype, csr=True), kind)
    other.state, other.values = run.state, kept
    assert other.bytes() == run.bytes()
    for moved in (run, other):
        moved.epoch(1)
    assert other.bytes() == run.bytes()


@every_solver
@pytest.mark.parametrize(
    "groups",
    [((0, 1, 2, 3, 4, 5),), ((0,), (1, 2, 3, 4, 5)), tuple((m,) for m in range(6))],
    ids=["one", "two", "single-classes"],
)
def test_any_grouping_raises_the_dual(kind, groups):
    run = Run(Toy(n=30, chunks=(0, 30)), kind, groups=groups)
    before = run.dual
    report = run.epoch(0)
    assert run.dual == pytest.approx(before + report.gain, abs=1e-9)
    assert run.dual > before


@every_solver
def test_the_seed_and_the_epoch_decide_the_order(kind):
    def after(seed, epoch):
        run = Run(Toy(), kind)
        object.__setattr__(run.solver, "seed", (seed,))
        run.epoch(epoch)
        return run.bytes()

    assert after(1, 0) == after(1, 0)
    assert after(1, 0) != after(2, 0)
    assert after(1, 0) != after(1, 1)


# -- values on their way ---------------------------------------------------------------------------


def flat(value):
    if isinstance(value, np.ndarray):
        return [value]
    return [a for v in value for a in flat(v)] if isinstance(value, tuple) else []


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.9])
def test_only_nonzeros_of_a_mostly_empty_array_travel(dtype, share):
    rng = np.random.default_rng(0)
    W = np.where(rng.random((301, 7)) < share, rng.normal(size=(301, 7)), 0.0).astype(dtype)
    W[0, 0] = -0.0  # has bits, so that a copy has the same bytes
    rest = rng.integers(255, size=W.shape).astype(np.uint8)
    side = Side(W, rest)
    tally = Tally(1.0, 2.0, 3)
    for value in (GroupWeights(W, tally), RoundWeights(W, tally, np.ones(7), ()), side):
        sent = pickle.dumps(value, protocol=5)
        back = pickle.loads(sent)
        assert type(back) is type(value)
        assert [a.tobytes() for a in flat(back)] == [a.tobytes() for a in flat(value)]
        assert [a.dtype for a in flat(back)] == [a.dtype for a in flat(value)]
        if share < 0.5:
            assert len(sent) < sum(a.nbytes for a in flat(value)) - 0.7 * W.nbytes
    assert pickle.loads(pickle.dumps(GroupWeights(W, Tally(1.0, 2.0, 3)))).tally[:3] == (1, 2, 3)


def test_a_layout_other_than_rows_is_kept_by_value():
    W = np.asfortranarray(np.diag(np.arange(1.0, 9.0)))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(GroupWeights(W, Tally()))).W, W)
