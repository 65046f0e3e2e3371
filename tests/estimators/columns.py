"""Rows whose columns are on unlike scales, and what StandardScaler makes of them."""

from typing import Any

import numpy as np
from sklearn.preprocessing import StandardScaler

from dask_mcsvm import LinearMCSVC

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
    with np.errstate(invalid="ignore"):  # its variance of a constant column may be below zero
        return StandardScaler(with_mean=standardize is True).fit(X, sample_weight=w).transform(X)


def on_dense_copies(model: LinearMCSVC, X: Any, y: Any, w: Any) -> LinearMCSVC:
    """The same estimator, fitted to what StandardScaler makes of X."""
    plain = LinearMCSVC(**model.get_params()).set_params(standardize=False, checkpoint=None)
    plain.set_params(solver="auto", solver_options=None, memory_limit=None, scratch=None)
    return plain.fit(scaled(X, w, model.standardize), y, w)
