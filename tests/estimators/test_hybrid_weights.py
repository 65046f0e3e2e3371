"""Models of hundreds of classes: W as lists beside dense rows, coef_ as CSR, all of it usable."""

import copy
import re

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.feature_selection import SelectFromModel

from dask_mcsvm import LinearMCSVC
from dask_mcsvm.estimators import _predict
from dask_mcsvm.estimators._predict import top_places
from dask_mcsvm.report import write_report

K, D = 520, 2000


@pytest.fixture(scope="module")
def words():
    """Rows of six words, two of which belong to the class."""
    rng = np.random.default_rng(0)
    y = np.append(np.arange(K), rng.integers(0, K, 2 * K))
    own = 3 * y[:, None] + rng.integers(0, 3, (y.size, 2))
    columns = np.hstack([D - 1 - rng.geometric(0.01, (y.size, 4)).clip(1, 440), own])
    places = np.repeat(np.arange(y.size), 6), columns.ravel()
    X = sp.csr_array((rng.random(columns.size).astype(np.float32), places), shape=(y.size, D))
    return X, np.array([f"c{m:03d}" for m in range(K)])[y]


def svm(**parameters):
    return LinearMCSVC(**{"tol": 1e-2, "random_state": 0} | parameters)


@pytest.fixture(scope="module")
def pair(words):
    """A model by lists, and the same with an array."""
    found = [svm(solver_options={"weights": w}).fit(*words) for w in ("hybrid", "dense")]
    return (*words, *found)


def test_auto_takes_lists_for_sparse_rows_and_many_classes_and_says_so(words, capsys):
    X, y = words
    told = svm(n_jobs=2).explain(X, y)
    assert "memory       W of lists and dense rows (4.0 MiB as an array), beyond X" in told
    assert "n_jobs=2 (one thread visits rows, all certify)" in told
    dense = "memory       W 4.0 MiB, beyond X"
    full = {"formulation": "ovr", "fit_intercept": False}
    for other in ({"formulation": "llw"}, {"standardize": True}, full):
        assert dense in svm(**other).explain(X, y), other
    assert "W 7.9 MiB" in svm().explain(X.astype(np.float64).toarray(), y)
    few = np.unique(y, return_inverse=True)[1] % 255
    assert "W of lists" not in svm().explain(X, few)
    capsys.readouterr()


def test_auto_takes_lists_for_a_large_w_however_many_rows_there_are(words, monkeypatch):
    """Rows enough to fill it by the rule of thumb, which a large array has more to lose by."""
    X, y = words
    many = sp.vstack([X[:, :600]] * 12, format="csr"), np.tile(y, 12)
    assert "W of lists" not in svm().explain(*many)
    monkeypatch.setattr("dask_mcsvm.training.plan.LARGE_ARRAY", 4 * 601 * K - 1)
    assert "W of lists" in svm().explain(*many)


def test_a_memory_limit_takes_lists_where_an_array_is_too_large(words):
    X, y = words
    few = np.unique(y, return_inverse=True)[1] % 200
    model = svm(memory_limit="1.4MB", max_epochs=3, tol=0).fit(X, few)
    assert model.plan_.weights == "hybrid"
    assert "more than memory_limit" in repr(model.plan_)
    assert sp.issparse(model.coef_)
    sentence = (
        "coef_ takes 1,600,000 bytes as an array, more than memory_limit='1.4MB'; leave it sparse, "
        "or raise memory_limit."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        model.densify()
    with pytest.raises(
        ValueError,
        match=r"^W takes 1\.5 MiB, more than memory_limit=1000, and "
        r"lists are not for lee_lin_wahba, whose classes share a part of W; raise",
    ):
        svm(formulation="llw", memory_limit=1000).fit(X, few)
    hybrid = svm(solver_options={"weights": "hybrid"})
    with pytest.raises(ValueError, match=r"'hybrid', which is not for dense rows; leave it out"):
        hybrid.fit(X.toarray(), few)
    with pytest.raises(ValueError, match=r"not for standardize=True \(standardize='scale' leaves"):
        hybrid.set_params(standardize=True).fit(X, few)
    with pytest.raises(MemoryError, match="more than memory_limit=50000; raise memory_limit"):
        svm(memory_limit=50_000).fit(X, few)


def test_all_that_a_model_does_is_done_with_lists(pair, tmp_path):
    X, y, model, dense = pair
    assert model.plan_.weights == "hybrid"
    assert isinstance(model.coef_, sp.csr_array)
    assert model.coef_.shape == (K, D)
    assert model.gap_ <= 1e-2 >= dense.gap_
    assert max(model.dual_, dense.dual_) <= min(model.primal_, dense.primal_)
    assert model.density_ == np.count_nonzero(model.coef_.toarray()) / (K * D)
    plain = model.decision_function(X.toarray())
    np.testing.assert_allclose(model.decision_function(X), plain, atol=1e-6)
    np.testing.assert_array_equal(model.predict(X), model.classes_[plain.argmax(axis=1)])
    scores = model.decision_function(X)
    for top in (1, 5, 100):
        ranked = model.classes_[top_places(scores, top)]
        np.testing.assert_array_equal(model.predict_topk(X, top), ranked)
    assert (model.predict(X) == dense.predict(X)).mean() > 0.98
    assert model.certify(X, y).primal == pytest.approx(model.primal_, rel=1e-12)
    near = model.certain(X)
    np.testing.assert_array_equal(model.predict(X)[near], dense.predict(X)[near])
    assert model.explain_prediction(X[[0]]).label == model.predict(X[[0]])[0]
    model.save(tmp_path / "m.zarr")
    again = LinearMCSVC.load(tmp_path / "m.zarr")
    assert sp.issparse(again.coef_)
    assert (again.coef_ != model.coef_).nnz == 0
    assert again.plan_ == model.plan_
    small = model.prune(X, y, max_gap=3e-2)
    assert small.gap_ <= 3e-2
    assert small.coef_.nnz < model.coef_.nnz
    kept = SelectFromModel(model, prefit=True, threshold="mean").transform(X)
    assert 0 < kept.shape[1] < D
    np.testing.assert_array_equal(model.to_linear_svc().predict(X), model.predict(X))
    report = tmp_path / "report.html"
    write_report(model, report)
    assert report.stat().st_size > 1000


@pytest.mark.parametrize("weights", [2**25, 1500])
def test_the_first_of_equal_classes_is_the_best(pair, weights, monkeypatch):
    monkeypatch.setattr("dask_mcsvm.estimators._predict.LISTED_WEIGHTS", weights)
    X, _, model, _ = pair
    edited = copy.copy(model)
    edited.coef_, edited.intercept_ = model.coef_ * 0, np.arange(K) // 4 % 7
    expected = edited.classes_[top_places(edited.decision_function(X[:3]), 20)]
    np.testing.assert_array_equal(edited.predict_topk(X[:3], 20), expected)


def test_best_classes_are_found_with_a_part_of_the_lists_at_a_time(pair, monkeypatch):
    X, _, model, _ = pair
    whole = model.predict_topk(X, 7)
    made, listed_model = [], _predict.listed_model

    def watched(X, coef, intercept):
        made.append(coef.nnz)
        return listed_model(X, coef, intercept)

    monkeypatch.setattr(_predict, "listed_model", watched)
    monkeypatch.setattr(_predict, "LISTED_WEIGHTS", 1000)
    np.testing.assert_array_equal(model.predict_topk(X, 7), whole)
    largest = int(np.diff(model.coef_.indptr).max())
    assert len(made) > 5
    assert sum(made) == model.coef_.nnz
    assert max(made) <= max(1000, largest)


def test_chunks_of_rows_are_scored_and_certified_without_an_array(pair, monkeypatch):
    X, y, model, _ = pair
    monkeypatch.setattr("dask_mcsvm.graphs.model_files.PART_BYTES", 4 * D * 100)
    rows = da.from_array(X.toarray(), chunks=(600, -1)).map_blocks(sp.csr_matrix)
    labels = model.predict(rows)
    np.testing.assert_array_equal(labels.compute(scheduler="sync"), model.predict(X))
    chunks = da.from_array(y, chunks=600)
    assert model.certify(rows, chunks).primal == pytest.approx(model.primal_, rel=1e-6)


def test_edited_weights_and_scaled_columns_are_certified(pair):
    X, y, _, _ = pair
    weights = np.arange(y.size) % 3 + 1.0
    scaled = svm(standardize="scale", C=0.1).fit(X, y, sample_weight=weights)
    assert scaled.plan_.weights == "hybrid"
    found = scaled.certify(X, y, sample_weight=weights)
    assert found.relative_gap == pytest.approx(scaled.gap_, rel=1e-4)
    shuffled = scaled.coef_.copy()
    shuffled.data *= 0.9
    scaled.coef_ = shuffled
    assert scaled.certify(X, y, sample_weight=weights).relative_gap > found.relative_gap
    as_array = svm(standardize="scale", C=0.1, solver_options={"weights": "dense"})
    as_array.fit(X, y, sample_weight=weights)
    assert max(as_array.dual_, scaled.dual_) <= min(as_array.primal_, scaled.primal_)


def test_a_path_and_a_warm_start_go_on_from_alpha(words):
    X, y = words
    path = svm().path(X, y, [0.5, 1.0], validation=0.1)
    assert all(model.plan_.weights == "hybrid" for model in path.models)
    again = svm(warm_start=True).fit(X, y)
    before = again.n_iter_
    assert again.fit(X, y).n_iter_ < before
