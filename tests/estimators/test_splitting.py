"""solver="splitting" as a user meets it: scikit-learn's checks, warm starts, paths, warnings."""

import re
import warnings

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from estimators.fitted_checks import parametrize_with_fitted_checks
from sklearn.base import clone
from sklearn.datasets import (
    load_breast_cancer,
    load_digits,
    load_iris,
    load_wine,
    make_classification,
)
from sklearn.exceptions import ConvergenceWarning

from dask_mcsvm import LinearMCSVC
from dask_mcsvm.formulations import FORMULATIONS
from dask_mcsvm.storage import write_dataset

# Two fits to a gap agree in W to its square root only, and the checks of sample weights compare
# scores to 1e-7: at tol=1e-10 they differ by 9e-07 (CS, WW), 2e-06 (LLW) and 7e-06 (OVR), at 1e-12
# by up to 3e-07. Newton's method can be asked for a gap of a few roundings.
EXACT = [
    LinearMCSVC(formulation=name, solver="splitting", dtype="float64", tol=5e-15, max_epochs=5000)
    for name in FORMULATIONS
]


@parametrize_with_fitted_checks(EXACT)
def test_every_formulation_passes_every_check_of_what_is_fitted(estimator, check):
    with warnings.catch_warnings():
        # Clusters 20 wide with costs of 1000 and 0.0001: thousands of epochs would not be enough,
        # and it looks at a few labels, not at the optimum.
        if check.func.__name__ == "check_class_weight_classifiers":
            warnings.simplefilter("ignore", ConvergenceWarning)
            estimator = clone(estimator).set_params(max_epochs=200)
        check(estimator)


@pytest.mark.parametrize("layout", [np.asarray, sp.csr_array])
def test_raw_digits_need_few_epochs(layout):
    X, y = load_digits(return_X_y=True)
    model = LinearMCSVC(solver="splitting", tol=1e-3, random_state=0).fit(layout(X), y)
    assert model.gap_ <= 1e-3
    assert model.n_iter_ < 400
    assert model.solver_ == "splitting"
    assert model.certify(X, y).gap <= 1.01e-3 * model.primal_
    assert model.history_[-1]["certified"]


def test_auto_takes_it_for_rows_that_are_not_centred_in_memory_and_on_dask(capsys):
    X, y = load_digits(return_X_y=True)
    rows = da.from_array(X, chunks=(900, -1))
    for given in (X, rows):
        assert "splitting: dense rows that are not centred" in LinearMCSVC().explain(given, y)
    assert "splitting" not in LinearMCSVC().explain(rows.map_blocks(sp.csr_matrix), y)
    capsys.readouterr()
    model = LinearMCSVC(tol=1e-2, random_state=0)
    assert (model.fit(X, y).solver_, model.fit(rows, y).solver_) == ("splitting", "splitting")
    assert model.gap_ <= 1e-2


def overlapping(dtype="float32"):
    """Centred rows of classes that overlap: steps of one row at a time need hundreds of epochs."""
    rng = np.random.default_rng(0)
    y = rng.integers(6, size=2000)
    X = rng.normal(size=(6, 20))[y] + rng.normal(size=(2000, 20)) @ np.diag(
        np.geomspace(0.3, 6, 20)
    )
    return (X - X.mean(axis=0)).astype(dtype), y


@pytest.mark.parametrize("name", list(FORMULATIONS))
def test_auto_hands_rows_over_where_one_at_a_time_is_slow(name, caplog, capsys):
    # One loss in float32: others would compile kernels that nothing else calls.
    X, y = overlapping("float32" if name == "crammer_singer" else "float64")
    model = LinearMCSVC(formulation=name, random_state=0)
    first = model.explain(X, y).splitlines()[0]
    assert first == "solver       sdm: dense rows in memory; splitting goes on if that is slow"
    with caplog.at_level("INFO", "dask_mcsvm"):
        model.fit(X, y)
    (told,) = [m for m in caplog.messages if "slow" in m]
    assert re.fullmatch(
        r"sdm is slow here: a gap of \d\.\de-0\d after \d\d epochs; splitting goes on", told
    )
    assert (model.solver_, model.plan_.solver, model.stop_) == ("splitting", "sdm", "gap")
    alone = LinearMCSVC(formulation=name, solver="splitting").fit(X, y)
    assert max(model.primal_, alone.primal_) <= min(model.primal_, alone.primal_) * (1 + 2e-3)
    assert model.certify(X, y).relative_gap <= 1.01e-3
    again = LinearMCSVC(formulation=name, random_state=0).fit(X, y)
    assert again.coef_.tobytes() == model.coef_.tobytes()


def test_auto_leaves_rows_to_sdm_that_it_is_quick_with():
    rng = np.random.default_rng(1)
    y = rng.integers(6, size=1500)
    X = rng.normal(size=(6, 20))[y] + 0.1 * rng.normal(size=(1500, 20))
    model = LinearMCSVC(random_state=0).fit(X - X.mean(axis=0), y)
    assert (model.solver_, model.plan_.then) == ("sdm", "splitting")


@pytest.mark.parametrize("name", list(FORMULATIONS))
@pytest.mark.parametrize(
    ("load", "accuracy"), [(load_wine, 0.95), (load_breast_cancer, 0.95), (load_iris, 0.65)]
)
def test_auto_learns_small_sets_as_they_come(load, accuracy, name):
    X, y = load(return_X_y=True)
    model = LinearMCSVC(formulation=name, random_state=0).fit(X, y)
    assert model.gap_ <= 1e-3
    assert model.n_iter_ < 300
    assert model.score(X, y) > accuracy


def clusters(n, d, k):
    return make_classification(
        n, d, n_informative=min(d, 2 * k), n_redundant=0, n_classes=k, n_clusters_per_class=1,
        class_sep=0.5, random_state=0,
    )  # fmt: skip


def test_auto_ends_where_rows_are_of_unlike_scales():
    """sdm's dual variables are no start there: from them splitting finds no end."""
    X, y = clusters(30, 4, 3)
    model = LinearMCSVC(C=100, random_state=0).fit(X * np.logspace(-6, 6, 4), y)
    assert (model.plan_.solver, model.solver_, model.stop_) == ("sdm", "splitting", "gap")


def test_auto_leaves_more_features_than_rows_to_sdm_which_is_quick_at_last():
    """The relative gap is 0.6 after 20 epochs; splitting alone would take 215."""
    X, y = clusters(45, 100, 3)
    model = LinearMCSVC(C=100, random_state=0).fit(X, y)
    assert (model.plan_.then, model.solver_, model.stop_) == ("splitting", "sdm", "gap")
    assert model.history_[19]["gap"] > 0.1
    assert model.n_iter_ < 60


def test_auto_hands_sparse_rows_over_too():
    """One-hot columns beside one that is a thousand times as long, on which sdm stands still."""
    rng = np.random.default_rng(0)
    y, levels = rng.integers(4, size=400), np.arange(5)
    hot = (np.where(rng.random((400, 6)) < 0.4, y[:, None], rng.integers(5, size=(400, 6))))
    columns = [*(hot[:, :, None] == levels).reshape(400, -1).T, rng.lognormal(7, 1, 400)]
    X = sp.csr_array(np.stack(columns, axis=1))
    model = LinearMCSVC(random_state=0).fit(X, y)
    assert (model.plan_.solver, model.solver_, model.stop_) == ("sdm", "splitting", "gap")
    assert model.score(X, y) > 0.8
    again = LinearMCSVC(random_state=0, solver="sdm", max_epochs=model.n_iter_)
    with pytest.warns(ConvergenceWarning, match="try solver='splitting'"):
        assert again.fit(X, y).gap_ > 0.5


def test_auto_tries_sdm_first_where_a_pass_takes_many_epochs():
    """Many classes that lie apart, far from the origin: sdm is done before splitting has begun."""
    rng = np.random.default_rng(0)
    y = rng.integers(60, size=1200)
    X = rng.normal(size=(60, 30))[y] + rng.normal(size=(1200, 30)) + 2 * rng.normal(size=30)
    model = LinearMCSVC(random_state=0).fit(X, y)
    assert (model.plan_.solver, model.plan_.then, model.stop_) == ("sdm", "splitting", "gap")


def test_a_path_and_a_warm_start_begin_with_the_solver_that_ended_the_last():
    X, y = (part[:300] for part in overlapping())
    first, second = LinearMCSVC(random_state=0).path(X, y, [1.0, 3.0]).models
    assert (first.plan_.solver, first.solver_) == ("sdm", "splitting")
    assert (second.plan_.solver, second.plan_.then) == ("splitting", None)
    assert second.plan_.reason == "it ended the fit that this one starts from"
    cold = LinearMCSVC(C=3.0, solver="splitting", random_state=0).fit(X, y)
    assert second.n_iter_ < cold.n_iter_
    alone = LinearMCSVC(C=3.0, solver="splitting").fit(X, y)
    assert second.primal_ == pytest.approx(alone.primal_, rel=2e-3)
    warm = LinearMCSVC(random_state=0, warm_start=True).fit(X, y).set_params(C=3.0).fit(X, y)
    assert warm.coef_.tobytes() == second.coef_.tobytes()
    quick = LinearMCSVC(C=1e-3, random_state=0).path(X, y, [1e-3, 2e-3]).models
    assert [model.plan_.solver for model in quick] == ["sdm", "sdm"]


@pytest.mark.parametrize("name", list(FORMULATIONS))
def test_chunks_reach_what_rows_in_memory_reach(name, tmp_path):
    X, y = (part[:500] for part in load_digits(return_X_y=True))
    weights = np.where(np.arange(y.size) % 3, 1.0, 2.0)
    how = {"formulation": name, "solver": "splitting", "C": 0.01, "tol": 1e-3, "dtype": "float64"}
    local = LinearMCSVC(**how).fit(X, y, weights)
    path = tmp_path / "digits"
    write_dataset(path, X, y, sample_weight=weights, block_rows=200)
    model = LinearMCSVC(**how).fit(path)
    assert model.primal_ == pytest.approx(local.primal_, rel=2e-3)
    assert model.gap_ <= 1e-3
    assert model.certify(X, y, weights).gap == pytest.approx(model.primal_ - model.dual_, abs=1e-6)


def test_long_rows_of_chunks_are_measured_by_the_mean_by_cost(blobs):
    X, y = blobs()
    X = X * np.linspace(0.1, 3.0, y.size)[:, None]
    weights, classes = np.linspace(0.0, 2.0, y.size), np.unique(y)
    by_class = dict(zip(classes.tolist(), np.geomspace(0.1, 10.0, classes.size), strict=True))
    model = LinearMCSVC(
        solver="splitting", class_weight=by_class, fit_intercept=False, tol=0, max_epochs=1
    )
    model.fit(da.from_array(X, chunks=(-(-y.size // 3), -1)), y, weights)
    cost = weights * np.vectorize(by_class.get)(y)
    assert model.plan_.square == pytest.approx(np.average((X * X).sum(axis=1), weights=cost))


def test_too_many_features_of_chunks_are_refused_and_shards_named():
    X = da.zeros((20, 5000), chunks=(10, -1))
    message = r"takes up to 4,096 features, but X has 5,000; use solver='shards'\.$"
    with pytest.raises(ValueError, match=message):
        LinearMCSVC(solver="splitting").fit(X, np.arange(20) % 2)


def test_a_path_starts_each_fit_from_the_last(blobs):
    X, y = blobs()
    model = LinearMCSVC(solver="splitting", tol=1e-6, random_state=0)
    found = model.path(X, y, [0.1, 1.0, 10.0])
    for C, fitted in zip(found.Cs, found.models, strict=True):
        alone = LinearMCSVC(solver="sdm", C=C, tol=1e-6, max_epochs=100_000).fit(X, y)
        assert fitted.primal_ == pytest.approx(alone.primal_, rel=1e-5)


def test_a_warm_start_goes_on(blobs):
    X, y = blobs()
    model = LinearMCSVC(solver="splitting", tol=1e-6, warm_start=True).fit(X, y)
    first = model.n_iter_
    assert model.fit(X, y).n_iter_ < first


def test_a_fit_that_runs_out_of_epochs_says_what_to_do(blobs):
    X, y = blobs()
    with pytest.warns(ConvergenceWarning, match="raise max_epochs or tol, or scale the rows of X"):
        LinearMCSVC(solver="splitting", tol=1e-9, max_epochs=2).fit(X, y)
