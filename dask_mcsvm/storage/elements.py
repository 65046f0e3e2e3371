"""Elements of files in AnnData's layout: rows, columns of tables and names, read part by part.

The layout is the same in Zarr groups (format 2 and 3) and in HDF5 (.h5ad): a matrix is a group of
``data``, ``indices`` and ``indptr`` or a plain array, a table is a group of columns, and attributes
tell how each was encoded. Nothing is written here, and rows are never read whole.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import zarr
from zarr.abc.store import Store

from dask_mcsvm.checks import check_sparse

from ._place import as_place
from ._write import SIZES

Array = npt.NDArray[Any]
_HDF5 = (".h5ad", ".h5", ".hdf5")


@dataclass(frozen=True, eq=False)
class Elements:
    """A Zarr group or an HDF5 file in AnnData's layout; small, so that tasks can carry it.

    Attributes
    ----------
    source : str or zarr.Group
        A path or URL is opened for each reading.
    shown : str
        What messages call it.
    """

    source: Any
    shown: str

    @contextmanager
    def opened(self) -> Iterator[Any]:
        """The root of the file, to be read from."""
        if not isinstance(self.source, str):
            yield self.source
        elif _is_hdf5(self.source):
            with _hdf5().File(self.source, "r") as file:
                yield file
        else:
            yield zarr.open_group(as_place(self.source).store(read_only=True), mode="r")

    def rows(self, layer: str | None = None) -> StoredRows:
        """The matrix X, or that of a layer, as rows to be read block by block.

        Parameters
        ----------
        layer : str, optional
            The name of a layer, or a path such as "raw/X" and "obsm/X_pca".
        """
        with self.opened() as root:
            name = element_name(layer)
            if layer is None and "X" not in root and _encoding(root):
                name = ""  # the group is a matrix, and not what holds one
            return _stored_rows(self, name, self._found(root, name))

    def column(self, name: str) -> Array:
        """A column such as "obs/cell_type"; None (in an array of objects) where it has a gap."""
        with self.opened() as root:
            values = _column(self._found(root, name), f"{self.shown}: {name}")
        if values.ndim != 1:
            raise ValueError(f"{self.shown}: {name} has shape {values.shape}; name one column.")
        return values

    def names(self, layer: str | None = None) -> Array | None:
        """Names of the columns of X or of a layer, or None where the file has none."""
        table = names_table(layer)
        with self.opened() as root:
            if table is None or table not in root:
                return None
            index = root[table].attrs.get("_index")
            if not isinstance(index, str) or index not in root[table]:
                return None
            return _column(root[table][index], f"{self.shown}: {table}/{index}").astype(object)

    def _found(self, root: Any, name: str) -> Any:
        if not name or name in root:
            return root[name] if name else root
        if "obs" in root and not hasattr(root["obs"], "keys"):
            raise ValueError(
                f"{self.shown} is of anndata before 0.7; read it with anndata.read_h5ad and write "
                "it again."
            )
        table, _, _ = name.rpartition("/")
        inside = root[table] if table and table in root else root
        some = sorted(key for key in inside if key != inside.attrs.get("_index"))
        where = f"{table} has" if inside is not root else "it has"
        raise ValueError(f"{self.shown} has no {name}; {where} {listed(some)}.")


def element_name(layer: str | None) -> str:
    """Where a layer is: ``layers/log`` for "log"; a path such as "raw/X" is one already."""
    if layer is None:
        return "X"
    return layer if "/" in layer or layer == "X" else f"layers/{layer}"


def names_table(layer: str | None) -> str | None:
    """The table whose index names the columns of a layer; those of obsm have no names."""
    name = element_name(layer)
    if name == "raw/X":
        return "raw/var"
    return "var" if name == "X" or name.startswith("layers/") else None


def listed(names: Sequence[str], at_most: int = 6) -> str:
    """Some names, for a message."""
    shown = ", ".join(map(repr, names[:at_most])) or "nothing"
    return shown + (", ..." if len(names) > at_most else "")


def open_elements(source: Any) -> Elements | None:
    """A path, URL, Zarr store or group in AnnData's layout; None for anything else.

    Raises
    ------
    ImportError
        An HDF5 file, and no h5py to read it.
    """
    if isinstance(source, str | os.PathLike):
        place = as_place(source)
        if _is_hdf5(place.path):
            if not place.is_local:
                raise ValueError(f"{place.shown}: HDF5 files are read from disk only; copy it.")
            if not os.path.exists(place.path):
                raise FileNotFoundError(f"{place.shown}: there is no such file; check the path.")
            return Elements(place.path, place.shown)
        try:
            zarr.open_group(place.store(read_only=True), mode="r")
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return Elements(place.path, place.shown)
    if isinstance(source, Store):
        source = zarr.open_group(source, mode="r")
    return Elements(source, str(source.store_path)) if isinstance(source, zarr.Group) else None


# Rows --------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class StoredRows:
    """A matrix in a file: CSR or dense, read by rows.

    Attributes
    ----------
    elements, name : Elements, str
        Where it is.
    shape : (int, int)
    dtype : numpy.dtype
    is_sparse : bool
    row_offsets : tuple of int
        Block b is the rows ``row_offsets[b]`` to ``row_offsets[b + 1]``.
    """

    elements: Elements
    name: str
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    is_sparse: bool
    row_offsets: tuple[int, ...] = field(repr=False)

    def read(self, start: int, stop: int) -> Any:
        """Rows start:stop, csr_matrix or ndarray; structure that kernels could not index is an
        error."""
        with self.elements.opened() as root:
            matrix = root[self.name] if self.name else root
            if not self.is_sparse:
                return np.asarray(matrix[start:stop])
            indptr = np.asarray(matrix["indptr"][start : stop + 1], np.int64)
            lo, hi = int(indptr[0]), int(indptr[-1])
            data, indices = matrix["data"][lo:hi], matrix["indices"][lo:hi]
        where = f"{self.elements.shown}: {self.name or 'X'}, rows {start}:{stop}"
        try:
            rows = sp.csr_matrix((data, indices, indptr - lo), (stop - start, self.shape[1]))
        except ValueError as error:
            raise ValueError(f"{where}: no CSR matrix ({error}); write the file again.") from error
        check_sparse(rows, where)
        return rows


def _stored_rows(elements: Elements, name: str, matrix: Any) -> StoredRows:
    where, encoding = f"{elements.shown}: {name or 'it'}", _encoding(matrix)
    if not hasattr(matrix, "keys"):
        if len(matrix.shape) != 2:
            raise ValueError(f"{where} has shape {tuple(matrix.shape)}; rows need two dimensions.")
        shape = (int(matrix.shape[0]), int(matrix.shape[1]))
        offsets = _dense_offsets(shape, matrix.dtype.itemsize, matrix.chunks)
        return StoredRows(elements, name, shape, np.dtype(matrix.dtype), False, offsets)
    if encoding == "csc_matrix":
        raise ValueError(
            f"{where} is stored by columns (csc_matrix), and rows are needed; type adata.X = "
            "adata.X.tocsr() and write the file again."
        )
    if encoding != "csr_matrix":
        raise ValueError(
            f"{where} has the encoding {encoding!r}; rows are read from a csr_matrix or an array: "
            "write the file again with anndata 0.8 or later."
        )
    n, d = (int(size) for size in matrix.attrs["shape"])
    data = matrix["data"]
    chunk = data.chunks[0] if data.chunks else 0
    indptr = np.asarray(matrix["indptr"][:], np.int64)
    if indptr.size != n + 1:
        raise ValueError(f"{where} has {indptr.size} row starts for {n} rows; write it again.")
    # No block is smaller than a chunk of the file, which would be read again for each of them.
    marks = np.arange(0, int(indptr[-1]), max(SIZES.block_entries, chunk))
    cuts = np.searchsorted(indptr, marks, side="right") - 1
    rows = np.arange(0, n, SIZES.block_rows)
    offsets = tuple(np.unique([0, *cuts.tolist(), *rows.tolist(), n]).tolist())
    return StoredRows(elements, name, (n, d), np.dtype(data.dtype), True, offsets)


def _dense_offsets(
    shape: tuple[int, int], itemsize: int, chunks: tuple[int, ...] | None
) -> tuple[int, ...]:
    """Blocks of some megabytes that end where chunks of the file do."""
    step = max(1, SIZES.dense_bytes // max(1, shape[1] * itemsize))
    if chunks:
        step = -(-step // chunks[0]) * chunks[0]
    return (*range(0, shape[0], step), shape[0])


# Columns -----------------------------------------------------------------------------------------


def _column(element: Any, where: str) -> Array:
    """The values of a column by its encoding."""
    encoding = _encoding(element)
    if hasattr(element, "keys"):
        if encoding == "categorical":
            categories = _column(element["categories"], where)
            return _labels(np.asarray(element["codes"][:]), categories, where)
        if encoding and encoding.startswith("nullable-"):
            values, gaps = _column(element["values"], where), np.asarray(element["mask"][:])
            return _with_gaps(values, gaps)
        raise ValueError(f"{where} has the encoding {encoding!r}; name a column of a table.")
    if "categories" in element.attrs:
        raise ValueError(
            f"{where} is a categorical of anndata before 0.8; read the file with anndata and write "
            "it again."
        )
    text = getattr(element, "asstr", None)
    dtype = element.dtype
    if text is not None and dtype.kind in "OS":  # HDF5 has bytes
        return np.asarray(text()[:], object)
    values = np.asarray(element[:])
    return values if values.dtype.kind in "fiubM" else values.astype(object)


def _labels(codes: Array, categories: Array, where: str) -> Array:
    """Categories by their codes; -1 is a gap."""
    if codes.size and not -1 <= codes.min() <= codes.max() < categories.size:
        raise ValueError(
            f"{where} has codes {codes.min()} to {codes.max()} for {categories.size} categories; "
            "write the file again."
        )
    gaps = codes < 0
    if not categories.size:
        return np.full(codes.shape, None, object)
    return _with_gaps(categories[np.where(gaps, 0, codes)], gaps)


def _with_gaps(values: Array, gaps: Array) -> Array:
    if not gaps.any():
        return values
    values = values.astype(object)
    values[gaps] = None
    return values


def _encoding(element: Any) -> str | None:
    found = element.attrs.get("encoding-type")
    return found if isinstance(found, str) else None


# HDF5 --------------------------------------------------------------------------------------------


def _is_hdf5(path: str) -> bool:
    return path.lower().endswith(_HDF5)


def _hdf5() -> Any:
    try:
        import h5py
    except ImportError:
        raise ImportError(
            "files of AnnData in HDF5 are read with h5py; type: pip install 'dask-mcsvm[anndata]'"
        ) from None
    return h5py
