"""A folder for compiled code where Numba finds none: that of temporary files, if it is safe."""

from __future__ import annotations

import os
import tempfile
from hashlib import sha256
from pathlib import Path


def spare_cache_folder() -> str | None:
    """A folder of this user's own among the temporary files; None if there can be none.

    What lies in a cache is code that will run, so that a folder which others may write to is not
    taken. It is named after the text of all kernels: Numba looks only at the file of the function
    that it caches, and would go on running old code after a change of a helper in another file.
    """
    if not hasattr(os, "getuid"):
        return None
    try:
        base = Path(tempfile.gettempdir(), f"dask_mcsvm-cache-{os.getuid()}")
        base.mkdir(mode=0o700, exist_ok=True)
        found = base.lstat()
        is_ours = found.st_uid == os.getuid() and found.st_mode & 0o077 == 0
        if not is_ours or base.is_symlink():
            return None
        folder = base / _stamp()
        folder.mkdir(exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return None
    return str(folder)


def _stamp() -> str:
    """Of the text of all kernels."""
    kernels = sorted(Path(__file__).parents[1].rglob("*.py"))
    return sha256(b"".join(p.name.encode() + p.read_bytes() for p in kernels)).hexdigest()[:12]
