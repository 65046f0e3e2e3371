"""Many rows that rest: the intercept takes no more epochs than none, wherever the fit runs."""

import dask
import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp

from dask_mcsvm import LinearMCSVC
from dask_mcsvm.training import ArraySource, dask_plan
from dask_mcsvm.training.runs.block_minimization import train_block_minimization

ROWS, HARD, WORDS = 200_000, 30, 1000


@pytest.fixture(scope="module")
def rows():
    """Two words a row, one of them the name of its class but in a few, which alone ask for b."""
    rng = np.random.default_rng(0)
    y = rng.choice(3, size=ROWS, p=[0.7, 0.15, 0.15])
    named = np.where(np.arange(ROWS) < HARD, 3 + rng.integers(WORDS, size=ROWS), y)
    words = np.stack([named, 3 + WORDS + rng.integers(WORDS, size=ROWS)], axis=1).astype(np.int32)
    values = np.full(2 * ROWS, 0.5**0.5, np.float32)
    ends = np.arange(0, 2 * ROWS + 1, 2, dtype=np.int32)
    order = rng.permutation(ROWS)
    X = sp.csr_array((values, words.ravel(), ends), shape=(ROWS, 3 + 2 * WORDS))
    return X[order], y[order]


def epochs_in_memory(X, y, tau, most, **options):
    if tau:
        options |= {"intercept_scaling": tau}
    model = LinearMCSVC(tol=1e-2, max_epochs=most, fit_intercept=tau > 0, random_state=0, **options)
    return model.fit(X, y).history_[-1]["epoch"]


def epochs_on_dask(X, y, tau, most, **options):
    size = ROWS // 5
    parts = [
        da.from_delayed(dask.delayed(X[first : first + size]), (size, X.shape[1]), meta=X[:0])
        for first in range(0, ROWS, size)
    ]
    with dask.config.set(scheduler="threads"):
        return epochs_in_memory(
            da.concatenate(parts), da.from_array(y, chunks=size), tau, most, **options
        )


def epochs_out_of_core(X, y, tau, most):
    source = ArraySource(X, y.astype(np.int32), np.ones(ROWS), n_classes=3, block_rows=ROWS // 5)
    fit = train_block_minimization(
        source, formulation="crammer_singer", tau=tau, tol=1e-2, max_epochs=most,
        options={"inner_passes": 1},
    )  # fmt: skip
    return fit.history[-1]["epoch"]


PLACES = {
    "memory": epochs_in_memory,
    "one block": epochs_on_dask,
    "two lanes": lambda *task: epochs_on_dask(*task, solver_options={"lanes": 2}),
    "chunks": epochs_on_dask,
    "out of core": epochs_out_of_core,
}


@pytest.mark.parametrize("place", list(PLACES))
def test_an_intercept_takes_the_epochs_of_none(place, rows, monkeypatch):
    if place == "chunks":
        monkeypatch.setattr(dask_plan, "JOINED_BYTES", 0)
    none = PLACES[place](*rows, 0.0, 40)
    most = 1.3 * none + 1
    assert none <= 20
    for tau in (1.0, 10.0):
        # To the nearest epoch: visits by preference are n k scores on average, not each time.
        assert PLACES[place](*rows, tau, 2 * int(most)) <= most + 0.5, tau
