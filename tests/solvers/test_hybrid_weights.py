"""W of lists and dense rows: the same numbers as an array, in pools that grow and are reused."""

import re
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from solvers.small import make_run

from dask_mcsvm.formulations import FORMULATIONS
from dask_mcsvm.formulations.margins import EQUAL, MarginTable
from dask_mcsvm.solvers.kernels.hybrid_weights import (
    DENSE,
    ROWS,
    clear_weights,
    note_next,
    noted_next,
)
from dask_mcsvm.solvers.kernels.jit import kernel
from dask_mcsvm.solvers.kernels.rows import (
    as_rows,
    row_has_room,
    row_scores,
    row_scores_of,
    row_update,
)
from dask_mcsvm.solvers.sdm import hybrid as hybrid_module
from dask_mcsvm.solvers.sdm import initial_duals, run
from dask_mcsvm.solvers.sdm.hybrid import HybridWeights
from dask_mcsvm.solvers.sparse_weights import SparseWeights
from dask_mcsvm.training import Problem

LISTED = ("crammer_singer", "weston_watkins", "one_vs_rest")


@kernel
def add_to_list(rows, i, W, tau, classes, delta):
    if not row_has_room(rows, i, W, classes.size):
        return False
    row_update(rows, i, W, tau, classes, delta, classes.size)
    return True


@kernel
def scores_of(rows, i, W, tau, classes, s, some):
    row_scores(rows, i, W, tau, s)
    row_scores_of(rows, i, W, tau, classes, classes.size, some)


@kernel
def note(classes, at, block):
    note_next(classes, at, block)


@kernel
def noted(classes, at):
    return noted_next(classes, at)


def as_array(weights):
    """W (d + 1, k) as it was before it became lists."""
    columns, last = weights
    return np.vstack([columns.toarray(), last])


def unlisted(hybrid):
    """The same of lists and dense rows, in the middle of a run."""
    W = hybrid.lists
    out = np.zeros((W.size.size + 1, W.dense.shape[1]), hybrid.dtype)
    for j, (start, size) in enumerate(zip(W.start, W.size, strict=True)):
        if size == DENSE:
            out[j] = W.dense[start]
        else:
            out[j, W.classes[start : start + size]] = W.values[start : start + size]
    out[-1] = W.dense[-1]
    return out


def many_classes(formulation, *, k=320, n=600, d=1500, dtype="float64", margins=None):
    """Rows of a few of many features, among which some are frequent."""
    rng = np.random.default_rng(3)
    chance = np.minimum(0.5, 1 / (1 + np.arange(d)))
    X = (rng.random((n, d)) < chance) * rng.random((n, d))
    X[np.arange(n), rng.integers(0, d, n)] = 1.0
    y = np.append(np.arange(k), rng.integers(0, k, n - k)).astype(np.int32)
    C = np.full(n, 0.5) * rng.choice([0.5, 1.0, 2.0], n)
    rows = sp.csr_array(X.astype(dtype))
    return Problem(rows, y, C, k, formulation, 1.0, margins or EQUAL)


def costs(k):
    cost = np.random.default_rng(0).integers(1, 4, (k, k)) / 3.0
    np.fill_diagonal(cost, 0.0)
    return MarginTable(cost)


@pytest.fixture(params=[np.uint16, np.int32], ids=["short", "long"])
def numbers(request, monkeypatch):
    """The type of the classes' numbers, which follows from how many they are."""
    if request.param is np.int32:
        monkeypatch.setattr(hybrid_module, "SHORT_CLASSES", 50)
    return request.param


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_updates_and_scores_are_those_of_an_array(dtype, numbers):
    rng = np.random.default_rng(0)
    d, k, tau = 40, 90, np.dtype(dtype).type(0.5)
    X = sp.random_array((30, d), density=0.3, format="csr", rng=rng, dtype=dtype)
    rows, longest = as_rows(X), int(np.diff(X.indptr).max())
    hybrid = HybridWeights(d, k, np.dtype(dtype), longest)
    assert hybrid.lists.classes.dtype == numbers
    W, stops = np.zeros((d + 1, k)), 0
    exact = np.hstack([X.toarray(), np.full((30, 1), tau)]).astype(np.float64)
    for step in range(300):
        i, q = int(rng.integers(30)), int(rng.choice([1, 3, 8, 9, 20]))
        within = k if step > 200 else 12  # first few classes, whose lists stay short
        classes = rng.permutation(within)[:q].astype(np.int32)
        delta = rng.normal(size=classes.size).astype(dtype)
        while not add_to_list(rows, i, hybrid.lists, tau, classes, delta):
            hybrid.make_room()
            stops += 1
        W[:, classes] += np.outer(exact[i], delta)
        if step % 20 == 0:
            s, some = np.empty(k, dtype), np.empty(classes.size, dtype)
            scores_of(rows, i, hybrid.lists, tau, classes, s, some)
            accurate = 1e-12 if dtype == "float64" else 1e-4
            np.testing.assert_allclose(s, exact[i] @ W, rtol=0, atol=accurate)
            np.testing.assert_allclose(some, (exact[i] @ W)[classes], rtol=0, atol=accurate)
            assert hybrid.square_sum() == pytest.approx(np.square(W).sum(), rel=1e-5)
    found = unlisted(hybrid)
    accurate = 1e-12 if dtype == "float64" else 1e-3
    np.testing.assert_allclose(found, W, rtol=0, atol=accurate)
    assert stops > 5, "pools grow as they are needed"
    assert (hybrid.lists.size == DENSE).sum() == hybrid.lists.counts[ROWS] > 10
    again = HybridWeights(d, k, np.dtype(dtype), longest)
    again.take_weights(SparseWeights(sp.csc_array(found[:-1]), found[-1]))
    np.testing.assert_array_equal(unlisted(again), found)


def test_blocks_that_lists_leave_are_used_again(numbers):
    k, d = 800, 64
    X = sp.csr_array(np.eye(d, dtype=np.float32))
    rows, hybrid = as_rows(X), HybridWeights(d, k, np.dtype("float32"), 1)
    one, tau = np.ones(1, np.float32), np.float32(0)
    for m in range(64):  # every list moves from 8 to 16, 32 and 64 places
        for i in range(d):
            while not add_to_list(rows, i, hybrid.lists, tau, np.array([m], np.int32), one):
                hybrid.make_room()
    assert hybrid.lists.classes.dtype == numbers
    assert hybrid.lists.room.min() == 64
    assert (hybrid.lists.size == 64).all()
    assert hybrid.lists.classes.size < 1.6 * 64 * d  # 2.1 where they are not
    for i in range(d):
        start = hybrid.lists.start[i]
        assert hybrid.lists.classes[start : start + 64].tolist() == list(range(64))


@pytest.mark.parametrize("block", [-1, 0, 1, 2**16 - 2, 2**16 - 1, 2**16, 2**31])
def test_a_block_is_noted_in_two_classes(block):
    classes = np.zeros(8, np.uint16)
    note(classes, 3, block)
    assert noted(classes, 3) == block
    assert not classes[5:].any()


@pytest.mark.parametrize(
    ("name", "dtype"), [*((name, "float64") for name in LISTED), ("crammer_singer", "float32")]
)
def test_a_run_ends_at_the_same_optimum(name, dtype):
    problem = many_classes(name, dtype=dtype)
    ends = {}
    for weights in ("dense", "hybrid"):
        state = make_run(problem, weights=weights)
        for _ in range(120 if dtype == "float64" else 20):
            state.adaptive_epoch()
        ends[weights] = (*state.certify(), state.W)
    (primal, dual, W), (primal2, dual2, _) = ends.values()
    accurate = 1e-7 if dtype == "float64" else 2e-3
    assert 0 <= primal - dual <= accurate * primal
    assert 0 <= primal2 - dual2 <= accurate * primal
    assert state.hybrid.lists.counts[ROWS] > 5
    assert (state.hybrid.lists.size > 0).sum() > 50
    apart = np.abs(unlisted(state.hybrid) - W).max()
    assert apart <= np.sqrt(4 * accurate * primal)  # P is strongly convex
    assert_same_weights(state)


def assert_same_weights(state):
    """What a run hands on is what its lists are, class by class, and the lists are given up."""
    listed = unlisted(state.hybrid)
    found = state.weights()
    assert found.columns.has_canonical_format
    assert (found.columns.data != 0).all()
    np.testing.assert_array_equal(as_array(found), listed)
    assert state.hybrid.nbytes < 20 * listed.shape[0] + 8 * listed.shape[1]


def test_costs_of_mistakes_and_other_schedules_are_solved_likewise():
    problem = many_classes("weston_watkins", margins=costs(320))
    ends = []
    for weights in ("dense", "hybrid"):
        state = make_run(problem, weights=weights, margins=problem.margins)
        for _ in range(12):
            state.shrink_epoch()
        ends.append(state.certify())
    (primal, dual), (primal2, dual2) = ends
    assert primal - dual < 1e-2 * primal
    assert primal2 - dual2 < 1e-2 * primal
    assert max(dual, dual2) <= min(primal, primal2)


def test_the_same_seed_gives_the_same_bytes():
    problem = many_classes("crammer_singer", dtype="float32")
    found = []
    for n_jobs in (1, 1, 2):  # threads certify; visits take one
        state = make_run(problem, weights="hybrid", n_jobs=n_jobs)
        for _ in range(3):
            state.adaptive_epoch()
        columns, last = (state.certify(), state.weights())[1]
        found.append((columns.data.tobytes(), columns.indices.tobytes(), last.tobytes()))
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("name", LISTED)
def test_w_made_from_alpha_is_that_of_an_array(name, monkeypatch):
    problem = many_classes(name)
    state = make_run(problem)
    for _ in range(3):
        state.adaptive_epoch()
    start = state.duals()
    dense = make_run(problem, start=start)
    monkeypatch.setattr("dask_mcsvm.solvers.sdm.hybrid.SORTED", 100)  # several blocks of classes
    listed = make_run(problem, start=start, weights="hybrid")
    assert listed.dual == pytest.approx(dense.dual, rel=1e-13)
    np.testing.assert_allclose(as_array(listed.weights()), dense.W, rtol=0, atol=1e-12)
    np.testing.assert_allclose(listed.seen, dense.seen, atol=1e-10)


def test_memory_is_that_of_the_lists():
    rng = np.random.default_rng(0)
    n, d, k = 1500, 6000, 700
    y = np.append(np.arange(k), rng.integers(0, k, n - k)).astype(np.int32)
    columns = np.hstack([rng.integers(0, d, (n, 4)), 6 * y[:, None] + rng.integers(0, 6, (n, 2))])
    values = rng.random(columns.size).astype(np.float32)
    X = sp.csr_array((values, columns.ravel(), np.arange(0, columns.size + 1, 6)), shape=(n, d))
    problem = Problem(X, y, np.full(n, 1.0), k, "crammer_singer", 1.0)
    peaks = []
    for _ in range(2):  # the first one compiles
        tracemalloc.start()
        state = make_run(problem, weights="hybrid")
        for _ in range(4):
            state.adaptive_epoch()
        primal, dual = state.certify()
        held = state.hybrid.nbytes
        state.weights()
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert primal - dual < 0.5 * primal
    assert peaks[1] < 0.5 * 4 * d * k, "an array of W alone is 17 MB"
    assert held < 0.3 * 4 * d * k


def test_w_handed_on_before_a_certificate_is_that_of_alpha():
    problem = many_classes("crammer_singer")
    listed = make_run(problem, weights="hybrid")
    listed.adaptive_epoch()
    again = make_run(problem, start=listed.duals())
    clear_weights(listed.hybrid.lists)  # so that there seem to be hardly any
    found = as_array(listed.weights())
    np.testing.assert_allclose(found[:-1], again.W[:-1], rtol=0, atol=1e-12)


def test_more_than_the_limit_is_an_error():
    problem = many_classes("crammer_singer", dtype="float32")
    state = make_run(problem, weights="hybrid", limit=40_000)
    sentence = "bytes as lists, more than memory_limit=40000; raise memory_limit, or pass "
    with pytest.raises(MemoryError, match=re.escape(sentence)):
        state.adaptive_epoch()


def test_the_primal_of_given_weights_needs_no_array():
    problem = many_classes("crammer_singer")
    state = make_run(problem, weights="hybrid")
    state.adaptive_epoch()
    state.certify()
    found = state.weights()
    how = {"formulation": problem.formulation, "tau": problem.tau}
    rows = (problem.rows, problem.y, problem.C)
    here = run.primal_of(*rows, found, **how, n_jobs=2)
    assert here == pytest.approx(run.primal_of(*rows, as_array(found), **how), rel=1e-13)
    shorter = replace(problem, C=problem.C / 2)
    assert run.primal_of(shorter.rows, shorter.y, shorter.C, found, **how) < here


def test_few_classes_join_in_a_visit_where_there_are_many():
    joining = {
        (name, k, is_soft): initial_duals.fresh_of_many(name, 1000, k, is_soft=is_soft)
        for name in FORMULATIONS
        for k in (60, 511, 512)
        for is_soft in (False, True)
    }
    for (name, k, is_soft), fresh in joining.items():
        if k < 512 or name == "lee_lin_wahba":
            assert fresh == initial_duals.fresh_classes(name, 1000, k)
        elif name == "one_vs_rest":
            assert fresh == (8 if is_soft else k)
        else:
            assert fresh == {"crammer_singer": 8, "weston_watkins": 32}[name]
