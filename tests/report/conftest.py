"""A fitted model to report on."""

import pytest
from sklearn.datasets import load_iris

from dask_mcsvm import LinearMCSVC


@pytest.fixture(scope="session")
def iris():
    X, y = load_iris(return_X_y=True)
    names = load_iris().target_names[y]
    return X, names, LinearMCSVC(C=0.1, random_state=0).fit(X, names)
