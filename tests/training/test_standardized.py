"""standardize on rows that are read chunk by chunk: what StandardScaler makes of them."""

import re

import dask
import numpy as np
import pytest
import scipy.sparse as sp
from estimators.columns import VARIES, badly_scaled, on_dense_copies, scaled
from sklearn.preprocessing import StandardScaler
from training.sets import lazy, weights

from dask_mcsvm import LinearMCSVC
from dask_mcsvm.data.intake import dask_rows, dataset_rows
from dask_mcsvm.errors import CheckpointError
from dask_mcsvm.storage import write_dataset
from dask_mcsvm.training.runner import find_runner

SETTINGS = {"C": 0.1, "tol": 1e-3, "random_state": 0, "dtype": "float64", "max_epochs": 500}
#: Formulation, solver, its options, standardize, whether rows are sparse.
ON_DASK = (
    ("cs", "shards", {"lanes": 1}, True, True),
    ("cs", "shards", {"lanes": 2, "slices": 4}, "scale", False),
    ("llw", "shards", {"lanes": 2, "slices": 4}, True, True),
    ("ww", "rounds", {"groups": 2}, True, True),
    ("ww", "rounds", {"groups": 2}, "scale", True),
    ("llw", "averaging", {"groups": 2}, True, True),
    ("ovr", "classes", {"groups": 2}, True, True),
    ("ovr", "classes", {"groups": 2}, True, False),
    ("cs", "exchange", {"groups": 2, "slices": 4}, True, True),
    ("cs", "exchange", {"groups": 2, "slices": 4}, True, False),
    ("cs", "splitting", None, True, True),
    ("cs", "splitting", None, True, False),
)


def problem(n=120):
    X, y, w = badly_scaled(n=n)
    return X[:, VARIES], y, w


def is_near_optimum(model, X, y, w):
    """Certified against the same rows as a dense copy, whose fit shares no chunk with it."""
    dense = on_dense_copies(model, X, y, w)
    assert model.gap_ <= model.tol
    assert dense.dual_ <= model.primal_ * (1 + 1e-9)
    assert model.dual_ <= dense.primal_ * (1 + 1e-9)
    Z = scaled(X, w, model.standardize)
    W = np.asarray(model.coef_) * model.scale_
    bias = model.intercept_ + model.coef_ @ model.mean_ * (model.standardize is True)
    np.testing.assert_allclose(model.decision_function(X), Z @ W.T + bias, atol=1e-6)
    dense.coef_, dense.intercept_ = W, bias
    assert dense.certify(Z, y, w).primal == pytest.approx(model.primal_, rel=1e-9)


@pytest.mark.parametrize(("formulation", "solver", "options", "standardize", "csr"), ON_DASK)
def test_solvers_on_dask(formulation, solver, options, standardize, csr):
    X, y, w = problem()
    model = LinearMCSVC(
        formulation=formulation, solver=solver, solver_options=options, standardize=standardize,
        **SETTINGS,
    )  # fmt: skip
    rows = lazy(X, 40, csr)
    with dask.config.set(scheduler="sync"):
        model.fit(rows, y, w)
        again = model.certify(rows, y, w)
    is_near_optimum(model, X, y, w)
    assert again.primal == pytest.approx(model.primal_, rel=1e-9)
    assert again.primal == pytest.approx(model.certify(X, y, w).primal, rel=1e-9)


@pytest.mark.parametrize(
    ("formulation", "solver", "standardize", "csr"),
    [
        ("cs", "shards", True, True),
        ("llw", "shards", True, True),
        ("cs", "shards", True, False),
        ("ovr", "early_shrink", "scale", True),
        ("ovr", "early_shrink", True, False),
    ],
)
@pytest.mark.parametrize("memory_limit", ["1GB", None])
def test_datasets_in_this_process(formulation, solver, standardize, csr, memory_limit, tmp_path):
    if memory_limit is None and solver == "shards":
        memory_limit = 17 << 20  # some chunks at a time
    X, y, w = problem(n=400)
    path = write_dataset(
        tmp_path / "rows", sp.csr_array(X) if csr else X, y, sample_weight=w, block_rows=90
    ).path
    model = LinearMCSVC(
        formulation=formulation, solver=solver, standardize=standardize,
        memory_limit=memory_limit, **SETTINGS,
    )  # fmt: skip
    model.fit(path)
    is_near_optimum(model, X, y, w)
    assert model.certify(path).primal == pytest.approx(model.primal_, rel=1e-9)


def test_early_shrinking_does_not_centre_sparse_rows(tmp_path):
    X, y, _ = problem()
    path = write_dataset(tmp_path / "rows", sp.csr_array(X), y, block_rows=50).path
    message = (
        "solver='early_shrink' does not take the mean off sparse rows; use standardize='scale', "
        "or solver='auto'."
    )
    model = LinearMCSVC(formulation="ovr", solver="early_shrink", standardize=True)
    for rows in ((path,), (sp.csr_array(X), y)):
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            model.fit(*rows)
    model.set_params(solver="auto", memory_limit="1GB", tol=1e-2, C=0.1).fit(path)
    assert (model.solver_, model.gap_ <= 1e-2) == ("shards", True)
    model.set_params(solver="early_shrink", standardize="scale", memory_limit=None)
    assert model.fit(sp.csr_array(X), y).gap_ <= 1e-2


def test_moments_do_not_depend_on_chunks(tmp_path):
    X, y, w = problem()
    want = StandardScaler().fit(X[y > 0], sample_weight=w[y > 0])
    runner, found = find_runner(), []
    how = {"class_weight": {0: 0.0}, "dtype": None}
    with dask.config.set(scheduler="sync"):
        for chunk in (120, 50, 7, 50):
            for csr in (False, True):
                source = dask_rows(lazy(X, chunk, csr), y, w, None, runner, **how)
                found.append(source.moments(runner))
    dataset = write_dataset(tmp_path / "rows", X, y, sample_weight=w, block_rows=50)
    found.append(dataset_rows(dataset, None, None, None, **how).moments())
    for one in found:
        np.testing.assert_allclose(one.mean, want.mean_, rtol=1e-12)
        np.testing.assert_allclose(one.squares / one.total, want.var_, rtol=1e-12)
    for same in zip(*found[2:4], strict=True), zip(*found[6:8], strict=True):
        for one, other in same:
            np.testing.assert_allclose(one, other, rtol=1e-13)
    for one, other in zip(found[3], found[7], strict=True):
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()


@pytest.mark.parametrize(
    ("solver", "options", "csr"),
    [("shards", {"lanes": 2}, True), ("rounds", {"groups": 2}, True), ("splitting", None, False)],
)
def test_the_same_bytes_on_every_scheduler_and_after_a_resumed_fit(
    solver, options, csr, tmp_path, two_processes
):
    X, y, w = problem()
    given = SETTINGS | {"tol": 0, "max_epochs": 4}
    options = {"save_every": 2} | (options or {})
    model = LinearMCSVC(
        formulation="ww", solver=solver, solver_options=options, standardize=True, **given
    )
    rows = lazy(X, 40, csr)
    with dask.config.set(scheduler="sync"):
        whole = weights(model.fit(rows, y, w))
        model.set_params(checkpoint=str(tmp_path / "kept"), max_epochs=2).fit(rows, y, w)
        model.set_params(resume=True, max_epochs=4)
        assert weights(model.fit(rows, y, w)) == whole
        message = (
            "the checkpoint was written with another standardize; pass the same parameters, or "
            "another checkpoint path."
        )
        with pytest.raises(CheckpointError, match=f"^{re.escape(message)}$"):
            LinearMCSVC(**model.get_params() | {"standardize": "scale"}).fit(rows, y, w)
    model.set_params(resume=False, checkpoint=None)
    with two_processes.as_current():
        assert weights(model.fit(rows, y, w)) == whole


@pytest.mark.parametrize("where", ["memory", "dataset", "within a limit", "dask"])
def test_everything_at_once(where, tmp_path):
    """A path with margins, probabilities and a share held back; then what a model is asked for."""
    X, y, w = problem(n=400)
    rows, given = sp.csr_array(X), (y, w)
    if "dataset" in where or "limit" in where:
        rows = write_dataset(tmp_path / "rows", rows, y, sample_weight=w, block_rows=90).path
        given = (None, None)
    elif where == "dask":
        rows = lazy(X, 90, csr=True)
    model = LinearMCSVC(
        margins={(0, 1): 2.0}, probability=True, standardize=True,
        memory_limit="1GB" if "limit" in where else None, **SETTINGS,
    )  # fmt: skip
    with dask.config.set(scheduler="sync"):
        found = model.path(rows, given[0], [0.1, 0.03], (X, y), given[1])
        assert [one.gap_ <= 1e-3 for one in found.models] == [True, True]
        best = found.best_
        P = np.asarray(best.predict_proba(X))
        np.testing.assert_allclose(P.sum(axis=1), 1, rtol=1e-6)
        small = best.prune(rows, *given, max_gap=0.02)
        assert small.density_ < 1
        assert small.gap_ <= 0.02
        proof = small.certify(rows, *given)
        assert proof.relative_gap == pytest.approx(small.gap_, rel=1e-6)
        for one in (best, small):
            one.save(tmp_path / f"{one.density_}.zarr")
            again = LinearMCSVC.load(tmp_path / f"{one.density_}.zarr")
            np.testing.assert_array_equal(again.predict_proba(X), one.predict_proba(X))
            np.testing.assert_array_equal(again.certain(X), one.certain(X))
            assert again.certify(rows, *given).primal == pytest.approx(
                one.certify(X, y, w).primal, rel=1e-9
            )
        lazily = np.asarray(best.certain(lazy(X, 90)))
        np.testing.assert_array_equal(lazily, best.certain(X))
    alone = LinearMCSVC(**model.get_params()).set_params(C=best.C, probability=False, tol=1e-6)
    alone.set_params(memory_limit=None, max_epochs=5000).fit(sp.csr_array(X), y, w)
    assert alone.dual_ <= best.primal_ * (1 + 1e-9)
    assert best.primal_ <= alone.primal_ * (1 + 1e-3)
    sure = best.certain(X)
    np.testing.assert_array_equal(best.predict(X)[sure], alone.predict(X)[sure])


def test_two_threads_on_dense_rows(monkeypatch):
    monkeypatch.setattr("dask_mcsvm.training.plan.THREAD_WORK", 0)
    X, y, w = problem(n=400)
    model = LinearMCSVC(standardize=True, solver="sdm", n_jobs=2, **SETTINGS).fit(X, y, w)
    is_near_optimum(model, X, y, w)
