"""Rows in chunks to rows per class group: the shuffle before the rounds of Weston-Watkins.

One task splits a chunk, one more per group picks its part, and the parts of a group are put
together in the order of the chunks. Nothing passes through the client, and all of it can be
computed again from the source: a lost block costs the chunks it was made of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from dask.task_spec import DataNode, List, Task, TaskRef

from dask_mcsvm.data.rows import Graph, Key, Rows
from dask_mcsvm.solvers.groups.schedule import Groups
from dask_mcsvm.solvers.row_block import RowBlock
from dask_mcsvm.solvers.standardized import join_rows


@dataclass(frozen=True)
class Regrouped:
    """A graph, and in it the keys of the `RowBlock` s: ``blocks[g]`` are those of group g.

    The graph refers to the keys of the chunks and does not hold them.
    """

    graph: Graph
    blocks: tuple[tuple[Key, ...], ...]


def group_of_class(groups: Groups) -> npt.NDArray[np.int32]:
    """Number of the group of every class."""
    found = np.empty(sum(len(group) for group in groups), np.int32)
    for g, group in enumerate(groups):
        found[list(group)] = g
    return found


def regroup(
    rows: Rows, groups: Groups, *, n_blocks: int | Sequence[int] = 1, run: str
) -> Regrouped:
    """Build the tasks that deal the rows of all chunks to class groups; computes nothing.

    Parameters
    ----------
    rows : Rows
        The chunks.
    groups : tuple of tuples of int
        Classes of each group (see `schedule.balanced_groups`).
    n_blocks : int or sequence of int
        In how many blocks the rows of a group (of each group) are kept, at most one per chunk.
    run : str
        Unique id of this fit, part of every task key.

    Returns
    -------
    Regrouped
        Its keys begin with ``group-of-class``, ``split-rows``, ``pick-rows`` and ``group-rows``.
    """
    chunks, n_groups = len(rows.keys), len(groups)
    if sorted(m for group in groups for m in group) != list(range(rows.n_classes)):
        raise ValueError(f"groups must hold each of the {rows.n_classes} classes once.")
    where = ("group-of-class", run)
    graph: Graph = {where: DataNode(where, group_of_class(groups))}
    for c, chunk in enumerate(rows.keys):
        split = ("split-rows", run, c)
        graph[split] = Task(split, split_rows, TaskRef(chunk), TaskRef(where))
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


def join_chunks(rows: Rows, n_blocks: int, run: str) -> Rows:
    """The same rows in fewer blocks, each of neighbouring chunks; computes nothing.

    The tasks that join are named ``join-rows``.
    """
    if n_blocks >= len(rows.keys):
        return rows
    graph, keys, sizes = dict(rows.graph), [], []
    for b, part in enumerate(rows.parts(n_blocks)):
        key = ("join-rows", run, b)
        graph[key] = Task(key, join_blocks, List(*(TaskRef(rows.keys[c]) for c in part)))
        keys.append(key)
        sizes.append(sum(rows.sizes[c] for c in part))
    return replace(rows, graph=graph, keys=tuple(keys), sizes=tuple(sizes))


# -- tasks -----------------------------------------------------------------------------------------


def split_rows(block: RowBlock, where: npt.NDArray[np.int32]) -> tuple[RowBlock, ...]:
    """The rows of a chunk by the groups of their classes."""
    group = where[block.y]
    order = np.argsort(group, kind="stable")
    cuts = np.searchsorted(group[order], np.arange(1, where.max() + 1))
    # Rows taken by number are copies: a part must not keep the whole chunk in memory.
    return tuple(block.some(rows) for rows in np.split(order, cuts))


def pick_part(parts: tuple[RowBlock, ...], g: int) -> RowBlock:
    """The part of one group."""
    return parts[g]


def join_blocks(parts: Sequence[RowBlock]) -> RowBlock:
    """Rows from several chunks as one block."""
    return RowBlock(
        np.concatenate([part.ids for part in parts]),
        join_rows([part.X for part in parts]),
        np.concatenate([part.y for part in parts]),
        np.concatenate([part.C for part in parts]),
        np.concatenate([part.square for part in parts]),
        parts[0].margins,
    )
