"""Rows, labels and weights on their way to disk: in memory, or set aside by one task per block.

Where a block of nonzeros goes is known only when all blocks before it have been counted. Blocks
that are streamed (Dask, text) are therefore written once to a scratch folder, counted, and then
copied into the dataset's chunks: each is computed once, a task that runs again changes nothing,
and the copying tasks depend on no other.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dask_mcsvm.checks import check_sparse, refuse_masked

from ._format import Array, create_array, open_array
from ._json import fixed_width
from ._place import as_place

SCRATCH = "_blocks"
SCRATCH_ENTRIES = 1 << 18  # per chunk: a copying task reads little beyond the part it needs
MAX_FEATURES = np.iinfo(np.int32).max


@dataclass(frozen=True)
class Segment:
    """A run of values of one array: in memory, or set aside as array `name` of the store `path`."""

    length: int
    values: Array | None = None
    path: str = ""
    name: str = ""
    shift: int = 0
    lookup: Array | None = None

    def read(self, lo: int, hi: int) -> Array:
        source = self._open() if self.values is None else self.values
        values: Array = np.asarray(source[lo:hi])
        if self.lookup is not None:
            values = self.lookup[values]
        return values + self.shift if self.shift else values

    def _open(self) -> Any:
        try:
            return open_array(as_place(self.path), self.name)
        except FileNotFoundError:
            raise FileNotFoundError(
                f"{self.path}: this block, set aside by another task, can not be found; choose a "
                "path that all workers share."
            ) from None


@dataclass(frozen=True)
class RowBlock:
    """Some rows of X and what must be known of them before they can be placed.

    `arrays` has "data", "indices" and "indptr" for CSR rows, "rows" for dense ones.
    """

    rows: int
    features: int
    nnz: int
    dtype: str
    max_norm: float
    arrays: dict[str, Segment]

    @property
    def is_sparse(self) -> bool:
        return "indptr" in self.arrays


@dataclass(frozen=True)
class LabelBlock:
    """Labels of some rows: their distinct values, and positions among these."""

    labels: Array
    codes: Segment


@dataclass(frozen=True)
class SetAside:
    """What a streaming task says of its block."""

    x: RowBlock
    y: LabelBlock | None
    weight: Segment | None


def row_block(X: Any) -> RowBlock:
    """Check rows and look at them once; the arrays are shared with `X` where they can be."""
    rows = canonical_rows(X)
    norms = row_norms(rows)
    max_norm = float(norms.max()) if len(norms) else 0.0
    if sp.issparse(rows):
        arrays = {
            "data": Segment(rows.nnz, rows.data),
            "indices": Segment(rows.nnz, rows.indices),
            "indptr": Segment(rows.shape[0], rows.indptr),
        }
    else:
        arrays = {"rows": Segment(rows.shape[0], rows)}
    n, d = map(int, rows.shape)
    nnz = int(rows.nnz) if sp.issparse(rows) else n * d
    return RowBlock(n, d, nnz, rows.dtype.str, max_norm, arrays)


def canonical_rows(X: Any) -> Any:
    """CSR with sorted, distinct indices, or a C-ordered 2-d array, in a dtype that is stored."""
    refuse_masked("X", X)
    if not sp.issparse(X):
        X = np.ascontiguousarray(X)
    if X.ndim != 2:
        raise ValueError(
            f"X has {X.ndim} dimensions; a dataset needs 2. Use X.reshape(len(X), -1)."
        )
    check_sparse(X)
    X = X.astype(storable_dtype(X.dtype), copy=False)
    if not sp.issparse(X):
        return X
    csr = X.tocsr()
    if not csr.has_canonical_format:
        csr = csr.copy() if csr is X else csr  # the caller's matrix stays as it is
        csr.sum_duplicates()  # sorts as well
    if csr.nnz < len(csr.data):  # room for more entries is not part of the matrix
        csr = sp.csr_matrix((csr.data[: csr.nnz], csr.indices[: csr.nnz], csr.indptr), csr.shape)
    check_sparse(csr)
    return csr


def storable_dtype(dtype: npt.DTypeLike) -> np.dtype[Any]:
    """The dtype X is stored in: as it is, but for bools and half floats (widened, exactly)."""
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return np.dtype(np.uint8)
    if dtype == np.float16:
        return np.dtype(np.float32)
    if dtype.kind in "iu" or dtype in (np.dtype(np.float32), np.dtype(np.float64)):
        return dtype.newbyteorder("<")
    raise TypeError(
        f"X has dtype {dtype}; a dataset stores integers, float32 or float64. "
        "Use X.astype('float64')."
    )


def row_norms(rows: Any) -> npt.NDArray[np.float64]:
    """Euclidean norm of each row, (n,), summed in float64 by parts that fit the cache."""
    n, d = rows.shape
    squares = np.zeros(n)
    if not sp.issparse(rows):
        step = max(1, (1 << 18) // max(1, d))
        for i in range(0, n, step):
            part = rows[i : i + step].astype(np.float64)
            squares[i : i + step] = np.einsum("ij,ij->i", part, part)
        return np.sqrt(squares)
    # Cut where the nonzeros reach the next multiple: rows are of very different length.
    marks = np.searchsorted(rows.indptr, np.arange(0, rows.nnz, 1 << 18), side="right") - 1
    cuts = np.unique([0, *marks, n])
    for a, b in pairwise(cuts.tolist()):
        starts = rows.indptr[a:b]
        full = np.flatnonzero(rows.indptr[a + 1 : b + 1] > starts)  # reduceat knows no empty run
        if len(full):
            part = rows.data[starts[0] : rows.indptr[b]].astype(np.float64)
            squares[a + full] = np.add.reduceat(part * part, starts[full] - starts[0])
    return np.sqrt(squares)


def label_block(y: Any) -> LabelBlock:
    """Distinct labels and codes of a column of labels."""
    refuse_masked("y", y)
    labels = fixed_width(np.asarray(y))
    if labels.ndim != 1:
        raise ValueError(
            f"y has {labels.ndim} dimensions; one label per row is needed, shape (n,)."
        )
    try:
        distinct, codes = np.unique(labels, return_inverse=True)
    except TypeError:
        kinds = sorted({type(label).__name__ for label in labels})
        raise TypeError(
            f"y mixes labels of type {' and '.join(kinds)}, which have no order. Use y.astype(str)."
        ) from None
    if distinct.dtype.kind == "f" and np.isnan(distinct).any():
        raise ValueError("y holds NaN; every row needs a label. Drop those rows first.")
    return LabelBlock(distinct, Segment(len(labels), codes.astype(np.int32)))


def weight_segment(weight: Any) -> Segment:
    """Sample weights as float64."""
    refuse_masked("sample_weight", weight)
    values = np.asarray(weight, dtype=np.float64)
    if values.ndim != 1:
        raise ValueError(f"sample_weight has {values.ndim} dimensions; shape (n,) is needed.")
    return Segment(len(values), values)


def set_aside(folder: str, number: int, X: Any, y: Any = None, weight: Any = None) -> SetAside:
    """Write one block to the scratch folder of a dataset; the task a worker runs per block.

    The name is new at each run: a task that runs twice, also on a worker believed dead, never
    mixes its bytes with another run's, and only the run whose answer arrives is used.
    """
    x = row_block(X)
    labels = None if y is None else label_block(y)
    weights = None if weight is None else weight_segment(weight)
    codes = None if labels is None else labels.codes
    for name, column in (("y", codes), ("sample_weight", weights)):
        if column is not None and column.length != x.rows:
            raise ValueError(
                f"block {number} of {name} has {column.length} rows, that of X has {x.rows}; "
                f"cut them alike with {name}.rechunk((X.chunks[0],))."
            )
    path = f"{folder}/{SCRATCH}/{number}-{uuid.uuid4().hex}"
    x = replace(x, arrays={name: _keep(path, name, part) for name, part in x.arrays.items()})
    if labels is not None:
        labels = replace(labels, codes=_keep(path, "codes", labels.codes))
    return SetAside(x, labels, None if weights is None else _keep(path, "weight", weights))


def _keep(path: str, name: str, segment: Segment) -> Segment:
    values = segment.values
    assert values is not None
    rows = max(1, SCRATCH_ENTRIES // max(1, values[:1].size))
    array = create_array(as_place(path), name, values.shape, values.dtype, rows)
    if values.size:
        array[...] = values
    return Segment(segment.length, path=path, name=name)


def encode_labels(
    blocks: Sequence[LabelBlock], classes: Array | None
) -> tuple[Array, list[Segment]]:
    """Sorted classes (k,) and the columns of codes 0..k-1, one segment per block.

    Raises
    ------
    ValueError
        A label is not among `classes`, or blocks hold labels of different types.
    """
    found = [block.labels for block in blocks if len(block.labels)]
    kinds = {_family(labels) for labels in [*found, *([] if classes is None else [classes])]}
    if len(kinds) > 1:
        raise TypeError(
            f"labels are {' and '.join(sorted(kinds))}; they must be of one kind. "
            "Use y.astype(str)."
        )
    known = np.unique(np.concatenate(found or [np.empty(0)]) if classes is None else classes)
    segments = []
    for block in blocks:
        codes = np.searchsorted(known, block.labels).astype(np.int32)
        strange = block.labels[known[np.minimum(codes, len(known) - 1)] != block.labels]
        if len(strange):
            raise ValueError(
                f"y holds the label {strange.tolist()[0]!r}, which is not among classes; "
                "add it, or leave classes=None."
            )
        segments.append(replace(block.codes, lookup=codes))
    return known, segments


def _family(labels: Array) -> str:
    return "numbers" if labels.dtype.kind in "biuf" else "strings"
