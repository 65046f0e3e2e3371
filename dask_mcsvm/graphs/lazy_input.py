"""Rows that are not in memory, whatever form they have: one Dask array, each chunk checked.

What `dask_mcsvm._validation.check_rows` says of rows in memory, the tasks here say of each chunk
before anything reads it. Nothing is computed here.
"""

from __future__ import annotations

import os
from typing import Any

import dask.array as da
import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dask_mcsvm._frames import NUMERIC, numeric_columns
from dask_mcsvm.checks import check_sparse
from dask_mcsvm.errors import advised
from dask_mcsvm.storage import Dataset, open_dataset

Array = npt.NDArray[Any]


def lazy_rows(X: Any) -> da.Array:
    """A Dask array or frame, a Zarr array, a dataset or its path as a Dask array of rows.

    The rows of a frame stay uncounted: its partitions change when it is read (small files are
    read together), so that only the array's own chunks can be counted.
    """
    if isinstance(X, str | os.PathLike):
        X = open_dataset(X)
    if isinstance(X, Dataset):
        return X.to_dask()[0]
    if hasattr(X, "to_dask_array"):
        X = numeric_columns(X).to_dask_array()
    elif not isinstance(X, da.Array):
        X = da.from_zarr(X)
    if X.ndim != 2:
        raise ValueError(
            f"X has {X.ndim} dimension(s); Expected 2D array of shape (n_samples, n_features)."
        )
    if X.dtype.kind not in NUMERIC:
        raise ValueError(f"X has dtype {X.dtype}; X must be numeric: type X.astype(float).")
    rows: da.Array = X
    return rows


def column_names(X: Any) -> Array | None:
    """The names of a frame's columns if all are strings, as scikit-learn has it; else None."""
    names = getattr(X, "columns", None)
    if names is None or not all(isinstance(name, str) for name in names):
        return None
    return np.asarray(names, object)


def whole_rows(X: da.Array) -> da.Array:
    """X with no chunk boundary inside a row."""
    return X if X.numblocks[1] == 1 else X.rechunk({1: -1})


def checked_rows(X: da.Array) -> da.Array:
    """X with every chunk checked before it is used: columns, dtype, no NaN or infinity."""
    checked: da.Array = da.map_blocks(
        check_chunk, X, n_features=X.shape[1], dtype=X.dtype, meta=X._meta, token="check-rows"
    )
    return checked


# -- tasks -----------------------------------------------------------------------------------------


def check_chunk(X: Any, *, n_features: int, block_id: tuple[int, ...]) -> Any:
    """A chunk as it is, or CSR if it is sparse; an error that names it if it is not usable."""
    chunk = block_id[0]
    check_form(X, n_features, f"chunk {chunk} of X")
    check_sparse(X, f"chunk {chunk} of X")
    X = sp.csr_array(X) if sp.issparse(X) and X.format != "csr" else X
    values = X.data if sp.issparse(X) else np.asarray(X)
    if values.dtype.kind != "f" or np.isfinite(values).all():
        return X
    bad = int(np.flatnonzero(~np.isfinite(values).ravel())[0])
    row = np.searchsorted(X.indptr, bad, side="right") - 1 if sp.issparse(X) else bad // n_features
    # The words of scikit-learn, with the place.
    what = f"infinity or a value too large for {values.dtype!r}"
    what = "NaN" if np.isnan(values).any() else what
    raise advised(ValueError(f"Input X contains {what} in row {row} of chunk {chunk}"))


def check_form(X: Any, n_features: int, where: str) -> None:
    """An error unless a chunk is a matrix of numbers with the columns of all others."""
    if X.ndim != 2 or X.shape[1] != n_features:
        raise ValueError(
            f"{where} has shape {X.shape}, and X has {n_features} columns; every chunk needs the "
            "same columns, in the same order."
        )
    if X.dtype.kind not in NUMERIC:
        raise ValueError(f"{where} has dtype {X.dtype}; X must be numeric: type X.astype(float).")
