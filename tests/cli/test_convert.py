"""``dask mcsvm convert``: every format gives the same rows, and bad input changes nothing."""

import gzip
import io
import os
import sys
import warnings
from pathlib import Path

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import zstandard
from sklearn.datasets import dump_svmlight_file

from dask_mcsvm import LinearMCSVC
from dask_mcsvm.cli._console import Console
from dask_mcsvm.cli._convert import end_line, from_npz, progress_of
from dask_mcsvm.storage import convert_libsvm, open_dataset, write_dataset


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    X = (rng.random((50, 5)) * (rng.random((50, 5)) < 0.6)).astype(np.float32)
    X[0] = 1, 2, 3, 4, 5
    return X, np.array(["ham", "spam", "egg"])[np.arange(50) % 3]


def check(path, X, y):
    dataset = open_dataset(path)
    stored = dataset.read_rows(0, len(X))
    stored = stored.toarray() if dataset.is_sparse else stored
    np.testing.assert_allclose(stored, X, rtol=1e-6)
    np.testing.assert_array_equal(dataset.classes[dataset.read_labels()], y)


def frame_of(X, y):
    return pd.DataFrame(X, columns=[f"f{i}" for i in range(5)]).assign(kind=y)


@pytest.mark.parametrize("packed", [False, True])
def test_svmlight(run, table, packed):
    X, _ = table
    y = np.arange(50) % 3
    dump_svmlight_file(X, y, "d.svm", zero_based=True)
    name = "d.svm"
    if packed:
        name = "d.svm.gz"
        Path(name).write_bytes(gzip.compress(Path("d.svm").read_bytes()))
    done = run("convert", name, "d.zarr", "--n-features", 5, "--zero-based", "--json")
    assert (done.code, done.err) == (0, "")
    assert done.json["rows"] == 50
    assert done.json["fingerprint"] == open_dataset("d.zarr").fingerprint
    check("d.zarr", X, y)


def test_npy_pair(run, table):
    X, y = table
    np.save("X.npy", X)
    np.save("y.npy", y)
    done = run("convert", "X.npy", "d.zarr", "--labels", "y.npy", "--block-rows", 16)
    assert (done.code, done.out) == (0, "d.zarr: 50 rows, 5 features, 3 classes\n")
    assert open_dataset("d.zarr").n_blocks == 4
    check("d.zarr", X, y)
    assert run("convert", "X.npy", "e.zarr", "--labels", "y.npy", "--dtype", "float64").code == 0
    assert open_dataset("e.zarr").dtype == np.float64
    check("e.zarr", X, y)


@pytest.mark.parametrize("kind", ["dense", "csr", "scipy"])
def test_npz(run, table, kind):
    X, y = table
    np.save("y.npy", y)
    matrix = sp.csr_matrix(X)
    parts = {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr}
    match kind:
        case "dense":
            np.savez("d.npz", X=X, y=y)
        case "csr":
            np.savez("d.npz", **parts, shape=matrix.shape, y=y)
        case "scipy":
            sp.save_npz("d.npz", matrix)
    labels = ["--labels", "y.npy"] if kind == "scipy" else []
    done = run("convert", "d.npz", "d.zarr", *labels, "--dtype", "float64", "--json")
    assert done.code == 0
    assert done.json["sparse"] == (kind != "dense")
    assert done.json["dtype"] == "float64"
    check("d.zarr", X, y)


@pytest.mark.parametrize("form", ["csv", "parquet"])
@pytest.mark.parametrize("labels", ["text", "integers"])
def test_frames(run, table, form, labels):
    X, y = table
    if labels == "integers":
        y = np.arange(50) % 3
    frame = frame_of(X, y)
    if form == "csv":
        frame.to_csv("d.csv", index=False)
    else:
        frame.to_parquet("d.parquet")
    done = run("convert", f"d.{form}", "d.zarr", "--label", "kind")
    assert (done.code, done.err) == (0, "")
    check("d.zarr", X, y)
    assert open_dataset("d.zarr").dtype == np.float32


def test_csv_is_streamed_and_types_may_change_on_the_way(run, monkeypatch):
    n = 4000
    X = np.arange(n, dtype=float) % 7
    X[-1] = 0.5  # integers at first, fractions at the end
    pd.DataFrame({"f": X, "g": 1, "kind": "ham"}).astype(object).to_csv("d.csv", index=False)
    monkeypatch.setattr("dask_mcsvm.cli._convert.TEXT_BLOCK", "4kB")
    assert run("convert", "d.csv", "d.zarr", "--label", "kind").code == 0
    check("d.zarr", np.column_stack([X, np.ones(n)]), np.full(n, "ham"))


def test_labels_that_look_like_numbers_may_stay_text(run, refuses, monkeypatch):
    labels = [f"{i % 3:03d}" for i in range(4000)]
    Path("d.csv").write_text("f,kind\n" + "".join(f"{i % 5},{c}\n" for i, c in enumerate(labels)))
    assert run("convert", "d.csv", "d.zarr", "--label", "kind", "--text-labels").code == 0
    assert open_dataset("d.zarr").classes.tolist() == ["000", "001", "002"]
    monkeypatch.setattr("dask_mcsvm.cli._convert.TEXT_BLOCK", "64kB")
    Path("e.csv").write_text(
        "f,kind\n" + "".join(f"{i % 5},{i % 3}\n" for i in range(100_000)) + "1,other\n"
    )
    assert refuses("convert", "e.csv", "e.zarr", "--label", "kind") == (
        "e.csv: a column holds numbers first and something else later; if it is the label column "
        "'kind', pass --text-labels."
    )
    assert run("convert", "e.csv", "e.zarr", "--label", "kind", "--text-labels").code == 0
    assert open_dataset("e.zarr").classes.tolist() == ["0", "1", "2", "other"]


def test_a_terminal_sees_how_far_it_is(run, table, monkeypatch):
    X, y = table
    np.savez("d.npz", X=X, y=y)
    shown = io.StringIO()
    monkeypatch.setattr(shown, "isatty", lambda: True)
    console = Console()
    monkeypatch.setattr(sys, "stderr", shown)
    dataset = from_npz(["d.npz"], "d.zarr", options(), progress_of(console), False)
    end_line(console)
    assert dataset.shape == (50, 5)
    *_, last, cleared = shown.getvalue().split("\r")
    assert last == f"[{'#' * 18}]  50 rows\x1b[K"
    assert cleared == "\x1b[K"
    assert progress_of(Console(quiet=True)) is None


def options(**given):
    names = ("label", "text_labels", "labels", "n_features", "zero_based", "dtype", "block_rows")
    return {name: given.get(name) for name in names}


def test_an_existing_output_is_replaced_only_if_asked(run, refuses, table):
    X, y = table
    np.savez("d.npz", X=X, y=y)
    assert run("convert", "d.npz", "d.zarr", "--quiet").out == ""
    assert refuses("convert", "d.npz", "d.zarr") == (
        "d.zarr exists; pass --overwrite to replace it."
    )
    np.savez("d.npz", X=2 * X, y=y)
    assert run("convert", "d.npz", "d.zarr", "--overwrite").code == 0
    check("d.zarr", 2 * X, y)
    Path("notes.txt").write_text("mine")
    assert refuses("convert", "d.npz", "notes.txt", "--overwrite") == (
        "notes.txt exists and is not a dataset written by dask_mcsvm; remove it or choose another "
        "path."
    )


def test_bad_input_is_one_sentence(refuses, table):
    X, y = table
    frame = frame_of(X, y)
    frame.to_csv("d.csv", index=False)
    frame.assign(color="red").to_csv("text.csv", index=False)
    frame.assign(f2=frame.f2.where(frame.f2 > 0.1)).to_csv("hole.csv", index=False)
    frame.assign(kind=frame.kind.where(frame.index > 3)).to_csv("unlabelled.csv", index=False)
    np.save("X.npy", X)
    np.save("short.npy", y[1:])
    np.savez("other.npz", a=X)
    Path("bad.svm").write_text("1 1:0.5\n1 two:3\n")
    cases = {
        ("no.csv", "--label", "kind"): "no.csv: there is no such file; check the path.",
        ("d.csv",): "d.csv: no label column is named; pass --label with one of f0, f1, f2, f3, "
        "f4, kind.",
        ("d.csv", "--label", "kidn"): "d.csv: has no column 'kidn'; pass --label with one of f0, "
        "f1, f2, f3, f4, kind.",
        ("text.csv", "--label", "kind"): "text.csv: the column 'color' does not hold numbers; "
        "encode it (for example with pandas.get_dummies), or leave it out of the file.",
        ("hole.csv", "--label", "kind"): "the column 'f2' has empty cells; fill them, or drop "
        "their rows first.",
        ("unlabelled.csv", "--label", "kind"): "the label column 'kind' has empty cells; drop "
        "their rows first.",
        ("d.csv", "--label", "kind", "--n-features", 5): "--n-features says nothing about csv; "
        "leave it out.",
        ("X.npy",): "X.npy: holds rows only; pass --labels FILE.npy with their labels.",
        ("X.npy", "--labels", "no.npy"): "no.npy: there is no such file; check the path.",
        ("X.npy", "--labels", "short.npy"): "y has 49 rows, X has 50; one per row of X is needed.",
        ("other.npz",): "other.npz: holds a; an array X is needed, or data, indices, indptr and "
        "shape.",
        ("bad.svm",): "bad.svm, line 2: found 'two:3' where index:value is needed, for example "
        "7:0.5.",
        ("X.bin",): "X.bin: its name does not tell the format; pass --format svmlight, npz, npy, "
        "csv, parquet, h5ad or zarr.",
    }
    Path("X.bin").write_bytes(b"")
    for (source, *options), sentence in cases.items():
        assert refuses("convert", source, "out.zarr", *options) == sentence


def test_a_pipe_that_would_be_read_twice_is_refused(refuses):
    os.mkfifo("pipe")
    Path("t.csv").write_text("a,b\n1,2\n")
    words = "is a pipe or a device; only svmlight text can come from a pipe."
    for form in ("csv", "npy", "npz", "parquet"):
        assert refuses("convert", "pipe", "d.zarr", "--format", form) == f"pipe {words}"
    assert refuses("convert", "t.csv", "d.zarr", "--labels", "/dev/null") == f"/dev/null {words}"


# -- several files, packed files, AnnData ----------------------------------------------------------

PACKERS = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.compress}


@pytest.mark.parametrize("packed", list(PACKERS))
@pytest.mark.parametrize("form", ["svm", "csv"])
def test_several_files_are_converted_as_one(run, table, form, packed):
    X, y = table
    for part, rows in enumerate((slice(0, 20), slice(20, 50))):
        text = io.BytesIO()
        if form == "svm":
            dump_svmlight_file(X[rows], np.arange(50)[rows] % 3, text, zero_based=True)
        else:
            frame_of(X[rows], y[rows]).to_csv(text, index=False)
        Path(f"part-{part}.{form}{packed}").write_bytes(PACKERS[packed](text.getvalue()))
    how = ["--label", "kind"] if form == "csv" else ["--zero-based"]
    done = run("convert", f"part-*.{form}{packed}", "d.zarr", *how)
    assert (done.code, done.err) == (0, "")
    labels = y if form == "csv" else np.arange(50) % 3
    check("d.zarr", X, labels)
    names = [f"part-{part}.{form}{packed}" for part in (1, 0)]
    assert run("convert", *names, "e.zarr", *how).code == 0
    order = np.r_[20:50, 0:20]
    check("e.zarr", X[order], labels[order])


def test_parquet_files_are_converted_as_one(run, table):
    X, y = table
    frame_of(X[:20], y[:20]).to_parquet("a.parquet")
    frame_of(X[20:], y[20:]).to_parquet("b.parquet")
    assert run("convert", "a.parquet", "b.parquet", "d.zarr", "--label", "kind").code == 0
    check("d.zarr", X, y)


def test_progress_of_several_texts_counts_all_bytes(table, tmp_path):
    X, _ = table
    for name in "ab":
        dump_svmlight_file(X, np.arange(50) % 3, f"{name}.svm")
    heard = []
    convert_libsvm(["a.svm", "b.svm"], "d.zarr", progress=lambda *told: heard.append(told))
    total = Path("a.svm").stat().st_size + Path("b.svm").stat().st_size
    assert heard[-1] == (100, total, total)
    assert {told[2] for told in heard} == {total}
    with pytest.raises(ValueError, match="source is an empty list; pass at least one file"):
        convert_libsvm([], "e.zarr")


def test_sources_that_do_not_go_together_are_refused(run, refuses, table):
    X, y = table
    np.savez("a.npz", X=X, y=y)
    Path("a.svm").write_text("1 1:1\n")
    frame_of(X, y).to_csv("a.csv", index=False)
    frame_of(X, y).to_csv("a.csv.gz", index=False)
    Path("bad.svm.zst").write_bytes(b"no frame")
    assert refuses("convert", "a.svm", "a.npz", "d.zarr") == (
        "a.svm is svmlight and a.npz is npz; convert files of one format at a time."
    )
    assert refuses("convert", "a.npz", "a.npz", "d.zarr") == (
        "npz files are converted one at a time; pass one, not 2."
    )
    assert refuses("convert", "b-*.svm", "d.zarr") == (
        "b-*.svm: no file has such a name; check the pattern."
    )
    assert "some are packed and some are not" in refuses(
        "convert", "a.csv", "a.csv.gz", "d.zarr", "--label", "kind"
    )
    assert "bad.svm.zst: can not be decompressed" in refuses("convert", "bad.svm.zst", "d.zarr")


@pytest.fixture
def cells(table):
    """cells.h5ad and cells.zarr: the table, its cells named by kind, and one without a label."""
    X, y = table
    obs = pd.DataFrame({"kind": pd.Categorical(y), "gap": pd.Categorical([None, *y[1:]])})
    obs.index = obs.index.astype(str)
    var = pd.DataFrame(index=[f"g{i}" for i in range(5)])
    adata = anndata.AnnData(sp.csr_matrix(X), obs=obs, var=var, layers={"twice": 2 * X})
    adata.write_h5ad("cells.h5ad")
    with warnings.catch_warnings(), anndata.settings.override(zarr_write_format=3):
        warnings.simplefilter("ignore")  # of what anndata does with Zarr
        adata.write_zarr("cells.zarr")
        adata[:, ::-1].copy().write_h5ad("turned.h5ad")
    return X, y


@pytest.mark.parametrize("form", ["h5ad", "zarr"])
def test_cells(run, cells, form):
    X, y = cells
    label = ["--label", "obs/kind"]
    done = run("convert", f"cells.{form}", "d.zarr", *label)
    assert (done.code, done.err) == (0, "")
    check("d.zarr", X, y)
    assert open_dataset("d.zarr").is_sparse
    assert open_dataset("d.zarr").feature_names.tolist() == ["g0", "g1", "g2", "g3", "g4"]
    twice = run("convert", *[f"cells.{form}"] * 2, "e.zarr", *label, "--layer", "twice")
    assert twice.code == 0
    check("e.zarr", 2 * np.vstack([X, X]), np.r_[y, y])


def test_names_of_genes_go_from_file_to_model(run, cells):
    X, _ = cells
    assert run("convert", "cells.h5ad", "d.zarr", "--label", "obs/kind").code == 0
    for place in ([], ["--memory-limit", "1GB"]):
        done = run("fit", "d.zarr", "-m", "m.zarr", "--overwrite", "--max-epochs", 300, *place)
        assert (done.code, "Warning" in done.err) == (0, False)
        model = LinearMCSVC.load("m.zarr")
        assert model.feature_names_in_.tolist() == ["g0", "g1", "g2", "g3", "g4"]
        assert run("score", "m.zarr", "d.zarr").err == ""
    other = write_dataset("o.zarr", X, np.arange(50) % 3, feature_names=list("abcde"))
    with pytest.raises(ValueError, match=r"5 missing \('g0', 'g1', 'g2'\) and 5 unknown"):
        model.predict(other)
    with pytest.raises(ValueError, match="feature_names has 1 names, X has 5 columns"):
        write_dataset("p.zarr", X, np.arange(50) % 3, feature_names=["a"])


def test_cells_without_what_is_needed_are_refused(run, refuses, cells):
    assert refuses("convert", "cells.h5ad", "d.zarr") == (
        "cells.h5ad: no column of labels is named; pass --label, as in obs/cell_type."
    )
    assert refuses("convert", "cells.zarr", "d.zarr", "--label", "obs/gap") == (
        "cells.zarr: obs/gap has no label in row 0; drop such rows first."
    )
    assert refuses("convert", "cells.h5ad", "d.zarr", "--label", "obs/type") == (
        "cells.h5ad has no obs/type; obs has 'gap', 'kind'."
    )
    both = refuses("convert", "cells.h5ad", "turned.h5ad", "d.zarr", "--label", "obs/kind")
    assert both.startswith("turned.h5ad has other features than cells.h5ad")
    assert run("convert", "cells.h5ad", "d.zarr", "--label", "obs/kind").code == 0
    assert refuses("convert", "d.zarr", "e.zarr", "--label", "y") == (
        "d.zarr is a dataset written by dask_mcsvm, and no file of AnnData."
    )
