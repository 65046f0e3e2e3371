"""The bounded cache of kernel rows of a LaRank run.

The owner of a cache row is a slot, NOBODY, or -2 - i for example i of a set that is visited again.
Rows of patterns are complete. Those of other examples may miss values of patterns that came later.
"""

from __future__ import annotations

import numpy as np

from ._jit import by_type, kernel
from ._larank_kernels import EXTERNAL, UNKNOWN, kernel_block
from ._larank_models import is_kernel
from ._larank_state import EVALUATIONS, FREE, HAND, HITS, MISSES, PATTERNS, slot_row

NOBODY = -1  # owner of a free cache row


def fetch(model, patterns, store, p, counts):
    """The cache row with the kernel row of slot p; -1 if Python has to compute it."""


def admit(model, patterns, block, t, i, p, norm, counts):
    """The block's example t becomes the pattern in slot p."""


def remember(model, i, counts):
    """Keep the kernel row of example i, just looked at, while the cache has a free row.

    It takes no other row's place: examples come in turn, and the one that would give way is the
    next to be wanted.
    """


def vacate(model, patterns, block, p, counts):
    """Pattern p is dropped; what is in the last slot moves to p."""


@kernel
def take_row(model, counts):
    """A cache row for a pattern: a free one, an example's, or one not touched for a while."""
    if counts[FREE] > 0:
        counts[FREE] -= 1
        return model.free[counts[FREE]]
    while True:
        r = counts[HAND]
        counts[HAND] = (r + 1) % model.owner.size
        owner = model.owner[r]
        if owner < NOBODY:
            model.example_row[-2 - owner] = -1
            return r
        if model.used[r] == 0:
            model.row_of[owner] = -1
            return r
        model.used[r] = 0


@kernel
def own_row(model, p, r):
    """Cache row r is now that of slot p."""
    model.owner[r], model.used[r], model.row_of[p] = p, 1, r


@by_type(fetch)
def _fetch(model, patterns, store, p, counts):
    if not is_kernel(model):
        return lambda model, patterns, store, p, counts: 0

    def cached(model, patterns, store, p, counts):
        r = model.row_of[p]
        if r >= 0:
            counts[HITS] += 1
            model.used[r] = 1
            return r
        counts[MISSES] += 1
        if model.function.kind == EXTERNAL:
            return -1
        P = counts[PATTERNS]
        r = take_row(model, counts)
        slots = np.empty(P, np.int64)
        for q in range(P):
            slots[q] = slot_row(store, q)
        model.values[r] = UNKNOWN
        counts[EVALUATIONS] += kernel_block(
            model.function,
            store,
            slots[p : p + 1],
            model.norms[p : p + 1],
            store,
            slots,
            model.norms[:P],
            False,
            model.values[r : r + 1, :P],
        )
        model.values[r, p] = patterns.square[p]
        own_row(model, p, r)
        return r

    return cached


@by_type(admit)
def _admit(model, patterns, block, t, i, p, norm, counts):
    if not is_kernel(model):
        return lambda model, patterns, block, t, i, p, norm, counts: None

    def keep_row(model, patterns, block, t, i, p, norm, counts):
        r = -1
        if model.example_row.size > 0:  # its row may be cached already
            r = model.example_row[i]
            model.example_row[i] = -1
        if r < 0:
            r = take_row(model, counts)
        values = model.values
        values[r, :p] = model.row[:p]
        values[r, p] = patterns.square[p]
        values[r, p + 1 :] = UNKNOWN
        for q in range(p):  # K is symmetric: the rows of the others learn their value for p
            if model.row_of[q] >= 0:
                values[model.row_of[q], p] = model.row[q]
        own_row(model, p, r)
        model.norms[p] = norm
        model.column[p] = block.values.shape[1] - block.order.size + t

    return keep_row


@by_type(remember)
def _remember(model, i, counts):
    if not is_kernel(model):
        return lambda model, i, counts: None

    def keep_if_free(model, i, counts):
        if model.example_row.size == 0:
            return
        r = model.example_row[i]
        if r < 0:
            if counts[FREE] == 0:
                return
            r = take_row(model, counts)
            model.owner[r], model.example_row[i] = -2 - i, r
            model.values[r] = UNKNOWN
        model.values[r, : counts[PATTERNS]] = model.row[: counts[PATTERNS]]

    return keep_if_free


@by_type(vacate)
def _vacate(model, patterns, block, p, counts):
    if not is_kernel(model):
        return lambda model, patterns, block, p, counts: None

    def move_last(model, patterns, block, p, counts):
        last = counts[PATTERNS] - 1
        r = model.row_of[p]
        if r >= 0:
            i = patterns.ids[p] - block.base
            if 0 <= i < model.example_row.size:
                model.owner[r] = -2 - i
                model.example_row[i] = r
            else:
                model.owner[r] = NOBODY
                model.free[counts[FREE]] = r
                counts[FREE] += 1
        for row in range(model.owner.size):
            if model.owner[row] != NOBODY:
                model.values[row, p] = model.values[row, last]
                model.values[row, last] = UNKNOWN
        if p != last:
            model.row_of[p] = model.row_of[last]
            if model.row_of[p] >= 0:
                model.owner[model.row_of[p]] = p
            model.norms[p], model.column[p] = model.norms[last], model.column[last]
            for t in range(patterns.held[last]):
                m = patterns.classes[last, t]
                model.member[m, model.place[last, t]] = p
                model.place[p, t] = model.place[last, t]
        model.row_of[last] = -1

    return move_last


@kernel
def known_values(model, order, n_patterns, out):
    """Copy what is cached of the kernel rows of examples `order` to out (b, P), else UNKNOWN."""
    out[:, :n_patterns] = UNKNOWN
    if model.example_row.size > 0:
        for t in range(order.size):
            r = model.example_row[order[t]]
            if r >= 0:
                out[t, :n_patterns] = model.values[r, :n_patterns]


@kernel
def place_row(model, p, row, counts):
    """Put the kernel row of slot p, computed elsewhere, into the cache."""
    r = take_row(model, counts)
    model.values[r, : row.size] = row
    model.values[r, row.size :] = UNKNOWN
    own_row(model, p, r)
