"""Checkpoints of fits on Dask: going on is not starting anew, and never on other data."""

import os
import pickle
import re
import tempfile

import dask
import numpy as np
import pytest
from sklearn.base import clone
from training.sets import SOLVERS, lazy, lazy_set, small_set, svm, weights

from dask_mcsvm import LinearMCSVC
from dask_mcsvm.errors import CheckpointError, ConvergenceWarning
from dask_mcsvm.storage import Checkpoint

every_solver = pytest.mark.parametrize("solver", list(SOLVERS))
EPOCHS = 5


@pytest.fixture(autouse=True)
def one_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.fixture(scope="module")
def whole():
    """Fits that nobody interrupted, by solver."""
    with dask.config.set(scheduler="synchronous"):
        return {
            solver: svm(solver, max_epochs=EPOCHS).fit(*lazy_set())
            for solver in SOLVERS
        }  # fmt: skip


class After:
    """A callback that stops, or fails, after some epochs."""

    def __init__(self, epochs, error=None):
        self.left, self.error = epochs, error

    def __call__(self, record):
        self.left -= 1
        if self.left == 0 and self.error is not None:
            raise self.error
        return self.left == 0


def says(sentence, kind=CheckpointError):
    return pytest.raises(kind, match="^" + re.escape(sentence) + "$")


@every_solver
@pytest.mark.parametrize("how", [None, RuntimeError("pulled the plug")], ids=["stops", "fails"])
def test_a_fit_that_goes_on_ends_like_one_that_was_never_stopped(solver, how, whole, tmp_path):
    """A callback that stops leaves the epoch it saw, one that fails the last that was saved."""
    path = tmp_path / "fit"
    first = svm(solver, max_epochs=EPOCHS, checkpoint=path, callbacks=(After(3, how),))
    if how is None:
        first.fit(*lazy_set())
        assert first.stop_ == "callback"
    else:
        with pytest.raises(RuntimeError, match="pulled the plug"):
            first.fit(*lazy_set())
    _, meta = Checkpoint(path).read()
    assert meta["epoch"] == (3 if how is None else 2)
    rest = svm(solver, max_epochs=EPOCHS, checkpoint=path, resume=True).fit(*lazy_set())
    assert weights(rest) == weights(whole[solver])
    assert [r["epoch"] for r in rest.history_] == [r["epoch"] for r in whole[solver].history_]
    assert rest.n_iter_ == whole[solver].n_iter_


def test_going_on_twice_and_further(whole, tmp_path):
    for epochs in (2, 4, EPOCHS):
        model = svm(max_epochs=epochs, checkpoint=tmp_path / "fit", resume=True)
        model.fit(*lazy_set())
        assert abs(model.n_iter_ - epochs) <= 1
    assert weights(model) == weights(whole["shards"])


def test_a_finished_fit_is_only_certified_again(whole, tmp_path):
    for _ in range(2):
        seen = []
        model = svm(max_epochs=EPOCHS, checkpoint=tmp_path / "fit", resume=True)
        model.set_params(callbacks=(seen.append,)).fit(*lazy_set())
        assert weights(model) == weights(whole["shards"])
    assert seen == []


def test_tol_may_change_and_one_that_was_reached_stops_at_once(tmp_path):
    path = tmp_path / "fit"
    given = {"C": 0.1, "max_epochs": 200}
    coarse = svm(tol=1e-2, checkpoint=path, **given).fit(*lazy_set())
    same = svm(tol=1e-2, checkpoint=path, resume=True, **given).fit(*lazy_set())
    assert (same.stop_, same.n_iter_, weights(same)) == ("gap", coarse.n_iter_, weights(coarse))
    fine = svm(tol=1e-3, checkpoint=path, resume=True, **given).fit(*lazy_set())
    assert fine.n_iter_ > coarse.n_iter_
    assert fine.gap_ <= 1e-3
    once = svm(tol=1e-3, **given).fit(*lazy_set())
    assert fine.primal_ == pytest.approx(once.primal_, rel=2e-3)


def test_without_a_checkpoint_it_starts_afresh(whole, tmp_path):
    model = svm(max_epochs=EPOCHS, checkpoint=tmp_path / "fit", resume=True).fit(*lazy_set())
    assert weights(model) == weights(whole["shards"])
    again = svm(max_epochs=EPOCHS, checkpoint=tmp_path / "fit").fit(*lazy_set())  # resume=False
    assert weights(again) == weights(whole["shards"])


def test_the_seed_comes_from_the_checkpoint(tmp_path):
    path = tmp_path / "fit"
    svm(checkpoint=path, random_state=None, max_epochs=2).fit(*lazy_set())
    models = [
        svm(checkpoint=path, resume=True, random_state=None, max_epochs=2).fit(*lazy_set())
        for _ in range(2)
    ]
    assert weights(models[0]) == weights(models[1])
    with says("the checkpoint was written with another random_state; pass the same, or none."):
        svm(checkpoint=path, resume=True, random_state=7).fit(*lazy_set())


def test_save_every_says_how_often(tmp_path):
    saved = []

    def look(record):
        found = Checkpoint(tmp_path / "fit").read()
        saved.append(None if found is None else found[1]["epoch"])
        return len(saved) == 5

    model = svm(checkpoint=tmp_path / "fit", solver_options={"save_every": 3}, callbacks=(look,))
    model.set_params(max_epochs=100).fit(*lazy_set())
    assert saved == [None, None, 3, 3, 3]
    assert Checkpoint(tmp_path / "fit").read()[1]["epoch"] == 5
    # How often a fit is saved changes nothing else.
    model.set_params(solver_options={"save_every": 1}, resume=True, callbacks=(), max_epochs=9)
    assert weights(model.fit(*lazy_set())) == weights(
        svm(max_epochs=9, solver_options={"save_every": 2}).fit(*lazy_set())
    )


# -- what is refused -------------------------------------------------------------------------------

OTHER_DATA = (
    "the checkpoint was written for other data ({} differ); pass the same X, y and sample_weight, "
    "or another checkpoint path."
)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "fit"
    with dask.config.set(scheduler="synchronous"):
        svm(checkpoint=path, max_epochs=2).fit(*lazy_set())
    return path


def changed_value(X, y):
    X[70, 2] += 1e-12
    return X, y


def changed_label(X, y):
    y[70] = (y[70] + 1) % 4
    return X, y


@pytest.mark.parametrize(
    ("change", "chunk", "what"),
    [
        (changed_value, 50, "checksums"),
        (changed_label, 50, "checksums"),
        (lambda X, y: (X[:-1], y[:-1]), 50, "rows"),
        (lambda X, y: (X, y), 40, "rows"),
        (lambda X, y: (X[:, :-1], y), 50, "columns"),
    ],
)  # fmt: skip
def test_other_data_are_refused(change, chunk, what, saved):
    X, y = change(*(part.copy() for part in small_set()))
    with says(OTHER_DATA.format(what)):
        svm(checkpoint=saved, resume=True).fit(lazy(X, chunk), y)


def test_other_weights_are_refused(saved):
    with says(OTHER_DATA.format("checksums")):
        svm(checkpoint=saved, resume=True).fit(*lazy_set(), sample_weight=np.full(160, 2.0))


@pytest.mark.parametrize(
    ("parameters", "what"),
    [
        ({"formulation": "ww"}, "formulation ('crammer_singer')"),
        ({"dtype": "float32"}, "dtype ('float64')"),
        ({"intercept_scaling": 2.0}, "tau (1.0)"),
        ({"C": 2.0}, "factors ([1.0, 1.0, 1.0, 1.0])"),
    ],
)
def test_other_parameters_are_refused(parameters, what, saved):
    sentence = (
        f"the checkpoint was written with another {what}; pass the same parameters, or another "
        "checkpoint path."
    )
    with says(sentence):
        svm(checkpoint=saved, resume=True, **parameters).fit(*lazy_set())


def test_another_plan_is_refused(saved):
    sentence = (
        "the checkpoint was written by another plan (solver 'shards'); pass the same solver and "
        "solver_options, or another checkpoint path."
    )
    with says(sentence):
        svm(checkpoint=saved, resume=True, solver_options={"slices": 3}).fit(*lazy_set())


def test_a_refused_fit_changes_nothing(saved):
    before = Checkpoint(saved).read()[1]
    with pytest.raises(CheckpointError):
        svm(checkpoint=saved, resume=True, C=3.0).fit(*lazy_set())
    assert Checkpoint(saved).read()[1] == before
    assert not (saved / "lock.json").exists()


def test_a_second_writer_is_refused(tmp_path):
    path = tmp_path / "fit"
    errors = []

    def second(record):
        with pytest.raises(CheckpointError) as caught:
            svm(checkpoint=path).fit(*lazy_set())
        errors.append(str(caught.value))
        return True

    svm(checkpoint=path, callbacks=(second,)).fit(*lazy_set())
    assert f"{path}: this checkpoint is in use by process {os.getpid()} on host" in errors[0]
    svm(checkpoint=path).fit(*lazy_set())  # the first has given it back


# -- nothing is left behind ------------------------------------------------------------------------


@pytest.mark.parametrize("error", [None, KeyError("mine"), KeyboardInterrupt()])
def test_scratch_is_removed_however_a_fit_ends(error, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    model = svm(callbacks=(After(3, error),))
    for scratch in (None, tmp_path):
        model.set_params(scratch=scratch, callbacks=(After(3, error),))
        if error is None:
            model.fit(*lazy_set())
        else:
            with pytest.raises(type(error)):
                model.fit(*lazy_set())
        assert os.listdir(tmp_path) == []


def test_a_scratch_that_is_not_there(tmp_path):
    sentence = (
        f"scratch={str(tmp_path / 'x')!r} is not a folder here; make one that all workers see, or "
        "leave it out."
    )
    with says(sentence, ValueError):
        svm(scratch=tmp_path / "x").fit(*lazy_set())


def test_a_failing_callback_gives_the_lock_back(tmp_path):
    path = tmp_path / "fit"
    with pytest.raises(KeyError):
        svm(checkpoint=path, callbacks=(After(1, KeyError()),)).fit(*lazy_set())
    assert not (path / "lock.json").exists()


# -- the fitted model ------------------------------------------------------------------------------


@every_solver
def test_a_saved_model_is_the_same(solver, whole, tmp_path):
    model = whole[solver]
    model.save(tmp_path / "model")
    again = LinearMCSVC.load(tmp_path / "model")
    assert weights(again) == weights(model)
    assert again.plan_ == model.plan_
    assert str(again.plan_) == str(model.plan_)
    X, y = small_set()
    assert again.certify(X, y).primal == pytest.approx(model.primal_, rel=1e-9)


def test_pickle_and_clone(whole):
    model = whole["rounds"]
    again = pickle.loads(pickle.dumps(model))
    assert weights(again) == weights(model)
    assert again.plan_ == model.plan_
    assert weights(clone(model).fit(*lazy_set())) == weights(model)


# -- epochs ----------------------------------------------------------------------------------------


@every_solver
def test_a_tol_of_zero_runs_max_epochs_without_a_warning(solver, whole):
    model = whole[solver]
    assert model.stop_ == "max_epochs"
    # An epoch is n·k scores, and one of a graph may have some more or less.
    last, size = model.history_[-1]["epoch"], np.diff([r["epoch"] for r in model.history_]).max()
    assert abs(last - EPOCHS) <= size
    assert model.n_iter_ == EPOCHS
    assert np.isfinite(model.gap_)


def test_running_out_of_epochs_warns():
    with pytest.warns(ConvergenceWarning, match=r"^LinearMCSVC stopped after max_epochs=2 with "):
        svm(tol=1e-9, max_epochs=2).fit(*lazy_set())
