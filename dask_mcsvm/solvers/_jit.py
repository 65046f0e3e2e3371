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

from functools import partial
from typing import Any

import numba
from numba.extending import overload

FASTMATH = {"contract", "reassoc", "nnan", "nsz"}
OPTIONS: dict[str, Any] = {
    "nogil": True,
    "fastmath": FASTMATH,
    "error_model": "numpy",
    "forceinline": True,
}
BARE = OPTIONS | {"_nrt": False}

kernel = numba.njit(cache=True, **OPTIONS)

#: A kernel that makes no array, of its own or to return.
bare_kernel = numba.njit(cache=True, **BARE)

#: A function whose code is chosen by the types of its arguments (dense or CSR rows, dense or sparse
#: alpha, one of the four losses). Callers are kernels; the dispatch costs nothing at run time.
by_type = partial(overload, jit_options=OPTIONS)  # type: ignore[arg-type]
bare_by_type = partial(overload, jit_options=BARE)  # type: ignore[arg-type]
