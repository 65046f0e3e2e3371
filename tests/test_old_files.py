"""Models and datasets that release 0.1 wrote load for ever, with the same answers."""

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from dask_mcsvm import LaRankSVC, LinearMCSVC
from dask_mcsvm.storage import describe, open_dataset

FOLDER = Path(__file__).parent / "fixtures" / "v0_1"
EXPECTED = np.load(FOLDER / "expected.npz")
X = sp.csr_matrix(EXPECTED["X"])
CLASSES = ["birnen", "kirschen", "äpfel"]


@pytest.mark.parametrize(
    ("name", "formulation"),
    [
        ("linear-cs", "cs"),
        ("linear-ww", "ww"),
        ("linear-llw", "llw"),
        ("linear-ovr", "ovr"),  # dense weights, stored as CSR
        ("linear-sparse", "cs"),  # CSR weights
        ("linear-parts", "ww"),  # weights in several files
    ],
)
def test_linear_models(name, formulation):
    model = LinearMCSVC.load(FOLDER / f"{name}.zarr")
    scores = np.asarray(model.decision_function(X))
    np.testing.assert_allclose(scores, EXPECTED[name], rtol=1e-5, atol=1e-6)
    assert np.asarray(model.predict(X)).tolist() == EXPECTED[f"{name}-labels"].tolist()
    assert model.classes_.tolist() == CLASSES
    assert model.get_params()["formulation"] == formulation
    assert model.plan_.formulation == model._trained.formulation
    assert sp.issparse(model.coef_) == (name == "linear-sparse")
    assert model.history_[-1]["epoch"] <= model.n_iter_
    assert describe(FOLDER / f"{name}.zarr")["estimator"] == "LinearMCSVC"


def test_notes_and_class_weight_of_a_linear_model():
    model = LinearMCSVC.load(FOLDER / "linear-cs.zarr")
    assert model.notes_ == {"written by": "0.1"}
    assert model.class_weight == {"birnen": 2.0}
    labels = np.array(["äpfel", "birnen", "kirschen"])[EXPECTED["y"]]
    assert model.certify(X, labels).relative_gap <= 0.2


@pytest.mark.parametrize(("name", "rows"), [("larank-rbf", X), ("larank-linear", X.toarray())])
def test_larank_models(name, rows):
    model = LaRankSVC.load(FOLDER / f"{name}.zarr")
    np.testing.assert_allclose(model.decision_function(rows), EXPECTED[name], rtol=1e-5, atol=1e-6)
    assert model.predict(rows).tolist() == EXPECTED[f"{name}-labels"].tolist()
    labels = EXPECTED[f"{name}-labels"]
    assert model.partial_fit(rows[:5], labels[:5]).predict(rows).shape == (60,)


@pytest.mark.parametrize("name", ["rows-csr", "rows-dense"])
def test_datasets(name):
    dataset = open_dataset(FOLDER / f"{name}.zarr")
    dataset.validate()
    is_sparse = name == "rows-csr"
    assert dataset.is_sparse == is_sparse
    blocks = [dataset.read_block(b) for b in range(dataset.n_blocks)]
    rows = sp.vstack(blocks).toarray() if is_sparse else np.vstack(blocks)
    np.testing.assert_array_equal(rows, X.toarray().astype(dataset.dtype))
    labels = dataset.classes[dataset.read_labels()]
    assert labels.tolist() == np.array(["äpfel", "birnen", "kirschen"])[EXPECTED["y"]].tolist()
    assert dataset.classes.tolist() == sorted([*CLASSES, *([] if is_sparse else ["quitten"])])
    weights = dataset.read_weights()
    assert (weights is None) != is_sparse
    if is_sparse:
        np.testing.assert_array_equal(weights, EXPECTED["weights"])
    assert dataset.fingerprint == {"rows-csr": "b3b2b4e7", "rows-dense": "065058b2"}[name]
