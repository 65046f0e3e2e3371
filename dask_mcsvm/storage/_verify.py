"""Reading what a marker describes: every byte is compared with its checksum when it is read.

Zarr reads a missing chunk as fill values and decodes a changed one without a word. Here it sees no
byte that differs from what the marker of the opened version lists, so that a reader gets all of one
version or an error, also while another process replaces the store.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import zarr
from zarr.abc.store import Store
from zarr.storage import WrapperStore

from ._format import FORMAT_ERRORS, Array, Kind, Record, chunk_key
from ._json import parse_json
from ._place import NotAFileError, Place

if TYPE_CHECKING:
    from zarr.abc.store import ByteRequest
    from zarr.core.buffer import Buffer, BufferPrototype

NUMBERS = {
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64",
}  # fmt: skip
# LZ4 never packs more than 255 bytes into one: what claims more than that is not there.
MOST_PACKED = 256

# Zarr and its codecs take apart what they read without looking at types.
_ZARR_ERRORS = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)

Fault = Callable[[str], Exception]


class Verified(WrapperStore[Store]):
    """The store of one array, whose objects are those its record lists, or an error."""

    def __init__(
        self, place: Place, name: str, rec: Record, metadata_crc: int | None, fault: Fault
    ) -> None:
        super().__init__(place.store(read_only=True))
        self.place, self.name, self.rec = place, name, rec
        self.metadata_crc, self.fault = metadata_crc, fault

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """The whole object at `key`, as it was written."""
        assert byte_range is None, "arrays of this package are read by whole chunks"
        if self.place.is_local:
            data = await asyncio.to_thread(self._read_local, key)
        else:
            found = await self._store.get(key, prototype)
            data = None if found is None else found.to_bytes()
            await asyncio.to_thread(self._check, key, data)
        return None if data is None else prototype.buffer.from_bytes(data)

    def _read_local(self, key: str) -> bytes | None:
        try:
            data = self.place.read_bytes(key)
        except (FileNotFoundError, NotADirectoryError):
            data = None
        except NotAFileError:
            raise self.fault(f"{key} is not a file") from None
        self._check(key, data)
        return data

    def _check(self, key: str, data: bytes | None) -> None:
        inner = key.removeprefix(f"{self.name}/")
        if inner == "zarr.json":
            if data is None:
                raise self.fault(f"the array {self.name} can not be opened")
            if self.metadata_crc is not None and zlib.crc32(data) != self.metadata_crc:
                raise self.fault(f"zarr.json of {self.name} is damaged (its checksum differs)")
            self._check_layout(data)
            return
        index = self._index(inner)
        if data is None or index is None:
            raise self.fault(f"chunk {inner} of {self.name} is missing")
        if len(data) != self.rec["bytes"][index]:
            size = self.rec["bytes"][index]
            raise self.fault(
                f"chunk {inner} of {self.name} has {len(data)} bytes, {size} were written"
            )
        if zlib.crc32(data) != self.rec["crc32"][index]:
            raise self.fault(f"chunk {inner} of {self.name} is damaged (its checksum differs)")

    def _index(self, inner: str) -> int | None:
        """The number of a chunk by its key; None for one that was never written."""
        parts = inner.split("/")
        text = parts[1] if len(parts) > 1 else "0"
        if not (text.isascii() and text.isdecimal()) or len(text) > 18:
            return None
        index = int(text)
        known = index < len(self.rec["crc32"]) and inner == chunk_key(self.rec["ndim"], index)
        return index if known else None

    def _check_layout(self, data: bytes) -> None:
        """Refuse metadata that this package does not write: stores of 0.1 have no checksum of it.

        Another byte order or codec would turn the right bytes into other numbers.
        """
        try:
            found = parse_json(data)
            codecs = [(codec["name"], codec.get("configuration", {})) for codec in found["codecs"]]
            ours = (
                found["zarr_format"] == 3
                and found["node_type"] == "array"
                and found["data_type"] in NUMBERS
                and found["chunk_grid"]["name"] == "regular"
                and found["chunk_key_encoding"]["name"] == "default"
                and not found.get("storage_transformers")
                and isinstance(found.get("attributes", {}), dict)
                and [name for name, _ in codecs] == ["bytes", "blosc"]
                and codecs[0][1].get("endian", "little") == "little"
            )
        except (AttributeError, KeyError, TypeError, ValueError):
            ours = False
        if not ours:
            raise self.fault(f"zarr.json of {self.name} is damaged")


def open_verified(
    place: Place,
    kind: Kind,
    marker: Mapping[str, Any],
    name: str,
    shape: Sequence[int | None],
    *,
    dtype: np.dtype[Any] | None = None,
    fault: Fault | None = None,
) -> Any:
    """A Zarr array that has the shape (None: any) and dtype it must have, and reads checked bytes.

    Parameters
    ----------
    fault : callable, optional
        Makes the error from what was found; by default that of `kind`.
    """

    def usual(found: str) -> Exception:
        return kind.fault(place, found)

    fault = fault or usual
    rec = marker["chunks"].get(name) or {"ndim": len(shape), "bytes": [], "crc32": []}
    store = Verified(place, name, rec, marker.get("metadata", {}).get(name), fault)
    try:
        # Format 3 by name: arrays of format 2 may ask for pickle, which older numcodecs obey.
        array = zarr.open_array(store=store, path=name, mode="r", zarr_format=3)
    except FORMAT_ERRORS:
        raise
    except FileNotFoundError as error:
        raise fault(f"the array {name} can not be opened") from error
    except _ZARR_ERRORS as error:
        raise fault(f"the array {name} can not be opened ({error})") from error
    fits = len(shape) == array.ndim == rec["ndim"] and all(
        wanted in (None, size) for wanted, size in zip(shape, array.shape, strict=True)
    )
    if not fits:
        needed = tuple("any" if size is None else size for size in shape)
        raise fault(f"{name} has shape {array.shape}, its marker says {needed}")
    if dtype is not None and array.dtype != dtype:
        raise fault(f"{name} has dtype {array.dtype}, its marker says {dtype}")
    _check_chunks(array, name, rec, fault)
    return array


def _check_chunks(array: Any, name: str, rec: Record, fault: Fault) -> None:
    """Compare how an array is cut, and the memory it will take, with the chunks there are."""
    rows, *rest = array.shape or (1,)
    chunk, *widths = array.chunks or (1,)
    count = -(-rows // chunk) if prod(array.shape) else 0
    whole = widths == [max(1, size) for size in rest] and chunk <= max(1, rows)
    if not whole or count != len(rec["bytes"]):
        raise fault(f"{name} is cut into {count} chunks, its marker lists {len(rec['bytes'])}")
    check_claim(name, array.shape, array.dtype, rec, fault)


def check_claim(
    name: str, shape: Sequence[int], dtype: np.dtype[Any], rec: Record | None, fault: Fault
) -> None:
    """Refuse a shape that the chunks listed can not hold, before memory is taken for it."""
    stored = sum(rec["bytes"]) if rec else 0
    if prod(shape) * dtype.itemsize > MOST_PACKED * stored:
        raise fault(f"{name} has shape {tuple(shape)}, but only {stored} bytes are stored")


def read_values(array: Any, name: str, fault: Fault, rows: slice | Array | None = None) -> Array:
    """Rows of an open array (all of them if None); what Zarr can't decode is a fault."""
    try:
        if rows is None or not array.ndim:
            return np.asarray(array[...])
        return np.asarray(array[rows] if isinstance(rows, slice) else array.oindex[rows])
    except FORMAT_ERRORS:
        raise
    except _ZARR_ERRORS as error:
        raise fault(f"{name} can not be read ({error or type(error).__name__})") from error
