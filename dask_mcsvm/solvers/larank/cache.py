"""Kernel values that visits need: a bounded cache of kernel rows, and blocks of new ones.

The owner of a cache row is a slot, NOBODY, or -2 - i for example i of a set that is visited again.
Rows of patterns are complete. Those of other examples may miss values of patterns that came later.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from dask_mcsvm.solvers.kernels.jit import bare_by_type, bare_part, kernel
from dask_mcsvm.solvers.kernels.rows import read_only

from .kernels import UNKNOWN, call_kernel, compute_block
from .models import NOBODY, is_kernel
from .state import EVALUATIONS, FREE, HAND, HITS, MISSES, PATTERNS


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


# -- examples, and kernel values in blocks ---------------------------------------------------------


@dataclass(eq=False)
class Examples:
    """Rows to learn from, and what a run remembers of them between visits."""

    X: np.ndarray | sp.csr_array  # (n, d); the (n, n) matrix of a precomputed kernel
    rows: np.ndarray | tuple[np.ndarray, np.ndarray, np.ndarray]
    y: np.ndarray  # (n,) int32
    C: np.ndarray  # (n,) float64
    norms: np.ndarray  # (n,) float64: ‖x‖²
    square: np.ndarray  # (n,) float64: K(x, x)
    width: np.ndarray  # (n,) float64: see ``Limits.width``
    base: int  # id of the first
    slot_of: np.ndarray  # (n,) int32
    seen: np.ndarray  # (n,) float64


def block_values(run: Any, examples: Examples, order: np.ndarray) -> np.ndarray:
    """Kernel values (b, P + b) of examples `order` to all patterns, and to those before them."""
    P, b, model = run.n_patterns, order.size, run.model
    model.column[:P] = np.arange(P)
    out = np.full((b, P + b), UNKNOWN, run.dtype)
    if model.example_row.size:
        known_values(model, order, examples.slot_of, P, out)
    counts = run.tally.counts
    if run.kernel.is_external:
        counts[EVALUATIONS] += external_values(run, examples, order, out)
        return out
    norms = examples.norms[order]
    left = (model.function, examples.rows, order, norms)
    counts[EVALUATIONS] += compute_block(*left, *stored(run), False, out, 0)
    counts[EVALUATIONS] += compute_block(*left, examples.rows, order, norms, True, out, P)
    return out


def stored(run: Any) -> tuple[Any, np.ndarray, np.ndarray]:
    """Rows of the patterns, their numbers and norms, as `compute_block` takes them."""
    P, store = run.n_patterns, run.store
    if isinstance(store, tuple):
        return tuple(map(read_only, store)), 2 * np.arange(P), run.model.norms[:P]
    return read_only(store), np.arange(P), run.model.norms[:P]


def external_values(run: Any, examples: Examples, order: np.ndarray, out: np.ndarray) -> int:
    """Fill `out` by calling the user's kernel, or from the matrix; returns how many values."""
    P, X = run.n_patterns, examples.X
    if run.kernel.name == "precomputed":
        out[:, :P] = X[np.ix_(order, run.patterns.ids[:P])]
        out[:, P:] = X[np.ix_(order, order)]
        return 0  # nothing was computed
    rows = X[order]
    lacking = np.flatnonzero((out[:, :P] == UNKNOWN).any(axis=1))
    if lacking.size:
        out[lacking, :P] = call_kernel(run.kernel.function, rows[lacking], run.pattern_rows())
    out[:, P:] = call_kernel(run.kernel.function, rows, rows)
    examples.square[order] = out[:, P:].diagonal()
    return lacking.size * P + order.size**2


def provide_row(run: Any, p: int, examples: Examples | None) -> None:
    """Compute the kernel row of slot p and put it into the cache."""
    P, row = run.n_patterns, np.full((1, run.n_patterns), UNKNOWN, run.dtype)
    if run.kernel.name == "precomputed":
        assert examples is not None
        ids = run.patterns.ids[:P]
        row[0] = examples.X[ids[p], ids]
    elif run.kernel.is_external:
        rows = run.pattern_rows()
        row[:] = call_kernel(run.kernel.function, rows[p : p + 1], rows)
        run.tally.counts[EVALUATIONS] += P
    else:
        rows, slots, norms = stored(run)
        one = (run.model.function, rows, slots[p : p + 1], norms[p : p + 1])
        run.tally.counts[EVALUATIONS] += compute_block(*one, rows, slots, norms, False, row, 0)
        row[0, p] = run.patterns.square[p]
    place_row(run.model, p, row[0], run.tally.counts)
