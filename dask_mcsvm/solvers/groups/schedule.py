"""Who meets whom: classes dealt to groups of like work, groups to rounds of disjoint pairs.

Combinatorics only: no Dask, no arrays, nothing random. The same counts give the same schedule.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from itertools import pairwise
from typing import TypeAlias

#: The classes of each group, ascending.
Groups: TypeAlias = tuple[tuple[int, ...], ...]
#: Visits that may run side by side: pairs a < b of groups.
Round: TypeAlias = tuple[tuple[int, int], ...]


def ww_costs(rows: Sequence[int], nonzeros: Sequence[int]) -> tuple[int, ...]:
    """Work of each class in an epoch of Weston-Watkins rounds, in multiply-adds.

    A class costs twice: its own rows meet all k classes, and all rows meet the class itself. A row
    counts its nonzeros and one for the constant feature.

    Parameters
    ----------
    rows, nonzeros : sequence of int, length k
        Rows of each class and the nonzeros in them.

    Examples
    --------
    >>> ww_costs([3, 1, 0], [7, 4, 0])
    (45, 30, 15)
    """
    own = [n + nnz for n, nnz in zip(rows, nonzeros, strict=True)]
    return tuple(len(own) * size + sum(own) for size in own)


def default_groups(k: int, d: int, memory_bytes: int) -> int:
    """How many groups k classes are dealt to, so that a visit of two of them fits its memory.

    Four, for two visits side by side, and twice as many until it fits. A visit holds the columns of
    two groups three times, in float64 when it makes a certificate.

    Parameters
    ----------
    k, d : int
        Classes and features.
    memory_bytes : int
        What the columns of a visit may take.

    Examples
    --------
    >>> default_groups(20, 1_000, 2**30), default_groups(10_000, 500_000, 2**30)
    (4, 256)
    >>> default_groups(3, 10, 2**30)
    1
    """
    groups = 4
    while groups < k and 6 * -(-k // groups) * (d + 1) * 8 > memory_bytes:
        groups *= 2
    return max(1, min(groups, k // 2))


def balanced_groups(costs: Sequence[int], n_groups: int) -> Groups:
    """Deal classes to groups of like total cost: the dearest first, each to the cheapest group.

    The dearest group costs at most one class more than the cheapest. No group is empty: there are
    as many groups as classes if more are asked for.

    Parameters
    ----------
    costs : sequence of int, length k
        Work of each class, at least 0 (see `ww_costs`; equal costs balance the number of classes).
    n_groups : int
        At least 1.

    Returns
    -------
    tuple of tuples of int
        Every class in one group. Groups are numbered by their first class.

    Examples
    --------
    >>> balanced_groups([9, 1, 2, 3, 3], 2)
    ((0,), (1, 2, 3, 4))
    """
    if n_groups < 1:
        raise ValueError(f"n_groups={n_groups}; there must be 1 group or more.")
    n_groups = min(n_groups, len(costs))
    groups: list[list[int]] = [[] for _ in range(n_groups)]
    # Between groups of equal cost the one with fewer classes: costs of 0 do not pile up.
    heap = [(0, 0, g) for g in range(n_groups)]
    for c in sorted(range(len(costs)), key=lambda c: (-costs[c], c)):
        cost, size, g = heapq.heappop(heap)
        groups[g].append(c)
        heapq.heappush(heap, (cost + costs[c], size + 1, g))
    return tuple(sorted(tuple(sorted(group)) for group in groups))


def even_groups(k: int, n_groups: int) -> Groups:
    """Classes that follow each other in groups of like size, one class more or less.

    Examples
    --------
    >>> even_groups(7, 3)
    ((0, 1, 2), (3, 4), (5, 6))
    """
    least, more = divmod(k, n_groups)
    ends = [(g + 1) * least + min(g + 1, more) for g in range(n_groups)]
    return tuple(tuple(range(*pair)) for pair in pairwise([0, *ends]))


def circle_rounds(n_groups: int) -> tuple[Round, ...]:
    """Rounds of disjoint pairs in which every two groups meet once (Alber et al., Algorithm 5).

    The circle method: all sit around a table, face to face, and all but the first move on by one
    seat after each round. With an odd number one seat is empty, and whoever faces it rests.

    Examples
    --------
    >>> circle_rounds(4)
    (((0, 3), (1, 2)), ((0, 2), (1, 3)), ((0, 1), (2, 3)))
    >>> circle_rounds(3)
    (((1, 2),), ((0, 2),), ((0, 1),))
    >>> circle_rounds(1)
    ()
    """
    seats = n_groups + n_groups % 2  # the last seat of an odd number stays empty
    ring = list(range(seats))
    rounds = []
    for _ in range(seats - 1):
        faced = zip(ring[: seats // 2], reversed(ring[seats // 2 :]), strict=True)
        pairs = ((min(a, b), max(a, b)) for a, b in faced)
        rounds.append(tuple(sorted(pair for pair in pairs if pair[1] < n_groups)))
        ring[1:] = [ring[-1], *ring[1:-1]]
    return tuple(round_ for round_ in rounds if round_)
