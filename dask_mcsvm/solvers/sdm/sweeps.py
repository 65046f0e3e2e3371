"""The sequential dual method (Keerthi et al. 2008, Algorithms 2.1 and 3.1): sweeps over examples.

A visit of example i computes scores, lists the classes that can change and solves its dual
variables exactly on that list. A *full* visit looks at all k classes; a *shrunk* visit only at
those that hold something to move, which costs next to nothing when k is large.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dask_mcsvm.formulations.margins import EQUAL, Margins
from dask_mcsvm.solvers.kernels.candidate_classes import screen
from dask_mcsvm.solvers.kernels.dual_variables import (
    alpha_has_room,
    alpha_load,
    alpha_prefetch,
    alpha_store,
)
from dask_mcsvm.solvers.kernels.jit import apart, bare_kernel, bare_part, kernel
from dask_mcsvm.solvers.kernels.margins import add_listed_margins, add_margins
from dask_mcsvm.solvers.kernels.rows import (
    place_prefetch,
    row_dot,
    row_has_room,
    row_prefetch,
    row_scores,
    row_scores_of,
    weights_prefetch,
)
from dask_mcsvm.solvers.kernels.simd import prefetch
from dask_mcsvm.solvers.kernels.standard_rows import CentredRows, StandardRows
from dask_mcsvm.solvers.kernels.steps import free_first, step

from .moves import FAR, NEAR, can_visit, move_weights


class Data(NamedTuple):
    """What a sweep reads. Everything is read-only, and of one float type but for ``square``."""

    rows: np.ndarray | tuple[np.ndarray, np.ndarray, np.ndarray] | StandardRows | CentredRows
    y: np.ndarray  # (n,) int32
    C: np.ndarray  # (n,) float
    square: np.ndarray  # (n,) float64, ‖x_i‖² + tau²
    tau: np.floating
    margins: Margins = EQUAL


class Scratch(NamedTuple):
    """Working space of one thread."""

    s: np.ndarray  # (k,) scores of all classes
    classes: np.ndarray  # (k + 1,) int32, the compact list
    a: np.ndarray  # (k + 1,)
    sc: np.ndarray  # (k + 1,)
    delta: np.ndarray  # (k + 1,)
    v: np.ndarray  # (k + 1,) float64
    out: np.ndarray  # (5,) float64: loss, gap, violation, gain, change of Σ alpha


class Frequencies(NamedTuple):
    """How often each example deserves a visit (the idea of Shark's linear solvers)."""

    preference: np.ndarray  # (n,) float64 in [0.01, 5]
    average: np.ndarray  # (1,) float64, running mean of the square root of a visit's gain
    span: int  # visits that this mean reaches back; 0 where all are visited alike


def make_scratch(k: int, dtype: np.dtype) -> Scratch:
    """Space for lists of up to k + 1 classes."""
    return Scratch(
        apart(k, dtype),
        apart(k + 1, np.int32),
        apart(k + 1, dtype),
        apart(k + 1, dtype),
        apart(k + 1, dtype),
        apart(k + 1, np.float64),
        apart(5, np.float64),
    )


@bare_kernel
def prefer(frequencies, i, gain, moved):
    """Raise the preference of an example that gained more than others, else lower it.

    Square roots, because a few gains are far above all others and would leave the rest at the
    bottom, alike. An example that did not move at all may sink below that.
    """
    preference, average, span = frequencies
    gain = np.sqrt(max(gain, 0.0))  # rounding may leave a step with a gain below zero
    if not moved:
        preference[i] = max(0.5 * preference[i], 0.01)
    elif average[0] > 0:
        change = np.exp(min(0.3 * (gain / average[0] - 1.0), 3.0))
        preference[i] = min(max(preference[i] * change, 0.05), 5.0)
    average[0] += (gain - average[0]) / span


@bare_part
def finish_visit(loss, data, i, W, shift, alpha, scratch, q, stored):
    """The step itself: solve the first q listed classes, move W, store the list if any moved.

    Returns whether any did; scratch.out[2] and [3] are the violation and the rise of the dual.
    """
    changed = step(
        loss, scratch.sc, scratch.a, q, np.float64(data.C[i]), data.square[i], scratch.delta,
        scratch.v, scratch.out,
    )  # fmt: skip
    if changed > 0:
        move_weights(data, i, W, shift, loss.k, scratch, q)
        alpha_store(alpha, i, scratch.classes, scratch.a, stored)
    return changed > 0


@bare_part
def look_ahead(data, order, t, W, alpha):
    """Fetch what later visits read: rows come in random order.

    First where a row begins and its record; the row and its variables, once that is there; then
    the weights of its features. 6,500,000 rows take two thirds of the time.
    """
    if t + FAR < order.size:
        i = order[t + FAR]
        place_prefetch(data.rows, i)
        prefetch(data.square, i)
    if t + NEAR < order.size:
        i = order[t + NEAR]
        row_prefetch(data.rows, i)
        alpha_prefetch(alpha, i)
    if t + 1 < order.size:
        weights_prefetch(data.rows, order[t + 1], W)


@bare_kernel
def full_sweep(loss, data, order, begin, W, shift, alpha, fresh, frequencies, seen, scratch):
    """Visit ``order[begin:]`` looking at all classes; what is known of rows is laid together.

    Updates W, shift (LLW's common part of all columns; empty otherwise), alpha, the preferences,
    and ``seen`` (n, 2): loss and gap of each example as last seen. Returns where it stopped (short
    of the end when alpha, W or notes of moves need more room), the gain of the
    dual, the largest violation and the number of class scores computed.
    """
    k = loss.k
    total, worst = 0.0, 0.0
    s, classes, a, sc, out = scratch.s, scratch.classes, scratch.a, scratch.sc, scratch.out
    for t in range(begin, order.size):
        if not (alpha_has_room(alpha, k) and can_visit(data.rows, t, W, scratch)):
            return t, total, worst, (t - begin) * k
        i = order[t]
        look_ahead(data, order, t, W, alpha)
        C, A = np.float64(data.C[i]), data.square[i]
        all_scores(data, i, W, shift, s)
        stored = alpha_load(alpha, i, data.y[i], classes, a)
        q = screen(loss, s, classes, a, sc, stored, C, A, fresh, scratch.v, out)
        if not row_has_room(data.rows, i, W, q):
            return t, total, worst, (t - begin) * k
        for c in range(stored, q):
            a[c] = 0
        seen[i, 0], seen[i, 1] = out[0], out[1]
        moved = finish_visit(loss, data, i, W, shift, alpha, scratch, q, q)
        total += out[3]
        worst = max(worst, out[2])
        if frequencies.span > 0:
            prefer(frequencies, i, out[3], moved)
    return order.size, total, worst, (order.size - begin) * k


@bare_part
def all_scores(data, i, W, shift, s):
    """Scores of all classes, LLW's common shift included, moved by margins [MARGIN-SHIFT]."""
    row_scores(data.rows, i, W, data.tau, s)
    if shift.size > 0:
        common = row_dot(data.rows, i, shift, data.tau)
        for m in range(s.size):
            s[m] += common
    add_margins(data.margins, data.y[i], s)


@bare_part
def listed_scores(data, i, W, shift, classes, q, sc):
    """Scores of the first q listed classes, moved likewise."""
    row_scores_of(data.rows, i, W, data.tau, classes, q, sc)
    if shift.size > 0:
        common = row_dot(data.rows, i, shift, data.tau)
        for c in range(q):
            sc[c] += common
    add_listed_margins(data.margins, data.y[i], classes, q, sc)


@bare_kernel
def shrunk_sweep(loss, data, order, begin, W, shift, alpha, scratch):
    """Visit ``order[begin:]`` looking only at the classes that hold something to move.

    Returns the same as a full sweep.
    """
    total, worst, work = 0.0, 0.0, 0
    classes, a, sc, out = scratch.classes, scratch.a, scratch.sc, scratch.out
    for t in range(begin, order.size):
        room = alpha_has_room(alpha, loss.k)
        if not (room and can_visit(data.rows, t, W, scratch)):
            return t, total, worst, work
        i = order[t]
        look_ahead(data, order, t, W, alpha)
        stored = alpha_load(alpha, i, data.y[i], classes, a)
        q = free_first(loss, classes, a, stored, np.float64(data.C[i]))
        if q == 1:
            continue
        q = abs(q)
        if not row_has_room(data.rows, i, W, q):
            return t, total, worst, work
        work += q
        listed_scores(data, i, W, shift, classes, q, sc)
        finish_visit(loss, data, i, W, shift, alpha, scratch, q, stored)
        total += out[3]
        worst = max(worst, out[2])
    return order.size, total, worst, work


@kernel
def active_examples(loss, data, alpha, scratch):
    """Ids of the examples that a shrunk sweep would not skip."""
    n = data.y.size
    out = np.empty(n, np.int64)
    count = 0
    for i in range(n):
        q = alpha_load(alpha, i, data.y[i], scratch.classes, scratch.a)
        if free_first(loss, scratch.classes, scratch.a, q, np.float64(data.C[i])) != 1:
            out[count] = i
            count += 1
    return out[:count]
