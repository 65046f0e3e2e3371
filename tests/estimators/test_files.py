"""Model files and exports: the same model comes back, and nothing else does."""

import json
import os
import pickle
import re
import shutil
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.svm import LinearSVC

from dask_mcsvm import LinearMCSVC
from dask_mcsvm.errors import ModelFormatError
from dask_mcsvm.storage import save_model

AGAIN = "save it again with save(..., overwrite=True)."


@pytest.fixture(autouse=True)
def in_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def says(text, kind=ModelFormatError):
    return pytest.raises(kind, match=f"^{re.escape(text)}$")


def edit_marker(change):
    """Change the JSON of m.zarr by hand, as nobody should; its checksum goes, as in 0.1."""
    path = Path("m.zarr/zarr.json")
    text = json.loads(path.read_text())
    change(text["attributes"]["dask_mcsvm"])
    text["attributes"]["dask_mcsvm"].pop("crc32")
    path.write_text(json.dumps(text))


# Save and load ----------------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 4])
def test_the_same_model_comes_back(blobs, formulation, n_classes):
    X, y = blobs(n_classes)
    model = LinearMCSVC(formulation=formulation, C=0.5, random_state=0).fit(X, y)
    model.save("m.zarr")
    loaded = LinearMCSVC.load("m.zarr")
    assert loaded.get_params() == model.get_params()
    for name in ("coef_", "intercept_", "classes_"):
        assert getattr(loaded, name).dtype == getattr(model, name).dtype
        assert getattr(loaded, name).tobytes() == getattr(model, name).tobytes()
    left_out = {"coef_", "intercept_", "classes_", "_trained", "notes_", "_versions"}
    for name in set(vars(loaded)) - left_out:
        assert getattr(loaded, name) == getattr(model, name), name
    assert {n for n in vars(model) if n.endswith("_")} <= set(vars(loaded))
    np.testing.assert_array_equal(loaded.decision_function(X), model.decision_function(X))
    assert loaded.coef_.T.flags.c_contiguous
    assert loaded.certify(X, y) == model.certify(X, y)


def test_labels_names_and_weights_come_back(blobs):
    X, y = blobs(dtype=np.float32)
    labels = np.array(["zwölf", "ääh", "b" * 40])[y]
    frame = pd.DataFrame(X, columns=[f"feature {i}" for i in range(5)])
    given = {"class_weight": {"zwölf": 2.0, "ääh": np.float64(0.5)}, "dtype": np.float32}
    model = LinearMCSVC(**given, random_state=np.random.RandomState(0), callbacks=(print,))
    model.fit(frame, labels).save("m.zarr", notes={"rows": 90})
    loaded = LinearMCSVC.load("m.zarr")
    assert loaded.class_weight == {"zwölf": 2.0, "ääh": 0.5}
    assert (loaded.dtype, loaded.random_state, loaded.callbacks) == ("float32", None, ())
    assert loaded.feature_names_in_.tolist() == frame.columns.tolist()
    assert loaded.predict(frame).tolist() == model.predict(frame).tolist()
    assert loaded.certify(frame, labels) == model.certify(frame, labels)
    assert loaded.notes_ == {"rows": 90}
    loaded.save("again.zarr")
    assert LinearMCSVC.load("again.zarr").notes_ == {"rows": 90}


def test_integer_class_weights_keep_their_type(blobs):
    X, y = blobs()
    options = {"schedule": "uniform", "cooling": False}
    model = LinearMCSVC(class_weight={1: 2.0}, solver_options=options, random_state=0).fit(X, y)
    model.save("m.zarr")
    loaded = LinearMCSVC.load("m.zarr")
    assert loaded.class_weight == {1: 2.0}
    assert loaded.solver_options == options
    assert clone(loaded).fit(X, y).coef_.tobytes() == model.coef_.tobytes()


def test_a_new_fit_forgets_the_notes_and_versions_of_the_file(blobs):
    X, y = blobs()
    LinearMCSVC(random_state=0).fit(X, y).save("m.zarr", notes={"rows": "old"})
    loaded = LinearMCSVC.load("m.zarr").fit(X, y)
    assert not {"notes_", "_versions"} & set(vars(loaded))


def test_the_history_of_a_fit_on_a_cluster_comes_back(blobs):
    model = LinearMCSVC(random_state=0).fit(*blobs())
    model.history_[0] |= {"task_seconds": {"cs-solve": 0.25}, "bytes": 12}
    model.save("model.zarr")
    assert LinearMCSVC.load("model.zarr").history_ == model.history_


def test_weights_are_stored_sparse_where_that_is_smaller():
    X = sp.random(200, 3000, density=0.01, format="csr", random_state=0)
    model = LinearMCSVC(random_state=0).fit(X, np.arange(200) % 20)
    model.save("dense.zarr")
    assert os.path.isdir("dense.zarr/W/indptr") == (model.density_ < 0.6)
    sparse = pickle.loads(pickle.dumps(model)).sparsify()
    sparse.save("m.zarr")
    loaded = LinearMCSVC.load("m.zarr")
    assert isinstance(loaded.coef_, sp.csr_array)
    assert (loaded.coef_ != sparse.coef_).nnz == 0
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


def test_an_existing_path_is_refused_unless_asked_for(blobs):
    X, y = blobs()
    model = LinearMCSVC(random_state=0).fit(X, y)
    model.save("m.zarr")
    with says("m.zarr exists; pass overwrite=True to replace it.", FileExistsError):
        model.save("m.zarr")
    model.set_params(C=0.1).fit(X, y).save("m.zarr", overwrite=True)
    assert LinearMCSVC.load("m.zarr").C == 0.1
    Path("thesis.txt").write_text("four years")
    text = (
        "thesis.txt exists and is not a model written by dask_mcsvm; remove it or choose another "
        "path."
    )
    with says(text, FileExistsError):
        model.save("thesis.txt", overwrite=True)
    assert Path("thesis.txt").read_text() == "four years"


@pytest.mark.parametrize("when", ["first array", "marker"])
def test_a_failed_save_leaves_the_old_model_whole(blobs, monkeypatch, when):
    X, y = blobs()
    model = LinearMCSVC(random_state=0).fit(X, y)
    model.save("m.zarr")

    def no_space(*_args, **_kwargs):
        raise OSError(28, "No space left on device")

    name = {"first array": "write_array", "marker": "finish"}[when]
    monkeypatch.setattr(f"dask_mcsvm.storage._arrays.{name}", no_space)
    text = "[Errno 28] No space left on device; free some space, or choose another path: 'm.zarr'"
    with says(text, OSError):
        clone(model).set_params(C=0.1).fit(X, y).save("m.zarr", overwrite=True)
    assert LinearMCSVC.load("m.zarr").coef_.tobytes() == model.coef_.tobytes()
    assert os.listdir() == ["m.zarr"]


def test_only_fitted_models_are_saved():
    with pytest.raises(NotFittedError):
        LinearMCSVC().save("m.zarr")
    assert os.listdir() == []


def test_what_is_no_model_is_refused(blobs):
    text = "m.zarr: there is no model here; check the path, or save one with save."
    with says(text, FileNotFoundError):
        LinearMCSVC.load("m.zarr")
    save_model("m.zarr", {}, {"estimator": "LaRankSVC"})
    with says("m.zarr: holds a LaRankSVC, not a LinearMCSVC; load it with LaRankSVC.load."):
        LinearMCSVC.load("m.zarr")
    save_model("m.zarr", {}, {}, overwrite=True)
    with says(
        "m.zarr: holds a model of another kind, not a LinearMCSVC; load it with "
        "dask_mcsvm.storage.load_model."
    ):
        LinearMCSVC.load("m.zarr")


def test_other_versions_and_damage_give_one_sentence(blobs):
    X, y = blobs()
    model = LinearMCSVC(random_state=0).fit(X, y)
    model.save("m.zarr")
    edit_marker(lambda marker: marker.update(format_version=7))
    with says(f"m.zarr: format_version is 7, this release reads 1; {AGAIN}"):
        LinearMCSVC.load("m.zarr")
    model.save("m.zarr", overwrite=True)
    edit_marker(lambda marker: marker["meta"]["parameters"].update(turbo=True))
    with says(
        "m.zarr: has the parameter 'turbo', which this release does not know; load it with the "
        "release that saved it, or a later one."
    ):
        LinearMCSVC.load("m.zarr")
    model.save("m.zarr", overwrite=True)
    edit_marker(lambda marker: marker["meta"]["classes"].update(values=[0, 1]))
    with pytest.raises(ModelFormatError, match=r"its parts do not make a LinearMCSVC \(2 classes "):
        LinearMCSVC.load("m.zarr")
    model.save("m.zarr", overwrite=True)
    edit_marker(lambda marker: marker["meta"].pop("trained"))
    with says(f"m.zarr: its parts do not make a LinearMCSVC ('trained'); {AGAIN}"):
        LinearMCSVC.load("m.zarr")


def test_truncated_weights_are_refused(blobs):
    X, y = blobs()
    LinearMCSVC(random_state=0).fit(X, y).save("m.zarr")
    chunk = Path("m.zarr/W/c/0/0")
    stored = chunk.read_bytes()
    chunk.write_bytes(stored[:-3])
    found = f"chunk c/0/0 of W has {len(stored) - 3} bytes, {len(stored)} were written"
    with says(f"m.zarr: {found}; {AGAIN}"):
        LinearMCSVC.load("m.zarr")


class Bomb:
    """What an attacker would pickle."""

    def __reduce__(self):
        return (os.mkdir, ("executed",))


def test_an_array_that_asks_for_pickle_is_not_unpickled(blobs, monkeypatch):
    # Recent releases of numcodecs refuse by default; the promise must not depend on its release.
    monkeypatch.setattr("numcodecs.pickles.ALLOW_UNSAFE_PICKLE_DECODE", True, raising=False)
    X, y = blobs()
    LinearMCSVC(random_state=0).fit(X, y).save("m.zarr")
    shutil.rmtree("m.zarr/W")
    os.mkdir("m.zarr/W")
    Path("m.zarr/W/0.0").write_bytes(pickle.dumps(Bomb()))
    described = {"shape": [5, 3], "chunks": [5, 3], "dtype": "|O", "fill_value": "", "order": "C"}
    filters = [{"id": "vlen-utf8"}, {"id": "pickle", "protocol": 5}]
    described |= {"zarr_format": 2, "compressor": None, "filters": filters}
    Path("m.zarr/W/.zarray").write_text(json.dumps(described))
    edit_marker(lambda marker: marker["chunks"].pop("W"))
    with says(f"m.zarr: the array W can not be opened; {AGAIN}"):
        LinearMCSVC.load("m.zarr")
    assert not Path("executed").exists()


def test_a_plan_of_another_release_does_not_keep_a_model_from_loading(blobs):
    X, y = blobs()
    LinearMCSVC(random_state=0).fit(X, y).save("m.zarr")
    edit_marker(lambda marker: marker["meta"]["plan"].update(shards=4))
    loaded = LinearMCSVC.load("m.zarr")
    assert loaded.plan_ is None
    loaded.save("again.zarr")
    assert LinearMCSVC.load("again.zarr").plan_ is None


@pytest.mark.parametrize("tool", ["pickle", "joblib"])
def test_pickle_and_joblib_work_too(blobs, tool):
    X, y = blobs()
    model = LinearMCSVC(warm_start=True, random_state=0).fit(X, y)
    if tool == "pickle":
        again = pickle.loads(pickle.dumps(model))
    else:
        joblib.dump(model, "m.joblib")
        again = joblib.load("m.joblib", mmap_mode="r")  # weights that can't be written to
    np.testing.assert_array_equal(again.decision_function(X), model.decision_function(X))
    assert again.certify(X, y) == model.certify(X, y)


# LinearSVC --------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_the_linear_svc_scores_and_predicts_the_same(blobs, formulation, n_classes, fit_intercept):
    X, y = blobs(n_classes)
    labels = np.array(["a", "b", "c", "d"])[y]
    model = LinearMCSVC(formulation=formulation, fit_intercept=fit_intercept, random_state=0)
    model.fit(X, labels)
    svc = model.to_linear_svc()
    assert svc.coef_.shape == (1 if n_classes == 2 else n_classes, 5)
    for rows in (X, sp.csr_matrix(X)):
        expected = model.decision_function(rows)
        np.testing.assert_allclose(svc.decision_function(rows), expected, rtol=1e-12, atol=1e-13)
        np.testing.assert_array_equal(svc.predict(rows), model.predict(rows))
    sparse = model.sparsify().to_linear_svc()
    np.testing.assert_allclose(sparse.decision_function(X), svc.decision_function(X), atol=1e-13)


@pytest.mark.parametrize("formulation", ["crammer_singer", "one_vs_rest"])
def test_the_parameters_of_the_linear_svc_pose_the_same_problem(blobs, formulation):
    X, y = blobs()
    model = LinearMCSVC(
        formulation=formulation, C=0.3, intercept_scaling=2.0, tol=1e-8, random_state=0
    ).fit(X, y, sample_weight=np.arange(90) % 3 + 1.0)
    svc = model.to_linear_svc()
    again = clone(svc).set_params(tol=1e-8, max_iter=100_000, random_state=0)
    again.fit(X, y, sample_weight=np.arange(90) % 3 + 1.0)
    assert isinstance(svc, LinearSVC)
    np.testing.assert_allclose(svc.coef_, again.coef_, atol=1e-3)
    np.testing.assert_allclose(svc.intercept_, again.intercept_, atol=1e-3)


def test_the_linear_svc_is_a_copy(blobs):
    X, y = blobs()
    model = LinearMCSVC(random_state=0).fit(pd.DataFrame(X, columns=list("abcde")), y)
    svc = model.to_linear_svc()
    svc.coef_[:] = 0
    svc.intercept_[:] = 0
    assert model.coef_.any()
    assert model.intercept_.any()
    assert svc.feature_names_in_.tolist() == list("abcde")
