"""Margins between classes in kernels: scores moved so that margins are 1 ([MARGIN-SHIFT]).

What chooses the code is the type of the margins; where all are 1 there is none. The excess of the
own class is 0: its score stays.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from dask_mcsvm.formulations.margins import EQUAL, Margins, MarginTable, MarginTree

from .jit import bare_by_type, kernel
from .rows import read_only


def for_kernels(margins: Margins) -> Margins:
    """The same margins in arrays that kernels have one signature for."""
    parts: Any = margins
    return margins if margins == EQUAL else type(parts)(*map(read_only, parts))


def excess_of(margins, y, m):
    """Δ(y, m) - 1 of two classes."""


def add_margins(margins, y, s):
    """Move the scores of all classes: s_m += Δ(y, m) - 1."""


def add_listed_margins(margins, y, classes, q, sc):
    """Move the scores of the first q listed classes."""


def dual_excess(margins, y, classes, a, q):
    """Σ (Δ(y, m) - 1) |a_m| over a list: what the linear part of the dual has more."""


def _are_one(margins):
    return isinstance(margins, types.BaseTuple) and len(margins) == 0


@bare_by_type(excess_of)
def _excess_of(margins, y, m):
    if _are_one(margins):
        return lambda margins, y, m: 0.0

    if margins.instance_class is MarginTable:
        return lambda margins, y, m: margins.excess[y, m]

    if margins.instance_class is MarginTree:

        def tree(margins, y, m):
            node = margins.node[y]
            common, place = node, margins.place[m]
            while not margins.first[common] <= place < margins.last[common]:
                common = margins.parent[common]
            rival = margins.rival[m]
            length = margins.depth[node] + margins.depth[rival] - 2 * margins.depth[common]
            return margins.excess[length]

        return tree

    def pairs(margins, y, m):
        low, high = margins.start[y], margins.start[y + 1]
        while low < high:
            middle = (low + high) // 2
            if margins.rivals[middle] < m:
                low = middle + 1
            else:
                high = middle
        found = low < margins.start[y + 1] and margins.rivals[low] == m
        return margins.excess[low] if found else 0.0

    return pairs


@bare_by_type(add_margins)
def _add_margins(margins, y, s):
    if _are_one(margins):
        return lambda margins, y, s: None

    if margins.instance_class is MarginTable:

        def table(margins, y, s):
            for m in range(s.size):
                s[m] += s.dtype.type(margins.excess[y, m])

        return table

    if margins.instance_class is MarginTree:

        def tree(margins, y, s):
            common = margins.node[y]
            start = margins.depth[common]
            first = last = margins.first[common]
            while common >= 0:  # what is below it, but was not below the node before
                up = start - 2 * margins.depth[common]
                for place in range(margins.first[common], first):
                    m = margins.order[place]
                    length = up + margins.depth[margins.rival[m]]
                    s[m] += s.dtype.type(margins.excess[length])
                for place in range(last, margins.last[common]):
                    m = margins.order[place]
                    length = up + margins.depth[margins.rival[m]]
                    s[m] += s.dtype.type(margins.excess[length])
                first, last = margins.first[common], margins.last[common]
                common = margins.parent[common]

        return tree

    def pairs(margins, y, s):
        for p in range(margins.start[y], margins.start[y + 1]):
            s[margins.rivals[p]] += s.dtype.type(margins.excess[p])

    return pairs


@bare_by_type(add_listed_margins)
def _add_listed_margins(margins, y, classes, q, sc):
    if _are_one(margins):
        return lambda margins, y, classes, q, sc: None

    def listed(margins, y, classes, q, sc):
        for c in range(q):
            sc[c] += sc.dtype.type(excess_of(margins, y, classes[c]))

    return listed


@bare_by_type(dual_excess)
def _dual_excess(margins, y, classes, a, q):
    if _are_one(margins):
        return lambda margins, y, classes, a, q: 0.0

    def listed(margins, y, classes, a, q):
        total = 0.0
        for c in range(q):
            if a[c] != 0:
                total += excess_of(margins, y, classes[c]) * abs(np.float64(a[c]))
        return total

    return listed


@kernel
def move_scores(margins, y, S):
    """Move the scores of some rows (m, k)."""
    for i in range(y.size):
        add_margins(margins, y[i], S[i])


@kernel
def moved_by(margins, y, B):
    """Σ_i <b_i, t_i - s_i> of coefficients B (m, k): what moved scores add to Σ <b_i, s_i>."""
    t = np.empty(B.shape[1])
    total = 0.0
    for i in range(y.size):
        t[:] = 0.0
        add_margins(margins, y[i], t)
        for m in range(t.size):
            total += t[m] * B[i, m]
    return total
