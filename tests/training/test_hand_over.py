"""On Dask a solver that stands still is left for another, wherever the fit was interrupted."""

import re

import dask
import numpy as np
import pytest
from sklearn.datasets import load_wine
from training.sets import lazy, weights

from dask_mcsvm import LinearMCSVC
from dask_mcsvm.data.row_source import RowScale
from dask_mcsvm.formulations import FORMULATIONS
from dask_mcsvm.storage import Checkpoint
from dask_mcsvm.training.dask_plan import make_dask_plan, second_plan


@pytest.fixture(autouse=True)
def one_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


def centred_set(n=120, d=6, k=3, spread=6.0, **how):
    """Centred rows of classes that overlap, along columns of unlike scales."""
    rng = np.random.default_rng(0)
    y = rng.integers(k, size=n)
    X = rng.normal(size=(k, d))[y] + rng.normal(size=(n, d)) * np.geomspace(0.3, spread, d)
    return lazy(X - X.mean(axis=0), 50, **how), y


def svm(**parameters):
    return LinearMCSVC(**{"C": 10.0, "random_state": 0} | parameters)


@pytest.mark.parametrize("name", list(FORMULATIONS))
def test_auto_hands_chunks_over_where_shards_are_slow(name, caplog, capsys):
    X, y = centred_set()
    model = svm(formulation=name)
    first = model.explain(X, y).splitlines()[0]
    assert first == (
        "solver       shards: rows in chunks, and W fits a worker; splitting goes on if that is "
        "slow"
    )
    with caplog.at_level("INFO", "dask_mcsvm"):
        model.fit(X, y)
    (told,) = [m for m in caplog.messages if "slow" in m]
    assert re.fullmatch(
        r"shards is slow here: a gap of \d\.\de[+-]\d\d after \d\d epochs; splitting goes on", told
    )
    assert (model.solver_, model.plan_.solver, model.stop_) == ("splitting", "shards", "gap")
    local = svm(formulation=name, solver="splitting").fit(X.compute(), y)
    assert max(model.primal_, local.primal_) <= min(model.primal_, local.primal_) * (1 + 2e-3)
    assert model.certify(X.compute(), y).relative_gap <= 1.01e-3


def first_of_second(model):
    """Number of the first record of the second solver, whose graphs are several passes."""
    return next(i for i, e in enumerate(np.diff([r["epoch"] for r in model.history_]), 1) if e > 2)


def test_it_goes_on_from_the_dual_variables_of_the_shards(whole):
    at = first_of_second(whole[1.0])
    last, first = whole[1.0].history_[at - 1 : at + 1]
    assert last["gap"] > 0.1
    # A dual of the second solver may lie below the last one: it is not one that only rises.
    with dask.config.set(scheduler="synchronous"):
        from_zero = svm(C=1.0, solver="splitting").fit(*centred_set())
    assert first["dual"] > 2 * from_zero.history_[0]["dual"]
    assert first["gap"] < min(last["gap"], from_zero.history_[0]["gap"])


#: The smallest has the second solver save its state as well.
TOL = {1.0: 1e-3, 1.5: 1e-9, 10.0: 1e-3}


@pytest.fixture(scope="module")
def whole():
    with dask.config.set(scheduler="synchronous"):
        return {C: svm(C=C, tol=TOL[C]).fit(*centred_set()) for C in TOL}


# The state is saved after 10, 20 and 30 records: before the hand-over, just before, after it.
@pytest.mark.parametrize(
    ("C", "at", "solver"),
    [(10.0, 15, "shards"), (10.0, 22, "shards"), (1.0, 29, "shards"), (1.5, 31, "splitting")],
)
def test_a_fit_interrupted_near_the_hand_over_goes_on_to_the_same_bytes(
    C, at, solver, tmp_path, whole
):
    X, y = centred_set()
    seen = []

    def pull_the_plug(record):
        seen.append(record)
        if len(seen) == at:
            raise RuntimeError("pulled the plug")

    with pytest.raises(RuntimeError, match="pulled the plug"):
        svm(C=C, tol=TOL[C], checkpoint=tmp_path, callbacks=(pull_the_plug,)).fit(X, y)
    _, meta = Checkpoint(tmp_path).read()
    assert (meta["epoch"], meta["solver"]) == (at // 10 * 10, solver)
    assert (meta["epoch"] > first_of_second(whole[C])) == (solver == "splitting")
    rest = svm(C=C, tol=TOL[C], checkpoint=tmp_path, resume=True).fit(X, y)
    assert (rest.solver_, weights(rest)) == ("splitting", weights(whole[C]))
    for name in ("epoch", "gap"):
        assert [r[name] for r in rest.history_] == [r[name] for r in whole[C].history_]


def test_a_path_begins_the_next_fit_with_the_solver_that_ended_the_last():
    X, y = centred_set()
    first, second = svm().path(X, y, [10.0, 20.0]).models
    assert (first.solver_, second.solver_) == ("splitting", "splitting")
    assert first.history_[-1]["epoch"] > 20
    alone = svm(C=20.0, solver="splitting").fit(X, y)
    assert weights(second) == weights(alone)  # it tried nothing else before


def test_wine_is_learnt_from_chunks():
    X, y = load_wine(return_X_y=True)
    model = svm(C=1.0).fit(lazy(X, 60), y)
    assert model.solver_ == "splitting"
    assert model.gap_ <= 1e-3
    assert model.score(X, y) > 0.95


# -- plans -----------------------------------------------------------------------------------------


def plan(solver="auto", options=None, scale=None, **shape):
    given = dict(n=1000, d=50, nnz=50_000, chunks=6) | shape
    return make_dask_plan(
        counts=np.full(5, given["n"] // 5), mean_square=1.0, cost_square=1.0,
        dtype=np.dtype(np.float32), formulation="crammer_singer", tau=1.0, solver=solver,
        options=options, scale=scale, **given,
    )  # fmt: skip


def test_only_dense_rows_that_auto_may_choose_for_have_a_second_solver():
    centred = RowScale(0.0, 50.0)
    assert plan(scale=centred).then == "splitting"
    assert plan(scale=centred, d=4096).then == "splitting"
    assert plan(scale=centred, d=4097).then is None
    assert plan(scale=None).then is None  # sparse
    assert plan("shards", scale=centred).then is None
    assert plan(options={"lanes": 2}, scale=centred).then is None
    raw = plan(scale=RowScale(40.0, 50.0))
    assert (raw.solver, raw.then) == ("splitting", None)


def test_the_second_solver_keeps_joined_blocks_and_joins_chunks_that_were_not():
    centred = RowScale(0.0, 50.0)
    small = plan(scale=centred)
    assert (small.blocks, second_plan(small).lanes) == (1, 1)
    large = plan(scale=centred, n=20_000_000, nnz=10**9, chunks=500)
    assert large.blocks == 500
    assert second_plan(large).lanes == 8
    assert second_plan(large).then is None
