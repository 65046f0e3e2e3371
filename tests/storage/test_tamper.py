"""Damage of every kind to every file: our error with the path, or the same result. Nothing else.

Files are lost, cut off, changed by a bit; values in JSON are replaced. Stores as they are written
now list a checksum of everything; those of release 0.1 have none of their JSON, so that a change
there may be read as what it says, if that is possible.
"""

import json
import os
import random
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from dask_mcsvm import LinearMCSVC
from dask_mcsvm.errors import CheckpointError, DatasetFormatError, ModelFormatError
from dask_mcsvm.storage import (
    Checkpoint,
    check_alike,
    decode_classes,
    load_model,
    open_dataset,
    restoring,
    save_model,
    write_dataset,
)

OLD = Path(__file__).parents[1] / "fixtures" / "v0_1"
ROWS = sp.csr_matrix(np.load(OLD / "expected.npz")["X"])
ERRORS = (CheckpointError, DatasetFormatError, ModelFormatError, FileNotFoundError)
DEEP = "[" * 60 + "]" * 60
VALUES = [
    None, True, "text", -1, 10**12, 10**30, 1e308, [], {}, [1, "a"], json.loads(DEEP),
    {"$float": "x"},
]  # fmt: skip


def read_model(path):
    model = LinearMCSVC.load(path)
    scores = np.asarray(model.decision_function(ROWS))
    attributes = (model.classes_, model.gap_, model.history_, model.notes_, model.get_params())
    return scores.tobytes(), repr(attributes)


def read_dataset(path):
    dataset = open_dataset(path)
    rows = [dataset.read_block(b) for b in range(dataset.n_blocks)]
    rows = sp.vstack(rows).toarray() if dataset.is_sparse else np.vstack(rows)
    weights = dataset.read_weights()
    weights = b"" if weights is None else weights.tobytes()
    rest = (dataset.shape, dataset.classes, dataset.max_row_norm, dataset.row_offsets)
    return rows.tobytes(), dataset.read_labels().tobytes(), weights, repr(rest)


def read_checkpoint(path):
    checkpoint = Checkpoint(path)
    found = checkpoint.read()
    if found is None:  # without its pointer there is none, as before the first commit
        return None
    blocks = [
        checkpoint.read_block(checkpoint.path, checkpoint.generation, name)
        for name in checkpoint.block_names
    ]
    return repr((found, blocks))


def make(what, path):
    """A store as it is written now."""
    if what in ("linear-cs", "linear-sparse", "linear-parts"):
        LinearMCSVC.load(OLD / f"{what}.zarr").save(path)
        return read_model
    if what in ("rows-csr", "rows-dense"):
        old = open_dataset(OLD / f"{what}.zarr")
        y = old.classes[old.read_labels()]
        X = old.read_rows(0, 60)
        write_dataset(path, X, y, sample_weight=old.read_weights(), block_rows=30)
        return read_dataset
    checkpoint = Checkpoint(path)
    generation = checkpoint.begin()
    record = checkpoint.write_block(checkpoint.path, generation, "W-0", {"W": np.eye(3)})
    checkpoint.commit(generation, [record], {"epoch": 3}, {"gaps": np.arange(4.0)})
    return read_checkpoint


def files_of(path):
    return sorted(file for file in path.rglob("*") if file.is_file() and "lock" not in file.name)


def outcome(read, path):
    """What is read, or None for our error; its message begins with the path."""
    try:
        return read(path)
    except ERRORS as error:
        if not str(error).startswith(str(path)):
            raise
        return None


WRITTEN_NOW = [
    "linear-cs", "linear-sparse", "linear-parts", "rows-csr", "rows-dense", "checkpoint",
]  # fmt: skip


@pytest.mark.parametrize("what", WRITTEN_NOW)
def test_lost_short_and_changed_files(tmp_path, what):
    path = tmp_path / "store"
    read = make(what, path)
    whole = read(path)
    rng = random.Random(what)
    for file in files_of(path):
        good = file.read_bytes()
        cuts = {0, len(good) // 2, len(good) - 1}
        flips = rng.sample(range(8 * len(good)), 6)
        changed = [good[:cut] for cut in sorted(cuts)] + [flipped(good, bit) for bit in flips]
        for data in changed:
            file.write_bytes(data)
            assert outcome(read, path) in (None, whole), (file, data)
        file.unlink()
        assert outcome(read, path) in (None, whole), file
        os.mkfifo(file)  # must not be waited for
        assert outcome(read, path) in (None, whole), file
        file.unlink()
        file.write_bytes(good)
    assert read(path) == whole


def flipped(data, bit):
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@pytest.mark.parametrize("what", ["linear-cs", "linear-parts", "rows-csr", "rows-dense"])
def test_flipped_bits_of_release_0_1(tmp_path, what):
    path = tmp_path / "store"
    shutil.copytree(OLD / f"{what}.zarr", path)
    read = read_dataset if what.startswith("rows") else read_model
    whole = read(path)
    rng = random.Random(what)
    for file in files_of(path):
        good = file.read_bytes()
        for bit in rng.sample(range(8 * len(good)), 8):
            file.write_bytes(flipped(good, bit))
            found = outcome(read, path)
            if file.name != "zarr.json":
                assert found is None, (file, bit)
        file.write_bytes(good)
    assert read(path) == whole


@pytest.mark.parametrize(
    "what", ["linear-cs", "linear-sparse", "rows-csr", "rows-dense", "checkpoint"]
)
def test_values_of_json_replaced(tmp_path, what):
    path = tmp_path / "store"
    read = make(what, path)
    files = [file for file in files_of(path) if file.name.endswith(".json")]
    for file in files if what != "checkpoint" else []:  # its pointer holds the marker's checksum
        file.write_text(json.dumps(without_checksums(json.loads(file.read_text()))))
    read(path)
    rng = random.Random(what)
    for file in files:
        good = file.read_text()
        places = list(places_of(json.loads(good)))
        chosen = rng.sample(places, min(len(places), 30 if file.parent == path else 10))
        for place in chosen:
            for value in rng.sample(VALUES, 2):
                file.write_text(json.dumps(replaced(json.loads(good), place, value)))
                outcome(read, path)
        # The groups of matrices are there for other programs, nothing is read from them.
        is_read = "encoding-type" not in good or '"node_type": "array"' in good
        for text in ("", "null", "[]", DEEP, "[" * 100_000, "NaN", good[:-2]):
            file.write_text(text)
            assert (outcome(read, path) is None) == is_read, (file, text[:20])
        file.write_text(good)


def without_checksums(parsed):
    """JSON as release 0.1 wrote it, and as an attacker would."""
    marker = parsed.get("attributes", {}).get("dask_mcsvm", {})
    marker.pop("crc32", None)
    marker.pop("metadata", None)
    return parsed


def places_of(value, at=()):
    if at:
        yield at
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places_of(item, (*at, key))


def replaced(parsed, place, value):
    inner = parsed
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    return parsed


# Claims -------------------------------------------------------------------------------------------


def says(text, kind):
    return pytest.raises(kind, match=f"^{re.escape(text)}$")


def edit(path, change):
    """Change the marker of a store as an attacker would."""
    parsed = without_checksums(json.loads((path / "zarr.json").read_text()))
    change(parsed["attributes"]["dask_mcsvm"])
    (path / "zarr.json").write_text(json.dumps(parsed))


def test_sizes_that_are_not_there_take_no_memory(tmp_path):
    path = tmp_path / "rows.zarr"
    make("rows-dense", path)
    n = 10**12
    edit(path, lambda marker: marker.update(n=n, row_offsets=[0, n]))
    stored = (path / "y" / "c" / "0").stat().st_size
    again = "write it again with write_dataset(..., overwrite=True)."
    found = f"y has shape ({n},), but only {stored} bytes are stored"
    with says(f"{path}: {found}; {again}", DatasetFormatError):
        open_dataset(path)
    path = tmp_path / "model.zarr"
    again = "save it again with save(..., overwrite=True)."
    LinearMCSVC.load(OLD / "linear-cs.zarr").save(path)
    edit(path, lambda marker: marker["arrays"]["W"].update(shape=[n, 3]))
    with says(f"{path}: W has shape (40, 3), its marker says ({n}, 3); {again}", ModelFormatError):
        load_model(path)
    file = path / "W" / "zarr.json"
    file.write_text(file.read_text().replace("40", str(n)))
    stored = (path / "W" / "c" / "0" / "0").stat().st_size
    found = f"W has shape ({n}, 3), but only {stored} bytes are stored"
    with says(f"{path}: {found}; {again}", ModelFormatError):
        load_model(path)
    path = tmp_path / "squeezed.zarr"
    save_model(path, {"W": np.eye(90)}, {})
    edit(path, lambda marker: marker["arrays"]["W"].update(shape=[90, n]))
    found = f"W has shape (90, {n}), more than memory can hold"
    with says(f"{path}: {found}; {again}", ModelFormatError):
        load_model(path)
    labels = {"dtype": "<U100000000", "values": ["a", "b"]}
    with says("the classes claim strings of 100000000 characters", ValueError):
        decode_classes(labels)


def test_a_changed_byte_order_is_no_other_number(tmp_path):
    """Stores of 0.1 list no checksum of the metadata of arrays."""
    path = tmp_path / "rows.zarr"
    shutil.copytree(OLD / "rows-csr.zarr", path)
    file = path / "sample_weight" / "zarr.json"
    file.write_text(file.read_text().replace("little", "big"))
    again = "write it again with write_dataset(..., overwrite=True)."
    with says(f"{path}: zarr.json of sample_weight is damaged; {again}", DatasetFormatError):
        open_dataset(path).read_weights()


@pytest.mark.parametrize(
    ("name", "dtype", "found"),
    [
        ("V", "float64", "arrays ['V'], needed are ['W']"),
        ("W", "float32", "W has shape (3, 2) and dtype float32, needed are (3, 2) and float64"),
    ],
)
def test_a_state_that_is_not_of_this_fit(name, dtype, found):
    again = "remove it and fit again without resume."
    text = f"fit: its state is not one of this fit ({found}); {again}"
    with says(text, CheckpointError), restoring("fit"):
        check_alike({name: np.ones((3, 2), dtype)}, {"W": np.ones((3, 2))})


def test_a_value_that_a_state_lacks():
    text = "fit: its state is not one of this fit ('seed'); remove it and fit again without resume."
    with says(text, CheckpointError), restoring("fit"):
        _ = {}["seed"]
    with says("as it is", CheckpointError), restoring("fit"):
        raise CheckpointError("as it is")
