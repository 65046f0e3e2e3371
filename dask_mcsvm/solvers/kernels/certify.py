"""The certificate: W from alpha, primal and dual objective, all in float64 (docs/math.md).

alpha is repaired on the way (clipped to its box with the float64 C_i, CS: α_y = -Σ of the others),
so that the dual value is a bound whatever rounding did to it. W is made by blocks of classes: a
float64 copy of all of W never exists.
"""

from __future__ import annotations

import numpy as np

from dask_mcsvm.formulations import FORMULATIONS

from .candidate_classes import screen
from .dense_weights import updates_all
from .dual_variables import alpha_load
from .jit import apart, bare_by_type, bare_kernel, kernel
from .margins import add_margins, dual_excess
from .rows import row_axpy, row_scores, row_update, row_update_all
from .steps import CS, LLW, WW


def repair(loss, a, q, C):
    """Make a[:q] feasible in float64; returns what the dual is linear in, for margins of 1."""


def column_weights(loss, a, q, C):
    """Turn repaired a[:q] into the factors of x_i in the columns of W; returns the shift of all."""


def centre(loss, s):
    """Scores of the nearest W that the primal allows: LLW's columns sum to zero, but for rounding.

    Without it the primal of a float32 W could be below the dual.
    """


@bare_by_type(centre)
def _centre(loss, s):
    if loss.instance_class is not LLW:
        return lambda loss, s: None

    def lee_lin_wahba(loss, s):
        mean = 0.0
        for m in range(s.size):
            mean += s[m]
        mean /= s.size
        for m in range(s.size):
            s[m] -= mean

    return lee_lin_wahba


def centre_columns(W):
    """Take off W, in place, the mean of its columns: what sums of large numbers left of zero."""
    W -= W.mean(axis=1, dtype=np.float64, keepdims=True)


def common_square(W, formulation):
    """What `centre` takes off ‖W‖²: k times the square of the columns' mean, in float64."""
    if not FORMULATIONS[formulation].columns_sum_to_zero:
        return 0.0
    total = W.sum(axis=1, dtype=np.float64)
    return float(np.square(total).sum()) / W.shape[1]


@bare_by_type(repair)
def _repair(loss, a, q, C):
    if loss.instance_class is CS:

        def crammer_singer(loss, a, q, C):
            total = 0.0
            for c in range(1, q):
                a[c] = min(a[c], 0.0)
                total -= a[c]
            if total > C:
                for c in range(1, q):
                    a[c] *= C / total
                total = C
            a[0] = total
            return total

        return crammer_singer

    is_llw = loss.instance_class is LLW
    own = 0 if loss.instance_class not in (LLW, WW) else 1

    def box(loss, a, q, C):
        total = C * (loss.k - 1) if is_llw else 0.0
        for c in range(own, q):
            a[c] = min(max(a[c], 0.0), C)
            total += -a[c] if is_llw else a[c]
        return total

    return box


@bare_by_type(column_weights)
def _column_weights(loss, a, q, C):
    if loss.instance_class is CS:
        return lambda loss, a, q, C: 0.0

    if loss.instance_class is LLW:

        def lee_lin_wahba(loss, a, q, C):
            total = C
            for c in range(1, q):
                total += a[c]
            a[0] = C
            return -total / loss.k

        return lee_lin_wahba

    is_ww = loss.instance_class is WW

    def box(loss, a, q, C):
        total = 0.0
        for c in range(1, q):
            total += a[c]
            a[c] = -a[c]
        if is_ww:
            a[0] = total
        return 0.0

    return box


@kernel
def weights_block(loss, rows, y, C, tau, margins, alpha, first, last, W, shift, scratch):
    """Add to W (d + 1, last - first), float64, columns first..last of W(alpha).

    LLW's common part of all columns goes to ``shift`` (d + 1,) unless that is empty. Returns the
    part of the dual objective that is linear in alpha, of all classes.
    """
    classes, a = scratch.classes, scratch.v
    narrow = apart(classes.size, classes.dtype)
    factors, spread = apart(classes.size, a.dtype), apart(classes.size, a.dtype)
    linear = 0.0
    for i in range(y.size):
        q = alpha_load(alpha, i, y[i], classes, a)
        linear += repair(loss, a, q, C[i])
        linear += dual_excess(margins, y[i], classes, a, q)
        common = column_weights(loss, a, q, C[i])
        count = 0
        for c in range(q):
            if first <= classes[c] < last and a[c] != 0:
                narrow[count] = classes[c] - first
                factors[count] = a[c]
                count += 1
        if count > 2 and updates_all(W):
            spread[: last - first] = 0
            for c in range(count):
                spread[narrow[c]] = factors[c]
            row_update_all(rows, i, W, tau, spread)
        elif count > 0:
            row_update(rows, i, W, tau, narrow, factors, count)
        if common != 0 and shift.size > 0:
            row_axpy(rows, i, shift, tau, common)
    return linear


@bare_kernel
def finish_block(block, shift, first, W, squares):
    """Round a float64 block of columns, plus the common shift, into W; squares[m] = ‖w_m‖²."""
    d1, width = block.shape
    squares[first : first + width] = 0.0
    for j in range(d1):
        common = shift[j] if shift.size > 0 else 0.0
        for c in range(width):
            value = block[j, c] + common
            squares[first + c] += value * value
            W[j, first + c] = value


@kernel
def examine(loss, rows, y, C, tau, margins, alpha, W, start, stop, seen, scratch):
    """Loss and share of the gap of examples start..stop at W, float64, into ``seen`` (n, 2)."""
    k = loss.k
    s = apart(k, np.float64)
    sc, spare = apart(k + 1, np.float64), apart(k + 1, np.float64)
    for i in range(start, stop):
        q = alpha_load(alpha, i, y[i], scratch.classes, scratch.v)
        repair(loss, scratch.v, q, C[i])
        row_scores(rows, i, W, tau, s)
        centre(loss, s)
        add_margins(margins, y[i], s)
        screen(loss, s, scratch.classes, scratch.v, sc, q, C[i], 1.0, 0, spare, scratch.out)
        seen[i, 0], seen[i, 1] = scratch.out[0], scratch.out[1]
