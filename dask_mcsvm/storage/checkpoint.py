"""Checkpoints: generations of arrays and blocks of which one is current, whole or absent.

Layout::

    <path>/checkpoint.json           which generation is current; replaced in one step
    <path>/lock.json                 who writes here
    <path>/generation-000012/        a Zarr group; its marker is completed last
    <path>/generation-000012/blocks/<name>/    a Zarr group each, written by workers
"""

from __future__ import annotations

import json
import os
import re
import uuid
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from ._arrays import check_name, is_name, read_store, write_store
from ._format import CHECKPOINT, check_sizes, is_count, read_marker, saying_where
from ._json import parse_json
from ._owner import GUARD, LOCK, give_back, take
from ._place import NotAFileError, Place, as_place

POINTER = "checkpoint.json"
#: Of what solvers keep; models and datasets have a version of their own. 2: shards without the
#: share of a visit that was due.
STATE_VERSION = 2
_GENERATION = re.compile(r"generation-(\d{6,})")

BlockRecord = dict[str, Any]


class Checkpoint:
    """A folder that holds the state of a fit, replaced as a whole.

    Small state is written by `write`. Large state is written as blocks by workers
    (`write_block`), and `commit` makes them the current generation. A crash at any moment leaves
    the last committed generation. One fit writes at a time: use it as a context manager, or
    `acquire` and `release`; methods that write take the lock for themselves when it is not held.

    Parameters
    ----------
    path : str or path-like
        Local path or fsspec URL; with blocks, one that all workers share.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from dask_mcsvm.storage import Checkpoint
    >>> folder = tempfile.TemporaryDirectory()
    >>> with Checkpoint(f"{folder.name}/fit") as checkpoint:
    ...     generation = checkpoint.begin()
    ...     record = checkpoint.write_block(
    ...         checkpoint.path, generation, "W-0", {"W": np.ones((2, 3))}
    ...     )
    ...     checkpoint.commit(generation, [record], {"epoch": 7}, {"rest": np.zeros(4)})
    >>> arrays, meta = Checkpoint(f"{folder.name}/fit").read()
    >>> arrays["rest"], meta
    (array([0., 0., 0., 0.]), {'epoch': 7})
    >>> folder.cleanup()
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._place = as_place(path)
        self._token: str | None = None

    @property
    def path(self) -> str:
        """Absolute path or URL, for tasks."""
        return self._place.path

    # The lock ------------------------------------------------------------------------------------

    def acquire(self) -> None:
        """Lock the checkpoint for this process.

        Raises
        ------
        CheckpointError
            Another process holds it, or the folder is something else.
        """
        if self._token is None:
            self._refuse_foreign()
            self._token = take(self._place)

    def release(self) -> None:
        """Unlock the checkpoint; nothing happens when it is not locked."""
        if self._token is not None:
            give_back(self._place, self._token)
            self._token = None

    def __enter__(self) -> Checkpoint:
        self.acquire()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        if self._token is not None:
            yield
            return
        with self:
            yield

    def _refuse_foreign(self) -> None:
        if not self._place.is_local or not self._place.exists():
            return
        if not os.path.isdir(self._place.path):
            names = {"a file"}
        else:
            ours = {POINTER, LOCK, GUARD}
            names = {n for n in os.listdir(self._place.path) if not n.endswith(".partial")}
            if names & ours or any(map(_GENERATION.fullmatch, names)):
                return
        if names:
            raise CHECKPOINT.error(
                f"{self._place.shown}: exists and is not a checkpoint; choose another path."
            )

    # Writing -------------------------------------------------------------------------------------

    def write(self, arrays: Mapping[str, Any], meta: Mapping[str, Any]) -> int:
        """Make arrays and JSON values the current generation; returns its number."""
        with self._locked():
            generation = self.begin()
            self.commit(generation, (), meta, arrays)
        return generation

    def begin(self) -> int:
        """The number of a new generation, for `write_block`.

        Removes what a run that was killed left: generations never committed, half a pointer.
        """
        with self._locked():
            self._place.remove_partial(POINTER)
            current = self.generation
            found = self._generations()
            for number in found:
                if number != current:
                    _generation(self._place, number).remove()
            return max([*found, current or 0]) + 1

    def commit(
        self,
        generation: int,
        records: Iterable[BlockRecord],
        meta: Mapping[str, Any],
        arrays: Mapping[str, Any] | None = None,
    ) -> None:
        """Make a generation the current one and remove the one before.

        Parameters
        ----------
        generation : int
            From `begin`.
        records : iterable of dict
            What `write_block` returned for each block of the generation.
        meta : mapping
            JSON values: epoch, plan, parameters, history, ...
        arrays : mapping of str to ndarray, optional
            Small arrays, written here.

        Raises
        ------
        CheckpointError
            A block is not there; the generation before stays current.
        """
        with self._locked():
            place = _generation(self._place, generation)
            blocks = {record["name"]: record["crc32"] for record in records}
            for name, crc in blocks.items():
                _check_block(_block(place, name), crc)
            with saying_where(self._place):
                write_store(place, CHECKPOINT, arrays or {}, meta, body={"blocks": blocks})
                pointer = {
                    "kind": CHECKPOINT.name,
                    "format_version": STATE_VERSION,
                    "generation": generation,
                    "crc32": zlib.crc32(place.read_bytes("zarr.json")),
                }
                self._place.write_bytes(POINTER, json.dumps(pointer).encode())
            for number in self._generations():
                if number != generation:
                    _generation(self._place, number).remove()

    @staticmethod
    def write_block(
        path: str, generation: int, name: str, arrays: Mapping[str, Any]
    ) -> BlockRecord:
        """Write one block of an unfinished generation: the function `write_block`."""
        return write_block(path, generation, name, arrays)

    @staticmethod
    def read_block(path: str, generation: int, name: str) -> dict[str, Any]:
        """The arrays of one block: the function `read_block`."""
        return read_block(path, generation, name)

    def block_path(self, generation: int, name: str) -> str:
        """Where a block is."""
        return _block(_generation(self._place, generation), name).path

    # Reading -------------------------------------------------------------------------------------

    @property
    def generation(self) -> int | None:
        """Number of the current generation; None when nothing was committed."""
        pointer = self._pointer()
        return None if pointer is None else pointer["generation"]

    @property
    def block_names(self) -> list[str]:
        """Names of the blocks of the current generation."""
        current = self.generation
        if current is None:
            return []
        return list(_blocks_of(_generation(self._place, current)))

    def read(self) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Arrays and meta of the current generation; None when nothing was committed.

        All of it is looked at, the bytes of blocks apart: `read_block` checks those.

        Raises
        ------
        CheckpointError
            The committed generation is damaged, or of another version.
        """
        while (pointer := self._pointer()) is not None:
            try:
                return self._read_generation(pointer)
            except (CHECKPOINT.error, FileNotFoundError):
                if self._pointer() == pointer:
                    raise
                # A running fit has committed the next one meanwhile, and removed this one.
        return None

    def read_of(self, problem: dict[str, Any]) -> tuple[int, dict[str, Any], dict[str, Any]] | None:
        """Generation, arrays and meta, if ``meta["problem"]`` is the given one.

        Raises
        ------
        CheckpointError
            It is another one; or as `read`.
        """
        found, generation = self.read(), self.generation
        if found is None or generation is None:
            return None
        if found[1].get("problem") != problem:
            raise CHECKPOINT.error(
                f"{self.path}: this checkpoint is of a fit on other rows or with other parameters; "
                "give those of that fit, or start afresh with resume=False."
            )
        return generation, *found

    def _read_generation(self, pointer: dict[str, int]) -> tuple[dict[str, Any], dict[str, Any]]:
        place = _generation(self._place, pointer["generation"])
        try:
            text = place.read_bytes("zarr.json")
        except (FileNotFoundError, NotADirectoryError, NotAFileError):
            raise CHECKPOINT.fault(
                self._place, f"generation {pointer['generation']} is missing"
            ) from None
        if zlib.crc32(text) != pointer["crc32"]:
            raise CHECKPOINT.fault(
                self._place, f"generation {pointer['generation']} is damaged (its marker differs)"
            )
        for name, crc in _blocks_of(place).items():
            _check_block(_block(place, name), crc)
        return read_store(place, CHECKPOINT)

    def _pointer(self) -> dict[str, int] | None:
        try:
            text = self._place.read_bytes(POINTER)
        except FileNotFoundError:
            return None
        except NotADirectoryError:
            raise CHECKPOINT.error(
                f"{self._place.shown}: is a file, not a checkpoint; choose another path."
            ) from None
        except NotAFileError:
            raise CHECKPOINT.fault(self._place, f"{POINTER} is not a file") from None
        try:
            pointer = parse_json(text)
            version = pointer["format_version"]
        except (ValueError, LookupError, TypeError):
            raise CHECKPOINT.fault(self._place, f"{POINTER} is damaged") from None
        if version != STATE_VERSION:
            found = f"format_version is {version!s:.40}, this release reads {STATE_VERSION}"
            raise CHECKPOINT.fault(self._place, found)
        generation, crc = pointer.get("generation"), pointer.get("crc32")
        is_ours = pointer.get("kind") == CHECKPOINT.name
        if not is_ours or not is_count(generation, 1 << 62) or not is_count(crc, 1 << 32):
            raise CHECKPOINT.fault(self._place, f"{POINTER} is damaged")
        return {"generation": generation, "crc32": crc}

    def _generations(self) -> list[int]:
        """Numbers of all generations there, whole or not."""
        if self._place.is_local:
            names = os.listdir(self._place.path) if self._place.exists() else []
        else:
            names = [key.split("/", 1)[0] for key in self._place.sizes()]
        return sorted({int(m[1]) for name in names if (m := _GENERATION.fullmatch(name))})


def write_block(path: str, generation: int, name: str, arrays: Mapping[str, Any]) -> BlockRecord:
    """Write one block of an unfinished generation; needs no lock, so that workers can.

    A block that is there already stays (a task may run twice, also on a worker believed dead).

    Parameters
    ----------
    path : str
        `Checkpoint.path`.
    generation : int
        From `Checkpoint.begin`.
    name : str
        Name of the block, for example ``"alpha-17"``.
    arrays : mapping of str to ndarray or SciPy sparse matrix

    Returns
    -------
    dict
        The record for `Checkpoint.commit`: small, and plain JSON.
    """
    place = _block(_generation(as_place(path), generation), check_name(name))
    record = _record(place)
    if record is not None:
        return record
    if not place.is_local:  # no rename there: the marker, written last, makes it a block
        place.remove()
        write_store(place, CHECKPOINT, arrays, {})
    else:
        partial = place.sibling(f".{name}.{uuid.uuid4().hex}")
        try:
            with saying_where(place):
                write_store(partial, CHECKPOINT, arrays, {})
            os.rename(partial.path, place.path)
        except OSError:
            if _record(place) is None:  # not because another run of this task was first
                raise
        finally:
            partial.remove()
    record = _record(place)
    assert record is not None
    return record


def read_block(path: str, generation: int, name: str) -> dict[str, Any]:
    """The arrays of one block, committed or not; every chunk is checked against its checksum."""
    return read_store(_block(_generation(as_place(path), generation), name), CHECKPOINT)[0]


def _blocks_of(generation: Place) -> dict[str, int]:
    """Names of the blocks of a generation, and the checksums of their markers."""
    blocks = read_marker(generation, CHECKPOINT).get("blocks")
    if not isinstance(blocks, dict) or not all(
        is_name(name) and is_count(crc, 1 << 32) for name, crc in blocks.items()
    ):
        raise CHECKPOINT.fault(generation, "zarr.json is damaged (its list of blocks)")
    return blocks


def _record(place: Place) -> BlockRecord | None:
    try:
        marker = place.read_bytes("zarr.json")
    except (FileNotFoundError, NotADirectoryError, NotAFileError):
        return None
    if not place.is_local:
        try:
            read_marker(place, CHECKPOINT)
        except CHECKPOINT.error:
            return None
    return {"name": place.name, "crc32": zlib.crc32(marker)}


def _check_block(place: Place, crc32: int) -> None:
    record = _record(place)
    if record is None:
        raise CHECKPOINT.fault(place, "this block is missing")
    if record["crc32"] != crc32:
        raise CHECKPOINT.fault(place, "this block is damaged (its marker differs)")
    check_sizes(place, CHECKPOINT, read_marker(place, CHECKPOINT)["chunks"])


def _generation(place: Place, number: int) -> Place:
    return place.child(f"generation-{number:06d}")


def _block(generation: Place, name: str) -> Place:
    return generation.child(f"blocks/{name}")
