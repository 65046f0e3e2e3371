"""A path over C on Dask: each fit begins with the alpha of the one before."""

import os

import dask
import numpy as np
import pytest
from sklearn.base import clone
from training.sets import SOLVERS, lazy, svm

from dask_mcsvm.graphs.path import can_rescale, rescaled
from dask_mcsvm.graphs.splitting import ChunkedSplitting

COSTS = (1.0, 1.3)
TOL = 5e-3
SEEDED = [solver for solver in SOLVERS if solver != "splitting"]


@pytest.fixture(autouse=True)
def one_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


def text_set(n=90, d=60, k=4):
    """Rows of unit norm with few nonzeros: words of the row's topic among words of any."""
    rng = np.random.default_rng(0)
    y = np.arange(n) % k
    topics = 0.5 * rng.dirichlet(np.full(d, 0.05), size=k) + 0.5 / d
    X = np.log1p([rng.multinomial(20, topics[c]) for c in y])
    X /= np.linalg.norm(X, axis=1)[:, None]
    return lazy(X, 45, csr=True), y


def model(solver, **parameters):
    options = {"lanes": 2} if solver == "shards" else {}
    return svm(solver, tol=TOL, max_epochs=500, solver_options=options, **parameters)


@pytest.mark.parametrize("solver", SEEDED)
def test_a_seeded_path_takes_fewer_epochs_to_the_same_optimum(solver, tmp_path):
    X, y = text_set()
    given = model(solver, scratch=tmp_path, class_weight={0: 2.0})
    found = given.path(X, y, COSTS[::-1]).models
    cold = [clone(given).set_params(C=C).fit(X, y) for C in COSTS]
    assert [seeded.C for seeded in found] == list(COSTS)
    for seeded, alone in zip(found, cold, strict=True):
        assert seeded.stop_ == "gap"
        assert seeded.gap_ <= TOL
        assert seeded.dual_ <= alone.primal_
        assert alone.dual_ <= seeded.primal_
    assert sum(m.n_iter_ for m in found) < sum(m.n_iter_ for m in cold)
    assert found[0].coef_.tobytes() == cold[0].coef_.tobytes()  # it had nothing to begin with
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("solver", SEEDED)
def test_after_a_few_epochs_a_seeded_fit_is_nearer(solver):
    X, y = text_set()
    short = model(solver).set_params(tol=0, max_epochs=5)
    _, second = short.path(X, y, COSTS).models
    assert second.gap_ < 0.5 * clone(short).set_params(C=COSTS[1]).fit(X, y).gap_
    assert second.primal_ == pytest.approx(second.certify(X.compute(), y).primal, rel=1e-9)


def test_splitting_begins_anew(tmp_path):
    X, y = text_set()
    given = svm("splitting", max_epochs=2, scratch=tmp_path)
    _, second = given.path(X, y, COSTS).models
    alone = clone(given).set_params(C=COSTS[1]).fit(X, y)
    assert second.coef_.tobytes() == alone.coef_.tobytes()
    assert not can_rescale(ChunkedSplitting.kinds)
    with pytest.raises(TypeError, match="Multipliers is no start for another C"):
        rescaled(ChunkedSplitting.kinds["rows"](np.ones(1), np.ones(1)), 2.0)
