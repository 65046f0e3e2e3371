"""What a lane changes in place while an epoch lasts: rows of a block laid out for visits, and W.

Nothing is copied for a step but what it is about to overwrite. What the rows and weights came to
is a function of what the epoch began with and of how far W went after each step, so that whoever
finds none of this makes it anew, to the same bytes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types

from dask_mcsvm.solvers.kernels.dual_variables import (
    SparseAlpha,
    alpha_has_room,
    alpha_prefetch,
    alpha_store,
)
from dask_mcsvm.solvers.kernels.jit import bare_by_type, kernel
from dask_mcsvm.solvers.kernels.rows import place_prefetch, row_prefetch
from dask_mcsvm.solvers.kernels.simd import prefetch
from dask_mcsvm.solvers.kernels.standard_rows import settle_mean, with_scores_of
from dask_mcsvm.solvers.kernels.weights import LINE, SHORT

from .change import Change, add_change, list_changes, square_of
from .initial_duals import with_room
from .intercept import SoftIntercept, Sweep
from .moves import FAR, NEAR
from .shard import Shard, Slice, common_part, lay_copy, sweep_of, take_table
from .sweeps import Data

#: Entries of a change that there is room for at first.
ROOM = 2**14


class Saved(NamedTuple):
    """Variables of some rows as they were before a step, in the order of their first visits."""

    rows: np.ndarray  # (room,) int32
    size: np.ndarray  # (room,) int32, of their lists, or of no use
    classes: np.ndarray  # (all lists,) int32, one after another, or of no use
    values: np.ndarray  # the same, or (room, k)
    used: np.ndarray  # (2,) int64: rows, places in lists


class WeightsAtWork:
    """The weights of a lane. Between steps they are those that all lanes have in common."""

    def __init__(self, W: np.ndarray) -> None:
        self.W = W.copy()
        self.steps = 0  # how many steps of the epoch are in W
        d = W.shape[0] - 1
        self.place = np.full(d, -1, np.int32)  # where each feature's row of W is saved, or -1
        # As large as it may become: memory that nobody writes to costs nothing.
        self.saved = np.empty((d, W.shape[1]), W.dtype)
        self.count = 0
        kind = np.int32 if W.size <= np.iinfo(np.int32).max else np.int64
        self.places, self.values = np.empty(ROOM, kind), np.empty(ROOM, W.dtype)

    def follow(self, change: Change, intercept: np.ndarray) -> None:
        """Move on to what all lanes have in common after a step."""
        add_change(self.W, change)
        self.W[-1] = intercept
        self.steps += 1

    def save(self, rows: Any, order: np.ndarray) -> None:
        """Save the rows of W that visits to ``order`` may change."""
        if isinstance(rows, tuple) and type(rows) is tuple:  # CSR
            self.count = save_weights(rows, order, self.W, self.place, self.saved, self.count)
        elif self.count == 0:
            self.count = self.place.size
            self.saved[:], self.place[:] = self.W[:-1], np.arange(self.count)

    def take_change(self, shift: np.ndarray, intercept: np.ndarray) -> tuple[Change, float]:
        """What visits changed since; W is again as it was. Also <W, change>.

        ``shift`` is what they would add to all columns (LLW), or empty.
        """
        bits = np.dtype(f"i{self.W.itemsize}")
        touched = np.flatnonzero(self.place >= 0)
        row, count, along = 0, 0, 0.0
        while True:
            row, count, more = list_changes(
                self.W, self.W.view(bits), self.saved, self.saved.view(bits), self.place, shift,
                touched, row, count, self.places, self.values,
            )  # fmt: skip
            along += more
            if row == touched.size:
                break
            self.places, self.values = map(doubled, (self.places, self.values))
        self.W[-1], self.count = intercept, 0
        return Change(self.places[:count].copy(), self.values[:count].copy(), shift), along


class RowsAtWork:
    """A block of rows whose dual variables visits change."""

    def __init__(self, shard: Shard, data: Data, k: int) -> None:
        self.table, self.k = lay_copy(shard, data), k
        self.turns = 0  # how many steps of the epoch visited it
        self.saved: Saved | None = None

    def visit(
        self,
        order: np.ndarray,
        weights: WeightsAtWork,
        formulation: str,
        intercept: SoftIntercept,
        visits: int,
    ) -> tuple[Slice, int]:
        """Visit ``order`` as one step; also how many of its rows the epoch had not visited before.

        The constant feature of the rows is scaled by √rho, and the intercept its row of W while
        visits run, the other way round: scores stay what they are, and b answers with rho instead
        of one.
        """
        W, table = weights.W, self.table
        shift = common_part(W, formulation)
        bottom = W[-1].copy()
        rows = with_scores_of(table.data.rows, W)
        table.data = table.data._replace(rows=rows)
        self.turns += 1
        if intercept.lanes > 1:
            self.saved = room_for(table.alpha, order.size, self.saved)
        sweep = sweep_of(table, W, shift, formulation, table.preference.size)
        fresh = 0

        def saving_sweep(part: np.ndarray) -> Sweep:
            nonlocal fresh
            weights.save(rows, part)
            fresh += self.save(part)
            return sweep(part)

        done, moved = intercept.visit(order, visits, W, shift, saving_sweep)
        settle_mean(rows, W)
        change, along = weights.take_change(shift, bottom)
        # The rise of the local dual is linear - <W, change> - 1/2 |change|^2.
        linear = done.gain + along + 0.5 * square_of(*change, W.shape[1])
        found = Slice(change, moved, along, linear, intercept.pull, done.violation, done.work)
        return found, fresh

    def save(self, order: np.ndarray) -> int:
        """Save variables that this step has not changed yet; returns how many rows are new."""
        table = self.table
        if self.saved is None:
            return mark_rows(order, table.turn, self.turns)
        return save_rows(order, table.turn, self.turns, table.alpha, self.saved)

    def settle(self, part: float) -> None:
        """Variables move ``part`` of the way that they went in the last step."""
        if self.saved is None or part == 1.0:
            return
        saved, table = self.saved, self.table
        count = int(saved.used[0])
        if isinstance(table.alpha, np.ndarray):
            rows, old = saved.rows[:count], saved.values[:count]
            table.alpha[rows] = old + old.dtype.type(part) * (table.alpha[rows] - old)
            return
        k, row, place = self.k, 0, 0
        where = np.full(k, -1, np.int32)
        classes, a = np.empty(k, np.int32), np.empty(k, saved.values.dtype)
        while row < count:
            table.alpha = with_room(table.alpha, k)
            row, place = blend_lists(table.alpha, saved, row, place, part, where, classes, a)

    @property
    def gap(self) -> float:
        """Σ of what each row last showed of the duality gap."""
        return float(self.table.seen[:, 1].sum())

    def shard(self) -> Shard:
        """For others to keep; nothing is left here to work with."""
        return take_table(self.table)


def doubled(array: np.ndarray) -> np.ndarray:
    """With as much room again."""
    return np.concatenate([array, np.empty_like(array)])


def room_for(alpha: np.ndarray | SparseAlpha, visits: int, old: Saved | None) -> Saved:
    """For what so many visits may overwrite; what is there is used again if it is large enough."""
    lists = int(alpha.used[0]) if isinstance(alpha, SparseAlpha) else 0
    if old is not None and old.rows.size >= visits and old.classes.size >= lists:
        old.used[:] = 0
        return old
    if isinstance(alpha, SparseAlpha):
        values = np.empty(lists, alpha.values.dtype)
    else:
        values = np.empty((visits, alpha.shape[1]), alpha.dtype)
    return Saved(
        np.empty(visits, np.int32), np.empty(visits, np.int32), np.empty(lists, np.int32), values,
        np.zeros(2, np.int64),
    )  # fmt: skip


@kernel
def save_weights(rows, order, W, place, saved, count):
    """Save the rows of W of all features of some CSR rows that are not saved; returns how many."""
    _, indices, indptr = rows
    k = W.shape[1]
    for t in range(order.size):
        if t + FAR < order.size:
            place_prefetch(rows, order[t + FAR])
        if t + NEAR < order.size:
            row_prefetch(rows, order[t + NEAR])
        if t + 1 < order.size and k <= SHORT:
            for p in range(indptr[order[t + 1]], indptr[order[t + 1] + 1]):
                if place[indices[p]] < 0:
                    for m in range(0, k, LINE):
                        prefetch(W, indices[p] * k + m)
        for p in range(indptr[order[t]], indptr[order[t] + 1]):
            j = indices[p]
            if place[j] < 0:
                place[j] = count
                for m in range(k):
                    saved[count, m] = W[j, m]
                count += 1
    return count


@kernel
def mark_rows(order, turn, now):
    """Note that a step visits these rows; returns how many the epoch had not visited."""
    fresh = 0
    for i in order:
        fresh += turn[i] == 0
        turn[i] = now
    return fresh


@kernel
def save_rows(order, turn, now, alpha, saved):
    """The same, and save the variables of those that this step has not visited yet."""
    fresh = 0
    for t in range(order.size):
        if t + FAR < order.size:
            prefetch(turn, order[t + FAR])
        if t + NEAR < order.size:
            alpha_prefetch(alpha, order[t + NEAR])
        i = order[t]
        if turn[i] != now:
            fresh += turn[i] == 0
            turn[i] = now
            save_variables(alpha, i, saved)
    return fresh


def save_variables(alpha, i, saved):
    """Append the variables of a row."""


@bare_by_type(save_variables)
def _save_variables(alpha, i, saved):
    if isinstance(alpha, types.Array):

        def dense(alpha, i, saved):
            at = saved.used[0]
            saved.rows[at] = i
            for m in range(alpha.shape[1]):
                saved.values[at, m] = alpha[i, m]
            saved.used[0] += 1

        return dense

    def lists(alpha, i, saved):
        at, q, p = saved.used[0], saved.used[1], alpha.start[i]
        saved.rows[at], saved.size[at] = i, alpha.size[i]
        for c in range(alpha.size[i]):
            saved.classes[q + c] = alpha.classes[p + c]
            saved.values[q + c] = alpha.values[p + c]
        saved.used[0] += 1
        saved.used[1] += alpha.size[i]

    return lists


@kernel
def blend_lists(alpha, saved, row, place, part, where, classes, a):
    """(1 - part) saved + part present variables of each saved row, from row number ``row`` on.

    ``where`` (k,) is -1 before and after. Stops where lists may need a larger pool; returns the
    row, and the place in the lists, to go on from.
    """
    while row < saved.used[0] and alpha_has_room(alpha, where.size):
        i, q = saved.rows[row], 0
        for p in range(place, place + saved.size[row]):
            classes[q], a[q] = saved.classes[p], (1.0 - part) * saved.values[p]
            where[classes[q]] = q
            q += 1
        for p in range(alpha.start[i], alpha.start[i] + alpha.size[i]):
            m = alpha.classes[p]
            if where[m] < 0:
                classes[q], a[q], where[m] = m, 0.0, q
                q += 1
            a[where[m]] += part * alpha.values[p]
        for c in range(q):
            where[classes[c]] = -1
        alpha_store(alpha, i, classes, a, q)
        place += saved.size[row]
        row += 1
    return row, place
