"""Placing blocks into the chunks of a dataset: every chunk is written whole, by one task.

Zarr's chunks are regular and row blocks are not, so a chunk of nonzeros may hold the end of one
block and the beginning of the next. Writing block by block would let two tasks write that chunk,
and one would be lost without a word (dask#12583). Here the chunk is the task: it reads its part
of every block that touches it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain, pairwise
from math import isfinite
from typing import Any, Protocol

import numpy as np
import zarr

from ._blocks import MAX_FEATURES, SCRATCH, RowBlock, Segment
from ._format import DATASET, Array, create_array, finish, open_array, record, write_chunk
from ._json import encode_classes
from ._place import Place, as_place

Progress = Callable[[int, int, int], object]


@dataclass(frozen=True)
class Sizes:
    """How a dataset is cut.

    A block of 2 Mi nonzeros in chunks of 256 Ki is read as fast as in chunks of 1 Mi (28 and 35
    ms), an eighth of it in half the time: fits out of core read smaller pieces than a block.
    """

    chunk_entries: int = 1 << 18  # nonzeros: 1 MB of data and 1 MB of indices in float32
    block_entries: int = 2 << 20  # nonzeros of a row block that the user did not size
    block_rows: int = 1 << 20  # rows of it at most, should they be nearly empty
    chunk_rows: int = 1 << 18  # rows of y, sample_weight and indptr
    dense_bytes: int = 8 << 20  # a chunk, and a row block, of dense rows


SIZES = Sizes()


@dataclass(frozen=True)
class ChunkTask:
    """Write one chunk from parts (segment, lo, hi) of the segments that touch it."""

    path: str
    name: str
    index: int
    parts: tuple[tuple[Segment, int, int], ...]
    cut_entries: int = 0  # > 0 for indptr: tell where row blocks of that many nonzeros begin

    @property
    def in_memory(self) -> bool:
        return all(segment.values is not None for segment, _, _ in self.parts)


@dataclass(frozen=True)
class Written:
    """A chunk's entry for the marker; for indptr also where row blocks begin."""

    name: str
    index: int
    bytes: int
    crc32: int
    size: int  # number of values
    cuts: tuple[int, ...] = ()
    ends: tuple[int, int] = (0, 0)  # number of the block that the first and last row belong to


class Run(Protocol):
    """How tasks are run: in this thread, or by Dask."""

    def __call__(self, tasks: Sequence[ChunkTask]) -> Iterator[Written]: ...


def run_here(tasks: Sequence[ChunkTask]) -> Iterator[Written]:
    """Run tasks one after the other."""
    return map(write_task, tasks)


def write_task(task: ChunkTask) -> Written:
    """Gather and write one chunk; running it again writes the same bytes."""
    place = as_place(task.path)
    array = open_array(place, task.name, write=True)
    length = sum(hi - lo for _, lo, hi in task.parts)
    values = np.empty((length, *array.shape[1:]), dtype=array.dtype)
    at = 0
    for segment, lo, hi in task.parts:
        values[at : at + hi - lo] = segment.read(lo, hi)
        at += hi - lo
    size, crc = write_chunk(place, task.name, array, task.index, values)
    cuts, ends = _cuts(values, task.index * array.chunks[0], task.cut_entries)
    return Written(task.name, task.index, size, crc, values.size, cuts, ends)


def _cuts(indptr: Array, first_row: int, entries: int) -> tuple[tuple[int, ...], tuple[int, int]]:
    """Rows that begin a block: the first whose nonzeros start behind a multiple of `entries`."""
    if entries == 0:
        return (), (0, 0)
    number = indptr // entries
    rows = np.flatnonzero(number[1:] != number[:-1]) + first_row + 1
    return tuple(rows.tolist()), (int(number[0]), int(number[-1]))


def chunk_tasks(
    place: Place, name: str, chunk: int, segments: Sequence[Segment], cut_entries: int = 0
) -> Iterator[ChunkTask]:
    """One task per chunk of an array that is the concatenation of `segments`."""
    offsets = np.array([0, *accumulate(segment.length for segment in segments)])
    total = int(offsets[-1])
    for index, start in enumerate(range(0, total, chunk)):
        stop = min(start + chunk, total)
        first = int(np.searchsorted(offsets, start, side="right")) - 1
        last = int(np.searchsorted(offsets, stop, side="left"))
        parts = tuple(
            (segments[s], max(start - at, 0), min(stop - at, segments[s].length))
            for s, at in zip(range(first, last), offsets[first:last].tolist(), strict=True)
            if segments[s].length
        )
        yield ChunkTask(place.path, name, index, parts, cut_entries)


@dataclass(frozen=True)
class Contents:
    """All that goes into a dataset; rows of X as blocks, columns as segments."""

    x: Sequence[RowBlock]
    y: Sequence[Segment]
    weight: Sequence[Segment] | None
    classes: Array
    n_features: int | None = None
    dtype: np.dtype[Any] | None = None
    index_shift: int = 0  # -1 for text that counts columns from one
    names: Sequence[str] | None = None  # of the features

    @property
    def n_rows(self) -> int:
        return sum(block.rows for block in self.x)

    @property
    def nnz(self) -> int:
        return sum(block.nnz for block in self.x)


@dataclass(frozen=True)
class Target:
    """The dataset to write: its shape, and how it is cut."""

    place: Place
    n: int
    d: int
    dtype: np.dtype[Any]
    sparse: bool
    block_rows: int | None  # None: blocks of about SIZES.block_entries nonzeros
    x_chunk: int  # nonzeros, or dense rows
    id: str

    @property
    def stamp(self) -> dict[str, str]:
        """On every array, so that a reader notices when the dataset was replaced."""
        return {"dask_mcsvm_id": self.id}

    @property
    def cut_entries(self) -> int:
        return SIZES.block_entries if self.block_rows is None else 0

    @property
    def column_chunk(self) -> int:
        return min(SIZES.chunk_rows, self.n)


def assemble(
    place: Place,
    contents: Contents,
    *,
    block_rows: int | None,
    run: Run = run_here,
    progress: Progress | None = None,
) -> None:
    """Write the arrays of the dataset begun at `place`, and complete its marker."""
    target = plan(place, contents, block_rows)
    classes = encode_classes(contents.classes)  # now: what can't be stored must not cost a write
    tasks = [
        *(_csr_tasks if target.sparse else _dense_tasks)(target, contents.x, contents.index_shift),
        *_column_tasks(target, "y", np.dtype(np.int32), contents.y),
    ]
    if contents.weight is not None:
        tasks += _column_tasks(target, "sample_weight", np.dtype(np.float64), contents.weight)
    written = _run_all(target, tasks, run, progress)
    place.child(SCRATCH).remove()
    norm = float(np.max([block.max_norm for block in contents.x]))
    body = {
        "id": target.id,
        "n": target.n,
        "d": target.d,
        "nnz": contents.nnz,
        "dtype": target.dtype.str,
        "sparse": target.sparse,
        "weighted": contents.weight is not None,
        "max_row_norm": norm if isfinite(norm) else None,  # JSON has no nan
        "classes": classes,
        "row_offsets": _row_offsets(target, written.get("X/indptr", [])),
    }
    if contents.names is not None:
        body["feature_names"] = list(contents.names)
    chunks = {
        name: record(2 if name == "X" else 1, ((w.bytes, w.crc32) for w in rows))
        for name, rows in written.items()
    }
    finish(place, DATASET, body, chunks)


def plan(place: Place, contents: Contents, block_rows: int | None) -> Target:
    """Check that the blocks make one dataset, and decide how it is cut."""
    blocks, n = contents.x, contents.n_rows
    if n == 0:
        raise ValueError("X has no rows; a dataset needs at least one.")
    if block_rows is not None and block_rows < 1:
        raise ValueError(f"block_rows is {block_rows}; it must be at least 1, or None.")
    full = [block for block in blocks if block.rows]
    if len({block.is_sparse for block in full}) > 1:
        raise ValueError(
            "X has dense and sparse blocks; they must be of one kind. "
            "Use X.map_blocks(scipy.sparse.csr_matrix)."
        )
    d = contents.n_features or full[0].features
    if contents.n_features is None and {block.features for block in full} != {d}:
        widths = sorted({block.features for block in full})
        raise ValueError(f"blocks of X have {widths} columns; all need the same number.")
    if not 0 < d <= MAX_FEATURES:
        raise ValueError(f"X has {d} columns; a dataset holds 1 to {MAX_FEATURES}.")
    for name, column in (("y", contents.y), ("sample_weight", contents.weight)):
        rows = sum(segment.length for segment in column or ())
        if column is not None and rows != n:
            raise ValueError(f"{name} has {rows} rows, X has {n}; one per row of X is needed.")
    if contents.names is not None and len(contents.names) != d:
        raise ValueError(
            f"feature_names has {len(contents.names)} names, X has {d} columns; pass one per "
            "column."
        )
    dtype = contents.dtype or np.result_type(*{block.dtype for block in full})
    sparse = full[0].is_sparse
    if sparse:
        x_chunk = _chunk_entries(n, contents.nnz, block_rows)
    else:
        block_rows, x_chunk = _dense_cut(n, d * dtype.itemsize, block_rows)
    return Target(place, n, d, dtype, sparse, block_rows, x_chunk, uuid.uuid4().hex)


def _chunk_entries(n: int, nnz: int, block_rows: int | None) -> int:
    """At least two chunks to a block: a block reads up to one chunk more than it holds."""
    wanted = SIZES.chunk_entries
    if block_rows is not None:
        wanted = min(wanted, max(nnz * min(block_rows, n) // n // 2, wanted // 4))
    return max(1, min(wanted, nnz))


def _dense_cut(n: int, row_bytes: int, block_rows: int | None) -> tuple[int, int]:
    """Rows of a block, and of a chunk: a block is one chunk, or if large a number of them."""
    fit = max(1, SIZES.dense_bytes // row_bytes)
    if block_rows is None:
        return min(fit, n), min(fit, n)
    block_rows = min(block_rows, n)
    pieces = -(-block_rows // (2 * fit))
    even = [p for p in range(pieces, 2 * pieces + 1) if block_rows % p == 0]
    return block_rows, -(-block_rows // (even or [pieces])[0])


def _csr_tasks(target: Target, blocks: Sequence[RowBlock], shift: int) -> Iterator[ChunkTask]:
    """Tasks for X in AnnData's layout; creates its arrays."""
    place, x = target.place, target.place.child("X")
    layout = {"encoding-type": "csr_matrix", "encoding-version": "0.1.0"}
    shape = [target.n, target.d]
    zarr.create_group(store=x.store(), zarr_format=3, attributes={**layout, "shape": shape})
    nnz = [block.nnz for block in blocks]
    total = sum(nnz)
    for name, dtype in (("data", target.dtype), ("indices", np.dtype(np.int32))):
        create_array(place, f"X/{name}", (total,), dtype, target.x_chunk, target.stamp)
        parts = [block.arrays[name] for block in blocks if block.nnz]
        if name == "indices" and shift:
            parts = [replace(part, shift=shift) for part in parts]
        yield from chunk_tasks(place, f"X/{name}", target.x_chunk, parts)
    rows = target.n + 1
    create_array(place, "X/indptr", (rows,), np.int64, SIZES.chunk_rows, target.stamp)
    parts = [
        replace(block.arrays["indptr"], shift=before)
        for block, before in zip(blocks, accumulate(nnz, initial=0), strict=False)
        if block.rows
    ]
    parts.append(Segment(1, np.array([total])))
    chunk = min(SIZES.chunk_rows, rows)
    yield from chunk_tasks(place, "X/indptr", chunk, parts, target.cut_entries)


def _dense_tasks(target: Target, blocks: Sequence[RowBlock], shift: int) -> Iterator[ChunkTask]:
    """Tasks for X as one array of whole rows; creates it."""
    layout = {"encoding-type": "array", "encoding-version": "0.2.0", **target.stamp}
    create_array(target.place, "X", (target.n, target.d), target.dtype, target.x_chunk, layout)
    parts = [block.arrays["rows"] for block in blocks if block.rows]
    return chunk_tasks(target.place, "X", target.x_chunk, parts)


def _column_tasks(
    target: Target, name: str, dtype: np.dtype[Any], segments: Sequence[Segment]
) -> Iterator[ChunkTask]:
    layout = {"encoding-type": "array", "encoding-version": "0.2.0", **target.stamp}
    create_array(target.place, name, (target.n,), dtype, target.column_chunk, layout)
    return chunk_tasks(target.place, name, target.column_chunk, segments)


def _run_all(
    target: Target, tasks: Sequence[ChunkTask], run: Run, progress: Progress | None
) -> dict[str, list[Written]]:
    """Run the tasks; what they wrote by array, in order. Values in memory never travel."""
    width = {"X": target.d}
    total = sum(width.get(t.name, 1) * (hi - lo) for t in tasks for _, lo, hi in t.parts)
    done = 0
    written: dict[str, list[Written]] = {}
    for chunk in chain(
        run([task for task in tasks if not task.in_memory]),
        run_here([task for task in tasks if task.in_memory]),
    ):
        written.setdefault(chunk.name, []).append(chunk)
        done += chunk.size
        if progress is not None:
            progress(target.n * done // total, done, total)
    return {name: sorted(rows, key=lambda w: w.index) for name, rows in sorted(written.items())}


def _row_offsets(target: Target, indptr: Sequence[Written]) -> list[int]:
    """Where row blocks begin, and n: every `block_rows`, or by nonzeros as the tasks found."""
    n = target.n
    if target.block_rows is not None:
        return [*range(0, n, target.block_rows), n]
    starts = {0}
    for before, chunk in pairwise([None, *indptr]):
        assert chunk is not None
        starts.update(chunk.cuts)
        if before is not None and before.ends[1] != chunk.ends[0]:
            starts.add(chunk.index * SIZES.chunk_rows)
    bounds = [*sorted(start for start in starts if start < n), n]
    # Nearly empty rows: nonzeros alone would let a block have any number of rows.
    return [
        *(row for a, b in pairwise(bounds) for row in range(a, b, SIZES.block_rows)),
        n,
    ]
