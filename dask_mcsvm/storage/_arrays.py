"""Named arrays and JSON values in one store: what models and checkpoints are made of."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
import zarr

from ._format import (
    Array,
    Kind,
    Record,
    begin,
    check_sizes,
    finish,
    is_count,
    read_marker,
    write_array,
)
from ._json import from_json, to_json
from ._place import Place
from ._verify import open_verified, read_values

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


def is_name(name: str) -> bool:
    """Whether a name is one folder on every file system."""
    return _NAME.fullmatch(name) is not None


def check_name(name: str) -> str:
    """A name that is one folder on every file system."""
    if not is_name(name):
        raise ValueError(f"{name!r} can not name an array; use letters, digits, _ . and - only.")
    return name


def write_store(
    place: Place,
    kind: Kind,
    arrays: Mapping[str, Any],
    meta: Mapping[str, Any],
    *,
    squeeze: bool = False,
    body: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Write arrays (dense of any shape, or SciPy sparse) and `meta`; returns the marker.

    `squeeze` stores a dense matrix as CSR where that is smaller; it comes back dense, bit for bit.
    """
    encoded = to_json(meta)  # first: what can't be written must not leave half a store
    forms = {check_name(name): _prepare(name, values, squeeze) for name, values in arrays.items()}
    begin(place, kind)
    chunks: dict[str, Record] = {}
    described = {}
    for name, (values, as_dense) in forms.items():
        if sp.issparse(values):
            chunks |= _write_csr(place, name, values)
            stored = "csr"
        else:
            chunks[name] = write_array(place, name, values)
            stored = "dense"
        described[name] = {"stored": stored, "dense": as_dense, "shape": list(values.shape)}
    return finish(place, kind, {**(body or {}), "arrays": described, "meta": encoded}, chunks)


def read_store(place: Place, kind: Kind) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arrays and meta of a store; every byte is compared with its checksum as it is read."""
    marker = read_store_marker(place, kind)
    check_sizes(place, kind, marker["chunks"])  # before memory is taken for what is not there
    arrays = {}
    for name, form in marker["arrays"].items():
        if form["stored"] == "dense":
            arrays[name] = _read(place, kind, marker, name, form["shape"])
        else:
            matrix = _read_csr(place, kind, marker, name, form["shape"])
            arrays[name] = _dense(place, kind, name, matrix) if form["dense"] else matrix
    return arrays, marker["meta"]


def read_store_marker(place: Place, kind: Kind) -> dict[str, Any]:
    """The marker of a store with well-formed descriptions of its arrays, its meta decoded."""
    marker = read_marker(place, kind)
    arrays = marker.get("arrays")
    if not isinstance(arrays, dict) or not all(map(_is_described, arrays, arrays.values())):
        raise kind.fault(place, "zarr.json is damaged (its list of arrays)")
    try:
        meta = from_json(marker.get("meta"))
    except ValueError:
        meta = None
    if not isinstance(meta, dict):
        raise kind.fault(place, "zarr.json is damaged (its meta)")
    return {**marker, "meta": meta}


def _is_described(name: str, form: Any) -> bool:
    if not is_name(name) or not isinstance(form, dict):
        return False
    shape = form.get("shape")
    return (
        form.get("stored") in ("dense", "csr")
        and isinstance(form.get("dense"), bool)
        and isinstance(shape, list)
        and len(shape) <= 32
        and all(is_count(size, 1 << 62) for size in shape)
        and (form["stored"] == "dense" or len(shape) == 2)
    )


def _prepare(name: str, values: Any, squeeze: bool) -> tuple[Any, bool]:
    """What to store, and whether it is to be read as a dense array."""
    if sp.issparse(values):
        return values.tocsr(), False
    values = np.asarray(values)
    if values.dtype.kind not in "biuf":
        raise TypeError(
            f"{name} has dtype {values.dtype}; arrays in files hold numbers only. "
            "Put class labels into meta with encode_classes."
        )
    values = values.astype(values.dtype.newbyteorder("<"), order="C", copy=False)
    return (_squeezed(values) if squeeze else values), True


def _squeezed(values: Array) -> Any:
    """The matrix as CSR if that takes fewer bytes, -0.0 kept as an entry."""
    if values.ndim != 2 or values.dtype.kind != "f" or not values.size:
        return values
    occupied = values.view(f"u{values.itemsize}") != 0
    counts = np.count_nonzero(occupied, axis=1)
    nnz = int(counts.sum())
    if nnz * (values.itemsize + 4) + 8 * (len(values) + 1) >= values.nbytes:
        return values
    indptr = np.concatenate([[0], np.cumsum(counts)])
    indices = np.flatnonzero(occupied) % values.shape[1]
    return sp.csr_array((values[occupied], indices, indptr), shape=values.shape)


def _dense(place: Place, kind: Kind, name: str, matrix: Any) -> Array:
    # Not toarray(): it adds to zeros, and 0.0 + -0.0 is 0.0.
    try:
        values = np.zeros(matrix.shape, dtype=matrix.dtype)
    except (MemoryError, ValueError):
        raise kind.fault(
            place, f"{name} has shape {matrix.shape}, more than memory can hold"
        ) from None
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    values[rows, matrix.indices] = matrix.data
    return values


def _write_csr(place: Place, name: str, matrix: Any) -> dict[str, Record]:
    layout = {"encoding-type": "csr_matrix", "encoding-version": "0.1.0"}
    shape = list(map(int, matrix.shape))
    group = place.child(name).store()
    zarr.create_group(store=group, zarr_format=3, attributes={**layout, "shape": shape})
    index = np.int32 if matrix.shape[1] <= np.iinfo(np.int32).max else np.int64
    parts = {
        "data": matrix.data,
        "indices": matrix.indices.astype(index, copy=False),
        "indptr": matrix.indptr.astype(np.int64),
    }
    return {
        f"{name}/{part}": write_array(place, f"{name}/{part}", values)
        for part, values in parts.items()
    }


def _read_csr(
    place: Place, kind: Kind, marker: Mapping[str, Any], name: str, shape: Sequence[int]
) -> Any:
    sizes = {"data": None, "indices": None, "indptr": shape[0] + 1}
    data, indices, indptr = (
        _read(place, kind, marker, f"{name}/{part}", [size]) for part, size in sizes.items()
    )
    try:
        if not indices.dtype.kind == indptr.dtype.kind == "i":
            raise ValueError("its indices are not integers")
        matrix = sp.csr_array((data, indices, indptr), shape=tuple(shape))
        matrix.check_format(full_check=True)  # kernels index without looking
    except ValueError as error:
        raise kind.fault(place, f"{name} is not a matrix ({error})") from error
    return matrix


def _read(
    place: Place,
    kind: Kind,
    marker: Mapping[str, Any],
    name: str,
    shape: Sequence[int | None],
) -> Array:
    array = open_verified(place, kind, marker, name, shape)
    return read_values(array, name, partial(kind.fault, place))
