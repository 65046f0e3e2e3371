"""When a fit stops, who may watch it, and how the next one goes on from there."""

import logging
import math
import subprocess
import sys

import dask.array as da
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from dask_mcsvm import LinearMCSVC
from dask_mcsvm.errors import PrecisionWarning
from dask_mcsvm.storage import write_dataset


def test_the_convergence_warning_says_what_to_do(blobs):
    X, y = blobs()
    model = LinearMCSVC(max_epochs=2, tol=1e-9, random_state=0)
    with pytest.warns(ConvergenceWarning) as caught:
        model.fit(X, y)
    (warning,) = caught
    gap = f"{model.gap_:.1e}".replace(".0e", "e")
    assert str(warning.message) == (
        f"LinearMCSVC stopped after max_epochs=2 with relative gap {gap} > tol=1e-09; raise "
        "max_epochs or tol, or scale the rows of X to unit norm or its features to unit variance "
        "(standardize='scale')."
    )
    assert warning.filename == __file__
    assert model.stop_ == "max_epochs"


RAISE = "raise max_epochs or tol, "
TRY = "try solver='splitting', "
SCALED = "or scale the rows of X to unit norm or its features to unit variance."
SCALE = SCALED.replace(".", " (standardize='scale').")


@pytest.mark.parametrize(
    ("given", "d", "advice"),
    [
        ({"solver": "sdm"}, 5, RAISE + TRY + SCALE),
        ({"solver_options": {"schedule": "uniform"}}, 5, RAISE + TRY + SCALE),
        ({"solver": "splitting"}, 5, RAISE + SCALE),
        ({"solver": "sdm", "standardize": True}, 5, RAISE + TRY + SCALED),
        ({}, 5, RAISE + SCALE),  # auto takes splitting by itself where that pays
        ({"solver": "sdm"}, 4097, RAISE + SCALE),
        ({"solver": "shards"}, 5, RAISE + TRY + SCALE),
        ({"solver": "shards"}, 4097, RAISE + SCALE),
    ],
)
def test_the_convergence_warning_names_a_solver_that_was_not_tried(given, d, advice):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, d)), np.arange(40) % 4
    if given.get("solver") == "shards":
        X = da.from_array(X, chunks=(20, -1))
    with pytest.warns(ConvergenceWarning) as caught:
        LinearMCSVC(C=100, tol=1e-12, max_epochs=2, random_state=0, **given).fit(X, y)
    (warning,) = caught
    assert str(warning.message).split("; ")[1] == advice


def test_the_convergence_warning_of_a_fit_out_of_core_names_the_limit(tmp_path):
    rng = np.random.default_rng(0)
    write_dataset(tmp_path / "rows", rng.normal(size=(60, 5)), np.arange(60) % 3, block_rows=20)
    for formulation in ("cs", "ovr"):
        model = LinearMCSVC(
            formulation=formulation, C=100, tol=1e-12, max_epochs=2, memory_limit="200MB"
        )
        with pytest.warns(ConvergenceWarning) as caught:
            model.fit(tmp_path / "rows")
        (warning,) = caught
        advice = "raise max_epochs, tol or memory_limit, " + SCALE
        assert str(warning.message).split("; ")[1] == advice
        assert (model.stop_, model.n_iter_) == ("max_epochs", 2)


WAYS = {
    "sdm": {"solver": "sdm"},
    "splitting": {"solver": "splitting"},
    "early_shrink": {"formulation": "ovr", "solver": "early_shrink"},
    "shards": {"solver": "shards"},
    "rounds": {"formulation": "ww", "solver": "rounds"},
    "blocks": {"memory_limit": "200MB"},
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("way", list(WAYS))
@pytest.mark.parametrize("max_epochs", [3, 500])
def test_n_iter_is_the_epochs_begun_however_a_fit_runs(way, max_epochs, blobs, tmp_path):
    X, y = blobs()
    rows = (X, y)
    if way in ("shards", "rounds"):
        rows = da.from_array(X, chunks=(30, -1)), y
    elif way == "blocks":
        rows = (write_dataset(tmp_path / "rows", X, y, block_rows=30).path,)
    model = LinearMCSVC(tol=0.01, max_epochs=max_epochs, random_state=0, **WAYS[way])
    models = [model.fit(*rows)]
    if way != "blocks":
        models += model.path(*rows, [0.5, 1.0]).models
    for found in models:
        assert found.n_iter_ == min(math.ceil(found.history_[-1]["epoch"]), max_epochs)


@pytest.mark.parametrize("solver", ["sdm", "splitting"])
@pytest.mark.parametrize("epochs", [1, 7, 30])
def test_tol_0_runs_all_epochs_without_a_warning(blobs, formulation, solver, epochs):
    X, y = blobs()
    model = LinearMCSVC(
        formulation=formulation, solver=solver, tol=0, max_epochs=epochs, random_state=0
    ).fit(X, y)
    assert model.n_iter_ == epochs
    assert model.stop_ == "max_epochs"


def test_float32_says_what_it_cannot_reach(blobs):
    X, y = blobs(dtype=np.float32)
    model = LinearMCSVC(tol=1e-8, max_epochs=3, random_state=0)
    with pytest.warns((PrecisionWarning, ConvergenceWarning)) as caught:  # 3 epochs are few, too
        model.fit(X, y)
    (warning,) = (w for w in caught if w.category is PrecisionWarning)
    assert str(warning.message) == (
        "tol=1e-08 is below what float32 can reach (a relative gap of about 1e-05); type "
        'dtype="float64", or raise tol.'
    )
    assert warning.filename == __file__
    model.set_params(dtype="float64", max_epochs=100_000).fit(X, y)
    assert model.gap_ <= 1e-8


def test_a_certificate_leaves_the_estimate_beside_it(blobs, formulation):
    X, y = blobs()
    model = LinearMCSVC(formulation=formulation, solver="sdm", tol=1e-2, random_state=0)
    history = model.fit(X, y).history_
    for record in history:
        assert math.isfinite(record["estimate"])
        assert record["certified"] or record["gap"] == record["estimate"]
        assert 0 <= record["certify_seconds"] <= record["seconds"]
    assert history[-1]["gap"] != history[-1]["estimate"]


def test_a_callback_sees_every_epoch_and_can_stop_the_fit(blobs, formulation):
    X, y = blobs()
    seen = []

    def stop_at_two(record):
        record["mine"] = seen.append(record)
        return record["epoch"] >= 2

    model = LinearMCSVC(
        formulation=formulation, tol=1e-9, callbacks=(stop_at_two, seen.append), random_state=0
    )
    model.fit(X, y)  # no ConvergenceWarning: this is what the user wanted
    assert model.stop_ == "callback"
    assert len(seen) == 2 * len(model.history_)
    assert "mine" not in model.history_[0]
    assert model.certify(X, y).relative_gap == pytest.approx(model.gap_, rel=1e-6)


def test_callbacks_survive_clone_and_only_true_stops(blobs):
    X, y = blobs()
    model = clone(LinearMCSVC(callbacks=[lambda record: "yes", len], random_state=0)).fit(X, y)
    assert model.stop_ == "gap"


def test_verbose_logs_a_line_per_epoch(blobs, caplog):
    X, y = blobs()
    with caplog.at_level(logging.INFO, "dask_mcsvm"):
        model = LinearMCSVC(solver="sdm", verbose=1, random_state=0).fit(X, y)
        assert len(caplog.records) == len(model.history_)
        assert caplog.messages[0].startswith("epoch 1  ")
        caplog.clear()
        model.set_params(verbose=0).fit(X, y)
        assert not caplog.records


def test_verbose_is_heard_without_any_configuration_and_leaves_none():
    code = """
import logging
from sklearn.datasets import load_iris
from dask_mcsvm import LinearMCSVC
X, y = load_iris(return_X_y=True)
LinearMCSVC(solver="sdm", verbose=1, max_epochs=1, tol=0).fit(X, y)
assert not logging.getLogger("dask_mcsvm").handlers
assert logging.getLogger("dask_mcsvm").level == logging.NOTSET
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "epoch 1" in run.stderr


def test_warm_start_goes_on_where_the_last_fit_ended(blobs, formulation):
    X, y = blobs()
    cold = LinearMCSVC(formulation=formulation, tol=1e-6, max_epochs=10_000, random_state=0)
    epochs = cold.fit(X, y).n_iter_
    warm = clone(cold).set_params(warm_start=True).fit(X, y)
    assert warm.fit(X, y).n_iter_ < epochs
    assert warm.gap_ <= 1e-6
    assert not hasattr(cold, "_alpha")


@pytest.mark.parametrize("factor", [0.1, 10.0])
def test_warm_start_with_another_c_reaches_its_optimum(blobs, formulation, factor):
    X, y = blobs()
    model = LinearMCSVC(formulation=formulation, tol=1e-9, max_epochs=100_000, random_state=0)
    cold = clone(model).set_params(C=factor).fit(X, y)
    warm = clone(model).set_params(warm_start=True).fit(X, y).set_params(C=factor).fit(X, y)
    assert warm.primal_ == pytest.approx(cold.primal_, rel=1e-8)
    np.testing.assert_allclose(warm.coef_, cold.coef_, atol=1e-3)


def test_warm_start_refuses_other_rows_labels_classes_and_formulations(blobs):
    X, y = blobs()
    model = LinearMCSVC(warm_start=True, random_state=0).fit(X, y)
    before = vars(model).copy()
    afresh = r"start afresh with sklearn\.base\.clone\(estimator\)\.fit\(X, y\)\.$"
    with pytest.raises(ValueError, match=f"^X has 89 rows; warm_start=True continues .*{afresh}"):
        model.fit(X[1:], y[1:])
    with pytest.raises(ValueError, match=f"^y has 3 classes that are not the 3 of .*{afresh}"):
        model.fit(X, y + 1)
    with pytest.raises(ValueError, match=f"^y or the rows of weight 0 are not those .*{afresh}"):
        model.fit(X, (y + 1) % 3)
    with pytest.raises(ValueError, match=f"^y or the rows of weight 0 are not those .*{afresh}"):
        model.fit(X, y, sample_weight=np.arange(90))
    assert vars(model) == before
    model.set_params(formulation="ww")
    with pytest.raises(ValueError, match=f"^formulation is now 'weston_watkins'; .*{afresh}"):
        model.fit(X, y)
