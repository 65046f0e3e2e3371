"""Loops over the nonzeros of a row against a dense W (d + 1, k), classes contiguous.

``values`` and ``columns`` hold the nonzeros begin..end of a row; a dense row has columns None.
"""

from __future__ import annotations

from .jit import bare_kernel, bare_part
from .simd import (
    LANES,
    WIDEST,
    scores_1,
    scores_2,
    scores_3,
    scores_4,
    scores_of_1,
    scores_of_2,
    scores_of_3,
    scores_of_4,
    update_1,
    update_2,
    update_3,
    update_4,
    update_of_1,
    update_of_2,
    update_of_3,
    update_of_4,
)


@bare_part
def scores(values, columns, begin, end, W, tau, s):
    """s = tau W[-1] + Σ_p values[p] W[columns[p]] (a dense row has columns None)."""
    k = W.shape[1]
    if k < LANES:
        few_scores(values, columns, begin, end, W, tau, s)
        return
    m = 0
    while k - m > LANES * WIDEST:
        scores_4(values, columns, begin, end, W, tau, m, m + LANES * WIDEST, s)
        m += LANES * WIDEST
    # The last vector may overlap its neighbour; the very last stripe may be the neighbour.
    if k - m > 3 * LANES:
        scores_4(values, columns, begin, end, W, tau, m, k, s)
    elif k - m > 2 * LANES:
        scores_3(values, columns, begin, end, W, tau, m, k, s)
    elif k - m > LANES:
        scores_2(values, columns, begin, end, W, tau, m, k, s)
    else:
        scores_1(values, columns, begin, end, W, tau, m, k, s)


@bare_part
def few_scores(values, columns, begin, end, W, tau, s):
    """The same where the classes do not fill a vector."""
    k, last = W.shape[1], W.shape[0] - 1
    for m in range(k):
        s[m] = tau * W[last, m]
    for p in range(begin, end):
        x, j = s.dtype.type(values[p]), p - begin if columns is None else columns[p]
        for m in range(k):
            s[m] += x * W[j, m]


@bare_part
def scores_of(values, columns, begin, end, W, tau, classes, q, s):
    """s[c] = tau W[-1, classes[c]] + Σ_p values[p] W[columns[p], classes[c]] for c < q."""
    c = 0
    while q - c > 4:
        scores_of_4(values, columns, begin, end, W, tau, classes, c, s)
        c += 4
    if q - c == 4:
        scores_of_4(values, columns, begin, end, W, tau, classes, c, s)
    elif q - c == 3:
        scores_of_3(values, columns, begin, end, W, tau, classes, c, s)
    elif q - c == 2:
        scores_of_2(values, columns, begin, end, W, tau, classes, c, s)
    elif q - c == 1:
        scores_of_1(values, columns, begin, end, W, tau, classes, c, s)


@bare_part
def update(values, columns, begin, end, W, tau, classes, delta, q):
    """W[columns[p], classes[c]] += values[p] delta[c] for c < q, and tau delta[c] in the last row.

    No class is listed twice.
    """
    c = 0
    while q - c > 4:
        update_of_4(values, columns, begin, end, W, classes, c, delta)
        c += 4
    if q - c == 4:
        update_of_4(values, columns, begin, end, W, classes, c, delta)
    elif q - c == 3:
        update_of_3(values, columns, begin, end, W, classes, c, delta)
    elif q - c == 2:
        update_of_2(values, columns, begin, end, W, classes, c, delta)
    elif q - c == 1:
        update_of_1(values, columns, begin, end, W, classes, c, delta)
    if tau != 0:
        for c in range(q):
            W[W.shape[0] - 1, classes[c]] += tau * delta[c]


@bare_kernel
def updates_all(W):
    """Whether all classes can be changed at once, at less cost than three of them by a list."""
    return LANES <= W.shape[1] <= LANES * WIDEST


@bare_part
def update_all(values, columns, begin, end, W, tau, delta):
    """W[columns[p]] += values[p] delta, and tau delta in the last row."""
    k = W.shape[1]
    if k > 3 * LANES:
        update_4(values, columns, begin, end, W, 0, k, delta)
    elif k > 2 * LANES:
        update_3(values, columns, begin, end, W, 0, k, delta)
    elif k > LANES:
        update_2(values, columns, begin, end, W, 0, k, delta)
    else:
        update_1(values, columns, begin, end, W, 0, k, delta)
    if tau != 0:
        for m in range(k):
            W[W.shape[0] - 1, m] += tau * delta[m]
