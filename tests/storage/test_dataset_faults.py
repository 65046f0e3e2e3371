"""Damaged, unfinished and foreign datasets, bad input, killed writers: one sentence each."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
import zlib
from pathlib import Path

import dask
import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
import zarr

from dask_mcsvm.errors import DatasetFormatError
from dask_mcsvm.storage import _write, open_dataset, save_model, write_dataset
from dask_mcsvm.storage._format import DATASET, chunk_key, open_array, read_marker
from dask_mcsvm.storage._place import as_place

X = sp.csr_matrix(np.arange(1.0, 61).reshape(20, 3))
Y = np.arange(20) % 4
AGAIN = "write it again with write_dataset(..., overwrite=True)."


@pytest.fixture
def path(tmp_path, monkeypatch):
    """A dataset of many chunks, by the short name a user in its folder would type."""
    monkeypatch.setattr(_write, "SIZES", _write.Sizes(chunk_entries=10, chunk_rows=6))
    monkeypatch.chdir(tmp_path)
    write_dataset("train.zarr", X, Y)
    return tmp_path / "train.zarr"


def says(text, kind=DatasetFormatError):
    return pytest.raises(kind, match=f"^{re.escape(text)}$")


def edit_marker(path, **changes):
    file = path / "zarr.json"
    meta = json.loads(file.read_text())
    meta["attributes"]["dask_mcsvm"].update(changes)
    meta["attributes"]["dask_mcsvm"].pop("crc32", None)  # stores of 0.1 have none
    file.write_text(json.dumps(meta))


# What opening finds -------------------------------------------------------------------------------


def test_missing_chunk(path):
    (path / "X" / "data" / "c" / "3").unlink()
    with says(f"train.zarr: chunk c/3 of X/data is missing; {AGAIN}"):
        open_dataset("train.zarr")
    open_dataset("train.zarr", verify=False)


def test_truncated_chunk(path):
    chunk = path / "X" / "indices" / "c" / "1"
    size = chunk.stat().st_size
    os.truncate(chunk, size - 5)
    found = f"chunk c/1 of X/indices has {size - 5} bytes, {size} were written"
    with says(f"train.zarr: {found}; {AGAIN}"):
        open_dataset("train.zarr")


def test_truncated_chunk_of_dense_rows(path):
    write_dataset("dense.zarr", X.toarray(), Y)
    os.truncate(path.parent / "dense.zarr" / "X" / "c" / "0" / "0", 0)
    with pytest.raises(DatasetFormatError, match=r"chunk c/0/0 of X has 0 bytes, \d+ were written"):
        open_dataset("dense.zarr")


def test_unfinished(path):
    edit_marker(path, complete=False)
    found = "this dataset was never finished (its commit marker is missing)"
    with says(f"train.zarr: {found}; {AGAIN}"):
        open_dataset("train.zarr")


def test_other_version(path):
    edit_marker(path, format_version=99)
    with says(f"train.zarr: format_version is 99, this release reads 1; {AGAIN}"):
        open_dataset("train.zarr")


def test_damaged_marker(path):
    os.truncate(path / "zarr.json", 100)
    with says(f"train.zarr: zarr.json is damaged; {AGAIN}"):
        open_dataset("train.zarr")


def test_not_a_dataset(path):
    zarr.create_group("other.zarr")
    found = "a Zarr store, but not a dataset written by dask_mcsvm"
    with says(f"other.zarr: {found}; write one with write_dataset."):
        open_dataset("other.zarr")
    Path("folder").mkdir()
    found = "not a dataset (it holds no zarr.json)"
    with says(f"folder: {found}; write one with write_dataset."):
        open_dataset("folder")
    Path("file").write_text("")
    with says(f"file: {found}; write one with write_dataset."):
        open_dataset("file")
    save_model("model.zarr", {}, {})
    with says("model.zarr: found a model, needed a dataset; write one with write_dataset."):
        open_dataset("model.zarr")


def test_nothing_there(path):
    text = "gone.zarr: there is no dataset here; check the path, or write one with write_dataset."
    with says(text, FileNotFoundError):
        open_dataset("gone.zarr")
    url = f"memory://{uuid.uuid4().hex}"
    with pytest.raises(FileNotFoundError, match="there is no dataset here"):
        open_dataset(url)


# What reading finds -------------------------------------------------------------------------------


def change(path, name, at, value):
    """Change a value as an attacker would, who knows of checksums."""
    array = open_array(as_place("train.zarr"), name, write=True)
    array[at] = value
    marker = read_marker(as_place("train.zarr"), DATASET)
    rec = marker["chunks"][name]
    index = at // array.chunks[0]
    stored = (path / name / chunk_key(1, index)).read_bytes()
    rec["bytes"][index], rec["crc32"][index] = len(stored), zlib.crc32(stored)
    edit_marker(path, chunks=marker["chunks"])


def test_label_out_of_range(path):
    change(path, "y", 7, 4)
    dataset = open_dataset("train.zarr")
    found = "y[7] is 4, but the 4 classes have codes 0 to 3"
    with says(f"{path}: {found}; {AGAIN}"):
        dataset.read_labels()
    with says(f"{path}: {found}; {AGAIN}"):
        dataset.to_dask()[1].compute(scheduler="sync")
    assert len(dataset.read_labels(8, 20)) == 12


@pytest.mark.parametrize(
    ("name", "at", "value", "found"),
    [
        ("X/indptr", 3, 1, "X/indptr does not rise in rows 0 to 20"),
        ("X/indptr", 20, 61, "X/indptr ends at 61, behind the last nonzero"),
        ("X/indices", 7, 3, "rows 0 to 20 have a column index outside 0 to 2"),
        ("X/indices", 7, -1, "rows 0 to 20 have a column index outside 0 to 2"),
    ],
)
def test_rows_out_of_bounds(path, name, at, value, found):
    change(path, name, at, value)
    dataset = open_dataset("train.zarr")
    with says(f"{path}: {found}; {AGAIN}"):
        dataset.read_block(0)


@pytest.mark.parametrize("name", ["X/data/c/2", "X/indices/c/0", "X/indptr/c/1", "y/c/3"])
def test_one_changed_bit_is_found_when_it_is_read(path, name):
    stored = bytearray((path / name).read_bytes())
    stored[-1] ^= 1
    (path / name).write_bytes(stored)
    dataset = open_dataset("train.zarr")
    array, _, chunk = name.partition("/c/")
    damaged = f"{path}: chunk c/{chunk} of {array} is damaged (its checksum differs); {AGAIN}"
    X_lazy, y_lazy = dataset.to_dask()
    lazy = y_lazy if array == "y" else X_lazy
    read = dataset.read_labels if array == "y" else lambda: dataset.read_rows(0, 20)
    for what in (read, dataset.validate, lambda: lazy.compute(scheduler="sync")):
        with says(damaged):
            what()
    if name == "y/c/3":  # only what was read counts
        assert len(dataset.read_labels(0, 18)) == 18


@pytest.mark.parametrize("name", ["X/data/c/2", "X/indices/c/2", "X/indptr/c/0", "y/c/1"])
def test_a_chunk_lost_after_opening_does_not_read_as_fill_values(path, name):
    dataset = open_dataset("train.zarr")
    (path / name).unlink()
    array, _, chunk = name.partition("/c/")
    with says(f"{path}: chunk c/{chunk} of {array} is missing; {AGAIN}"):
        dataset.read_labels() if array == "y" else dataset.read_block(0)


def test_a_chunk_that_can_not_be_decoded(path):
    file = path / "X/data/c/1"
    file.write_bytes(b"not blosc".ljust(file.stat().st_size))
    marker = read_marker(as_place("train.zarr"), DATASET)
    marker["chunks"]["X/data"]["crc32"][1] = zlib.crc32(file.read_bytes())
    edit_marker(path, chunks=marker["chunks"])
    with pytest.raises(
        DatasetFormatError, match=r"train.zarr: X/data can not be read \(.+\); write it"
    ):
        open_dataset("train.zarr").read_block(0)


def test_a_column_or_row_out_of_bounds(path):
    dataset = open_dataset("train.zarr")
    shutil.rmtree(path / "X" / "data")
    with says(f"{path}: the array X/data can not be opened; {AGAIN}"):
        dataset.read_block(0)
    shutil.rmtree(path)
    with says(f"{path}: the dataset is gone; check the path.", FileNotFoundError):
        dataset.read_block(0)
    with pytest.raises(IndexError, match="rows 3:21 of a dataset with 20 rows"):
        dataset.read_rows(3, 21)
    with pytest.raises(IndexError, match="block 1 of a dataset with 1 blocks"):
        dataset.read_block(1)


def test_replaced_while_in_use(path):
    dataset = open_dataset("train.zarr")
    lazy, _ = dataset.to_dask()
    write_dataset("train.zarr", X * 2, Y, overwrite=True)
    found = "the dataset was replaced after it was opened; open it again with open_dataset."
    with says(f"{path}: {found}"):
        dataset.read_block(0)
    with says(f"{path}: {found}"):
        lazy.compute(scheduler="sync")


# Bad input changes nothing ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"y": Y[:-1]}, ValueError, "y has 19 rows, X has 20; one per row of X is needed."),
        (
            {"sample_weight": np.ones(3)},
            ValueError,
            "sample_weight has 3 rows, X has 20; one per row of X is needed.",
        ),
        (
            {"classes": [0, 1, 2]},
            ValueError,
            "y holds the label 3, which is not among classes; add it, or leave classes=None.",
        ),
        (
            {"classes": ["a", "b"]},
            TypeError,
            "labels are numbers and strings; they must be of one kind. Use y.astype(str).",
        ),
        (
            {"y": np.array([1, "a"] * 10, dtype=object)},
            TypeError,
            "y mixes labels of type int and str, which have no order. Use y.astype(str).",
        ),
        (
            {"y": np.where(Y == 2, np.nan, 1.0)},
            ValueError,
            "y holds NaN; every row needs a label. Drop those rows first.",
        ),
        (
            {"y": Y.astype("M8[D]")},
            TypeError,
            "class labels have dtype datetime64[D]; they must be strings, integers, floats or "
            "bools. Use y.astype(str).",
        ),
        (
            {"X": np.ma.masked_equal(X.toarray(), X.toarray()[3, 0])},
            ValueError,
            "X has masked values, the first in row 3; fill them, for example with X.filled(0), or "
            "drop those rows.",
        ),
        (
            {"y": np.ma.masked_array(Y, np.arange(20) == 7)},
            ValueError,
            "y has masked values, the first in row 7; fill them, for example with y.filled(0), or "
            "drop those rows.",
        ),
        (
            {"sample_weight": np.ma.masked_array(np.ones(20), np.arange(20) == 7)},
            ValueError,
            "sample_weight has masked values, the first in row 7; fill them, for example with "
            "sample_weight.filled(0), or drop those rows.",
        ),
        (
            {"y": np.ones((20, 2))},
            ValueError,
            "y has 2 dimensions; one label per row is needed, shape (n,).",
        ),
        (
            {"X": np.ones(20)},
            ValueError,
            "X has 1 dimensions; a dataset needs 2. Use X.reshape(len(X), -1).",
        ),
        (
            {"X": np.ones((20, 2), dtype=complex)},
            TypeError,
            "X has dtype complex128; a dataset stores integers, float32 or float64. "
            "Use X.astype('float64').",
        ),
        (
            {"X": np.ones((0, 2)), "y": []},
            ValueError,
            "X has no rows; a dataset needs at least one.",
        ),
        (
            {"X": np.ones((20, 0))},
            ValueError,
            "X has 0 columns; a dataset holds 1 to 2147483647.",
        ),
        ({"block_rows": 0}, ValueError, "block_rows is 0; it must be at least 1, or None."),
        (
            {"X": da.ones((20, 6), chunks=(10, 4))},
            ValueError,
            "X is split along features (chunks 4, 2); rows must stay whole. "
            "Use X.rechunk({1: -1}).",
        ),
        (
            {"X": da.ones((20, 6), chunks=(10, 6)), "y": da.ones(21)},
            ValueError,
            "y has 21 rows, X has 20; one per row of X is needed.",
        ),
        (
            {"X": da.from_array(X.toarray(), chunks=10).map_blocks(
                lambda b: sp.csr_matrix(b) if b[0, 0] == 1 else b, dtype=float)},
            ValueError,
            "X has dense and sparse blocks; they must be of one kind. "
            "Use X.map_blocks(scipy.sparse.csr_matrix).",
        ),
    ],
)  # fmt: skip
def test_bad_input(path, arguments, error, text):
    before = open_dataset("train.zarr").id
    with says(text, error):
        write_dataset("new.zarr", **{"X": X, "y": Y, **arguments})
    with says(text, error):
        write_dataset("train.zarr", **{"X": X, "y": Y, **arguments}, overwrite=True)
    assert os.listdir() == ["train.zarr"]
    assert open_dataset("train.zarr").id == before


def test_blocks_of_unknown_size_that_do_not_match(path):
    unknown = da.from_array(X.toarray(), chunks=(10, 3))
    unknown = unknown[unknown[:, 0] > 0]
    with says(
        "y has 4 chunks, X has 2, and their sizes are unknown; call compute_chunk_sizes() on both.",
        ValueError,
    ):
        write_dataset("new.zarr", unknown, da.from_array(Y, chunks=5))
    with pytest.raises(  # whichever block comes first
        ValueError,
        match=r"^block (0 of y has 9|1 of y has 11) rows, that of X has 10; "
        r"cut them alike with y.rechunk\(\(X.chunks\[0\],\)\).$",
    ):
        write_dataset("new.zarr", unknown, da.from_array(Y, chunks=((9, 11),)))
    assert os.listdir() == ["train.zarr"]


# The target's name --------------------------------------------------------------------------------


def test_an_existing_target_is_refused_or_replaced(path):
    before = open_dataset("train.zarr").id
    with says("train.zarr exists; pass overwrite=True to replace it.", FileExistsError):
        write_dataset("train.zarr", X, Y)
    assert open_dataset("train.zarr").id == before
    assert write_dataset("train.zarr", X, Y, overwrite=True).id != before
    edit_marker(path, format_version=99)  # an old version can be replaced too
    write_dataset("train.zarr", X, Y, overwrite=True).validate()
    assert os.listdir() == ["train.zarr"]


def test_a_foreign_target_is_never_replaced(path):
    Path("thesis").mkdir()
    Path("thesis", "final.tex").write_text("years of work")
    text = "exists and is not a dataset written by dask_mcsvm; remove it or choose another path."
    with says(f"thesis {text}", FileExistsError):
        write_dataset("thesis", X, Y, overwrite=True)
    save_model("model.zarr", {}, {})
    with says(f"model.zarr {text}", FileExistsError):
        write_dataset("model.zarr", X, Y, overwrite=True)
    assert Path("thesis", "final.tex").read_text() == "years of work"


def test_an_empty_folder_is_a_fine_target_and_a_link_stays(path):
    Path("empty").mkdir()
    write_dataset("empty", X, Y)
    os.symlink("empty", "link")
    write_dataset("link", X, Y, overwrite=True)
    assert Path("link").is_symlink()
    assert open_dataset("empty").id == open_dataset("link").id
    assert sorted(os.listdir()) == ["empty", "link", "train.zarr"]


def test_two_writers_of_one_target(path):
    def meanwhile(rows, done, total):
        if done == total:
            write_dataset("new.zarr", X * 2, Y)

    with says("new.zarr exists; pass overwrite=True to replace it.", FileExistsError):
        write_dataset("new.zarr", X, Y, progress=meanwhile)
    assert open_dataset("new.zarr").max_row_norm > 200
    assert sorted(os.listdir()) == ["new.zarr", "train.zarr"]


def test_an_unfinished_url_is_no_dataset_and_is_replaced():
    url = f"memory://{uuid.uuid4().hex}/a.zarr"
    as_place(url).write_bytes(
        "zarr.json",
        json.dumps(
            {
                "zarr_format": 3,
                "node_type": "group",
                "attributes": {
                    "dask_mcsvm": {"kind": "dataset", "format_version": 1, "complete": False}
                },
            }
        ).encode(),
    )
    with pytest.raises(DatasetFormatError, match="never finished"):
        open_dataset(url)
    write_dataset(url, X, Y).validate()


WRITER = """
import sys, threading, time
import numpy as np
from dask_mcsvm.storage import _write, write_dataset

def progress(rows, done, total):
    if done > 30:
        sys.stdout.write(f"{done}\\n")  # in one piece: there are two threads
        sys.stdout.flush()
        time.sleep(600)

def write(name):
    write_dataset(name, np.ones((9, 10)), np.zeros(9, int), overwrite=True, progress=progress)

_write.SIZES = _write.Sizes(dense_bytes=80)
threads = [threading.Thread(target=write, args=[name]) for name in sys.argv[1:]]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def test_a_block_that_is_still_written_when_another_fails_leaves_nothing(path):
    """Threads go on when one has failed: the folder is removed behind the last of them."""
    started = threading.Event()
    folder_was_there = []

    def block(of, block_info=None):
        if block_info[0]["chunk-location"][0] == 0:
            started.wait(60)
            raise RuntimeError("no such row")
        started.set()
        late = time.monotonic() + 0.5
        while list(path.parent.glob(".late.zarr.*")) and time.monotonic() < late:
            time.sleep(0.01)
        folder_was_there.append(any(path.parent.glob(".late.zarr.*")))
        return of

    rows = da.ones((8, 3), chunks=(4, 3)).map_blocks(block, meta=np.ones((0, 0)))
    with dask.config.set(num_workers=2), says("no such row", RuntimeError):
        write_dataset("late.zarr", rows, Y[:8])
    assert folder_was_there == [True]
    assert sorted(file.name for file in path.parent.iterdir()) == ["train.zarr"]


def test_a_killed_writer_leaves_no_dataset_and_the_next_write_succeeds(path):
    names = ["new.zarr", "train.zarr"]  # the second one exists and is being replaced
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, *names],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    try:
        assert [writer.stdout.readline() for _ in names] == [b"40\n"] * 2
    finally:
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
    for name in names:
        left = [entry for entry in os.listdir() if entry.startswith(f".{name}.writing-")]
        assert len(left) == 1
    with pytest.raises(FileNotFoundError):
        open_dataset("new.zarr")
    assert open_dataset("train.zarr").shape == (20, 3)
    for name in names:
        write_dataset(name, X, Y, overwrite=name == "train.zarr").validate()
    assert sorted(os.listdir()) == names


def test_a_target_caught_between_two_renames_comes_back(path):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    host = os.uname().nodename
    os.rename("train.zarr", f".train.zarr.replaced-{host}-{dead.pid}-1-abc")
    os.mkdir(f".train.zarr.writing-{host}-{os.getpid()}--alive")  # somebody's who still writes
    os.mkdir(".train.zarr.writing-elsewhere-1-1-unknown")
    with says("train.zarr exists; pass overwrite=True to replace it.", FileExistsError):
        write_dataset("train.zarr", X, Y)
    open_dataset("train.zarr").validate()
    assert len(os.listdir()) == 3


def test_reading_does_not_slow_down_with_the_marker(path):
    # Tasks must not parse the list of all chunks each time: a process does it once.
    dataset = open_dataset("train.zarr")
    dataset.read_block(0)
    os.remove("train.zarr/zarr.json")
    assert dataset.read_block(0).shape == (20, 3)
    assert len(dataset.read_labels()) == 20
