"""What an out-of-core fit will hold in memory, counted before it begins."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import numpy as np

from dask_mcsvm.data.row_source import Source
from dask_mcsvm.formulations import FORMULATIONS

#: Copies of a chunk at one time: the one at work, the next being read (as stored, and decoded),
#: the rows taken from the first for the active store, and the record made of them.
CHUNK_COPIES = 5
#: The same of block minimization: being read, decoded, and its variables while they change.
BLOCK_COPIES = 3
#: Variables are lists above so many classes. Crammer-Singer holds fewer of them in a row.
LISTED_CLASSES = 64
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
        What is left for active rows, or for chunks at work together.
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
    model = k * (d + 1) * (item + 8)
    rows = np.diff(source.row_offsets)
    per_entry = item + 4 if source.is_sparse else item
    # Beside the features: labels, costs and norms, and in the end every variable of the chunk.
    chunks = CHUNK_COPIES * source.entries() * per_entry + rows * (40 + k * 2 * (item + 4))
    chunk = int(chunks.max())
    if memory_limit is None:
        return Budget(model, chunk, math.inf)
    # Each thread works on one class: its weights in float64, the variables of a chunk.
    threads = n_jobs * ((d + 1) * 8 + int(rows.max()) * (2 * item + 16))
    _refuse_below(FIXED + model + chunk + threads, memory_limit, k)
    # While active rows are in memory, so is the record of one piece as it is read or written. The
    # number of threads has no part in it: it must not change the result.
    return Budget(model, chunk, memory_limit - FIXED - model - chunk // 2)


def make_block_budget(source: Source, memory_limit: int | None, formulation: str) -> Budget:
    """Share a limit out for block minimization; ``load`` is what chunks may take together."""
    d, k, item = source.shape[1], source.n_classes, source.dtype.itemsize
    # W, a copy that visits change, the sum of changes and the next W; a float64 one to certify.
    model = k * (d + 1) * (4 * item + 8)
    chunk = BLOCK_COPIES * int(chunk_bytes(source, formulation).max())
    if memory_limit is None:
        return Budget(model, chunk, math.inf)
    _refuse_below(FIXED + model + chunk, memory_limit, k)
    return Budget(model, chunk, memory_limit - FIXED - model - chunk)


def chunk_bytes(source: Source, formulation: str) -> np.ndarray:
    """What each chunk takes with its dual variables, (n_blocks,)."""
    k, item = source.n_classes, source.dtype.itemsize
    listed = min(k, LISTED_CLASSES) if FORMULATIONS[formulation].loss_is_maximum else k
    # Beside features and variables: label, id, costs, norms and what visits remember of a row.
    per_row = 96 + listed * (item + 4 if k > LISTED_CLASSES else item)
    per_entry = item + 4 if source.is_sparse else item
    sizes: np.ndarray = source.entries() * per_entry + np.diff(source.row_offsets) * per_row
    return sizes


def _refuse_below(needed: int, memory_limit: int, k: int) -> None:
    if memory_limit < needed:
        raise ValueError(
            f"memory_limit is {memory_limit:,} bytes; one chunk of these rows and the model of "
            f"{k} classes take {needed:,}: type memory_limit={needed}, or write the dataset again "
            "with a smaller block_rows."
        )


@contextmanager
def returning_freed_memory() -> Iterator[None]:
    """Let the C library give large arrays back to the system as soon as they are freed (glibc).

    Left alone, glibc learns from the first large arrays to keep what is freed, for the thread that
    had it; several threads read chunks, and a fit with a limit of 64 MB was seen to grow by 110.
    Afterwards the process is left as glibc itself would be by then.
    """
    set_mmap_threshold(256 << 10)
    try:
        yield
    finally:
        set_mmap_threshold(32 << 20)  # where glibc's own learning ends


def set_mmap_threshold(size: int) -> None:
    """From so many bytes on, memory comes from the system and returns to it."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(-3, size)  # M_MMAP_THRESHOLD of malloc.h
