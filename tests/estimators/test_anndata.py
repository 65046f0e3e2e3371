"""AnnData, its files and xarray as X: the fit of the arrays they hold, with the names of genes."""

import pickle
import re
import warnings
from itertools import pairwise

import anndata
import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import xarray
import zarr
from training.sets import small_set

from dask_mcsvm import LaRankSVC, LinearMCSVC
from dask_mcsvm.storage import open_elements, write_dataset

# anndata looks at Zarr through names that Zarr has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
X, CODES = small_set()
X = sp.csr_matrix(X.astype(np.float32))
KINDS = np.array(["ash", "birch", "cedar", "oak"])[CODES]
GENES = [f"gene{i}" for i in range(X.shape[1])]


def svm(**parameters):
    return LinearMCSVC(**{"max_epochs": 3, "tol": 0, "random_state": 0} | parameters)


def says(sentence, kind=ValueError):
    return pytest.raises(kind, match="^" + re.escape(sentence) + "$")


@pytest.fixture(autouse=True)
def one_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


def cells():
    """An AnnData of the small set, with a layer of twice its counts."""
    obs = pd.DataFrame(
        {
            "kind": pd.Categorical(KINDS),
            "code": CODES,
            "weight": 1.0 + CODES,
            "gaps": pd.Categorical(np.where(np.arange(CODES.size) == 7, None, KINDS)),
            "nullable": pd.array(CODES, dtype="Int64"),
        },
        index=[f"cell{i}" for i in range(CODES.size)],
    )
    var = pd.DataFrame(index=GENES)
    adata = anndata.AnnData(X, obs=obs, var=var, layers={"twice": (2 * X).toarray()})
    adata.obsm["X_pca"] = X.toarray()[:, :2]
    adata.raw = adata[:, :4].copy()
    return adata


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The same in files of three formats."""
    folder, adata = tmp_path_factory.mktemp("cells"), cells()
    adata.write_h5ad(folder / "cells.h5ad")
    for version in (2, 3):
        write_zarr(adata, folder / f"v{version}.zarr", version)
    return folder


def write_zarr(adata, path, version=3, **how):
    """Without what anndata tells of defaults to come, and Zarr of what anndata does."""
    with warnings.catch_warnings(), anndata.settings.override(zarr_write_format=version):
        warnings.simplefilter("ignore")
        adata.write_zarr(path, **how)


@pytest.fixture(scope="module")
def usual():
    """The fit of the arrays, in memory and in one chunk."""
    with dask.config.set(scheduler="synchronous"):
        lazy = da.from_array(X.toarray(), chunks=-1).map_blocks(sp.csr_matrix)
        return svm().fit(X, KINDS), svm().fit(lazy, KINDS)


FORMS = {
    "memory": lambda folder: cells(),
    "h5ad": lambda folder: str(folder / "cells.h5ad"),
    "zarr 2": lambda folder: folder / "v2.zarr",
    "zarr 3": lambda folder: str(folder / "v3.zarr"),
    "group": lambda folder: zarr.open_group(folder / "v3.zarr", mode="r"),
    "store": lambda folder: zarr.storage.LocalStore(folder / "v2.zarr", read_only=True),
    "backed": lambda folder: anndata.read_h5ad(folder / "cells.h5ad", backed="r"),
    "lazy zarr": lambda folder: anndata.experimental.read_lazy(folder / "v3.zarr"),
    "lazy h5ad": lambda folder: anndata.experimental.read_lazy(folder / "cells.h5ad"),
}


@pytest.mark.parametrize("form", list(FORMS))
def test_every_form_of_anndata_trains_the_same_model(folder, usual, form):
    given = FORMS[form](folder)
    model = svm().fit(given, y="obs/kind")
    expected = usual[form != "memory"]
    assert model.coef_.tobytes() == expected.coef_.tobytes()
    assert model.classes_.tolist() == expected.classes_.tolist()
    assert model.feature_names_in_.tolist() == GENES
    np.testing.assert_array_equal(model.predict(given), expected.predict(X))
    assert model.score(given, "obs/kind") == np.mean(expected.predict(X) == KINDS)


def test_other_columns_are_labels_and_weights(folder):
    weighted = svm().fit(cells(), "obs/code", sample_weight="obs/weight")
    plain = svm().fit(X, CODES, sample_weight=1.0 + CODES)
    assert weighted.coef_.tobytes() == plain.coef_.tobytes()
    for form in ("cells.h5ad", "v2.zarr"):
        elements = open_elements(folder / form)
        assert elements.column("obs/nullable").tolist() == CODES.tolist()
        assert elements.column("obs/weight").tolist() == (1.0 + CODES).tolist()
        assert elements.column("obs/_index")[3] == "cell3"


@pytest.mark.parametrize("form", ["memory", "h5ad", "zarr 3", "lazy zarr"])
def test_a_missing_label_is_refused_with_its_row(folder, form):
    with says(
        "y has no label in row 7; every row needs a label: drop the others with X[keep], y[keep]."
    ):
        svm().fit(FORMS[form](folder), "obs/gaps")


@pytest.mark.parametrize(("layer", "rows", "names"), [
    ("twice", 2 * X, GENES), ("layers/twice", 2 * X, GENES), ("obsm/X_pca", X[:, :2], None),
    ("raw/X", X[:, :4], GENES[:4]),
])  # fmt: skip
@pytest.mark.parametrize("form", ["memory", "h5ad", "zarr 2"])
def test_a_layer_has_the_rows(folder, form, layer, rows, names):
    given = FORMS[form](folder)
    model = svm(layer=layer).fit(given, "obs/kind")
    assert model.n_features_in_ == rows.shape[1]
    found = getattr(model, "feature_names_in_", None)
    assert (None if found is None else found.tolist()) == names
    expected = rows @ model.coef_.T + model.intercept_
    np.testing.assert_allclose(model.decision_function(given), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("form", ["memory", "zarr 3"])
def test_genes_are_matched_at_predict(folder, form):
    model = svm().fit(FORMS[form](folder), "obs/kind")
    start = "The feature names should match those that were passed during fit; "
    end = ": type X[:, model.feature_names_in_]."
    with says(f"{start}they are the same in another order{end}"):
        model.predict(cells()[:, ::-1])
    other = cells()
    other.var_names = ["new", *GENES[1:]]
    with says(f"{start}1 missing ('gene0') and 1 unknown ('new'){end}"):
        model.predict(other)
    shuffled = cells()[:, ::-1].copy()
    again = model.predict(shuffled[:, model.feature_names_in_])
    np.testing.assert_array_equal(again, model.predict(cells()))
    plain = svm().fit(X, KINDS)
    with pytest.warns(UserWarning, match="X has feature names, but LinearMCSVC was fitted without"):
        plain.predict(cells())


def test_other_methods_take_anndata(folder):
    path = str(folder / "v3.zarr")
    model = svm().fit(path, "obs/kind")
    assert model.certify(path, "obs/kind").primal == pytest.approx(model.primal_)
    assert model.certify(cells(), "obs/kind").primal == pytest.approx(model.primal_)
    assert model.certain(path).compute().shape == KINDS.shape
    assert model.predict_topk(cells(), 2).shape == (KINDS.size, 2)
    assert "crammer_singer" in model.explain(path, "obs/kind")
    found = svm().path(path, "obs/kind", [0.1, 1.0], validation=(cells(), "obs/kind"))
    assert found.best_.feature_names_in_.tolist() == GENES
    (fit,) = dask.compute(svm().fit_delayed(path, "obs/kind"))
    assert fit.coef_.tobytes() == model.coef_.tobytes()
    larank = LaRankSVC(kernel="linear", layer="twice", random_state=0)
    by_path, by_hand = larank.fit(path, "obs/kind").coef_, 2 * X.toarray()
    memory = LaRankSVC(kernel="linear", random_state=0).fit(da.from_array(by_hand, (-1, -1)), KINDS)
    np.testing.assert_array_equal(by_path, memory.coef_)
    stream = LaRankSVC(kernel="linear", random_state=0)
    stream.partial_fit(cells(), "obs/kind", classes=np.unique(KINDS))
    assert stream.feature_names_in_.tolist() == GENES


def test_rows_in_files_are_read_by_blocks(folder, monkeypatch):
    """A block is as large as blocks of datasets are, and a chunk of the file is read once."""
    from dask_mcsvm.storage import elements

    monkeypatch.setattr(elements, "SIZES", elements.SIZES.__class__(block_entries=100))
    rng = np.random.default_rng(0)
    rows = sp.random(100, 9, 0.5, "csr", np.float32, random_state=rng)
    adata = anndata.AnnData(rows, layers={"dense": rows.toarray()})
    write_zarr(adata, folder / "b.zarr", chunks=(10, 9))
    root = zarr.open_group(folder / "b.zarr", mode="r+")
    root["X"].create_array("small", shape=450, chunks=30, dtype="f4")[:] = rows.data
    stored = open_elements(folder / "b.zarr").rows()
    assert stored.row_offsets == (0, 100)  # one chunk has all nonzeros
    monkeypatch.setattr(type(root["X/data"]), "chunks", property(lambda self: (30,)))
    stored = open_elements(folder / "b.zarr").rows()
    assert len(stored.row_offsets) == 6
    stored = pickle.loads(pickle.dumps(stored))
    parts = [stored.read(a, b) for a, b in pairwise(stored.row_offsets)]
    assert (sp.vstack(parts) != rows).nnz == 0


def test_what_a_file_lacks_is_listed(folder):
    path = str(folder / "v3.zarr")
    columns = "'code', 'gaps', 'kind', 'nullable', 'weight'"
    with says(f"{path} has no obs/type; obs has {columns}."):
        svm().fit(path, "obs/type")
    with says(f"{path} has no layers/log; layers has 'twice'."):
        svm(layer="log").fit(path, "obs/kind")
    with says("X has no layers/log; its layers are 'twice' and its obsm 'X_pca': leave layer out "
              "for X itself."):  # fmt: skip
        svm(layer="log").fit(cells(), "obs/kind")
    with says("X has no column 'kind'; its columns are 'obs/kind', 'obs/code', 'obs/weight', "
              "'obs/gaps', 'obs/nullable'."):  # fmt: skip
        svm().fit(cells(), "kind")
    with says("y is 'obs/kind', which names a column of AnnData, and X is csr_matrix; pass one "
              "value per row."):  # fmt: skip
        svm().fit(X, "obs/kind")
    with says("layer is 'log', which names a layer of AnnData, and X is csr_matrix; leave it out."):
        svm(layer="log").fit(X, KINDS)
    with says('layer is 3; it must be the name of a layer of AnnData, or None, for example '
              'layer="counts".'):  # fmt: skip
        svm(layer=3).fit(X, KINDS)
    with pytest.raises(ValueError, match=r"X is a view of a backed AnnData"):
        svm().fit(anndata.read_h5ad(folder / "cells.h5ad", backed="r")[:9], "obs/kind")


def test_what_can_not_be_read_by_rows_is_refused(folder):
    other = anndata.AnnData(X.tocsc(), obs=cells().obs)
    write_zarr(other, folder / "csc.zarr")
    path = str(folder / "csc.zarr")
    with says(f"{path}: X is stored by columns (csc_matrix), and rows are needed; type adata.X = "
              "adata.X.tocsr() and write the file again."):  # fmt: skip
        svm().fit(path, "obs/kind")
    write_zarr(cells(), folder / "bad.zarr")
    zarr.open_group(folder / "bad.zarr", mode="r+")["X/indices"][5] = 99
    with pytest.raises(ValueError, match=r"bad.zarr: X, rows 0:\d+ \(CSR\) is damaged: indices"):
        svm().fit(str(folder / "bad.zarr"), "obs/kind")
    zarr.open_group(folder / "bad.zarr", mode="r+")["obs/kind/codes"][5] = 9
    with pytest.raises(ValueError, match="obs/kind has codes 0 to 9 for 4 categories"):
        svm().fit(str(folder / "bad.zarr"), "obs/kind")


def test_a_dataset_keeps_its_own_labels(tmp_path):
    write_dataset(tmp_path / "d.zarr", X, KINDS)
    with pytest.raises(ValueError, match="is a dataset, which has labels and weights of its own"):
        svm().fit(tmp_path / "d.zarr", "obs/kind")
    with pytest.raises(ValueError, match=r"layer is 'log'.*X is the dataset .*; leave it out"):
        svm(layer="log").fit(tmp_path / "d.zarr")


@pytest.mark.parametrize("lazy", [False, True])
def test_xarray_is_unwrapped(usual, lazy):
    values = X.toarray()
    rows = da.from_array(values, chunks=(-1, -1)) if lazy else values
    named = xarray.DataArray(rows, dims=("cell", "gene"), coords={"gene": GENES})
    labels = xarray.DataArray(KINDS, dims="cell")
    model = svm().fit(named, labels)
    plain = svm().fit(rows, KINDS)
    assert model.coef_.tobytes() == plain.coef_.tobytes()
    assert model.feature_names_in_.tolist() == GENES
    predicted = model.predict(named)
    assert isinstance(predicted, da.Array) == lazy
    np.testing.assert_array_equal(predicted, plain.predict(values))
    unnamed = svm().fit(xarray.DataArray(rows), KINDS)
    assert not hasattr(unnamed, "feature_names_in_")
    with pytest.raises(ValueError, match="same in another order"):
        np.asarray(model.predict(named[:, ::-1]))
