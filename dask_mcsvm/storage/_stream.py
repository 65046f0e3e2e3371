"""A file to be read once from its beginning: a regular one, or a pipe that somebody writes to."""

from __future__ import annotations

import io
import os
import stat
import time
from typing import IO, Any, cast

WRITER_SECONDS = 5.0  # to wait for the program at the other end of a pipe to open it
_TRY_SECONDS = 0.05


def open_stream(path: str, shown: str) -> tuple[IO[bytes], int]:
    """The file, and its number of bytes (0 for a pipe, whose number is not known).

    Opening a pipe that no program writes to would wait for ever, and so would reading a terminal;
    a device may have no end.

    Raises
    ------
    ValueError
        It is a device or a socket, or a pipe without a writer.
    """
    kind = os.stat(path).st_mode
    if stat.S_ISREG(kind) or stat.S_ISDIR(kind):  # open() has the words for a folder
        return open(path, "rb"), os.path.getsize(path)
    if not stat.S_ISFIFO(kind):
        raise ValueError(f"{shown} is a device or a socket, not a file; pass a file or a pipe.")
    return cast("IO[bytes]", io.BufferedReader(_Pipe(path, shown))), 0


class _Pipe(io.RawIOBase):
    """The reading end of a pipe, which also knows how much was read."""

    def __init__(self, path: str, shown: str) -> None:
        self.fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self.done, self.first = 0, b""
        try:
            self.first = self._first_bytes(shown)
        except BaseException:
            os.close(self.fd)
            raise
        os.set_blocking(self.fd, True)

    def _first_bytes(self, shown: str) -> bytes:
        """What there is to read once a writer is there; it may take its time with the first byte.

        Without one a read finds the end of the file, with one it would have to wait.
        """
        until = time.monotonic() + WRITER_SECONDS
        while True:
            try:
                if data := os.read(self.fd, io.DEFAULT_BUFFER_SIZE):
                    return data
            except BlockingIOError:
                return b""
            if time.monotonic() >= until:
                raise ValueError(
                    f"{shown} is a pipe that no program writes to; start that program first, or "
                    "pass a file."
                )
            time.sleep(_TRY_SECONDS)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self.first[: len(buffer)] or os.read(self.fd, len(buffer))
        self.first = self.first[len(buffer) :]
        buffer[: len(data)] = data
        self.done += len(data)
        return len(data)

    def tell(self) -> int:
        return self.done

    def close(self) -> None:
        if not self.closed:
            os.close(self.fd)
        super().close()
