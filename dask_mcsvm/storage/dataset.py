"""Datasets on disk: rows, labels and weights in a Zarr group, read block by block."""

from __future__ import annotations

import json
import os
import zlib
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from dask.array import core as da
from dask.base import is_dask_collection, tokenize

from ._dataset_marker import read_dataset_marker
from ._format import DATASET, Array, check_sizes
from ._json import decode_classes
from ._place import Place, as_place
from ._read import read_codes, read_csr, read_dense, read_row_starts, read_weights
from ._replace import read_current

VALIDATE_ROWS = 1 << 20


@dataclass(frozen=True, eq=False)
class Dataset:
    """A dataset on disk: where it is and what it holds; rows are read when asked for.

    Small and picklable, so that tasks can carry it. `open_dataset` and `write_dataset` make it.
    What is read is compared with its checksums. If the dataset is replaced meanwhile, or damaged,
    reading raises DatasetFormatError; rows of two versions never mix.

    Attributes
    ----------
    path : str
        Absolute path or URL.
    shape : (int, int)
        Rows n and features d.
    dtype : numpy.dtype
        Of X.
    is_sparse : bool
        Whether rows are read as `scipy.sparse.csr_matrix` (else as arrays).
    classes : ndarray of shape (k,)
        Sorted class labels, as they were given.
    nnz : int
        Stored entries; n * d for dense rows.
    max_row_norm : float
        Largest Euclidean norm of a row; nan if a row holds nan or inf.
    row_offsets : tuple of int
        Block b is the rows ``row_offsets[b]`` to ``row_offsets[b + 1]``.
    has_weights : bool
        Whether sample weights are stored.
    id : str
        New with every write.
    feature_names : ndarray of shape (d,), of str, or None
        Names of the columns, if they were given.
    fingerprint : str
        Of the bytes stored: another write of the same rows, cut alike, has the same.
    """

    path: str
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    is_sparse: bool
    classes: Array = field(repr=False)
    nnz: int
    max_row_norm: float
    row_offsets: tuple[int, ...] = field(repr=False)
    has_weights: bool
    id: str = field(repr=False)
    fingerprint: str = field(repr=False)
    feature_names: Array | None = field(repr=False, default=None)

    @property
    def n_classes(self) -> int:
        """Number of classes, also of those without a row."""
        return len(self.classes)

    @property
    def n_blocks(self) -> int:
        """Number of row blocks."""
        return len(self.row_offsets) - 1

    def block_entries(self) -> npt.NDArray[np.int64]:
        """Stored entries of each block, (n_blocks,): what reading it will take."""
        offsets = np.asarray(self.row_offsets, np.int64)
        if not self.is_sparse:
            return np.diff(offsets) * self.shape[1]
        return np.diff(read_row_starts(self._place, self.id, offsets))

    def read_rows(self, start: int, stop: int) -> Any:
        """Rows start:stop of X.

        Returns
        -------
        csr_matrix or ndarray of shape (stop - start, d)
        """
        self._check_range(start, stop)
        return _read_x(self._place, self.id, self.is_sparse, start, stop)

    def read_block(self, b: int) -> Any:
        """The rows of block `b`, as `read_rows` gives them."""
        return self.read_rows(*self._block(b))

    def read_labels(self, start: int = 0, stop: int | None = None) -> npt.NDArray[np.int32]:
        """Class codes of rows start:stop (all rows if not given); ``classes[codes]`` are labels.

        Returns
        -------
        ndarray of shape (stop - start,), int32
        """
        stop = self.shape[0] if stop is None else stop
        self._check_range(start, stop)
        return read_codes(self._place, self.id, start, stop)

    def read_block_labels(self, b: int) -> npt.NDArray[np.int32]:
        """Class codes of block `b`."""
        return self.read_labels(*self._block(b))

    def read_weights(
        self, start: int = 0, stop: int | None = None
    ) -> npt.NDArray[np.float64] | None:
        """Sample weights of rows start:stop (all rows if not given); None if there are none."""
        stop = self.shape[0] if stop is None else stop
        self._check_range(start, stop)
        return read_weights(self._place, self.id, start, stop) if self.has_weights else None

    def to_dask(self, *, labels: bool = False) -> tuple[da.Array, da.Array]:
        """X and y as lazy Dask arrays with a chunk per row block.

        Parameters
        ----------
        labels : bool
            y as labels in their original form instead of class codes.

        Returns
        -------
        X : dask.array.Array of shape (n, d)
            Chunks are csr_matrix or ndarray.
        y : dask.array.Array of shape (n,)
        """
        d = self.shape[1]
        meta = sp.csr_matrix((0, d), dtype=self.dtype) if self.is_sparse else None
        read = partial(_read_x, self._place, self.id, self.is_sparse)
        X = self._lazy("x", read, (self._block_rows, (d,)), self.dtype, meta)
        if not labels:
            codes = partial(read_codes, self._place, self.id)
            return X, self._lazy("codes", codes, (self._block_rows,), np.dtype(np.int32))
        names = partial(_read_labels, self._place, self.id, self.classes)
        return X, self._lazy("labels", names, (self._block_rows,), self.classes.dtype)

    def weights_to_dask(self) -> da.Array | None:
        """Sample weights as a lazy Dask array (n,) with a chunk per row block, or None."""
        if not self.has_weights:
            return None
        read = partial(read_weights, self._place, self.id)
        return self._lazy("weights", read, (self._block_rows,), np.dtype(np.float64))

    def validate(self) -> None:
        """Read everything once, as any reader does: checksums, the labels' range, rows' bounds.

        Raises
        ------
        DatasetFormatError
            The first fault found.
        """
        for start in range(0, self.shape[0], VALIDATE_ROWS):
            stop = min(start + VALIDATE_ROWS, self.shape[0])
            self.read_labels(start, stop)
            self.read_weights(start, stop)
        for b in range(self.n_blocks):
            self.read_block(b)

    @property
    def _place(self) -> Place:
        return as_place(self.path)

    @property
    def _block_rows(self) -> tuple[int, ...]:
        return tuple(np.diff(self.row_offsets).tolist())

    def _block(self, b: int) -> tuple[int, int]:
        if not 0 <= b < self.n_blocks:
            raise IndexError(f"block {b} of a dataset with {self.n_blocks} blocks")
        return self.row_offsets[b], self.row_offsets[b + 1]

    def _check_range(self, start: int, stop: int) -> None:
        if not 0 <= start <= stop <= self.shape[0]:
            raise IndexError(f"rows {start}:{stop} of a dataset with {self.shape[0]} rows")

    def _lazy(
        self, what: str, read: Any, chunks: Any, dtype: np.dtype[Any], meta: Any = None
    ) -> da.Array:
        name = f"dataset-{what}-{tokenize(self.path, self.id)}"
        lazy: da.Array = da.map_blocks(
            _read_chunk, read, chunks=chunks, dtype=dtype, meta=meta, name=name
        )
        return lazy

    def __dask_tokenize__(self) -> tuple[str, str, str]:
        return ("dask_mcsvm.Dataset", self.path, self.id)


def of_tasks(lazy: Any) -> Any:
    """A Dask array as its tasks, if it is an expression (`array.query-planning`); others as it is.

    That is why the whole package takes arrays from `dask.array.core`, which are tasks always.
    """
    if isinstance(lazy, da.Array) or not is_dask_collection(lazy) or not hasattr(lazy, "chunks"):
        return lazy
    planned = lazy.optimize()
    graph = dict(planned.__dask_graph__())
    return da.Array(graph, planned.name, lazy.chunks, dtype=lazy.dtype, meta=lazy._meta)


def _read_chunk(read: Any, block_info: Any = None) -> Any:
    """One chunk of a lazy array: `read` its rows."""
    start, stop = block_info[None]["array-location"][0]
    return read(start, stop)


def _read_x(place: Place, id: str, sparse: bool, start: int, stop: int) -> Any:
    return (read_csr if sparse else read_dense)(place, id, start, stop)


def _read_labels(place: Place, id: str, classes: Array, start: int, stop: int) -> Array:
    labels: Array = classes[read_codes(place, id, start, stop)]
    return labels


def _fingerprint(marker: dict[str, Any]) -> str:
    sums = {name: rec["crc32"] for name, rec in marker["chunks"].items()}
    parts = [marker[key] for key in ("n", "d", "nnz", "dtype", "classes", "row_offsets")]
    return f"{zlib.crc32(json.dumps([parts, sums], sort_keys=True).encode()):08x}"


def _read_marker(place: Place, verify: bool) -> dict[str, Any]:
    marker = read_dataset_marker(place)
    if verify:
        check_sizes(place, DATASET, marker["chunks"])
    return marker


def open_dataset(path: str | os.PathLike[str], *, verify: bool = True) -> Dataset:
    """Open a dataset written by `write_dataset` or `convert_libsvm`.

    Parameters
    ----------
    path : str or path-like
        Local path or fsspec URL.
    verify : bool
        Check by a listing that every chunk is there with its size. Their bytes are compared with
        their checksums when they are read.

    Returns
    -------
    Dataset

    Raises
    ------
    FileNotFoundError
        Nothing is there.
    DatasetFormatError
        Not a dataset, of another version, never finished, or a chunk is missing or truncated.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from dask_mcsvm.storage import open_dataset, write_dataset
    >>> folder = tempfile.TemporaryDirectory()
    >>> _ = write_dataset(f"{folder.name}/toy.zarr", np.eye(3), ["a", "b", "a"])
    >>> dataset = open_dataset(f"{folder.name}/toy.zarr")
    >>> dataset.shape, dataset.classes.tolist(), dataset.read_labels().tolist()
    ((3, 3), ['a', 'b'], [0, 1, 0])
    >>> folder.cleanup()
    """
    place = as_place(path)
    marker = read_current(place, DATASET, partial(_read_marker, verify=verify))
    norm, names = marker["max_row_norm"], marker.get("feature_names")
    return Dataset(
        path=place.path,
        shape=(marker["n"], marker["d"]),
        dtype=np.dtype(marker["dtype"]),
        is_sparse=marker["sparse"],
        classes=decode_classes(marker["classes"]),
        nnz=marker["nnz"],
        max_row_norm=float("nan") if norm is None else norm,
        row_offsets=tuple(marker["row_offsets"]),
        has_weights=marker["weighted"],
        id=marker["id"],
        fingerprint=_fingerprint(marker),
        feature_names=None if names is None else np.array(names, object),
    )
