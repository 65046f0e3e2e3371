"""One decorator decides every compiler flag of the package.

``nogil`` lets threads and Dask workers run kernels side by side, ``cache`` spares the next process
the compilation. ``contract`` allows fused multiply-adds, ``reassoc``, ``nnan`` and ``nsz`` let
sums and maxima vectorize. The order of a sum is chosen when the kernel is compiled, so the same
input gives the same bytes on the same kind of CPU. NaN and infinity are refused in NumPy before a
kernel sees them.
"""

from __future__ import annotations

from functools import partial

import numba
from numba.extending import overload

FASTMATH = {"contract", "reassoc", "nnan", "nsz"}

kernel = numba.njit(cache=True, nogil=True, fastmath=FASTMATH, error_model="numpy")

#: A function whose code is chosen by the types of its arguments (dense or CSR rows, dense or sparse
#: alpha, one of the four losses). Callers are kernels; the dispatch costs nothing at run time.
by_type = partial(
    overload, jit_options={"nogil": True, "fastmath": FASTMATH, "error_model": "numpy"}
)
