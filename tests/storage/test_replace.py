"""Models and datasets replaced while they are read; full disks; paths that are no files."""

import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from dask_mcsvm import LinearMCSVC
from dask_mcsvm.errors import DatasetFormatError, ModelFormatError
from dask_mcsvm.storage import (
    Checkpoint,
    _arrays,
    _read,
    _replace,
    describe,
    load_model,
    load_with_parts,
    open_dataset,
    read_part,
    save_model,
    write_dataset,
)
from dask_mcsvm.storage._owner import owned_name

ROOT = Path(__file__).parents[2]
REPLACED = "the dataset was replaced after it was opened; open it again with open_dataset."


@pytest.fixture(autouse=True)
def in_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def says(text, kind):
    return pytest.raises(kind, match=f"^{re.escape(text)}$")


# All arrays of version v hold v, and their sizes differ, so that a mixture can be told.
WRITER = """
import numpy as np
from dask_mcsvm.storage import _replace, save_model, write_dataset

exchange = _replace._exchange
print("ready", flush=True)
for v in range(2, 22):
    _replace._exchange = exchange if v % 4 < 2 else lambda *_: False  # both ways, in turn
    save_model("m.zarr", {"W": np.full((3 + v % 2, 2), v), "b": np.full(5, v)}, {"v": v},
               overwrite=True)
    write_dataset("train.zarr", np.full((4 + v % 3, 2), v), np.full(4 + v % 3, v % 2),
                  classes=[0, 1], sample_weight=np.full(4 + v % 3, v), overwrite=True)
"""


def write_version(v):
    save_model("m.zarr", {"W": np.full((3 + v % 2, 2), v), "b": np.full(5, v)}, {"v": v},
               overwrite=True)  # fmt: skip
    n = 4 + v % 3
    write_dataset("train.zarr", np.full((n, 2), v), np.full(n, v % 2), classes=[0, 1],
                  sample_weight=np.full(n, v), overwrite=True)  # fmt: skip


def test_another_process_replaces_what_is_read():
    """In one step, and by two renames where a file system has no other way."""
    write_version(1)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", WRITER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as writer:
        assert writer.stdout.readline() == b"ready\n"
        seen = set()
        while writer.poll() is None:
            arrays, meta = load_model("m.zarr")
            assert {*arrays["W"].ravel(), *arrays["b"]} == {meta["v"]}
            seen.add(meta["v"])
            dataset = open_dataset("train.zarr")
            try:
                values = dataset.read_rows(0, dataset.shape[0])
                codes, weights = dataset.read_labels(), dataset.read_weights()
            except DatasetFormatError as error:
                if not str(error).endswith(REPLACED):
                    raise
                continue
            (v,) = {*values.ravel(), *weights}
            assert set(codes) == {v % 2}
    assert writer.returncode == 0
    assert len(seen) > 2
    assert load_model("m.zarr")[1] == {"v": 21}


def test_a_model_replaced_between_its_marker_and_its_arrays(monkeypatch):
    write_version(1)
    check_sizes = _arrays.check_sizes

    def replace_once(*arguments):
        monkeypatch.setattr(_arrays, "check_sizes", check_sizes)
        write_version(2)
        check_sizes(*arguments)

    monkeypatch.setattr(_arrays, "check_sizes", replace_once)
    arrays, meta = load_model("m.zarr")
    assert meta == {"v": 2}
    assert (arrays["W"] == 2).all()


def test_a_model_between_two_renames():
    """Where the system can not exchange names, there is none for a moment, or after a kill."""
    write_version(1)
    for name in ("m.zarr", "train.zarr"):
        os.rename(name, owned_name(f".{name}.replaced-"))
    assert load_model("m.zarr")[1] == {"v": 1}
    dataset = open_dataset("train.zarr")
    with says(f"{dataset.path}: {REPLACED}", DatasetFormatError):
        dataset.read_labels()


def test_names_are_exchanged_in_one_step():
    os.mkdir("a")
    os.mkdir("b")
    Path("a/x").write_text("")
    if not _replace._exchange("a", "b"):
        pytest.skip("this file system can not")
    assert os.listdir("a") == []
    assert os.listdir("b") == ["x"]
    assert not _replace._exchange("a", "no such folder")


@pytest.mark.parametrize("what", ["X/indptr", "X/indices", "X/data", "y", "sample_weight"])
def test_rows_of_two_versions_never_mix(monkeypatch, what):
    """The dataset is replaced after the first arrays were read, and before `what` is."""
    X, y = sp.csr_matrix(np.eye(6)), np.arange(6) % 2
    write_dataset("train.zarr", X, y, sample_weight=np.ones(6))
    dataset = open_dataset("train.zarr")
    dataset.read_labels(0, 1)
    read_values = _read.read_values

    def replace_first(array, name, *rest):
        if name == what:
            monkeypatch.setattr(_read, "read_values", read_values)
            write_dataset("train.zarr", X * 2, 1 - y, sample_weight=2 + y, overwrite=True)
        return read_values(array, name, *rest)

    monkeypatch.setattr(_read, "read_values", replace_first)
    read = {"y": dataset.read_labels, "sample_weight": dataset.read_weights}
    with says(f"{dataset.path}: {REPLACED}", DatasetFormatError):
        read.get(what, lambda: dataset.read_rows(0, 6))()


def test_parts_of_a_model_that_was_replaced():
    parts = [np.full((2, 3), 1.0), np.full((2, 2), 1.0)]
    save_model("m.zarr", {}, {"v": 1}, parts=parts)
    stamps = load_with_parts("m.zarr")[2]
    assert (read_part("m.zarr", 1, stamps[1]) == 1).all()
    save_model("m.zarr", {}, {"v": 2}, parts=[part * 2 for part in parts], overwrite=True)
    text = "m.zarr: the model was replaced after it was loaded; load it again with load."
    with says(text, ModelFormatError):
        read_part("m.zarr", 1, stamps[1])
    os.remove("m.zarr/parts/0/zarr.json")
    text = "m.zarr/parts/0: this part is missing; save it again with save(..., overwrite=True)."
    with says(text, ModelFormatError):
        load_with_parts("m.zarr")


# No room ------------------------------------------------------------------------------------------


@pytest.fixture
def little_room():
    """Files of at most 4 KiB; Python ignores the signal, so that writing fails with EFBIG."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_no_room_names_the_path_and_leaves_nothing(little_room):
    noise = np.random.default_rng(0).random((100, 100))
    checkpoint = Checkpoint("fit")
    writers = {
        "m.zarr": lambda: save_model("m.zarr", {"W": noise}, {}),
        "train.zarr": lambda: write_dataset("train.zarr", noise, np.arange(100) % 2),
        "fit": lambda: checkpoint.write({"W": noise}, {}),
        f"{checkpoint.path}/generation-000001/blocks/W-0": lambda: checkpoint.write_block(
            checkpoint.path, 1, "W-0", {"W": noise}
        ),
    }
    for shown, write in writers.items():
        found = "[Errno 27] File too large; free some space, or choose another path"
        with says(f"{found}: {shown!r}", OSError):
            write()
    assert sorted(os.listdir()) == ["fit"]
    assert checkpoint.read() is None


# What is no file ----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["pipe", "/dev/null", "/dev/zero", "file"])
def test_pipes_devices_and_files_are_no_models(path):
    os.mkfifo("pipe")
    Path("file").write_text("")
    found = "not a model (it holds no zarr.json); save one with save."
    with says(f"{path}: {found}", ModelFormatError):
        LinearMCSVC.load(path)
    found = "not a dataset (it holds no zarr.json); write one with write_dataset."
    with says(f"{path}: {found}", DatasetFormatError):
        open_dataset(path)
    found = "not a dataset, model or checkpoint written by dask_mcsvm; check the path."
    with says(f"{path}: {found}", DatasetFormatError):
        describe(path)
    found = "exists and is not a model written by dask_mcsvm; remove it or choose another path."
    with says(f"{path} {found}", FileExistsError):
        save_model(path, {}, {}, overwrite=True)


def test_a_pipe_in_place_of_a_marker():
    os.makedirs("m.zarr")
    os.mkfifo("m.zarr/zarr.json")
    again = "save it again with save(..., overwrite=True)."
    with says(f"m.zarr: zarr.json is not a file; {again}", ModelFormatError):
        load_model("m.zarr")
