"""Sets for out-of-core benchmarks: training and test rows, scaled, and their dataset on disk."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from harness.data import UnknownDatasetError
from harness.generate import Recipe, text_like

from dask_mcsvm.storage import Dataset, write_dataset

#: What a folder of .npz sets is searched for.
FOLDER_SETS = ("covtype", "mnist")
#: Generated rows: 20 million nonzeros and more in the full size.
GENERATED = {"full": Recipe(300_000, 100_000, 10, 90), "tiny": Recipe(2_000, 800, 4, 12)}
TINY_ROWS = 3000


@dataclass(frozen=True, eq=False)
class DiskSet:
    """Rows in memory for LIBLINEAR and the judge; out-of-core solvers see the dataset only."""

    name: str
    X: Any
    y: np.ndarray
    X_test: Any
    y_test: np.ndarray

    @property
    def k(self) -> int:
        return int(self.y.max()) + 1

    def write(self, path: Path, block_rows: int | None) -> Dataset:
        return write_dataset(path, self.X, self.y, block_rows=block_rows)

    def dealt(self) -> DiskSet:
        """The same rows in random order."""
        order = np.random.default_rng(0).permutation(self.y.size)
        return replace(self, X=self.X[order], y=self.y[order])

    def accuracy(self, W: np.ndarray, tau: float) -> float:
        """Share of the test rows that W (d + 1, k) labels right."""
        scores = self.X_test @ W[:-1] + tau * W[-1]
        return float(np.mean(scores.argmax(axis=1) == self.y_test))

    def primal(self, W: np.ndarray, tau: float, C: float) -> float:
        """The one-vs-rest objective in float64, with no code of either side."""
        W = W.astype(np.float64)
        total = 0.5 * float(np.sum(W * W))
        for first in range(0, self.y.size, 20_000):
            y = self.y[first : first + 20_000]
            scores = self.X[first : first + 20_000].astype(np.float64) @ W[:-1] + tau * W[-1]
            signs = np.where(np.arange(W.shape[1]) == y[:, None], 1.0, -1.0)
            total += C * float(np.maximum(0.0, 1.0 - signs * scores).sum())
        return total


def set_names(folder: Path | None) -> list[str]:
    """What can be measured."""
    found = [name for name in FOLDER_SETS if folder and (folder / f"{name}.npz").exists()]
    if folder and not found:
        raise UnknownDatasetError(f"{folder} holds neither of {', '.join(FOLDER_SETS)}")
    return found or ["generated"]


def load_set(name: str, folder: Path | None, size: str, *, raw: bool = False) -> DiskSet:
    """A set by its name; features in [0, 1] unless ``raw``."""
    if folder is None:
        rows, y = text_like(GENERATED[size])
        X, cut = sp.csr_matrix(rows), int(0.9 * y.size)
        return DiskSet(name, X[:cut], y[:cut], X[cut:], y[cut:])
    with np.load(folder / f"{name}.npz") as arrays:
        X, y, X_test, y_test = (arrays[key] for key in ("X_train", "y_train", "X_test", "y_test"))
    if size == "tiny":
        kept = np.unique(np.linspace(0, y.size - 1, TINY_ROWS).astype(np.int64))
        X, y = X[kept], y[kept]
    X, X_test = np.float32(X), np.float32(X_test)
    if not raw and name == "mnist":
        X, X_test = X / np.float32(255), X_test / np.float32(255)
    elif not raw:
        low, high = X.min(axis=0), X.max(axis=0)
        width = np.where(high > low, high - low, np.float32(1))
        X, X_test = (X - low) / width, (X_test - low) / width
    return DiskSet(name, np.ascontiguousarray(X), y.astype(np.int32), X_test, y_test)
