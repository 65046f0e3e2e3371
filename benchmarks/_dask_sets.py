"""Datasets on disk for the benchmark of Dask: generated part by part, or from a folder."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import scipy.sparse as sp
from _data import load_dataset
from harness.generate import Recipe, text_like

from dask_mcsvm.storage import open_dataset, write_dataset

#: What fits a worker: 5 and 52 million nonzeros.
TEXT = {
    "tiny": Recipe(2_000, 1_000, 8, 20),
    "middle": Recipe(40_000, 100_000, 20, 160),
    "full": Recipe(400_000, 100_000, 20, 160),
}
#: What does not: few features and classes, so that it is the rows that are too large.
LARGER = {
    "tiny": Recipe(2_000, 1_000, 8, 20),
    "middle": Recipe(400_000, 20_000, 10, 250),
    "full": Recipe(4_600_000, 20_000, 10, 250),
}
#: Rows that are made at a time, and how many such parts differ; then they come again.
PART_ROWS, DISTINCT = 20_000, 8


@dataclass(frozen=True)
class OnDisk:
    """A dataset and what it takes."""

    name: str
    path: str

    @property
    def nnz(self) -> int:
        return int(open_dataset(self.path).block_entries().sum())

    @property
    def disk_bytes(self) -> int:
        return sum(file.stat().st_size for file in Path(self.path).rglob("*") if file.is_file())

    @property
    def row_bytes(self) -> int:
        """Uncompressed: float32 values, int32 columns, int64 offsets."""
        return 8 * self.nnz + 8 * open_dataset(self.path).shape[0]

    def __str__(self) -> str:
        data = open_dataset(self.path)
        n, d = data.shape
        return (
            f"{self.name}: {n:,} x {d:,}, {self.nnz:,} nonzeros, {data.n_classes} classes, "
            f"{data.n_blocks} chunks, {self.row_bytes / 2**20:,.0f} MiB of rows, "
            f"{self.disk_bytes / 2**20:,.0f} MiB on disk"
        )


def generated(name: str, path: str, recipe: Recipe, chunks: int) -> OnDisk:
    """Rows made part by part and written as they come: never all of them in memory."""
    parts = np.array_split(np.arange(recipe.n), max(1, recipe.n // PART_ROWS))
    meta = sp.csr_matrix((0, 0), dtype=np.float32)
    X, y = [], []
    for p, part in enumerate(parts):
        rows, labels = dask.delayed(make_part, nout=2)(recipe, part.size, p % DISTINCT)
        X.append(da.from_delayed(rows, (part.size, recipe.d), np.float32, meta=meta))
        y.append(da.from_delayed(labels, (part.size,), np.int32))
    with dask.config.set(scheduler="synchronous"):
        write_dataset(
            path, da.concatenate(X), da.concatenate(y), classes=np.arange(recipe.k),
            block_rows=-(-recipe.n // chunks),
        )  # fmt: skip
    return OnDisk(name, path)


@lru_cache(DISTINCT)
def make_part(recipe: Recipe, rows: int, part: int) -> tuple[Any, np.ndarray]:
    """Some rows of a recipe, and their labels."""
    X, y = text_like(replace(recipe, n=rows), part)
    return sp.csr_matrix(X), y


def from_folder(name: str, path: str, folder: Path, size: str, chunks: int) -> OnDisk:
    """A set of a folder (see `_data`) as a dataset."""
    data = load_dataset(name, folder, size)
    write_dataset(path, data.X, data.y, block_rows=-(-data.y.size // chunks))
    return OnDisk(name, path)
