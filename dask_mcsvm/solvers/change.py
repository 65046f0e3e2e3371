"""What a lane changed of W in a step: a few percent of its entries, so only those travel.

A lane works on a copy of W. When its step is over, what it changed is listed and taken back, so
that the copy is once more the W that all lanes have in common, to the last bit.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ._jit import kernel


class Change(NamedTuple):
    """A change of W (d + 1, k), the last row apart: single entries, and a shift of whole rows."""

    places: np.ndarray  # (c,) int64, ascending: row · k + class
    values: np.ndarray  # (c,) of W's type
    shift: np.ndarray  # (d + 1,) added to all classes of a row (LLW); empty for the others

    @property
    def nbytes(self) -> int:
        return self.places.nbytes + self.values.nbytes + self.shift.nbytes


def no_change(W: np.ndarray) -> Change:
    """W stays as it is."""
    return Change(np.empty(0, np.int64), np.empty(0, W.dtype), np.empty(0, W.dtype))


def take_back(
    before: np.ndarray, applied: Change, W: np.ndarray, shift: np.ndarray
) -> tuple[Change, float]:
    """List what visits changed of W and undo it; returns also <W, change>.

    W was ``before`` with ``applied`` added when the visits began, and is that again afterwards.
    ``shift`` is what they would add to all columns (LLW), or empty.
    """
    room = max(2**14, 2 * applied.places.size)
    places, values = np.empty(room, np.int64), np.empty(room, W.dtype)
    row, count, cursor, along = 0, 0, 0, 0.0
    while row < W.shape[0] - 1:
        row, count, cursor, more = list_changes(
            before, *applied, W, shift, row, count, cursor, places, values
        )
        along += more
        if row < W.shape[0] - 1:
            places, values = (np.concatenate([a, np.empty_like(a)]) for a in (places, values))
    return Change(places[:count].copy(), values[:count].copy(), shift), along


@kernel
def list_changes(before, places, values, common, W, shift, row, count, cursor, found, by):
    """Go through the rows from ``row`` on, until the lists ``found`` and ``by`` may be too short.

    Returns where it stopped: the row, how much is listed, the place among the entries applied; and
    <W, change> of these rows.
    """
    k, along = W.shape[1], 0.0
    while row < W.shape[0] - 1 and count + k <= found.size:
        moved = shift[row] if shift.size > 0 else W.dtype.type(0)
        for m in range(k):
            value = before[row, m]
            if cursor < places.size and places[cursor] == row * k + m:
                value += values[cursor]
                cursor += 1
            if common.size > 0:
                value += common[row]
            change = W[row, m] - value
            if change != 0:
                found[count], by[count] = row * k + m, change
                count += 1
                W[row, m] = value
            along += np.float64(value) * np.float64(change + moved)
        row += 1
    return row, count, cursor, along


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
