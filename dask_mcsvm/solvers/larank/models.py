"""What LaRank's operations ask of a model, answered by one with a kernel and by one with W.

The kernel model keeps lists of support vectors by class, each with its gradient, and a bounded
cache of kernel rows. The linear model keeps W (d + 1, k) and computes gradients from it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dask_mcsvm.formulations.margins import Margins
from dask_mcsvm.solvers.kernels.jit import apart, bare_by_type, bare_part
from dask_mcsvm.solvers.kernels.margins import add_listed_margins, add_margins
from dask_mcsvm.solvers.kernels.rows import row_scores, row_scores_of, row_update

from .kernels import UNKNOWN, KernelFunction
from .state import (
    FREE,
    HAND,
    LONGEST,
    PATTERNS,
    VECTORS,
    Patterns,
    Tally,
    enlarged,
    slot_row,
)

NOBODY = -1  # owner of a free cache row


class KernelModel(NamedTuple):
    """Support vectors by class, and kernel rows of patterns (and of other examples, if asked).

    The cache holds rows, not the paper's sets E(y, j): a row is shared by all classes of its
    pattern, and since a new pattern comes with its kernel values to all others, it completes
    their rows too. No pair of patterns is evaluated twice while rows fit.
    """

    function: KernelFunction
    norms: np.ndarray  # (capacity,) float64: ‖x‖² by slot
    size: np.ndarray  # (k,) int64: support vectors of each class
    member: np.ndarray  # (k, room) int32: their slots
    weight: np.ndarray  # (k, room) float64: their beta
    grad: np.ndarray  # (k, room) float64: their gradients
    back: np.ndarray  # (k, room) int32: which class of its pattern it is
    place: np.ndarray  # (capacity, width) int32: place in the class's list
    values: np.ndarray  # (R, capacity): cached kernel values, UNKNOWN from column P on
    row_of: np.ndarray  # (capacity,) int32: cache row of a slot, or -1
    owner: np.ndarray  # (R,) int64, see ``cache``
    used: np.ndarray  # (R,) uint8: touched since the hand passed
    free: np.ndarray  # (R,) int32: a stack
    example_row: np.ndarray  # (n,) int32: cache row of an example; (0,) if they are not kept
    column: np.ndarray  # (capacity,) int32: where the block has a slot's kernel values
    row: np.ndarray  # (capacity,): kernel row of the new example
    margins: Margins


class LinearModel(NamedTuple):
    """W, and space for scores."""

    W: np.ndarray  # (d + 1, k); the last row belongs to a constant feature of value 0
    s: np.ndarray  # (k,)
    margins: Margins


def look_new(model, block, t, width, tally):
    """Gradients of all classes at example t of the block, into tally.g; returns the cost."""


def look_old(model, patterns, store, p, r, width, tally):
    """Gradients of all classes at pattern p, into tally.g; returns the cost."""


def look_held(model, patterns, store, p, width, tally):
    """Gradients of the classes that pattern p holds, into tally.g; returns the cost."""


def spread(model, patterns, store, p, r, t, delta, width, tally):
    """Beta of class t of pattern p changes by delta: update gradients or W; returns the cost."""


def link(model, patterns, p, t, g, counts):
    """Class t of pattern p becomes a support vector with gradient g."""


def unlink(model, patterns, p, t):
    """Class t of pattern p is one no more; the pattern's last class is about to take its place."""


def model_has_room(model, counts):
    """Whether a step can add two support vectors."""


def is_kernel(model):
    return model.instance_class is KernelModel


# -- gradients -------------------------------------------------------------------------------------


@bare_by_type(look_new)
def _look_new(model, block, t, width, tally):
    if is_kernel(model):

        def from_block(model, block, t, width, tally):
            i, P = block.order[t], tally.counts[PATTERNS]
            for p in range(P):
                model.row[p] = block.values[t, model.column[p]]
            for m in range(tally.g.size):
                tally.g[m] = class_score(model, m, model.row)
            add_margins(model.margins, block.y[i], tally.g)
            for m in range(tally.g.size):
                tally.g[m] = (1.0 if m == block.y[i] else 0.0) - tally.g[m]  # [LR-G]
            return width * P + tally.counts[VECTORS]

        return from_block

    def from_weights(model, block, t, width, tally):
        i, k = block.order[t], tally.g.size
        row_scores(block.rows, i, model.W, model.W.dtype.type(0), model.s)
        add_margins(model.margins, block.y[i], model.s)
        for m in range(k):
            tally.g[m] = (1.0 if m == block.y[i] else 0.0) - model.s[m]
        return (width + 1) * k

    return from_weights


@bare_part
def class_score(model, m, row):
    """Σ_j β_jm K(x, x_j), given the kernel row of x."""
    total = 0.0
    member, weight = model.member[m], model.weight[m]
    for s in range(model.size[m]):
        total += weight[s] * row[member[s]]
    return total


@bare_by_type(look_old)
def _look_old(model, patterns, store, p, r, width, tally):
    if is_kernel(model):

        def from_row(model, patterns, store, p, r, width, tally):
            for m in range(tally.g.size):
                tally.g[m] = class_score(model, m, model.values[r])
            add_margins(model.margins, patterns.label[p], tally.g)
            for m in range(tally.g.size):
                tally.g[m] = -tally.g[m]
            look_held(model, patterns, store, p, width, tally)  # the own class is one of these
            return tally.counts[VECTORS]

        return from_row

    def from_weights(model, patterns, store, p, r, width, tally):
        k = tally.g.size
        row_scores(store, slot_row(store, p), model.W, model.W.dtype.type(0), model.s)
        add_margins(model.margins, patterns.label[p], model.s)
        for m in range(k):
            tally.g[m] = (1.0 if m == patterns.label[p] else 0.0) - model.s[m]
        return (width + 1) * k

    return from_weights


@bare_by_type(look_held)
def _look_held(model, patterns, store, p, width, tally):
    if is_kernel(model):

        def stored(model, patterns, store, p, width, tally):
            for t in range(patterns.held[p]):
                m = patterns.classes[p, t]
                tally.g[m] = model.grad[m, model.place[p, t]]
            return patterns.held[p]

        return stored

    def from_weights(model, patterns, store, p, width, tally):
        q, zero = patterns.held[p], model.W.dtype.type(0)
        classes = patterns.classes[p]
        row_scores_of(store, slot_row(store, p), model.W, zero, classes, q, model.s)
        add_listed_margins(model.margins, patterns.label[p], classes, q, model.s)
        for t in range(q):
            own = 1.0 if classes[t] == patterns.label[p] else 0.0
            tally.g[classes[t]] = own - model.s[t]
        return q * width

    return from_weights


@bare_by_type(spread)
def _spread(model, patterns, store, p, r, t, delta, width, tally):
    if is_kernel(model):

        def to_gradients(model, patterns, store, p, r, t, delta, width, tally):
            m = patterns.classes[p, t]
            row, member, grad = model.values[r], model.member[m], model.grad[m]
            for s in range(model.size[m]):
                grad[s] -= delta * row[member[s]]
            model.weight[m, model.place[p, t]] = patterns.beta[p, t]
            return model.size[m]

        return to_gradients

    def to_weights(model, patterns, store, p, r, t, delta, width, tally):
        tally.delta[0] = delta
        classes = patterns.classes[p, t : t + 1]
        zero = model.W.dtype.type(0)
        row_update(store, slot_row(store, p), model.W, zero, classes, tally.delta, 1)
        return width

    return to_weights


# -- lists by class --------------------------------------------------------------------------------


@bare_by_type(link)
def _link(model, patterns, p, t, g, counts):
    if not is_kernel(model):
        return lambda model, patterns, p, t, g, counts: None

    def append(model, patterns, p, t, g, counts):
        m = patterns.classes[p, t]
        s = model.size[m]
        model.member[m, s], model.back[m, s] = p, t
        model.weight[m, s], model.grad[m, s] = patterns.beta[p, t], g
        model.place[p, t] = s
        model.size[m] = s + 1
        counts[LONGEST] = max(counts[LONGEST], s + 1)

    return append


@bare_by_type(unlink)
def _unlink(model, patterns, p, t):
    if not is_kernel(model):
        return lambda model, patterns, p, t: None

    def remove(model, patterns, p, t):
        m, s = patterns.classes[p, t], model.place[p, t]
        end = model.size[m] - 1
        model.size[m] = end
        q, u = model.member[m, end], model.back[m, end]
        model.member[m, s], model.back[m, s] = q, u
        model.weight[m, s], model.grad[m, s] = model.weight[m, end], model.grad[m, end]
        model.place[q, u] = s
        last = patterns.held[p] - 1
        if last != t:
            model.place[p, t] = model.place[p, last]
            model.back[patterns.classes[p, last], model.place[p, last]] = t

    return remove


@bare_by_type(model_has_room)
def _model_has_room(model, counts):
    if not is_kernel(model):
        return lambda model, counts: True
    return lambda model, counts: counts[LONGEST] < model.member.shape[1]


# -- room to begin with, and more of it ------------------------------------------------------------


def larger(size: int) -> int:
    """Half as much again: growing n times costs what the last size does, and wastes a third."""
    return max(64, size + size // 2)


def new_linear_model(d: int, k: int, dtype: np.dtype, margins: Margins) -> LinearModel:
    return LinearModel(np.zeros((d + 1, k), dtype), apart(k, dtype), margins)


def new_kernel_model(
    function: KernelFunction,
    k: int,
    capacity: int,
    width: int,
    dtype: np.dtype,
    cache_bytes: int,
    margins: Margins,
) -> KernelModel:
    """No support vectors, an empty cache."""
    room, rows = 16, cache_rows(cache_bytes, capacity, 0, dtype)
    return KernelModel(
        function,
        np.zeros(capacity),
        np.zeros(k, np.int64),
        np.zeros((k, room), np.int32),
        np.zeros((k, room)),
        np.zeros((k, room)),
        np.zeros((k, room), np.int32),
        np.zeros((capacity, width), np.int32),
        np.full((rows, capacity), UNKNOWN, dtype),
        np.full(capacity, -1, np.int32),
        np.full(rows, NOBODY, np.int64),
        np.zeros(rows, np.uint8),
        np.arange(rows, dtype=np.int32),
        np.empty(0, np.int32),
        np.zeros(capacity, np.int32),
        np.zeros(capacity, dtype),
        margins,
    )


def cache_rows(cache_bytes: int, capacity: int, n_examples: int, dtype: np.dtype) -> int:
    """Rows of `capacity` values that fit; a step needs two."""
    fitting = cache_bytes // (capacity * np.dtype(dtype).itemsize)
    return int(max(2, min(fitting, capacity + n_examples)))


def grown_patterns(patterns: Patterns, capacity: int, width: int) -> Patterns:
    """The same patterns with more room."""
    if patterns.classes.shape == (capacity, width):
        return patterns
    shapes = [(capacity, width) if array.ndim == 2 else (capacity,) for array in patterns]
    return Patterns(*map(lambda a, s: enlarged(a, *s), patterns, shapes))


def grown_model(
    model: KernelModel, patterns: Patterns, tally: Tally, cache_bytes: int, longest: int = 0
) -> KernelModel:
    """The same model with room for what `patterns` has room for, and a cache cut to fit."""
    (k, room), (capacity, width) = model.member.shape, patterns.classes.shape
    if longest >= room:
        room = larger(longest)
        model = model._replace(
            member=enlarged(model.member, k, room),
            weight=enlarged(model.weight, k, room),
            grad=enlarged(model.grad, k, room),
            back=enlarged(model.back, k, room),
        )
    rows = cache_rows(cache_bytes, capacity, model.example_row.size, model.values.dtype)
    model = model._replace(
        place=enlarged(model.place, capacity, width),
        norms=enlarged(model.norms, capacity),
        column=enlarged(model.column, capacity),
        row=enlarged(model.row, capacity),
    )
    if model.values.shape == (rows, capacity):
        return model
    return _moved_cache(model, tally, rows, capacity)


def _moved_cache(model: KernelModel, tally: Tally, rows: int, capacity: int) -> KernelModel:
    """A cache of another shape that holds what fits: patterns first, then other examples."""
    owned = np.flatnonzero(model.owner != NOBODY)
    kept = owned[np.argsort(model.owner[owned] < NOBODY, kind="stable")][:rows]
    P = min(int(tally.counts[PATTERNS]), model.values.shape[1])
    values = np.empty((rows, capacity), model.values.dtype)  # untouched pages cost no memory
    values[: kept.size, :P] = model.values[kept, :P]
    values[: kept.size, P:] = UNKNOWN
    owner = np.full(rows, NOBODY, np.int64)
    owner[: kept.size] = model.owner[kept]
    row_of = np.full(capacity, -1, np.int32)
    example_row = np.full_like(model.example_row, -1)
    places = np.arange(kept.size, dtype=np.int32)
    of_pattern = model.owner[kept] > NOBODY
    row_of[model.owner[kept[of_pattern]]] = places[of_pattern]
    example_row[-2 - model.owner[kept[~of_pattern]]] = places[~of_pattern]
    used = np.zeros(rows, np.uint8)
    used[: kept.size] = model.used[kept]
    free = np.zeros(rows, np.int32)
    free[: rows - kept.size] = np.arange(rows - 1, kept.size - 1, -1)
    tally.counts[FREE], tally.counts[HAND] = rows - kept.size, 0
    return model._replace(
        values=values, owner=owner, row_of=row_of, example_row=example_row, used=used, free=free
    )
