"""A lock file that says who holds it; the lock of a process that died here is taken over."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path

from dask_mcsvm.errors import CheckpointError

from ._format import is_count
from ._json import parse_json
from ._owner import Owner, has_died, this_process
from ._place import NotAFileError, Place

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
