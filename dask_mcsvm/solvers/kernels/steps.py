"""The exact step of one example, on a compact list of classes (labels refer to docs/math.md).

All arrays are scratch space of the caller. Position 0 is the example's own class y; ``a`` holds the
stored variables, ``s`` the scores, and ``q`` the length of the list. Sums that decide are float64.

Each loss is a type, so that the compiler makes one kernel per loss and no kernel asks which it is.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .jit import bare_by_type, bare_kernel, bare_part


class CS(NamedTuple):
    """Crammer-Singer: alpha_m <= C [m = y], sum zero."""

    k: int


class WW(NamedTuple):
    """Weston-Watkins: 0 <= alpha_m <= C for m != y."""

    k: int


class LLW(NamedTuple):
    """Lee-Lin-Wahba: 0 <= alpha_m <= C for m != y; C - alpha is what is stored."""

    k: int


class OVR(NamedTuple):
    """One-vs-rest: 0 <= alpha_m <= C for all m."""

    k: int


# The one place that maps names to kernel types. The types are the kernels' own, made for Numba: as
# facts in formulations/ they would tie the specification to the kernels that it judges.
LOSSES = {"crammer_singer": CS, "weston_watkins": WW, "lee_lin_wahba": LLW, "one_vs_rest": OVR}


@bare_kernel
def simplex_threshold(u, q, total):
    """θ with Σ_c max(0, u_c - θ) = total, by Michelot's shrinking of the positive set."""
    theta = -np.inf
    count = q + 1
    while True:
        kept = 0
        mass = 0.0
        for c in range(q):
            if u[c] > theta:
                kept += 1
                mass += np.float64(u[c])
        # In exact arithmetic the set only shrinks; a value that equals θ up to rounding may come
        # back, and would then go in and out for ever.
        if kept >= count or kept == 0:
            return theta
        count = kept
        theta = (mass - total) / kept


@bare_kernel
def clipped_sum_root(v, q, kappa, bound, start):
    """S with S = Σ_c clip(v_c - kappa S, 0, bound), v[0] apart: Newton inside a bracket.

    Plain Newton cycles on this piecewise linear function; the bracket halves when it would.
    """
    low, high = 0.0, bound * (q - 1)
    S = min(max(start, low), high)
    tolerance = 1e-15 * high
    for _ in range(200):
        total = 0.0
        free = 0
        for c in range(1, q):
            t = v[c] - kappa * S
            if t >= bound:
                total += bound
            elif t > 0:
                total += t
                free += 1
        f = S - total
        if abs(f) <= tolerance:
            break
        if f > 0:
            high = S
        else:
            low = S
        new = S - f / (1.0 + kappa * free)
        if not low < new < high:
            new = 0.5 * (low + high)
        if new == S:
            break
        S = new
    return S


def free_first(loss, classes, a, q, C):
    """Order a stored list so that what a shrunk visit works on comes first; returns how much.

    CS works on all nonzero variables, the others on 0 < alpha < C. One means nothing to do: all
    zero, exactly two of magnitude C, or all at their bounds. (-1: only the own class of OVR is
    free.)
    """


def step(loss, sc, a, q, C, A, delta, v, out):
    """Solve the example exactly on its list: a[:q] becomes the optimum, delta[:q] moves W.

    delta is in units of x_i per column of W (for LLW without the shift common to all columns).
    out[2] is the violation before the step, out[3] the rise of the dual, out[4] the
    change of Σ alpha. Returns how many variables changed.
    """


@bare_part
def box_violation(g, alpha, C):
    """How far one variable of a box is from optimal (docs/math.md, violations)."""
    if alpha <= 0:
        return max(0.0, -g)
    if alpha >= C:
        return max(0.0, g)
    return abs(g)


@bare_by_type(free_first)
def _free_first(loss, classes, a, q, C):
    if loss.instance_class is CS:
        return lambda loss, classes, a, q, C: 1 if q <= 2 and (a[0] == 0 or a[0] >= C) else q

    own_is_free = loss.instance_class is OVR

    def box(loss, classes, a, q, C):
        free = 1
        for c in range(1, q):
            if 0 < a[c] < C:
                classes[c], classes[free] = classes[free], classes[c]
                a[c], a[free] = a[free], a[c]
                free += 1
        if free == 1 and own_is_free and 0 < a[0] < C:
            return -1
        return free

    return box


def cs_step(loss, sc, a, q, C, A, delta, v, out):
    """[CS-S]: a projection onto a simplex."""
    sc[0] -= 1
    most, least = -np.inf, np.inf
    for c in range(q):
        most = max(most, np.float64(sc[c]))
        if a[c] < (C if c == 0 else 0.0):
            least = min(least, np.float64(sc[c]))
    # The simplex does not see a constant; taking it off keeps the digits that matter.
    for c in range(q):
        v[c] = (sc[c] - most) / A - a[c]
    v[0] += C
    theta = simplex_threshold(v, q, C)
    tiny = 2 * np.finfo(a.dtype).eps
    gain, changed = 0.0, 0
    for c in range(q):
        new = (C if c == 0 else 0.0) - max(0.0, v[c] - theta)  # [CS-S]
        change = new - a[c]
        if abs(change) <= tiny * abs(new):  # below what alpha can hold: leave W alone
            delta[c] = 0
            continue
        gain -= change * (sc[c] - most + 0.5 * A * change)
        delta[c] = a.dtype.type(new) - a[c]  # what alpha moves by as stored: W stays W(alpha)
        a[c] = new
        changed += 1
    out[2], out[3], out[4] = max(0.0, most - least), max(0.0, gain), 0.0
    return changed


def ovr_step(loss, sc, a, q, C, A, delta, v, out):
    """[OVR-S]: k clips."""
    gain, worst, changed = 0.0, 0.0, 0
    for c in range(q):
        sign = 1.0 if c == 0 else -1.0
        g = sign * sc[c] - 1.0
        new = min(max(a[c] - g / A, 0.0), C)  # [OVR-S]
        change = new - a[c]
        worst = max(worst, box_violation(g, a[c], C))
        gain -= change * (g + 0.5 * A * change)
        delta[c] = sign * (a.dtype.type(new) - a[c])
        a[c] = new
        changed += delta[c] != 0
    out[2], out[3], out[4] = worst, gain, 0.0
    return changed


def coupled_step(is_llw):
    """[WW-S] and [LLW-S]: one scalar root, with kappa = 1 or -1/k."""

    def coupled(loss, sc, a, q, C, A, delta, v, out):
        kappa = -1.0 / loss.k if is_llw else 1.0
        held = 0.0
        worst = 0.0
        for c in range(1, q):
            g = -1.0 - sc[c] if is_llw else np.float64(sc[0]) - sc[c] - 1.0
            alpha = C - a[c] if is_llw else np.float64(a[c])
            v[c] = alpha - g / A
            held += alpha
            worst = max(worst, box_violation(g, alpha, C))
        for c in range(1, q):
            v[c] += kappa * held
        S = clipped_sum_root(v, q, kappa, C, held)
        tiny = 2 * np.finfo(a.dtype).eps
        gain, moved, squares, changed = 0.0, 0.0, 0.0, 0
        for c in range(1, q):
            new = min(max(v[c] - kappa * S, 0.0), C)  # [WW-S] [LLW-S]
            alpha = C - a[c] if is_llw else np.float64(a[c])
            change = new - alpha
            if change == 0 or (abs(change) <= tiny * (C - new if is_llw else new) and new < C):
                delta[c] = 0
                continue
            changed += 1
            g = -1.0 - sc[c] if is_llw else np.float64(sc[0]) - sc[c] - 1.0
            gain -= change * g
            moved += change
            squares += change * change
            kept = a.dtype.type(C - new if is_llw else new)
            delta[c] = kept - a[c] if is_llw else a[c] - kept
            a[c] = kept
        delta[0] = 0.0 if is_llw else moved
        out[2] = worst
        out[3] = gain - 0.5 * A * (squares + kappa * moved * moved)
        out[4] = moved
        return changed

    return coupled


STEPS = {CS: cs_step, OVR: ovr_step, WW: coupled_step(False), LLW: coupled_step(True)}


@bare_by_type(step)
def _step(loss, sc, a, q, C, A, delta, v, out):
    return STEPS[loss.instance_class]
