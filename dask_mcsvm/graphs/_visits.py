"""What the tasks of `rounds` compute, and the values that travel between them.

A task is a pure function: it copies what it changes, calls a kernel and returns new arrays. So it
may run twice, or elsewhere, and arrays that several tasks share stay as they were. W and alpha are
dense where they are worked on; between processes only their nonzeros travel while most are zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dask_mcsvm.solvers.groups import (
    add_ww_weights,
    make_group_scratch,
    settle_zero_rows,
    ww_own_visit,
    ww_pair_visit,
)
from dask_mcsvm.solvers.sdm import Data

from .regroup import RowBlock


class Packed(NamedTuple):
    """An array on its way to another process, without its zeros: a bit each and the rest."""

    shape: tuple[int, ...]
    nonzero: npt.NDArray[np.uint8]
    values: npt.NDArray[Any]


def packed(array: npt.NDArray[Any]) -> npt.NDArray[Any] | Packed:
    """What to send: the array itself, or where at least half of it is zero the nonzeros."""
    if not array.flags.c_contiguous:
        return array
    # Bits, not values: -0.0 has to arrive as -0.0 for the same bytes on every scheduler.
    nonzero = array.view(f"u{array.dtype.itemsize}") != 0
    if 2 * np.count_nonzero(nonzero) > array.size:
        return array
    return Packed(array.shape, np.packbits(nonzero), array[nonzero])


def unpacked(sent: npt.NDArray[Any] | Packed) -> npt.NDArray[Any]:
    """What `packed` was given."""
    if not isinstance(sent, Packed):
        return sent
    size = math.prod(sent.shape)
    array: npt.NDArray[Any] = np.zeros(size, sent.values.dtype)
    array[np.unpackbits(sent.nonzero, count=size).view(np.bool_)] = sent.values
    return array.reshape(sent.shape)


def unpacked_weights(sent: npt.NDArray[Any] | Packed, tally: Tally) -> GroupWeights:
    return GroupWeights(unpacked(sent), tally)


def unpacked_side(sent: npt.NDArray[Any] | Packed, rest: npt.NDArray[np.uint8]) -> Side:
    return Side(unpacked(sent), rest)


class Tally(NamedTuple):
    """What visits did: rise of the dual, largest violation met, class scores computed."""

    gain: float = 0.0
    violation: float = 0.0
    work: int = 0

    def plus(self, other: tuple[float, float, int]) -> Tally:
        gain, violation, work = other
        return Tally(self.gain + gain, max(self.violation, violation), self.work + work)


class GroupWeights(NamedTuple):
    """The columns of W of one group, and what the visits counted for it did in this epoch."""

    W: npt.NDArray[Any]  # (d + 1, classes of the group)
    tally: Tally

    def __reduce__(self) -> tuple[Any, ...]:
        return unpacked_weights, (packed(self.W), self.tally)


class Side(NamedTuple):
    """Variables of some rows for the classes of one group."""

    alpha: npt.NDArray[Any]  # (rows, classes)
    rest: npt.NDArray[np.uint8]  # (rows, classes) visits since the variable moved

    def copy(self) -> Side:
        return Side(self.alpha.copy(), self.rest.copy())

    def __reduce__(self) -> tuple[Any, ...]:
        return unpacked_side, (packed(self.alpha), self.rest)


class PairDuals(NamedTuple):
    """The variables of a visit: rows of a for the classes of b, rows of b for those of a."""

    ab: Side
    ba: Side


@dataclass(frozen=True)
class Visit:
    """How a task goes through its rows: all that it knows besides its arrays."""

    seed: tuple[int, ...]
    epoch: int
    groups: tuple[int, int]
    step: int
    part: int
    slices: int
    passes: int
    patience: int
    tau: float

    def order(self, n_a: int, n_b: int = 0) -> npt.NDArray[np.int64]:
        """Rows to visit, (passes, rows), those of b after those of a."""
        a, b = self.groups
        rows = np.concatenate([self._part_of(a, n_a), n_a + self._part_of(b, n_b)])
        rng = np.random.default_rng([*self.seed, self.epoch, self.part, a, b, self.step])
        return np.stack([rng.permutation(rows) for _ in range(self.passes)])

    def _part_of(self, group: int, n: int) -> npt.NDArray[np.int64]:
        """This part of a group's rows; in one epoch all visits cut them alike."""
        rng = np.random.default_rng([*self.seed, self.epoch, group, self.step])
        rows: npt.NDArray[np.int64] = np.array_split(rng.permutation(n), self.slices)[self.part]
        return rows


def start_weights(n_rows: int, n_classes: int, dtype: np.dtype[Any]) -> GroupWeights:
    """No weights yet."""
    return GroupWeights(np.zeros((n_rows, n_classes), dtype), Tally())


def start_own(block: RowBlock, n_classes: int, _: int, dtype: np.dtype[Any], *, tau: float) -> Side:
    """Variables of a group's rows for its own classes; that of the own class is none."""
    return start_side(block, n_classes, dtype, tau, own=False)


def start_pair(
    a: RowBlock | None,
    b: RowBlock | None,
    n_a: int,
    n_b: int,
    dtype: np.dtype[Any],
    *,
    tau: float,
) -> PairDuals:
    """Variables of the rows of each group for the classes of the other."""
    return PairDuals(
        start_side(a, n_b, dtype, tau, own=True), start_side(b, n_a, dtype, tau, own=True)
    )


def start_side(
    block: RowBlock | None, n_classes: int, dtype: np.dtype[Any], tau: float, *, own: bool
) -> Side:
    n = 0 if block is None else block.y.size
    side = Side(np.zeros((n, n_classes), dtype), np.zeros((n, n_classes), np.uint8))
    if block is not None:
        settle_zero_rows(block.data(tau), side.alpha, own)
    return side


def own_visit(
    weights: GroupWeights, duals: Side, block: RowBlock, *, visit: Visit
) -> tuple[GroupWeights, Side]:
    """Visit one group with itself. It comes first in an epoch, so the tally begins anew."""
    W, side = weights.W.copy(), duals.copy()
    data = block.data(visit.tau)
    done = ww_own_visit(
        data, visit.order(data.y.size), W, side.alpha, side.rest, visit.patience, scratch_for(W)
    )
    tally = weights.tally if visit.part or visit.step else Tally()
    return GroupWeights(W, tally.plus(done)), side


def pair_visit(
    a: GroupWeights,
    b: GroupWeights,
    duals: PairDuals,
    rows_a: RowBlock | None,
    rows_b: RowBlock | None,
    *,
    visit: Visit,
) -> tuple[GroupWeights, GroupWeights, PairDuals]:
    """Visit two groups; what it did is counted for the first."""
    W_a, W_b, ab, ba = a.W.copy(), b.W.copy(), duals.ab.copy(), duals.ba.copy()
    left, right = data_of(rows_a, rows_b, visit.tau)
    done = ww_pair_visit(
        left, right, visit.order(left.y.size, right.y.size), W_a, W_b, ab.alpha, ba.alpha,
        ab.rest, ba.rest, visit.patience, scratch_for(W_a, W_b),
    )  # fmt: skip
    return GroupWeights(W_a, a.tally.plus(done)), GroupWeights(W_b, b.tally), PairDuals(ab, ba)


def zero_weights(old: GroupWeights) -> GroupWeights:
    """float64 zeros of the same shape."""
    return GroupWeights(np.zeros(old.W.shape), Tally())


def add_own(
    weights: GroupWeights, duals: Side, block: RowBlock, *, tau: float
) -> tuple[GroupWeights]:
    """Add what a group's rows put into its own columns; the tally gains Σ alpha."""
    W = weights.W.copy()
    data = block.data(tau)
    linear = add_ww_weights(data, block.C, duals.alpha, True, W, W, scratch_for(W))
    return (GroupWeights(W, weights.tally.plus((linear, 0.0, 0))),)


def add_pair(
    a: GroupWeights,
    b: GroupWeights,
    duals: PairDuals,
    rows_a: RowBlock | None,
    rows_b: RowBlock | None,
    *,
    tau: float,
) -> tuple[GroupWeights, GroupWeights]:
    """Add what the rows of two groups put into each other's and their own columns."""
    W_a, W_b, linear = a.W.copy(), b.W.copy(), 0.0
    scratch = scratch_for(W_a, W_b)
    for rows, side, own, other in ((rows_a, duals.ab, W_a, W_b), (rows_b, duals.ba, W_b, W_a)):
        if rows is not None:
            data = rows.data(tau)
            linear += add_ww_weights(data, rows.C, side.alpha, False, own, other, scratch)
    return GroupWeights(W_a, a.tally.plus((linear, 0.0, 0))), GroupWeights(W_b, b.tally)


def finish_weights(new: GroupWeights, old: GroupWeights) -> GroupWeights:
    """float64 weights in the dtype of the old ones; the tally becomes the group's share of D."""
    share = new.tally.gain - 0.5 * float(np.sum(np.square(new.W)))  # [D]
    return GroupWeights(new.W.astype(old.W.dtype), Tally(share))


def data_of(a: RowBlock | None, b: RowBlock | None, tau: float) -> tuple[Data, Data]:
    """Both sides as kernels take them; a missing one has the form of the other and no rows."""
    some = a if a is not None else b
    assert some is not None
    nobody = RowBlock(some.ids[:0], some.X[:0], some.y[:0], some.C[:0], some.square[:0])
    return (nobody if a is None else a).data(tau), (nobody if b is None else b).data(tau)


def scratch_for(*weights: npt.NDArray[Any]) -> Any:
    return make_group_scratch(max(W.shape[1] for W in weights), weights[0].dtype)


def item(values: Sequence[Any], place: int) -> Any:
    return values[place]


def sum_tallies(tallies: Sequence[Tally]) -> Tally:
    total = Tally()
    for tally in tallies:
        total = total.plus(tally)
    return total
