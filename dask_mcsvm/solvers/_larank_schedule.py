"""The loop of LaRank (Bordes et al. 2007, Algorithm 5): which operation comes next."""

from __future__ import annotations

import sys

from numba import types

from ._jit import bare_kernel, bare_part
from ._larank_cache import fetch
from ._larank_models import model_has_room
from ._larank_state import (
    COST,
    GAIN,
    LEFT,
    NEW,
    NEXT,
    OLD,
    OPERATION,
    OPTIMIZE,
    PATTERNS,
    PERFORMED,
    REMOVE,
    SECONDS,
    TURN,
    WANTED,
    WIDEST,
    row_size,
    store_has_room,
)
from ._larank_steps import (
    cheapest_pattern,
    clear,
    drop,
    pick_pattern,
    select_held,
    select_new,
    select_old,
    smo_step,
    uniform,
)

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
