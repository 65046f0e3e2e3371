"""Costs of mistakes: the margin Delta(y, m) that a loss asks for between class y and a rival m.

A row of class y is to score its own class higher than m by Delta(y, m). Where all margins are 1
they are `EQUAL`, an empty tuple. Otherwise they are a named tuple of arrays, so that kernels take
them as they are:

`MarginTable`  all k x k of them
`MarginPairs`  1, but for the pairs listed
`MarginTree`   length of the path between two classes over the longest one; no k x k array

They hold the excess, Delta - 1 for rivals and 0 for the own class: what scores move by
[MARGIN-SHIFT]. Rows are classes of examples, columns are rivals; `cut` takes some of both.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

FloatArray: TypeAlias = npt.NDArray[np.float64]
IntArray: TypeAlias = npt.NDArray[np.int32]

#: Margins looked at together where all k x k are gone through.
BLOCK_VALUES = 2**22


class MarginTable(NamedTuple):
    """All margins."""

    excess: FloatArray  # (k, k)


class MarginPairs(NamedTuple):
    """Margins of 1, but for some: those of class y are at start[y]:start[y + 1]."""

    start: npt.NDArray[np.int64]  # (k + 1,)
    rivals: IntArray  # (pairs,) ascending for each y
    excess: FloatArray  # (pairs,)


class MarginTree(NamedTuple):
    """Margins by paths in a tree with numbered nodes; every class is one of them.

    Rivals below a node stand side by side in ``order``, at first[node]:last[node].
    """

    parent: IntArray  # (nodes,) -1 for the root
    depth: IntArray  # (nodes,)
    first: IntArray  # (nodes,)
    last: IntArray  # (nodes,)
    node: IntArray  # (k,) of each class of examples
    rival: IntArray  # (k,) node of each rival
    order: IntArray  # (k,) rivals
    place: IntArray  # (k,) of each rival in ``order``
    excess: FloatArray  # (longest + 1,) of a path by its length


Margins: TypeAlias = tuple[()] | MarginTable | MarginPairs | MarginTree
#: All margins are 1.
EQUAL: Margins = ()
KINDS: dict[str, Any] = {"table": MarginTable, "pairs": MarginPairs, "tree": MarginTree}


def margin_rows(margins: Margins, y: npt.ArrayLike, n_classes: int) -> FloatArray:
    """Delta(y_i, m), shape (n, k); 0 where m = y_i. Not of margins that were cut."""
    labels = np.asarray(y, dtype=np.intp)
    if isinstance(margins, MarginTable):
        rows = 1.0 + margins.excess[labels]
    elif isinstance(margins, MarginTree):
        rows = 1.0 + np.array([_paths(margins, label) for label in labels]).reshape(-1, n_classes)
    else:
        rows = np.ones((labels.size, n_classes))
    if isinstance(margins, MarginPairs):
        for row, label in zip(rows, labels, strict=True):
            pairs = slice(*margins.start[label : label + 2])
            row[margins.rivals[pairs]] += margins.excess[pairs]
    rows[np.arange(labels.size), labels] = 0.0
    return rows


def dearest_rival(margins: Margins, y: int, n_classes: int) -> int:
    """The class with the largest margin from y, the first of those."""
    if margins == EQUAL:
        return int(y == 0)
    (row,) = margin_rows(margins, [y], n_classes)
    row[y] = -1.0
    return int(np.argmax(row))


def _paths(tree: MarginTree, label: int) -> FloatArray:
    """The excess for one class: up to a common node, and down from there."""
    node = chain = int(tree.node[label])
    above = [node]
    while (chain := int(tree.parent[chain])) >= 0:
        above.append(chain)
    lengths = np.empty(tree.rival.size, np.int64)
    for common in reversed(above):  # from the root: what lies below nearer nodes is written last
        below = tree.order[tree.first[common] : tree.last[common]]
        lengths[below] = tree.depth[tree.rival[below]] + tree.depth[node] - 2 * tree.depth[common]
    return tree.excess[lengths]


def make_table(values: npt.ArrayLike) -> MarginTable:
    """The margins at [y, m] of an array (k, k) with a diagonal of 0."""
    excess = np.array(values, np.float64) - 1.0
    np.fill_diagonal(excess, 0.0)
    return MarginTable(excess)


def make_tree(parent: npt.ArrayLike, node: npt.ArrayLike) -> MarginTree:
    """The margins of a tree; the longest path between two of the classes is 1.

    Parameters
    ----------
    parent : array-like of shape (nodes,)
        Number of each node's parent, -1 for the root.
    node : array-like of shape (k,)
        Number of the node that each class is; k at least 2.
    """
    parents, nodes = np.asarray(parent, np.int32), np.asarray(node, np.int32)
    visited, depth = _from_root(parents)
    longest = _longest_path(parents, visited, depth, nodes)
    excess = np.arange(longest + 1) / longest - 1.0
    excess[0] = 0.0
    first, last, order, place = _intervals(parents, visited, nodes)
    return MarginTree(parents, depth, first, last, nodes, nodes, order, place, excess)


def _from_root(parent: IntArray) -> tuple[npt.NDArray[np.int64], IntArray]:
    """Nodes in the order of a walk that ends one subtree before it begins the next; depths."""
    children: list[list[int]] = [[] for _ in range(parent.size)]
    depth = np.zeros(parent.size, np.int32)
    walk, visited = list[int](), np.empty(parent.size, np.int64)
    for node, above in enumerate(parent.tolist()):
        (walk if above < 0 else children[above]).append(node)
    for at in range(parent.size):
        node = walk.pop()
        visited[at] = node
        if parent[node] >= 0:
            depth[node] = depth[parent[node]] + 1
        walk.extend(reversed(children[node]))
    return visited, depth


def _longest_path(
    parent: IntArray, visited: npt.NDArray[np.int64], depth: IntArray, nodes: IntArray
) -> int:
    """Edges of the longest path between two classes."""
    nothing = np.iinfo(np.int32).min
    deepest, second = np.full((2, parent.size), nothing, np.int64)
    deepest[nodes] = depth[nodes]
    longest = 0
    for node in visited[::-1]:  # children before parents
        longest = max(longest, int(deepest[node] + second[node] - 2 * depth[node]))
        above = parent[node]
        if above >= 0:
            second[above] = max(second[above], min(deepest[above], deepest[node]))
            deepest[above] = max(deepest[above], deepest[node])
    return longest


def _intervals(
    parent: IntArray,
    visited: npt.NDArray[np.int64],
    rivals: IntArray,
) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Where the rivals below each node stand, and in which order they do."""
    place_of_node = np.empty(parent.size, np.int64)
    place_of_node[visited] = np.arange(parent.size)
    order = np.argsort(place_of_node[rivals]).astype(np.int32)
    place = np.empty_like(order)
    place[order] = np.arange(order.size)
    count = np.zeros(parent.size, np.int32)
    count[rivals] = 1
    before = np.cumsum(count[visited]) - count[visited]
    first = before[place_of_node].astype(np.int32)
    for node in visited[::-1]:
        if parent[node] >= 0:
            count[parent[node]] += count[node]
    return first, first + count, order, place


def cut(margins: Margins, rows: npt.ArrayLike | None, columns: npt.ArrayLike) -> Margins:
    """Margins between some classes of examples and some rivals, both renumbered from 0.

    Parameters
    ----------
    rows, columns : array-like of int
        Classes in the order of their new numbers, each once; rows may be None, all as they are.
    """
    rivals = np.asarray(columns, np.intp)
    if isinstance(margins, MarginTable):
        some = margins.excess if rows is None else margins.excess[np.asarray(rows)]
        return MarginTable(np.ascontiguousarray(some[:, rivals]))
    if isinstance(margins, MarginPairs):
        mine = np.arange(margins.start.size - 1) if rows is None else np.asarray(rows, np.intp)
        return _cut_pairs(margins, mine, rivals)
    if isinstance(margins, MarginTree):
        visited, _ = _from_root(margins.parent)
        kept = margins.rival[rivals]
        first, last, order, place = _intervals(margins.parent, visited, kept)
        node = margins.node if rows is None else margins.node[np.asarray(rows)]
        return margins._replace(
            first=first, last=last, node=node, rival=kept, order=order, place=place
        )
    return margins


def _cut_pairs(
    margins: MarginPairs, rows: npt.NDArray[np.intp], columns: npt.NDArray[np.intp]
) -> MarginPairs:
    number = {int(m): new for new, m in enumerate(columns)}
    start, rivals, excess = [0], list[int](), list[float]()
    for y in rows:
        pairs = slice(*margins.start[y : y + 2])
        kept = sorted(
            (number[m], more)
            for m, more in zip(
                margins.rivals[pairs].tolist(), margins.excess[pairs].tolist(), strict=True
            )
            if m in number
        )
        rivals += [m for m, _ in kept]
        excess += [more for _, more in kept]
        start.append(len(rivals))
    return MarginPairs(
        np.array(start, np.int64), np.array(rivals, np.int32), np.array(excess, np.float64)
    )


def make_pairs(pairs: Mapping[tuple[int, int], float], n_classes: int) -> MarginPairs:
    """Margins of 1, but for {(y, m): Delta(y, m)} with classes by number."""
    ordered = sorted(pairs)
    counts = np.bincount([y for y, _ in ordered], minlength=n_classes)
    return MarginPairs(
        np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        np.array([m for _, m in ordered], np.int32),
        np.array([pairs[pair] for pair in ordered], np.float64) - 1.0,
    )


def toy_margins(kind: type, n_classes: int) -> Margins:
    """Margins of 1 in one of the kinds, for kernels to be compiled with."""
    if kind is MarginTable:
        return make_table(1.0 - np.eye(n_classes))
    if kind is MarginPairs:
        return make_pairs({(0, 1): 1.0}, n_classes)
    if kind is MarginTree:
        return make_tree([-1, *[0] * n_classes], np.arange(n_classes) + 1)
    return EQUAL


def fingerprint(margins: Margins) -> str:
    """The same for the same margins; empty where all are 1."""
    digest = hashlib.sha256()
    for name, array in to_arrays(margins).items():
        digest.update(name.encode() + array.tobytes())
    return digest.hexdigest()[:16] if margins != EQUAL else ""


def to_arrays(margins: Margins) -> dict[str, npt.NDArray[Any]]:
    """All arrays by name, which says the kind too: for files."""
    kind = next((name for name, made in KINDS.items() if isinstance(margins, made)), None)
    parts: dict[str, npt.NDArray[Any]] = {} if margins == () else margins._asdict()  # type: ignore[union-attr]
    return {f"{kind}_{name}": array for name, array in parts.items()}


def from_arrays(arrays: Mapping[str, npt.NDArray[Any]]) -> Margins:
    """The margins that `to_arrays` was given."""
    for kind, made in KINDS.items():
        if f"{kind}_excess" in arrays:
            margins: Margins = made(*(arrays[f"{kind}_{name}"] for name in made._fields))
            return margins
    return EQUAL
