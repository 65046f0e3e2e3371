"""Visits of Crammer-Singer where no W is at hand: kernels behind `exchange`.

A group of classes scores some rows with its columns of W and lists, for each row, the classes that
may join (`list_rivals`). Visits then solve every row exactly over its listed classes, one after the
other (`visit_candidates`). Their scores are those of the W that the step began with, plus what
earlier visits of the step changed: Σ_j (alpha_jm - before_jm) <x_j, x_i>, over the rows j of the
step whose alpha_jm moved. The products are made when they are needed; no W and no Gram matrix is.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types

from dask_mcsvm.solvers.kernels.candidate_classes import take_largest
from dask_mcsvm.solvers.kernels.jit import apart, bare_by_type, bare_part, kernel
from dask_mcsvm.solvers.kernels.margins import add_listed_margins, add_margins
from dask_mcsvm.solvers.kernels.rows import row_axpy, row_dot, row_scores, row_update
from dask_mcsvm.solvers.kernels.standard_rows import CentredRows, kind_of
from dask_mcsvm.solvers.kernels.steps import step
from dask_mcsvm.solvers.sdm.sweeps import prefer


class Candidates(NamedTuple):
    """The classes that each row of a step may change, its own class first.

    Those of row i are at ``start[i]:start[i + 1]``.
    """

    start: np.ndarray  # (rows + 1,) int64
    classes: np.ndarray  # (all,) int32
    scores: np.ndarray  # (all,) float, w_m·x_i when the step began, the intercept apart
    alpha: np.ndarray  # (all,) float; visits change it
    before: np.ndarray  # (all,) float, alpha when the step began


class Moved(NamedTuple):
    """Which variables of a step have moved: for every class a list of places in `Candidates`."""

    head: np.ndarray  # (k,) int64, -1 where there is none
    after: np.ndarray  # (all,) int64, the next of the list; -2 where a place is in no list
    row: np.ndarray  # (all,) int64
    products: np.ndarray  # (rows,) float64, <x_j, x_i> for the row i of a visit
    known: np.ndarray  # (rows,) int64, the visit that they are of
    x: np.ndarray  # (d + 1,) float, zeros but for the row of a visit


def no_moves(candidates: Candidates, k: int, n_features: int, dtype: np.dtype) -> Moved:
    """Before the first visit of a step."""
    n = candidates.start.size - 1
    return Moved(
        np.full(k, -1, np.int64),
        np.full(candidates.classes.size, -2, np.int64),
        np.repeat(np.arange(n), np.diff(candidates.start)),
        np.zeros(n),
        np.full(n, -1, np.int64),
        np.zeros(n_features + 1, dtype),
    )


@kernel
def list_rivals(rows, place, tau, margins, labels, intercept, W, start, held, known, own, best):
    """Scores of some rows for the classes of one group, and its best rivals of each row.

    ``place`` of y_i among the columns of W, -1 where it is in no column. The classes that row i
    holds here are ``held[start[i]:start[i + 1]]``, their scores go to ``known``, that of the own
    class to ``own``. ``best`` are the classes (n, rivals) and scores of the others with the largest
    score, -1 where there are no more. Rivals are compared with intercept and margins, scores are
    without both.
    """
    k, (rivals, scores) = W.shape[1], best
    s, value = apart(k, W.dtype), apart(k, W.dtype)
    classes, sc = apart(k + 1, np.int32), apart(k + 1, W.dtype)
    none = W.dtype.type(-np.inf)
    for i in range(place.size):
        row_scores(rows, i, W, W.dtype.type(0), s)
        for m in range(k):
            value[m] = s[m] + tau * intercept[m]
        add_margins(margins, labels[i], value)
        for p in range(start[i], start[i + 1]):
            known[p] = s[held[p]]
            value[held[p]] = none
        if place[i] >= 0:
            own[i] = s[place[i]]
            value[place[i]] = none
        count = take_largest(value, none, classes, sc, 0, rivals.shape[1])
        for c in range(rivals.shape[1]):
            rivals[i, c] = classes[c] if c < count else -1
            scores[i, c] = s[classes[c]] if c < count else none


def row_product(rows, i, j, x):
    """<x_i, x_j>, the constant feature apart; ``x`` holds what is stored of row i."""


@bare_by_type(row_product)
def _row_product(rows, i, j, x):
    if kind_of(rows) is CentredRows:
        return lambda rows, i, j, x: (
            np.float64(row_dot(rows.csr, j, x, 0.0)) - rows.common[i] - rows.common[j] + rows.far
        )
    return lambda rows, i, j, x: np.float64(row_dot(rows, j, x, 0.0))


def spread_row(rows, i, x, scale):
    """x += scale times what is stored of row i."""


@bare_by_type(spread_row)
def _spread_row(rows, i, x, scale):
    if kind_of(rows) is CentredRows:
        return lambda rows, i, x, scale: row_axpy(rows.csr, i, x, x.dtype.type(0), scale)
    return lambda rows, i, x, scale: row_axpy(rows, i, x, x.dtype.type(0), scale)


@bare_part
def current_scores(data, i, now, candidates, moved, intercept, scratch):
    """List the candidates of row i with their variables and present scores; returns how many."""
    classes, a, sc = scratch.classes, scratch.a, scratch.sc
    first = candidates.start[i]
    q = candidates.start[i + 1] - first
    spread_row(data.rows, i, moved.x, a.dtype.type(1))
    for c in range(q):
        m = candidates.classes[first + c]
        score = np.float64(candidates.scores[first + c]) + data.tau * intercept[m]
        p = moved.head[m]
        while p >= 0:
            j = moved.row[p]
            if moved.known[j] != now:
                moved.known[j] = now
                moved.products[j] = row_product(data.rows, i, j, moved.x)
            score += (np.float64(candidates.alpha[p]) - candidates.before[p]) * moved.products[j]
            p = moved.after[p]
        classes[c], a[c], sc[c] = m, candidates.alpha[first + c], score
    spread_row(data.rows, i, moved.x, a.dtype.type(-1))
    add_listed_margins(data.margins, data.y[i], classes, q, sc)
    return q


@bare_part
def store_moves(data, i, candidates, moved, intercept, scratch, q):
    """What a step changed: variables, the lists of what moved, the intercept."""
    first = candidates.start[i]
    for c in range(q):
        if scratch.delta[c] != 0:
            p, m = first + c, scratch.classes[c]
            candidates.alpha[p] = scratch.a[c]
            intercept[m] += np.float64(data.tau) * scratch.delta[c]
            if moved.after[p] == -2:
                moved.after[p], moved.head[m] = moved.head[m], p


@kernel
def visit_candidates(
    loss, data, order, begun, candidates, moved, intercept, frequencies, seen, stirred, scratch
):
    """Solve the rows of ``order`` one after another over their candidates [CS-S].

    ``begun`` is how many visits the step had before. ``seen`` (n, 2) becomes loss and gap of each
    row at this visit, ``stirred`` (n,) whether it moved. Returns the rise of the dual and the
    largest violation.
    """
    total, worst = 0.0, 0.0
    a, sc, out = scratch.a, scratch.sc, scratch.out
    for t in range(order.size):
        i = order[t]
        C = np.float64(data.C[i])
        q = current_scores(data, i, begun + t, candidates, moved, intercept, scratch)
        top, gap = np.float64(sc[0]) - 1.0, 0.0
        for c in range(1, q):
            top = max(top, np.float64(sc[c]))
        for c in range(q):
            gap += a[c] * (np.float64(sc[c]) - (1.0 if c == 0 else 0.0))
        seen[i, 0] = top - (np.float64(sc[0]) - 1.0)
        seen[i, 1] = gap + C * seen[i, 0]
        changed = step(loss, sc, a, q, C, data.square[i], scratch.delta, scratch.v, out)
        if changed > 0:
            store_moves(data, i, candidates, moved, intercept, scratch, q)
        stirred[i] = changed > 0
        total += out[3]
        worst = max(worst, out[2])
        prefer(frequencies, i, out[3], changed > 0)
    return total, worst


@kernel
def add_moves(rows, tau, start, classes, change, W):
    """W += x_i change_im for the classes of one group that rows moved in."""
    for i in range(start.size - 1):
        first, last = start[i], start[i + 1]
        if last > first:
            row_update(rows, i, W, tau, classes[first:last], change[first:last], last - first)
