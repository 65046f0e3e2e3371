"""The one way in for rows that stay where they are: datasets read by blocks, and what Dask reads.

Rows in memory come in through `validation.check_training_set`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from dask_mcsvm.storage import Dataset, open_dataset

from .lazy_input import refuse_labels
from .lazy_source import LazySource, Runner, read_source
from .row_source import DatasetSource
from .validation import class_weights, refuse_one_class, working_dtype


def dataset_rows(
    X: Any,
    y: Any,
    sample_weight: Any,
    classes: Any,
    *,
    class_weight: Any,
    dtype: np.dtype[Any] | None,
) -> DatasetSource:
    """The rows of a dataset, or of one at a path, to be read block by block in this process."""
    if not isinstance(X, Dataset):
        try:
            X = open_dataset(X)
        except TypeError:
            raise ValueError(
                f"solver='early_shrink' reads datasets and rows in memory, not {type(X).__name__}; "
                "write one with dask_mcsvm.storage.write_dataset, or use solver='auto'."
            ) from None
    refuse_labels(X, y, sample_weight, classes)
    plain = DatasetSource(X, working_dtype(X.dtype, dtype))
    factors = class_weights(class_weight, plain.classes, plain.weights.totals)
    return replace(plain, class_factors=factors)


def dask_rows(
    X: Any,
    y: Any,
    sample_weight: Any,
    classes: Any,
    runner: Runner,
    *,
    class_weight: Any,
    dtype: np.dtype[Any] | None,
    memory_limit: int | None = None,
    mixed: bool = False,
) -> LazySource:
    """Dask arrays and frames, Zarr arrays and datasets: every chunk is looked at once."""
    plain = read_source(X, y, sample_weight, classes, runner, memory_limit, mixed=mixed)
    factors = class_weights(class_weight, plain.classes, plain.totals)
    source = replace(plain, factors=factors, dtype=working_dtype(plain.dtype, dtype))
    refuse_one_class(source.classes, source.counts * factors)
    return source
