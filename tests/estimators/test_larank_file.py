"""Files of a LaRankSVC that somebody changed: each is refused, or the model is the same."""

import copy
import math
import re
import shutil

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.utils import check_random_state

from dask_mcsvm import LaRankSVC
from dask_mcsvm.errors import ModelFormatError
from dask_mcsvm.storage import load_model, save_model

KINDS = ["rbf", "csr", "linear", "precomputed"]


def make(kind, blobs):
    X, y = blobs()
    rows = {"csr": sp.csr_array(X), "precomputed": X @ X.T + 1.0}.get(kind, X)
    kernel = {"csr": "rbf"}.get(kind, kind)
    weights = {"class_weight": {0: 2.0, 2: 0.5}, "max_support": 20}
    model = LaRankSVC(kernel=kernel, gamma=0.5, **weights, random_state=0)
    return model.fit(rows, y), rows, y


@pytest.fixture(params=KINDS)
def parts(request, blobs, tmp_path):
    """Arrays and meta of a file, and a function that says whether others are the same model."""
    model, rows, y = make(request.param, blobs)
    model.save(tmp_path / "model.zarr")
    arrays, meta = load_model(tmp_path / "model.zarr")
    scores = model.decision_function(rows).tobytes()

    def outcome(arrays, meta):
        try:
            loaded = LaRankSVC._of_parts(arrays, meta)
        except ValueError as error:
            return str(error)
        if loaded.n_features_in_ != model.n_features_in_:  # rows of weight 0 may have been more
            with pytest.raises(ValueError, match="features, but LaRankSVC is expecting"):
                loaded.predict(rows)
            return "no such rows"
        assert loaded.decision_function(rows).tobytes() == scores
        if loaded.kernel != "precomputed" and loaded.kernel == meta["kernel"][0]:
            try:
                loaded.partial_fit(rows[:10], y[:10])
            except ValueError as error:
                assert "overflow" in str(error)  # noqa: PT017
            assert np.isfinite(loaded.decision_function(rows)).all()
        return None

    assert outcome(arrays, meta) is None
    return arrays, meta, outcome


# Arrays -----------------------------------------------------------------------------------------


def shapes_and_types(values):
    """An array of another dtype or shape."""
    for dtype in ("f2", "f4", "f8", "i1", "i4", "i8", "u8", "?", "c16"):
        if values.dtype != np.dtype(dtype):
            with np.errstate(all="ignore"):
                yield values.astype(dtype)
    yield values[:-1]
    yield np.concatenate([values, values[:1]])
    yield values[:0]
    yield values[None]
    yield values.ravel()[0] if values.size else values[None]
    yield sp.csr_array(np.atleast_2d(values))


def bad_values(values):
    """An array with one number that cannot be."""
    bad = [np.nan, np.inf, -np.inf] if values.dtype.kind == "f" else [np.iinfo(values.dtype).max]
    if values.dtype.kind == "i":
        bad += [-1, np.iinfo(values.dtype).min]
    for place in sorted({0, values.size // 2, values.size - 1}):
        for value in bad:
            changed = values.copy()
            changed.ravel()[place] = value
            yield changed


def test_arrays_of_other_shapes_and_dtypes_are_refused(parts):
    arrays, meta, outcome = parts
    for name, values in arrays.items():
        others = {other: array for other, array in arrays.items() if other != name}
        assert outcome(others, meta), f"without {name}"
        if sp.issparse(values):
            continue
        for changed in shapes_and_types(values):
            # rows (P, 0) of a precomputed kernel
            if values.size or np.shape(changed) != values.shape or changed.dtype != values.dtype:
                assert outcome(others | {name: changed}, meta), (name, changed)


def test_numbers_that_cannot_be_are_refused(parts):
    arrays, meta, outcome = parts
    for name, values in arrays.items():
        if sp.issparse(values) or values.dtype.kind == "u" or not values.size:
            continue
        for changed in bad_values(values):
            found = outcome(arrays | {name: changed}, meta)
            assert found or name == "counts", (name, changed)  # what was counted may be large


def test_what_does_not_belong_together_is_refused(parts):
    arrays, meta, outcome = parts

    def changed(name, change):
        values = copy.deepcopy(arrays[name])
        change(values)
        return outcome(arrays | {name: values}, meta)

    def swap(values):
        values[[0, -1]] = values[[-1, 0]]

    def set_first(value):
        return lambda values: values.__setitem__(0, value)

    twice = set_first(arrays["ids"][1])
    assert changed("ids", twice) == "ids has a number twice"
    assert changed("support", twice) == "support are not numbers of rows"
    label = arrays["label"]
    assert changed("label", set_first((label[0] + 1) % 3)) == "classes do not begin with the label"
    assert changed("classes", lambda classes: classes.__setitem__(1, classes[0])) == (
        "a pattern has a class twice"
    )
    assert changed("beta", lambda beta: beta.__imul__(-1)) == "beta is outside of its bounds"
    assert changed("beta", set_first(1e-3)) == "beta of a pattern does not sum to zero"
    assert changed("cost", lambda cost: cost.__imul__(1e-6)) == "beta is outside of its bounds"
    assert changed("held", lambda held: held.__iadd__(1)).startswith(("held is not", "classes has"))
    assert changed("counts", set_first(3)) == "counts are not those of the patterns"
    if "place" in arrays:
        assert changed("place", set_first(arrays["place"][0] + 1)) == (
            "place does not number the classes' vectors"
        )
        assert changed("norms", lambda norms: norms.__iadd__(1)).startswith("norms are not")
    if meta["kernel"][0] != "precomputed":
        assert changed("square", set_first(7.0)) == "square is not that of the rows"
    if "W" in arrays:
        assert changed("W", lambda W: W[-1].__iadd__(1)) == (
            "W has weights of a column that is not there"
        )
    if sp.issparse(arrays["rows"]):
        assert changed("rows", lambda rows: swap(rows.indices[:2])) == (
            "rows have columns out of order or twice"
        )
        assert changed("rows", lambda rows: rows.data.__setitem__(0, np.nan)) == (
            "rows have NaN or infinity"
        )
        assert changed("rows", lambda rows: rows.indices.__setitem__(0, 99))
        assert outcome(arrays | {"rows": arrays["rows"].toarray()}, meta) == "rows are not CSR"


# JSON -------------------------------------------------------------------------------------------

VALUES = [
    None, True, -1, 0, 1, 3, 2**31, 10**30, 10**400, -0.5, 1e308, math.nan, math.inf, "", "rbf",
    "x" * 1000, [], {}, [[]], [None], [1, 1, 1, 1], {"dtype": "<i8"}, {"dtype": "O", "values": 3},
    {"dtype": "<i8", "values": [2, 1, 0]}, {"dtype": "f8", "values": ["a", "b", "c"]},
    {"dtype": "nonsense", "values": [0, 1, 2]}, {"values": [], "dtype": "<i8"},
]  # fmt: skip


def places(meta, at=()):
    """Paths to every value of nested dicts and lists."""
    items = meta.items() if isinstance(meta, dict) else enumerate(meta)
    for key, value in items:
        yield *at, key
        if isinstance(value, dict | list):
            yield from places(value, (*at, key))


def with_value(meta, path, value):
    changed = copy.deepcopy(meta)
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    if value is KeyError:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return changed


def test_json_that_is_missing_or_of_another_kind_is_refused_or_harmless(parts):
    arrays, meta, outcome = parts
    known = [path for path in places(meta) if path[0] not in ("history_", "estimator")]
    # Any name of a layer is one, until rows come that have none.
    known.remove(layer := ("parameters", "layer"))
    assert outcome(arrays, with_value(meta, layer, 3)).startswith("layer is 3; it must be")
    assert outcome(arrays, with_value(meta, layer, KeyError)) is None
    for path in known:
        fewer = outcome(arrays, with_value(meta, path, KeyError))
        # A weight less is a model still, and without margins all mistakes cost alike.
        assert fewer or path[1:2] in (("class_weight",), ("margins",)), path
        found = [outcome(arrays, with_value(meta, path, value)) for value in VALUES]
        harmless = path == ("parameters", "callbacks")  # no file holds any
        assert harmless or sum(map(bool, found)) >= len(VALUES) // 3, (path, found)
    assert outcome(arrays, meta | {"names": list("abcd")}).startswith("the number of names is 4, ")


def test_a_refused_file_is_named_in_the_error(blobs, tmp_path):
    model, _, _ = make("rbf", blobs)
    path = tmp_path / "model.zarr"
    model.save(path)
    arrays, meta = load_model(path)
    again = "save it again with save(..., overwrite=True)."
    found = {
        "beta has NaN or infinity": (arrays | {"beta": arrays["beta"] * np.nan}, meta),
        "run: max_support is -1": (arrays, with_value(meta, ("run", "max_support"), -1)),
        "C is -1; it must be a finite number above 0, for example C=1.0.": (
            arrays, with_value(meta, ("parameters", "C"), -1)
        ),
        "the parameter 'turbo' is not known": (
            arrays, with_value(meta, ("parameters", "turbo"), True)
        ),
    }  # fmt: skip
    for what, parts in found.items():
        shutil.rmtree(path)
        save_model(path, *parts)
        message = f"{path}: its parts do not make a LaRankSVC ({what}); {again}"
        with pytest.raises(ModelFormatError, match=f"^{re.escape(message)}$"):
            LaRankSVC.load(path)


def test_what_could_not_be_loaded_is_not_saved(blobs, tmp_path):
    model, _, _ = make("rbf", blobs)
    state = check_random_state(None).get_state()[1].tobytes()
    for bad, message in [
        ({"C": -1}, "C is -1; it must be a finite number above 0, for example C=1.0."),
        ({"class_weight": {9: 1.0}}, "class_weight has key(s) that are no class of y (9); the "
         "classes are 0, 1, 2: remove the key, or name the class in fit(..., classes=...)."),
    ]:  # fmt: skip
        changed = copy.deepcopy(model).set_params(**bad)
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            changed.save(tmp_path / "model.zarr")
    assert list(tmp_path.iterdir()) == []
    model.set_params(random_state=None).save(tmp_path / "model.zarr")
    LaRankSVC.load(tmp_path / "model.zarr")
    assert check_random_state(None).get_state()[1].tobytes() == state  # nobody asked for one


def test_the_checkpoint_of_a_fit_is_not_of_its_model(blobs, tmp_path):
    X, y = blobs()
    rows, labels = da.from_array(X, chunks=(20, -1)), da.from_array(y, chunks=20)
    model = LaRankSVC(checkpoint=tmp_path / "fit", resume=True, random_state=0).fit(rows, labels)
    model.save(tmp_path / "model.zarr")
    loaded = LaRankSVC.load(tmp_path / "model.zarr")
    assert (loaded.checkpoint, loaded.resume) == (None, False)
    assert loaded.decision_function(X).tobytes() == model.decision_function(X).tobytes()
