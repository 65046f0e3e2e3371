"""predict_proba: one temperature, found on rows that a short second fit leaves out."""

import re
from pathlib import Path

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import log_loss
from training.sets import lazy, small_set, svm

from dask_mcsvm import LinearMCSVC
from dask_mcsvm.data.held_out import PARTS, chosen_parts, parts_of_rows
from dask_mcsvm.formulations import FORMULATIONS
from dask_mcsvm.storage import write_dataset


def sure(**parameters):
    return LinearMCSVC(**{"C": 0.3, "probability": True, "random_state": 0} | parameters)


@pytest.mark.parametrize("k", [2, 4])
@pytest.mark.parametrize("formulation", list(FORMULATIONS))
def test_probabilities_are_those_of_rows_not_seen(formulation, k):
    X, y = small_set(n=1200, k=k)
    order = np.random.default_rng(1).permutation(y.size)
    seen, new = order[:400], order[400:]
    model = sure(formulation=formulation).fit(X[seen], y[seen])
    P = model.predict_proba(X[new])
    assert P.shape == (new.size, k)
    np.testing.assert_allclose(P.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_array_equal(P.argmax(axis=1), model.predict(X[new]))
    plain = sure(formulation=formulation, probability=False).fit(X[seen], y[seen])
    np.testing.assert_array_equal(model.coef_, plain.coef_)  # the fit itself is what it was
    found = log_loss(y[new], P)
    for factor in (0.5, 2.0):
        model.temperature_ *= factor
        assert found < log_loss(y[new], model.predict_proba(X[new]))
        model.temperature_ /= factor


def test_in_memory_on_dask_on_disk_and_out_of_core_agree(tmp_path: Path):
    X, y = small_set(n=400)
    w = np.random.default_rng(0).integers(0, 3, y.size).astype(float)
    write_dataset(tmp_path / "rows.zarr", X, y, sample_weight=w, block_rows=150)
    for form, solver in (("cs", "shards"), ("ovr", "early_shrink")):
        here = sure(formulation=form, class_weight={0: 2.0}).fit(X, y, sample_weight=w)
        chunks = lazy(X, 150), da.from_array(y, chunks=150), da.from_array(w, chunks=150)
        there = clone(here).fit(*chunks)
        disk = clone(here).fit(tmp_path / "rows.zarr")
        small = clone(here).set_params(memory_limit="64MB").fit(tmp_path / "rows.zarr")
        assert small.plan_.solver == solver
        assert disk.temperature_ == there.temperature_
        for other in (there, small):
            assert other.temperature_ == pytest.approx(here.temperature_, rel=0.05)
        P = there.predict_proba(chunks[0])
        assert P.chunks == ((150, 150, 100), (4,))
        np.testing.assert_allclose(P.compute(), there.predict_proba(X), rtol=1e-12)
        there.save(tmp_path / f"{form}.zarr")
        again = LinearMCSVC.load(tmp_path / f"{form}.zarr")
        assert again.temperature_ == there.temperature_
        np.testing.assert_array_equal(again.predict_proba(X), there.predict_proba(X))


@pytest.mark.parametrize("solver", ["rounds", "averaging", "classes", "exchange", "splitting"])
def test_every_solver_on_dask_has_probabilities(solver):
    X, y = small_set()
    model = svm(solver, probability=True).fit(lazy(X), da.from_array(y, chunks=50))
    plain = svm(solver).fit(lazy(X), da.from_array(y, chunks=50))
    np.testing.assert_array_equal(model.coef_, plain.coef_)
    P = model.predict_proba(X)
    assert log_loss(y, P) < log_loss(y, np.full_like(P, 0.25))


def test_a_large_model_stays_in_files_and_those_of_held_out_fits_go(tmp_path: Path):
    X, y = small_set()
    model = svm("rounds", probability=True, memory_limit=300, scratch=str(tmp_path))
    model.fit(lazy(X), da.from_array(y, chunks=50))
    assert isinstance(model.predict_proba(lazy(X)), da.Array)
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)
    assert [path.name.split("-")[0] for path in tmp_path.iterdir()] == ["weights"]


def test_a_weight_of_two_is_two_copies_and_of_zero_no_row():
    X, y = small_set(n=120)
    w = np.random.default_rng(0).integers(0, 3, y.size)
    exact = sure(tol=1e-10, max_epochs=20_000, dtype="float64")
    weighted = exact.fit(X, y, sample_weight=w).temperature_
    copies = np.repeat(np.arange(y.size), w)[::-1]
    repeated = clone(exact).fit(X[copies], y[copies]).temperature_
    assert weighted == pytest.approx(repeated, rel=1e-3)


def test_classes_of_one_row_have_probabilities():
    X, y = small_set(n=100)
    y[:3] = [7, 8, 9]
    P = sure().fit(X, y, classes=np.arange(11)).predict_proba(X)
    assert P.shape == (100, 11)
    assert (P > 0).all()


def test_too_few_rows_to_hold_any_out_have_a_temperature_of_one():
    model = sure().fit(np.eye(2), [0, 1])
    assert model.temperature_ == 1.0


def test_parts_do_not_depend_on_storage_order_or_chunks():
    X, _ = small_set(n=500, dtype="float32")
    X[np.abs(X) < 0.1] = 0.0
    X[:3] = 0.0
    part = parts_of_rows(X)
    assert np.bincount(part[3:], minlength=PARTS).min() > 60
    assert np.ptp(part[:3]) == 0
    np.testing.assert_array_equal(parts_of_rows(sp.csr_array(X)), part)
    np.testing.assert_array_equal(parts_of_rows(X[::-1].astype(np.float64)), part[::-1])
    np.testing.assert_array_equal(parts_of_rows(X[100:200]), part[100:200])
    assert np.unique(parts_of_rows(np.linspace(0.1, 1, 100)[:, None])).size == PARTS


def test_rows_so_small_that_their_squares_are_zero_have_a_part():
    rows = np.array([[1e-200, 0.0], [-1e-200, 0.0], [0.0, 0.0]])  # places about zero, one below
    assert set(parts_of_rows(rows)) == {0, PARTS - 1}


@pytest.mark.parametrize("solver", ["auto", "splitting"])
def test_two_classes_on_dask_have_the_temperature_of_memory(solver):
    X, y = small_set(n=400, k=2)
    here = sure(solver=solver).fit(X, y)
    there = clone(here).fit(lazy(X, 150), da.from_array(y, chunks=150))
    assert there.temperature_ == pytest.approx(here.temperature_, rel=0.05)


def test_a_part_is_held_out_only_if_two_classes_are_left():
    counts = np.zeros((PARTS, 3))
    counts[0, 0], counts[1] = 5000, [1, 1, 0]
    assert chosen_parts(counts) == [0]
    counts[0, 0], counts[2, 0] = 1, 9
    assert chosen_parts(counts) == [0, 2]


def test_what_was_not_fitted_for_it_says_what_to_type():
    X, y = small_set()
    model = LinearMCSVC(random_state=0).fit(X, y)
    assert not hasattr(model, "predict_proba")
    with pytest.raises(AttributeError) as refused:
        _ = model.predict_proba
    sentence = (
        "predict_proba needs a model fitted for it; type LinearMCSVC(probability=True) and fit it."
    )
    assert str(refused.value.__cause__) == sentence
    later = (
        "this model was fitted with probability=False; type fit(X, y) again, now that probability "
        "is True."
    )
    with pytest.raises(NotFittedError, match=f"^{re.escape(later)}$"):
        model.set_params(probability=True).predict_proba(X)
    with pytest.raises(ValueError, match=r"^probability is 1; it must be True or False"):
        LinearMCSVC(probability=1).fit(X, y)
