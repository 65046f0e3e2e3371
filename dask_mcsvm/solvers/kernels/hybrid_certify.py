"""W from alpha in float64, class by class, into lists: no block of dense columns ([CERT]).

The variables are put in the order of classes first; the sums of one class are then an array
(d + 1,) of which only those features are looked at that its rows have.
"""

from __future__ import annotations

from .certify import column_weights, repair
from .dual_variables import alpha_load
from .hybrid_weights import DENSE, LEAST_ROOM, MORE, MORE_ROWS, ROWS, USED, put
from .jit import bare_kernel, kernel
from .margins import dual_excess


@kernel
def count_duals(loss, y, C, margins, alpha, counts, scratch):
    """Add to ``counts`` (k,) how many rows hold each class; returns the dual's linear part."""
    classes, a = scratch.classes, scratch.v
    linear = 0.0
    for i in range(y.size):
        q = alpha_load(alpha, i, y[i], classes, a)
        linear += repair(loss, a, q, C[i])
        linear += dual_excess(margins, y[i], classes, a, q)
        column_weights(loss, a, q, C[i])
        for c in range(q):
            if a[c] != 0:
                counts[classes[c]] += 1
    return linear


@kernel
def sort_duals(loss, y, C, alpha, first, last, place, who, factors, scratch):
    """Write rows and factors of the classes first..last class by class, from ``place`` on."""
    classes, a = scratch.classes, scratch.v
    for i in range(y.size):
        q = alpha_load(alpha, i, y[i], classes, a)
        repair(loss, a, q, C[i])
        column_weights(loss, a, q, C[i])
        for c in range(q):
            m = classes[c]
            if first <= m < last and a[c] != 0:
                p = place[m - first]
                who[p] = i
                factors[p] = a[c]
                place[m - first] = p + 1


@kernel
def put_columns(rows, tau, m, first, offsets, who, factors, W, space, squares):
    """Columns m.. of W from the sorted variables, until W may lack room; returns the next one.

    ``space`` is that of `column_space`; squares[m] = ‖w_m‖².
    """
    sums, marks, _, touched = space
    last = W.dense.shape[0] - 1
    while m - first < offsets.size - 1:
        begin, end = offsets[m - first], offsets[m - first + 1]
        count = sum_column(rows, tau, begin, end, who, factors, space)
        is_room = has_room_for_one(W, touched, count)
        if is_room:
            total = sums[sums.size - 1] ** 2
            W.dense[last, m] = sums[sums.size - 1]
            for t in range(count):
                total += sums[touched[t]] ** 2
                value = W.values.dtype.type(sums[touched[t]])
                if value != 0:
                    put(W, touched[t], m, value)
            squares[m] = total
        for t in range(count):
            sums[touched[t]] = 0
            marks[touched[t]] = 0
        sums[sums.size - 1] = 0
        if not is_room:
            break
        m += 1
    return m


@kernel
def list_columns(rows, tau, m, first, offsets, who, factors, space, indptr, features, values):
    """Columns m.. as parts of a CSC (d, k), until they may not fit; returns the next one."""
    sums, marks, words, _ = space
    while m - first < offsets.size - 1:
        begin, end = offsets[m - first], offsets[m - first + 1]
        count = sum_column(rows, tau, begin, end, who, factors, space)
        place = indptr[m]
        is_room = place + count <= features.size
        for w in range(words.size):
            if words[w] == 0:
                continue
            for j in range(8 * w, 8 * w + 8):
                if marks[j]:
                    value = values.dtype.type(sums[j])
                    if is_room and value != 0:
                        features[place] = j
                        values[place] = value
                        place += 1
                    sums[j] = 0
            words[w] = 0
        sums[sums.size - 1] = 0
        if not is_room:
            break
        m += 1
        indptr[m] = place
    return m


@bare_kernel
def sum_column(rows, tau, begin, end, who, factors, space):
    """Add rows times factors to the sums; marks and lists the features, returns how many."""
    sums, marks, _, touched = space
    data, indices, indptr = rows
    count = 0
    for e in range(begin, end):
        i = who[e]
        for p in range(indptr[i], indptr[i + 1]):
            j = indices[p]
            if not marks[j]:
                marks[j] = 1
                touched[count] = j
                count += 1
            sums[j] += data[p] * factors[e]
        sums[sums.size - 1] += tau * factors[e]
    return count


@bare_kernel
def has_room_for_one(W, features, count):
    """Whether one more class fits into all of these lists; else what lacks is noted."""
    more, rows = 0, 0
    for t in range(count):
        size = W.size[features[t]]
        if size == DENSE:
            continue
        if size >= W.limit:
            rows += 1
        elif size == W.room[features[t]]:
            more += max(2 * size, LEAST_ROOM)
    if W.counts[USED] + more > W.classes.size:
        W.counts[MORE] = more
        return False
    if rows > W.dense.shape[0] - 1 - W.counts[ROWS]:
        W.counts[MORE_ROWS] = rows
        return False
    return True
