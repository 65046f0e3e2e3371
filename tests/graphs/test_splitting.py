"""Splitting by chunks: exact, pure, and a path that no partition of the rows changes."""

from itertools import pairwise

import dask.threaded
import numpy as np
import pytest
from dask.local import get_sync
from graphs.runs import Run, Toy, kinds_of
from reference import solve

from dask_mcsvm.formulations import FORMULATIONS
from dask_mcsvm.graphs.splitting import (
    FAN_IN,
    ChunkedSplitting,
    Multipliers,
    join_small_chunks,
)
from dask_mcsvm.solvers.kernels.steps import LOSSES
from dask_mcsvm.solvers.row_block import RowBlock
from dask_mcsvm.solvers.splitting import Splitting
from dask_mcsvm.solvers.splitting.machine import EVALUATE, GATHER, PRODUCT, SAMPLE, NewtonState
from dask_mcsvm.solvers.splitting.newton import curvature, curvature_blocks
from dask_mcsvm.solvers.splitting.rows import BlockRows, evaluate, find_curved, gather, sample
from dask_mcsvm.solvers.splitting.rules import ON_DASK

every_formulation = pytest.mark.parametrize("formulation", list(FORMULATIONS))


def mean_square(toy):
    return float(toy.C @ (toy.X * toy.X).sum(axis=1)) / toy.C.sum() + toy.tau**2


def solver_of(toy, formulation, *, blocks=4, passes=4, run="t", gathered=ON_DASK.gathered_bytes):
    place = ON_DASK._replace(gathered_bytes=gathered)
    return ChunkedSplitting(
        toy.rows(run), formulation, blocks, passes, mean_square(toy), run, place
    )


class Steps(Run):
    """Values of the state of a fit by splitting, moved on stage by stage."""

    def __init__(self, toy, formulation, *, get=get_sync, **options):
        self.toy, self.get, self.name = toy, get, formulation
        self.solver = solver_of(toy, formulation, **options)
        self.data = self.computed(self.solver.data, self.solver.held)
        self.values, self.state = {}, {}
        self.report = self.advance(self.solver.start())

    @property
    def newton(self):
        return self.block("newton")

    def until(self, gap, passes):
        """The phases of all passes up to one whose sums are within a relative gap."""
        phases = []
        for epoch in range(passes):
            phases.append(self.newton.phase)
            tally = self.epoch(epoch)
            if tally.gap <= gap * self.newton.best_primal:
                break
        return phases


def outside(stage):
    return {key for task in stage.graph.values() for key in task.dependencies} - set(stage.graph)


def stages(formulation="crammer_singer", toy=None, **options):
    solver = solver_of(toy or Toy(chunks=(20, 0, 25, 15)), formulation, **options)
    start = solver.start()
    first = solver.epoch(start.state, 0)
    second = solver.epoch(first.state, 1)
    return solver, start, first, second, solver.certify(second.state, 2)


# -- structure, nothing runs -----------------------------------------------------------------------


@every_formulation
def test_tasks_have_names_that_read_well(formulation):
    _, start, first, second, proof = stages(formulation)
    short = FORMULATIONS[formulation].short_name
    assert {key[0] for key in start.graph} == {
        f"{short}-{name}" for name in ("start-newton", "start", "start-report")
    }
    for epoch, stage in enumerate((first, second)):
        parts = ("request", "pass", "answer", "advance", "multipliers", "report")
        assert kinds_of(stage.graph) == {f"{short}-{name}-e{epoch}" for name in parts}
    assert {key[0] for key in proof.graph} == {
        f"{short}-{name}-e2" for name in ("certify-rows", "kept", "certify", "certify-report")
    }


def test_a_stage_reads_the_rows_and_the_state_before_and_nothing_older():
    solver, start, first, second, proof = stages()
    assert outside(start) == set(solver.held)
    for before, stage in ((start, first), (first, second), (second, proof)):
        assert outside(stage) == set(before.state.values()) | set(solver.held)
        assert stage.state.keys() == before.state.keys()
        assert set(stage.state.values()) <= set(stage.graph)
        assert stage.report in stage.graph


@pytest.mark.parametrize(("chunks", "blocks"), [(1, 1), (20, 20), (70, 70), (70, 9)])
def test_a_pass_has_two_tasks_for_a_block_and_a_tree_of_bounded_width(chunks, blocks):
    toy = Toy(n=chunks, chunks=(1,) * chunks)
    solver, _, first, second, _ = stages(toy=toy, blocks=blocks, passes=3)
    sums = (blocks > FAN_IN) * -(-blocks // FAN_IN)  # of fewer than FAN_IN² blocks
    for stage in (first, second):
        assert len(stage.graph) == 3 * (2 * blocks + sums + 2) + blocks + 1
        names = "cs-sum", "cs-advance"
        adds = [task for key, task in stage.graph.items() if key[0].startswith(names)]
        # one also reads the state before
        assert max(len(task.dependencies) for task in adds) <= FAN_IN + 1
    assert len(solver.held) == blocks


def test_two_runs_share_no_key():
    def keys(run):
        solver, *found = stages(run=run)
        ours = {key for key in solver.data if isinstance(key, tuple)}
        return ours.union(*(stage.graph for stage in found))

    assert not keys("a") & keys("b")


# -- values ----------------------------------------------------------------------------------------


@every_formulation
@pytest.mark.parametrize(("csr", "tau"), [(False, 1.0), (True, 0.0)], ids=["dense", "csr"])
@pytest.mark.parametrize("gathered", [0, 2**20], ids=["products", "gathered"])
def test_epochs_reach_the_reference_optimum(formulation, csr, tau, gathered):
    toy = Toy(csr=csr, tau=tau, zero_rows=2 * csr)  # an empty chunk, chunks without some classes
    _, best = solve(formulation, toy.Z, toy.y, toy.C, toy.k)
    steps = Steps(toy, formulation, passes=1, gathered=gathered)
    phases = steps.until(1e-8, 1500)  # of one product each
    asked = {EVALUATE, GATHER} if gathered else {EVALUATE, SAMPLE, PRODUCT}
    assert set(phases) == asked
    bounds = steps.certify(0)
    assert bounds.primal == pytest.approx(best, rel=1e-7)
    assert bounds.dual == pytest.approx(best, rel=1e-7)


@every_formulation
def test_the_certificate_is_that_of_the_specification(formulation):
    toy = Toy()
    steps = Steps(toy, formulation, passes=7)
    for epoch in range(3):
        steps.epoch(epoch)
    bounds = steps.certify(0)
    assert bounds.primal == pytest.approx(steps.svm.primal(steps.W, toy.Z, toy.y), rel=1e-12)
    better, scale = "fixed" if steps.newton.fixed_is_better else "b", steps.newton.scale
    parts = [getattr(steps.block(f"rows-{p}"), better) for p in range(len(steps.solver.held))]
    B = scale * toy.C[:, None] * np.concatenate(parts)
    H = toy.Z.T @ B
    if formulation != "one_vs_rest":
        H -= H.mean(axis=1, keepdims=True)
    own = B[np.arange(toy.n), toy.y]
    linear = own.sum() if formulation in ("crammer_singer", "weston_watkins") else np.abs(B).sum()
    assert bounds.dual == pytest.approx(linear - 0.5 * np.sum(H * H), rel=1e-9)
    assert 0 < bounds.dual <= bounds.primal


@every_formulation
def test_a_certificate_is_of_the_multipliers_that_the_dual_belongs_to(formulation):
    """Also between the pass that ends a step and the one that fixes the multipliers it found."""
    steps = Steps(Toy(), formulation, passes=1)
    moved = 0
    for epoch in range(40):
        steps.epoch(epoch)
        dual, moves = steps.newton.dual, steps.newton.moves
        moved += moves
        if moves:
            assert steps.certify(epoch).dual == pytest.approx(dual, rel=1e-9)
    assert moved > 1


@every_formulation
def test_the_rows_in_memory_and_in_chunks_take_the_same_first_step(formulation):
    toy = Toy()
    run = Splitting(
        toy.X, toy.y, toy.C, n_classes=toy.k, formulation=formulation, tau=toy.tau
    )  # fmt: skip
    steps = Steps(toy, formulation, passes=1)
    assert steps.newton.penalty == run.state.penalty
    for epoch in range(2):  # evaluate, gather
        steps.epoch(epoch)
    np.testing.assert_allclose(steps.newton.g, run.state.g, rtol=1e-9, atol=1e-12)
    run.newton_epoch()
    assert run.newton.square == pytest.approx(mean_square(toy), rel=1e-12)
    np.testing.assert_allclose(steps.newton.cg.P, run.state.cg.P, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("gathered", "counts"),
    [(0, (1, 2, 8)), (2**20, (1, 2, 8, 64))],
    ids=["products", "gathered"],
)
def test_the_path_does_not_depend_on_the_number_of_chunks(gathered, counts):
    found = []
    for chunks in counts:
        toy = Toy(n=64, chunks=(64 // chunks,) * chunks)
        steps = Steps(toy, "crammer_singer", blocks=64, passes=1, gathered=gathered)
        found.append((steps.until(1e-3, 300), steps.newton.best_primal))
    for phases, primal in found[1:]:
        assert phases == found[0][0]
        assert primal == pytest.approx(found[0][1], rel=1e-6)


def test_joined_chunks_are_the_same_rows():
    toy = Toy(n=64, chunks=(8,) * 8)
    many, few = (Steps(toy, "weston_watkins", blocks=blocks) for blocks in (8, 3))
    for steps in (many, few):
        steps.epoch(0)
    np.testing.assert_allclose(many.W, few.W, rtol=1e-9, atol=1e-12)


@every_formulation
def test_every_scheduler_and_every_repetition_gives_the_same_bytes(formulation):
    found = []
    for get in (get_sync, dask.threaded.get):
        steps = Steps(Toy(), formulation, get=get)
        before = steps.bytes()
        stage = steps.solver.epoch(steps.state, 0)
        keys = list(stage.state.values())
        again = get(steps.data | steps.values | stage.graph, keys)
        assert steps.bytes() == before  # tasks changed nothing that they were given
        steps.advance(stage)
        assert [block.arrays().keys() for block in again]
        found.append(steps.bytes())
    assert found[0] == found[1]


def test_blocks_come_back_from_their_arrays():
    steps = Steps(Toy(), "crammer_singer", passes=3)
    steps.epoch(0)
    for kind, name in ((NewtonState, "newton"), (Multipliers, "rows-0")):
        block = steps.block(name)
        again = kind.from_arrays({key: value.copy() for key, value in block.arrays().items()})
        assert again.arrays().keys() == block.arrays().keys()
        for key, value in block.arrays().items():
            assert again.arrays()[key].tobytes() == value.tobytes()
    assert type(again) is Multipliers


def test_large_chunks_are_not_copied_and_small_ones_are_joined(monkeypatch):
    monkeypatch.setattr("dask_mcsvm.graphs.splitting.JOINED_BYTES", 1000)
    sizes = [3, 0, 4, 200, 150, 5, 6]  # rows of 8 bytes

    def chunk(m, start):
        ids, X = np.arange(start, start + m), np.full((m, 1), float(start))
        return RowBlock(ids, X, np.zeros(m, np.int32), np.ones(m), np.ones(m))

    chunks = [chunk(m, start) for m, start in zip(sizes, np.cumsum([0, *sizes]), strict=False)]
    pieces = join_small_chunks(chunks)
    assert [piece.y.size for piece in pieces] == [7, 200, 150, 11]
    assert pieces[1].X is chunks[3].X
    assert pieces[2].X is chunks[4].X
    np.testing.assert_array_equal(np.concatenate([piece.ids for piece in pieces]), np.arange(368))


# -- what a block answers --------------------------------------------------------------------------


def blocks_of(formulation, count):
    toy = Toy()
    bounds = np.linspace(0, toy.n, count + 1).astype(int)
    return [
        BlockRows(toy.X[a:z], toy.y[a:z].astype(np.int32), toy.C[a:z],
                  np.arange(a, z, dtype=np.int64), np.linspace(0.5, 1.0, toy.n)[a:z], toy.tau,
                  formulation, toy.k)
        for a, z in pairwise(bounds)
    ]  # fmt: skip


def evaluated(rows, columns):
    b = np.empty((rows.y.size, rows.k))
    return b, evaluate(rows, np.zeros_like(b), columns, 0.3, b)


@every_formulation
def test_answers_of_blocks_add_up_to_that_of_the_whole(formulation):
    rng = np.random.default_rng(1)
    columns, P = 0.1 * rng.normal(size=(2, 6, 21))
    (whole,), parts = blocks_of(formulation, 1), blocks_of(formulation, 3)
    b, seen = evaluated(whole, columns)
    answers = [evaluated(part, columns) for part in parts]
    np.testing.assert_allclose(sum(a.H for _, a in answers), seen.H, atol=1e-12)
    np.testing.assert_array_equal(sum(a.free for _, a in answers), seen.free)
    rows = find_curved(whole, b, 2)
    some = [find_curved(part, left, 2) for part, (left, _) in zip(parts, answers, strict=True)]
    products = [curvature(whole.loss, few, P) for few in some]
    np.testing.assert_allclose(sum(products), curvature(whole.loss, rows, P), atol=1e-12)
    gathered = [gather(few) for few in some]
    assert sum(few.y.size for few in gathered) == gather(rows).y.size < seen.active
    products = [curvature(whole.loss, few, P) for few in gathered]
    np.testing.assert_allclose(sum(products), curvature(whole.loss, rows, P), atol=1e-12)


@every_formulation
@pytest.mark.parametrize("shared", [False, True])
def test_a_sample_of_all_rows_gives_the_blocks_of_the_curvature(formulation, shared):
    (whole,) = blocks_of(formulation, 1)
    b, seen = evaluated(whole, np.zeros((6, 21)))
    found = sample(whole, b, seen.free, stride=2, shared=shared).grams()
    rows, free = find_curved(whole, b, 1), int(seen.free.sum())
    exact = curvature_blocks(LOSSES[formulation](6), rows, free=free, shared=shared)
    for left, right in zip(found, exact, strict=True):
        np.testing.assert_allclose(2 * left, right, atol=1e-10)


def test_a_sample_of_some_rows_weighs_as_much_as_all(monkeypatch):
    monkeypatch.setattr("dask_mcsvm.solvers.splitting.rows.ROWS_PER_FEATURE", 60)
    toy = Toy(n=4000, d=3, k=3, chunks=(4000,))
    rows = BlockRows(
        toy.X, toy.y.astype(np.int32), toy.C, np.arange(4000), np.ones(4000), 1.0, "one_vs_rest", 3
    )
    b, seen = evaluated(rows, np.zeros((3, 4)))
    found = sample(rows, b, seen.free, stride=1, shared=False)
    assert 200 < found.X.shape[0] < 1000
    squares = np.square(found.X)
    np.testing.assert_allclose(found.weights.T @ squares, found.diagonal, rtol=0.3)
