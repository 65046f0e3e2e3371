"""The bounded cache of kernel rows of a LaRank run.

The owner of a cache row is a slot, NOBODY, or -2 - i for example i of a set that is visited again.
Rows of patterns are complete. Those of other examples may miss values of patterns that came later.
"""

from __future__ import annotations

from ._jit import bare_by_type, bare_part, kernel
from ._larank_kernels import UNKNOWN
from ._larank_models import is_kernel
from ._larank_state import FREE, HAND, HITS, MISSES, PATTERNS

NOBODY = -1  # owner of a free cache row


def fetch(model, p, counts):
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


@bare_part
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


@bare_part
def own_row(model, p, r):
    """Cache row r is now that of slot p."""
    model.owner[r], model.used[r], model.row_of[p] = p, 1, r


@bare_part
def fill_row(model, r, row, known):
    """Cache row r is row[:known], and UNKNOWN from there on."""
    values = model.values[r]
    for p in range(known):
        values[p] = row[p]
    for p in range(known, values.size):
        values[p] = UNKNOWN


@bare_by_type(fetch)
def _fetch(model, p, counts):
    if not is_kernel(model):
        return lambda model, p, counts: 0

    def cached(model, p, counts):
        r = model.row_of[p]
        if r >= 0:
            counts[HITS] += 1
            model.used[r] = 1
        else:
            counts[MISSES] += 1
        return r

    return cached


@bare_by_type(admit)
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
        fill_row(model, r, model.row, p)
        model.values[r, p] = patterns.square[p]
        for q in range(p):  # K is symmetric: the rows of the others learn their value for p
            if model.row_of[q] >= 0:
                model.values[model.row_of[q], p] = model.row[q]
        own_row(model, p, r)
        model.norms[p] = norm
        model.column[p] = block.values.shape[1] - block.order.size + t

    return keep_row


@bare_by_type(remember)
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
        fill_row(model, r, model.row, counts[PATTERNS])

    return keep_if_free


@bare_by_type(vacate)
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
def known_values(model, order, slot_of, n_patterns, out):
    """What is cached of the kernel rows of examples `order` into out[:, :P].

    An example that is a pattern, and will only be visited if it ceases to be one, has its row too.
    """
    for t in range(order.size):
        i = order[t]
        r = model.row_of[slot_of[i]] if slot_of[i] >= 0 else model.example_row[i]
        if r >= 0:
            for p in range(n_patterns):
                out[t, p] = model.values[r, p]


@kernel
def place_row(model, p, row, counts):
    """Put the kernel row of slot p, just computed, into the cache."""
    r = take_row(model, counts)
    fill_row(model, r, row, row.size)
    own_row(model, p, r)
