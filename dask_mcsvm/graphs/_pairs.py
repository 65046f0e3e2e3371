"""The tasks of `rounds`: visits of one or two class groups, and W from the duals of a pair."""

from __future__ import annotations

import numpy as np

from dask_mcsvm.solvers.groups import (
    add_ww_weights,
    settle_zero_rows,
    ww_own_visit,
    ww_pair_visit,
)

from ._blocks import Classes, GroupWeights, PairDuals, Side, placed, take
from ._tasks import Visit, scratch_for
from .rows import RowBlock
from .state import Tally


def start_own(rows: RowBlock, *, classes: tuple[Classes], tau: float) -> tuple[Side, Tally]:
    """Variables of a group's rows for its own classes; that of the own class is none."""
    side = start_side(rows, *classes, tau, own=False)
    return side, Tally(side_sum(side))


def start_pair(
    rows_a: RowBlock | None,
    rows_b: RowBlock | None,
    *,
    classes: tuple[Classes, Classes],
    tau: float,
) -> tuple[PairDuals, Tally]:
    """Variables of the rows of each group for the classes of the other."""
    left, right = both_sides(rows_a, rows_b)
    duals = PairDuals(
        start_side(left, classes[1], tau, own=True), start_side(right, classes[0], tau, own=True)
    )
    return duals, Tally(side_sum(duals.ab) + side_sum(duals.ba))


def start_side(rows: RowBlock, classes: Classes, tau: float, *, own: bool) -> Side:
    """Zeros, but for rows without features, whose optimum is known [BOX-Z]."""
    data = placed(rows, classes).data(tau)
    shape = (data.y.size, classes.size)
    side = Side(np.zeros(shape, data.C.dtype), np.zeros(shape, np.uint8))
    settle_zero_rows(data, side.alpha, own)
    return side


def side_sum(side: Side) -> float:
    """Σ alpha, by which a variable that moves no W raises the dual."""
    return float(side.alpha.sum(dtype=np.float64))


def own_visit(
    weights: GroupWeights,
    duals: Side,
    rows: RowBlock,
    *,
    visit: Visit,
    classes: tuple[Classes],
    tau: float,
) -> tuple[GroupWeights, Side]:
    """Visit one group with itself. It comes first in an epoch, so the tally begins anew."""
    W, side = weights.W.copy(), duals.copy()
    data = placed(rows, *classes).data(tau)
    done = ww_own_visit(
        data, visit.order(data.y.size), W, side.alpha, side.rest, visit.patience, scratch_for(W)
    )
    tally = Tally() if visit.first else weights.tally
    return GroupWeights(W, tally.plus(done)), side


def pair_visit(
    a: GroupWeights,
    b: GroupWeights,
    duals: PairDuals,
    rows_a: RowBlock | None,
    rows_b: RowBlock | None,
    *,
    visit: Visit,
    classes: tuple[Classes, Classes],
    tau: float,
) -> tuple[GroupWeights, GroupWeights, PairDuals]:
    """Visit two groups; what it did is counted for the first."""
    W_a, W_b, ab, ba = a.W.copy(), b.W.copy(), duals.ab.copy(), duals.ba.copy()
    left, right = (
        placed(rows, places).data(tau)
        for rows, places in zip(both_sides(rows_a, rows_b), classes, strict=True)
    )
    done = ww_pair_visit(
        left, right, visit.order(left.y.size, right.y.size), W_a, W_b, ab.alpha, ba.alpha,
        ab.rest, ba.rest, visit.patience, scratch_for(W_a, W_b),
    )  # fmt: skip
    return GroupWeights(W_a, a.tally.plus(done)), GroupWeights(W_b, b.tally), PairDuals(ab, ba)


def add_own(
    weights: GroupWeights, duals: Side, rows: RowBlock, *, classes: tuple[Classes], tau: float
) -> tuple[GroupWeights]:
    """Add what a group's rows put into its own columns; the tally gains Σ alpha."""
    W = weights.W.copy()
    data = placed(rows, *classes).data(tau)
    linear = add_ww_weights(data, rows.C, duals.alpha, True, W, W, scratch_for(W))
    return (GroupWeights(W, weights.tally.plus((linear, 0.0, 0))),)


def add_pair(
    a: GroupWeights,
    b: GroupWeights,
    duals: PairDuals,
    rows_a: RowBlock | None,
    rows_b: RowBlock | None,
    *,
    classes: tuple[Classes, Classes],
    tau: float,
) -> tuple[GroupWeights, GroupWeights]:
    """Add what the rows of two groups put into each other's and their own columns."""
    W_a, W_b, linear = a.W.copy(), b.W.copy(), 0.0
    scratch = scratch_for(W_a, W_b)
    left, right = both_sides(rows_a, rows_b)
    for rows, places, side, own, other in (
        (left, classes[0], duals.ab, W_a, W_b),
        (right, classes[1], duals.ba, W_b, W_a),
    ):
        data = placed(rows, places).data(tau)
        linear += add_ww_weights(data, rows.C, side.alpha, False, own, other, scratch)
    return GroupWeights(W_a, a.tally.plus((linear, 0.0, 0))), GroupWeights(W_b, b.tally)


def both_sides(a: RowBlock | None, b: RowBlock | None) -> tuple[RowBlock, RowBlock]:
    """Rows of two groups; a missing block has the form of the other and no rows."""
    some = a if a is not None else b
    assert some is not None
    nobody = take(some, np.arange(0))
    return nobody if a is None else a, nobody if b is None else b
