"""Datasets come back as they were written, from memory and from Dask, whatever way they are cut."""

import pickle
import uuid
from pathlib import Path

import dask
import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from distributed import Client
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dask_mcsvm.storage import _write, open_dataset, write_dataset
from dask_mcsvm.storage._blocks import Segment
from dask_mcsvm.storage._place import as_place

TINY = _write.Sizes(
    chunk_entries=100, block_entries=170, block_rows=60, chunk_rows=50, dense_bytes=3000
)


@pytest.fixture
def tiny(monkeypatch):
    """Chunks so small that a few hundred entries make many of them."""
    monkeypatch.setattr(_write, "SIZES", TINY)


def sparse_rows(n=200, d=30, seed=0, dtype=np.float32):
    rng = np.random.default_rng(seed)
    dense = np.where(rng.random((n, d)) < 0.15, rng.random((n, d)), 0)
    dense[n // 3 : n // 3 + 50] = 0  # a run of rows without entries
    return sp.csr_matrix(dense.astype(dtype))


def labels(n=200):
    return np.array(["ant", "bee", "cicada"])[np.arange(n) * 7 % 3]


def same(a, b):
    if sp.issparse(a):
        return a.shape == b.shape and a.dtype == b.dtype and (a != b).nnz == 0
    return a.dtype == b.dtype and np.array_equal(a, b)


def objects(path):
    """Every stored object but those that hold the dataset's id."""
    files = [p for p in Path(path).rglob("*") if p.is_file() and p.name != "zarr.json"]
    return {str(p.relative_to(path)): p.read_bytes() for p in files}


# Round trips --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "uint16"])
@pytest.mark.parametrize("kind", ["csr", "dense"])
def test_rows_labels_and_weights_come_back(tmp_path, kind, dtype):
    X = (sparse_rows() * 100).astype(dtype)
    X = X if kind == "csr" else X.toarray()
    weight = np.linspace(0, 2, 200)
    dataset = write_dataset(tmp_path / "a.zarr", X, labels(), sample_weight=weight)
    assert dataset.n_blocks > 1
    assert same(dataset.read_rows(0, 200), X)
    assert same(dataset.read_rows(17, 60), X[17:60])
    assert dataset.read_rows(5, 5).shape == (0, 30)
    blocks = [dataset.read_block(b) for b in range(dataset.n_blocks)]
    assert same((sp.vstack if kind == "csr" else np.concatenate)(blocks), X)
    codes = np.concatenate([dataset.read_block_labels(b) for b in range(dataset.n_blocks)])
    assert codes.dtype == np.int32
    assert np.array_equal(dataset.classes[codes], labels())
    assert np.array_equal(dataset.read_labels(), codes)
    assert np.array_equal(dataset.read_weights(), weight)
    assert np.array_equal(dataset.read_weights(3, 9), weight[3:9])
    dataset.validate()


def test_what_a_dataset_says_of_itself(tmp_path):
    X = sparse_rows()
    dataset = write_dataset(tmp_path / "a.zarr", X, labels())
    assert dataset.path == str(tmp_path / "a.zarr")
    assert (dataset.shape, dataset.nnz, dataset.dtype) == ((200, 30), X.nnz, np.float32)
    assert (dataset.is_sparse, dataset.has_weights, dataset.n_classes) == (True, False, 3)
    assert dataset.max_row_norm == np.sqrt(X.astype(np.float64).multiply(X).sum(axis=1).max())
    assert dataset.row_offsets == (0, 200)
    assert dataset.read_weights() is None
    assert dataset.weights_to_dask() is None
    assert "row_offsets" not in repr(dataset)


def test_it_is_small_and_picklable_and_opens_to_the_same(tmp_path):
    written = write_dataset(tmp_path / "a.zarr", sparse_rows(), labels())
    opened = pickle.loads(pickle.dumps(open_dataset(tmp_path / "a.zarr")))
    assert repr(opened) == repr(written)
    assert (opened.id, opened.fingerprint) == (written.id, written.fingerprint)
    assert len(pickle.dumps(opened)) < 2000
    assert same(opened.read_block(0), sparse_rows())


@pytest.mark.parametrize(
    "classes",
    [
        np.array(["a", "bc"]),
        np.array(["a", "bc"], dtype=object),
        np.array([-3, 2**60]),
        np.array([1, 255], dtype=np.uint8),
        np.array([0.1, 2.5], dtype=np.float32),
        np.array([False, True]),
    ],
    ids=lambda c: c.dtype.str,
)
def test_classes_come_back_with_their_dtype(tmp_path, classes):
    dataset = write_dataset(tmp_path / "a.zarr", np.eye(4), classes[[0, 1, 1, 0]])
    assert dataset.classes.dtype == classes.dtype
    assert dataset.classes.tolist() == classes.tolist()
    assert dataset.read_labels().tolist() == [0, 1, 1, 0]


def test_numpy_string_labels_become_fixed_width(tmp_path):
    y = np.array(["b", "aa"], dtype=np.dtypes.StringDType())
    dataset = write_dataset(tmp_path / "a.zarr", np.eye(2), y)
    assert (dataset.classes.dtype.str, dataset.classes.tolist()) == ("<U2", ["aa", "b"])


def test_listed_classes_may_have_no_row_and_any_order(tmp_path):
    dataset = write_dataset(tmp_path / "a.zarr", np.eye(2), [7, 3], classes=[9, 7, 3, 5])
    assert dataset.classes.tolist() == [3, 5, 7, 9]
    assert dataset.read_labels().tolist() == [2, 0]


@pytest.mark.parametrize("convert", [sp.coo_matrix, sp.csc_array, sp.csr_array])
def test_any_sparse_matrix_is_stored_with_sorted_distinct_indices(tmp_path, convert):
    row, col = np.array([0, 0, 1, 1]), np.array([2, 0, 1, 1])
    X = convert(sp.coo_matrix((np.array([1.0, 2.0, 3.0, 4.0]), (row, col)), shape=(2, 3)))
    dataset = write_dataset(tmp_path / "a.zarr", X, [0, 1])
    assert dataset.read_rows(0, 2).indices.tolist() == [0, 2, 1]
    assert dataset.read_rows(0, 2).toarray().tolist() == [[2, 0, 1], [0, 7, 0]]


def test_the_matrix_given_is_not_changed(tmp_path):
    X = sp.csr_matrix((np.ones(3), np.array([2, 0, 0]), np.array([0, 3])), shape=(1, 3))
    write_dataset(tmp_path / "a.zarr", X, [0])
    assert X.indices.tolist() == [2, 0, 0]


def test_bools_and_half_floats_are_widened(tmp_path):
    assert write_dataset(tmp_path / "a.zarr", np.eye(2, dtype=bool), [0, 1]).dtype == np.uint8
    half = np.eye(2, dtype=np.float16)
    assert write_dataset(tmp_path / "b.zarr", half, [0, 1]).dtype == np.float32


@pytest.mark.usefixtures("tiny")
def test_all_zero_chunks_are_stored_like_others(tmp_path):
    X = np.zeros((80, 20), dtype=np.int64)
    dataset = write_dataset(tmp_path / "a.zarr", X, np.zeros(80, dtype=int))
    assert len(list((tmp_path / "a.zarr" / "X" / "c").iterdir())) == dataset.n_blocks > 3
    assert same(dataset.read_rows(0, 80), X)
    empty = write_dataset(tmp_path / "b.zarr", sp.csr_matrix((80, 20)), np.zeros(80, dtype=int))
    assert empty.nnz == 0
    assert empty.max_row_norm == 0
    assert empty.read_rows(0, 80).nnz == 0
    assert empty.row_offsets == (0, 60, 80)  # many rows with few entries are cut by rows
    open_dataset(tmp_path / "b.zarr").validate()


def test_nan_is_stored_and_leaves_no_norm(tmp_path):
    dataset = write_dataset(tmp_path / "a.zarr", np.array([[1.0, np.nan], [0, 3]]), [0, 1])
    assert np.isnan(dataset.max_row_norm)
    assert np.isnan(dataset.read_rows(0, 1)[0, 1])


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("kind", ["csr", "dense"])
@pytest.mark.parametrize("block_rows", [7, 64, 1000])
def test_block_rows_are_as_asked(tmp_path, kind, block_rows):
    X = sparse_rows() if kind == "csr" else sparse_rows().toarray()
    dataset = write_dataset(tmp_path / "a.zarr", X, labels(), block_rows=block_rows)
    assert dataset.row_offsets == (*range(0, 200, min(block_rows, 200)), 200)
    assert same(dataset.read_block(0), X[:block_rows])
    assert same(dataset.read_rows(0, 200), X)


@pytest.mark.usefixtures("tiny")
def test_blocks_hold_about_as_many_entries_as_wanted(tmp_path):
    X = sparse_rows(n=600, d=60)
    dataset = write_dataset(tmp_path / "a.zarr", X, labels(600))
    sizes = [dataset.read_block(b).nnz for b in range(dataset.n_blocks)]
    assert max(sizes) <= TINY.block_entries + np.diff(X.indptr).max()
    assert np.median(sizes) > 0.5 * TINY.block_entries
    assert max(np.diff(dataset.row_offsets)) <= TINY.block_rows


@settings(max_examples=8)  # some 100 files each; the cutting alone has a property below
@given(
    dense=hnp.arrays(
        np.float32,
        hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=9),
        elements=st.sampled_from([0, 0, 0, 1, -2.5]),
        fill=st.just(0),
    ),
    cut=st.integers(1, 13),
    sizes=st.builds(
        _write.Sizes,
        chunk_entries=st.integers(2, 9),
        block_entries=st.integers(2, 9),
        block_rows=st.integers(1, 9),
        chunk_rows=st.integers(2, 9),
    ),
)
def test_any_small_matrix_comes_back_from_memory_and_from_dask(dense, cut, sizes):
    X, y = sp.csr_matrix(dense), np.arange(len(dense)) % 3
    lazy = da.from_array(dense, chunks=(cut, -1)).map_blocks(sp.csr_matrix)
    url = f"memory://{uuid.uuid4().hex}"
    before, _write.SIZES = _write.SIZES, sizes
    try:
        a = write_dataset(f"{url}/a", X, y)
        with dask.config.set(scheduler="sync"):
            b = write_dataset(f"{url}/b", lazy, da.from_array(y, chunks=cut))
    finally:
        _write.SIZES = before
    assert same(a.read_rows(0, len(dense)), X)
    assert a.row_offsets == b.row_offsets
    assert a.fingerprint == b.fingerprint
    assert sum(a.read_block(i).nnz for i in range(a.n_blocks)) == X.nnz
    a.validate()


@given(lengths=st.lists(st.integers(0, 7), min_size=1, max_size=9), chunk=st.integers(1, 12))
def test_every_chunk_gathers_its_part_of_each_segment(lengths, chunk):
    ends = np.cumsum(lengths)
    whole = np.arange(ends[-1])
    segments = [Segment(k, whole[end - k : end]) for end, k in zip(ends, lengths, strict=True)]
    tasks = list(_write.chunk_tasks(as_place("nowhere"), "y", chunk, segments))
    assert [task.index for task in tasks] == list(range(-(-len(whole) // chunk)))
    for task in tasks:
        values = [segment.read(lo, hi) for segment, lo, hi in task.parts]
        assert min(map(len, values)) > 0
        expected = whole[task.index * chunk : (task.index + 1) * chunk]
        assert np.array_equal(np.concatenate(values), expected)


# Dask ---------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("kind", ["csr", "dense"])
@pytest.mark.parametrize("scheduler", ["sync", "threads"])
def test_a_parallel_write_equals_a_serial_one_byte_for_byte(tmp_path, kind, scheduler):
    X, y, weight = sparse_rows(), labels(), np.arange(200.0)
    lazy = da.from_array(X.toarray(), chunks=((70, 0, 3, 100, 27), 30))
    if kind == "csr":
        lazy = lazy.map_blocks(sp.csr_matrix, dtype=X.dtype)
    else:
        X = X.toarray()
    serial = write_dataset(tmp_path / "a.zarr", X, y, sample_weight=weight)
    with dask.config.set(scheduler=scheduler):
        parallel = write_dataset(
            tmp_path / "b.zarr",
            lazy,
            da.from_array(y, chunks=60),
            sample_weight=da.from_array(weight, chunks=200),
        )
    assert objects(tmp_path / "a.zarr") == objects(tmp_path / "b.zarr")
    assert serial.fingerprint == parallel.fingerprint
    assert serial.id != parallel.id
    assert repr(serial).replace("a.zarr", "b.zarr") == repr(parallel)
    parallel.validate()


def unknown(array):
    """The same Dask array without its chunk sizes."""
    parts = [da.from_delayed(b, (np.nan, *array.shape[1:]), array.dtype)
             for b in array.to_delayed().ravel()]  # fmt: skip
    return da.concatenate(parts, allow_unknown_chunksizes=True)


def test_unknown_chunk_sizes_are_counted(tmp_path):
    X, y = np.arange(40.0).reshape(20, 2), labels(20)
    lazy, lazy_y = (unknown(da.from_array(a, chunks=7)) for a in (X, y))
    assert np.isnan(lazy.shape[0])
    dataset = write_dataset(tmp_path / "a.zarr", lazy, lazy_y)
    assert same(dataset.read_rows(0, 20), X)
    assert np.array_equal(dataset.classes[dataset.read_labels()], y)
    in_memory = write_dataset(tmp_path / "b.zarr", lazy, y, sample_weight=np.ones(20))
    assert in_memory.read_weights().sum() == 20
    assert in_memory.fingerprint != dataset.fingerprint  # it has weights


def test_each_block_is_computed_once(tmp_path):
    seen = []

    def note(block):
        seen.append(len(block))
        return sp.csr_matrix(block)

    X = da.from_array(np.eye(30), chunks=(10, 30)).map_blocks(note, meta=sp.csr_matrix((0, 0)))
    with dask.config.set(scheduler="threads"):
        write_dataset(tmp_path / "a.zarr", X, np.arange(30) % 2)
    assert seen == [10, 10, 10]


def test_labels_absent_from_some_blocks(tmp_path):
    y = np.repeat(["b", "a", "dd"], 10)
    lazy = da.from_array(y, chunks=10).map_blocks(lambda part: part.astype("U2"), dtype="U2")
    dataset = write_dataset(tmp_path / "a.zarr", da.from_array(np.eye(30), chunks=(10, 30)), lazy)
    assert dataset.classes.tolist() == ["a", "b", "dd"]
    assert np.array_equal(dataset.classes[dataset.read_labels()], y)


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("kind", ["csr", "dense"])
def test_to_dask_is_lazy_and_blockwise(tmp_path, kind):
    X = sparse_rows() if kind == "csr" else sparse_rows().toarray()
    dataset = write_dataset(tmp_path / "a.zarr", X, labels(), sample_weight=np.arange(200.0))
    lazy, codes = dataset.to_dask()
    assert lazy.chunks == (tuple(np.diff(dataset.row_offsets)), (30,))
    assert codes.chunks == lazy.chunks[:1]
    assert sp.issparse(lazy.partitions[0].compute()) == (kind == "csr")
    assert (lazy.dtype, codes.dtype) == (X.dtype, np.int32)
    assert same(lazy.compute(), X)
    assert same(lazy[15:40].compute(), X[15:40])
    assert np.array_equal(codes.compute(), dataset.read_labels())
    _, names = dataset.to_dask(labels=True)
    assert names.dtype == dataset.classes.dtype
    assert np.array_equal(names.compute(), labels())
    assert np.array_equal(dataset.weights_to_dask().compute(), np.arange(200.0))
    assert lazy.name == open_dataset(tmp_path / "a.zarr").to_dask()[0].name
    assert max(len(pickle.dumps(task)) for task in dict(lazy.dask).values()) < 3000


def test_a_dataset_is_a_source_for_the_next(tmp_path):
    first = write_dataset(tmp_path / "a.zarr", sparse_rows(), labels(), block_rows=30)
    X, y = first.to_dask(labels=True)
    second = write_dataset(tmp_path / "b.zarr", X, y, block_rows=30)
    assert second.fingerprint == first.fingerprint
    assert not (tmp_path / "b.zarr" / "_blocks").exists()


# Others can read it -------------------------------------------------------------------------------


@pytest.mark.usefixtures("tiny")
def test_plain_zarr_reads_anndata_s_layout(tmp_path):
    X = sparse_rows()
    write_dataset(tmp_path / "a.zarr", X, labels())
    group = zarr.open_group(tmp_path / "a.zarr", mode="r")
    assert sorted(group.keys()) == ["X", "y"]
    layout = dict(group["X"].attrs)
    assert layout == {
        "encoding-type": "csr_matrix",
        "encoding-version": "0.1.0",
        "shape": [200, 30],
    }
    data, indices, indptr = (group["X"][name] for name in ("data", "indices", "indptr"))
    assert (indices.dtype, indptr.dtype) == (np.int32, np.int64)
    assert same(sp.csr_matrix((data[:], indices[:], indptr[:]), shape=layout["shape"]), X)
    marker = group.attrs["dask_mcsvm"]
    assert (marker["format_version"], marker["kind"]) == (1, "dataset")
    assert marker["created_by"].startswith("dask_mcsvm ")


def test_a_url_does_as_well_as_a_path():
    url = f"memory://{uuid.uuid4().hex}/a.zarr"
    X = sparse_rows()
    write_dataset(url, X, labels())
    with pytest.raises(FileExistsError, match="exists; pass overwrite=True to replace it"):
        write_dataset(url, X, labels())
    dense = da.from_array(X.toarray(), chunks=(90, 30))
    with dask.config.set(scheduler="threads"):
        second = write_dataset(url, dense, labels(), overwrite=True)
    assert same(second.read_rows(0, 200), X.toarray())
    second.validate()
    assert not second.is_sparse
    assert second.path == url


def test_a_file_url_is_a_path(tmp_path):
    write_dataset(f"file://{tmp_path}/a.zarr", np.eye(2), [0, 1])
    assert open_dataset(tmp_path / "a.zarr").path == str(tmp_path / "a.zarr")


def test_progress_counts_values_up_to_the_end(tmp_path, tiny):
    calls = []
    X = sparse_rows()
    write_dataset(tmp_path / "a.zarr", X, labels(), progress=lambda *call: calls.append(call))
    assert calls == sorted(calls)
    assert len(calls) > 10
    total = 2 * X.nnz + 201 + 200
    assert calls[-1] == (200, total, total)


def test_on_a_cluster(tmp_path, tiny):
    X, y = sparse_rows(), labels()
    serial = write_dataset(tmp_path / "a.zarr", X, y)
    lazy = da.from_array(X.toarray(), chunks=(64, 30)).map_blocks(sp.csr_matrix, dtype=X.dtype)
    with Client(processes=False, n_workers=1, threads_per_worker=2, dashboard_address=None):
        parallel = write_dataset(tmp_path / "b.zarr", lazy, da.from_array(y, chunks=64))
        rows, names = parallel.to_dask(labels=True)
        assert same(rows.compute(), X)
        assert np.array_equal(names.compute(), y)
    assert parallel.fingerprint == serial.fingerprint
