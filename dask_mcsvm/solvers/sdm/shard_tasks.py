"""What the tasks of `shards` compute, and the values that travel between them.

Tasks are pure: kernels work on copies, so that a task may run twice, or elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dask_mcsvm.formulations import FORMULATIONS, Bounds, Tally
from dask_mcsvm.solvers.groups.blocks import take
from dask_mcsvm.solvers.kernels.certify import centre_columns, common_square
from dask_mcsvm.solvers.row_block import RowBlock
from dask_mcsvm.solvers.sdm.change import Change, add_change, add_to_some, square_of, total_change
from dask_mcsvm.solvers.sdm.intercept import SoftIntercept
from dask_mcsvm.solvers.sdm.shard import (
    Progress,
    Shard,
    Slice,
    copy_alpha,
    examine_shard,
    gather_rows,
    merge_patches,
    settle,
    shard_columns,
    solve_step,
    start_shard,
)
from dask_mcsvm.solvers.sdm.sweeps import Data
from dask_mcsvm.solvers.sdm.visits import Dealt, deal_visits, draw_visits

Array = npt.NDArray[Any]
#: Rows of W whose squares exist at a time.
SUM_ROWS = 1024
#: A lane adds up its changes of W when they are more than one entry in so many: it would read
#: through them in every step, at about the cost of copying as many times eight entries.
MOST_CHANGES = 8


class Weights(NamedTuple):
    """W and what is known about it."""

    W: Array  # (d + 1, k), its last row the soft intercept
    own: Array  # (k,) float64, the last row that alpha would give
    pull: Array  # (k,) float64, the scaled multiplier of the soft intercept
    gaps: Array  # (chunks,) float64, what each chunk last saw of the gap
    sums: Array  # (3,) float64: linear part of the dual, |W|² without the last row, loss
    tally: Array  # (4,) float64 of the epoch: dual before it, violation, work, rows visited
    steps: Array  # (steps,) float64, how far W went along what each step of the epoch found

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


class How(NamedTuple):
    """How a task visits rows."""

    formulation: str
    tau: float
    rho: float
    lanes: int
    visits: int  # between two moves of the intercept


class Drawn(NamedTuple):
    """The visits of a block in an epoch, and the gap of its rows before it."""

    dealt: tuple[Dealt, ...]  # one for each part of the epoch
    gap: float


class Found(NamedTuple):
    """What a lane found in a step, and what it was told before it."""

    slice: Slice
    gap: float  # of the block, as its rows last showed it
    visited: int  # rows that the epoch had not visited before
    before: Weights  # without features


class Combined(NamedTuple):
    """What a step comes to: the weights after it, without features, and how these change."""

    weights: Weights
    change: Change


class Lane(NamedTuple):
    """The weights of a lane in the middle of an epoch: what it began with, and all changes since.

    A step reads only some rows of W, and a copy of all of them with the changes added would cost
    more than to look for those rows in the changes.
    """

    W: Array  # (d + 1, k)
    changes: tuple[Change, ...]
    known: Weights  # without features

    def follow(self, combined: Combined) -> Lane:
        """Move on to what all lanes have in common after a step."""
        lane = Lane(self.W, (*self.changes, combined.change), combined.weights)
        if MOST_CHANGES * sum(change.values.size for change in lane.changes) > self.W.size:
            return Lane(lane.weights().W, (), lane.known)
        return lane

    def rows(self, features: Array) -> Array:
        """The rows of some features, ascending, and the intercept: a copy."""
        W = np.concatenate([self.W[features], self.known.W])
        where = np.full(self.W.shape[0], -1, np.int32)
        where[features] = np.arange(features.size)
        for change in self.changes:
            add_to_some(W, where, *change)
        return W

    def weights(self) -> Weights:
        """All of it, in a W of its own."""
        W = self.W.copy()
        for change in self.changes:
            add_change(W, *change)
        W[-1] = self.known.W[-1]
        return self.known._replace(W=W)


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
        np.zeros((d1, k), dtype), np.zeros(k), np.zeros(k), np.full(chunks, np.inf), np.zeros(3),
        np.zeros(4), np.empty(0),
    )  # fmt: skip


def make_shard(rows: RowBlock, k: int, formulation: str, tau: float) -> Shard:
    """Variables of a chunk's rows."""
    return start_shard(rows.data(tau), k, formulation)


def visits_of(rows: RowBlock, preference: Array, seed: Sequence[int]) -> Array:
    """Rows of a block to visit in an epoch; those that no visit can change are left out."""
    used = np.flatnonzero(rows.square > 0)
    return draw_visits(used, preference, np.random.default_rng(list(seed)))


def count_rows(order: Array) -> int:
    """How many rows a list of visits names."""
    return int(np.count_nonzero(np.bincount(order)))


def draw_steps(rows: RowBlock, shard: Shard, seed: Sequence[int], parts: int) -> Drawn:
    """The visits of a block in an epoch, dealt to its steps."""
    return Drawn(
        deal_visits(visits_of(rows, shard.preference, seed), rows.y.size, parts), shard.gap
    )


def solve_rows(
    rows: RowBlock,
    shard: Shard,
    drawn: Drawn,
    progress: Progress | None,
    weights: Weights | Lane,
    combined: Combined | None,
    how: How,
    *,
    step: int,
) -> tuple[Progress, Lane, Found]:
    """The next part of a block from the weights of its lane, the last step's changes added.

    Returns the block as if all of its change were taken, the weights without it, and what changed.
    """
    lane = lane_of(weights, combined)
    known, d = lane.known, lane.W.shape[0] - 1
    k = known.own.size
    patches: tuple[Shard, ...] = ()
    gap = drawn.gap
    if progress is not None:
        patches, gap = settle(progress, known.steps, k), progress.gap
    dealt = drawn.dealt[len(patches)]
    mine = gather_rows(shard, patches, dealt)
    alpha, gap = copy_alpha(mine.alpha), gap - mine.gap
    some, features = with_own_features(take(rows, dealt.rows))
    intercept = SoftIntercept(how.rho, k, how.lanes)
    intercept.own, intercept.pull = known.own, known.pull
    solved, found = solve_step(
        mine, soft_data(some, how), lane.rows(features), dealt.order, how.formulation,
        intercept, how.visits, rows.y.size, features, d,
    )  # fmt: skip
    gap += solved.gap
    visited = int(np.count_nonzero(dealt.source == 0))
    return Progress((*patches, solved), alpha, step, gap), lane, Found(found, gap, visited, known)


def lane_of(weights: Weights | Lane, combined: Combined | None) -> Lane:
    """A lane after the last step of this epoch, or before its first."""
    if isinstance(weights, Weights):
        weights = Lane(weights.W, (), without_features(weights))
    return weights if combined is None else weights.follow(combined)


def move_weights(weights: Weights | Lane, combined: Combined) -> Weights:
    """The weights of a lane after an epoch."""
    lane = lane_of(weights, None)
    return Lane(lane.W, (*lane.changes, combined.change), combined.weights).weights()


def with_own_features(rows: RowBlock) -> tuple[RowBlock, Array]:
    """Rows whose features are numbered among those that they have, and which these are."""
    X, d = rows.X, rows.X.shape[1]
    if not sp.issparse(X):
        return rows, np.arange(d)
    has = np.zeros(d, np.bool_)
    has[X.indices] = True
    features = np.flatnonzero(has)
    number = np.empty(d, X.indices.dtype)
    number[features] = np.arange(features.size)
    own = sp.csr_array((X.data, number[X.indices], X.indptr), shape=(X.shape[0], features.size))
    return rows._replace(X=own), features


def without_features(weights: Weights) -> Weights:
    """All that is known of the weights, with the intercepts alone in the place of W."""
    return weights._replace(W=weights.W[-1:].copy())


def soft_data(rows: RowBlock, how: How) -> Data:
    """Rows as visits see them: a change of the intercept weighs rho [SOFT]."""
    soft = how.rho * how.tau**2  # at least that, also where tau² has swallowed the features
    square = np.maximum(rows.square - (1 - how.rho) * how.tau**2, soft)
    return rows._replace(square=square).data(how.tau * float(np.sqrt(how.rho)))


def combine_slices(
    found: Sequence[Found], *, blocks: Sequence[int], how: How, step: int, steps: int
) -> Combined:
    """How far W moves along the sum of all changes: as far as the dual rises [LINE]."""
    weights = found[0].before
    tally, taken = weights.tally.copy(), weights.steps.copy()
    if step == 0:
        tally, taken = np.array([weights.dual, 0.0, 0.0, 0.0]), np.zeros(steps)
    gaps = weights.gaps.copy()
    slices = [one.slice for one in found]
    for c, one in zip(blocks, found, strict=True):
        tally[1] = max(tally[1], one.slice.violation)
        tally[2:] += one.slice.work, one.visited
        gaps[c] = one.gap
    change = total_change([one.change for one in slices])
    moved = sum((one.moved for one in slices), np.zeros(weights.own.size))
    along, linear = (sum(getattr(one, name) for one in slices) for name in ("along", "linear"))
    square = square_of(*change, moved.size)
    slope = linear - along - float(weights.W[-1].astype(np.float64) @ moved)
    # Visits one after another are each the best there is: nothing to search along their sum.
    is_sum = how.lanes > 1 and square > 0
    part = taken[step] = float(np.clip(slope / square, 0.0, 1.0)) if is_sum else 1.0
    sums = weights.sums.copy()
    sums[:2] += part * linear, 2 * part * along + part**2 * square
    intercept = SoftIntercept(how.rho, moved.size, how.lanes)
    intercept.own = weights.own + part * moved
    intercept.pull = np.mean([one.pull for one in slices], axis=0)
    W = weights.W.copy()
    intercept.move(W)
    scale = change.values.dtype.type(part)
    change = change._replace(values=scale * change.values, shift=scale * change.shift)
    return Combined(Weights(W, intercept.own, intercept.pull, gaps, sums, tally, taken), change)


def settle_shard(shard: Shard, drawn: Drawn, progress: Progress, combined: Combined) -> Shard:
    """A block after an epoch: its rows as the steps left them, alpha moved as far as W was."""
    weights = combined.weights
    patches = settle(progress, weights.steps, weights.own.size)
    return merge_patches(shard, patches, drawn.dealt)


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
    sums = np.array([linear, square, 0.0])
    return weights._replace(W=W, own=own, sums=sums)


def look_at_rows(
    rows: RowBlock, shard: Shard, weights: Weights, formulation: str, tau: float
) -> tuple[Shard, tuple[float, float]]:
    """Loss and gap of every row of a chunk, and their sums."""
    new, loss = examine_shard(shard, rows.data(tau), rows.C, weights.W, formulation)
    return new, (loss, new.gap)


def close_certificate(weights: Weights, seen: Sequence[tuple[float, float]]) -> Weights:
    """The weights with the loss of all rows, summed in the order of the chunks."""
    sums = weights.sums.copy()
    sums[2] = sum(loss for loss, _ in seen)
    return weights._replace(sums=sums, gaps=np.array([gap for _, gap in seen]))


def report_bounds(weights: Weights, formulation: str) -> Bounds:
    """Primal of W, intercept included, and dual of alpha."""
    square = square_sum(weights.W) - common_square(weights.W, formulation)
    return Bounds(0.5 * square + float(weights.sums[2]), weights.dual)


def square_sum(W: Array) -> float:
    """|W|² in float64, a few rows at a time; not by BLAS, whose threads change the order."""
    parts = (W[j : j + SUM_ROWS] for j in range(0, W.shape[0], SUM_ROWS))
    return sum(float(np.square(part, dtype=np.float64).sum()) for part in parts)
