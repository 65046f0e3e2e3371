"""These decorators decide every compiler flag of the package.

``nogil`` lets threads and Dask workers run kernels side by side, ``cache`` spares the next process
the compilation. ``contract`` allows fused multiply-adds, ``reassoc``, ``nnan`` and ``nsz`` let
sums and maxima vectorize. The order of a sum is chosen when the kernel is compiled, so the same
input gives the same bytes on the same kind of CPU. NaN and infinity are refused in NumPy before a
kernel sees them.

A visit of one example takes about a microsecond and is made of some twenty functions. They are
inlined (``forceinline``): a call passes each array as seven numbers. And those marked bare do not
count arrays (``_nrt``): each use of a field of a named tuple would otherwise raise and lower a
reference count by an atomic instruction, together about half of a visit. The caller holds all
arrays meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numba
import numpy as np
from numba.core import event
from numba.extending import overload, register_jitable

from .cache_folder import spare_cache_folder
from .interrupts import HeldInterrupts

logger = logging.getLogger("dask_mcsvm")

event.register("numba:compiler_lock", HeldInterrupts())

FASTMATH = {"contract", "reassoc", "nnan", "nsz"}
OPTIONS: dict[str, Any] = {
    "nogil": True,
    "fastmath": FASTMATH,
    "error_model": "numpy",
    "forceinline": True,
    "no_cfunc_wrapper": True,  # a second entry, for callers that hold a pointer: there are none
}
BARE = OPTIONS | {"_nrt": False}


def cached_njit(options: dict[str, Any], function: Callable[..., Any]) -> Any:
    """Compile with a cache: where Numba puts it, else in a temporary folder, else without one.

    Numba refuses to cache where neither the package's folder nor the user's can be written.
    """
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError as error:
        if "no locator available" not in str(error):
            raise
    folder = _spare_folder_said_once()
    if folder is None:
        return numba.njit(**options)(function)
    config: Any = numba.config
    chosen = config.CACHE_DIR
    config.CACHE_DIR = folder  # for this function: others may have found a place
    try:
        return numba.njit(cache=True, **options)(function)
    finally:
        config.CACHE_DIR = chosen


@cache
def _spare_folder_said_once() -> str | None:
    folder = spare_cache_folder()
    where = (
        "every process compiles it anew, which takes up to a minute"
        if folder is None
        else f"it is kept in {folder}"
    )
    logger.warning(
        "Compiled code can be stored neither beside the package nor in the user's cache folder, so "
        "%s; set NUMBA_CACHE_DIR to a folder that can be written.",
        where,
    )
    return folder


kernel = partial(cached_njit, OPTIONS)

#: A kernel that makes no array, of its own or to return.
bare_kernel = partial(cached_njit, BARE)

#: A part of kernels, which nothing else calls. It has no entry for Python: unpacking the named
#: tuples of a call takes as long to compile as many a body. Called from Python it is plain Python.
part = register_jitable(**OPTIONS)
bare_part = register_jitable(**BARE)

#: A function whose code is chosen by the types of its arguments (dense or CSR rows, dense or sparse
#: alpha, one of the four losses). Callers are kernels; the dispatch costs nothing at run time.
by_type = partial(overload, jit_options=OPTIONS)  # type: ignore[arg-type]
bare_by_type = partial(overload, jit_options=BARE)  # type: ignore[arg-type]

#: Numbers before and behind an array of working space: more than any loop takes at a time.
APART = 512


@part
def apart(size, dtype):
    """Working space (size,) of a kernel, not filled, far from all others.

    Before a loop over arrays of which it writes one, compiled code compares addresses: where two
    are nearer than the numbers that it takes at a time, it takes them one by one, and rounds sums
    otherwise. Small arrays lie next to each other or not as the allocator likes, so that the bytes
    of a fit would depend on it, and on the thread.
    """
    return np.empty(size + 2 * APART, dtype)[APART : APART + size]
