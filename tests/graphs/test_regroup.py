"""Row chunks to rows per class group: every row once, in order, whatever the chunks are."""

import dask
import numpy as np
import pytest
import scipy.sparse as sp
from dask.local import get_sync
from dask.task_spec import Task
from graphs.runs import Toy
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_mcsvm.data.rows import row_blocks
from dask_mcsvm.graphs.regroup import group_of_class, join_chunks, regroup

GROUPS = ((0, 3), (1,), (2, 4))


def problem(n=30, d=4, k=5, seed=0, dtype="float32"):
    rng = np.random.default_rng(seed)
    X = (rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.6)).astype(dtype)
    return X, rng.integers(k, size=n).astype(np.int32), rng.random(n) + 0.5


def chunked(X, y, C, chunks, kind="dense"):
    ends = np.cumsum(chunks)[:-1]
    rows = [x if kind == "dense" else getattr(sp, kind)(x) for x in np.split(X, ends)]
    parts = rows, np.split(y, ends), np.split(C, ends)
    return row_blocks(
        *([dask.delayed(piece) for piece in part] for part in parts), sizes=chunks,
        n_features=X.shape[1], n_classes=5, dtype="float32", tau=1.0, run="t",
    )  # fmt: skip


def computed(rows, dealt):
    return get_sync(rows.graph | dealt.graph, [list(keys) for keys in dealt.blocks])


def dense(block):
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
    rows = chunked(X, y, C, tuple(chunks), kind)
    blocks = computed(rows, regroup(rows, GROUPS, n_blocks=n_blocks, run="t"))
    ids = np.concatenate([block.ids for group in blocks for block in group])
    np.testing.assert_array_equal(np.sort(ids), np.arange(len(y)))
    for group, parts in zip(GROUPS, blocks, strict=True):
        assert len(parts) == min(n_blocks, len(chunks))
        expected = np.flatnonzero(np.isin(y, group))
        np.testing.assert_array_equal(np.concatenate([b.ids for b in parts]), expected)
        for block in parts:
            np.testing.assert_array_equal(dense(block), X[block.ids])
            np.testing.assert_array_equal(block.y, y[block.ids])
            np.testing.assert_array_equal(block.C, C[block.ids])
            squares = np.sum(np.square(X[block.ids], dtype=float), axis=1) + 1.0
            np.testing.assert_allclose(block.square, squares, rtol=1e-12)


@pytest.mark.parametrize("kind", ["dense", "csr_matrix"])
def test_blocks_are_what_kernels_take(kind):
    rows = chunked(*problem(dtype="float64"), (10, 20), kind)
    for (block,) in computed(rows, regroup(rows, GROUPS, run="t")):
        assert block.X.dtype == np.float32
        assert block.y.dtype == np.int32
        assert block.ids.dtype == np.int64
        assert block.C.dtype == block.square.dtype == np.float64
        assert isinstance(block.X, np.ndarray if kind == "dense" else sp.csr_array)
        data = block.data(1.0)
        arrays = [*data.rows] if kind != "dense" else [data.rows]
        assert all(array.flags.c_contiguous and not array.flags.writeable for array in arrays)


def test_groups_may_take_different_numbers_of_blocks():
    dealt = regroup(chunked(*problem(), (6,) * 5), GROUPS, n_blocks=(1, 2, 9), run="t")
    assert [len(keys) for keys in dealt.blocks] == [1, 2, 5]


def test_the_graph_has_a_split_per_chunk_and_a_pick_per_group_and_no_rows():
    rows = chunked(*problem(8), (2,) * 4)
    graph = regroup(rows, GROUPS, n_blocks=2, run="t").graph
    names = [key[0] for key in graph]
    counts = {name: names.count(name) for name in set(names)}
    assert counts == {"group-of-class": 1, "split-rows": 4, "pick-rows": 12, "group-rows": 6}
    # A group's block waits for its own chunks only, and for parts, never for whole chunks.
    joined = graph["group-rows", "t", 1, 0]
    assert isinstance(joined, Task)
    assert joined.dependencies == {("pick-rows", "t", 0, 1), ("pick-rows", "t", 1, 1)}


def test_a_part_does_not_keep_its_chunk_in_memory():
    rows = chunked(*problem(), (30,))
    graph = rows.graph | regroup(rows, GROUPS, run="t").graph
    for part in get_sync(graph, ("split-rows", "t", 0)):
        arrays = [field for field in part if isinstance(field, np.ndarray)]
        assert len(arrays) >= 4
        assert all(array.base is None for array in arrays)


def test_groups_that_miss_a_class_are_refused_while_building():
    with pytest.raises(ValueError, match="groups must hold each of the 5 classes once"):
        regroup(chunked(*problem(), (30,)), ((0, 3), (1, 2)), run="t")


def test_every_class_knows_its_group():
    assert group_of_class(GROUPS).tolist() == [0, 1, 2, 0, 2]


@given(chunks=st.lists(st.integers(0, 7), min_size=1, max_size=6), n_blocks=st.integers(1, 7))
def test_joined_chunks_hold_the_same_rows_in_the_same_order(chunks, n_blocks):
    toy = Toy(n=sum(chunks), chunks=tuple(chunks), csr=True)
    rows = toy.rows()
    joined = join_chunks(rows, n_blocks, "t")
    assert len(joined.keys) == min(n_blocks, len(chunks))
    assert joined.n == rows.n
    blocks = get_sync(joined.graph, list(joined.keys))
    assert joined.sizes == tuple(block.y.size for block in blocks)
    np.testing.assert_array_equal(np.concatenate([b.ids for b in blocks]), np.arange(toy.n))
    np.testing.assert_array_equal(np.concatenate([b.y for b in blocks]), toy.y)
    np.testing.assert_array_equal(np.vstack([b.X.toarray() for b in blocks]), toy.X)


@pytest.mark.parametrize(
    ("chunks", "count", "firsts"),
    [
        ((5, 5, 5, 5), 2, [0, 2]),
        ((90, 10, 50, 50), 2, [0, 2]),  # rows count, not chunks
        ((97, 1, 1, 1), 2, [0, 1]),
        ((1, 1, 1, 97), 2, [0, 3]),
        ((0, 0, 0), 3, [0, 1, 2]),
        ((100, 1, 1), 3, [0, 1, 2]),  # none without a chunk
    ],
)
def test_parts_have_like_numbers_of_rows(chunks, count, firsts):
    parts = Toy(n=sum(chunks), chunks=chunks).rows().parts(count)
    assert [part.start for part in parts] == firsts
    assert [c for part in parts for c in part] == list(range(len(chunks)))
