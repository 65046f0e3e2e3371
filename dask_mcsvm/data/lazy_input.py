"""Rows that are not in memory, whatever form they have: one Dask array, each chunk checked.

What `data.validation.check_rows` says of rows in memory, the tasks here say of each chunk before
anything reads it. Nothing is computed here.
"""

from __future__ import annotations

import os
import zlib
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from dask.array import core as da

from dask_mcsvm.checks import (
    NUMERIC,
    check_sparse,
    missing_label,
    numeric_columns,
    plain_labels,
    refuse_masked,
)
from dask_mcsvm.errors import advised
from dask_mcsvm.formulations import Moments, Standardization, moments
from dask_mcsvm.storage import Dataset, of_tasks, open_dataset

from .containers import NamedRows
from .row_source import WeightsByClass, weights_by_class

Array = npt.NDArray[Any]


def lazy_rows(X: Any) -> da.Array:
    """A Dask array or frame, a Zarr array, a dataset or its path as a Dask array of rows.

    The rows of a frame stay uncounted: its partitions change when it is read (small files are
    read together), so that only the array's own chunks can be counted.
    """
    if isinstance(X, str | os.PathLike):
        X = open_dataset(X)
    if isinstance(X, NamedRows):
        X = X.rows
    if isinstance(X, Dataset):
        return X.to_dask()[0]
    if hasattr(X, "to_dask_array"):
        X = numeric_columns(X).to_dask_array()
    X = of_tasks(X)
    if not isinstance(X, da.Array):
        X = da.from_zarr(X)
    if X.ndim != 2:
        raise ValueError(
            f"X has {X.ndim} dimension(s); Expected 2D array of shape (n_samples, n_features)."
        )
    if X.dtype.kind not in NUMERIC:
        raise ValueError(f"X has dtype {X.dtype}; X must be numeric: type X.astype(float).")
    rows: da.Array = X
    return rows


def refuse_labels(dataset: Dataset, y: Any, sample_weight: Any, classes: Any) -> None:
    """A dataset has labels and weights of its own: others beside it are an error."""
    if y is not None or sample_weight is not None:
        raise ValueError(
            f"{dataset.path} is a dataset, which has labels and weights of its own; type "
            "fit(path) without y and sample_weight."
        )
    if classes is not None and not np.array_equal(np.unique(classes), dataset.classes):
        raise ValueError("classes differ from those of the dataset; leave classes out.")


def column_names(X: Any) -> Array | None:
    """The names of a frame's columns, or a dataset's, if all are strings, as scikit-learn has it;
    else None."""
    if isinstance(X, str | os.PathLike):
        X = open_dataset(X)
    names = X.feature_names if isinstance(X, Dataset) else getattr(X, "columns", None)
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
    """A chunk as NumPy's array, or CSR if it is sparse; an error names one that is not usable."""
    chunk = block_id[0]
    check_form(X, n_features, f"chunk {chunk} of X")
    check_sparse(X, f"chunk {chunk} of X")
    X = sp.csr_array(X) if sp.issparse(X) and X.format != "csr" else X
    values = X.data if sp.issparse(X) else np.asarray(X)
    if values.dtype.kind != "f" or np.isfinite(values).all():
        return X if sp.issparse(X) else values
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
    refuse_masked("X", X, f" of {where.removesuffix(' of X')}")


#: Values that are squared at a time.
SQUARED = 2**18


class ChunkFacts(NamedTuple):
    """What one pass tells about a chunk; small enough for the client."""

    rows: int
    nnz: int
    n_bytes: int
    square_sum: float  # Σ ‖x_i‖²
    largest: float  # largest ‖x_i‖
    counts: Array  # (k,) int64, rows of positive weight of each class
    weights: WeightsByClass
    checksum: int  # of rows, codes and weights
    is_sparse: bool
    row_sum: Array  # (d,) float64, Σ x_i of dense rows; (0,) of others
    weighted_squares: Array  # (k,) float64, Σ weight_i ‖x_i‖² of each class
    weighted_sum: float  # Σ weight_i Σ_f x_if
    largest_part: float = 0.0  # of standardized rows, largest ‖x_i / scale‖


#: The sum of the rows is worth keeping up to so many features.
SUMMED_FEATURES = 4096


def chunk_facts(
    X: Any,
    codes: Array,
    weights: Array | None,
    *,
    chunk: int,
    first: int,
    stop: int,
    d: int,
    k: int,
) -> ChunkFacts:
    """Look at the rows first:stop; what no solver could use is an error that names them."""
    where = f"rows {first}:{stop}"
    check_sparse(X, f"the chunk of {where} of X")
    check_form(X, d, f"chunk {chunk} of X ({where})")
    X = sp.csr_array(X) if sp.issparse(X) else X
    if X.shape[0] != stop - first or codes.shape != (stop - first,):
        raise ValueError(
            f"the chunk of {where} of X has shape {X.shape} and {codes.size} labels; pass one "
            "label per row, with chunk sizes that are true."
        )
    values = X.data if sp.issparse(X) else np.asarray(X)
    square = row_squares(X)
    if not np.isfinite(square).all():
        row = first + int(np.flatnonzero(~np.isfinite(square))[0])
        raise ValueError(
            f"X contains NaN, infinity or a value too large to square in row {row} (the chunk of "
            f"{where}); fill the gaps, or drop those rows."
        )
    w = np.ones(codes.size) if weights is None else check_weights(weights, codes.size, where)
    used = w > 0
    largest = float(np.sqrt(square[used].max(initial=0.0)))
    if largest == 0:  # rows of zeros, or of values so small that their squares are
        largest = float(np.abs(values).max(initial=0))
    return ChunkFacts(
        codes.size,
        int(np.count_nonzero(values) if not sp.issparse(X) else X.nnz),
        n_bytes(X),
        float(square[used].sum()),
        largest,
        np.bincount(codes[used], minlength=k),
        weights_by_class(codes, w, k),
        checksum(X, codes, w),
        bool(sp.issparse(X)),
        row_sum(X, used),
        np.bincount(codes, w * square, minlength=k),
        float(w @ np.asarray(X.sum(axis=1, dtype=np.float64)).ravel()),
    )


def standardized_facts(
    facts: ChunkFacts, X: Any, codes: Array, weights: Any, columns: Standardization
) -> ChunkFacts:
    """The facts of a chunk whose rows X, as solvers take them, are standardized."""
    square, scaled = columns.square_norms(X)
    w = np.ones(codes.size) if weights is None else np.asarray(weights, np.float64)
    used, total = w > 0, facts.row_sum
    if total.size:
        total = (total - np.count_nonzero(used) * columns.mean * columns.centred) / columns.scale
    return facts._replace(
        square_sum=float(square[used].sum()),
        largest=float(np.sqrt(square[used].max(initial=0.0))),
        largest_part=float(np.sqrt(scaled[used].max(initial=0.0))),
        row_sum=total,
        weighted_squares=np.bincount(codes, w * square, minlength=facts.counts.size),
    )


def chunk_moments(X: Any, codes: Array, weights: Any, factors: Array) -> Moments:
    """Of the columns of rows X, as solvers take them; classes of weight zero count for none."""
    w = np.ones(codes.size) if weights is None else np.asarray(weights, np.float64)
    return moments(X, np.where(factors[codes] > 0, w, 0.0))


def row_sum(X: Any, used: Array) -> Array:
    """The sum of some rows, which tells how much all rows have in common."""
    if sp.issparse(X) or X.shape[1] > SUMMED_FEATURES:
        return np.zeros(0)
    rows = np.asarray(X)
    return np.asarray((rows if used.all() else rows[used]).sum(axis=0, dtype=np.float64))


def row_squares(X: Any) -> Array:
    """‖x_i‖² in float64, (rows,), of dense rows or CSR."""
    if not sp.issparse(X):
        rows = np.asarray(X)
        return np.asarray(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))
    sums, indptr = np.zeros(X.shape[0]), X.indptr
    firsts = np.searchsorted(indptr, np.arange(0, X.nnz, SQUARED), side="right") - 1
    for first, last in pairwise([*np.unique(firsts).tolist(), X.shape[0]]):
        values = X.data[indptr[first] : indptr[last]].astype(np.float64)
        starts = indptr[first:last] - indptr[first]
        filled = np.flatnonzero(np.diff(indptr[first : last + 1]))
        with np.errstate(over="ignore"):  # infinite squares are refused
            sums[first + filled] = np.add.reduceat(values * values, starts[filled])
    return sums


def n_bytes(X: Any) -> int:
    """Bytes of a chunk in memory."""
    if sp.issparse(X):
        return int(X.data.nbytes + X.indices.nbytes + X.indptr.nbytes)
    return int(np.asarray(X).nbytes)


def checksum(X: Any, codes: Array, weights: Array) -> int:
    """Tells other data from those a checkpoint was written for."""
    parts = (X.indptr, X.indices, X.data) if sp.issparse(X) else (np.asarray(X),)
    crc = 0
    for part in (*parts, codes, weights):
        crc = zlib.crc32(np.ascontiguousarray(part).view(np.uint8).data, crc)
    return crc


def check_weights(weights: Any, n: int, where: str) -> Array:
    """Sample weights of a chunk: finite, at least 0."""
    refuse_masked("sample_weight", weights, f" of the {where}")
    w = np.asarray(weights, np.float64)
    if w.shape != (n,):
        raise ValueError(f"sample_weight has {w.shape} for the {n} {where}; pass one per row.")
    if not np.isfinite(w).all() or (w < 0).any():
        raise ValueError(
            f"sample_weight holds {w[~(w >= 0) | ~np.isfinite(w)][0]} in {where}; weights must be "
            "finite and at least 0: use 0 to leave a row out."
        )
    return w


def unique_labels(y: Any, *, first: int) -> Array:
    """The labels of one chunk, sorted; `first` is the number of its first row."""
    return np.unique(sortable_labels(y, first))


def sortable_labels(y: Any, first: int) -> Array:
    """Labels with an order and without gaps: objects must be strings, and become NumPy's."""
    labels = np.asarray(plain_labels(y, first))
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        row = first + int(np.flatnonzero(np.isinf(labels))[0])
        raise ValueError(f"y contains infinity in row {row}; labels must be integers or strings.")
    if labels.dtype.kind != "O":
        return labels
    for label in labels.flat:
        if not isinstance(label, str):
            raise ValueError(
                f"rows of y hold {type(label).__name__} objects; labels must be integers or "
                "strings of one kind: type y.astype(str)."
            )
    return labels.astype(str)


def of_dtype(y: Any, dtype: np.dtype[Any]) -> Any:
    """Objects as the numbers they are; as they came if there are gaps, which a later task names."""
    return y if missing_label(y) is not None else np.asarray(y).astype(dtype)


def encode_chunk(y: Any, classes: Array, *, first: int, stop: int) -> npt.NDArray[np.int32]:
    """Places of a chunk's labels among the sorted classes."""
    labels = sortable_labels(y, first)
    if labels.ndim != 1:
        raise ValueError(f"y has {labels.ndim} dimensions; pass one label per row, shape (n,).")
    places = np.searchsorted(classes, labels)
    wrong = classes[np.minimum(places, classes.size - 1)] != labels
    if np.any(wrong):
        raise ValueError(
            f"rows {first}:{stop} of y hold {labels[wrong].tolist()[0]!r}, which is not among the "
            f"{classes.size} classes; add it to classes."
        )
    return places.astype(np.int32)


def chunk_costs(codes: Array, weights: Any, factors: Array) -> npt.NDArray[np.float64]:
    """C_i of a chunk: ``factors`` (k,) is C times the class weight."""
    costs = factors[codes]
    return costs if weights is None else costs * np.asarray(weights, np.float64)
