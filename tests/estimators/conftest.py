"""Small problems that every solver finishes in a moment."""

import numpy as np
import pytest
from sklearn.datasets import make_blobs

from dask_mcsvm.formulations import FORMULATIONS


@pytest.fixture(params=list(FORMULATIONS))
def formulation(request):
    """Each of the four in turn."""
    return request.param


@pytest.fixture
def blobs():
    """A function that makes overlapping clusters: 5 features in [-1, 1], no two fits the same."""

    def make(n_classes=3, n_samples=90, dtype=np.float64):
        X, y = make_blobs(n_samples, 5, centers=n_classes, cluster_std=3.0, random_state=n_classes)
        return (X / np.abs(X).max()).astype(dtype), y

    return make
