"""Which rows an epoch visits, how often, and in which of its steps."""

from __future__ import annotations

import numpy as np

from dask_mcsvm.solvers.kernels.jit import kernel

#: So many of the last turns of a block are each half as long as the one before. With the whole
#: length a certificate finds W where the last step swung it: after eight epochs of two lanes of 20
#: steps, 450,000 rows of file names, a gap of 2.7e-2 where the estimate is 2.0e-2, and with short
#: turns 2.1e-2.
MOST_SHORT = 6


def draw_visits(
    rows: np.ndarray, preference: np.ndarray, rng: np.random.Generator, parts: int = 1
) -> np.ndarray:
    """About as many visits as there are ``rows``, each as often as it deserves, shuffled.

    Of one of several equal ``parts`` of an epoch that many times fewer.
    """
    if rows.size == 0:
        return rows
    due = preference[rows]
    total = float(due.sum())
    scale = rows.size / (total * parts)
    # Rounding may make the last sum a little larger than it should be.
    order = np.empty(int(rows.size / parts) + 2, np.int64)
    count = list_visits(rows, due, scale, rng.random(), order)
    order = order[:count]
    shuffle(order, rng.integers(2**63, dtype=np.uint64))
    return order


@kernel
def list_visits(rows, due, scale, begin, order):
    """Row after row as often as the sum of what is due passes a whole number; returns the count."""
    total, count = begin, 0
    for p in range(rows.size):
        total += due[p] * scale
        while count + 1 <= total and count < order.size:
            order[count] = rows[p]
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


def ends_of_turns(visits: int, turns: int) -> np.ndarray:
    """Where each of the turns ends that share the visits of a block; the last ones are short.

    Lanes that do not know of each other all make the same correction to the weights of features
    that they have in common, so that W swings about where it should be, as far as a step is long.
    """
    sizes = np.ones(turns)
    for short in range(min(MOST_SHORT, turns // 4)):
        sizes[turns - 1 - short :] /= 2
    return (np.cumsum(sizes) / sizes.sum() * visits).astype(np.int64)
