"""What a lane changed of W in a step: a few percent of its entries, so only those travel.

A step changes only the rows of W of those features that its examples have. They are saved before,
and compared with what they were when the step is over.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dask_mcsvm.solvers.kernels.jit import kernel
from dask_mcsvm.solvers.kernels.simd import prefetch
from dask_mcsvm.solvers.kernels.weights import LINE, SHORT

#: Rows of W, and single entries, ahead of which memory is asked for.
AHEAD, FAR_AHEAD = 4, 32


class Change(NamedTuple):
    """A change of W (d + 1, k), the last row apart: single entries, and a shift of whole rows."""

    places: np.ndarray  # (c,) ascending, row · k + class; int32 where that is enough
    values: np.ndarray  # (c,) of W's type
    shift: np.ndarray  # (d + 1,) added to all classes of a row (LLW); empty for the others

    @property
    def nbytes(self) -> int:
        return self.places.nbytes + self.values.nbytes + self.shift.nbytes


@kernel
def list_changes(W, new_bits, saved, old_bits, place, shift, touched, row, count, places, values):
    """Go through ``touched[row:]`` until ``places`` and ``values`` may be too short.

    Row j of W was ``saved[place[j]]``, which it is again afterwards. Most rows are as they were:
    that is seen from their bits, many at a time. ``shift`` is what visits would add to all columns
    (LLW), or empty. Returns where it stopped, how much is listed, and <W, change> of these rows.
    """
    k, along = W.shape[1], 0.0
    while row < touched.size and count + k <= places.size:
        if row + AHEAD < touched.size and k <= SHORT:
            for m in range(0, k, LINE):
                prefetch(W, touched[row + AHEAD] * k + m)
                prefetch(saved, place[touched[row + AHEAD]] * k + m)
        j = touched[row]
        at = place[j]
        differs = old_bits.dtype.type(0)
        for m in range(k):
            differs |= old_bits[at, m] ^ new_bits[j, m]
        if differs != 0:
            for m in range(k):
                change = W[j, m] - saved[at, m]
                if change != 0:
                    places[count], values[count] = j * k + m, change
                    along += np.float64(saved[at, m]) * np.float64(change)
                    count += 1
                W[j, m] = saved[at, m]
        if shift.size > 0 and shift[j] != 0:
            total = 0.0
            for m in range(k):
                total += np.float64(saved[at, m])
            along += total * np.float64(shift[j])
        place[j] = -1
        row += 1
    return row, count, along


def add_change(W: np.ndarray, change: Change) -> None:
    """W += change."""
    add_places(W.reshape(-1), change.places, change.values)
    if change.shift.size:
        W[:-1] += change.shift[:-1, None]


@kernel
def add_places(flat, places, values):
    """The same of single entries."""
    for p in range(places.size):
        if p + FAR_AHEAD < places.size:
            prefetch(flat, places[p + FAR_AHEAD])
        flat[places[p]] += values[p]


def total_change(changes: list[Change]) -> Change:
    """The sum of what several lanes changed, in their order."""
    places, values, shift = changes[0]
    for other in changes[1:]:
        both, sums = (np.empty(places.size + other.places.size, a.dtype) for a in (places, values))
        count = merge(places, values, other.places, other.values, both, sums)
        places, values = both[:count], sums[:count]
        shift = shift + other.shift
    return Change(places, values, shift)


@kernel
def merge(places, values, others, more, both, sums):
    """Two ascending lists as one; returns its length."""
    p, q, count = 0, 0, 0
    while p < places.size or q < others.size:
        if q == others.size or (p < places.size and places[p] < others[q]):
            both[count], sums[count] = places[p], values[p]
            p += 1
        elif p == places.size or others[q] < places[p]:
            both[count], sums[count] = others[q], more[q]
            q += 1
        else:
            both[count], sums[count] = places[p], values[p] + more[q]
            p += 1
            q += 1
        count += 1
    return count


@kernel
def square_of(places, values, shift, k):
    """|change|² in float64."""
    total = 0.0
    for p in range(places.size):
        value = np.float64(values[p])
        total += value * value
        if shift.size > 0:
            total += 2.0 * value * np.float64(shift[places[p] // k])
    for j in range(shift.size - 1):
        total += k * np.float64(shift[j]) * np.float64(shift[j])
    return total
