"""Predictions for rows that are not in memory: lazy, in their chunks, and the same."""

import re

import dask
import dask.array as da
import numpy as np
import pytest
from dask.base import is_dask_collection
from training.sets import lazy, lazy_set, small_set, svm

X, Y = small_set()


@pytest.fixture(scope="module", params=[2, 4], ids=["two", "four"])
def model(request):
    few = request.param > Y
    with dask.config.set(scheduler="synchronous"):
        return svm().fit(lazy(X[few]), Y[few])


@pytest.fixture(autouse=True)
def one_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.mark.parametrize("csr", [False, True], ids=["dense", "csr"])
@pytest.mark.parametrize("ask", ["predict", "decision_function", "predict_topk"])
def test_lazy_answers_are_those_in_memory(model, ask, csr):
    more = (2,) if ask == "predict_topk" else ()
    here = getattr(model, ask)(X, *more)
    there = getattr(model, ask)(lazy(X, csr=csr), *more)
    assert is_dask_collection(there)
    assert there.chunks[0] == (50, 50, 50, 10)
    assert there.shape == here.shape
    assert there.dtype == here.dtype
    if ask == "decision_function":
        np.testing.assert_allclose(there.compute(), here, rtol=1e-12, atol=1e-12)
    else:
        np.testing.assert_array_equal(there.compute(), here)


def test_nothing_is_computed_before_it_is_asked_for(model):
    def explode(block):
        raise AssertionError

    rows = lazy(X).map_blocks(explode, dtype=X.dtype, meta=np.empty((0, 12)))
    for lazily in (model.predict(rows), model.decision_function(rows), model.predict_topk(rows, 1)):
        assert is_dask_collection(lazily)


def test_score_is_a_float(model):
    few = np.isin(Y, model.classes_)
    w = 1.0 + np.arange(few.sum()) % 3
    for y in (Y[few], da.from_array(Y[few], chunks=33)):
        found = model.score(lazy(X[few]), y)
        assert type(found) is float
        assert found == pytest.approx(model.score(X[few], Y[few]))
        weighted = model.score(lazy(X[few]), y, sample_weight=da.from_array(w, chunks=20))
        assert weighted == pytest.approx(model.score(X[few], Y[few], sample_weight=w))


def test_rows_of_unknown_number(model):
    rows = lazy(X)
    unknown = rows[da.ones(160, chunks=50) > 0]
    np.testing.assert_array_equal(model.predict(unknown).compute(), model.predict(X))
    assert model.score(unknown, np.zeros(160)) == model.score(rows, np.zeros(160))


@pytest.mark.parametrize("ask", ["predict", "decision_function"])
def test_other_columns_are_refused(model, ask):
    sentence = (
        "X has 11 features, but LinearMCSVC is expecting 12 features as input; pass the columns "
        "that fit saw, in the same order."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        getattr(model, ask)(lazy(X[:, 1:]))


def test_explain_says_what_a_fit_would_do(capsys):
    text = svm("auto").explain(*lazy_set())
    assert capsys.readouterr().out == f"{text}\n"
    assert text.splitlines()[0] == "solver       shards: rows in chunks, and W fits a worker"
    assert "160 x 12, 1,920 nonzeros, 4 classes, float64, 4 row chunks" in text
