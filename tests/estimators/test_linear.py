"""LinearMCSVC in memory: what it accepts, and what a fit leaves behind."""

from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dask_mcsvm import LinearMCSVC
from dask_mcsvm.formulations import SHORT_NAMES

# What a fit leaves ------------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 4])
def test_fitted_attributes_have_the_shapes_promised(blobs, formulation, n_classes):
    X, y = blobs(n_classes)
    model = LinearMCSVC(formulation=formulation, random_state=0).fit(X, y)
    assert model.coef_.shape == (n_classes, 5)
    assert model.intercept_.shape == (n_classes,)
    assert model.classes_.tolist() == list(range(n_classes))
    assert model.n_features_in_ == 5
    assert 0 <= model.gap_ <= model.tol
    assert model.dual_ <= model.primal_
    assert 1 <= model.n_iter_ <= model.max_epochs
    assert model.stop_ == "gap"
    assert model.plan_.solver == "sdm"
    assert model.solver_ in ("sdm", model.plan_.then)
    assert 0 < model.density_ <= 1
    assert 0 < model.dual_density_ <= 1
    expected_shape = (90,) if n_classes == 2 else (90, n_classes)
    assert model.decision_function(X).shape == expected_shape


def test_a_record_per_epoch_ends_with_the_certificate(blobs, formulation):
    X, y = blobs()
    model = LinearMCSVC(formulation=formulation, random_state=0).fit(X, y)
    last = model.history_[-1]
    assert {"epoch", "seconds", "primal", "dual", "gap", "active"} <= set(last)
    assert (last["primal"], last["dual"], last["gap"]) == (model.primal_, model.dual_, model.gap_)
    seconds = [record["seconds"] for record in model.history_]
    assert seconds == sorted(seconds)


def test_coef_is_a_view_in_the_layout_of_the_solver(blobs):
    X, y = blobs()
    model = LinearMCSVC(random_state=0).fit(X, y)
    assert model.coef_.base is not None
    assert model.coef_.T.flags.c_contiguous


def test_without_intercept_it_is_zero(blobs, formulation):
    X, y = blobs()
    model = LinearMCSVC(formulation=formulation, fit_intercept=False, random_state=0).fit(X, y)
    assert model.intercept_.tolist() == [0.0, 0.0, 0.0]


def test_the_short_names_are_the_long_ones(blobs, formulation):
    X, y = blobs()
    short = next(short for short, long in SHORT_NAMES.items() if long == formulation)
    a = LinearMCSVC(formulation=short, random_state=0).fit(X, y)
    b = LinearMCSVC(formulation=formulation, random_state=0).fit(X, y)
    assert a.coef_.tobytes() == b.coef_.tobytes()


def test_radius_is_the_largest_norm_of_a_row(blobs, formulation):
    X, y = blobs()
    tau = np.linalg.norm(X, axis=1).max()
    by_name = LinearMCSVC(formulation=formulation, intercept_scaling="radius", random_state=0)
    by_number = LinearMCSVC(formulation=formulation, intercept_scaling=tau, random_state=0)
    assert by_name.fit(X, y).dual_ == pytest.approx(by_number.fit(X, y).dual_, rel=1e-12)
    sparse = by_name.fit(sp.csr_array(X), y)
    assert sparse.dual_ == pytest.approx(by_number.dual_, rel=1e-3)


def test_a_large_intercept_scaling_frees_the_intercept(blobs):
    # The bound of the docstring's Notes: unpenalized excess <= ||b||^2 / (2 tau^2).
    X, y = blobs()
    X = X + 0.5

    def unpenalized(tau):
        model = LinearMCSVC(intercept_scaling=tau, tol=1e-6, max_epochs=100_000, random_state=0)
        model.fit(X, y)
        return model.primal_ - 0.5 * np.sum((model.intercept_ / tau) ** 2), model.intercept_

    (at_1, _), (at_3, _), (at_9, b) = (unpenalized(tau) for tau in (1.0, 3.0, 9.0))
    assert at_1 >= at_3 >= at_9
    norm = 1.05 * np.sum((b - b.mean()) ** 2)
    for value, tau in ((at_1, 1.0), (at_3, 3.0)):
        assert value - at_9 <= norm / (2 * tau**2)


def test_classes_may_name_some_without_rows(blobs, formulation):
    X, y = blobs()
    labels = np.array(["b", "d", "e"])[y]
    model = LinearMCSVC(formulation=formulation, random_state=0).fit(
        X, labels, classes=["e", "a", "b", "c", "d"]
    )
    assert model.classes_.tolist() == ["a", "b", "c", "d", "e"]
    assert model.coef_.shape == (5, 5)
    assert set(model.predict(X)) <= {"b", "d", "e"}
    assert model.score(X, labels) > 0.7


# What it accepts --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "asked", "solved"),
    [
        (np.float32, None, np.float32),
        (np.float64, None, np.float64),
        (np.int8, None, np.float32),
        (np.int64, None, np.float32),
        (bool, None, np.float32),
        (np.float16, None, np.float32),
        (np.longdouble, None, np.float64),
        (object, None, np.float64),
        (np.float32, "float64", np.float64),
        (np.float64, "float32", np.float32),
        pytest.param(np.float64, np.float32, np.float32, id="a type, not a name"),
    ],
)
def test_the_dtype_rule(blobs, given, asked, solved):
    X, y = blobs()
    X = np.round(3 * X).astype(given)
    containers = [np.asarray]
    if given not in (object, np.float16):  # SciPy has no such sparse arrays
        containers.append(sp.csr_array)
    for container in containers:
        model = LinearMCSVC(dtype=asked, C=0.1, random_state=0).fit(container(X), y)
        assert model.coef_.dtype == solved
        assert model.intercept_.dtype == np.float64
        assert model.decision_function(container(X)).dtype == solved


def test_lists_and_frames_are_the_same_rows(blobs, formulation):
    pd = pytest.importorskip("pandas")
    X, y = blobs()
    model = LinearMCSVC(formulation=formulation, random_state=0)
    expected = model.fit(X, y).coef_.tobytes()
    assert model.fit(X.tolist(), y.tolist()).coef_.tobytes() == expected
    assert not hasattr(model, "feature_names_in_")
    frame = pd.DataFrame(X, columns=list("abcde"))
    model.fit(frame, pd.Series(y))
    assert model.coef_.tobytes() == expected
    assert model.feature_names_in_.tolist() == list("abcde")
    assert model.score(frame, y) == model.fit(X, y).score(X, y)
    assert not hasattr(model, "feature_names_in_")  # X had none this time


@pytest.mark.parametrize(
    ("dtype", "names"),
    [
        ("string", ["no", "yes"]),
        ("category", ["no", "yes"]),
        ("object", ["no", "yes"]),
        ("Int64", [3, 7]),
        ("boolean", [False, True]),
    ],
)
def test_pandas_labels(blobs, dtype, names):
    pd = pytest.importorskip("pandas")
    X, y = blobs(2)
    labels = np.array(names)[y]
    model = LinearMCSVC(random_state=0).fit(X, pd.Series(labels, dtype=dtype))
    assert model.classes_.tolist() == names
    assert model.score(X, labels) > 0.7


def test_dense_and_csr_reach_the_same_optimum(blobs, formulation):
    X, y = blobs()
    X[np.abs(X) < 0.2] = 0
    model = LinearMCSVC(formulation=formulation, tol=1e-10, max_epochs=100_000, random_state=0)
    dense = model.fit(X, y)
    scores, primal = dense.decision_function(X), dense.primal_
    csr = clone(model).fit(sp.csr_array(X), y)
    assert csr.primal_ == pytest.approx(primal, rel=1e-9)
    np.testing.assert_allclose(csr.decision_function(X), scores, atol=1e-4)


def test_unsorted_and_double_entries_are_summed_in_a_copy(blobs):
    X, y = blobs()
    n, d = X.shape
    columns = np.tile(np.array([4, 2, 0, 0, 1, 3], np.int32), n)
    values = np.stack([X[:, 4], X[:, 2], X[:, 0] / 2, X[:, 0] / 2, X[:, 1], X[:, 3]], axis=1)
    messy = sp.csr_array((values.ravel(), columns, np.arange(0, 6 * n + 1, 6)), shape=(n, d))
    before = [part.copy() for part in (messy.data, messy.indices, messy.indptr)]
    clean = LinearMCSVC(random_state=0).fit(sp.csr_array(X), y)
    model = LinearMCSVC(random_state=0).fit(messy, y)
    assert model.coef_.tobytes() == clean.coef_.tobytes()
    for part, was in zip((messy.data, messy.indices, messy.indptr), before, strict=True):
        assert part.tobytes() == was.tobytes()


def test_rows_without_entries_do_not_keep_the_gap_open(blobs, formulation):
    X, y = blobs()
    X[:7] = 0
    model = LinearMCSVC(
        formulation=formulation, fit_intercept=False, tol=1e-6, max_epochs=10_000, random_state=0
    )
    assert model.fit(sp.csr_array(X), y).gap_ <= 1e-6
    assert model.fit(X, y).gap_ <= 1e-6


def test_pipelines_and_grid_search():
    X, y = load_digits(return_X_y=True)
    X, y = X[:300], y[:300]
    pipe = make_pipeline(StandardScaler(), LinearMCSVC(random_state=0, tol=1e-2))
    search = GridSearchCV(pipe, {"linearmcsvc__C": [1e-3, 1e-2]}, cv=2).fit(X, y)
    assert search.best_score_ > 0.8


# Weights ----------------------------------------------------------------------------------------


def test_weights_are_copies(blobs, formulation):
    X, y = blobs()
    weights = np.arange(y.size) % 4
    exact = LinearMCSVC(formulation=formulation, tol=1e-10, max_epochs=100_000, random_state=0)
    weighted = clone(exact).fit(X, y, sample_weight=weights)
    repeated = clone(exact).fit(X.repeat(weights, axis=0), y.repeat(weights))
    assert weighted.primal_ == pytest.approx(repeated.primal_, rel=1e-9)
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, atol=1e-4)


def test_a_class_weight_is_a_sample_weight(blobs, formulation):
    X, y = blobs()
    exact = LinearMCSVC(formulation=formulation, tol=1e-10, max_epochs=100_000, random_state=0)
    by_class = clone(exact).set_params(class_weight={1: 3.0}).fit(X, y)
    by_row = clone(exact).fit(X, y, sample_weight=np.where(y == 1, 3.0, 1.0))
    assert by_class.coef_.tobytes() == by_row.coef_.tobytes()


def test_explain_prints_the_plan_and_trains_nothing(blobs, capsys):
    X, y = blobs()
    model = LinearMCSVC(random_state=0)
    text = model.explain(X, y)
    assert capsys.readouterr().out == f"{text}\n"
    assert "sdm" in text
    assert not hasattr(model, "classes_")
    fitted = LinearMCSVC(random_state=0).fit(X, y)
    assert fitted.explain(X) == text == str(fitted.plan_)
    with pytest.raises(FrozenInstanceError):
        fitted.plan_.solver = "other"
    assert replace(fitted.plan_) == fitted.plan_


def test_representation_and_parameters_are_scikit_learns():
    model = LinearMCSVC(formulation="ww", C=3.0)
    assert repr(model) == "LinearMCSVC(C=3.0, formulation='ww')"
    assert clone(model).get_params() == model.get_params()
    assert model.__sklearn_tags__().input_tags.sparse
