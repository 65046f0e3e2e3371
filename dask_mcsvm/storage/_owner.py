"""Which process wrote a temporary name or holds a lock, and whether it still runs."""

from __future__ import annotations

import json
import os
import re
import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from dask_mcsvm.errors import CheckpointError

from ._format import is_count
from ._json import parse_json
from ._place import NotAFileError, Place


@dataclass(frozen=True)
class Owner:
    """A process on a host; `started` tells it from a later process with the same pid."""

    host: str
    pid: int
    started: str

    def __str__(self) -> str:
        return f"process {self.pid} on host {self.host}"


def this_process() -> Owner:
    """The owner to write into names and locks made by this process."""
    return Owner(socket.gethostname(), os.getpid(), _start_time(os.getpid()))


def owned_name(prefix: str) -> str:
    """A new name that begins with `prefix` and says which process made it."""
    me = this_process()
    return f"{prefix}{me.host}-{me.pid}-{me.started}-{uuid.uuid4().hex[:8]}"


def owner_of(name: str, prefix: str) -> Owner | None:
    """Who made an `owned_name`; None where it is no such name."""
    parts = name.removeprefix(prefix).rsplit("-", 3)
    if not name.startswith(prefix) or len(parts) != 4 or not re.fullmatch("[0-9]{1,9}", parts[1]):
        return None
    return Owner(parts[0], int(parts[1]), parts[2])


def has_died(owner: Owner) -> bool:
    """True only when the owner certainly no longer runs; another host's processes are unknown."""
    if owner.host != socket.gethostname() or os.name == "nt":
        return False  # signal 0 is not a question on Windows: it would be sent
    try:
        os.kill(owner.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass  # runs, as another user
    # A pid is used again sooner or later (at once in containers, where everything is pid 1).
    now = _start_time(owner.pid)
    return bool(now and owner.started and now != owner.started)


def _start_time(pid: int) -> str:
    """Clock ticks since boot at which the process started (Linux), "" where it can't be known."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    fields = stat.rpartition(")")[2].split()  # the command name before it may hold spaces
    state, started = fields[0], fields[19]
    return "0" if state == "Z" else started  # a zombie writes nothing any more


LOCK = "lock.json"
GUARD = "lock.guard"


def take(place: Place) -> str:
    """Lock the folder for this process; returns the token that `give_back` needs.

    Raises
    ------
    CheckpointError
        Another fit holds it; the message says who, and how to remove a stale lock.
    """
    token = uuid.uuid4().hex
    with _guarded(place):
        holder = _holder(place)
        if holder is not None and not has_died(holder[0]):
            raise CheckpointError(_in_use(place, holder[0]))
        note = {**asdict(this_process()), "token": token}
        place.write_bytes(LOCK, json.dumps(note).encode())
    holder = _holder(place)  # without a guard (object stores) the last writer has it
    if holder is not None and holder[1] != token:
        raise CheckpointError(_in_use(place, holder[0]))
    return token


def give_back(place: Place, token: str) -> None:
    """Unlock the folder, unless somebody else holds it by now."""
    with _guarded(place):
        holder = _holder(place)
        if holder is not None and holder[1] == token:
            place.remove_bytes(LOCK)


def _in_use(place: Place, owner: Owner) -> str:
    return (
        f"{place.shown}: this checkpoint is in use by {owner}; choose another path, or if that "
        f"process no longer runs remove {place.shown}/{LOCK}."
    )


def _holder(place: Place) -> tuple[Owner, str] | None:
    try:
        note = parse_json(place.read_bytes(LOCK))
        if not is_count(note["pid"], 1 << 31):
            raise ValueError("not the number of a process")
        return Owner(str(note["host"]), note["pid"], str(note["started"])), note["token"]
    except FileNotFoundError:
        return None
    except (LookupError, NotAFileError, TypeError, ValueError):
        raise CheckpointError(
            f"{place.shown}: {LOCK} can not be read; if no fit uses this checkpoint remove it."
        ) from None


@contextmanager
def _guarded(place: Place) -> Iterator[None]:
    """Look at the lock and change it as one step; the kernel frees the guard of a killed process.

    The guard alone would be no lock: it does not say who has it, and works on one host or not at
    all on some network file systems.
    """
    try:
        import fcntl
    except ImportError:  # not POSIX
        yield
        return
    if not place.is_local:
        yield
        return
    Path(place.path).mkdir(parents=True, exist_ok=True)
    guard = os.open(Path(place.path, GUARD), os.O_RDWR | os.O_CREAT, 0o644)
    try:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(guard, fcntl.LOCK_EX)
        yield
    finally:
        os.close(guard)
