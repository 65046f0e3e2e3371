"""The operations of LaRank and which one comes next (Bordes et al. 2007, Algorithms 1 to 5)."""

from __future__ import annotations

import sys

import numpy as np
from numba import types

from dask_mcsvm.solvers.kernels.jit import bare_kernel, bare_part

from .cache import admit, fetch, remember, vacate
from .models import link, look_held, look_new, look_old, model_has_room, spread, unlink
from .state import (
    ARG_MAX,
    COST,
    DUAL,
    DUAL_LOST,
    GAIN,
    LEAST,
    LEFT,
    NEW,
    NEXT,
    OLD,
    OPERATION,
    OPTIMIZE,
    PATTERNS,
    PERFORMED,
    REMOVE,
    REMOVED,
    SECONDS,
    STEPS,
    TURN,
    VECTORS,
    WANTED,
    WIDEST,
    row_size,
    slot_row,
    store_has_room,
    store_move,
    store_put,
)

#: Coefficients nearer to their bound than this part of C_i cannot grow.
KAPPA = 1e-10
#: Gradients nearer to each other than this are equal.
TIE = 1e-12

#: What `advance` returns: the block is done; arrays must grow; a kernel row is wanted.
DONE, GROW, WANT = 0, 1, 2

BY_COST, BY_TIME, FIXED = 0, 1, 2
SCHEDULES = {"cost": BY_COST, "time": BY_TIME, "fixed": FIXED}

#: Weight of the last operation in the running ratio of gain to cost.
MU = 0.05
#: Odds that no operation falls below.
ETA = 0.05
#: OPTIMIZE steps that count as one operation.
REPEATS = 10
#: Cost is in billions of numbers touched: about seconds, so that the ratios start alike.
UNIT = 1e-9


@bare_part
def uniform(generator):
    """A number in [0, 1) from splitmix64, whose state is one integer that is easily carried on."""
    generator[0] += np.uint64(0x9E3779B97F4A7C15)
    z = generator[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.float64((z ^ (z >> np.uint64(31))) >> np.uint64(11)) * 2.0**-53


@bare_part
def pick_pattern(tally):
    """A support pattern at random."""
    return int(uniform(tally.generator) * tally.counts[PATTERNS])


@bare_part
def is_above(u, m, v, n):
    """Whether gradient u of class m beats gradient v of class n.

    A step leaves two gradients equal, and rounding must not choose between them: those nearer
    than TIE count as equal, and the first class wins.
    """
    return u > v + TIE or (u >= v - TIE and m < n)


@bare_part
def best_to_grow(patterns, p, g):
    """Place in the list of pattern p of the feasible class with the largest gradient, or -1.

    Classes outside the list are rivals at their bound, 0.
    """
    room = KAPPA * patterns.cost[p]
    best = 0 if patterns.beta[p, 0] < patterns.cost[p] - room else -1
    for t in range(1, patterns.held[p]):
        if patterns.beta[p, t] < -room:
            m, b = patterns.classes[p, t], patterns.classes[p, max(best, 0)]
            if best < 0 or is_above(g[m], m, g[b], b):
                best = t
    return best


@bare_part
def smallest(g):
    """The class with the smallest gradient."""
    best = 0
    for m in range(1, g.size):
        if is_above(-g[m], m, -g[best], best):
            best = m
    return best


@bare_part
def smallest_held(patterns, p, g):
    """Place in the list of pattern p of the class with the smallest gradient."""
    best = 0
    for t in range(1, patterns.held[p]):
        m, b = patterns.classes[p, t], patterns.classes[p, best]
        if is_above(-g[m], m, -g[b], b):
            best = t
    return best


@bare_part
def place_of(patterns, p, m):
    """Where pattern p lists class m, or -1."""
    for t in range(patterns.held[p]):
        if patterns.classes[p, t] == m:
            return t
    return -1


@bare_part
def add_vector(model, patterns, p, m, g, counts):
    """List class m, with coefficient 0, at pattern p; returns its place."""
    t = patterns.held[p]
    patterns.classes[p, t], patterns.beta[p, t] = m, 0.0
    patterns.held[p] = t + 1
    counts[VECTORS] += 1
    counts[WIDEST] = max(counts[WIDEST], t + 1)
    link(model, patterns, p, t, g, counts)
    return t


@bare_part
def remove_vector(model, patterns, p, t, counts):
    """Class t of pattern p is no support vector any more."""
    unlink(model, patterns, p, t)
    last = patterns.held[p] - 1
    patterns.classes[p, t], patterns.beta[p, t] = patterns.classes[p, last], patterns.beta[p, last]
    patterns.held[p] = last
    counts[VECTORS] -= 1


@bare_part
def drop(model, patterns, store, block, p, counts):
    """Pattern p leaves; the last one takes its slot."""
    for t in range(patterns.held[p] - 1, -1, -1):
        remove_vector(model, patterns, p, t, counts)
    vacate(model, patterns, block, p, counts)
    last = counts[PATTERNS] - 1
    remember_slot(block, patterns.ids[p], -1)
    if p != last:
        remember_slot(block, patterns.ids[last], p)
        patterns.ids[p], patterns.label[p] = patterns.ids[last], patterns.label[last]
        patterns.cost[p], patterns.square[p] = patterns.cost[last], patterns.square[last]
        patterns.held[p] = patterns.held[last]
        for t in range(patterns.classes.shape[1]):
            patterns.classes[p, t] = patterns.classes[last, t]
            patterns.beta[p, t] = patterns.beta[last, t]
        store_move(store, last, p)
    patterns.held[last] = 0
    counts[PATTERNS] = last


@bare_part
def remember_slot(block, identity, p):
    """Rows of this block know their slot; patterns of earlier chunks have no row here."""
    i = identity - block.base
    if 0 <= i < block.slot_of.size:
        block.slot_of[i] = p


@bare_part
def smo_step(model, patterns, store, p, r, plus, minus, difference, tally):
    """Move the coefficients of two listed classes of pattern p (Algorithm 1).

    Adds gain and cost to the tally. Returns whether p is a support pattern still.
    """
    beta, square, width = patterns.beta, patterns.square[p], pattern_width(store, p)
    limit = patterns.cost[p] - beta[p, 0] if plus == 0 else -beta[p, plus]
    step = min(difference / (2.0 * square), limit)  # [LR-S]
    beta[p, minus] -= step
    beta[p, plus] += step
    if step == limit:  # to the last bit, so that "returns to zero" can be seen
        beta[p, plus] = patterns.cost[p] if plus == 0 else 0.0
    for sign in (1.0, -1.0):
        t = plus if sign > 0 else minus
        tally.sums[COST] += spread(model, patterns, store, p, r, t, sign * step, width, tally)
    gain = step * difference - step * step * square  # [LR-D]
    tally.sums[GAIN] += gain
    tally.sums[DUAL] += gain
    tally.counts[STEPS] += 1
    if plus > 0 and beta[p, plus] == 0.0:
        remove_vector(model, patterns, p, plus, tally.counts)
    # The own coefficient is minus the sum of the others; what rounding left of it is nothing.
    return beta[p, 0] > 0.0 and patterns.held[p] > 1


@bare_part
def pattern_width(store, p):
    """Stored entries of the row in slot p."""
    return row_size(store, slot_row(store, p))


@bare_part
def select_new(model, patterns, store, block, t, limits, norms, tally):
    """Algorithm 2, of an example that is no support pattern: admit it if a step pays.

    Returns its slot (or -1) and the violation; its classes are the own and the strongest rival.
    """
    i, counts, g = block.order[t], tally.counts, tally.g
    own = np.int64(block.y[i])
    counts[ARG_MAX] += 1
    tally.sums[COST] += look_new(model, block, t, limits.width[i], tally)
    rival = smallest(g)
    difference = g[own] - g[rival]
    block.seen[i] = block.C[i] * difference
    if difference <= limits.tau:
        remember(model, i, counts)
        return -1, 0.0
    p = counts[PATTERNS]
    patterns.ids[p], patterns.label[p] = block.base + i, own
    patterns.cost[p], patterns.square[p] = block.C[i], block.square[i]
    patterns.held[p] = 0
    counts[PATTERNS] = p + 1
    block.slot_of[i] = p
    store_put(store, p, block.rows, i, counts)
    admit(model, patterns, block, t, i, p, norms[i], counts)
    for m in (own, rival):
        add_vector(model, patterns, p, m, g[m], counts)
    return p, difference


@bare_part
def select_old(model, patterns, store, p, r, limits, tally):
    """Algorithm 3: places of the classes to step along, and the violation."""
    counts, g = tally.counts, tally.g
    counts[ARG_MAX] += 1
    width = pattern_width(store, p)
    tally.sums[COST] += look_old(model, patterns, store, p, r, width, tally)
    plus, rival = best_to_grow(patterns, p, g), smallest(g)
    if plus < 0 or g[patterns.classes[p, plus]] - g[rival] <= limits.tau:
        return 0, 0, 0.0
    difference = g[patterns.classes[p, plus]] - g[rival]
    minus = place_of(patterns, p, rival)
    if minus < 0:
        minus = add_vector(model, patterns, p, rival, g[rival], counts)
    return plus, minus, difference


@bare_part
def select_held(model, patterns, store, p, tally):
    """Algorithm 4: places of the classes to step along, the violation, and the cost."""
    g = tally.g
    cost = look_held(model, patterns, store, p, pattern_width(store, p), tally)
    plus, minus = best_to_grow(patterns, p, g), smallest_held(patterns, p, g)
    if plus < 0:
        return 0, 0, 0.0, cost
    return plus, minus, g[patterns.classes[p, plus]] - g[patterns.classes[p, minus]], cost


@bare_part
def cheapest_pattern(model, patterns, store, tally):
    """The pattern whose removal lowers the dual least."""
    g = tally.g
    cheapest, least = 0, np.inf
    for p in range(tally.counts[PATTERNS]):
        look_held(model, patterns, store, p, 0, tally)
        lost = 0.0
        for t in range(patterns.held[p]):
            b = patterns.beta[p, t]
            lost += b * g[patterns.classes[p, t]] + 0.5 * patterns.square[p] * b * b
        if lost < least - TIE:
            cheapest, least = p, lost
    tally.sums[LEAST] = least
    return cheapest


@bare_part
def clear(model, patterns, store, p, r, tally):
    """All coefficients of pattern p become 0 together: they summed to zero, and so does nothing."""
    for t in range(patterns.held[p]):
        b = patterns.beta[p, t]
        patterns.beta[p, t] = 0.0
        spread(model, patterns, store, p, r, t, -b, 0, tally)
    tally.sums[DUAL] -= tally.sums[LEAST]
    tally.sums[DUAL_LOST] += tally.sums[LEAST]
    tally.counts[REMOVED] += 1


# -- the schedule (Algorithm 5) --------------------------------------------------------------------

_CLOCK_MONOTONIC = 6 if sys.platform == "darwin" else 1
_clock_gettime = types.ExternalFunction("clock_gettime", types.int32(types.int32, types.uintp))


@bare_part
def seconds(clock):
    """The system's monotonic clock."""
    _clock_gettime(_CLOCK_MONOTONIC, clock.ctypes.data)
    return clock[0] + 1e-9 * clock[1]


@bare_part
def choose(limits, tally):
    """The next operation, with odds proportional to the ratios."""
    on, ratio = limits.enabled, tally.ratio
    if tally.counts[PATTERNS] == 0:
        return NEW
    if limits.schedule == FIXED:
        while True:
            tally.counts[TURN] = (tally.counts[TURN] + 1) % 3
            operation = (tally.counts[TURN] + 2) % 3  # NEW, OLD, OPTIMIZE
            if on[operation] > 0:
                return operation
    floor = ETA * (on[NEW] + on[OLD] + on[OPTIMIZE])
    total = on[NEW] * ratio[NEW] + on[OLD] * ratio[OLD] + on[OPTIMIZE] * ratio[OPTIMIZE]
    share = (1.0 - floor) / total if total > 0 else 0.0
    u = uniform(tally.generator)
    odds_new = on[NEW] * (ETA + share * ratio[NEW])
    odds_old = on[OLD] * (ETA + share * ratio[OLD])
    if u < odds_new:
        return NEW
    if u < odds_new + odds_old:
        return OLD
    return OPTIMIZE if on[OPTIMIZE] > 0 else NEW


@bare_part
def has_room(model, patterns, store, block, counts):
    """Whether any single step can be done without growing an array."""
    if counts[PATTERNS] >= patterns.ids.size or counts[WIDEST] >= patterns.classes.shape[1]:
        return False
    size = 0
    if counts[NEXT] < block.order.size:
        size = row_size(block.rows, block.order[counts[NEXT]])
    return model_has_room(model, counts) and store_has_room(store, size, counts)


@bare_part
def is_known(block, t):
    """Whether PROCESSNEW leaves this example alone: it is a pattern already, or K(x, x) is 0."""
    i = block.order[t]
    return block.slot_of[i] >= 0 or not block.square[i] > 0


@bare_part
def begin(limits, tally):
    """Choose an operation."""
    counts, sums = tally.counts, tally.sums
    counts[OPERATION] = choose(limits, tally)
    counts[LEFT] = REPEATS if counts[OPERATION] == OPTIMIZE else 1
    sums[GAIN] = sums[COST] = sums[SECONDS] = 0.0


@bare_part
def finish(limits, tally):
    """One step of an operation is over; after the last one its ratio moves."""
    counts, sums, ratio = tally.counts, tally.sums, tally.ratio
    operation = counts[OPERATION]
    counts[LEFT] -= 1
    if counts[LEFT] == 0:
        cost = sums[SECONDS] if limits.schedule == BY_TIME else sums[COST] * UNIT
        rate = sums[GAIN] / cost if sums[GAIN] > 0 else 0.0
        ratio[operation] += MU * (rate - ratio[operation])
        counts[PERFORMED + operation] += 1


@bare_kernel
def advance(model, patterns, store, block, limits, norms, tally):
    """Run operations until every example of the block was processed once, or help is needed.

    May be called again after DONE with the next block, after GROW with larger arrays, after WANT
    with the kernel row of slot counts[WANTED] in the cache: nothing is done twice. An operation
    that lacks a row gives back its random number.
    """
    counts, sums = tally.counts, tally.sums
    began = 0.0
    while True:
        over = counts[PATTERNS] > limits.max_support
        if not over and counts[LEFT] == 0:
            if counts[NEXT] >= block.order.size:
                return DONE
            begin(limits, tally)
        if not has_room(model, patterns, store, block, counts):
            return GROW
        if limits.schedule == BY_TIME:
            began = seconds(tally.clock)
        operation, before = (REMOVE if over else counts[OPERATION]), tally.generator[0]
        p, r, plus, minus, difference, cost = -1, 0, 0, 1, 0.0, 0
        if operation == NEW and is_known(block, counts[NEXT]):
            counts[NEXT] += 1
        elif operation == NEW:
            state = (model, patterns, store, block, counts[NEXT], limits, norms, tally)
            p, difference = select_new(*state)
            counts[NEXT] += 1
            sums[SECONDS] += limits.seconds_new
        elif operation == REMOVE:
            p = cheapest_pattern(model, patterns, store, tally)
        elif counts[PATTERNS] > 0:
            p = pick_pattern(tally)
            if operation == OPTIMIZE:
                found = select_held(model, patterns, store, p, tally)
                plus, minus, difference, cost = found
        # Of OPTIMIZE's patterns most have nothing to move, and need no kernel row.
        if p >= 0 and (operation != OPTIMIZE or difference > limits.tau):
            r = fetch(model, p, counts)
            if r < 0:
                tally.generator[0], counts[WANTED] = before, p
                return WANT
        if operation == OLD:
            plus, minus, difference = select_old(model, patterns, store, p, r, limits, tally)
        sums[COST] += cost
        kept = operation != REMOVE
        if not kept:
            clear(model, patterns, store, p, r, tally)
        elif p >= 0 and difference > limits.tau:
            kept = smo_step(model, patterns, store, p, r, plus, minus, difference, tally)
        if not kept:
            drop(model, patterns, store, block, p, counts)
        if limits.schedule == BY_TIME:
            sums[SECONDS] += seconds(tally.clock) - began
        if operation != REMOVE:
            finish(limits, tally)
