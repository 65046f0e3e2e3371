"""Visits of Crammer-Singer where no W is at hand: kernels behind `exchange`.

A group of classes scores some rows with its columns of W and lists, for each row, the classes that
may join (`list_rivals`). Visits then solve every row exactly over its listed classes, one after the
other (`visit_candidates`). Their scores are those of the W that the step began with, plus what
earlier visits of the step changed. Of sparse rows that change is a W of its own, as lists and dense
rows (`Hybrid`). Of dense rows it would be as large as W; the scores are sums of inner products
instead, Σ_j (alpha_jm - before_jm) <x_j, x_i> over the rows j that moved in class m (`Moved`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dask_mcsvm.solvers.kernels.candidate_classes import take_largest
from dask_mcsvm.solvers.kernels.hybrid_weights import Hybrid
from dask_mcsvm.solvers.kernels.jit import apart, bare_by_type, bare_part, kernel
from dask_mcsvm.solvers.kernels.margins import add_listed_margins, add_margins
from dask_mcsvm.solvers.kernels.rows import (
    row_axpy,
    row_dot,
    row_has_room,
    row_scores,
    row_scores_of,
    row_update,
)
from dask_mcsvm.solvers.kernels.standard_rows import CentredRows, kind_of
from dask_mcsvm.solvers.kernels.steps import step
from dask_mcsvm.solvers.sdm.sweeps import prefer

#: Stands for the next place of one that is in no list.
UNLISTED = -2


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
    """Which variables of a step of dense rows have moved: for every class a list of places."""

    head: np.ndarray  # (k,) int64, a place in `Candidates`, -1 where there is none
    after: np.ndarray  # (all,) int64, the next of the list; UNLISTED where a place is in none
    row: np.ndarray  # (all,) int64
    products: np.ndarray  # (rows,) float64, <x_j, x_i> for the row i of a visit
    known: np.ndarray  # (rows,) int64, the visit that they are of
    x: np.ndarray  # (d + 1,) float, zeros but for the row of a visit


def no_moves(candidates: Candidates, k: int, n_features: int, dtype: np.dtype) -> Moved:
    """Before the first visit of a step."""
    n = candidates.start.size - 1
    return Moved(
        np.full(k, -1, np.int64),
        np.full(candidates.classes.size, UNLISTED, np.int64),
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


def moves_have_room(rows, i, moved, q):
    """Whether row i can move in q classes now."""


@bare_by_type(moves_have_room)
def _moves_have_room(rows, i, moved, q):
    if kind_of(moved) is not Hybrid:
        return lambda rows, i, moved, q: True
    if kind_of(rows) is CentredRows:
        return lambda rows, i, moved, q: row_has_room(rows.csr, i, moved, q)
    return lambda rows, i, moved, q: row_has_room(rows, i, moved, q)


def moved_scores(data, i, now, candidates, moved, classes, q, more):
    """more[c] = what the visits of a step so far added to the scores of row i for c < q."""


@bare_by_type(moved_scores)
def _moved_scores(data, i, now, candidates, moved, classes, q, more):
    if kind_of(moved) is Hybrid:
        return lambda data, i, now, candidates, moved, classes, q, more: row_scores_of(
            data.rows, i, moved, more.dtype.type(0), classes, q, more
        )

    def products(data, i, now, candidates, moved, classes, q, more):
        row_axpy(data.rows, i, moved.x, moved.x.dtype.type(0), moved.x.dtype.type(1))
        for c in range(q):
            total, p = 0.0, moved.head[classes[c]]
            while p >= 0:
                j = moved.row[p]
                if moved.known[j] != now:
                    moved.known[j] = now
                    moved.products[j] = row_dot(data.rows, j, moved.x, moved.x.dtype.type(0))
                total += (np.float64(candidates.alpha[p]) - candidates.before[p]) * moved.products[
                    j
                ]
                p = moved.after[p]
            more[c] = total
        row_axpy(data.rows, i, moved.x, moved.x.dtype.type(0), moved.x.dtype.type(-1))

    return products


def note_moves(data, i, first, moved, classes, delta, q):
    """Variables of row i, its candidates from ``first`` on, moved by delta[:q]."""


@bare_by_type(note_moves)
def _note_moves(data, i, first, moved, classes, delta, q):
    if kind_of(moved) is Hybrid:

        def by_feature(data, i, first, moved, classes, delta, q):
            count = 0
            for c in range(q):
                if delta[c] != 0:
                    classes[count], delta[count] = classes[c], delta[c]
                    count += 1
            row_update(data.rows, i, moved, delta.dtype.type(0), classes, delta, count)

        return by_feature

    def by_class(data, i, first, moved, classes, delta, q):
        for c in range(q):
            if delta[c] != 0 and moved.after[first + c] == UNLISTED:
                moved.after[first + c] = moved.head[classes[c]]
                moved.head[classes[c]] = first + c

    return by_class


@bare_part
def current_scores(data, i, now, candidates, moved, intercept, scratch, more):
    """List the candidates of row i with their variables and present scores; returns how many."""
    classes, a, sc = scratch.classes, scratch.a, scratch.sc
    first = candidates.start[i]
    q = candidates.start[i + 1] - first
    for c in range(q):
        classes[c], a[c] = candidates.classes[first + c], candidates.alpha[first + c]
    moved_scores(data, i, now, candidates, moved, classes, q, more)
    for c in range(q):
        there = np.float64(candidates.scores[first + c]) + data.tau * intercept[classes[c]]
        sc[c] = there + more[c]
    add_listed_margins(data.margins, data.y[i], classes, q, sc)
    return q


@bare_part
def loss_and_gap(a, sc, q, C):
    """What a row costs at these scores, and its share of the duality gap; its own class is first.

    They are those of all classes, as long as no class that is not listed is nearer.
    """
    own = np.float64(sc[0]) - 1.0
    top, gap = own, a[0] * own
    for c in range(1, q):
        top = max(top, np.float64(sc[c]))
        gap += a[c] * np.float64(sc[c])
    return top - own, gap + C * (top - own)


@kernel
def visit_candidates(
    loss, data, order, begin, begun, candidates, moved, intercept, frequencies, seen, stirred,
    scratch,
):  # fmt: skip
    """Solve the rows of ``order[begin:]`` one after another over their candidates [CS-S].

    ``begun`` is how many visits the step had before ``order``. ``seen`` (n, 2) becomes loss and gap
    of each row at this visit, ``stirred`` (n,) whether it moved. Returns where it stopped (short of
    the end when what moved needs larger pools), the rise of the dual and the largest violation.
    """
    total, worst = 0.0, 0.0
    a, sc, delta, out = scratch.a, scratch.sc, scratch.delta, scratch.out
    more = apart(a.size, a.dtype)
    for t in range(begin, order.size):
        i = order[t]
        first, C = candidates.start[i], np.float64(data.C[i])
        if not moves_have_room(data.rows, i, moved, candidates.start[i + 1] - first):
            return t, total, worst
        q = current_scores(data, i, begun + t, candidates, moved, intercept, scratch, more)
        seen[i, 0], seen[i, 1] = loss_and_gap(a, sc, q, C)
        changed = step(loss, sc, a, q, C, data.square[i], delta, scratch.v, out)
        if changed > 0:
            for c in range(q):
                candidates.alpha[first + c] = a[c]
                intercept[scratch.classes[c]] += np.float64(data.tau) * delta[c]
            note_moves(data, i, first, moved, scratch.classes, delta, q)
        stirred[i] = changed > 0
        total += out[3]
        worst = max(worst, out[2])
        prefer(frequencies, i, out[3], changed > 0)
    return order.size, total, worst


@kernel
def add_moves(rows, tau, start, classes, change, W):
    """W += x_i change_im for the classes of one group that rows moved in."""
    for i in range(start.size - 1):
        first, last = start[i], start[i + 1]
        if last > first:
            row_update(rows, i, W, tau, classes[first:last], change[first:last], last - first)
