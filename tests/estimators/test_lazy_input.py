"""fit on rows that are not in memory: whatever form they come in, the same problem is solved."""

import re

import dask
import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from training.sets import lazy, lazy_set, small_set, svm, weights

from dask_mcsvm import LinearMCSVC
from dask_mcsvm.errors import CertificateError
from dask_mcsvm.formulations import FORMULATIONS
from dask_mcsvm.storage import open_dataset, write_dataset

pytestmark = pytest.mark.usefixtures("one_thread")
X, Y = small_set()
NAMES = np.array(["ash", "birch", "cedar", "oak"])
NO_LABEL = (
    "y has no label in row {}; every row needs a label: drop the others with X[keep], y[keep]."
)


@pytest.fixture
def one_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.fixture(scope="module")
def usual():
    """What all ways to pass the same chunks must give."""
    with dask.config.set(scheduler="synchronous"):
        return weights(svm().fit(*lazy_set()))


def says(sentence, kind=ValueError):
    return pytest.raises(kind, match="^" + re.escape(sentence) + "$")


# -- the same rows in another form -----------------------------------------------------------------


@pytest.mark.parametrize("name", list(FORMULATIONS))
def test_a_fit_in_chunks_agrees_with_one_in_memory(name):
    chunks = svm("auto", formulation=name, tol=1e-3, max_epochs=500, C=0.3).fit(*lazy_set())
    memory = LinearMCSVC(formulation=name, tol=1e-3, C=0.3, random_state=0).fit(X, Y)
    assert chunks.gap_ <= 1e-3
    assert chunks.stop_ == "gap"
    # Two certified lower bounds on one optimum.
    assert max(chunks.dual_, memory.dual_) <= min(chunks.primal_, memory.primal_)
    np.testing.assert_allclose(chunks.coef_, memory.coef_, atol=0.1)
    proof = chunks.certify(X, Y)
    assert proof.primal == pytest.approx(chunks.primal_, rel=1e-9)
    assert proof.dual == chunks.dual_


def test_sparse_chunks_solve_the_same_problem():
    sparse, dense = (
        svm(tol=1e-6, max_epochs=500, C=0.1).fit(*lazy_set(csr=csr)) for csr in (True, False)
    )
    assert sparse.stop_ == dense.stop_ == "gap"
    # Two certified bounds on one optimum, and W that both are near: rounding decides the road.
    assert max(sparse.dual_, dense.dual_) <= min(sparse.primal_, dense.primal_)
    np.testing.assert_allclose(sparse.coef_, dense.coef_, atol=1e-2)


@pytest.mark.parametrize("as_labels", [np.asarray, list, lambda y: da.from_array(y, chunks=33)],
                         ids=["numpy", "list", "other chunks"])  # fmt: skip
def test_labels_in_any_form(as_labels, usual):
    assert weights(svm().fit(lazy(X), as_labels(Y))) == usual


@pytest.mark.parametrize("dtype", ["U5", "O"])
def test_labels_as_a_dask_array_of_strings(dtype, usual):
    model = svm().fit(lazy(X), da.from_array(NAMES[Y].astype(dtype), chunks=50))
    assert weights(model) == usual
    assert model.classes_.tolist() == NAMES.tolist()
    assert set(model.predict(lazy(X)).compute()) <= set(NAMES)


def test_unknown_chunk_sizes_are_counted(usual):
    rows, labels = lazy_set()
    keep = da.ones(rows.shape[0], chunks=50) > 0
    unknown = rows[keep], labels[keep]
    assert np.isnan(unknown[0].shape[0])
    assert weights(svm().fit(*unknown)) == usual


def test_column_chunks_are_joined(usual):
    assert weights(svm().fit(lazy(X).rechunk((50, 5)), Y)) == usual


@pytest.mark.parametrize("chunks", [(1, 2, 3, 154), (0, 80, 0, 80, 0), (160,)])
def test_chunks_of_any_size_empty_ones_too(chunks):
    rows = da.from_array(X, chunks=(160, -1)).rechunk((tuple(c for c in chunks if c), -1))
    parts = iter(rows.blocks)
    rows = da.concatenate([next(parts) if c else da.zeros((0, 12)) for c in chunks])
    model = svm("auto", tol=1e-3, max_epochs=300, C=0.1).fit(rows, Y)
    assert model.gap_ <= 1e-3
    assert model.plan_.chunks == len(rows.chunks[0])


def test_a_zarr_array(tmp_path, usual):
    stored = zarr.create_array(str(tmp_path / "x.zarr"), shape=X.shape, chunks=(50, 12), dtype="f8")
    stored[:] = X
    assert weights(svm().fit(stored, Y)) == usual
    assert svm().fit(stored, Y).predict(stored).chunks[0] == (50, 50, 50, 10)


def test_a_dataset_its_path_and_its_rows_and_labels(tmp_path, usual):
    path = tmp_path / "set.zarr"
    write_dataset(path, X, NAMES[Y], block_rows=50)
    models = [svm().fit(path), svm().fit(str(path)), svm().fit(open_dataset(path))]
    assert {weights(model) for model in models} == {usual}
    assert models[0].classes_.tolist() == NAMES.tolist()
    assert models[0].score(path) == pytest.approx(np.mean(models[0].predict(X) == NAMES[Y]))
    with says(
        f"{path} is a dataset, which has labels and weights of its own; type fit(path) without y "
        "and sample_weight."
    ):
        svm().fit(path, Y)
    with says("classes differ from those of the dataset; leave classes out."):
        svm().fit(path, classes=["ash", "birch"])


def test_frames(usual):
    frames = pytest.importorskip("dask.dataframe", reason="dask.dataframe needs pandas, pyarrow")
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=[f"f{j}" for j in range(12)])
    rows = frames.from_pandas(frame, npartitions=3, sort=False)
    labels = frames.from_pandas(pandas.Series(NAMES[Y]), npartitions=3, sort=False)
    model = svm().fit(rows, labels)
    same = svm().fit(lazy(X).rechunk((rows.to_dask_array(lengths=True).chunks[0], -1)), Y)
    assert weights(model) == weights(same)
    assert model.feature_names_in_.tolist() == list(frame)
    assert model.classes_.tolist() == NAMES.tolist()
    np.testing.assert_array_equal(model.predict(rows).compute(), model.predict(frame))
    assert model.score(rows, labels) == pytest.approx(model.score(frame, NAMES[Y]))


# -- weights ---------------------------------------------------------------------------------------


def test_sample_weights_lazy_or_not_multiply_c():
    w = np.where(Y == 1, 0.5, 2.0)
    by_rows = svm().fit(lazy(X), Y, sample_weight=da.from_array(w, chunks=33))
    assert weights(by_rows) == weights(svm().fit(lazy(X), Y, sample_weight=w))
    by_class = svm(class_weight={0: 2.0, 1: 0.5, 2: 2.0, 3: 2.0}).fit(lazy(X), Y)
    assert by_class.dual_ == pytest.approx(by_rows.dual_, rel=1e-9)
    np.testing.assert_allclose(by_class.coef_, by_rows.coef_, atol=1e-9)


def test_rows_of_weight_zero_are_left_out():
    w = (np.arange(160) % 3 > 0).astype(float)
    with_zeros = svm(tol=1e-3, max_epochs=500, C=0.1).fit(lazy(X), Y, sample_weight=w)
    without = LinearMCSVC(tol=1e-3, C=0.1, random_state=0).fit(X[w > 0], Y[w > 0])
    assert max(with_zeros.dual_, without.dual_) <= min(with_zeros.primal_, without.primal_)
    assert with_zeros.certify(X, Y, sample_weight=w).relative_gap <= 1.01e-3


def test_balanced_class_weights():
    keep = np.flatnonzero((Y != 2) | (np.arange(160) % 3 == 0))
    given = {"tol": 1e-3, "max_epochs": 500, "C": 0.1, "class_weight": "balanced"}
    chunks = svm(**given).fit(lazy(X[keep]), Y[keep])
    memory = LinearMCSVC(**given).fit(X[keep], Y[keep])
    assert max(chunks.dual_, memory.dual_) <= min(chunks.primal_, memory.primal_)


def test_classes_that_y_lacks_have_weights_too():
    model = svm().fit(lazy(X), Y, classes=range(6))
    assert model.classes_.tolist() == list(range(6))
    assert model.coef_.shape == (6, 12)
    assert model.intercept_.shape == (6,)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_float32_stays_float32_and_integers_become_it(n_classes):
    few = n_classes > Y
    assert svm().fit(lazy(X[few].astype("f4")), Y[few]).coef_.dtype == np.float32
    counts = np.round(5 * X[few]).astype("i2")
    assert svm().fit(lazy(counts), Y[few]).coef_.dtype == np.float32
    assert svm(dtype="float64").fit(lazy(counts), Y[few]).coef_.dtype == np.float64


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "labels", "sentence"),
    [
        (X[:, 0], Y, "X has 1 dimension(s); Expected 2D array of shape (n_samples, n_features)."),
        (X, Y[:-1], "X has 160 rows and y has 159; pass one per row."),
        (X, None, "requires y to be passed, but the target y is None; type fit(X, y)."),
        (X, np.stack([Y, Y], 1), "y has 2 dimensions; pass shape (n,), one per row."),
        (X, 0.5 + Y, "Unknown label type: continuous; classes must be integers or strings."),
        (X, np.where(Y, Y, np.nan), NO_LABEL.format(0)),
        (X, [*Y[:7], None, *Y[8:]], NO_LABEL.format(7)),
        (X, [*NAMES[Y[:9]], np.nan, *NAMES[Y[10:]]], NO_LABEL.format(9)),
        (X, da.from_array(np.where(np.arange(160) == 117, np.nan, Y), chunks=33),
         NO_LABEL.format(117)),
        (X, np.where(Y, Y, np.inf), "y contains infinity in row 0; labels must be integers or "
         "strings."),
        (X, np.zeros(160), "y has rows of positive weight of 1 class (0.0); a classifier needs "
         "rows of positive weight of at least two classes: add rows of another class."),
        (X.astype(complex), Y, "X has dtype complex128; X must be numeric: type "
         "X.astype(float)."),
    ],
)  # fmt: skip
def test_bad_rows_and_labels(rows, labels, sentence):
    with says(sentence):
        svm().fit(da.from_array(rows, chunks=(50, -1)[: rows.ndim]), labels)


def test_labels_that_are_no_strings_are_refused():
    mixed = np.array([b"ash", *NAMES[Y[1:]]], object)
    with says(
        "rows of y hold bytes objects; labels must be integers or strings of one kind: "
        "type y.astype(str)."
    ):
        svm().fit(lazy(X), mixed)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("csr", [False, True])
def test_a_bad_value_in_one_chunk_names_its_row(bad, csr):
    rows = X.copy()
    rows[117, 3] = bad
    with says(
        "X contains NaN, infinity or a value too large to square in row 117 (the chunk of rows "
        "100:150); fill the gaps, or drop those rows."
    ):
        svm().fit(lazy(rows, csr=csr), Y)


def test_a_label_outside_the_given_classes_names_its_rows():
    labels = Y % 3
    labels[120] = 3
    with says("rows 100:150 of y hold 3, which is not among the 3 classes; add it to classes."):
        svm().fit(lazy(X), labels, classes=[0, 1, 2])


@pytest.mark.parametrize(
    ("w", "sentence"),
    [
        (-1.0, "sample_weight holds -1.0 in rows 50:100; weights must be finite and at least 0: "
         "use 0 to leave a row out."),
        (np.nan, "sample_weight holds nan in rows 50:100; weights must be finite and at least 0: "
         "use 0 to leave a row out."),
    ],
)  # fmt: skip
def test_bad_weights_name_their_rows(w, sentence):
    given = np.ones(160)
    given[60] = w
    with says(sentence):
        svm().fit(lazy(X), Y, sample_weight=given)


def test_weights_of_another_length():
    with says("X has 160 rows and sample_weight has 3; pass one per row."):
        svm().fit(lazy(X), Y, sample_weight=np.ones(3))


def test_solvers_for_the_other_kind_of_rows():
    with says(
        "solver='sdm' works on rows in memory, but X is read chunk by chunk; use solver='auto', "
        "or pass X.compute()."
    ):
        LinearMCSVC(solver="sdm").fit(*lazy_set())
    with says(
        "solver='shards' works on Dask arrays and datasets, but X is in memory; use "
        "solver='auto', or pass dask.array.from_array(X, chunks=(10_000, -1))."
    ):
        LinearMCSVC(solver="shards").fit(X, Y)
    with says(
        "solver='rounds' solves weston_watkins, not crammer_singer; use "
        "formulation='weston_watkins', or solver='auto'."
    ):
        LinearMCSVC(solver="rounds").fit(*lazy_set())
    with says(
        "solver='classes' solves one_vs_rest, not weston_watkins; use formulation='one_vs_rest', "
        "or solver='auto'."
    ):
        LinearMCSVC(solver="classes", formulation="ww").fit(*lazy_set())


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"lane": 2}, "solver_options has 'lane', which solver='shards' does not know; use "
         "'lanes', 'slices', 'save_every'."),
        ({"lanes": 0}, "solver_options['lanes'] is 0; use an integer of 1 or more."),
        ({"slices": 2.5}, "solver_options['slices'] is 2.5; use an integer of 1 or more."),
        ({"save_every": True}, "solver_options['save_every'] is True; use an integer of 1 or "
         "more."),
    ],
)  # fmt: skip
def test_options_that_the_solver_does_not_have(options, sentence):
    with says(sentence):
        svm(solver_options=options).fit(*lazy_set())


def test_parameters_of_the_other_kind_of_rows(tmp_path):
    with says('resume=True needs checkpoint="folder", the one to go on from.'):
        svm(resume=True).fit(*lazy_set())
    with says(
        "checkpoint is for fits on Dask arrays and datasets, but X is in memory; leave it out, or "
        "pass dask.array.from_array(X, chunks=(10_000, -1))."
    ):
        LinearMCSVC(checkpoint=tmp_path / "c").fit(X, Y)
    with says(
        "warm_start keeps alpha in memory, which a fit chunk by chunk does not; use "
        'checkpoint="folder" and resume=True.'
    ):
        svm(warm_start=True).fit(*lazy_set())


def test_a_fit_that_fails_leaves_the_model_as_it_was():
    model = svm().fit(*lazy_set())
    before = weights(model), dict(vars(model))
    with pytest.raises(ValueError, match="pass one per row"):
        model.fit(lazy(X), Y[:5])
    assert (weights(model), dict(vars(model))) == before


def test_a_chunk_of_another_sparse_format():
    blocks = lazy(X).map_blocks(sp.coo_matrix)
    model = svm().fit(blocks, Y)
    assert weights(model) == weights(svm().fit(lazy(X, csr=True), Y))


# -- certificates ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(FORMULATIONS))
@pytest.mark.parametrize("csr", [False, True], ids=["dense", "csr"])
def test_the_certificate_of_chunks_is_that_of_rows_in_memory(name, csr):
    chunks, y = lazy_set(csr=csr)
    w = np.arange(len(Y)) % 3
    model = svm("shards", formulation=name, class_weight="balanced").fit(chunks, y, w)
    found, expected = model.certify(chunks, y, w), model.certify(X, Y, w)
    assert found.dual == expected.dual
    assert found.primal == pytest.approx(expected.primal, rel=1e-12)
    assert found.relative_gap == pytest.approx(expected.relative_gap, rel=1e-9)
    assert model.sparsify().certify(chunks, y, w).primal == found.primal


def test_the_certificate_of_a_dataset_needs_no_labels(tmp_path):
    write_dataset(tmp_path / "set", X, Y, block_rows=50)
    model = svm().fit(tmp_path / "set")
    assert model.certify(tmp_path / "set") == model.certify(open_dataset(tmp_path / "set"))
    assert model.certify(tmp_path / "set").primal == pytest.approx(model.primal_, rel=1e-9)
    write_dataset(tmp_path / "other", X, Y + 1, block_rows=50)
    with says(
        "the classes of the dataset are not those of the fit; the certificate holds for the "
        "training rows only: pass those.",
        CertificateError,
    ):
        model.certify(tmp_path / "other")


def test_chunks_that_are_not_the_training_rows_are_refused():
    chunks, y = lazy_set()
    model = svm().fit(chunks, y)
    with pytest.raises(CertificateError, match=r"^X has 150 rows, but the fit had 160; the cert"):
        model.certify(chunks[10:], y[10:])
    with pytest.raises(CertificateError, match=r"^y or sample_weight are not those of the fit; "):
        model.certify(chunks, y, np.full(len(Y), 2.0))
    with pytest.raises(ValueError, match=r"^X has 11 features, but LinearMCSVC is expecting 12 "):
        model.certify(chunks[:, 1:], y)
    for rows in (chunks, X):
        with says("certify needs the labels of these rows; type certify(X, y)."):
            model.certify(rows)
