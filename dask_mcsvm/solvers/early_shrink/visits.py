"""Kernels of early shrinking (Alrajeh et al., Algorithms 1 and 2), for one-vs-rest.

Classes do not know each other in one-vs-rest, so a kernel works on one class: its weights w, a
contiguous vector (d + 1,), and a list of its variables: ``ids`` (rows of the block, int32) and
``alpha`` (their values). What is not listed is not looked at. Threads share classes between them,
and since each sees its own w and list only, their number changes nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dask_mcsvm.solvers.kernels.jit import kernel, part
from dask_mcsvm.solvers.kernels.rows import (
    as_rows,
    read_only,
    row_axpy,
    row_dot,
    row_prefetch,
    square_norms,
)
from dask_mcsvm.solvers.kernels.simd import prefetch

#: Visits to look ahead: 4 to 8 were alike. A visit of one of 38,000 dense rows of 54 features took
#: 66 ns instead of 137, and 54 where all rows are in the cache.
AHEAD = 6


class Block(NamedTuple):
    """Rows in memory as kernels read them; all read-only."""

    rows: np.ndarray | tuple[np.ndarray, np.ndarray, np.ndarray]
    y: np.ndarray  # (n,) int32
    C: np.ndarray  # (n,) float64
    square: np.ndarray  # (n,) float64, ‖x_i‖² + tau²
    tau: np.floating  # of the float type of the rows


def make_block(X, y, C, tau):
    """A block of rows X (n, d), codes y (n,) and costs C (n,)."""
    rows = as_rows(X)
    return Block(
        rows,
        read_only(np.asarray(y, np.int32)),
        read_only(np.asarray(C, np.float64)),
        read_only(square_norms(rows, X.shape[0], float(tau))),
        X.dtype.type(tau),
    )


@part
def upper(C, like):
    """The end of a variable's box as it is stored: C rounded to the type of ``like``."""
    return np.float64(like.dtype.type(C))


@kernel
def shuffle(order, count, state):
    """Fisher and Yates on order[:count]; ``state`` is SplitMix64's. Returns the state after."""
    for t in range(count - 1, 0, -1):
        state += np.uint64(0x9E3779B97F4A7C15)
        z = state
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
        # The high half times the range: no division, and a bias below count / 2**32.
        other = np.int64(((z >> np.uint64(32)) * np.uint64(t + 1)) >> np.uint64(32))
        order[t], order[other] = order[other], order[t]
    return state


@part
def fetch_visit(block, ids, alpha, soon, later):
    """Fetch the row of variable ``soon``, and the entry of the lists that says which is next."""
    prefetch(ids, later)
    prefetch(alpha, later)
    i = ids[soon]
    row_prefetch(block.rows, i)
    prefetch(block.y, i)
    prefetch(block.C, i)
    prefetch(block.square, i)


@kernel
def ascend(block, m, ids, alpha, w, passes, enough, seed):
    """Up to ``passes`` passes of dual coordinate ascent over the listed variables of class m.

    The first pass visits all of them in random order. Later ones leave out variables at a bound
    whose gradient lies beyond every gradient that could still move something in the pass before,
    as LIBLINEAR does (Hsieh et al. 2008, section 3.2). Ends early when nothing moved, or when the
    variables of a pass showed less than ``enough`` of the duality gap.

    Changes alpha and w. Returns the rise of the dual, the visits made, and the gap that the first
    pass saw: what others have left of it since these variables were last visited.
    """
    order = np.arange(ids.size).astype(np.int32)
    count, visits, gain, shown = ids.size, 0, 0.0, 0.0
    high, low = np.inf, -np.inf
    tiny = 2 * np.float64(np.finfo(alpha.dtype).eps)
    state = np.uint64(seed)
    for number in range(passes):
        state = shuffle(order, count, state)
        visits += count
        highest, lowest, gap, moved, t = 0.0, 0.0, 0.0, False, 0
        while t < count:
            if t + 2 * AHEAD < count:
                fetch_visit(block, ids, alpha, order[t + AHEAD], order[t + 2 * AHEAD])
            e = order[t]
            i = ids[e]
            sign = 1.0 if block.y[i] == m else -1.0
            C, A, old = upper(block.C[i], alpha), block.square[i], np.float64(alpha[e])
            g = sign * row_dot(block.rows, i, w, block.tau) - 1.0  # [OVR-G]
            gap += old * g + C * max(0.0, -g)  # [OVR-GAP]
            if (old <= 0 and g > high) or (old >= C and g < low):
                count -= 1
                order[t], order[count] = order[count], order[t]
                continue
            t += 1
            if old > 0:
                highest = max(highest, g)
            if old < C:
                lowest = min(lowest, g)
            new = np.float64(alpha.dtype.type(min(max(old - g / A, 0.0), C))) if A > 0 else C
            change = new - old  # [OVR-S] [BOX-Z]
            if abs(change) <= tiny * new and new < C:
                continue  # rounding alone
            if change != 0:
                alpha[e] = new
                moved = True
                gain -= change * (g + 0.5 * A * change)
                row_axpy(block.rows, i, w, block.tau, w.dtype.type(sign * change))
        if number == 0:
            shown = gap
        if not moved or gap <= enough or count == 0:
            break
        high = highest if highest > 0 else np.inf
        low = lowest if lowest < 0 else -np.inf
    return gain, visits, shown


@kernel
def look(block, m, ids, alpha, w, slack, awake):
    """Which listed variables of class m are free, or would be if g moved by ``slack``.

    Writes to ``awake`` (bool, one per variable); returns their share of the duality gap at w.
    """
    gap = 0.0
    for e in range(ids.size):
        i = ids[e]
        sign = 1.0 if block.y[i] == m else -1.0
        C, a = upper(block.C[i], alpha), np.float64(alpha[e])
        g = sign * row_dot(block.rows, i, w, block.tau) - 1.0
        gap += a * g + C * max(0.0, -g)  # [OVR-GAP]
        awake[e] = is_awake(a, C, g, slack) and block.square[i] > 0
    return gap


@part
def is_awake(a, C, g, slack):
    """Free, or at a bound that a change of g by less than ``slack`` would make it leave [AWAKE]."""
    if a <= 0:
        return C > 0 and g < slack
    return a < C or g > -slack


@kernel
def certify_class(block, m, alpha, w, slack, exact, awake):
    """One class of a block of the certifying pass, in float64: all rows, at a w that stands still.

    ``alpha`` (n,) are the variables of all rows, ``w`` (d + 1,) float64 the weights to be judged.
    Adds Σ_i sign_i alpha_i x_i to ``exact`` (d + 1,) float64 and writes to ``awake`` as `look`
    does. Returns Σ_i C_i loss_i and Σ_i alpha_i, alpha clipped to its box.
    """
    loss, linear = 0.0, 0.0
    tau = np.float64(block.tau)
    for i in range(alpha.size):
        sign = 1.0 if block.y[i] == m else -1.0
        C = block.C[i]
        a = min(max(np.float64(alpha[i]), 0.0), C)
        g = sign * row_dot(block.rows, i, w, tau) - 1.0
        loss += C * max(0.0, -g)
        linear += a
        if a > 0:
            row_axpy(block.rows, i, exact, tau, sign * a)  # [OVR-W]
        stored, end = np.float64(alpha[i]), upper(C, alpha)
        awake[i] = is_awake(stored, end, g, slack) and block.square[i] > 0
    return loss, linear
