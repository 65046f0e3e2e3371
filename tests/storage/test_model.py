"""Models come back bit for bit; damaged and foreign ones are refused in one sentence."""

import json
import os
import re
import uuid
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_mcsvm.errors import ModelFormatError
from dask_mcsvm.storage import decode_classes, encode_classes, load_model, save_model
from dask_mcsvm.storage._json import from_json, to_json

AGAIN = "save it again with save(..., overwrite=True)."


@pytest.fixture(autouse=True)
def in_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def says(text, kind=ModelFormatError):
    return pytest.raises(kind, match=f"^{re.escape(text)}$")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("density", [0.0, 0.02, 0.9])
def test_weights_come_back_bit_for_bit(dtype, density):
    rng = np.random.default_rng(0)
    W = np.where(rng.random((300, 7)) < density, rng.standard_normal((300, 7)), 0.0).astype(dtype)
    W[3, 2] = -0.0
    save_model("m.zarr", {"W": W}, {})
    loaded = load_model("m.zarr")[0]["W"]
    assert loaded.dtype == W.dtype
    assert loaded.tobytes() == W.tobytes()
    assert os.path.isdir("m.zarr/W/indptr") == (density < 0.5)  # CSR where that is smaller


def test_sparse_weights_stay_sparse():
    W = sp.random(50, 20, density=0.1, format="csc", random_state=0)
    save_model("m.zarr", {"W": W}, {})
    loaded = load_model("m.zarr")[0]["W"]
    assert isinstance(loaded, sp.csr_array)
    assert (loaded != W).nnz == 0


@pytest.mark.parametrize(
    "values",
    [
        np.float64(3.5),
        np.empty(0, dtype=np.int32),
        np.empty((0, 4)),
        np.arange(6).reshape(3, 2),
        np.arange(24, dtype=np.uint8).reshape(2, 3, 4),
        np.array([True, False]),
        np.asfortranarray(np.arange(6.0).reshape(3, 2)),
        np.arange(3, dtype=">f8"),
        np.arange(3 << 20, dtype=np.float32),  # more than one chunk
    ],
    ids=lambda v: f"{v.dtype.str}{v.shape}",
)
def test_arrays_of_any_shape(values):
    save_model("m.zarr", {"a": values}, {})
    loaded = load_model("m.zarr")[0]["a"]
    assert loaded.shape == values.shape
    assert loaded.dtype == values.dtype.newbyteorder("=")
    assert np.array_equal(loaded, values)


def test_meta_comes_back():
    meta = {
        "parameters": {"C": 1.0, "formulation": "cs", "class_weight": None, "n": np.int64(3)},
        "gap": float("nan"),
        "bounds": (float("-inf"), 1e-300),
        "classes": encode_classes(np.array(["ä", "b"])),
        "ok": np.True_,
    }
    save_model("m.zarr", {}, meta)
    loaded = load_model("m.zarr")[1]
    assert loaded["parameters"] == {"C": 1.0, "formulation": "cs", "class_weight": None, "n": 3}
    assert np.isnan(loaded["gap"])
    assert loaded["bounds"] == [float("-inf"), 1e-300]
    assert decode_classes(loaded["classes"]).tolist() == ["ä", "b"]
    assert loaded["ok"] is True
    json.loads(Path("m.zarr/zarr.json").read_text(), parse_constant=pytest.fail)  # strict JSON


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@settings(max_examples=30)
@given(json_values)
def test_any_json_value_comes_back_and_is_strict(value):
    text = json.dumps(to_json(value), allow_nan=False)
    assert from_json(json.loads(text)) == value


@pytest.mark.parametrize(
    ("arrays", "meta", "text"),
    [
        (
            {},
            {"options": {"solver": [object()]}},
            "meta['options']['solver'][0] is a object; files hold None, strings, numbers, lists "
            "and dicts with string keys only. Pass arrays among the arrays.",
        ),
        (
            {},
            {"w": np.ones(2)},
            "meta['w'] is a ndarray; files hold None, strings, numbers, lists and dicts with "
            "string keys only. Pass arrays among the arrays.",
        ),
        (
            {"classes": np.array(["a"])},
            {},
            "classes has dtype <U1; arrays in files hold numbers only. Put class labels into meta "
            "with encode_classes.",
        ),
    ],
)
def test_what_would_need_pickle_is_refused(arrays, meta, text):
    with says(text, TypeError):
        save_model("m.zarr", arrays, meta)
    assert os.listdir() == []


def test_a_name_is_one_folder():
    text = "'../W' can not name an array; use letters, digits, _ . and - only."
    with says(text, ValueError):
        save_model("m.zarr", {"../W": np.ones(2)}, {})


def test_replacing():
    save_model("m.zarr", {"W": np.ones(2)}, {"C": 1})
    with says("m.zarr exists; pass overwrite=True to replace it.", FileExistsError):
        save_model("m.zarr", {"W": np.zeros(2)}, {"C": 2})
    with pytest.raises(TypeError):
        save_model("m.zarr", {"W": np.zeros(2)}, {"C": object()}, overwrite=True)
    assert load_model("m.zarr")[1] == {"C": 1}
    save_model("m.zarr", {"W": np.zeros(2)}, {"C": 2}, overwrite=True)
    assert load_model("m.zarr")[1] == {"C": 2}
    assert os.listdir() == ["m.zarr"]


def test_a_url():
    url = f"memory://{uuid.uuid4().hex}/m.zarr"
    for C in (1, 2):
        save_model(url, {"W": np.full((2, 3), C)}, {"C": C}, overwrite=True)
        arrays, meta = load_model(url)
        assert meta == {"C": C}
        assert (arrays["W"] == C).all()


def test_damaged_models():
    save_model("m.zarr", {"W": np.ones((2, 3))}, {})
    chunk = "m.zarr/W/c/0/0"
    stored = Path(chunk).read_bytes()
    Path(chunk).write_bytes(stored[:-1] + bytes([stored[-1] ^ 1]))
    with says(f"m.zarr: chunk c/0/0 of W is damaged (its checksum differs); {AGAIN}"):
        load_model("m.zarr")
    os.remove(chunk)
    with says(f"m.zarr: chunk c/0/0 of W is missing; {AGAIN}"):
        load_model("m.zarr")


def test_other_version_unfinished_and_absent():
    text = "m.zarr: there is no model here; check the path, or save one with save."
    with says(text, FileNotFoundError):
        load_model("m.zarr")
    save_model("m.zarr", {}, {})
    marker = Path("m.zarr/zarr.json")
    good = marker.read_text()
    marker.write_text(good.replace('"format_version": 1', '"format_version": 2'))
    with says(f"m.zarr: format_version is 2, this release reads 1; {AGAIN}"):
        load_model("m.zarr")
    marker.write_text(good.replace('"complete": true', '"complete": false'))
    found = "this model was never finished (its commit marker is missing)"
    with says(f"m.zarr: {found}; {AGAIN}"):
        load_model("m.zarr")
