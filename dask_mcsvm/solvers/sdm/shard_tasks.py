"""What the tasks of `shards` compute, and the values that travel between them.

Tasks are pure: kernels work on copies, so that a task may run twice, or elsewhere. What the steps
of an epoch made of such copies lies beside the value that it was made from (`Desk`), for the next
step: that is only speed, and who does not find it makes it anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from dask_mcsvm.formulations import FORMULATIONS, Bounds, Tally
from dask_mcsvm.solvers.kernels.certify import centre_columns, common_square
from dask_mcsvm.solvers.row_block import RowBlock
from dask_mcsvm.solvers.sdm.at_work import RowsAtWork, WeightsAtWork
from dask_mcsvm.solvers.sdm.change import Change, square_of, total_change
from dask_mcsvm.solvers.sdm.intercept import SoftIntercept
from dask_mcsvm.solvers.sdm.shard import (
    Shard,
    Slice,
    examine_shard,
    shard_columns,
    start_shard,
)
from dask_mcsvm.solvers.sdm.sweeps import Data
from dask_mcsvm.solvers.sdm.visits import draw_visits, ends_of_turns

Array = npt.NDArray[Any]
#: Rows of W whose squares exist at a time.
SUM_ROWS = 1024
#: A step is taken whole where the line search says that much of it: the dual rises by almost as
#: much, no variables need to be moved back, and zeros among them stay zeros.
WHOLE = 0.9


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


class Desk:
    """A value with room beside it for what a task made of it, on the worker that has both.

    Whoever takes that has it alone; where there is nothing, as on a worker that the value was sent
    to, or for a task that runs again, it is made from what the value says.
    """

    def __init__(self, *values: Any) -> None:
        self.values, self._beside = values, list[Any]()

    def __reduce__(self) -> tuple[type[Self], tuple[Any, ...]]:
        return type(self), self.values

    def __sizeof__(self) -> int:
        return sum(value.nbytes for value in self.values)

    def take(self) -> Any:
        """What was left here, or None."""
        try:
            return self._beside.pop()
        except IndexError:
            return None

    def leave(self, work: Any) -> None:
        """For the next task to take."""
        self._beside[:] = [work]


class Drawn(Desk):
    """The visits of a block in an epoch, in order, and where each of its steps ends."""

    @property
    def turns(self) -> int:
        """How many steps visit the block."""
        return int(self.values[1].size)

    def visits(self, turn: int) -> Array:
        """Those of one of its steps."""
        order, ends = self.values
        part: Array = np.split(order, ends)[turn]
        return part


class Lane(Desk):
    """The weights that a lane begins an epoch with."""

    @property
    def weights(self) -> Weights:
        return Weights(*self.values)


class Found(NamedTuple):
    """What a lane found in a step, and what it was told before it."""

    slice: Slice
    visited: int  # rows that the epoch had not visited before
    gap: float | None  # of the block, as its rows last showed it, after its last step
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
    order = visits_of(rows, shard.preference, seed)
    return Drawn(order, ends_of_turns(order.size, parts))


def open_lane(weights: Weights) -> Lane:
    """What the steps of a lane begin with in an epoch."""
    return Lane(*weights)


def solve_rows(
    rows: RowBlock,
    shard: Shard,
    drawn: Drawn,
    lane: Lane,
    past: Sequence[Combined],
    how: How,
    *,
    turns: Sequence[int],
) -> Found:
    """The next part of a block, from the weights that all lanes have in common.

    ``past`` are all steps of the epoch that are over, ``turns`` those that visit this block, the
    last of them now.
    """
    block, found = catch_up(rows, shard, drawn, lane, past, how, turns)
    assert found is not None
    gap = block.gap if block.turns == drawn.turns else None
    drawn.leave(block)
    return Found(*found, gap, known_after(lane, past))


def catch_up(
    rows: RowBlock,
    shard: Shard,
    drawn: Drawn,
    lane: Lane,
    past: Sequence[Combined],
    how: How,
    turns: Sequence[int],
) -> tuple[RowsAtWork, tuple[Slice, int] | None]:
    """The block after all its turns, and what the last of them found.

    Where the steps before have left their work beside ``drawn`` and ``lane``, only what came since
    is left to do; else all of it is done again.
    """
    block = drawn.take()
    if block is None or block.turns > len(turns) - (turns[-1] == len(past)):
        block = RowsAtWork(shard, soft_data(rows, how), lane.weights.own.size)
    due, found = turns[block.turns :], None
    if not due:
        return block, None
    weights = lane.take()
    if weights is None or weights.steps > due[0]:
        weights = WeightsAtWork(lane.weights.W)
    for step in due:
        settle_last(block, past, turns)
        follow(weights, past[:step])
        known = known_after(lane, past[:step])
        intercept = SoftIntercept(how.rho, known.own.size, how.lanes)
        intercept.own, intercept.pull = known.own, known.pull
        order = drawn.visits(block.turns)
        found = block.visit(order, weights, how.formulation, intercept, how.visits)
    lane.leave(weights)
    return block, found


def settle_last(block: RowsAtWork, past: Sequence[Combined], turns: Sequence[int]) -> None:
    """The variables of a block move as far as W did in the last step that visited it."""
    if block.turns > 0:
        step = turns[block.turns - 1]
        block.settle(float(past[step].weights.steps[step]))


def follow(weights: WeightsAtWork, past: Sequence[Combined]) -> None:
    """Weights of a lane move on to those that all have in common after some steps."""
    for combined in past[weights.steps :]:
        weights.follow(combined.change, combined.weights.W[-1])


def known_after(lane: Lane, past: Sequence[Combined]) -> Weights:
    """What is known of the weights after some steps, without features."""
    return past[-1].weights if past else without_features(lane.weights)


def move_weights(lane: Lane, past: Sequence[Combined]) -> Weights:
    """The weights of a lane after an epoch."""
    weights = lane.take() or WeightsAtWork(lane.weights.W)
    follow(weights, past)
    return past[-1].weights._replace(W=weights.W)


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
        if one.gap is not None:
            gaps[c] = one.gap
    change = total_change([one.change for one in slices])
    moved = sum((one.moved for one in slices), np.zeros(weights.own.size))
    along, linear = (sum(getattr(one, name) for one in slices) for name in ("along", "linear"))
    square = square_of(*change, moved.size)
    slope = linear - along - float(weights.W[-1].astype(np.float64) @ moved)
    # Visits one after another are each the best there is: nothing to search along their sum.
    is_sum = how.lanes > 1 and square > 0
    part = float(np.clip(slope / square, 0.0, 1.0)) if is_sum else 1.0
    part = taken[step] = 1.0 if part >= WHOLE else part
    sums = weights.sums.copy()
    sums[:2] += part * linear, 2 * part * along + part**2 * square
    intercept = SoftIntercept(how.rho, moved.size, how.lanes)
    intercept.own = weights.own + part * moved
    intercept.pull = np.mean([one.pull for one in slices], axis=0)
    W = weights.W.copy()
    intercept.move(W)
    if part < 1.0:
        scale = change.values.dtype.type(part)
        change = change._replace(values=scale * change.values, shift=scale * change.shift)
    return Combined(Weights(W, intercept.own, intercept.pull, gaps, sums, tally, taken), change)


def settle_shard(
    rows: RowBlock,
    shard: Shard,
    drawn: Drawn,
    lane: Lane,
    past: Sequence[Combined],
    how: How,
    *,
    turns: Sequence[int],
) -> Shard:
    """A block after an epoch."""
    block, _ = catch_up(rows, shard, drawn, lane, past, how, turns)
    settle_last(block, past, turns)
    return block.shard()


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
