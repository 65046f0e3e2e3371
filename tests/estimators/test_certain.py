"""Certain labels: those that the exact optimum gives too, and no others are promised."""

import re
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp

from dask_mcsvm import LinearMCSVC
from dask_mcsvm.errors import CertificateError
from dask_mcsvm.formulations import FORMULATIONS, Nearness
from dask_mcsvm.storage import write_dataset

CHANGED = (
    "coef_ or intercept_ are not known to be those that the fit certified; type "
    "certain(X, certificate=model.certify(X_train, y_train)) with the training rows."
)


def rows(k: int, seed: int, n: int = 60) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % k)
    return rng.normal(size=(n, 5)) + 0.8 * rng.normal(size=(k, 5))[y], y


@pytest.mark.parametrize("k", [2, 4])
@pytest.mark.parametrize("formulation", list(FORMULATIONS))
@pytest.mark.parametrize("tau", [None, 1.0, 10.0])
def test_no_certain_label_differs_from_the_optimums(
    formulation: str, k: int, tau: float | None
) -> None:
    scaling: dict[str, Any] = (
        {"fit_intercept": False} if tau is None else {"intercept_scaling": tau}
    )
    shares = []
    for seed in range(2):
        X, y = rows(k, seed)
        # Rows near the border too: there labels do change.
        Z = np.vstack([X, 0.1 * np.random.default_rng(seed).normal(size=(2000, 5))])
        model = LinearMCSVC(formulation=formulation, C=0.1, random_state=0, **scaling)
        best = model.set_params(tol=1e-10, max_epochs=20_000).fit(X, y).predict(Z)
        assert model.gap_ <= 1e-10
        for tol in (0.3, 1e-2, 1e-4, 1e-6):
            for dtype in ("float32", "float64")[tol < 1e-5 :]:
                model.set_params(tol=tol, dtype=dtype).fit(X, y)
                sure = model.certain(Z)
                assert (sure.shape, sure.dtype) == ((Z.shape[0],), bool)
                np.testing.assert_array_equal(model.predict(Z)[sure], best[sure])
        shares.append(sure.mean())
    assert min(shares) > 0.5


def test_dense_csr_sparsified_lazy_dataset_and_loaded_agree(tmp_path: Path) -> None:
    X, y = rows(4, 0)
    for formulation in FORMULATIONS:
        for k in (2, 4):
            model = LinearMCSVC(formulation=formulation, C=0.1, random_state=0).fit(X, y % k)
            sure = model.certain(X)
            assert 0 < sure.sum() < y.size
            lazy = model.certain(da.from_array(X, chunks=(31, 5)))
            assert isinstance(lazy, da.Array)
            assert lazy.dtype == bool
            np.testing.assert_array_equal(lazy.compute(), sure)
            np.testing.assert_array_equal(model.certain(sp.csr_array(X)), sure)
            model.save(tmp_path / f"{formulation}-{k}.zarr")
            again = LinearMCSVC.load(tmp_path / f"{formulation}-{k}.zarr")
            np.testing.assert_array_equal(again.certain(X), sure)
            np.testing.assert_array_equal(model.sparsify().certain(X), sure)
    write_dataset(tmp_path / "rows.zarr", sp.csr_array(X), y)
    np.testing.assert_array_equal(model.certain(tmp_path / "rows.zarr").compute(), sure)


def test_classes_in_several_parts_agree() -> None:
    X, y = rows(4, 1)
    for formulation in FORMULATIONS:
        for k in (2, 4):
            model = LinearMCSVC(formulation=formulation, C=0.1, random_state=0).fit(X, y % k)
            sure = model.certain(X)
            model.coef_ = da.from_array(np.ascontiguousarray(model.coef_), chunks=(1, 5))
            np.testing.assert_array_equal(model.certain(X), sure)


def test_a_fit_on_dask_is_certain_of_the_optimums_labels_only() -> None:
    X, y = rows(4, 2)
    lazy, labels = da.from_array(X, chunks=(30, 5)), da.from_array(y, chunks=30)
    best = LinearMCSVC(C=0.1, tol=1e-10, max_epochs=20_000, random_state=0).fit(X, y).predict(X)
    model = LinearMCSVC(C=0.1, tol=1e-4, random_state=0).fit(lazy, labels)
    sure = model.certain(X)
    assert sure.mean() > 0.5
    np.testing.assert_array_equal(model.predict(X)[sure], best[sure])


def test_an_edited_model_needs_a_certificate_of_its_own() -> None:
    X, y = rows(4, 0)
    model = LinearMCSVC(C=0.1, tol=1e-7, random_state=0).fit(X, y)
    best, before = model.predict(X), model.certain(X)
    model.coef_ = np.round(model.coef_, 2)
    with pytest.raises(CertificateError, match=f"^{re.escape(CHANGED)}$"):
        model.certain(X)
    sure = model.certain(X, certificate=model.certify(X, y))
    assert 0 < sure.sum() < before.sum()
    np.testing.assert_array_equal(model.predict(X)[sure & before], best[sure & before])


def test_an_edit_that_was_saved_is_still_one(tmp_path: Path) -> None:
    X, y = rows(4, 0)
    model = LinearMCSVC(C=0.1, random_state=0).fit(X, y)
    model.intercept_ = model.intercept_ + 1.0
    model.save(tmp_path / "edited.zarr")
    with pytest.raises(CertificateError, match=f"^{re.escape(CHANGED)}$"):
        LinearMCSVC.load(tmp_path / "edited.zarr").certain(X)


def test_what_is_no_certificate_is_refused() -> None:
    X, y = rows(4, 0)
    model = LinearMCSVC(C=0.1, random_state=0).fit(X, y)
    wanted = (
        "certificate is a float; it must be what certify returns: type "
        "certain(X, certificate=model.certify(X_train, y_train))."
    )
    with pytest.raises(TypeError, match=f"^{re.escape(wanted)}$"):
        model.certain(X, certificate=1e-3)  # type: ignore[arg-type]


def test_a_fit_without_a_bound_is_refused() -> None:
    X, y = rows(4, 0)
    model = LinearMCSVC(
        formulation="ovr", solver="early_shrink", solver_options={"certify": False}, random_state=0
    ).fit(X, y)
    wanted = "the fit proved no gap (gap_ is nan); fit again with a solver that certifies."
    with pytest.raises(CertificateError, match=f"^{re.escape(wanted)}$"):
        model.certain(X)


def test_a_score_that_overflows_is_not_certain() -> None:
    near = Nearness(0.0, 1.0, 1.0, 0.0, "crammer_singer")
    scores = np.array([[np.inf, 0.0], [np.inf, np.inf], [3.0, 1.0]])
    with np.errstate(invalid="ignore"):
        found = near.is_certain(scores, np.ones(3), 3)
    np.testing.assert_array_equal(found, [False, False, True])
