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
from sklearn.preprocessing import StandardScaler

from dask_mcsvm import LinearMCSVC
from dask_mcsvm.errors import CheckpointError, ModelFormatError
from dask_mcsvm.formulations import FORMULATIONS
from dask_mcsvm.storage import write_dataset

EXACT: dict[str, Any] = {"C": 0.3, "tol": 1e-9, "max_epochs": 20_000, "random_state": 0}
VARIES = np.arange(9) != 3  # one column is constant


def badly_scaled(k: int = 4, n: int = 120, d: int = 9, seed: int = 0) -> tuple[Any, Any, Any]:
    """Overlapping classes, half of the entries zero, columns of unlike scales, one constant."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % k)
    X = rng.normal(size=(n, d)) + rng.normal(size=(k, d))[y] + 1
    X[rng.random((n, d)) < 0.5] = 0
    X *= 10.0 ** rng.integers(-3, 4, size=d)
    X[:, 3] = 7.0
    return X, y, rng.random(n) + 0.2


def scaled(X: Any, w: Any, standardize: Any) -> Any:
    return StandardScaler(with_mean=standardize is True).fit(X, sample_weight=w).transform(X)


def on_dense_copies(model: LinearMCSVC, X: Any, y: Any, w: Any) -> LinearMCSVC:
    """The same estimator, fitted to what StandardScaler makes of X."""
    plain = LinearMCSVC(**model.get_params()).set_params(standardize=False, checkpoint=None)
    plain.set_params(solver="auto", solver_options=None, memory_limit=None, scratch=None)
    return plain.fit(scaled(X, w, model.standardize), y, w)


def agrees(model: LinearMCSVC, dense: LinearMCSVC, X: Any, w: Any) -> None:
    """Objective to 1e-6, weights after the way back, scores of raw rows."""
    assert model.gap_ <= model.tol
    assert model.primal_ == pytest.approx(dense.primal_, rel=1e-6)
    weights = (np.asarray(model.coef_) * model.scale_)[:, VARIES]
    np.testing.assert_allclose(weights, dense.coef_[:, VARIES], atol=1e-3)
    scores = dense.decision_function(scaled(X, w, model.standardize))
    np.testing.assert_allclose(model.decision_function(X), scores, atol=3e-3)


def bounds_agree(model: LinearMCSVC, dense: LinearMCSVC) -> None:
    """Each bound of the one problem is one of the other, too; of many epochs on Dask enough."""
    assert model.gap_ <= model.tol
    assert model.dual_ <= dense.primal_ * (1 + 1e-9)
    assert dense.dual_ <= model.primal_ * (1 + 1e-9)


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


def test_constant_columns_are_said_once(caplog: pytest.LogCaptureFixture) -> None:
    X, y, _ = badly_scaled()
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


# -- chunk by chunk --------------------------------------------------------------------------------


def chunks(X: Any, csr: bool) -> Any:
    rows = da.from_array(X, chunks=(50, -1))
    return rows.map_blocks(sp.csr_matrix) if csr else rows


@pytest.mark.parametrize(
    ("solver", "formulation", "options"),
    [
        ("shards", "crammer_singer", {"lanes": 2}),
        ("shards", "lee_lin_wahba", {"lanes": 1}),
        ("splitting", "crammer_singer", {}),
    ],
)
def test_on_dask_as_in_memory(solver: str, formulation: str, options: Any) -> None:
    X, y, w = badly_scaled()
    for standardize in (True, "scale"):
        model = LinearMCSVC(
            formulation=formulation, solver=solver, standardize=standardize,
            solver_options=options, **EXACT | {"tol": 1e-3},
        )  # fmt: skip
        dense = on_dense_copies(model.set_params(tol=1e-7), X, y, w)
        model.set_params(tol=1e-3)
        for csr in (False, True):
            rows = chunks(X, csr)
            bounds_agree(model.fit(rows, y, w), dense)
            assert model.certify(rows, y, w).primal == pytest.approx(model.primal_, rel=1e-9)
            assert model.certify(X, y, w).primal == pytest.approx(model.primal_, rel=1e-9)
            assert (model.certain(rows).compute() == model.certain(X)).all()


@pytest.mark.parametrize(
    ("solver", "formulation"),
    [("rounds", "weston_watkins"), ("averaging", "lee_lin_wahba"), ("classes", "one_vs_rest")],
)
def test_groups_of_classes_take_dense_rows_or_a_scale(solver: str, formulation: str) -> None:
    X, y, w = badly_scaled()
    model = LinearMCSVC(
        formulation=formulation, solver=solver, C=0.3, tol=1e-2, standardize=True, random_state=0
    )
    for standardize, csr in ((True, False), ("scale", True)):
        dense = on_dense_copies(model.set_params(standardize=standardize), X, y, w)
        model.fit(chunks(X, csr), y, w)
        assert model.primal_ == pytest.approx(dense.primal_, rel=2e-2)
    message = (
        f"solver={solver!r} (asked for by solver={solver!r}) does not centre sparse rows; use "
        "standardize='scale', or solver='shards' where W fits a worker."
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        model.set_params(standardize=True).fit(chunks(X, csr=True), y, w)


@pytest.mark.parametrize("csr", [False, True])
def test_datasets_within_a_limit(csr: bool, tmp_path: Path) -> None:
    X, y, w = badly_scaled()
    rows = sp.csr_array(X) if csr else X
    path = tmp_path / "rows.zarr"
    write_dataset(path, rows, y, sample_weight=w)
    blocks = LinearMCSVC(standardize=True, memory_limit="64MB", **EXACT | {"tol": 1e-3})
    bounds_agree(blocks.fit(path), on_dense_copies(blocks, X, y, w))
    ovr = LinearMCSVC(formulation="ovr", solver="early_shrink", **EXACT | {"tol": 1e-3})
    ovr.set_params(standardize="scale" if csr else True)
    bounds_agree(ovr.fit(path), on_dense_copies(ovr, X, y, w))
    if csr:
        message = (
            "solver='early_shrink' does not centre sparse rows; use standardize='scale', or "
            "solver='shards'."
        )
        with pytest.raises(ValueError, match=re.escape(message)):
            ovr.set_params(standardize=True).fit(path)


def test_a_class_of_weight_zero_counts_for_no_mean() -> None:
    X, y, w = badly_scaled()
    model = LinearMCSVC(standardize=True, class_weight={0: 0.0}, tol=1e-3, random_state=0)
    want = StandardScaler().fit(X[y > 0], sample_weight=w[y > 0])
    for rows in (X, chunks(X, csr=False)):
        model.fit(rows, y, w)
        np.testing.assert_allclose(model.mean_, want.mean_, rtol=1e-9)
        np.testing.assert_allclose(model.scale_, want.scale_, rtol=1e-9)


def test_a_checkpoint_with_another_standardize_is_refused(tmp_path: Path) -> None:
    X, y, w = badly_scaled()
    rows = chunks(X, csr=True)
    model = LinearMCSVC(
        solver="shards", standardize=True, checkpoint=tmp_path / "c", tol=0, max_epochs=2,
        random_state=0, solver_options={"save_every": 1, "lanes": 2},
    ).fit(rows, y, w)  # fmt: skip
    whole = LinearMCSVC(**model.get_params()).set_params(max_epochs=4, checkpoint=None)
    whole.fit(rows, y, w)
    model.set_params(max_epochs=4, resume=True).fit(rows, y, w)
    assert model.coef_.tobytes() == whole.coef_.tobytes()
    message = (
        "the checkpoint was written with standardize=True; pass the same parameters, or another "
        "checkpoint path."
    )
    with pytest.raises(CheckpointError, match=re.escape(message)):
        model.set_params(standardize="scale").fit(rows, y, w)


def test_radius_needs_rows_in_memory() -> None:
    X, y, w = badly_scaled()
    model = LinearMCSVC(standardize=True, intercept_scaling="radius", **EXACT)
    agrees(model.fit(sp.csr_array(X), y, w), on_dense_copies(model, X, y, w), X, w)
    message = (
        'intercept_scaling="radius" needs the norms of standardized rows, which a fit chunk by '
        "chunk does not take; type intercept_scaling=3.0, about their norm."
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        model.fit(chunks(X, csr=False), y, w)
