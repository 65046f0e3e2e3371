"""Inside scikit-learn's own tools, and on Dask's joblib backend."""

import joblib
import numpy as np
import pytest
import scipy.sparse as sp
from distributed import Client, LocalCluster
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_iris
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils import estimator_html_repr

from dask_mcsvm import LinearMCSVC


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True, as_frame=True)
    return X, load_iris().target_names[y]


def svm(**given):
    return LinearMCSVC(**{"C": 0.1, "tol": 1e-2, "random_state": 0, **given})


def test_a_pipeline_of_frames_keeps_the_names(iris):
    X, y = iris
    pipeline = make_pipeline(StandardScaler(), svm()).set_output(transform="pandas").fit(X, y)
    assert pipeline[-1].feature_names_in_.tolist() == X.columns.tolist()
    assert pipeline.score(X, y) > 0.9
    with pytest.raises(ValueError, match="feature names should match"):
        pipeline.predict(X.rename(columns={X.columns[0]: "other"}))


def test_set_output_is_for_transformers():
    assert not hasattr(LinearMCSVC(), "set_output")


def test_columns_of_many_kinds(iris):
    X, y = iris
    X = X.assign(color=np.array(["red", "green"])[np.arange(150) % 2])
    columns = make_column_transformer(
        (StandardScaler(), X.columns[:4]), (OneHotEncoder(), ["color"]), sparse_threshold=1.0
    )
    pipeline = make_pipeline(columns, svm()).fit(X, y)
    assert sp.issparse(pipeline[:-1].transform(X))
    assert pipeline[-1].n_features_in_ == 6
    assert pipeline.score(X, y) > 0.9


def test_text_goes_through_without_a_dense_copy():
    texts = ["card arrived late", "where is my card", "rate is wrong", "why this exchange rate"]
    intents = ["card", "card", "rate", "rate"]
    pipeline = make_pipeline(TfidfVectorizer(dtype=np.float32), svm(C=1.0)).fit(texts, intents)
    assert pipeline[-1].coef_.dtype == np.float32
    assert pipeline.predict(["my card is late", "a rate"]).tolist() == ["card", "rate"]


def test_a_grid_over_formulation_and_c(iris):
    X, y = iris
    grid = {"formulation": ["cs", "ww", "ovr"], "C": [0.01, 1.0]}
    search = GridSearchCV(svm(), grid, cv=3).fit(X, y)
    assert len(search.cv_results_["params"]) == 6
    assert search.best_estimator_.gap_ <= 1e-2
    assert search.score(X, y) > 0.9
    assert search.best_estimator_.feature_names_in_.tolist() == X.columns.tolist()


@pytest.mark.parametrize("method", ["sigmoid", "isotonic"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_calibration_gives_probabilities(iris, method, n_classes):
    X, y = iris
    some = np.isin(y, np.unique(y)[-n_classes:])
    X, y = X[some], y[some]
    calibrated = CalibratedClassifierCV(svm(), method=method, cv=3).fit(X, y)
    probabilities = calibrated.predict_proba(X)
    assert probabilities.shape == (len(X), n_classes)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    assert (calibrated.predict(X) == y).mean() > 0.9


def test_a_fitted_model_is_calibrated_as_it_is(iris):
    X, y = iris
    model = svm().fit(X[::2], y[::2])
    coef = model.coef_.copy()
    calibrated = CalibratedClassifierCV(FrozenEstimator(model)).fit(X[1::2], y[1::2])
    assert calibrated.predict_proba(X).max(axis=1).min() > 1 / 3
    np.testing.assert_array_equal(model.coef_, coef)


def test_cross_validation_on_dask_gives_the_same_scores(iris):
    X, y = iris
    here = cross_val_score(svm(), X, y, cv=3)
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=2, processes=False, dashboard_address=":0"
        ) as cluster,
        Client(cluster),
        joblib.parallel_config(backend="dask"),
    ):
        there = cross_val_score(svm(), X, y, cv=3)
        search = GridSearchCV(svm(), {"C": [0.01, 0.1]}, cv=3).fit(X, y)
    np.testing.assert_array_equal(here, there)
    alone = GridSearchCV(svm(), {"C": [0.01, 0.1]}, cv=3).fit(X, y)
    assert search.best_params_ == alone.best_params_


def test_decision_values_by_cross_validation(iris):
    X, y = iris
    scores = cross_val_predict(svm(), X, y, cv=3, method="decision_function")
    assert scores.shape == (150, 3)
    assert (np.unique(y)[scores.argmax(axis=1)] == y).mean() > 0.9


def test_the_html_shows_what_was_set_and_whether_it_is_fitted(iris):
    model = svm(formulation="ww")
    assert "LinearMCSVC" in estimator_html_repr(model)
    assert "Not fitted" in estimator_html_repr(model)
    page = estimator_html_repr(make_pipeline(StandardScaler(), model.fit(*iris)))
    assert "Fitted" in page
    assert "ww" in page
