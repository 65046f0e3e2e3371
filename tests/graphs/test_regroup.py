"""Row chunks to rows per class group: every row once, in order, whatever the chunks are."""

import dask
import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from dask.task_spec import Task
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_mcsvm.graphs.regroup import group_map, regroup

GROUPS = ((0, 3), (1,), (2, 4))


def problem(n=30, d=4, k=5, seed=0, dtype="float32"):
    rng = np.random.default_rng(seed)
    X = (rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.6)).astype(dtype)
    return X, rng.integers(k, size=n).astype(np.int32), rng.random(n) + 0.5


def as_delayed(X, y, C, chunks, kind="dense"):
    """Chunks as a user's Dask arrays hand them over."""
    rows = da.from_array(X, chunks=(chunks, X.shape[1]))
    if kind != "dense":
        rows = rows.map_blocks(getattr(sp, kind), dtype=X.dtype, meta=getattr(sp, kind)((0, 0)))
    return [
        [*rows.to_delayed().ravel()],
        [*da.from_array(y, chunks=(chunks,)).to_delayed()],
        [*da.from_array(C, chunks=(chunks,)).to_delayed()],
    ]


def built(X, y, C, chunks, kind="dense", **options):
    options = {"groups": GROUPS, "tau": 1.0, "dtype": "float32", "run": "t"} | options
    return regroup(*as_delayed(X, y, C, chunks, kind), chunk_rows=chunks, **options)


def computed(plan):
    return dask.get(plan.graph, [list(keys) for keys in plan.blocks])


def rows_of(block):
    return block.X.toarray() if sp.issparse(block.X) else block.X


@settings(max_examples=25)
@given(
    chunks=st.lists(st.integers(0, 7), min_size=1, max_size=6),
    kind=st.sampled_from(["dense", "csr_array", "csr_matrix"]),
    n_blocks=st.integers(1, 4),
    k=st.integers(1, 5),
    seed=st.integers(0, 99),
)
def test_every_row_is_in_its_group_once_and_in_order(chunks, kind, n_blocks, k, seed):
    X, y, C = problem(sum(chunks), k=k, seed=seed)  # classes from k on are absent
    blocks = computed(built(X, y, C, tuple(chunks), kind, n_blocks=n_blocks))
    ids = np.concatenate([block.ids for group in blocks for block in group])
    np.testing.assert_array_equal(np.sort(ids), np.arange(len(y)))
    for group, parts in zip(GROUPS, blocks, strict=True):
        assert len(parts) == min(n_blocks, len(chunks))
        expected = np.flatnonzero(np.isin(y, group))
        np.testing.assert_array_equal(np.concatenate([b.ids for b in parts]), expected)
        for block in parts:
            np.testing.assert_array_equal(rows_of(block), X[block.ids])
            np.testing.assert_array_equal(np.array(group)[block.y], y[block.ids])
            np.testing.assert_array_equal(block.C, C[block.ids])
            squares = np.sum(np.square(X[block.ids], dtype=float), axis=1) + 1.0
            np.testing.assert_allclose(block.square, squares, rtol=1e-12)


def test_blocks_are_what_kernels_take():
    X, y, C = problem(dtype="float64")
    for kind in ("dense", "csr_matrix"):
        for group in computed(built(X, y, C, (10, 20), kind)):
            (block,) = group
            assert block.X.dtype == np.float32
            assert block.y.dtype == np.int32
            assert block.ids.dtype == np.int64
            assert block.C.dtype == block.square.dtype == np.float64
            assert isinstance(block.X, np.ndarray if kind == "dense" else sp.csr_array)
            data = block.data(1.0)
            arrays = [*data.rows] if kind != "dense" else [data.rows]
            assert all(array.flags.c_contiguous and not array.flags.writeable for array in arrays)
            assert data.C.dtype == np.float32


def test_one_cost_for_all_rows():
    X, y, _ = problem()
    delayed = as_delayed(X, y, y, (15, 15))
    plan = regroup(
        *delayed[:2], 0.5, chunk_rows=(15, 15), groups=GROUPS, tau=0.0, dtype="float32", run="t"
    )
    assert all((block.C == 0.5).all() for (block,) in computed(plan))


def test_duplicate_entries_of_a_row_are_summed_and_the_source_is_left_alone():
    X = sp.csr_matrix(([1.0, 2.0, 5.0], [1, 1, 0], [0, 2, 3]), shape=(2, 3))
    rows, labels = dask.delayed(X), dask.delayed(np.array([0, 1]))
    plan = regroup(
        [rows], [labels], 1.0, chunk_rows=(2,), groups=((0, 1),), tau=0.0, dtype="float64", run="t"
    )
    ((block,),) = computed(plan)
    assert block.X.nnz == 2
    np.testing.assert_array_equal(block.square, [9.0, 25.0])
    assert X.nnz == 3


def test_groups_may_take_different_numbers_of_blocks():
    X, y, C = problem()
    plan = built(X, y, C, (6,) * 5, n_blocks=(1, 2, 9))
    assert [len(keys) for keys in plan.blocks] == [1, 2, 5]


def test_the_graph_has_a_split_per_chunk_and_a_pick_per_group_and_runs_nothing():
    calls = []

    def read(c):
        calls.append(c)
        return np.zeros((2, 3)), np.zeros(2, int)

    loads = [dask.delayed(read)(c) for c in range(4)]
    plan = regroup(
        [load[0] for load in loads], [load[1] for load in loads], 1.0, chunk_rows=(2,) * 4,
        groups=((0,), (1, 2)), tau=0.0, dtype="float32", n_blocks=2, run="t",
    )  # fmt: skip
    assert calls == []
    ours = [key[0] for key in plan.graph if isinstance(key, tuple)]
    counts = {name: ours.count(name) for name in set(ours)}
    assert counts == {"group-map": 1, "split-rows": 4, "pick-rows": 8, "group-rows": 4}
    # A group's block waits for its own chunks only, and for parts, never for whole chunks.
    joined = plan.graph[plan.blocks[1][0]]
    assert isinstance(joined, Task)
    assert joined.dependencies == {("pick-rows", "t", 0, 1), ("pick-rows", "t", 1, 1)}


def test_a_part_does_not_keep_its_chunk_in_memory():
    X, y, C = problem()
    plan = built(X, y, C, (30,))
    for part in dask.get(plan.graph, ("split-rows", "t", 0)):
        assert part.X.base is None
        assert all(array.base is None for array in (part.ids, part.y, part.C, part.square))


def test_a_chunk_of_another_size_than_announced_is_an_error():
    X, y, C = problem(12)
    delayed = as_delayed(X, y, C, (6, 6))
    plan = regroup(*delayed, chunk_rows=(6, 5), groups=GROUPS, tau=0.0, dtype="float32", run="t")
    message = "the chunk of rows 6:11 holds 6 rows and 6 labels; did the source change?"
    with pytest.raises(ValueError, match=message):
        computed(plan)


@pytest.mark.parametrize("code", [-1, 5])
def test_a_code_that_is_no_class_is_an_error_that_names_the_chunk(code):
    X, y, C = problem(12)
    y[8] = code
    low, high = min(code, y[6:].min()), max(code, y[6:].max())
    message = f"the chunk of rows 6:12 holds class codes {low} to {high}; there are 5 classes"
    with pytest.raises(ValueError, match=message):
        computed(built(X, y, C, (6, 6)))


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("kind", ["dense", "csr_array"])
def test_a_value_that_is_not_finite_is_an_error_that_names_the_row(value, kind):
    X, y, C = problem(12)
    X[8, 1] = value
    with pytest.raises(ValueError, match="row 8 of X holds NaN, infinity or a value too large"):
        computed(built(X, y, C, (6, 6), kind))


@pytest.mark.parametrize("chunks", [(), (6,)])
def test_chunks_that_do_not_match_are_refused_while_building(chunks):
    X, y, C = problem(12)
    rows, labels, costs = as_delayed(X, y, C, (6, 6))
    with pytest.raises(ValueError, match="row chunk"):
        regroup(
            rows[: len(chunks)], labels, costs, chunk_rows=chunks, groups=GROUPS, tau=0.0,
            dtype="float32", run="t",
        )  # fmt: skip


def test_the_map_of_groups_is_their_inverse():
    where = group_map(GROUPS)
    assert [GROUPS[g][p] for g, p in zip(*where, strict=True)] == list(range(5))
