"""Which classes a full visit works on, chosen from all k scores (labels refer to docs/math.md).

What a visit changes is a handful of classes; the rest is found to stay at zero without solving for
it. The same pass yields the example's loss and its share of the duality gap.
"""

from __future__ import annotations

import numpy as np

from .jit import bare_by_type, bare_kernel, bare_part
from .simd import LANES, largest_of_vectors
from .steps import CS, LLW, OVR, WW, clipped_sum_root, simplex_threshold


def screen(loss, s, classes, a, sc, q, C, A, fresh, v, out):
    """Choose the classes of a full visit from all k scores ``s`` (destroyed).

    Appends to the q stored classes at most ``fresh`` others that the exact step could change and
    fills ``sc`` with the scores of the list. out[0] is the loss, out[1] the example's share of the
    duality gap (they sum to P - D). With fresh = 0 it only looks. Returns the new length of the
    list.
    """


@bare_kernel
def largest(s, start, stop):
    """max(s[start:stop])."""
    if stop - start >= LANES:
        return largest_of_vectors(s, start, stop)
    top = s[start]
    for m in range(start + 1, stop):
        top = max(top, s[m])
    return top


@bare_kernel
def take_largest(s, above, classes, sc, q, fresh):
    """Append the (at most ``fresh``) largest scores above a threshold, with their classes.

    Hardly any score passes, so they are looked at in stretches of 32 first.
    """
    first = q
    for start in range(0, s.size, 32):
        stop = min(s.size, start + 32)
        if largest(s, start, stop) <= above:
            continue
        for m in range(start, stop):
            if s[m] <= above:
                continue
            if q - first < fresh:
                q += 1
            c = q - 1
            while c > first and sc[c - 1] < s[m] and fresh < s.size:  # without a limit: any order
                sc[c] = sc[c - 1]
                classes[c] = classes[c - 1]
                c -= 1
            sc[c] = s[m]
            classes[c] = m
            if q - first == fresh:
                above = sc[q - 1]
    return q


@bare_part
def take_listed(s, classes, sc, q):
    """Move the scores of the listed classes to the list, so that the rest can be screened."""
    for c in range(q):
        sc[c] = s[classes[c]]
        s[classes[c]] = -np.inf


def cs_screen(loss, s, classes, a, sc, q, C, A, fresh, v, out):
    """The largest score decides loss and gap."""
    s[classes[0]] -= 1  # g_m up to a constant, which the simplex does not see [CS-S]
    top = largest(s, 0, s.size)
    take_listed(s, classes, sc, q)
    gap = C * np.float64(top - sc[0])
    for c in range(q):
        gap += a[c] * np.float64(sc[c])
        v[c] = (sc[c] - top) / A - a[c]
    v[0] += C
    out[0], out[1] = top - sc[0], gap
    sc[0] += 1
    if fresh == 0:
        return q
    # More classes only raise the threshold: below that of the stored ones p is zero.
    above = simplex_threshold(v, q, C) * A + top
    return take_largest(s, s.dtype.type(above), classes, sc, q, fresh)


def ww_screen(loss, s, classes, a, sc, q, C, A, fresh, v, out):
    """Rivals within the margin add up."""
    own = s[classes[0]]
    s[classes[0]] = -np.inf
    margin, zero = s.dtype.type(1) - own, s.dtype.type(0)
    total = zero
    for m in range(s.size):
        total += max(zero, margin + s[m])
    take_listed(s, classes, sc, q)
    sc[0] = own
    gap = C * np.float64(total)
    held = 0.0
    for c in range(1, q):
        gap += a[c] * np.float64(own - sc[c] - 1)
        held += a[c]
    out[0], out[1] = total, gap
    if fresh == 0:
        return q
    for c in range(1, q):
        v[c] = a[c] - (np.float64(own) - sc[c] - 1.0) / A + held
    # More classes only raise S: where v_m is below that of the stored ones alpha is zero.
    S = clipped_sum_root(v, q, 1.0, C, held)
    above = own - 1 + A * (S - held)
    return take_largest(s, s.dtype.type(above), classes, sc, q, fresh)


def llw_screen(loss, s, classes, a, sc, q, C, A, fresh, v, out):
    """Scores above -1 add up."""
    one, zero = s.dtype.type(1), s.dtype.type(0)
    own = s[classes[0]]
    s[classes[0]] = -one
    total, slack = zero, zero
    for m in range(s.size):
        total += max(zero, one + s[m])
        slack += max(zero, -one - s[m])
        s[m] = -s[m]
    take_listed(s, classes, sc, q)
    gap = C * np.float64(slack)
    for c in range(1, q):
        sc[c] = -sc[c]
        gap += a[c] * np.float64(1 + sc[c])
    sc[0] = own
    out[0], out[1] = total, gap
    if fresh == 0:
        return q
    # A variable at its bound C leaves it only where 1 + s_m < 0; all where there is no
    # limit.
    above = one if fresh < s.size else s.dtype.type(-np.finfo(s.dtype).max)
    stop = take_largest(s, above, classes, sc, q, fresh)
    for c in range(q, stop):
        sc[c] = -sc[c]
    return stop


def ovr_screen(loss, s, classes, a, sc, q, C, A, fresh, v, out):
    """Margins of all classes add up, the own class with the other sign."""
    one, zero = s.dtype.type(1), s.dtype.type(0)
    own = s[classes[0]]
    s[classes[0]] = -np.inf
    total = max(zero, one - own)
    for m in range(s.size):
        total += max(zero, one + s[m])
    take_listed(s, classes, sc, q)
    sc[0] = own
    gap = C * np.float64(total) + a[0] * np.float64(own - 1)
    for c in range(1, q):
        gap -= a[c] * np.float64(1 + sc[c])
    out[0], out[1] = total, gap
    return take_largest(s, -one, classes, sc, q, fresh) if fresh > 0 else q


SCREENS = {CS: cs_screen, WW: ww_screen, LLW: llw_screen, OVR: ovr_screen}


@bare_by_type(screen)
def _screen(loss, s, classes, a, sc, q, C, A, fresh, v, out):
    return SCREENS[loss.instance_class]
