"""Which rows an epoch visits, how often, and in which of its steps."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ._jit import kernel


class Dealt(NamedTuple):
    """The visits of one step of an epoch.

    What a row knows before the step is where an earlier step left it: ``source`` 0 is what the
    epoch began with, at the row's own place, and s + 1 what step s returned.
    """

    rows: np.ndarray  # (u,) int32, each once, in the order of their first visits
    order: np.ndarray  # (v,) int64 places in ``rows``
    source: np.ndarray  # (u,) int16
    place: np.ndarray  # (u,) int32, where the source has the row


def draw_visits(
    rows: np.ndarray, preference: np.ndarray, rng: np.random.Generator, parts: int = 1
) -> np.ndarray:
    """About as many visits as there are ``rows``, each as often as it deserves, shuffled.

    Of one of several equal ``parts`` of an epoch that many times fewer.
    """
    if rows.size == 0:
        return rows
    p = preference[rows]
    due = np.cumsum(p / (p.mean() * parts)) + rng.random()
    visits: np.ndarray = np.diff(np.floor(due).astype(np.int64), prepend=0)
    return rng.permutation(np.repeat(rows, visits))


def deal_visits(order: np.ndarray, n: int, steps: int) -> tuple[Dealt, ...]:
    """Cut the visits of an epoch, ``order`` of n rows, into steps of like length."""
    cuts = np.linspace(0, order.size, steps + 1).astype(np.int64)
    rows, place = np.empty(order.size, np.int32), np.empty(order.size, np.int32)
    source, local = np.empty(order.size, np.int16), np.empty(order.size, np.int64)
    counts = number_rows(
        order, cuts, np.zeros(n, np.int16), np.arange(n, dtype=np.int32), rows, local, source, place
    )
    return tuple(
        Dealt(rows[a : a + u], local[a:b], source[a : a + u], place[a : a + u])
        for a, b, u in zip(cuts[:-1].tolist(), cuts[1:].tolist(), counts.tolist(), strict=True)
    )


@kernel
def number_rows(order, cuts, last, at, rows, local, source, place):
    """Number the rows of every step as they come; returns how many each step has.

    ``last`` and ``at`` (n,) are where every row was last: the source and the place in it.
    """
    counts = np.zeros(cuts.size - 1, np.int64)
    for s in range(counts.size):
        u = cuts[s]
        for t in range(cuts[s], cuts[s + 1]):
            i = order[t]
            if last[i] != s + 1:
                rows[u], source[u], place[u] = i, last[i], at[i]
                last[i], at[i] = s + 1, u - cuts[s]
                u += 1
            local[t] = at[i]
        counts[s] = u - cuts[s]
    return counts
