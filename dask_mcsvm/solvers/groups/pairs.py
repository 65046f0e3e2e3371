"""The tasks of `rounds`: visits of two class groups, and W from their duals.

A visit works on the columns of both groups side by side, so that each example is solved exactly
over all classes of the two. It is the sequential dual method on their rows and their classes, by
the same kernels. Arrays that a task was given stay as they were.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dask_mcsvm.formulations import Tally
from dask_mcsvm.formulations.margins import cut, margin_rows
from dask_mcsvm.solvers.kernels.certify import weights_block
from dask_mcsvm.solvers.kernels.rows import read_only
from dask_mcsvm.solvers.kernels.standard_rows import beside, settle_mean, summing, with_scores_of
from dask_mcsvm.solvers.kernels.steps import WW
from dask_mcsvm.solvers.row_block import RowBlock
from dask_mcsvm.solvers.sdm.initial_duals import fresh_classes
from dask_mcsvm.solvers.sdm.sweeps import make_scratch
from dask_mcsvm.solvers.sdm.table import Table
from dask_mcsvm.solvers.sdm.visits import draw_visits

from .blocks import Classes, PairDuals, RoundWeights, placed
from .sparse_duals import Lists, alpha_of, lists_of

#: The two groups take turns, with about so many rows at a time. With eight turns a visit 20
#: Newsgroups stalled at a gap of 2e-2: the intercepts went to and fro.
TURN_ROWS = 64


@dataclass(frozen=True)
class Meeting:
    """How groups meet: all that a visit knows besides its arrays."""

    seed: tuple[int, ...]
    epoch: int
    groups: tuple[int, ...]
    step: int  # which of the groups' blocks of rows
    part: int  # of so many slices of the epoch
    slices: int
    passes: int
    whole: bool  # visit every row once, whatever its preference
    theta: float  # how much a change of the intercepts weighs [TRADE]
    visits: int  # between two moves of them, at least
    first: tuple[bool, ...]  # whether it is the group's first of the epoch: its tally begins anew

    def rng(self, *more: int) -> np.random.Generator:
        """Random numbers of this visit and of nothing else."""
        return np.random.default_rng([*self.seed, self.epoch, *self.groups, self.step, *more])


def order_of(table: Table, meeting: Meeting, side: int, turn: int) -> npt.NDArray[np.intp]:
    """Rows to visit in one pass: as often as they deserve, or each once."""
    rows = np.flatnonzero(table.data.square > 0)  # the others have nothing to move
    if meeting.whole:
        # In one epoch all parts cut the rows alike, so that together they hold each once.
        return np.array_split(meeting.rng(side).permutation(rows), meeting.slices)[meeting.part]
    rng = meeting.rng(side, meeting.part, turn)
    return draw_visits(rows, table.preference, rng, meeting.slices)


def turns(orders: Sequence[npt.NDArray[np.intp]]) -> Iterator[tuple[int, npt.NDArray[np.intp]]]:
    """The rows of each side in small portions, side by side."""
    count = max(1, max(order.size for order in orders) // TURN_ROWS)
    for portions in zip(*(np.array_split(order, count) for order in orders), strict=True):
        yield from enumerate(portions)


def solve_pair(
    groups: Sequence[RoundWeights],
    duals: PairDuals,
    rows: Sequence[RowBlock | None],
    *,
    meeting: Meeting,
    classes: Sequence[Classes],
    tau: float,
    after: Tally | None = None,
) -> tuple[RoundWeights | PairDuals, ...]:
    """Visit two groups, or one alone: their new weights, then their new duals [ROUNDS].

    What it did is counted for the first of them. ``after`` is what the rounds before came to: the
    barrier that a visit waits for, and nothing that it reads.
    """
    del after
    theta = meeting.theta if tau != 0 else 1.0
    W = np.concatenate([group.W for group in groups], axis=1)
    trade = Trade(theta, all_bias(groups))
    average, k = duals.average.copy(), W.shape[1]
    tables = load_rows(groups, duals, rows, classes, tau, theta, meeting.step, average)
    centred = with_scores_of(tables[0].data.rows, W)
    for table in tables:
        table.data = table.data._replace(rows=beside(table.data.rows, centred))
    shift, scratch = np.empty(0, W.dtype), make_scratch(k, W.dtype)
    done, visited = Tally(), 0
    trade.open(W)
    for turn in range(meeting.passes):
        orders = [order_of(table, meeting, side, turn) for side, table in enumerate(tables)]
        for side, order in turns(orders):
            if visited >= meeting.visits:
                trade.close(W)
                trade.open(W)
                visited = 0
            n = tables[side].preference.size
            fresh = fresh_classes("weston_watkins", n, k)
            found = tables[side].sweep(WW(k), order, W, shift, fresh, n, scratch)
            done = done.plus((found.gain, found.violation, found.work))
            visited += order.size
    trade.close(W)
    settle_mean(tables[0].data.rows, W)
    tally = (done.gain + trade.owed, done.violation, done.work)
    return collect(groups, duals, tables, W, trade.bias, average, tally, meeting)


class Trade:
    """The intercepts of a visit: those in the scores follow those that alpha makes [TRADE]."""

    def __init__(self, theta: float, bias: npt.NDArray[np.float64]) -> None:
        self.theta, self.root, self.bias = theta, np.sqrt(theta), bias
        self.owed = 0.0  # rise of the dual beyond what the kernels saw
        self.start = self.begun = np.zeros(bias.size)

    def open(self, W: npt.NDArray[Any]) -> None:
        """Before some visits: move, and weigh a change by theta."""
        self.start = W[-1] + self.theta * (self.bias - W[-1])
        W[-1] = self.start / self.root
        self.begun = W[-1].astype(np.float64)

    def close(self, W: npt.NDArray[Any]) -> None:
        """After them."""
        moved = (W[-1] - self.begun) / self.root
        W[-1] *= W.dtype.type(self.root)
        # The kernels maximized with start + theta·moved for an intercept; in the dual it is bias.
        less = 0.5 * (self.theta - 1) * np.square(moved)
        self.owed += float(np.sum(moved * (self.start - self.bias) + less))
        self.bias = self.bias + moved


def load_rows(
    groups: Sequence[RoundWeights],
    duals: PairDuals,
    rows: Sequence[RowBlock | None],
    classes: Sequence[Classes],
    tau: float,
    theta: float,
    step: int,
    average: npt.NDArray[np.float64],
) -> list[Table]:
    """The rows of both groups, their variables side by side like the columns of W."""
    sizes = [group.W.shape[1] for group in groups]
    (some,) = [block for block in rows if block is not None][:1]
    tables, all_classes = [], np.concatenate(classes)
    for side, (group, block) in enumerate(zip(groups, rows, strict=True)):
        here = placed(block if block is not None else some.some(np.arange(0)), classes[side])
        others, preference = (duals.ab, duals.preference_a) if side == 0 else (
            duals.ba, duals.preference_b)  # fmt: skip
        own = group.own[step] if block is not None else others
        pieces = (own, others) if side == 0 else (others, own)
        data = among(here, sum(sizes[:side]), all_classes).data(tau)
        data = data._replace(
            tau=data.tau.dtype.type(tau * np.sqrt(theta)),
            square=read_only(np.maximum(here.square - (1 - theta) * tau**2, theta * tau**2)),
        )
        alpha = alpha_of(pieces[: len(groups)], sizes, data.C.dtype)
        seen = np.empty((data.y.size, 2))
        tables.append(Table.lay(data, alpha, preference.astype(np.float64), seen, average))
    return tables


def collect(
    groups: Sequence[RoundWeights],
    duals: PairDuals,
    tables: Sequence[Table],
    W: npt.NDArray[Any],
    bias: npt.NDArray[np.float64],
    average: npt.NDArray[np.float64],
    done: tuple[float, float, int],
    meeting: Meeting,
) -> tuple[RoundWeights | PairDuals, ...]:
    """What each group takes with it, and what they keep together."""
    left, taken, kept = 0, [], list[Lists]()
    sizes = [group.W.shape[1] for group in groups]
    for side, (group, table) in enumerate(zip(groups, tables, strict=True)):
        pieces = lists_of(table.variables, sizes)
        own, here = list(group.own), slice(left, left + sizes[side])
        if meeting.step < len(own):
            own[meeting.step] = pieces[side]
        kept.append(pieces[1 - side] if len(groups) == 2 else duals.ab)
        tally = Tally() if meeting.first[side] else group.tally
        tally = tally.plus(done) if side == 0 else tally
        taken.append(RoundWeights(W[:, here].copy(), tally, bias[here].copy(), tuple(own)))
        left = here.stop
    a, *b = (table.preference.astype(np.float32) for table in tables)
    ab, *ba = kept
    together = PairDuals(
        ab, ba[0] if ba else duals.ba, a, b[0] if b else duals.preference_b, average
    )
    return *taken, together


def all_bias(groups: Sequence[RoundWeights]) -> npt.NDArray[np.float64]:
    """The intercepts that alpha makes, of all classes of the groups."""
    return np.concatenate([group.bias for group in groups])


# -- start and refresh -----------------------------------------------------------------------------


def start_own(rows: RowBlock, *, classes: Classes) -> Lists:
    """No variables of a group's rows for its own classes yet, but for rows without features."""
    block = placed(rows, classes)
    return settled(block, classes.size, own=block.y)


def start_group(
    own: Sequence[Lists],
    rows: Sequence[RowBlock],
    *,
    classes: Classes,
    n_classes: int,
    shape: tuple[int, int],
    dtype: Any,
) -> RoundWeights:
    """No weights yet; the tally is the dual of the rows without features."""
    tally = Tally(sum(dual_of_empty(block, classes, n_classes) for block in rows))
    return RoundWeights(np.zeros(shape, dtype), tally, np.zeros(shape[1]), tuple(own))


def start_pair(
    *rows: RowBlock | None, classes: Sequence[Classes], n_classes: int
) -> tuple[PairDuals, Tally]:
    """Variables of the rows of each group for the classes of the other.

    A group that meets itself has none but its own.
    """
    (some,) = [block for block in rows if block is not None][:1]
    blocks = [block if block is not None else some.some(np.arange(0)) for block in rows]
    if len(blocks) == 1:
        ab = settled(blocks[0], 0, own=None)
        tally = Tally()
        ba = settled(some.some(np.arange(0)), 0, own=None)
    else:
        facing = list(zip(blocks, classes[::-1], strict=True))
        ab, ba = (settled(block, others.size, own=None) for block, others in facing)
        tally = Tally(sum(dual_of_empty(*pair, n_classes) for pair in facing))
    a, b = (np.ones(lists.size.size, np.float32) for lists in (ab, ba))
    return PairDuals(ab, ba, a, b, np.zeros(1)), tally


def dual_of_empty(rows: RowBlock, classes: Classes, n_classes: int) -> float:
    """What the variables of rows without features for some classes add to the dual."""
    empty = np.flatnonzero(rows.square == 0)
    labels, number = np.unique(rows.y[empty], return_inverse=True)
    costs = np.bincount(number, rows.C[empty], minlength=labels.size)
    sums = [margin_rows(rows.margins, [y], n_classes)[0, classes].sum() for y in labels]
    return float(costs @ np.array(sums, np.float64))


def among(rows: RowBlock, first: int, classes: Classes) -> RowBlock:
    """Rows placed among their group's classes, as rows of ``classes`` that begin at ``first``."""
    return rows._replace(y=rows.y + first, margins=cut(rows.margins, classes, classes))


def settled(rows: RowBlock, k: int, *, own: npt.NDArray[np.int32] | None) -> Lists:
    """All rivals at C for rows without features, none for the others [BOX-Z]."""
    alpha = np.zeros((rows.y.size, k), rows.X.dtype)
    empty = np.flatnonzero(rows.square == 0)
    alpha[empty] = rows.C[empty, None]
    if own is not None:
        alpha[empty, own[empty]] = 0
    (lists,) = lists_of(alpha, [k])
    return lists


def zero_group(old: RoundWeights) -> RoundWeights:
    """float64 zeros in the place of W."""
    return old._replace(W=np.zeros(old.W.shape), tally=Tally())


def add_own(
    group: RoundWeights, rows: RowBlock, *, step: int, classes: Classes, tau: float
) -> RoundWeights:
    """Add what a block of a group's rows puts into its own columns; the tally gains Σ alpha."""
    W = group.W.copy()
    here = among(placed(rows, classes), 0, classes)
    linear = add_lists(W, here, (group.own[step],), [classes.size], tau)
    return group._replace(W=W, tally=group.tally.plus((linear, 0.0, 0)))


def add_pair(
    groups: Sequence[RoundWeights],
    duals: PairDuals,
    rows: Sequence[RowBlock | None],
    *,
    classes: Sequence[Classes],
    tau: float,
) -> tuple[RoundWeights, ...]:
    """Add what the rows of two groups put into each other's and their own columns."""
    W = np.concatenate([group.W for group in groups], axis=1)
    sizes, linear = [places.size for places in classes], 0.0
    for side, block in enumerate(rows):
        if block is None:
            continue
        lists = (duals.ab, duals.ba)[side]
        nothing = Lists(np.zeros_like(lists.size), lists.classes[:0], lists.values[:0])
        here = placed(block, classes[side])
        here = among(here, side * sizes[0], np.concatenate(classes))
        pieces = (nothing, lists) if side == 0 else (lists, nothing)
        linear += add_lists(W, here, pieces, sizes, tau)
    a, b = groups
    first = a._replace(W=W[:, : sizes[0]].copy(), tally=a.tally.plus((linear, 0.0, 0)))
    return first, b._replace(W=W[:, sizes[0] :].copy())


def add_lists(
    W: npt.NDArray[np.float64],
    rows: RowBlock,
    pieces: Sequence[Lists],
    sizes: Sequence[int],
    tau: float,
) -> float:
    """W += W(alpha) of some rows, alpha clipped to its box; returns Σ alpha [WW-W]."""
    data, k = rows.data(tau), sum(sizes)
    alpha = alpha_of(pieces, sizes, data.C.dtype)
    scratch = make_scratch(k, data.C.dtype)
    with summing(data.rows, data.tau, W) as (x, one):
        linear: float = weights_block(
            WW(k), x, data.y, read_only(rows.C), one, data.margins, alpha, 0, k, W,
            np.empty(0), scratch,
        )  # fmt: skip
    return linear


def finish_group(new: RoundWeights, old: RoundWeights, *, theta: float) -> RoundWeights:
    """float64 weights in the dtype of the old ones; the tally becomes the group's share of D.

    The intercepts stay those that scores use: they are the better half of the primal point.
    """
    share = new.tally.gain - 0.5 * float(np.sum(np.square(new.W)))  # [D]
    W, bias = new.W.astype(old.W.dtype), new.W[-1].copy()
    W[-1] = old.W[-1] + theta * (bias - old.W[-1])  # [TRADE]
    return RoundWeights(W, Tally(share), bias, old.own)
