"""The sequential dual method (Keerthi et al. 2008, Algorithms 2.1 and 3.1): sweeps over examples.

A visit of example i computes scores, lists the classes that can change and solves its dual
variables exactly on that list. A *full* visit looks at all k classes; a *shrunk* visit only at
those that hold something to move, which costs next to nothing when k is large.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ._alpha import alpha_has_room, alpha_load, alpha_store
from ._jit import kernel
from ._rows import row_axpy, row_dot, row_scores, row_scores_of, row_update
from ._steps import free_first, screen, step


class Data(NamedTuple):
    """What a sweep reads. Everything is read-only, and of one float type but for ``square``."""

    rows: np.ndarray | tuple[np.ndarray, np.ndarray, np.ndarray]
    y: np.ndarray  # (n,) int32
    C: np.ndarray  # (n,) float
    square: np.ndarray  # (n,) float64, ‖x_i‖² + tau²
    tau: np.floating


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

    preference: np.ndarray  # (n,) float64 in [0.05, 5]
    average: np.ndarray  # (1,) float64, running mean of the gain of a visit


class Log(NamedTuple):
    """Changes of W in the order they were made, for the other threads to repeat; may be empty."""

    rows: np.ndarray  # (capacity,) int64
    end: np.ndarray  # (capacity,) int64, where a row's classes end
    moved: np.ndarray  # (capacity,) float64, change of Σ alpha (LLW)
    classes: np.ndarray  # (entries,) int32
    delta: np.ndarray  # (entries,) float
    size: np.ndarray  # (1,) int64


def make_log(visits: int, entries: int, dtype: np.dtype) -> Log:
    """Room for so many visits and changed columns; no room at all means: keep no log."""
    return Log(
        np.empty(visits, np.int64),
        np.empty(visits, np.int64),
        np.empty(visits),
        np.empty(entries, np.int32),
        np.empty(entries, dtype),
        np.zeros(1, np.int64),
    )


def make_scratch(k: int, dtype: np.dtype) -> Scratch:
    """Space for lists of up to k + 1 classes."""
    return Scratch(
        np.empty(k, dtype),
        np.empty(k + 1, np.int32),
        np.empty(k + 1, dtype),
        np.empty(k + 1, dtype),
        np.empty(k + 1, dtype),
        np.empty(k + 1),
        np.zeros(5),
    )


@kernel
def has_room(log, k):
    """Whether one more visit fits, however many columns it changes."""
    size = log.size[0]
    if log.rows.size == 0:
        return True
    return size < log.rows.size and (size == 0 or log.end[size - 1] + k + 1 <= log.classes.size)


@kernel
def move_weights(data, i, W, shift, loss, sigma, log, scratch, q):
    """W += sigma times what the step of example i found; the log keeps it unscaled."""
    classes, delta, moved = scratch.classes, scratch.delta, scratch.out[4]
    touched = 0
    for c in range(q):
        if delta[c] != 0:
            classes[touched], classes[c] = classes[c], classes[touched]
            scratch.a[touched], scratch.a[c] = scratch.a[c], scratch.a[touched]
            delta[touched] = delta[c]
            touched += 1
    if log.rows.size > 0:
        size = log.size[0]
        start = log.end[size - 1] if size > 0 else 0
        for c in range(touched):
            log.classes[start + c] = classes[c]
            log.delta[start + c] = delta[c]
        log.rows[size], log.end[size], log.moved[size] = i, start + touched, moved
        log.size[0] += 1
    if sigma != 1:
        for c in range(touched):
            delta[c] *= W.dtype.type(sigma)
    row_update(data.rows, i, W, data.tau, classes, delta, touched)
    if shift.size > 0 and moved != 0:
        row_axpy(data.rows, i, shift, data.tau, W.dtype.type(sigma * moved / loss.k))


@kernel
def replay(loss, data, log, scale, W, shift):
    """Make the logged changes, times ``scale``, in another W."""
    start = 0
    for t in range(log.size[0]):
        i, end = log.rows[t], log.end[t]
        delta = log.delta[start:end]
        if scale != 1:
            delta = delta * W.dtype.type(scale)
        row_update(data.rows, i, W, data.tau, log.classes[start:end], delta, end - start)
        if shift.size > 0 and log.moved[t] != 0:
            row_axpy(data.rows, i, shift, data.tau, W.dtype.type(scale * log.moved[t] / loss.k))
        start = end


@kernel
def full_sweep(
    loss, data, order, begin, W, shift, alpha, fresh, sigma, frequencies, seen, log, scratch
):
    """Visit ``order[begin:]`` looking at all classes.

    Updates W, shift (LLW's common part of all columns; empty otherwise), alpha, the preferences,
    and ``seen`` (n, 2): loss and gap of each example as last seen. A thread that works on its own
    copy of W weighs its changes by ``sigma``. Returns where it stopped (short of the end when
    alpha or the log need more room), the gain of the dual, the largest violation and the class
    scores computed.
    """
    k = W.shape[1]
    total, worst = 0.0, 0.0
    s, classes, a, sc, out = scratch.s, scratch.classes, scratch.a, scratch.sc, scratch.out
    preference, average = frequencies.preference, frequencies.average
    for t in range(begin, order.size):
        if not (alpha_has_room(alpha, k) and has_room(log, k)):
            return t, total, worst, (t - begin) * k
        i = order[t]
        C, A = np.float64(data.C[i]), sigma * data.square[i]
        row_scores(data.rows, i, W, data.tau, s)
        if shift.size > 0:
            common = row_dot(data.rows, i, shift, data.tau)
            for m in range(k):
                s[m] += common
        stored = alpha_load(alpha, i, data.y[i], classes, a)
        q = screen(loss, s, classes, a, sc, stored, C, A, fresh, scratch.v, out)
        for c in range(stored, q):
            a[c] = 0
        changed = step(loss, sc, a, q, C, A, scratch.delta, scratch.v, out)
        seen[i, 0], seen[i, 1] = out[0], out[1]
        total += out[3]
        worst = max(worst, out[2])
        if changed > 0:
            move_weights(data, i, W, shift, loss, sigma, log, scratch, q)
            alpha_store(alpha, i, classes, a, q)
        if preference.size > 0:
            prefer(preference, average, i, out[3])
    return order.size, total, worst, (order.size - begin) * k


@kernel
def prefer(preference, average, i, gain):
    """Raise the preference of an example that gained more than the average, else lower it."""
    if average[0] > 0:
        change = np.exp(min(0.2 * (gain / average[0] - 1.0), 3.0))
        preference[i] = min(max(preference[i] * change, 0.05), 5.0)
    average[0] += (gain - average[0]) / preference.size


@kernel
def shrunk_sweep(loss, data, order, begin, W, shift, alpha, sigma, log, scratch):
    """Visit ``order[begin:]`` looking only at the classes that hold something to move.

    Returns the same as a full sweep.
    """
    total, worst, work = 0.0, 0.0, 0
    classes, a, sc, out = scratch.classes, scratch.a, scratch.sc, scratch.out
    for t in range(begin, order.size):
        if not (alpha_has_room(alpha, W.shape[1]) and has_room(log, W.shape[1])):
            return t, total, worst, work
        i = order[t]
        C, A = np.float64(data.C[i]), sigma * data.square[i]
        stored = alpha_load(alpha, i, data.y[i], classes, a)
        q = free_first(loss, classes, a, stored, C)
        if q == 1:
            continue
        q = abs(q)
        work += q
        row_scores_of(data.rows, i, W, data.tau, classes, q, sc)
        if shift.size > 0:
            common = row_dot(data.rows, i, shift, data.tau)
            for c in range(q):
                sc[c] += common
        changed = step(loss, sc, a, q, C, A, scratch.delta, scratch.v, out)
        total += out[3]
        worst = max(worst, out[2])
        if changed > 0:
            move_weights(data, i, W, shift, loss, sigma, log, scratch, q)
            alpha_store(alpha, i, classes, a, stored)
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
