"""What the tasks of `shards` compute, and the values that travel between them.

Tasks are pure: kernels work on copies, so that a task may run twice, or elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dask_mcsvm.formulations import FORMULATIONS
from dask_mcsvm.solvers.certify import centre_columns, common_square
from dask_mcsvm.solvers.change import Change, add_change, square_of, total_change
from dask_mcsvm.solvers.intercept import SoftIntercept
from dask_mcsvm.solvers.sdm import Data
from dask_mcsvm.solvers.shard import (
    Shard,
    Slice,
    blend,
    examine_shard,
    shard_columns,
    slice_visits,
    solve_slice,
    start_shard,
)

from .rows import RowBlock
from .state import Bounds, Tally

Array = npt.NDArray[Any]
#: Rows of W whose squares exist at a time.
SUM_ROWS = 1024


class Weights(NamedTuple):
    """W and what is known about it."""

    W: Array  # (d + 1, k), its last row the soft intercept
    own: Array  # (k,) float64, the last row that alpha would give
    pull: Array  # (k,) float64, the scaled multiplier of the soft intercept
    gaps: Array  # (chunks,) float64, what each chunk last saw of the gap
    sums: Array  # (4,) float64: linear part of the dual, |W|² without the last row, step, loss
    tally: Array  # (4,) float64 of the epoch: dual before it, violation, work, rows visited

    def arrays(self) -> dict[str, Array]:
        """All of it, by name."""
        return self._asdict()

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> Weights:
        """The weights that `arrays` came from."""
        return cls(**arrays)

    @property
    def dual(self) -> float:
        """D(alpha), as exact as the sums are."""
        return float(self.sums[0] - 0.5 * self.sums[1] - 0.5 * self.own @ self.own)


class SliceOf(NamedTuple):
    """Which rows of a chunk a task visits, and how."""

    formulation: str
    seed: tuple[int, int, int]  # of the fit, the epoch, the chunk
    part: int
    parts: int
    tau: float
    rho: float
    lanes: int
    visits: int  # between two moves of the intercept


class Found(NamedTuple):
    """What a lane found in a step, and what it was told before it."""

    slice: Slice
    gap: float  # of the block, as its rows last showed it
    before: Weights  # without features


class Combined(NamedTuple):
    """What a step comes to: the weights after it, without features, and how these change."""

    weights: Weights
    change: Change


class ClassRange(NamedTuple):
    """Columns first..last of k."""

    first: int
    last: int
    k: int


class Columns(NamedTuple):
    """float64 columns of W(alpha), not yet rounded."""

    classes: ClassRange
    W: Array  # (d + 1, last - first)
    shift: Array  # (d + 1,) LLW's common part of all columns, or empty
    linear: float


def start_weights(d1: int, k: int, dtype: np.dtype[Any], chunks: int) -> Weights:
    """No weights yet."""
    return Weights(
        np.zeros((d1, k), dtype), np.zeros(k), np.zeros(k), np.full(chunks, np.inf), np.zeros(4),
        np.zeros(4),
    )  # fmt: skip


def make_shard(rows: RowBlock, k: int, formulation: str, tau: float) -> Shard:
    """Variables of a chunk's rows."""
    return start_shard(rows.data(tau), k, formulation)


def solve_rows(
    rows: RowBlock, shard: Shard, weights: Weights, combined: Combined | None, how: SliceOf
) -> tuple[Shard, Weights, Found]:
    """A slice of a block from the weights of its lane, the last step's changes added.

    Returns the shard as if all of its change were taken, the weights without it, and what changed.
    """
    if combined is not None:
        weights = move_weights(weights, combined)
    data = soft_data(rows, how)
    order, waited = slice_visits(shard, data.square, list(how.seed), how.part, how.parts)
    intercept = SoftIntercept(how.rho, weights.own.size, how.lanes)
    intercept.own, intercept.pull = weights.own, weights.pull
    solved, found = solve_slice(
        shard, data, weights.W, order, how.formulation, intercept, how.visits
    )
    gap = float(solved.seen[:, 1].sum())
    return solved._replace(waited=waited), weights, Found(found, gap, without_features(weights))


def move_weights(weights: Weights, combined: Combined) -> Weights:
    """A copy of the weights, moved as the lanes together found in a step."""
    W = weights.W.copy()
    add_change(W, *combined.change)
    W[-1] = combined.weights.W[-1]
    return combined.weights._replace(W=W)


def without_features(weights: Weights) -> Weights:
    """All that is known of the weights, with the intercepts alone in the place of W."""
    return weights._replace(W=weights.W[-1:].copy())


def soft_data(rows: RowBlock, how: SliceOf) -> Data:
    """Rows as visits see them: a change of the intercept weighs rho [SOFT]."""
    soft = how.rho * how.tau**2  # at least that, also where tau² has swallowed the features
    square = np.maximum(rows.square - (1 - how.rho) * how.tau**2, soft)
    return rows._replace(square=square).data(how.tau * float(np.sqrt(how.rho)))


def combine_slices(
    found: Sequence[Found], *, blocks: Sequence[int], lanes: int, rho: float, first: bool
) -> Combined:
    """How far W moves along the sum of all changes: as far as the dual rises [LINE]."""
    weights = found[0].before
    tally = np.array([weights.dual, 0.0, 0.0, 0.0]) if first else weights.tally.copy()
    gaps = weights.gaps.copy()
    slices = [one.slice for one in found]
    for c, one in zip(blocks, found, strict=True):
        tally[1] = max(tally[1], one.slice.violation)
        tally[2:] += one.slice.work, one.slice.visited
        gaps[c] = one.gap
    change = total_change([one.change for one in slices])
    moved = sum((one.moved for one in slices), np.zeros(weights.own.size))
    along, linear = (sum(getattr(one, name) for one in slices) for name in ("along", "linear"))
    square = square_of(*change, moved.size)
    slope = linear - along - float(weights.W[-1].astype(np.float64) @ moved)
    step = float(np.clip(slope / square, 0.0, 1.0)) if square > 0 else 1.0
    sums = weights.sums.copy()
    sums[:3] += step * linear, 2 * step * along + step**2 * square, step - sums[2]
    intercept = SoftIntercept(rho, moved.size, lanes)
    intercept.own = weights.own + step * moved
    intercept.pull = np.mean([one.pull for one in slices], axis=0)
    W = weights.W.copy()
    intercept.move(W)
    scale = change.values.dtype.type(step)
    change = change._replace(values=scale * change.values, shift=scale * change.shift)
    return Combined(Weights(W, intercept.own, intercept.pull, gaps, sums, tally), change)


def settle_shard(old: Shard, solved: tuple[Shard, Any, Any], combined: Combined) -> Shard:
    """alpha of a block moved as far as W was."""
    weights = combined.weights
    return blend(old, solved[0], float(weights.sums[2]), weights.W.shape[1])


def renew_weights(weights: Weights) -> Weights:
    """The same weights for one of the lanes, held by whoever runs this."""
    return weights


def pick_slice(values: Sequence[Any], place: int) -> Any:
    """One of the values a task returned, so that the others need not travel with it."""
    return values[place]


def report_tally(weights: Weights, n: int) -> Tally:
    """What the epoch did with the n rows.

    The line search raises the dual of a soft intercept; the gain is that of the true one, and may
    be below zero while the intercept is still on its way.
    """
    off = weights.W[-1].astype(np.float64) - weights.own
    gap = float(weights.gaps.sum() + 0.5 * off @ off)
    before, violation, work, visited = weights.tally.tolist()
    return Tally(weights.dual - before, violation, int(work), gap, min(1.0, visited / n))


def add_columns(
    before: Columns | None,
    rows: RowBlock,
    shard: Shard,
    classes: ClassRange,
    formulation: str,
    tau: float,
) -> Columns:
    """Add one chunk's part to float64 columns of W(alpha)."""
    if before is None:
        d1 = rows.X.shape[1] + 1
        W = np.zeros((d1, classes.last - classes.first))
        wants_shift = FORMULATIONS[formulation].columns_sum_to_zero and classes.first == 0
        shift, linear = np.zeros(d1 if wants_shift else 0), 0.0
    else:
        W, shift, linear = before.W.copy(), before.shift.copy(), before.linear
    linear += shard_columns(
        shard, rows.data(tau), rows.C, formulation, classes.k, classes.first, W, shift
    )
    return Columns(classes, W, shift, linear)


def join_columns(weights: Weights, ends: Sequence[Columns]) -> Weights:
    """W made anew from the ends of all chains; the intercept stays what it was."""
    W, own = np.empty_like(weights.W), np.empty_like(weights.own)
    shift = sum((end.shift for end in ends if end.shift.size), np.zeros(1))
    linear = sum(end.linear for end in ends if end.classes.first == 0)
    square = 0.0
    for classes in dict.fromkeys(end.classes for end in ends):
        columns = sum((end.W for end in ends if end.classes == classes), np.zeros((1, 1)))
        columns = columns + shift[:, None]
        square += square_sum(columns[:-1])
        W[:-1, classes.first : classes.last] = columns[:-1]
        own[classes.first : classes.last] = columns[-1]
    W[-1] = weights.W[-1]
    if shift.size == W.shape[0]:  # Lee-Lin-Wahba
        centre_columns(W)
    sums = np.array([linear, square, weights.sums[2], 0.0])
    return weights._replace(W=W, own=own, sums=sums)


def look_at_rows(
    rows: RowBlock, shard: Shard, weights: Weights, formulation: str, tau: float
) -> tuple[Shard, tuple[float, float]]:
    """Loss and gap of every row of a chunk, and their sums."""
    new, loss = examine_shard(shard, rows.data(tau), rows.C, weights.W, formulation)
    return new, (loss, float(new.seen[:, 1].sum()))


def close_certificate(weights: Weights, seen: Sequence[tuple[float, float]]) -> Weights:
    """The weights with the loss of all rows, summed in the order of the chunks."""
    sums = weights.sums.copy()
    sums[3] = sum(loss for loss, _ in seen)
    return weights._replace(sums=sums, gaps=np.array([gap for _, gap in seen]))


def report_bounds(weights: Weights, formulation: str) -> Bounds:
    """Primal of W, intercept included, and dual of alpha."""
    square = square_sum(weights.W) - common_square(weights.W, formulation)
    return Bounds(0.5 * square + float(weights.sums[3]), weights.dual)


def square_sum(W: Array) -> float:
    """|W|² in float64, a few rows at a time; not by BLAS, whose threads change the order."""
    parts = (W[j : j + SUM_ROWS] for j in range(0, W.shape[0], SUM_ROWS))
    return sum(float(np.square(part, dtype=np.float64).sum()) for part in parts)
