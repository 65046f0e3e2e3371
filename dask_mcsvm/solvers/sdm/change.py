"""What a lane changed of W in a step: a few percent of its entries, so only those travel.

A step reads and changes only the rows of W of those features that its examples have. It works on a
copy of these rows, which is compared with what they were when the step is over.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dask_mcsvm.solvers.kernels.jit import kernel


class Change(NamedTuple):
    """A change of W (d + 1, k), the last row apart: single entries, and a shift of whole rows."""

    places: np.ndarray  # (c,) int64, ascending: row · k + class
    values: np.ndarray  # (c,) of W's type
    shift: np.ndarray  # (d + 1,) added to all classes of a row (LLW); empty for the others

    @property
    def nbytes(self) -> int:
        return self.places.nbytes + self.values.nbytes + self.shift.nbytes


def find_change(
    before: np.ndarray, W: np.ndarray, shift: np.ndarray, features: np.ndarray, d: int
) -> tuple[Change, float]:
    """What visits made of ``before``, the last row apart; also <before, change>.

    ``shift`` is what they would add to all columns (LLW), or empty. The rows are those of
    ``features`` (ascending) among d, and the intercept.
    """
    bits = np.dtype(f"i{W.itemsize}")
    room = 2**14
    places, values = np.empty(room, np.int64), np.empty(room, W.dtype)
    row, count, along = 0, 0, 0.0
    while row < W.shape[0] - 1:
        row, count, more = list_changes(
            before, before.view(bits), W, W.view(bits), shift, row, count, places, values
        )
        along += more
        if row < W.shape[0] - 1:
            places, values = (np.concatenate([a, np.empty_like(a)]) for a in (places, values))
    k = W.shape[1]
    rows, m = np.divmod(places[:count], k)
    everywhere = np.zeros(d + 1 if shift.size else 0, W.dtype)
    if shift.size:
        everywhere[features] = shift[:-1]
    return Change(features[rows] * k + m, values[:count].copy(), everywhere), along


@kernel
def list_changes(before, old_bits, W, new_bits, shift, row, count, places, values):
    """Go through the rows from ``row`` on, until ``places`` and ``values`` may be too short.

    Most rows are as they were: that is seen from their bits, many at a time. Returns where it
    stopped: the row, how much is listed; and <before, change> of these rows.
    """
    k, along = W.shape[1], 0.0
    while row < W.shape[0] - 1 and count + k <= places.size:
        differs = old_bits.dtype.type(0)
        for m in range(k):
            differs |= old_bits[row, m] ^ new_bits[row, m]
        if differs != 0:
            for m in range(k):
                change = W[row, m] - before[row, m]
                if change != 0:
                    places[count], values[count] = row * k + m, change
                    along += np.float64(before[row, m]) * np.float64(change)
                    count += 1
        if shift.size > 0 and shift[row] != 0:
            total = 0.0
            for m in range(k):
                total += np.float64(before[row, m])
            along += total * np.float64(shift[row])
        row += 1
    return row, count, along


@kernel
def add_change(W, places, values, shift):
    """W += change."""
    k = W.shape[1]
    for p in range(places.size):
        W[places[p] // k, places[p] % k] += values[p]
    if shift.size > 0:
        for j in range(W.shape[0] - 1):
            if shift[j] != 0:
                for m in range(k):
                    W[j, m] += shift[j]


@kernel
def add_to_some(W, where, places, values, shift):
    """The same to some rows of W: that of feature j is ``where[j]``, or it is missing if < 0."""
    k = W.shape[1]
    for p in range(places.size):
        row = where[places[p] // k]
        if row >= 0:
            W[row, places[p] % k] += values[p]
    if shift.size > 0:
        for j in range(shift.size - 1):
            if shift[j] != 0 and where[j] >= 0:
                for m in range(k):
                    W[where[j], m] += shift[j]


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
