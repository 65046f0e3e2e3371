"""Scratch: arrays on disk that live as long as one run, and never longer.

A run works in a folder of its own, whose name says which process made it. The folder is removed
when the run ends, however it ends; what a killed run left is removed by the next one that works in
the same place. Nothing is ever read by another run, so nothing carries a checksum.

Rows go into *records*, Zarr arrays of compressed bytes. What changes in every pass goes into
*notes*, plain files: Zarr takes 10 to 20 ms to replace an array however small, a file a fraction of
one.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import zarr
from zarr.codecs import BloscCodec

from ._format import FULL, Array
from ._owner import has_died, owned_name, owner_of
from ._place import Place

PREFIX = "dask_mcsvm-scratch-"
#: Bytes of one chunk of a record.
CHUNK_BYTES = 4 << 20


class Scratch:
    """Named records and notes, each of a few arrays.

    Use it as a context manager: the folder is made on entry and removed on exit.

    Parameters
    ----------
    parent : str or path-like, optional
        The folder to work in, made if it is not there; by default that of temporary files.

    Examples
    --------
    >>> import numpy as np
    >>> from dask_mcsvm.storage import Scratch
    >>> with Scratch() as scratch:
    ...     scratch.write("rows-0", {"X": np.eye(2), "y": np.arange(2)})
    ...     scratch.write_note("alpha-0", {"alpha": np.ones(2)})
    ...     scratch.read("rows-0")["X"] @ scratch.read_note("alpha-0")["alpha"]
    array([1., 1.])
    """

    def __init__(self, parent: str | os.PathLike[str] | None = None) -> None:
        self.parent = Path(tempfile.gettempdir() if parent is None else parent).absolute()
        self._folder: Path | None = None

    @property
    def path(self) -> Path:
        """The run's own folder, while it lasts."""
        assert self._folder is not None, "Scratch is used outside its with block"
        return self._folder

    def __enter__(self) -> Scratch:
        try:
            self.parent.mkdir(parents=True, exist_ok=True)
            remove_leftovers(self.parent)
            folder = self.parent / owned_name(PREFIX)
            folder.mkdir(mode=0o700)
        except OSError as error:
            raise OSError(
                error.errno,
                f"scratch folder {self.parent} can not be written ({error.strerror}); "
                "name a folder that can with scratch='...'",
            ) from error
        self._folder = folder
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._place().remove()
        self._folder = None

    def write(self, name: str, arrays: Mapping[str, Any]) -> None:
        """Write or replace a record.

        Raises
        ------
        OSError
            There is no room, or the folder can no longer be written.
        """
        layout, packed = _pack({key: np.asarray(values) for key, values in arrays.items()})
        try:
            record = zarr.create_array(
                store=self._place().store(),
                name=name,
                shape=packed.shape,
                chunks=(min(max(packed.size, 1), CHUNK_BYTES),),
                dtype="u1",
                # Most of a record are numbers of four bytes: lz4 finds more in them shuffled so.
                compressors=BloscCodec(cname="lz4", clevel=1, shuffle="shuffle", typesize=4),
                fill_value=0,
                attributes={"layout": layout},
                overwrite=True,
            )
            record[...] = packed
        except OSError as error:
            raise self._no_room(error, packed.size) from error

    def read(self, name: str) -> dict[str, Array]:
        """The arrays of a record, views of one buffer."""
        record: Any = zarr.open_array(store=self._place().store(read_only=True), path=name)
        return _unpack(record.attrs["layout"], np.asarray(record[...]))

    def write_note(self, name: str, arrays: Mapping[str, Any]) -> None:
        """Write or replace a note; raises what `write` does."""
        layout, packed = _pack({key: np.asarray(values) for key, values in arrays.items()})
        head = json.dumps(layout).encode()
        try:
            with open(self.path / f"{name}.note", "wb") as file:
                file.write(len(head).to_bytes(8, "little") + head)
                file.write(packed.data)
        except OSError as error:
            raise self._no_room(error, packed.size) from error

    def read_note(self, name: str) -> dict[str, Array]:
        """The arrays of a note, views of one buffer."""
        with open(self.path / f"{name}.note", "rb") as file:
            layout = json.loads(file.read(int.from_bytes(file.read(8), "little")))
            return _unpack(layout, np.fromfile(file, np.uint8))

    def _place(self) -> Place:
        return Place(str(self.path), str(self.path))

    def _no_room(self, error: OSError, size: int) -> OSError:
        full = error.errno in FULL
        why = "has no room for" if full else "can not be written: it failed for"
        return OSError(
            error.errno,
            f"scratch folder {self.parent} {why} {size / 2**20:,.1f} MiB more "
            f"({error.strerror}); free some, or name another folder with scratch='...'",
        )


def remove_leftovers(parent: Path) -> None:
    """Remove the folders of runs that certainly no longer run."""
    for name in sorted(os.listdir(parent)):
        owner = owner_of(name, PREFIX)
        if owner is not None and has_died(owner):
            Place(str(parent / name), name).remove()


def _pack(arrays: Mapping[str, Array]) -> tuple[list[list[Any]], Array]:
    """One buffer with every array at a multiple of eight bytes, and where each of them is."""
    layout: list[list[Any]] = []
    at = 0
    for key, values in arrays.items():
        layout.append([key, at, values.nbytes, values.dtype.str, list(values.shape)])
        at += -(-values.nbytes // 8) * 8
    packed = np.zeros(at, np.uint8)
    for (_, begin, size, _, _), values in zip(layout, arrays.values(), strict=True):
        packed[begin : begin + size] = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    return layout, packed


def _unpack(layout: list[list[Any]], packed: Array) -> dict[str, Array]:
    return {
        key: packed[at : at + size].view(dtype).reshape(shape)
        for key, at, size, dtype, shape in layout
    }
