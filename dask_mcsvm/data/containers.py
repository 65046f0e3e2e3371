"""What holds rows besides arrays: AnnData, xarray, and files in AnnData's layout.

Told by their names: neither library is imported here, and those who pass arrays import nothing.
"""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class NamedRows:
    """Rows in memory or lazy, with the names of their columns: what a frame is, for any rows.

    Attributes
    ----------
    rows : ndarray, SciPy sparse or Dask array of shape (n, d)
    columns : ndarray of shape (d,), of strings
    """

    rows: Any
    columns: Array

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the rows."""
        return tuple(self.rows.shape)


def without_container(X: Any, y: Any, sample_weight: Any, layer: Any) -> tuple[Any, Any, Any]:
    """X, y and weights as arrays, `NamedRows`, Dask arrays or a dataset; others as they are.

    Parameters
    ----------
    X : anything that `fit` takes
    y, sample_weight : array-like, or str
        A str is the path of a column, such as "obs/cell_type".
    layer : str or None
        Of AnnData: where the rows are, if not in X.
    """
    home = type(X).__module__.split(".")[0]
    if home == "anndata" and hasattr(X, "var_names"):
        y, sample_weight = (_column_of(X, column) for column in (y, sample_weight))
        return _rows_of(X, layer), y, sample_weight
    y, sample_weight = (_values_of(column) for column in (y, sample_weight))
    if home == "xarray":
        return with_names(_values_of(X), _coordinate(X)), y, sample_weight
    if isinstance(X, str | os.PathLike) or home == "zarr":
        found = _elements_at(X)
        if found is not None:
            return rows_in(found, layer), *(_column_in(found, c) for c in (y, sample_weight))
    for name, column in (("y", y), ("sample_weight", sample_weight)):
        if isinstance(column, str) and not isinstance(X, str | os.PathLike):
            raise ValueError(
                f"{name} is {column!r}, which names a column of AnnData, and X is {_kind(X)}; pass "
                "one value per row."
            )
    return X, y, sample_weight


def refuse_layer(X: Any, layer: Any) -> None:
    """An error for a layer of rows that have none."""
    home = type(X).__module__.split(".")[0]
    is_file = isinstance(X, str | os.PathLike) or home == "zarr"
    if layer is None or home == "anndata" or (is_file and _elements_at(X) is not None):
        return
    raise ValueError(
        f"layer is {layer!r}, which names a layer of AnnData, and X is {_kind(X)}; leave it out."
    )


def _kind(X: Any) -> str:
    return f"the dataset {X}" if isinstance(X, str | os.PathLike) else type(X).__name__


def with_names(rows: Any, names: Any) -> Any:
    """Rows with the names of their columns, if there are any and they are strings."""
    if names is None or not all(isinstance(name, str) for name in names):
        return rows
    names = np.asarray(names, object)
    if getattr(rows, "ndim", 0) != 2 or names.shape != (rows.shape[1],):
        raise ValueError(
            f"X has shape {tuple(rows.shape)} and {names.size} names of columns; pass one name per "
            "column."
        )
    return NamedRows(rows, names)


# xarray ------------------------------------------------------------------------------------------


def _values_of(column: Any) -> Any:
    """The array in a DataArray, lazy if it is; all else as it is."""
    return column.data if type(column).__module__.split(".")[0] == "xarray" else column


def _coordinate(X: Any) -> Any:
    """The labels of the second dimension of a DataArray."""
    if X.ndim != 2 or X.dims[1] not in X.coords:
        return None
    return X.coords[X.dims[1]].values.tolist()


# AnnData -----------------------------------------------------------------------------------------


def _rows_of(adata: Any, layer: str | None) -> Any:
    """The rows of an AnnData; those of a backed one stay in its file."""
    from dask_mcsvm.storage import element_name, listed

    table, _, name = element_name(layer).rpartition("/")
    if table == "raw" and adata.raw is not None:
        return with_names(adata.raw.X, adata.raw.var_names)
    if table:
        held = {"layers": adata.layers, "obsm": adata.obsm}.get(table, {})
        if name not in held:
            raise ValueError(
                f"X has no {table}/{name}; its layers are {listed(sorted(adata.layers))} and its "
                f"obsm {listed(sorted(adata.obsm))}: leave layer out for X itself."
            )
        return with_names(held[name], adata.var_names if table == "layers" else None)
    if not adata.isbacked:
        if adata.X is None:
            raise ValueError('X is an AnnData without X; name a layer, for example layer="counts".')
        return with_names(adata.X, adata.var_names)
    if adata.is_view:
        raise ValueError(
            "X is a view of a backed AnnData, whose rows are all over its file; write it with "
            'X.copy("part.h5ad"), or take it into memory with X.to_memory().'
        )
    found = _elements_at(os.fspath(adata.filename))
    assert found is not None
    return with_names(_lazy(found.rows()), adata.var_names)


def _column_of(adata: Any, column: Any) -> Any:
    """A column of obs that is named, as pandas has it."""
    from dask_mcsvm.storage import listed

    if not isinstance(column, str):
        return _values_of(column)
    table, _, name = column.partition("/")
    if table != "obs" or name not in adata.obs.columns:
        raise ValueError(
            f"X has no column {column!r}; its columns are "
            f"{listed([f'obs/{name}' for name in adata.obs.columns])}."
        )
    if hasattr(adata.obs, "to_memory"):  # of `read_lazy`
        return adata.obs[[name]].to_memory()[name]
    return adata.obs[name]


# Files -------------------------------------------------------------------------------------------


def _elements_at(source: Any) -> Any:
    """A file in AnnData's layout; None for datasets of this package, and what is something else."""
    from dask_mcsvm.storage import kind_of, open_elements

    if isinstance(source, str | os.PathLike) and kind_of(source) is not None:
        return None
    return open_elements(source)


def rows_in(elements: Any, layer: str | None = None) -> Any:
    """The rows of a file in AnnData's layout, lazy, with the names of their columns."""
    return with_names(_lazy(elements.rows(layer)), elements.names(layer))


def _column_in(elements: Any, column: Any) -> Any:
    return elements.column(column) if isinstance(column, str) else column


def _lazy(stored: Any) -> Any:
    """Rows in a file as a Dask array with a chunk per block."""
    import scipy.sparse as sp
    from dask.array import core as da

    sizes = tuple(np.diff(stored.row_offsets).tolist())
    d, carried = stored.shape[1], replace(stored, row_offsets=())  # a task needs only its own
    meta = sp.csr_matrix((0, d), dtype=stored.dtype) if stored.is_sparse else None
    return da.map_blocks(
        _read_chunk, carried.read, chunks=(sizes, (d,)), dtype=stored.dtype, meta=meta,
        # A new name each time: the file may have changed.
        name=f"stored-rows-{uuid.uuid4().hex}",
    )  # fmt: skip


def _read_chunk(read: Any, block_info: Any = None) -> Any:
    """One chunk of a lazy array: `read` its rows."""
    start, stop = block_info[None]["array-location"][0]
    return read(start, stop)
