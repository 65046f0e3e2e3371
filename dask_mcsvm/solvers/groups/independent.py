"""Visits of class groups whose classes are independent, and losses by group (docs/math.md).

The kernels behind averaging and classes; rounds use those of the sequential dual method.

A visit sees W only as the columns of the groups it was given, each (d + 1, classes of the group),
and alpha only as blocks (rows, classes of one group). For each example it solves the variables of
its block exactly, all others held fixed. The arrays given are changed in place, nothing else is.

``rest`` (rows, classes), uint8, belongs to a block: in how many visits in a row a variable has not
moved. Above ``patience`` the variable rests; a patience of 255 visits everything. ``order`` is
(passes, visits): each line names the same rows, in an order of its own. After the first pass only
rows that moved the last time are visited again. Rows without features are never visited; see
`settle_zero_rows`.

Each visit returns the rise of the dual, the largest violation met and the class scores computed.
"""

from __future__ import annotations

import numpy as np

from dask_mcsvm.solvers.kernels.jit import apart, by_type, kernel, part
from dask_mcsvm.solvers.kernels.rows import row_scores, row_scores_of, row_update
from dask_mcsvm.solvers.kernels.steps import CS, OVR, WW, box_violation
from dask_mcsvm.solvers.sdm.sweeps import Data, make_scratch

#: A patience that lets nothing rest.
EVERYTHING = 255
#: A score read through a list costs about as much as so many in a row of all classes.
GATHER = 4


def make_group_scratch(widest, dtype):
    """Working space for visits of groups with up to so many classes."""
    return make_scratch(widest, np.dtype(dtype))


@part
def grow_older(rest, rows):
    """One more visit in which the variables of these rows have not moved, until they do."""
    for t in range(rows.size):
        for m in range(rest.shape[1]):
            if rest[rows[t], m] < 255:
                rest[rows[t], m] += 1


@part
def list_scores(data, i, W, skip, rest, patience, scratch):
    """List the classes of a group that do not rest, and their scores, from position 1.

    Where most are awake all are listed: their scores are computed side by side at no more cost.
    Returns the length of the list and the class scores computed. ``skip`` is left out (-1: none).
    """
    classes, sc, s = scratch.classes, scratch.sc, scratch.s
    width, q = W.shape[1], 1
    for m in range(width):
        if m != skip and rest[i, m] <= patience:
            classes[q] = m
            q += 1
    if q == 1:
        return 1, 0
    if GATHER * (q - 1) < width:
        row_scores_of(data.rows, i, W, data.tau, classes[1:], q - 1, sc[1:])
        return q, q - 1
    row_scores(data.rows, i, W, data.tau, s[:width])
    q = 1
    for m in range(width):
        if m != skip:
            classes[q] = m
            sc[q] = s[m]
            q += 1
    return q, width


@part
def keep_moved(alpha, rest, i, scratch, q):
    """Store a[1:q] of row i; what moved comes first in the list. Returns where that ends."""
    classes, a, delta = scratch.classes, scratch.a, scratch.delta
    end = 1
    for c in range(1, q):
        if delta[c] != 0:
            m = classes[c]
            alpha[i, m] = a[c]
            rest[i, m] = 0
            classes[end], delta[end] = m, delta[c]
            end += 1
    return end


def own_sign(loss):
    """+1 where the own class is a variable like the others (OVR), 0 where it is none (LLW)."""


@by_type(own_sign)
def _own_sign(loss):
    return (lambda loss: 1) if loss.instance_class is OVR else (lambda loss: 0)


@part
def clip_row(loss, data, i, W, alpha, rest, patience, scratch):
    """One example against the classes of one group where classes are independent [OVR-S] [AVG].

    Returns whether anything moved and the class scores computed; scratch.out[2] and [3] are the
    violation and the rise of the dual. LLW with w_bar fixed is OVR without the own class, as
    kappa = 0.
    """
    classes, a, sc, delta, out = scratch.classes, scratch.a, scratch.sc, scratch.delta, scratch.out
    y, C, A = data.y[i], np.float64(data.C[i]), data.square[i]
    out[2], out[3] = 0.0, 0.0
    if A == 0:
        return False, 0
    skip = -1 if own_sign(loss) == 1 else y
    q, work = list_scores(data, i, W, skip, rest, patience, scratch)
    gain, worst, moved = 0.0, 0.0, False
    tiny = 2 * np.finfo(a.dtype).eps
    for c in range(1, q):
        sign = 1.0 if classes[c] == y else -1.0
        old = np.float64(alpha[i, classes[c]])
        g = sign * sc[c] - 1.0  # [OVR-G] [LLW-G]
        worst = max(worst, box_violation(g, old, C))
        a[c] = min(max(old - g / A, 0.0), C)
        if abs(a[c] - old) <= tiny * a[c] and a[c] < C:
            a[c] = old  # rounding alone would keep it awake
        change = a[c] - old
        gain -= change * (g + 0.5 * A * change)
        delta[c] = sign * change
        moved = moved or change != 0
    out[2], out[3] = worst, gain
    if moved:
        end = keep_moved(alpha, rest, i, scratch, q)
        row_update(data.rows, i, W, data.tau, classes[1:], delta[1:], end - 1)
    return moved, work


@kernel
def clip_visit(loss, data, order, W, alpha, rest, patience, scratch):
    """Visit the variables of all given rows for the classes of one group, ``loss`` OVR or LLW.

    ``data.y`` is the place of y_i among the columns of W, -1 where its class is in another group.
    For LLW W holds w_bar - Σ_i alpha_im x_i with w_bar fixed: the rise is that of the dual at this
    w_bar [AVG], and the caller moves w_bar. alpha itself is stored, for LLW too.
    """
    gain, worst, work = 0.0, 0.0, 0
    due = np.ones(data.y.size, np.bool_)
    grow_older(rest, order[0])
    for p in range(order.shape[0]):
        for t in range(order.shape[1]):
            i = order[p, t]
            if due[i]:
                due[i], scores = clip_row(loss, data, i, W, alpha, rest, patience, scratch)
                work += scores
                gain += scratch.out[3]
                worst = max(worst, scratch.out[2])
    return gain, worst, work


@kernel
def add_clip_weights(loss, data, C, alpha, W, scratch):
    """Add what a block of alpha puts into the columns of its group: Σ_i σ_im alpha_im x_i.

    For LLW that is -Σ_i alpha_im x_i; the caller adds w_bar. W is float64, C (rows,) float64; alpha
    is read as clipped to its box. Returns Σ alpha of the block.
    """
    classes, a = scratch.classes, scratch.v
    linear = 0.0
    for i in range(data.y.size):
        y, q = data.y[i], 0
        for m in range(alpha.shape[1]):
            value = min(max(np.float64(alpha[i, m]), 0.0), C[i])
            if value > 0 and (m != y or own_sign(loss) == 1):
                classes[q], a[q] = m, value if m == y else -value
                linear += value
                q += 1
        if q > 0:
            row_update(data.rows, i, W, data.tau, classes, a, q)
    return linear


def settle_zero_rows(data: Data, alpha, own):
    """Give rows without features their optimal variables in a block [BOX-Z].

    ``own`` says whether column data.y[i] is a variable, as in OVR.
    """
    empty = np.flatnonzero(data.square == 0)
    alpha[empty] = data.C[empty, None]
    if not own:
        inside = empty[data.y[empty] >= 0]
        alpha[inside, data.y[inside]] = 0


# -- losses by group -------------------------------------------------------------------------------


@kernel
def add_own_scores(rows, y, tau, W, own):
    """own[i] = w_y·x_i in float64 for the rows whose class is among the columns of W (y >= 0)."""
    s = apart(W.shape[1], np.float64)
    for i in range(y.size):
        if y[i] >= 0:
            row_scores(rows, i, W, tau, s)
            own[i] = s[y[i]]


def group_loss(loss, s, y, own, i, held):
    """``held`` (a largest rival, or a sum of hinges) with the scores s of one more group."""


@by_type(group_loss)
def _group_loss(loss, s, y, own, i, held):
    if loss.instance_class is CS:

        def crammer_singer(loss, s, y, own, i, held):
            for m in range(s.size):
                if m == y:
                    own[i] = s[m]
                else:
                    held = max(held, s[m])
            return held

        return crammer_singer

    if loss.instance_class is OVR:

        def one_vs_rest(loss, s, y, own, i, held):
            for m in range(s.size):
                held += max(0.0, 1.0 - s[m] if m == y else 1.0 + s[m])  # [OVR-P]
            return held

        return one_vs_rest

    is_ww = loss.instance_class is WW

    def rivals(loss, s, y, own, i, held):
        margin = 1.0 - own[i] if is_ww else 1.0
        for m in range(s.size):
            if m != y:
                held += max(0.0, margin + s[m])  # [WW-P] [LLW-P]
        return held

    return rivals


@kernel
def add_group_losses(loss, rows, y, tau, W, own, rivals):
    """Add what the classes of one group cost each row, in float64.

    y is the place of y_i among the columns of W, -1 where its class is in another group. For
    Crammer-Singer ``rivals`` is the largest score of a rival and ``own`` is filled where y >= 0;
    for the others ``rivals`` is a sum of hinges, and Weston-Watkins reads ``own``.
    """
    s = apart(W.shape[1], np.float64)
    for i in range(y.size):
        row_scores(rows, i, W, tau, s)
        rivals[i] = group_loss(loss, s, y[i], own, i, rivals[i])
