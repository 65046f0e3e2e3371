"""What an out-of-core fit will hold in memory, counted before it begins."""

from __future__ import annotations

import ctypes
import math
from contextlib import suppress
from dataclasses import dataclass

from .sources import Source

#: Copies of a chunk at one time: the one at work, the next being read (as stored, and decoded),
#: the rows taken from the first for the active store, and the record made of them.
CHUNK_COPIES = 5
#: What threads, their small allocations and Zarr were seen to take however little is read.
FIXED = 16 << 20


@dataclass(frozen=True)
class Budget:
    """Bytes beyond imports and compiled code.

    Attributes
    ----------
    model : int
        Weights, and their exact sum while certifying.
    chunk : int
        The largest chunk, with all that is made of it while it is in memory.
    load : float
        What is left for active rows.
    """

    model: int
    chunk: int
    load: float


def make_budget(source: Source, memory_limit: int | None, n_jobs: int) -> Budget:
    """Share a limit out.

    Raises
    ------
    ValueError
        The limit is below what the model and one chunk need.
    """
    d, k, item = source.shape[1], source.n_classes, source.dtype.itemsize
    model = k * (d + 1) * (item + 8) + n_jobs * (d + 1) * 8
    chunk = 0
    per_entry = item + 4 if source.is_sparse else item
    offsets = source.row_offsets
    for b, entries in enumerate(source.entries().tolist()):
        rows = offsets[b + 1] - offsets[b]
        # Labels, costs, norms; one class at a time in each thread; every variable of the chunk.
        beside = rows * (40 + n_jobs * (2 * item + 16) + k * 2 * (item + 4))
        chunk = max(chunk, CHUNK_COPIES * entries * per_entry + beside)
    if memory_limit is None:
        return Budget(model, chunk, math.inf)
    needed = FIXED + model + chunk
    if memory_limit < needed:
        raise ValueError(
            f"memory_limit is {memory_limit:,} bytes; one chunk of these rows and the model of "
            f"{k} classes take {needed:,}: type memory_limit={needed}, or write the dataset again "
            "with a smaller block_rows."
        )
    # While active rows are in memory, so is the record of one piece as it is read or written.
    return Budget(model, chunk, memory_limit - FIXED - model - chunk // 2)


def return_freed_memory() -> None:
    """Tell the C library to give large arrays back to the system when they are freed (glibc only).

    By default glibc learns from the first large arrays to keep them for the thread that freed them,
    and several threads read chunks: a fit with a limit of 64 MB was seen to grow by 110. From here
    on arrays of 256 KiB and more come from the system and return to it, in the whole process, at
    the price of fresh pages for each.
    """
    mmap_threshold = -3  # M_MMAP_THRESHOLD of malloc.h
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(mmap_threshold, 256 << 10)
