"""The proximal step of a row's loss, and the curvature it leaves ([SPLIT] of docs/math.md).

A row is seen in units of its own C_i: its loss costs 1, its multipliers ``b`` are B(alpha_i)/C_i.
For Lee-Lin-Wahba ``b`` is -alpha_i/C_i: the part common to all classes is left out, because it is
the same as centring the columns of W.

``v`` and ``b`` are rows of k classes, ``u`` is scratch space of k places.
"""

from __future__ import annotations

import numpy as np

from dask_mcsvm.solvers.kernels.jit import apart, by_type, kernel, part
from dask_mcsvm.solvers.kernels.steps import CS, LLW, OVR, WW, clipped_sum_root, simplex_threshold


def prox_row(loss, v, y, penalty, b, u):
    """b of z = argmin loss(z) + (penalty/2) ‖z - v‖²; returns l(alpha)/C, which the dual adds up.

    The same as `block_step` from alpha = 0 with scores v, A = 1/penalty and C = 1.
    """


def row_loss(loss, s, y):
    """The loss of one row's scores, float64."""


def free_classes(loss, b, y, classes):
    """List the classes among which a small change of v moves b; returns how many (0: none)."""


def project_free(loss, t, q):
    """t[:q], a change of v on the free classes, becomes the change of -b/penalty there.

    An orthogonal projection J on the span of the free variables' coefficients. Of
    Lee-Lin-Wahba it leaves out the part common to all classes.
    """


def free_weight(loss, q):
    """The diagonal of J: what one free class of q keeps of its own change."""


def repair_row(loss, a, y, C, b):
    """Coefficients b (float64, times C) of the feasible alpha nearest to what is stored as ``a``.

    Returns l(alpha).
    """


@part
def best_rival(v, y):
    """The largest of the rivals' entries."""
    best = -np.inf
    for m in range(v.size):
        if m != y:
            best = max(best, np.float64(v[m]))
    return best


@by_type(prox_row)
def _prox_row(loss, v, y, penalty, b, u):
    if loss.instance_class is CS:

        def crammer_singer(loss, v, y, penalty, b, u):
            top = best_rival(v, y) + 1.0
            if v[y] >= top:
                b[:] = 0
                return 0.0
            for m in range(loss.k):
                u[m] = penalty * (v[m] + (m != y) - top) + (m == y)
            theta = simplex_threshold(u, loss.k, 1.0)
            for m in range(loss.k):
                b[m] = (m == y) - max(0.0, u[m] - theta)  # [CS-S]
            return np.float64(b[y])

        return crammer_singer

    if loss.instance_class is OVR:

        def one_vs_rest(loss, v, y, penalty, b, u):
            linear = 0.0
            for m in range(loss.k):
                sign = 1.0 if m == y else -1.0
                alpha = min(max(penalty * (1.0 - sign * v[m]), 0.0), 1.0)  # [OVR-S]
                b[m] = sign * alpha
                linear += alpha
            return linear

        return one_vs_rest

    is_llw = loss.instance_class is LLW

    def coupled(loss, v, y, penalty, b, u):
        kappa = -1.0 / loss.k if is_llw else 1.0
        own = 0.0 if is_llw else np.float64(v[y])
        b[:] = 0
        if best_rival(v, y) <= own - 1.0:
            return 0.0
        for m in range(loss.k):
            if m != y:
                u[m + 1 if m < y else m] = penalty * (1.0 + v[m] - own)
        S = clipped_sum_root(u, loss.k, kappa, 1.0, 0.0)
        linear = 0.0
        for m in range(loss.k):
            if m != y:
                alpha = min(max(u[m + 1 if m < y else m] - kappa * S, 0.0), 1.0)  # [WW-S] [LLW-S]
                b[m] = -alpha
                linear += alpha
        if not is_llw:
            b[y] = linear
        return linear

    return coupled


@by_type(row_loss)
def _row_loss(loss, s, y):
    if loss.instance_class is CS:
        return lambda loss, s, y: max(0.0, 1.0 + best_rival(s, y) - s[y])  # [CS-P]

    if loss.instance_class is OVR:

        def one_vs_rest(loss, s, y):
            total = 0.0
            for m in range(loss.k):
                total += max(0.0, 1.0 - s[m] if m == y else 1.0 + s[m])  # [OVR-P]
            return total

        return one_vs_rest

    is_llw = loss.instance_class is LLW

    def rivals(loss, s, y):
        own = 0.0 if is_llw else np.float64(s[y])
        total = 0.0
        for m in range(loss.k):
            if m != y:
                total += max(0.0, 1.0 + s[m] - own)  # [WW-P] [LLW-P]
        return total

    return rivals


@by_type(free_classes)
def _free_classes(loss, b, y, classes):
    if loss.instance_class is CS:

        def crammer_singer(loss, b, y, classes):
            q = 0
            for m in range(loss.k):
                if (b[m] < 1) if m == y else (b[m] < 0):
                    classes[q] = m
                    q += 1
            return q if q > 1 else 0

        return crammer_singer

    is_ww, is_ovr = loss.instance_class is WW, loss.instance_class is OVR

    def box(loss, b, y, classes):
        q = 0
        for m in range(loss.k):
            if 0 < abs(b[m]) < 1 and (is_ovr or m != y):
                classes[q] = m
                q += 1
        if is_ww and q > 0:
            classes[q] = y
            q += 1
        return q

    return box


@by_type(project_free)
def _project_free(loss, t, q):
    if loss.instance_class is OVR:
        return lambda loss, t, q: None

    is_llw = loss.instance_class is LLW

    def shift(loss, t, q):
        total = 0.0
        for c in range(q):
            total += t[c]
        change = total / (loss.k - q) if is_llw else -total / q
        for c in range(q):
            t[c] += change

    return shift


@by_type(free_weight)
def _free_weight(loss, q):
    if loss.instance_class in (CS, WW):
        return lambda loss, q: 1.0 - 1.0 / q
    return lambda loss, q: 1.0


@by_type(repair_row)
def _repair_row(loss, a, y, C, b):
    if loss.instance_class is CS:

        def crammer_singer(loss, a, y, C, b):
            total = 0.0
            for m in range(loss.k):
                b[m] = 0.0 if m == y else min(np.float64(a[m]), 0.0)
                total -= b[m]
            if total > C:
                for m in range(loss.k):
                    b[m] *= C / total
                total = C
            b[y] = total
            return total

        return crammer_singer

    is_ww, is_ovr = loss.instance_class is WW, loss.instance_class is OVR

    def box(loss, a, y, C, b):
        total = 0.0
        for m in range(loss.k):
            sign = 1.0 if m == y else -1.0
            alpha = min(max(sign * np.float64(a[m]), 0.0), C) if is_ovr or m != y else 0.0
            b[m] = sign * alpha
            total += alpha
        if is_ww:
            b[y] = total
        return total

    return box


# -- blocks of rows --------------------------------------------------------------------------------


def is_centred(loss):
    """Whether b is stored without its part common to all classes."""


@by_type(is_centred)
def _is_centred(loss):
    answer = loss.instance_class is LLW
    return lambda loss: answer


@kernel
def shifted(loss, S, T, t, fixed, penalty, i, v):
    """v = s_i + t·(scores of the direction) - B(fixed_i)/penalty: the prox is taken there."""
    common = 0.0
    if is_centred(loss):
        for m in range(v.size):
            common += fixed[i, m]
        common /= v.size
    if t == 0:
        for m in range(v.size):
            v[m] = S[i, m] - (fixed[i, m] - common) / penalty[i]
    else:
        for m in range(v.size):
            v[m] = S[i, m] + t * T[i, m] - (fixed[i, m] - common) / penalty[i]


@kernel
def prox_rows(loss, S, fixed, penalty, y, C, b, Cb, out):
    """b = prox at S - fixed/penalty of a block of rows, each with its penalty, and Cb = C_i b_i.

    out: Σ C_i loss(s_i), Σ l(alpha_i), the largest |b - fixed|/penalty: how far a score is from the
    one it was split into.
    """
    k = loss.k
    v, u = apart(k, np.float64), apart(k, np.float64)
    primal, linear, worst = 0.0, 0.0, 0.0
    for i in range(y.size):
        shifted(loss, S, S, 0.0, fixed, penalty, i, v)
        linear += C[i] * prox_row(loss, v, y[i], penalty[i], b[i], u)
        primal += C[i] * row_loss(loss, S[i], y[i])
        for m in range(k):
            Cb[i, m] = C[i] * b[i, m]
            worst = max(worst, abs(np.float64(b[i, m]) - fixed[i, m]) / penalty[i])
    out[0], out[1], out[2] = primal, linear, worst


@kernel
def slope(loss, S, T, t, fixed, penalty, y, C):
    """-Σ C_i b_i·t_i at S + t T: the derivative along T of the smoothed losses of these rows."""
    k = loss.k
    v, u, b = apart(k, np.float64), apart(k, np.float64), apart(k, np.float64)
    total = 0.0
    for i in range(y.size):
        shifted(loss, S, T, t, fixed, penalty, i, v)
        prox_row(loss, v, y[i], penalty[i], b, u)
        along = 0.0
        for m in range(k):
            along += b[m] * T[i, m]
        total -= C[i] * along
    return total


@kernel
def certify_scores(loss, S, y, C, alpha, B):
    """Σ C_i loss(s_i) and Σ l(alpha_i) of a block in float64; B becomes B(alpha), feasible.

    alpha (m, k) is C_i b_i, rounded as it will be stored.
    """
    primal, linear = 0.0, 0.0
    for i in range(y.size):
        primal += C[i] * row_loss(loss, S[i], y[i])
        linear += repair_row(loss, alpha[i], y[i], C[i], B[i])
    return primal, linear
