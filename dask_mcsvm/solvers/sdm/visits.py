"""Which rows an epoch visits, how often, and in which of its steps."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dask_mcsvm.solvers.kernels.jit import kernel


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
    total = float(preference[rows].sum())
    scale = rows.size / (total * parts)
    # Rounding may make the last sum a little larger than it should be.
    order = np.empty(int(rows.size / parts) + 2, np.int64)
    count = list_visits(rows, preference, scale, rng.random(), order)
    order = order[:count]
    shuffle(order, rng.integers(2**63, dtype=np.uint64))
    return order


@kernel
def list_visits(rows, preference, scale, begin, order):
    """Row after row as often as the sum of what is due passes a whole number; returns the count."""
    due, count = begin, 0
    for i in rows:
        due += preference[i] * scale
        while count + 1 <= due and count < order.size:
            order[count] = i
            count += 1
    return count


@kernel
def shuffle(order, seed):
    """A random order in place; NumPy's takes four times as long for millions of visits.

    The random numbers are those of SplitMix64, of which the upper half chooses a place.
    """
    for last in range(order.size - 1, 0, -1):
        seed += np.uint64(0x9E3779B97F4A7C15)
        z = seed
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
        place = ((z >> np.uint64(32)) * np.uint64(last + 1)) >> np.uint64(32)
        order[last], order[place] = order[place], order[last]


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
