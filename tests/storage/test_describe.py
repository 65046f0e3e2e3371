"""What is stored at a path, told without reading it."""

import uuid

import numpy as np
import pytest

from dask_mcsvm.errors import DatasetFormatError, ModelFormatError
from dask_mcsvm.storage import (
    Checkpoint,
    describe,
    encode_classes,
    kind_of,
    open_dataset,
    save_model,
    write_dataset,
)


@pytest.fixture(params=["local", "memory"])
def root(request, tmp_path):
    return str(tmp_path) if request.param == "local" else f"memory://{uuid.uuid4().hex}"


def test_the_kinds_are_told_apart(root):
    write_dataset(f"{root}/d.zarr", np.eye(4), ["a", "b", "a", "b"])
    save_model(f"{root}/m.zarr", {"W": np.ones((4, 2))}, {"classes": encode_classes([0, 1])})
    Checkpoint(f"{root}/fit").write({}, {"epoch": 3})
    assert [kind_of(f"{root}/{name}") for name in ("d.zarr", "m.zarr", "fit", "no")] == [
        "dataset", "model", "checkpoint", None,
    ]  # fmt: skip
    found = describe(f"{root}/d.zarr")
    assert (found["rows"], found["features"], found["classes"]) == (4, 4, 2)
    assert found["fingerprint"] == open_dataset(f"{root}/d.zarr").fingerprint
    assert found["bytes"] > 0
    found = describe(f"{root}/m.zarr")
    assert found["arrays"] == {"W": {"shape": [4, 2], "stored": "dense"}}
    assert found["classes"]["values"] == [0, 1]
    found = describe(f"{root}/fit")
    assert (found["generation"], found["blocks"], found["meta"]) == (1, 0, {"epoch": 3})


def test_what_is_incomplete_or_foreign_is_refused(tmp_path):
    save_model(tmp_path / "m.zarr", {"W": np.ones((4, 2))}, {})
    (tmp_path / "m.zarr/W/c/0/0").unlink()
    with pytest.raises(ModelFormatError, match=r"chunk c/0/0 of W is missing"):
        describe(tmp_path / "m.zarr")
    (tmp_path / "notes").mkdir()
    with pytest.raises(DatasetFormatError, match="not a dataset, model or checkpoint written by"):
        describe(tmp_path / "notes")
    with pytest.raises(FileNotFoundError, match="there is nothing here; check the path"):
        describe(tmp_path / "no")
