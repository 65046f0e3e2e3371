"""Dual variables as a dense array or as lists: which of them, and that it changes nothing."""

import numpy as np
import pytest
import scipy.sparse as sp

from dask_mcsvm.solvers import duals
from dask_mcsvm.solvers.duals import has_lists
from dask_mcsvm.solvers.kernels.dual_variables import SparseAlpha, alpha_to_dense
from dask_mcsvm.solvers.sdm.run import SequentialDual


@pytest.mark.parametrize(
    ("formulation", "n", "k", "lists"),
    [
        ("crammer_singer", 10, 65, True),
        ("crammer_singer", 10, 64, False),
        ("crammer_singer", 2**18, 64, False),  # 64 MiB
        ("crammer_singer", 2**18 + 1, 64, True),
        ("weston_watkins", 10**7, 17, True),
        ("one_vs_rest", 10**7, 16, False),  # a row is a line of the cache
        ("lee_lin_wahba", 10**7, 64, False),
        ("lee_lin_wahba", 10, 65, True),
    ],
)
def test_variables_are_lists_where_an_array_would_be_large(formulation, n, k, lists):
    assert has_lists(formulation, n, k, 4) == lists


@pytest.mark.parametrize("formulation", ["crammer_singer", "weston_watkins", "one_vs_rest"])
def test_lists_take_the_steps_of_an_array(formulation, monkeypatch):
    rng = np.random.default_rng(0)
    # Of these rows other tests compile both.
    X, y = sp.csr_array(rng.normal(size=(120, 8))), rng.integers(0, 20, 120)
    runs = []
    for most in (2**26, 0):
        monkeypatch.setattr(duals, "DENSE_BYTES", most)
        run = SequentialDual(
            X, y, np.ones(120), n_classes=20, formulation=formulation, tau=1.0, seed=3
        )
        for _ in range(4):
            run.uniform_epoch()  # an order that no rounding changes
        runs.append(run)
    array, lists = runs
    assert isinstance(array.alpha, np.ndarray)
    assert isinstance(lists.alpha, SparseAlpha)
    # Lists hold their classes in another order, and sums round as they go.
    np.testing.assert_allclose(lists.W, array.W, atol=1e-4)
    np.testing.assert_allclose(alpha_to_dense(lists.alpha, 120, 20), array.alpha, atol=1e-4)
    assert lists.certify() == pytest.approx(array.certify(), rel=1e-4)
