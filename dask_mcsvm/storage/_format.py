"""What datasets, models and checkpoints share: the commit marker, chunk records, Zarr arrays.

A store is a Zarr v3 group. The attribute ``dask_mcsvm`` of its root is the commit marker: it is
completed last and lists bytes and CRC-32 of every chunk object and of every array's metadata, and
the CRC-32 of itself, so that a store is whole or not there. Stores of release 0.1 list the chunks
only.
"""

from __future__ import annotations

import errno
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import zarr
from zarr.codecs import BloscCodec

from dask_mcsvm import __version__
from dask_mcsvm.errors import CheckpointError, DatasetFormatError, ModelFormatError

from ._json import parse_json
from ._place import NotAFileError, Place

MARKER = "dask_mcsvm"
FORMAT_VERSION = 1
CHUNK_BYTES = 8 << 20

Array = npt.NDArray[Any]
# Of one array: its number of dimensions, and bytes and CRC-32 of its chunks in order.
Record = dict[str, Any]


@dataclass(frozen=True)
class Kind:
    """One of the three stores: its name, its error, and what to type when it is no good."""

    name: str
    error: type[ValueError]
    make: str
    again: str

    def fault(self, place: Place, found: str) -> ValueError:
        return self.error(f"{place.shown}: {found}; {self.again}.")


DATASET = Kind(
    "dataset",
    DatasetFormatError,
    "write one with write_dataset",
    "write it again with write_dataset(..., overwrite=True)",
)
MODEL = Kind(
    "model",
    ModelFormatError,
    "save one with save",
    "save it again with save(..., overwrite=True)",
)
CHECKPOINT = Kind(
    "checkpoint",
    CheckpointError,
    "a fit with checkpoint=... writes one",
    "remove it and fit again without resume",
)


FORMAT_ERRORS = (DatasetFormatError, ModelFormatError, CheckpointError)


# The marker --------------------------------------------------------------------------------------


def begin(place: Place, kind: Kind) -> None:
    """Make the root group of a store that is not yet whole."""
    marker = {"kind": kind.name, "format_version": FORMAT_VERSION, "complete": False}
    zarr.create_group(store=place.store(), zarr_format=3, attributes={MARKER: marker})


def finish(
    place: Place, kind: Kind, body: Mapping[str, Any], chunks: Mapping[str, Record]
) -> dict[str, Any]:
    """Complete the marker: from here on the store is whole. Returns the marker."""
    marker = {
        "kind": kind.name,
        "format_version": FORMAT_VERSION,
        "complete": True,
        "created_by": f"dask_mcsvm {__version__}",
        **body,
        "chunks": dict(chunks),
        "metadata": {name: zlib.crc32(place.read_bytes(f"{name}/zarr.json")) for name in chunks},
    }
    marker["crc32"] = _own_crc(marker)
    zarr.open_group(store=place.store(), mode="r+").update_attributes({MARKER: marker})
    return marker


def read_marker(place: Place, kind: Kind) -> dict[str, Any]:
    """The marker of a whole store of this kind and version; raises `kind.error` otherwise.

    Its lists of chunks are well formed; what else it holds the caller has to check.
    """
    marker = _any_marker(place, kind)
    if marker.get("kind") != kind.name:
        found = f"found a {marker.get('kind')!s:.40}, needed a {kind.name}"
        raise kind.error(f"{place.shown}: {found}; {kind.make}.")
    version = marker.get("format_version")
    if version != FORMAT_VERSION:
        raise kind.fault(
            place, f"format_version is {version!s:.40}, this release reads {FORMAT_VERSION}"
        )
    if not marker.get("complete"):
        raise kind.fault(
            place, f"this {kind.name} was never finished (its commit marker is missing)"
        )
    if "crc32" in marker and marker["crc32"] != _own_crc(marker):
        raise kind.fault(place, "zarr.json is damaged (its checksum differs)")
    chunks, metadata = marker.get("chunks"), marker.get("metadata", {})
    if not (
        isinstance(chunks, dict)
        and all(map(_is_record, chunks.values()))
        and isinstance(metadata, dict)
        and all(is_count(crc, 1 << 32) for crc in metadata.values())
    ):
        raise kind.fault(place, "zarr.json is damaged (its list of chunks)")
    return marker


def _own_crc(marker: Mapping[str, Any]) -> int:
    rest = {name: value for name, value in marker.items() if name != "crc32"}
    return zlib.crc32(json.dumps(rest, sort_keys=True).encode())


def _is_record(rec: Any) -> bool:
    if not isinstance(rec, dict) or not is_count(rec.get("ndim"), 33):
        return False
    sizes, crcs = rec.get("bytes"), rec.get("crc32")
    return (
        isinstance(sizes, list)
        and isinstance(crcs, list)
        and len(sizes) == len(crcs)
        and all(is_count(size, 1 << 62) for size in sizes)
        and all(is_count(crc, 1 << 32) for crc in crcs)
    )


def is_count(value: Any, stop: int) -> bool:
    """Whether a value out of a file is an integer in [0, stop)."""
    return type(value) is int and 0 <= value < stop


def _any_marker(place: Place, kind: Kind) -> dict[str, Any]:
    try:
        text = place.read_bytes("zarr.json")
    except (FileNotFoundError, NotADirectoryError):
        if not place.exists():
            raise FileNotFoundError(
                f"{place.shown}: there is no {kind.name} here; check the path, or {kind.make}."
            ) from None
        found = f"not a {kind.name} (it holds no zarr.json)"
        raise kind.error(f"{place.shown}: {found}; {kind.make}.") from None
    except NotAFileError:
        raise kind.fault(place, "zarr.json is not a file") from None
    try:
        attributes = parse_json(text).get("attributes", {})
        marker = attributes.get(MARKER)
    except (ValueError, AttributeError):
        raise kind.fault(place, "zarr.json is damaged") from None
    if not isinstance(marker, dict):
        found = f"a Zarr store, but not a {kind.name} written by dask_mcsvm"
        raise kind.error(f"{place.shown}: {found}; {kind.make}.")
    return marker


def state_of(place: Place, kind: Kind) -> str | None:
    """ "finished" or "unfinished" for a store of this kind in any version, else None."""
    try:
        marker = _any_marker(place, kind)
    except (OSError, kind.error):
        return None
    if marker.get("kind") != kind.name:
        return None
    return "finished" if marker.get("complete") else "unfinished"


# Chunks ------------------------------------------------------------------------------------------


def chunk_key(ndim: int, index: int) -> str:
    """Zarr's name for chunk `index` of an array that is cut along its first axis only."""
    return "/".join(["c", *([str(index)] if ndim else []), *["0"] * (ndim - 1)])


def create_array(
    place: Place,
    name: str,
    shape: tuple[int, ...],
    dtype: npt.DTypeLike,
    chunk_rows: int,
    attributes: Mapping[str, Any] | None = None,
) -> Any:
    """An empty array cut into chunks of whole rows, each to be written by one writer."""
    dtype = np.dtype(dtype)
    first = min(chunk_rows, shape[0]) if shape else 0
    chunks = tuple(max(1, size) for size in (first, *shape[1:]))
    return zarr.create_array(
        store=place.store(),
        name=name,
        shape=shape,
        chunks=chunks if shape else (),
        dtype=dtype,
        # 1 GB/s against 350 MB/s for Zarr's default, and smaller than no compression.
        compressors=BloscCodec(cname="lz4", clevel=5, shuffle="shuffle", typesize=dtype.itemsize),
        fill_value=_absent(dtype),
        attributes=dict(attributes or {}),
        config={"write_empty_chunks": True},
    )


def _absent(dtype: np.dtype[Any]) -> Any:
    """A fill value that stands out: a chunk that is lost later must not read as zeros."""
    match dtype.kind:
        case "f":
            return np.nan
        case "i":
            return -1
        case "u":
            return np.iinfo(dtype).max
        case _:
            return False


def open_array(place: Place, name: str, *, write: bool = False) -> Any:
    """A Zarr array of a store that is being written; `open_verified` opens those of whole ones."""
    store = place.store(read_only=not write)
    mode = "r+" if write else "r"
    array: Any = zarr.open_array(store=store, path=name, mode=mode, zarr_format=3)
    if not write:
        return array
    # Without it a chunk that equals the fill value is left out, which looks like a lost one. The
    # setting is not stored, and `Array.with_config` came with zarr 3.1.6 only.
    parts = {"metadata": array.metadata, "store_path": array.store_path}
    return zarr.Array(zarr.AsyncArray(**parts, config={"write_empty_chunks": True}))


def write_chunk(place: Place, name: str, array: Any, index: int, values: Array) -> tuple[int, int]:
    """Write one whole chunk; returns bytes and CRC-32 of the object as it was stored.

    The object is read back: what counts is what arrived.
    """
    if array.ndim:
        rows = array.chunks[0]
        array[index * rows : index * rows + len(values)] = values
    else:
        array[...] = values
    stored = place.read_bytes(f"{name}/{chunk_key(array.ndim, index)}")
    return len(stored), zlib.crc32(stored)


def write_array(
    place: Place, name: str, values: Array, attributes: Mapping[str, Any] | None = None
) -> Record:
    """Write an array from memory, chunk by chunk; returns its record for the marker."""
    row_bytes = max(1, values[:1].nbytes if values.ndim else values.nbytes)
    rows = max(1, CHUNK_BYTES // row_bytes)
    array = create_array(place, name, values.shape, values.dtype, rows, attributes)
    starts = range(0, values.shape[0], rows) if values.ndim else range(1)
    written = [
        write_chunk(place, name, array, i, values[start : start + rows] if values.ndim else values)
        for i, start in enumerate(starts)
        if values.size
    ]
    return record(values.ndim, written)


def record(ndim: int, written: Iterable[tuple[int, int]]) -> Record:
    pairs = list(written)
    return {"ndim": ndim, "bytes": [size for size, _ in pairs], "crc32": [crc for _, crc in pairs]}


def check_sizes(place: Place, kind: Kind, chunks: Mapping[str, Record]) -> None:
    """Raise `kind.error` unless every chunk is there with its bytes: a listing, no reading."""
    sizes = place.sizes()
    for name, rec in chunks.items():
        for index, size in enumerate(rec["bytes"]):
            key = chunk_key(rec["ndim"], index)
            found = sizes.get(f"{name}/{key}")
            if found is None:
                raise kind.fault(place, f"chunk {key} of {name} is missing")
            if found != size:
                raise kind.fault(
                    place, f"chunk {key} of {name} has {found} bytes, {size} were written"
                )


# What is made of the arrays -----------------------------------------------------------------------


@contextmanager
def restoring(path: str) -> Iterator[None]:
    """Around code that makes a state of a checkpoint: what does not fit is a CheckpointError."""
    try:
        yield
    except FORMAT_ERRORS:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        found = f"its state is not one of this fit ({error or type(error).__name__})"
        raise CheckpointError(f"{path}: {found}; {CHECKPOINT.again}.") from error


def check_alike(found: Mapping[str, Array], needed: Mapping[str, Array]) -> None:
    """Refuse arrays of other names, shapes or dtypes than those in `needed`: ValueError."""
    if set(found) != set(needed):
        raise ValueError(f"arrays {sorted(found)}, needed are {sorted(needed)}")
    for name, values in needed.items():
        if found[name].shape != values.shape or found[name].dtype != values.dtype:
            raise ValueError(
                f"{name} has shape {found[name].shape} and dtype {found[name].dtype}, needed are "
                f"{values.shape} and {values.dtype}"
            )


# Room --------------------------------------------------------------------------------------------

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FREE = "free some space, or choose another path"


@contextmanager
def saying_where(place: Place) -> Iterator[None]:
    """A full disk's error with the path that was written, and what to do; others as they are.

    A write that fails names no file: the system knows only its number.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in FULL or _FREE in str(error.strerror):
            raise
        raise OSError(error.errno, f"{error.strerror}; {_FREE}", place.shown) from error
