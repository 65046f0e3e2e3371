"""One shard of the rows: its dual variables, and a slice of visits against given weights.

The intercept is soft here: while a slice runs, the constant feature answers a change of alpha with
``rho`` times its weight, and the intercept itself moves between slices (docs/math.md, [SOFT]).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from dask_mcsvm.formulations import FORMULATIONS

from ._alpha import SparseAlpha, compact_alpha
from ._jit import kernel
from ._rows import read_only
from ._start import fresh_classes, seen_at_zero, start_alpha, with_room
from ._steps import LOSSES
from .certify import examine, weights_block
from .change import Change, find_change, square_of
from .intercept import SoftIntercept, cut_visits
from .sdm import Data, Frequencies, full_sweep, make_scratch


class Shard(NamedTuple):
    """What a shard remembers from one slice to the next."""

    alpha: np.ndarray | SparseAlpha
    preference: np.ndarray  # (m,) float64, see `Frequencies`
    average: np.ndarray  # (1,) float64
    seen: np.ndarray  # (m, 2) float64: loss and gap of each row as last seen
    waited: np.ndarray  # (m,) float64 in [0, 1): the part of its next visit that is due

    def arrays(self) -> dict[str, np.ndarray]:
        """All of it under names; the pools of a sparse alpha without their spare room."""
        rest = {name: getattr(self, name) for name in self._fields if name != "alpha"}
        if isinstance(self.alpha, np.ndarray):
            return {"alpha": self.alpha, **rest}
        return {f"alpha_{name}": part for name, part in self.alpha._asdict().items()} | rest

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Shard:
        """The shard that `arrays` came from."""
        rest = [arrays[name] for name in cls._fields if name != "alpha"]
        if "alpha" in arrays:
            return cls(arrays["alpha"], *rest)
        return cls(SparseAlpha(*(arrays[f"alpha_{name}"] for name in SparseAlpha._fields)), *rest)


class Slice(NamedTuple):
    """What a slice of visits found: the change of W and what it did to the dual."""

    change: Change  # of W, the intercept apart
    moved: np.ndarray  # (k,) float64, change of the intercept as a hard one
    along: float  # <W, change>
    linear: float  # change of the part of the dual that is linear in alpha
    pull: np.ndarray  # (k,) float64, the multiplier after the moves of the intercept in between
    violation: float
    work: int
    visited: int  # rows


def start_shard(data: Data, k: int, formulation: str) -> Shard:
    """alpha = 0, but for rows without features."""
    seen = seen_at_zero(data.C, k, formulation)
    seen[data.square == 0, 1] = 0.0
    n = data.y.size
    return Shard(start_alpha(data, k, formulation), np.ones(n), np.zeros(1), seen, np.zeros(n))


def slice_visits(
    shard: Shard, square: np.ndarray, seed: list[int], part: int, parts: int
) -> tuple[np.ndarray, np.ndarray]:
    """Rows to visit in one slice of an epoch, as often as their preference asks, shuffled.

    A row of preference p is due p times an epoch, at even distances from a phase drawn for it.
    Slices change preferences, so how far a row is on its way to the next visit is carried on:
    the second value, ``waited`` of the next slice.
    """
    rows = np.flatnonzero(square > 0)
    waited = np.random.default_rng(seed).random(square.size) if part == 0 else shard.waited.copy()
    if rows.size == 0:
        return rows, waited
    p = shard.preference[rows]
    due = waited[rows] + p / (p.mean() * parts)
    visits = np.floor(due)
    waited[rows] = due - visits
    order = np.repeat(rows, visits.astype(np.int64))
    return np.random.default_rng([*seed, part]).permutation(order), waited


class Visits(NamedTuple):
    """What a run of visits did."""

    gain: float  # rise of the dual that the visits saw
    paid: float  # what they saw of it fall off by the change of the intercept
    moved: np.ndarray  # (k,) float64, that change as a hard one
    violation: float
    work: int  # class scores
    visited: int  # rows


def visit_rows(
    shard: Shard,
    data: Data,
    W: np.ndarray,
    shift: np.ndarray,
    order: np.ndarray,
    formulation: str,
    intercept: SoftIntercept,
    visits: int,
) -> tuple[Shard, Visits]:
    """Visit ``order``, changing W (d + 1, k), LLW's ``shift`` and the arrays of the shard.

    The intercept moves after so many ``visits``, but for the last time: that is for those who know
    what others did meanwhile.
    """
    k, alpha = W.shape[1], shard.alpha
    loss, scratch = LOSSES[formulation](k), make_scratch(k, W.dtype)
    fresh = fresh_classes(formulation, data.y.size, k)
    gain, paid, moved, worst, work = 0.0, 0.0, np.zeros(k), 0.0, 0
    for place, part in enumerate(cut_visits(order, visits)):
        if place > 0:
            intercept.move(W)
        intercept.loosen(W, shift)
        position = 0
        while position < part.size:
            alpha = with_room(alpha, k)
            position, rise, violation, scores = full_sweep(
                loss, data, part, position, W, shift, alpha, fresh,
                Frequencies(shard.preference, shard.average), shard.seen, scratch,
            )  # fmt: skip
            gain, worst, work = gain + rise, max(worst, violation), work + scores
        by, price = intercept.take(W, shift)
        moved, paid = moved + by, paid + price
    found = Visits(gain, paid, moved, worst, work, np.unique(order).size)
    return shard._replace(alpha=alpha), found


def solve_slice(
    shard: Shard,
    data: Data,
    before: np.ndarray,
    order: np.ndarray,
    formulation: str,
    intercept: SoftIntercept,
    visits: int,
) -> tuple[Shard, Slice]:
    """Visit ``order`` from W (d + 1, k) = ``before``, which stays as it is, like the shard.

    ``data`` has its constant feature scaled by √rho, and the intercept its row of W while visits
    run, the other way round: scores stay what they are, and b answers with rho instead of one.
    """
    W, shift = before.copy(), common_part(before, formulation)
    new, seen = visit_rows(own_copy(shard), data, W, shift, order, formulation, intercept, visits)
    change, along = find_change(before, W, shift)
    square = square_of(*change, W.shape[1])
    # The rise of the local dual is linear - <W, change> - 1/2 |change|^2.
    linear = seen.gain + seen.paid + along + 0.5 * square
    found = Slice(
        change, seen.moved, along, linear, intercept.pull, seen.violation, seen.work, seen.visited
    )
    return without_spare(new), found


def own_copy(shard: Shard) -> Shard:
    """A shard whose arrays may be changed, with some room for lists to grow."""
    alpha = shard.alpha
    rest = (array.copy() for array in shard[1:])
    if isinstance(alpha, np.ndarray):
        return Shard(alpha.copy(), *rest)
    return Shard(compact_alpha(alpha, alpha.classes.size // 2 + 256), *rest)


def without_spare(shard: Shard) -> Shard:
    """For others to keep: the lists of a sparse alpha without room to grow."""
    if isinstance(shard.alpha, np.ndarray):
        return shard
    return shard._replace(alpha=compact_alpha(shard.alpha, 0))


def common_part(W: np.ndarray, formulation: str) -> np.ndarray:
    """LLW's shift of all columns, zeros (d + 1,); empty for the others."""
    has_shift = FORMULATIONS[formulation].columns_sum_to_zero
    return np.zeros(W.shape[0] if has_shift else 0, W.dtype)


def blend(old: Shard, new: Shard, step: float, k: int) -> Shard:
    """alpha moved only a part of the way, 0 <= step <= 1; the rest as the slice left it."""
    if step == 1.0:
        return new
    if isinstance(old.alpha, np.ndarray):
        alpha = old.alpha + old.alpha.dtype.type(step) * (new.alpha - old.alpha)
        return new._replace(alpha=alpha)
    n = old.alpha.start.size
    room = old.alpha.size.astype(np.int64) + new.alpha.size
    start = np.cumsum(room) - room
    total = int(room.sum())
    out = SparseAlpha(
        start, np.zeros(n, np.int32), room.astype(np.int32), np.empty(total, np.int32),
        np.empty(total, old.alpha.values.dtype), np.array([total], np.int64),
    )  # fmt: skip
    blend_lists(old.alpha, new.alpha, step, out, np.full(k, np.inf))
    return new._replace(alpha=compact_alpha(out, 0))


@kernel
def blend_lists(old, new, step, out, sums):
    """(1 - step) old + step new for every example; ``sums`` (k,) is inf before and after."""
    for i in range(out.start.size):
        q = out.start[i]
        for p in range(old.start[i], old.start[i] + old.size[i]):
            sums[old.classes[p]] = (1.0 - step) * old.values[p]
            out.classes[q] = old.classes[p]
            q += 1
        for p in range(new.start[i], new.start[i] + new.size[i]):
            m = new.classes[p]
            if sums[m] == np.inf:
                sums[m] = 0.0
                out.classes[q] = m
                q += 1
            sums[m] += step * new.values[p]
        out.size[i] = q - out.start[i]
        for p in range(out.start[i], q):
            out.values[p] = sums[out.classes[p]]
            sums[out.classes[p]] = np.inf


def shard_columns(
    shard: Shard,
    data: Data,
    C: np.ndarray,
    formulation: str,
    k: int,
    first: int,
    W: np.ndarray,
    shift: np.ndarray,
) -> float:
    """Add to W (d + 1, columns), float64, what a shard puts into columns first, first + 1, ...

    LLW's common part of all columns goes to ``shift`` (d + 1,) unless that is empty. Returns the
    part of the dual objective that is linear in alpha, of all classes.
    """
    loss, scratch = LOSSES[formulation](k), make_scratch(k, data.C.dtype)
    linear: float = weights_block(
        loss, data.rows, data.y, read_only(C), data.tau, shard.alpha, first, first + W.shape[1],
        W, shift, scratch,
    )  # fmt: skip
    return linear


def examine_shard(
    shard: Shard, data: Data, C: np.ndarray, W: np.ndarray, formulation: str
) -> tuple[Shard, float]:
    """Loss and gap of every row at W in float64; returns the shard and Σ C_i loss_i."""
    seen = np.empty_like(shard.seen)
    loss, scratch = LOSSES[formulation](W.shape[1]), make_scratch(W.shape[1], W.dtype)
    examine(
        loss, data.rows, data.y, read_only(C), data.tau, shard.alpha, W, 0, data.y.size, seen,
        scratch,
    )  # fmt: skip
    return shard._replace(seen=seen), float(C @ seen[:, 0])
