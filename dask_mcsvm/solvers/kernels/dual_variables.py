"""Dual variables of all examples: a dense (n, k) array, or one growing list per example.

A visit works on a compact list of classes. Position 0 is always the example's own class, the
classes that hold a nonzero variable follow. What is stored for Lee-Lin-Wahba is C_i - alpha, which
is sparse where alpha itself is at its bound almost everywhere.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types

from .jit import bare_by_type
from .simd import prefetch


class SparseAlpha(NamedTuple):
    """The paper's linked lists (Keerthi et al., section 2) as pieces of two shared pools.

    Example i owns ``classes[start[i] : start[i] + room[i]]``, of which ``size[i]`` are in use. A
    list that outgrows its room moves to ``used``, the end of the pool, with twice the room.
    """

    start: np.ndarray  # (n,) int64
    size: np.ndarray  # (n,) int32
    room: np.ndarray  # (n,) int32
    classes: np.ndarray  # (pool,) int32
    values: np.ndarray  # (pool,) float
    used: np.ndarray  # (1,) int64


def alpha_load(alpha, i, y, classes, a):
    """Write the classes and values stored for example i, its own class first; returns how many."""


def alpha_store(alpha, i, classes, a, q):
    """Replace what is stored for example i by the nonzeros among a[:q]."""


def alpha_prefetch(alpha, i):
    """Ask the cache for the variables of example i, which a coming visit will read."""


def alpha_has_room(alpha, k):
    """Whether one more example can be stored, however many of the k classes it fills."""


@bare_by_type(alpha_load)
def _alpha_load(alpha, i, y, classes, a):
    if isinstance(alpha, types.Array):

        def dense(alpha, i, y, classes, a):
            classes[0] = y
            a[0] = alpha[i, y]
            q = 1
            for m in range(alpha.shape[1]):
                if alpha[i, m] != 0 and m != y:
                    classes[q] = m
                    a[q] = alpha[i, m]
                    q += 1
            return q

        return dense

    def sparse(alpha, i, y, classes, a):
        classes[0] = y
        a[0] = 0
        q = 1
        start = alpha.start[i]
        for p in range(start, start + alpha.size[i]):
            m = alpha.classes[p]
            if m == y:
                a[0] = alpha.values[p]
            else:
                classes[q] = m
                a[q] = alpha.values[p]
                q += 1
        return q

    return sparse


@bare_by_type(alpha_store)
def _alpha_store(alpha, i, classes, a, q):
    if isinstance(alpha, types.Array):

        def dense(alpha, i, classes, a, q):
            for c in range(q):
                alpha[i, classes[c]] = a[c]

        return dense

    def sparse(alpha, i, classes, a, q):
        count = 0
        for c in range(q):
            if a[c] != 0:
                count += 1
        if count > alpha.room[i]:
            alpha.start[i] = alpha.used[0]
            alpha.room[i] = 2 * count
            alpha.used[0] += 2 * count
        p = alpha.start[i]
        for c in range(q):
            if a[c] != 0:
                alpha.classes[p] = classes[c]
                alpha.values[p] = a[c]
                p += 1
        alpha.size[i] = count

    return sparse


@bare_by_type(alpha_prefetch)
def _alpha_prefetch(alpha, i):
    if isinstance(alpha, types.Array):
        return lambda alpha, i: prefetch(alpha, i * alpha.shape[1])

    def sparse(alpha, i):
        prefetch(alpha.classes, alpha.start[i])
        prefetch(alpha.values, alpha.start[i])

    return sparse


@bare_by_type(alpha_has_room)
def _alpha_has_room(alpha, k):
    if isinstance(alpha, types.Array):
        return lambda alpha, k: True
    return lambda alpha, k: alpha.used[0] + 2 * k <= alpha.classes.size


def empty_alpha(n: int, k: int, dtype: np.dtype, *, sparse: bool) -> np.ndarray | SparseAlpha:
    """All variables zero."""
    if not sparse:
        return np.zeros((n, k), dtype)
    return SparseAlpha(
        np.zeros(n, np.int64),
        np.zeros(n, np.int32),
        np.zeros(n, np.int32),
        np.empty(4 * n + 2 * k, np.int32),
        np.empty(4 * n + 2 * k, dtype),
        np.zeros(1, np.int64),
    )


def positions(start: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Places in the pools of all that is in use, example by example."""
    size = size.astype(np.int64)
    return np.repeat(start - (np.cumsum(size) - size), size) + np.arange(size.sum())


def compact_alpha(alpha: SparseAlpha, spare: int) -> SparseAlpha:
    """The same lists without the holes that moves left, with ``spare`` free places at the end."""
    size = alpha.size.astype(np.int64)
    room = np.minimum(alpha.room, np.maximum(2, size + size // 2)).astype(np.int64)
    start = np.concatenate([[0], np.cumsum(room)])
    used = int(start[-1])
    source = positions(alpha.start, size)
    target = positions(start[:-1], size)
    classes = np.empty(used + spare, np.int32)
    values = np.empty(used + spare, alpha.values.dtype)
    classes[target] = alpha.classes[source]
    values[target] = alpha.values[source]
    return SparseAlpha(
        start[:-1].copy(),
        alpha.size.copy(),
        room.astype(np.int32),
        classes,
        values,
        np.array([used], np.int64),
    )


def deal_lists(alpha: SparseAlpha, owner: np.ndarray, owners: int) -> list[SparseAlpha]:
    """The same lists, each owner's in pools of its own; start, size and room stay common."""
    shared = alpha._replace(start=alpha.start.copy(), room=alpha.room.copy())
    mine = [np.flatnonzero(owner == t) for t in range(owners)]
    return [tidy_pool(shared, rows, 4 * rows.size + 2**12) for rows in mine]


def tidy_pool(alpha: SparseAlpha, mine: np.ndarray | slice, spare: int) -> SparseAlpha:
    """New pools that hold only the lists of the examples ``mine``, and free places.

    Where these lists begin, and their room, is changed in place.
    """
    own = alpha._replace(start=alpha.start[mine], size=alpha.size[mine], room=alpha.room[mine])
    tidy = compact_alpha(own, spare)
    alpha.start[mine], alpha.room[mine] = tidy.start, tidy.room
    return alpha._replace(classes=tidy.classes, values=tidy.values, used=tidy.used)


def join_lists(parts: list[SparseAlpha], owner: np.ndarray) -> SparseAlpha:
    """Lists that were dealt to owners, in common pools again."""
    used = [int(part.used[0]) for part in parts]
    first = np.concatenate([[0], np.cumsum(used)])
    return parts[0]._replace(
        start=parts[0].start + first[owner],
        classes=np.concatenate([p.classes[:u] for p, u in zip(parts, used, strict=True)]),
        values=np.concatenate([p.values[:u] for p, u in zip(parts, used, strict=True)]),
        used=first[-1:],
    )


def alpha_to_dense(alpha: np.ndarray | SparseAlpha, n: int, k: int) -> np.ndarray:
    """What is stored, as an (n, k) array."""
    if isinstance(alpha, np.ndarray):
        return alpha
    source = positions(alpha.start, alpha.size)
    out = np.zeros((n, k), alpha.values.dtype)
    out[np.repeat(np.arange(n), alpha.size), alpha.classes[source]] = alpha.values[source]
    return out
