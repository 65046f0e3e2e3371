"""Visits of rows by a group of independent classes, and averages of W, as pure functions.

Each copies what it changes, calls a kernel and returns new arrays. So it may run twice, or
elsewhere, and arrays that several calls share stay as they were.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dask_mcsvm.formulations import FORMULATIONS, Bounds, Tally
from dask_mcsvm.solvers.kernels.rows import read_only
from dask_mcsvm.solvers.kernels.standard_rows import settle_mean, summing
from dask_mcsvm.solvers.kernels.steps import LOSSES
from dask_mcsvm.solvers.row_block import RowBlock
from dask_mcsvm.solvers.sdm.sweeps import Scratch

from .blocks import Classes, GroupWeights, Side, placed
from .independent import add_clip_weights, clip_visit, make_group_scratch, settle_zero_rows


@dataclass(frozen=True)
class Visit:
    """How a task goes through its rows: all that it knows besides its arrays."""

    seed: tuple[int, ...]
    epoch: int
    groups: tuple[int, ...]
    step: int
    part: int
    slices: int
    passes: int
    patience: int
    first: bool = False  # of an epoch, for its group: the tally begins anew

    def order(self, *sizes: int) -> npt.NDArray[np.int64]:
        """Rows to visit, (passes, rows), those of a second group after those of the first."""
        starts = np.cumsum([0, *sizes[:-1]])
        rows = np.concatenate(
            [
                start + self._part_of(g, n)
                for g, n, start in zip(self.groups, sizes, starts, strict=True)
            ]
        )
        rng = np.random.default_rng([*self.seed, self.epoch, self.part, *self.groups, self.step])
        return np.stack([rng.permutation(rows) for _ in range(self.passes)])

    def _part_of(self, group: int, n: int) -> npt.NDArray[np.int64]:
        """This part of a group's rows; in one epoch all visits cut them alike."""
        rng = np.random.default_rng([*self.seed, self.epoch, group, self.step])
        rows: npt.NDArray[np.int64] = np.array_split(rng.permutation(n), self.slices)[self.part]
        return rows


class Average(NamedTuple):
    """What a barrier found: by how much to lower every column of W, and what that gains."""

    move: npt.NDArray[np.float64]  # (d + 1,)
    rise: float


def start_weights(n_rows: int, n_classes: int, dtype: np.dtype[Any]) -> GroupWeights:
    """No weights yet."""
    return GroupWeights(np.zeros((n_rows, n_classes), dtype), Tally())


def zero_weights(old: GroupWeights) -> GroupWeights:
    """float64 zeros of the same shape."""
    return GroupWeights(np.zeros(old.W.shape), Tally())


def finish_weights(
    new: GroupWeights, old: GroupWeights, average: Average | None = None
) -> GroupWeights:
    """float64 weights in the dtype of the old ones; the tally becomes the group's share of D."""
    W = new.W if average is None else new.W - average.move[:, None]
    share = new.tally.gain - 0.5 * float(np.sum(np.square(W)))  # [D]
    return GroupWeights(W.astype(old.W.dtype), Tally(share))


def scratch_for(*weights: npt.NDArray[Any]) -> Scratch:
    """Working space for the classes of these groups."""
    scratch: Scratch = make_group_scratch(max(W.shape[1] for W in weights), weights[0].dtype)
    return scratch


def sum_tallies(tallies: Sequence[Tally]) -> Tally:
    """What all visits did, in the order given."""
    total = Tally()
    for tally in tallies:
        total = total.plus(tally[:3])
    return total


def tally_bounds(tally: Tally, primal: float) -> Bounds:
    """A certificate from a tally whose gain is the dual."""
    return Bounds(primal, tally.gain)


def start_gain(sides: Sequence[Side]) -> Tally:
    """The dual of variables that move no W: Σ alpha."""
    return Tally(sum(float(side.alpha.sum(dtype=np.float64)) for side in sides))


def start_side(rows: RowBlock, *, formulation: str, classes: Classes, tau: float) -> Side:
    """Variables of a chunk's rows for the classes of a group."""
    data, form = placed(rows, classes).data(tau), FORMULATIONS[formulation]
    shape = (data.y.size, classes.size)
    alpha = np.zeros(shape, data.C.dtype)
    if form.starts_at_bound:
        alpha[:] = data.C[:, None]
        mine = np.flatnonzero(data.y >= 0)
        alpha[mine, data.y[mine]] = 0
    settle_zero_rows(data, alpha, own=form.has_own_variable)
    return Side(alpha, np.zeros(shape, np.uint8))


def clip_step(
    weights: GroupWeights,
    duals: Side,
    rows: RowBlock,
    average: Average | None = None,
    *,
    visit: Visit,
    formulation: str,
    classes: Classes,
    tau: float,
) -> tuple[GroupWeights, Side]:
    """Visit the rows of a chunk; where w_bar was averaged before, move by it first [AVG]."""
    W, side = weights.W.copy(), duals.copy()
    tally = Tally() if visit.first else weights.tally
    if average is not None:
        W -= average.move.astype(W.dtype)[:, None]
        tally = tally.plus((average.rise * (visit.groups[0] == 0), 0.0, 0))
    data = placed(rows, classes).data(tau, W)
    loss = LOSSES[formulation](classes.size)
    done = clip_visit(
        loss, data, visit.order(data.y.size), W, side.alpha, side.rest, visit.patience,
        scratch_for(W),
    )  # fmt: skip
    settle_mean(data.rows, W)
    return GroupWeights(W, tally.plus(done)), side


def add_chunk(
    weights: GroupWeights,
    duals: Side,
    rows: RowBlock,
    *,
    formulation: str,
    classes: Classes,
    tau: float,
) -> GroupWeights:
    """Add what the rows of a chunk put into the columns of a group; the tally gains Σ alpha."""
    W = weights.W.copy()
    data = placed(rows, classes).data(tau)
    loss = LOSSES[formulation](classes.size)
    with summing(data.rows, data.tau, W) as (x, one):
        data = data._replace(rows=x, tau=one)
        linear = add_clip_weights(loss, data, read_only(rows.C), duals.alpha, W, scratch_for(W))
    return GroupWeights(W, weights.tally.plus((linear, 0.0, 0)))


def sum_columns(weights: GroupWeights) -> npt.NDArray[np.float64]:
    """Σ_m w_m over the classes of a group, float64 (d + 1,)."""
    total: npt.NDArray[np.float64] = weights.W.sum(axis=1, dtype=np.float64)
    return total


def add_vectors(vectors: Sequence[npt.NDArray[np.float64]]) -> npt.NDArray[np.float64]:
    """The sum, in the order given."""
    total = vectors[0].copy()
    for vector in vectors[1:]:
        total += vector
    return total


def average(vectors: Sequence[npt.NDArray[np.float64]], k: int, beyond: float) -> Average:
    """How far k columns are to move, and how much that raises what is maximized [AVG]."""
    mean = add_vectors(vectors) / k
    rise = 0.5 * k * (1 - (1 - beyond) ** 2) * float(mean @ mean)
    return Average(beyond * mean, rise)


def even(weights: GroupWeights, average: Average) -> GroupWeights:
    """Columns without their mean in float64."""
    return GroupWeights(weights.W.astype(np.float64) - average.move[:, None], weights.tally)


def centre(weights: GroupWeights, average: Average, *, counts: bool) -> GroupWeights:
    """Columns without their mean; the rise of the dual is counted by one group."""
    W = weights.W - average.move.astype(weights.W.dtype)[:, None]
    return GroupWeights(W, weights.tally.plus((average.rise * counts, 0.0, 0)))
