"""A folder on disk or behind an fsspec URL: raw bytes, listings, and the Zarr store on it."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from zarr.abc.store import Store
from zarr.storage import FsspecStore, LocalStore

from ._stream import open_stream


@dataclass(frozen=True)
class Place:
    """A folder: `path` is absolute (workers have another working directory) or a URL.

    `shown` is what the user typed; messages repeat it.
    """

    path: str
    shown: str

    @property
    def is_local(self) -> bool:
        return "://" not in self.path

    @property
    def name(self) -> str:
        return self.path.rsplit("/" if not self.is_local else os.sep, 1)[-1]

    def child(self, name: str) -> Place:
        return Place(f"{self.path}/{name}", f"{self.shown}/{name}")

    def sibling(self, name: str) -> Place:
        """A folder next to this one, on the same file system so that a rename is atomic."""
        if self.is_local:
            path = os.path.join(os.path.dirname(self.path), name)
            return Place(path, path)
        path = f"{self.path.rpartition('/')[0]}/{name}"
        return Place(path, path)

    def store(self, *, read_only: bool = False) -> Store:
        if self.is_local:
            return LocalStore(self.path, read_only=read_only)
        return FsspecStore.from_url(self.path, read_only=read_only)

    def exists(self) -> bool:
        if self.is_local:
            return os.path.lexists(self.path)
        fs, root = self._filesystem()
        return bool(fs.exists(root))

    def is_empty_folder(self) -> bool:
        if not self.is_local:
            return not self.exists()
        return os.path.isdir(self.path) and not os.listdir(self.path)

    def read_bytes(self, key: str) -> bytes:
        """The object at `key`; raises FileNotFoundError when there is none.

        Something else is a NotAFileError: a pipe may never be written to.
        """
        if self.is_local:
            return _read_regular(os.path.join(self.path, key))
        fs, root = self._filesystem()
        return bytes(fs.cat_file(f"{root}/{key}"))

    def open_file(self) -> tuple[IO[bytes], int]:
        """This place as one file, to be read from its beginning, and its number of bytes."""
        if self.is_local:
            return open_stream(self.path, self.shown)
        fs, root = self._filesystem()
        return fs.open(root, "rb"), int(fs.size(root))

    def n_bytes(self) -> int:
        """Of this place as one file; 0 where that is not known, as of a pipe."""
        if self.is_local:
            return os.path.getsize(self.path) if os.path.isfile(self.path) else 0
        fs, root = self._filesystem()
        return int(fs.size(root) or 0)

    def write_bytes(self, key: str, data: bytes) -> None:
        """Write an object so that readers see the old bytes or the new ones, never a part."""
        if not self.is_local:
            fs, root = self._filesystem()
            fs.pipe_file(f"{root}/{key}", data)
            return
        target = Path(self.path, key)
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(f"{target.name}.{uuid.uuid4().hex}.partial")
        try:
            partial.write_bytes(data)
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)

    def remove_partial(self, key: str) -> None:
        """Remove what killed writers of one object left; no other process may be writing."""
        if self.is_local:
            for partial in Path(self.path).glob(f"{key}.*.partial"):
                partial.unlink(missing_ok=True)

    def copy_object(self, key: str, target: Place) -> None:
        """Copy one object to the same key of another URL of the same kind, on the server's side."""
        fs, root = self._filesystem()
        fs.cp_file(f"{root}/{key}", f"{target._filesystem()[1]}/{key}")

    def remove_bytes(self, key: str) -> None:
        """Remove one object; nothing happens when it is not there."""
        if self.is_local:
            Path(self.path, key).unlink(missing_ok=True)
            return
        fs, root = self._filesystem()
        if fs.exists(f"{root}/{key}"):
            fs.rm_file(f"{root}/{key}")

    def sizes(self) -> dict[str, int]:
        """Key and number of bytes of every object below this folder."""
        if not self.is_local:
            fs, root = self._filesystem()
            fs.invalidate_cache(root)
            found = fs.find(root, detail=True)
            return {key[len(root) :].lstrip("/"): int(i["size"]) for key, i in found.items()}
        sizes = {}
        folders = [""]
        while folders:
            folder = folders.pop()
            # What another process removes meanwhile is no longer there.
            with suppress(FileNotFoundError), os.scandir(os.path.join(self.path, folder)) as found:
                for entry in found:
                    key = f"{folder}{entry.name}"
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(f"{key}/")
                    else:
                        with suppress(FileNotFoundError):
                            sizes[key] = entry.stat().st_size
        return sizes

    def remove(self) -> None:
        """Remove the folder and all below it; nothing happens when it is not there."""
        if self.is_local:
            shutil.rmtree(self.path, ignore_errors=True)
            return
        fs, root = self._filesystem()
        if fs.exists(root):
            fs.rm(root, recursive=True)

    def _filesystem(self) -> tuple[Any, str]:
        """The fsspec file system behind a URL, for calls that block, and the path on it.

        Zarr's store holds it for its own event loop: wrapped where it knows no other, else bound
        to that loop, so that another instance with the same options is needed.
        """
        store = FsspecStore.from_url(self.path)
        fs: Any = store.fs
        if hasattr(fs, "sync_fs"):
            return fs.sync_fs, store.path
        return type(fs)(*fs.storage_args, **{**fs.storage_options, "asynchronous": False}), (
            store.path
        )


class NotAFileError(OSError):
    """A folder, pipe or device has the name of a file."""


def _read_regular(path: str) -> bytes:
    """The bytes of a file; never waits for the writer of a pipe."""
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    number = os.open(path, flags)
    try:
        if not stat.S_ISREG(os.fstat(number).st_mode):
            raise NotAFileError(errno.EINVAL, "is not a regular file", path)
        with open(number, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(number)


def as_place(path: str | os.PathLike[str] | Place) -> Place:
    """The place a user names: a local path, a ``file://`` URL or any other fsspec URL."""
    if isinstance(path, Place):
        return path
    text = os.fspath(path)
    if text.startswith("file://"):
        text = url2pathname(urlsplit(text).path)
    if "://" in text:
        return Place(text.rstrip("/"), text)
    return Place(os.path.abspath(os.path.expanduser(text)), text)
