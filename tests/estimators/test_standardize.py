"""standardize: what StandardScaler and a fit on its dense rows give, without those rows."""

import logging
import re
import tracemalloc
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from estimators.columns import EXACT, VARIES, badly_scaled, on_dense_copies, scaled
from sklearn.preprocessing import StandardScaler

from dask_mcsvm import LinearMCSVC
from dask_mcsvm.errors import ModelFormatError
from dask_mcsvm.formulations import FORMULATIONS


def agrees(model: LinearMCSVC, dense: LinearMCSVC, X: Any, w: Any) -> None:
    """Objective to 1e-6, weights after the way back, scores of raw rows."""
    assert model.gap_ <= model.tol
    assert model.primal_ == pytest.approx(dense.primal_, rel=1e-6)
    weights = (np.asarray(model.coef_) * model.scale_)[:, VARIES]
    np.testing.assert_allclose(weights, dense.coef_[:, VARIES], atol=1e-3)
    scores = dense.decision_function(scaled(X, w, model.standardize))
    np.testing.assert_allclose(model.decision_function(X), scores, atol=3e-3)


@pytest.mark.parametrize("solver", ["sdm", "splitting"])
@pytest.mark.parametrize("formulation", list(FORMULATIONS))
def test_a_fit_on_standard_scalers_rows_finds_the_same(formulation: str, solver: str) -> None:
    X, y, w = badly_scaled()
    for standardize, intercept in ((True, True), (True, False), ("scale", True)):
        model = LinearMCSVC(
            formulation=formulation, solver=solver, fit_intercept=intercept,
            standardize=standardize, **EXACT,
        )  # fmt: skip
        dense = on_dense_copies(model, X, y, w)
        for rows in (X, sp.csr_array(X)):
            agrees(model.fit(rows, y, w), dense, X, w)


def test_float32_and_two_classes_and_threads() -> None:
    X, y, w = badly_scaled(k=2, n=400)
    given = EXACT | {"tol": 1e-4}
    model = LinearMCSVC(standardize=True, dtype="float32", n_jobs=2, **given)
    dense = on_dense_copies(model.set_params(dtype="float64"), X, y, w)
    for rows in (X, sp.csr_array(X)):
        model.set_params(dtype="float32").fit(rows, y, w)
        assert model.coef_.dtype == np.float32
        assert model.gap_ <= 1e-4
        assert model.primal_ == pytest.approx(dense.primal_, rel=2e-4)
        assert (model.predict(rows) == dense.predict(scaled(X, w, True))).mean() > 0.99


def test_sparse_rows_stay_sparse() -> None:
    n, d = 3000, 20_000
    rng = np.random.default_rng(0)
    X = sp.random_array((n, d), density=1e-3, format="csr", rng=rng, dtype=np.float32)
    y = rng.integers(3, size=n)
    model = LinearMCSVC(standardize=True, max_epochs=3, tol=0, random_state=0)
    model.fit(X, y)  # kernels are compiled
    tracemalloc.start()
    model.fit(X, y)
    model.predict(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < n * d * 4 / 10


def test_certificate_certain_labels_and_files_are_of_the_standardized_problem(
    tmp_path: Path,
) -> None:
    X, y, w = badly_scaled()
    Z = scaled(X, w, True)
    exact = LinearMCSVC(**EXACT).fit(Z, y, w)
    model = LinearMCSVC(standardize=True, **EXACT | {"tol": 1e-4}).fit(sp.csr_array(X), y, w)
    found = model.certify(X, y, w)
    assert found.primal == pytest.approx(model.primal_, rel=1e-9)
    assert found.relative_gap == pytest.approx(model.gap_, rel=1e-4)
    sure = model.certain(X)
    assert sure.mean() > 0.1
    np.testing.assert_array_equal(model.predict(X)[sure], exact.predict(Z)[sure])
    model.save(tmp_path / "m.zarr")
    again = LinearMCSVC.load(tmp_path / "m.zarr")
    np.testing.assert_array_equal(again.mean_, model.mean_)
    np.testing.assert_array_equal(again.certain(X), sure)
    assert again.certify(sp.csr_array(X), y, w).primal == pytest.approx(found.primal, rel=1e-12)
    np.testing.assert_array_equal(
        model.to_linear_svc().predict(X), LinearMCSVC.load(tmp_path / "m.zarr").predict(X)
    )
    assert not hasattr(model.set_params(standardize=False, tol=1).fit(Z, y), "mean_")


def test_a_file_without_a_scale_above_zero_is_refused(tmp_path: Path) -> None:
    X, y, w = badly_scaled()
    model = LinearMCSVC(standardize=True, tol=1).fit(X, y, w)
    model._trained.columns.scale[:] = 0  # type: ignore[union-attr]
    model.save(tmp_path / "m.zarr")
    with pytest.raises(ModelFormatError, match="the columns' scale is not above 0"):
        LinearMCSVC.load(tmp_path / "m.zarr")


def test_paths_and_warm_starts_go_on_from_dual_variables() -> None:
    X, y, w = badly_scaled()
    X = sp.csr_array(X)
    model = LinearMCSVC(standardize=True, warm_start=True, **EXACT)
    first = model.fit(X, y, w).n_iter_
    assert model.fit(X, y, w).n_iter_ < first / 4
    assert model.set_params(standardize="scale").fit(X, y, w).gap_ <= 1e-9
    found = LinearMCSVC(standardize=True, **EXACT).path(X, y, [0.3, 0.1], 0.25, w)
    assert [one.gap_ <= 1e-9 for one in found.models] == [True, True]
    alone = LinearMCSVC(standardize=True, **EXACT).path(X, y, [0.3], 0.25, w).models[0]
    assert found.models[1].primal_ == pytest.approx(alone.primal_, rel=1e-7)


@pytest.mark.parametrize("place", ["memory", "Dask"])
def test_constant_columns_are_said_once(place: str, caplog: pytest.LogCaptureFixture) -> None:
    X, y, _ = badly_scaled()
    if place == "Dask":
        X = da.from_array(X, chunks=(50, -1))
    with caplog.at_level(logging.WARNING, "dask_mcsvm"):
        LinearMCSVC(standardize=True, tol=0.1).path(X, y, [0.1, 1.0])
    said = [record.getMessage() for record in caplog.records]
    assert said == ["1 of 9 columns of X are constant; standardize leaves their scale at 1."]


@pytest.mark.parametrize("value", [1, None, "mean", np.nan])
def test_other_values_are_refused(value: Any) -> None:
    X, y, _ = badly_scaled()
    message = (
        f'standardize is {value!r}; it must be True, False or "scale", for example '
        "standardize=True."
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        LinearMCSVC(standardize=value).fit(X, y)


@pytest.mark.parametrize("place", ["memory", "Dask"])
def test_a_deviation_that_weights_cannot_be_divided_by_is_refused(place: str) -> None:
    """Else `coef_` is infinite in float32, and labels of a small gap are wrong."""
    X, y, _ = badly_scaled(n=60)
    X = X[:, VARIES]
    X[:, 1] *= 1e-40 / X[:, 1].std()
    rows = X if place == "memory" else da.from_array(X, chunks=(30, -1))
    model = LinearMCSVC(standardize=True, dtype="float32", random_state=0)
    sentence = (
        "column 1 of X has a deviation of 1.0e-40, and standardize divides float32 weights by "
        '7.9e-31 or more; drop that column, or multiply it by a number, or type dtype="float64".'
    )
    with pytest.raises(ValueError, match=re.escape(sentence)):
        model.fit(rows, y if place == "memory" else da.from_array(y, chunks=30))
    assert np.isfinite(model.set_params(dtype="float64").fit(X, y).coef_).all()


def test_a_class_of_weight_zero_counts_for_no_mean() -> None:
    X, y, w = badly_scaled()
    model = LinearMCSVC(standardize=True, class_weight={0: 0.0}, tol=1e-3, random_state=0)
    want = StandardScaler().fit(X[y > 0], sample_weight=w[y > 0])
    model.fit(X, y, w)
    np.testing.assert_allclose(model.mean_, want.mean_, rtol=1e-9)
    np.testing.assert_allclose(model.scale_, want.scale_, rtol=1e-9)


def test_the_radius_is_that_of_standardized_rows() -> None:
    X, y, w = badly_scaled()
    model = LinearMCSVC(standardize=True, intercept_scaling="radius", **EXACT)
    agrees(model.fit(sp.csr_array(X), y, w), on_dense_copies(model, X, y, w), X, w)


def test_probabilities_and_pruned_models_are_of_the_standardized_problem(caplog: Any) -> None:
    """Which rows are held out follows from their values, so that temperatures are but alike."""
    X, y, w = badly_scaled(n=400)
    for rows in (X, sp.csr_array(X)):
        model = LinearMCSVC(standardize=True, probability=True, **EXACT | {"tol": 1e-4})
        dense = on_dense_copies(model, X, y, w)
        caplog.clear()
        model.fit(rows, y, w)
        assert len(caplog.records) == 1  # the constant column is told of once
        assert model.temperature_ == pytest.approx(dense.temperature_, rel=0.2)
        expected = dense.predict_proba(scaled(X, w, True))
        np.testing.assert_allclose(model.predict_proba(rows), expected, atol=0.05)
        small = model.prune(rows, y, sample_weight=w, max_gap=0.05)
        assert small.density_ < model.density_
        assert small.gap_ <= 0.05
        assert small.certify(rows, y, w).relative_gap == pytest.approx(small.gap_, rel=1e-9)
