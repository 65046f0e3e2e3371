"""Row chunks to rows per class group: the shuffle before the solvers that work by class groups.

One task splits a chunk, one more per group picks its part, and the parts of a group are put
together in the order of the chunks. Nothing passes through the client, and all of it can be
computed again from the source: a lost block costs the chunks it was made of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from dask.delayed import Delayed
from dask.task_spec import DataNode, List, Task, TaskRef

from dask_mcsvm.solvers._rows import as_rows, read_only, square_norms
from dask_mcsvm.solvers.sdm import Data

from .schedule import Groups

#: Name of a task: a string, or a tuple that starts with one.
Key: TypeAlias = Any
Graph: TypeAlias = dict[Key, Any]


class RowBlock(NamedTuple):
    """Rows whose classes are in one group."""

    ids: npt.NDArray[np.int64]  # (m,) numbers of the rows in the whole set, ascending
    X: Any  # (m, d) C-contiguous array, or csr_array without duplicates; float32 or float64
    y: npt.NDArray[np.int32]  # (m,) place of the row's class in its group
    C: npt.NDArray[np.float64]  # (m,)
    square: npt.NDArray[np.float64]  # (m,) ‖x_i‖² + tau²

    def data(self, tau: float) -> Data:
        """What kernels take; nothing but C is copied."""
        dtype = self.X.dtype
        return Data(
            as_rows(self.X),
            read_only(self.y),
            read_only(self.C.astype(dtype)),
            read_only(self.square),
            dtype.type(tau),
            dtype.type(1),
        )


class GroupMap(NamedTuple):
    """Where each class is."""

    group: npt.NDArray[np.int32]  # (k,)
    place: npt.NDArray[np.int32]  # (k,) among the classes of its group


@dataclass(frozen=True)
class Regrouped:
    """A graph, and in it the keys of the `RowBlock` s: ``blocks[g]`` are those of group g."""

    graph: Graph
    blocks: tuple[tuple[Key, ...], ...]


def group_map(groups: Groups) -> GroupMap:
    """The inverse of groups: group and place of every class."""
    k = sum(len(group) for group in groups)
    mapped = GroupMap(np.empty(k, np.int32), np.empty(k, np.int32))
    for g, group in enumerate(groups):
        mapped.group[list(group)] = g
        mapped.place[list(group)] = np.arange(len(group))
    return mapped


def regroup(
    X: Sequence[Delayed],
    y: Sequence[Delayed],
    C: Sequence[Delayed] | float,
    *,
    chunk_rows: Sequence[int],
    groups: Groups,
    tau: float,
    dtype: npt.DTypeLike,
    n_blocks: int | Sequence[int] = 1,
    run: str,
) -> Regrouped:
    """Build the tasks that deal the rows of all chunks to class groups; computes nothing.

    Parameters
    ----------
    X, y : sequences of Delayed, one per row chunk
        Rows, dense or any SciPy CSR, validated, and codes of the classes. Such as
        ``X.to_delayed().ravel()``.
    C : sequence of Delayed, or float
        Cost of each row of a chunk, or one for all.
    chunk_rows : sequence of int
        Rows of each chunk; they number the rows. A chunk that turns out otherwise is an error.
    groups : tuple of tuples of int
        Classes of each group (see `schedule.balanced_groups`).
    tau : float
        Value of the constant feature.
    dtype : dtype
        Of the rows to be made: float32 or float64.
    n_blocks : int or sequence of int
        In how many blocks the rows of a group (of each group) are kept, at most one per chunk.
    run : str
        Told apart by it are the tasks of fits that run at the same time.

    Returns
    -------
    Regrouped
        The graph holds the graphs of X, y and C too. Its keys begin with ``split-rows``,
        ``pick-rows`` and ``group-rows``.
    """
    chunks, n_groups = len(X), len(groups)
    if chunks == 0:
        raise ValueError("X has no row chunks; there must be 1 or more.")
    if not (len(y) == len(chunk_rows) == chunks and (isinstance(C, float) or len(C) == chunks)):
        raise ValueError("X, y, C and chunk_rows must have one entry per row chunk.")
    given = [] if isinstance(C, float) else list(C)
    costs = [TaskRef(c.key) for c in given] if given else [C] * chunks
    graph = sources([*X, *y, *given])
    where = ("group-map", run)
    graph[where] = DataNode(where, group_map(groups))
    offsets = np.concatenate([[0], np.cumsum(chunk_rows, dtype=np.int64)]).tolist()
    for c in range(chunks):
        split = ("split-rows", run, c)
        graph[split] = Task(
            split, split_rows, TaskRef(X[c].key), TaskRef(y[c].key), costs[c], TaskRef(where),
            n_groups=n_groups, first=offsets[c], stop=offsets[c + 1], tau=tau,
            dtype=np.dtype(dtype),
        )  # fmt: skip
        for g in range(n_groups):
            pick = ("pick-rows", run, c, g)
            graph[pick] = Task(pick, pick_part, TaskRef(split), g)
    wanted = [n_blocks] * n_groups if isinstance(n_blocks, int) else list(n_blocks)
    blocks = []
    for g in range(n_groups):
        keys = []
        for p, part in enumerate(np.array_split(range(chunks), min(wanted[g], chunks))):
            key = ("group-rows", run, g, p)
            picks = [TaskRef(("pick-rows", run, c, g)) for c in part.tolist()]
            graph[key] = Task(key, join_blocks, List(*picks))
            keys.append(key)
        blocks.append(tuple(keys))
    return Regrouped(graph, tuple(blocks))


def sources(delayed: Sequence[Delayed]) -> Graph:
    """The graphs of delayed objects as one dict; those of one collection share a graph."""
    graphs: dict[int, Mapping[Key, Any]] = {}
    for item in delayed:
        graph = item.__dask_graph__()
        graphs[id(graph)] = graph
    return {key: task for graph in graphs.values() for key, task in graph.items()}


# -- tasks -----------------------------------------------------------------------------------------


def split_rows(
    X: Any,
    y: Any,
    C: Any,
    where: GroupMap,
    *,
    n_groups: int,
    first: int,
    stop: int,
    tau: float,
    dtype: np.dtype[Any],
) -> tuple[RowBlock, ...]:
    """The rows first:stop of the whole set, which are this chunk, by groups."""
    codes = np.asarray(y)
    n = stop - first
    if X.shape[0] != n or codes.shape != (n,):
        raise ValueError(
            f"the chunk of rows {first}:{stop} holds {X.shape[0]} rows and {codes.size} labels; "
            "did the source change? Fit again from the start."
        )
    if n and not 0 <= codes.min() <= codes.max() < where.group.size:
        raise ValueError(
            f"the chunk of rows {first}:{stop} holds class codes {codes.min()} to {codes.max()}; "
            f"there are {where.group.size} classes, 0 to {where.group.size - 1}."
        )
    costs = np.broadcast_to(np.asarray(C, np.float64), (n,))
    group = where.group[codes]
    order = np.argsort(group, kind="stable")
    ends = np.searchsorted(group[order], np.arange(n_groups + 1))
    rows = take_rows(X, order, dtype)
    square = square_norms(as_rows(rows), n, float(tau))
    if not np.isfinite(square).all():  # kernels take it for granted
        row = first + int(order[np.flatnonzero(~np.isfinite(square))[0]])
        raise ValueError(f"row {row} of X holds NaN, infinity or a value too large for {dtype}.")
    parts = []
    for begin, end in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
        mine = order[begin:end]
        # Copies: a part that travels or stays must not keep the whole chunk in memory.
        parts.append(
            RowBlock(
                first + mine.astype(np.int64),
                rows[begin:end] if sp.issparse(rows) else rows[begin:end].copy(),
                where.place[codes[mine]],
                costs[mine],
                square[begin:end].copy(),
            )
        )
    return tuple(parts)


def take_rows(X: Any, order: npt.NDArray[np.intp], dtype: np.dtype[Any]) -> Any:
    """X[order] as new rows in the form that `RowBlock` promises."""
    if not sp.issparse(X):
        return np.ascontiguousarray(np.asarray(X)[order], dtype)
    rows = sp.csr_array(X)[order].astype(dtype, copy=False)
    rows.sum_duplicates()  # ours: fancy indexing made it
    return rows


def pick_part(parts: tuple[RowBlock, ...], g: int) -> RowBlock:
    """The part of one group."""
    return parts[g]


def join_blocks(parts: Sequence[RowBlock]) -> RowBlock:
    """Rows of one group from several chunks as one block."""
    X = [part.X for part in parts]
    return RowBlock(
        np.concatenate([part.ids for part in parts]),
        sp.vstack(X, format="csr") if sp.issparse(X[0]) else np.concatenate(X),
        np.concatenate([part.y for part in parts]),
        np.concatenate([part.C for part in parts]),
        np.concatenate([part.square for part in parts]),
    )
