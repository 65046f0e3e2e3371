"""A model too large for one process: W in files of some classes each, which workers write and read.

The groups of a fit hold classes of like work, in no order; a file holds classes that follow one
another, about as many. A task holds one group, or one file.

    weights 0 ─ model-piece f, 0 ─┐
    weights 1 ─ model-piece f, 1 ─┴─ model-file f
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from dask.array import core as da
from dask.base import tokenize
from dask.delayed import Delayed, delayed
from dask.task_spec import DataNode, List, Task, TaskRef

from dask_mcsvm.data.rows import Graph, Key, sources
from dask_mcsvm.errors import ModelFormatError
from dask_mcsvm.formulations import FORMULATIONS, Tally
from dask_mcsvm.formulations.margins import Margins
from dask_mcsvm.solvers.groups.blocks import GroupWeights
from dask_mcsvm.solvers.row_block import RowBlock
from dask_mcsvm.storage import read_part, write_part

from .certify import HasWeights, primal
from .predict import Array, ModelPart, Part

#: Weights of a sparse model that are an array at a time.
PART_BYTES = 2**27


def file_widths(n_classes: int, n_files: int) -> list[int]:
    """How many classes each file holds.

    Examples
    --------
    >>> file_widths(10, 4)
    [3, 3, 2, 2]
    """
    return [part.size for part in np.array_split(np.arange(n_classes), n_files)]


def write_weights(
    groups: Sequence[tuple[npt.NDArray[np.intp], Key]], widths: Sequence[int], path: str, run: str
) -> tuple[Graph, list[Key]]:
    """Tasks that write W to files, and their keys; computes nothing.

    Parameters
    ----------
    groups : sequence of (ndarray of int, key)
        Classes and the key of an object whose ``W`` (d + 1, classes) are their columns.
    widths : sequence of int
        Classes of each file, from `file_widths`.
    path : str
        A folder that all workers see.
    run : str
        Unique id of this fit, part of every task key.
    """
    graph: Graph = {}
    keys: list[Key] = []
    stops = np.cumsum(widths)
    for f, stop in enumerate(stops.tolist()):
        start, pieces = stop - widths[f], []
        for g, (classes, held) in enumerate(groups):
            here = np.flatnonzero((classes >= start) & (classes < stop))
            if here.size:
                key: Key = ("model-piece", run, f, g)
                graph[key] = Task(key, take_columns, TaskRef(held), here, classes[here] - start)
                pieces.append(TaskRef(key))
        key = ("model-file", run, f)
        graph[key] = Task(key, write_columns, List(*pieces), path, f)
        keys.append(key)
    return graph, keys


def read_weights(
    path: str,
    widths: Sequence[int],
    n_rows: int,
    dtype: Any,
    stamps: Sequence[int | None] | None = None,
) -> da.Array:
    """W (n_rows, k) lazily, a chunk per file; all its rows are in each.

    ``stamps`` are those of the files, if others may take their place (`load_with_parts`).
    """
    stamps = [None] * len(widths) if stamps is None else stamps
    name = f"weights-{tokenize(path, tuple(widths), n_rows, dtype, tuple(stamps))}"
    graph: Graph = {}
    for f, (width, stamp) in enumerate(zip(widths, stamps, strict=True)):
        key = (name, 0, f)
        graph[key] = Task(key, read_columns, path, f, (n_rows, width), np.dtype(dtype), stamp)
    meta: Array = np.empty((0, 0), dtype)
    return da.Array(graph, name, ((n_rows,), tuple(widths)), dtype=dtype, meta=meta)


def dense_parts(coef: sp.csr_array) -> da.Array:
    """A sparse coef (k, d) as chunks of some classes, each made an array where it is needed."""
    k, d = coef.shape
    step = max(1, PART_BYTES // (d * coef.dtype.itemsize))
    make = delayed(sp.csr_array.toarray, pure=True)
    parts = (coef[first : first + step] for first in range(0, k, step))
    chunks = [da.from_delayed(make(part), part.shape, coef.dtype) for part in parts]
    whole: da.Array = da.concatenate(chunks)
    return whole


def model_parts(coef: da.Array, intercept: Array) -> tuple[ModelPart, ...]:
    """The parts of a model, one for each chunk of the classes in coef (k, d)."""
    coef = coef.rechunk({1: -1})
    stops = np.cumsum(coef.chunks[0])
    add = delayed(with_intercept, pure=True)
    blocks = zip(stops.tolist(), coef.chunks[0], coef.to_delayed()[:, 0], strict=True)
    return tuple(
        ModelPart(tuple(range(stop - width, stop)), add(block, intercept[stop - width : stop]))
        for stop, width, block in blocks
    )


def primal_in_parts(
    rows: Graph,
    blocks: Sequence[Key],
    coef: da.Array,
    bias: npt.NDArray[np.float64],
    *,
    formulation: str,
    tau: float,
    run: str,
) -> tuple[Graph, Key]:
    """Tasks that compute P(W) in float64, a part of the model at a time (`certify.primal`).

    Parameters
    ----------
    rows : dict
        The tasks of `RowBlock` s that together hold every row once.
    blocks : sequence of keys
        Of those row blocks.
    coef : dask.array.Array of shape (k, d)
    bias : ndarray of shape (k,)
        Weights of the constant feature, whose value is `tau`.
    run : str
        Unique id of this certificate, part of every task key.
    """
    coef = coef.astype(np.float64)
    if FORMULATIONS[formulation].columns_sum_to_zero:  # the nearest W that the primal allows
        coef, bias = coef - coef.mean(axis=0), bias - bias.mean()
    graph: Graph = dict(rows)
    columns: list[tuple[npt.NDArray[np.intp], Key]] = []
    for p, part in enumerate(model_parts(coef, bias)):
        key: Key = ("certify-part", run, p)
        assert isinstance(part.W, Delayed)
        graph.update(sources([part.W]))
        graph[key] = Task(key, as_block, TaskRef(part.W.key))
        columns.append((np.array(part.places, np.intp), key))
    looks, value = primal(
        blocks, columns, formulation=formulation, tau=tau, name="certify", epoch=0, run=run
    )
    return graph | looks, value


def memory_block(
    X: Any,
    y: npt.NDArray[np.int32],
    C: npt.NDArray[np.float64],
    margins: Margins,
    run: str,
) -> tuple[Graph, list[Key]]:
    """Rows (n, d) in memory, their codes and costs (n,), as the row block of a certificate."""
    key: Key = ("certify-rows", run)
    # No step is taken, so the squares of the rows are not needed.
    block = RowBlock(np.arange(y.size), X, y, C, np.zeros(y.size), margins)
    return {key: DataNode(key, block)}, [key]


def one_chunk(X: Any) -> da.Array:
    """Rows in memory, dense or CSR, for tasks that expect chunks."""
    rows: da.Array = da.from_array(X, chunks=(-1, -1), asarray=False)
    return rows


# -- tasks -----------------------------------------------------------------------------------------


def take_columns(
    group: HasWeights, columns: npt.NDArray[np.intp], places: npt.NDArray[np.intp]
) -> Part:
    """Some columns of a group, and their places in the file they go to."""
    return places, group.W[:, columns]


def write_columns(pieces: Sequence[Part], path: str, part: int) -> None:
    """Write the columns of W that one file holds."""
    first = pieces[0][1]
    W: Array = np.empty((first.shape[0], sum(places.size for places, _ in pieces)), first.dtype)
    for places, columns in pieces:
        W[:, places] = columns
    write_part(path, part, W)


def read_columns(
    path: str, part: int, shape: tuple[int, int], dtype: np.dtype[Any], stamp: int | None
) -> Any:
    """The columns of W that one file holds."""
    W = read_part(path, part, stamp)
    if W.shape != shape or W.dtype != dtype:
        raise ModelFormatError(
            f"{path}: part {part} has shape {W.shape} and dtype {W.dtype}, needed are {shape} and "
            f"{dtype}; save it again with save(..., overwrite=True)."
        )
    return W


def as_block(W: Array) -> GroupWeights:
    """Columns of W as a certificate looks at them."""
    return GroupWeights(np.ascontiguousarray(W), Tally())


def with_intercept(coef: Array, intercept: Array) -> Array:
    """W (d + 1, classes) of coef (classes, d), for a constant feature of 1."""
    W: Array = np.vstack([coef.T, np.asarray(intercept, coef.dtype)[None]])
    return W
