"""Which process wrote a temporary name or holds a lock, and whether it still runs."""

from __future__ import annotations

import os
import re
import socket
import uuid
from dataclasses import dataclass
from pathlib import Path


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
