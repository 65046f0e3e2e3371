"""W (d + 1, k) whose features have a dense row of weights each, or a list of classes and weights.

W is sparse because alpha is: a weight of feature j and class m is not zero only if a row that has j
holds a variable of m. With thousands of classes most features have few of them. Each begins as an
empty list; one that passes ``limit`` classes becomes a dense row, which is read by vectors.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .dense_weights import scores, scores_of, update
from .jit import bare_kernel, bare_part, kernel
from .simd import LANES, add_list, find_in_list, prefetch

#: What stands for the size of a list where the feature has a dense row.
DENSE = -1
#: The least room of a list: whole vectors of classes are compared, and 8 weights are half a line.
LEAST_ROOM = LANES
#: Sizes of lists, each twice the one before.
ROOMS = 40
#: More classes than these are found in a list by a look at all of it, instead of each by itself.
FEW = 8
#: Places of ``counts``: what is in use of the pool and of the dense rows, how much of the pool no
#: list has, and what a visit lacked of both.
USED, ROWS, FREED, MORE, MORE_ROWS = range(5)


class Hybrid(NamedTuple):
    """Weights by feature; who owns them makes room between visits (`HybridWeights`).

    Feature j has ``size[j]`` classes from ``start[j]`` of the pool on, in a block of ``room[j]``;
    or, where ``size[j]`` is DENSE, row ``start[j]`` of ``dense``. A list that outgrows its block
    moves to one of twice the room, and the old block is for the next list that needs this room:
    ``free`` has the first one of each room, whose own first classes tell the next one.
    """

    start: np.ndarray  # (d,) int64
    size: np.ndarray  # (d,) int32
    room: np.ndarray  # (d,) int32
    classes: np.ndarray  # (pool,) uint16, or int32 where there are more classes
    values: np.ndarray  # (pool,) float
    dense: np.ndarray  # (rows, k) float; the last row is that of the constant feature
    counts: np.ndarray  # (5,) int64
    free: np.ndarray  # (ROOMS,) int64, in units of LEAST_ROOM; -1 where there is none
    limit: int  # classes of the longest list
    # Working space of one thread:
    found: np.ndarray  # (longest row,) of the rows' type: nonzeros of features with dense rows
    at: np.ndarray  # (longest row,) int32: these dense rows
    place: np.ndarray  # (k,) int32, zeros: where a class stands in the list of a step, from 1 on
    hit: np.ndarray  # (k + 1,) int64: the last nonzero whose list had that class of a step


@bare_kernel
def gather_dense(values, columns, begin, end, W):
    """Put the nonzeros of features with dense rows together; returns how many.

    Lists are asked for meanwhile: they are read when these rows have been.
    """
    count = 0
    for p in range(begin, end):
        j = columns[p]
        first = W.start[j]
        if W.size[j] == DENSE:
            W.found[count] = values[p]
            W.at[count] = first
            count += 1
        elif W.size[j] > 0:
            prefetch(W.classes, first)
            prefetch(W.values, first)
    return count


@bare_part
def hybrid_scores(values, columns, begin, end, W, tau, s):
    """s = tau W[-1] + Σ_p values[p] W[columns[p]]."""
    count = gather_dense(values, columns, begin, end, W)
    scores(W.found, W.at, 0, count, W.dense, tau, s)
    for p in range(begin, end):
        j = columns[p]
        if W.size[j] > 0:
            add_list(W.classes, W.values, W.start[j], W.size[j], s.dtype.type(values[p]), s)


@bare_part
def hybrid_scores_of(values, columns, begin, end, W, tau, classes, q, s):
    """The same of the first q listed classes."""
    count = gather_dense(values, columns, begin, end, W)
    scores_of(W.found, W.at, 0, count, W.dense, tau, classes, q, s)
    for c in range(q):
        W.place[classes[c]] = c + 1
    for p in range(begin, end):
        j = columns[p]
        x = s.dtype.type(values[p])
        for t in range(W.start[j], W.start[j] + W.size[j]):
            c = W.place[W.classes[t]]
            if c > 0:
                s[c - 1] += x * W.values[t]
    for c in range(q):
        W.place[classes[c]] = 0


@bare_part
def hybrid_update(values, columns, begin, end, W, tau, classes, delta, q):
    """W[columns[p], classes[c]] += values[p] delta[c] for c < q, and tau delta[c] in the last row.

    `hybrid_has_room` has been asked before.
    """
    count = gather_dense(values, columns, begin, end, W)
    update(W.found, W.at, 0, count, W.dense, tau, classes, delta, q)
    if q > FEW:
        for c in range(q):
            W.place[classes[c]] = c + 1
            W.hit[c] = -1
    for p in range(begin, end):
        j = columns[p]
        if W.size[j] == DENSE:
            continue
        x = W.values.dtype.type(values[p])
        if q > FEW:
            add_many(W, j, p, x, classes, delta, q)
        else:
            add_few(W, j, x, classes, delta, q)
    if q > FEW:
        for c in range(q):
            W.place[classes[c]] = 0


@bare_kernel
def add_few(W, j, x, classes, delta, q):
    """Find each class in the list of feature j, or append it."""
    for c in range(q):
        m = classes[c]
        t = -1
        if W.size[j] > 0:
            t = find_in_list(W.classes, W.start[j], W.size[j], m)
        if t >= 0:
            W.values[W.start[j] + t] += x * delta[c]
        else:
            put(W, j, m, x * delta[c])


@bare_kernel
def add_many(W, j, p, x, classes, delta, q):
    """Look at all of the list for the classes of a step, then append those not seen."""
    for t in range(W.start[j], W.start[j] + W.size[j]):
        c = W.place[W.classes[t]] - 1
        if c >= 0:
            W.values[t] += x * delta[c]
            W.hit[c] = p
    for c in range(q):
        if W.hit[c] != p:
            put(W, j, classes[c], x * delta[c])


@bare_kernel
def put(W, j, m, value):
    """Add the weight of a class that is not in the list of feature j, which may be dense by now."""
    size = W.size[j]
    if size >= W.limit:
        spread_list(W, j)
        size = DENSE
    if size == DENSE:
        W.dense[W.start[j], m] += value
        return
    if size == W.room[j]:
        widen_list(W, j)
    t = W.start[j] + size
    W.classes[t] = m
    W.values[t] = value
    W.size[j] = size + 1


@bare_kernel
def number_of(room):
    """The largest of the rooms LEAST_ROOM · 2^number that fits into this one."""
    number = 0
    while LEAST_ROOM << (number + 1) <= room:
        number += 1
    return number


@bare_kernel
def note_next(classes, at, block):
    """Write the number of a block, or -1, where two classes of 16 bits have room."""
    classes[at] = (block + 1) & 0xFFFF
    classes[at + 1] = (block + 1) >> 16


@bare_kernel
def noted_next(classes, at):
    """The number that is written there."""
    return (np.int64(classes[at + 1]) << 16) + np.int64(classes[at]) - 1


@bare_kernel
def give_back(W, j):
    """The block of feature j is for others."""
    if W.room[j] > 0:
        number = number_of(W.room[j])
        note_next(W.classes, W.start[j], W.free[number])
        W.free[number] = W.start[j] // LEAST_ROOM
        W.counts[FREED] += W.room[j]


@bare_kernel
def widen_list(W, j):
    """Move the list of feature j to the next larger room."""
    number = number_of(W.room[j]) + 1 if W.room[j] > 0 else 0
    room = LEAST_ROOM << number
    start = W.counts[USED]
    if W.free[number] >= 0:
        start = W.free[number] * LEAST_ROOM
        W.free[number] = noted_next(W.classes, start)
        W.counts[FREED] -= room
    else:
        W.counts[USED] += room
    before = W.start[j]
    for t in range(W.size[j]):
        W.classes[start + t] = W.classes[before + t]
        W.values[start + t] = W.values[before + t]
    give_back(W, j)
    W.start[j], W.room[j] = start, room


@bare_kernel
def spread_list(W, j):
    """Turn the list of feature j into a dense row."""
    row = W.counts[ROWS]
    W.counts[ROWS] += 1
    for m in range(W.dense.shape[1]):
        W.dense[row, m] = 0
    for t in range(W.start[j], W.start[j] + W.size[j]):
        W.dense[row, W.classes[t]] = W.values[t]
    give_back(W, j)
    W.start[j], W.size[j], W.room[j] = row, DENSE, 0


@bare_kernel
def hybrid_has_room(columns, begin, end, W, q):
    """Whether q classes of all features columns[begin:end] can change; else what lacks is noted.

    The first look takes the worst: every list moves, or becomes a dense row.
    """
    count = end - begin
    more = count * (LEAST_ROOM + 2 * (W.limit + q))
    if W.counts[USED] + more > W.classes.size:
        W.counts[MORE] = more
        return False
    rows = count
    free = W.dense.shape[0] - 1 - W.counts[ROWS]
    if rows > free:
        rows = 0
        for p in range(begin, end):
            size = W.size[columns[p]]
            if size >= 0 and size + q > W.limit:
                rows += 1
    if rows > free:
        W.counts[MORE_ROWS] = rows
        return False
    return True


# -- all of W --------------------------------------------------------------------------------------


@kernel
def hybrid_square_sum(W):
    """‖W‖² in float64."""
    total = 0.0
    for j in range(W.size.size):
        if W.size[j] == DENSE:
            for m in range(W.dense.shape[1]):
                total += np.float64(W.dense[W.start[j], m]) ** 2
        else:
            for t in range(W.start[j], W.start[j] + W.size[j]):
                total += np.float64(W.values[t]) ** 2
    last = W.dense.shape[0] - 1
    for m in range(W.dense.shape[1]):
        total += np.float64(W.dense[last, m]) ** 2
    return total


@kernel
def clear_weights(W):
    """W = 0, the last row too; lists keep their room, dense rows stay so unless hardly filled."""
    rows = 0
    for j in range(W.size.size):
        if W.size[j] != DENSE:
            W.size[j] = 0
            continue
        count = 0
        for m in range(W.dense.shape[1]):
            count += W.dense[W.start[j], m] != 0
        if 2 * count > W.limit:
            W.start[j] = rows
            rows += 1
        else:
            W.start[j], W.size[j] = 0, 0
    W.counts[ROWS] = rows
    W.dense[:] = 0


@kernel
def tidy_lists(W, order):
    """Move all lists, in the ``order`` of where they begin, next to each other.

    Each keeps a quarter of its size to grow, where it has that.
    """
    used = 0
    for j in order:
        size, before = W.size[j], W.start[j]
        if size == DENSE:
            continue
        room = (size + size // 4 + LEAST_ROOM - 1) // LEAST_ROOM * LEAST_ROOM
        W.start[j], W.room[j] = used, min(room, W.room[j])
        for t in range(size):
            W.classes[used + t] = W.classes[before + t]
            W.values[used + t] = W.values[before + t]
        used += W.room[j]
    W.counts[USED], W.counts[FREED] = used, 0
    W.free[:] = -1


@kernel
def count_classes(W):
    """Weights that are not zero of each class, (k,) int64, the constant feature apart."""
    counts = np.zeros(W.dense.shape[1], np.int64)
    for j in range(W.size.size):
        if W.size[j] == DENSE:
            for m in range(W.dense.shape[1]):
                if W.dense[W.start[j], m] != 0:
                    counts[m] += 1
        else:
            for t in range(W.start[j], W.start[j] + W.size[j]):
                if W.values[t] != 0:
                    counts[W.classes[t]] += 1
    return counts


@kernel
def put_classes(W, m, indptr, features, values):
    """Put the columns m.. of a CSC (d, k) into W until there may be no room; returns the next."""
    while m < indptr.size - 1:
        begin, end = indptr[m], indptr[m + 1]
        if not hybrid_has_room(features, begin, end, W, 1):
            break
        for p in range(begin, end):
            put(W, features[p], m, W.values.dtype.type(values[p]))
        m += 1
    return m
