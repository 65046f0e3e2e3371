"""The tasks of `exchange`: Crammer-Singer with W cut by classes, steps over rows in between.

A step works on some rows. Every group of classes scores them with its columns of W and names the
rivals that may join (`find_rivals`); one task then solves the rows one after another, exactly over
the classes that any group named (`exchange`); and what changed goes back to the groups
(`follow`). No task has more of W than the columns of one group. Arrays that a task was given stay
as they were.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dask_mcsvm.formulations import Tally
from dask_mcsvm.formulations.margins import cut
from dask_mcsvm.solvers.kernels.dual_variables import SparseAlpha, positions
from dask_mcsvm.solvers.kernels.margins import for_kernels
from dask_mcsvm.solvers.kernels.standard_rows import settle_mean, with_weights
from dask_mcsvm.solvers.kernels.steps import CS
from dask_mcsvm.solvers.row_block import RowBlock
from dask_mcsvm.solvers.sdm.hybrid import HybridWeights
from dask_mcsvm.solvers.sdm.initial_duals import optimum_without_features, seen_at_zero
from dask_mcsvm.solvers.sdm.intercept import SoftIntercept, Sweep, fall
from dask_mcsvm.solvers.sdm.run import square_sum
from dask_mcsvm.solvers.sdm.shard import Shard, shard_columns
from dask_mcsvm.solvers.sdm.shard_tasks import How, soft_data
from dask_mcsvm.solvers.sdm.sweeps import Data, Frequencies, make_scratch
from dask_mcsvm.solvers.sdm.visits import draw_visits
from dask_mcsvm.solvers.standardized import CentredCsr

from .blocks import Classes, GroupWeights, placed
from .exchange_visits import Candidates, add_moves, list_rivals, no_moves, visit_candidates
from .sparse_duals import Lists

Array = npt.NDArray[Any]
FORMULATION = "crammer_singer"


class Common(NamedTuple):
    """What a step hands to the next one: numbers of every class, and what the epoch did so far."""

    b: npt.NDArray[np.float64]  # (k,) the soft intercept
    own: npt.NDArray[np.float64]  # (k,) the one that alpha would give
    pull: npt.NDArray[np.float64]  # (k,) the scaled multiplier of the soft intercept
    average: npt.NDArray[np.float64]  # (1,) see `Frequencies`
    tally: npt.NDArray[np.float64]  # (4,) of the epoch: rise of the dual, violation, work, rows

    def arrays(self) -> dict[str, Array]:
        """All of it, by name."""
        return self._asdict()

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> Common:
        """The block that `arrays` came from."""
        return cls(**arrays)


class Drawn(NamedTuple):
    """The rows of a chunk that an epoch visits."""

    rows: npt.NDArray[np.int64]  # (visited,) those of the first step first
    often: npt.NDArray[np.int64]  # (visited,) how many visits each deserves
    ends: npt.NDArray[np.int64]  # (steps - 1,) where the steps but the last end

    def of(self, step: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Rows of a step, and how often to visit each."""
        return np.split(self.rows, self.ends)[step], np.split(self.often, self.ends)[step]


class Piece(NamedTuple):
    """Rows of a step, and all that is known of them."""

    rows: RowBlock
    often: npt.NDArray[np.int64]
    held: Lists  # their variables, of all classes
    preference: npt.NDArray[np.float64]
    seen: npt.NDArray[np.float64]  # (rows, 2)


class Rivals(NamedTuple):
    """What one group says of the rows of a step: scores at its columns of W, without intercept."""

    own: Array  # (rows,) of the own class, where that is here
    known: Array  # of the variables that rows hold for classes that are here, in their order
    classes: npt.NDArray[np.int32]  # (rows, rivals) those of the others with the largest scores
    scores: Array  # (rows, rivals)


class Exchanged(NamedTuple):
    """What the visits of a step came to."""

    common: Common
    start: npt.NDArray[np.int64]  # (rows + 1,) where the moves of each row begin
    classes: npt.NDArray[np.int32]
    moves: Array  # by how much each variable moved
    held: Lists
    preference: npt.NDArray[np.float64]
    seen: npt.NDArray[np.float64]


class StepSeed(NamedTuple):
    """What the random numbers of a step depend on."""

    seed: tuple[int, ...]
    epoch: int
    chunk: int
    part: int

    def rng(self) -> np.random.Generator:
        """Random numbers of this step and of nothing else."""
        return np.random.default_rng([*self.seed, self.epoch, self.chunk, self.part])


# -- start -----------------------------------------------------------------------------------------


def start_common(k: int) -> Common:
    """No intercept yet."""
    zeros = np.zeros(k)
    return Common(zeros, zeros.copy(), zeros.copy(), np.zeros(1), np.zeros(4))


def start_rows(rows: RowBlock, *, n_classes: int, tau: float) -> Shard:
    """alpha = 0, but for rows without features [CS-Z]; always as lists."""
    data = rows.data(tau)
    n = data.y.size
    seen = seen_at_zero(data, data.C, n_classes, FORMULATION)
    empty = np.flatnonzero(data.square == 0)
    seen[empty, 1] = 0.0
    size = np.zeros(n, np.int32)
    classes, values = [np.empty(0, np.int32)], [np.empty(0, data.C.dtype)]
    for i in empty:
        where, a = optimum_without_features(
            FORMULATION, data.y[i], data.C[i], n_classes, data.margins
        )
        size[i] = where.size
        classes.append(where)
        values.append(a.astype(data.C.dtype))
    held = Lists(size, np.concatenate(classes), np.concatenate(values))
    return Shard(pool_of(held), np.ones(n), np.zeros(1), seen)


def start_gain(rows: RowBlock, shard: Shard) -> Tally:
    """The dual of rows without features: their loss at zero."""
    empty = rows.square == 0
    return Tally(float(rows.C[empty] @ shard.seen[empty, 0]))


# -- an epoch --------------------------------------------------------------------------------------


def draw_rows(
    rows: RowBlock, shard: Shard, *, seed: Sequence[int], shares: npt.NDArray[np.float64]
) -> Drawn:
    """Which rows an epoch visits, as often as they deserve, in random order, step by step."""
    rng = np.random.default_rng(seed)
    able = np.flatnonzero(rows.square > 0)  # the others have nothing to move
    order = draw_visits(able, shard.preference, rng)
    found, often = np.unique(order, return_counts=True)
    mixed = rng.permutation(found.size)
    ends = (np.cumsum(shares) / shares.sum() * found.size).astype(np.int64)[:-1]
    return Drawn(found[mixed], often[mixed], ends)


def take_piece(
    rows: RowBlock, shard: Shard, drawn: Drawn, *, part: int, after: Any = None
) -> Piece:
    """The rows of one step. ``after`` is the step to wait for: few of them are copied at a time."""
    del after
    some, often = drawn.of(part)
    return Piece(
        rows.some(some), often, lists_at(shard.alpha, some), shard.preference[some],
        shard.seen[some],
    )  # fmt: skip


def find_rivals(
    weights: GroupWeights,
    piece: Piece,
    common: Common,
    *,
    classes: Classes,
    tau: float,
    rivals: int,
) -> Rivals:
    """Score the rows of a step for the classes of a group, which follow each other."""
    W, first, n = weights.W, int(classes[0]), piece.rows.y.size
    mine = (piece.held.classes >= first) & (piece.held.classes <= classes[-1])
    start = starts(np.bincount(piece.held.rows()[mine], minlength=n))
    known, own = np.empty(int(start[-1]), W.dtype), np.zeros(n, W.dtype)
    rivals = min(rivals, classes.size)
    best = np.empty((n, rivals), np.int32), np.empty((n, rivals), W.dtype)
    data = placed(piece.rows, classes).data(tau, W)
    list_rivals(
        data.rows, data.y, data.tau, for_kernels(cut(piece.rows.margins, None, classes)),
        piece.rows.y, common.b[classes].astype(W.dtype), W, start,
        piece.held.classes[mine] - np.int32(first), known, own, best,
    )  # fmt: skip
    where, scores = best
    return Rivals(own, known, np.where(where >= 0, where + np.int32(first), -1), scores)


def exchange(
    piece: Piece,
    found: Sequence[Rivals],
    common: Common,
    *,
    groups: Sequence[Classes],
    how: How,
    seed: StepSeed,
    passes: int,
    fresh: int,
    span: int,
) -> Exchanged:
    """Solve the rows of a step one after another, over the classes that the groups named.

    The first pass visits each row once, the next one those that deserve more than one visit, and
    all others the rows that moved at their last visit.
    """
    k, n = common.b.size, piece.rows.y.size
    data = soft_data(piece.rows, how)
    candidates = join_candidates(piece, found, common, groups, how.tau, fresh)
    preference, average, seen = piece.preference.copy(), common.average.copy(), piece.seen.copy()
    frequencies = Frequencies(preference, average, span)
    b, rng = common.b[None].copy(), seed.rng()
    visits = Visits(piece.rows.X, data, candidates, b[0], frequencies, seen)
    intercept = SoftIntercept(how.rho, k)
    intercept.own, intercept.pull = common.own, common.pull
    gain, worst = 0.0, 0.0
    for turn in range(passes + 1):
        rows = np.arange(n) if turn == 0 else np.repeat(np.arange(n), piece.often - 1)
        order = rng.permutation(rows if turn < 2 else np.flatnonzero(visits.stirred))
        if order.size == 0:
            continue
        if how.rho == 1.0:  # visits move b itself
            done = visits.sweep(order)
            intercept.own = b[0]
        else:
            x = intercept.own
            done, step = intercept.visit(order, how.visits, b, np.empty(0), visits.sweep)
            intercept.move(b)
            done += Sweep(-fall(x, step))
        gain, worst = gain + done.gain, max(worst, done.violation)
        # Later visits know the other rows of the step better than a certificate will.
        visits.seen = np.empty_like(seen)
    tally = common.tally + np.array([gain, 0.0, n * k, n])
    tally[1] = max(common.tally[1], worst)
    now = Common(b[0], intercept.own, intercept.pull, average, tally)
    moves = candidates.alpha - candidates.before
    start, classes, values = nonzeros(moves, candidates)
    ends, listed, kept = nonzeros(candidates.alpha, candidates)
    held = Lists(np.diff(ends).astype(np.int32), listed, kept)
    return Exchanged(now, start, classes, values, held, preference, seen)


class Visits:
    """Visits of one step, and what they changed."""

    def __init__(
        self,
        X: Any,
        data: Data,
        candidates: Candidates,
        intercept: npt.NDArray[np.float64],
        frequencies: Frequencies,
        seen: npt.NDArray[np.float64],
    ) -> None:
        k, dtype = intercept.size, candidates.alpha.dtype
        self.known, self.seen = (candidates, intercept, frequencies), seen
        self.loss, self.scratch = CS(k), make_scratch(k, dtype)
        self.stirred, self.begun = np.ones(data.y.size, np.bool_), 0
        self.change: HybridWeights | None = None
        none = np.zeros(k)
        self.data = data._replace(rows=with_weights(data.rows, none, none.copy()))
        csr = X.X if isinstance(X, CentredCsr) else X
        if sp.issparse(csr):
            longest = int(np.diff(csr.indptr).max(initial=1))
            self.change = HybridWeights(X.shape[1], k, dtype, longest)
            self.moved: Any = self.change.lists
        else:
            self.moved = no_moves(candidates, k, X.shape[1], dtype)

    def sweep(self, order: Array) -> Sweep:
        """Visit rows in this order."""
        candidates, intercept, frequencies = self.known
        position, done = 0, Sweep()
        while position < order.size:
            if self.change is not None:
                self.change.make_room()
            position, gain, worst = visit_candidates(
                self.loss, self.data, order, position, self.begun, candidates, self.moved,
                intercept, frequencies, self.seen, self.stirred, self.scratch,
            )  # fmt: skip
            done += Sweep(gain, worst)
        self.begun += order.size
        return done


def follow(
    weights: GroupWeights, piece: Piece, done: Exchanged, *, classes: Classes, tau: float
) -> GroupWeights:
    """The columns of a group after a step."""
    W, first, n = weights.W.copy(), int(classes[0]), piece.rows.y.size
    mine = (done.classes >= first) & (done.classes <= classes[-1])
    row = np.repeat(np.arange(n), np.diff(done.start))[mine]
    start = starts(np.bincount(row, minlength=n))
    data = piece.rows.data(tau, W)
    here = done.classes[mine] - np.int32(first)
    add_moves(data.rows, data.tau.dtype.type(0), start, here, done.moves[mine], W)
    settle_mean(data.rows, W)
    W[-1] = done.common.b[classes]
    return GroupWeights(W, weights.tally)


def settle_rows(shard: Shard, drawn: Drawn, done: Sequence[Exchanged]) -> Shard:
    """A chunk after an epoch: the rows that were visited have new variables."""
    preference, seen = shard.preference.copy(), shard.seen.copy()
    preference[drawn.rows] = np.concatenate([step.preference for step in done])
    seen[drawn.rows] = np.concatenate([step.seen for step in done])
    n = preference.size
    kept = np.ones(n, np.bool_)
    kept[drawn.rows] = False
    rest = np.flatnonzero(kept)
    lists = [lists_at(shard.alpha, rest), *(step.held for step in done)]
    size = np.empty(n, np.int32)
    order = np.concatenate([rest, drawn.rows])
    size[order] = np.concatenate([part.size for part in lists])
    start = np.cumsum(size, dtype=np.int64) - size
    classes = np.empty(int(size.sum()), np.int32)
    values = np.empty(classes.size, shard.alpha.values.dtype)  # type: ignore[union-attr]
    place = positions(start[order], size[order])
    classes[place] = np.concatenate([part.classes for part in lists])
    values[place] = np.concatenate([part.values for part in lists])
    return Shard(pool_of(Lists(size, classes, values)), preference, shard.average, seen)


def gap_of(shard: Shard) -> float:
    """Σ of what the rows of a chunk last showed of the duality gap."""
    return shard.gap


def begin_epoch(common: Common) -> Common:
    """What an epoch did is counted anew."""
    return common._replace(tally=np.zeros(4))


def hand_over(done: Exchanged) -> Common:
    """What the next step, or epoch, begins with."""
    return done.common


def report_epoch(common: Common, gaps: Sequence[float], n: int) -> Tally:
    """What the epoch did with the n rows."""
    gain, violation, work, visited = common.tally.tolist()
    off = common.b - common.own
    gap = sum(gaps) + float(0.5 * off @ off)
    return Tally(gain, violation, int(work), gap, min(1.0, visited / n))


# -- a certificate ---------------------------------------------------------------------------------


def add_rows(
    before: GroupWeights | None,
    shard: Shard,
    rows: RowBlock,
    *,
    classes: Classes,
    k: int,
    tau: float,
) -> GroupWeights:
    """Add what a chunk puts into the columns of a group, in float64.

    The tally gains what the dual is linear in, of all classes; only the first group counts it.
    """
    if before is None:
        W, tally = np.zeros((rows.X.shape[1] + 1, classes.size)), Tally()
    else:
        W, tally = before.W.copy(), before.tally
    first = int(classes[0])
    linear = shard_columns(shard, rows.data(tau), rows.C, FORMULATION, k, first, W, np.empty(0))
    return GroupWeights(W, tally.plus((linear * (first == 0), 0.0, 0)))


def bottom(weights: GroupWeights) -> npt.NDArray[np.float64]:
    """The intercepts that alpha gives the classes of a group."""
    return weights.W[-1].astype(np.float64)


def renew_common(
    common: Common, bottoms: Sequence[npt.NDArray[np.float64]], *, rho: float
) -> Common:
    """What alpha would give is known anew; the intercept stays, unless it is just that."""
    own = np.concatenate(bottoms)
    return common._replace(own=own, b=own if rho == 1.0 else common.b)


def finish_group(
    new: GroupWeights, old: GroupWeights, common: Common, *, classes: Classes, rho: float
) -> GroupWeights:
    """Columns in the dtype of the old ones, with the intercept that scores use.

    The tally becomes the group's share of the dual.
    """
    share = new.tally.gain - 0.5 * float(square_sum(new.W))  # [D]
    W = new.W.astype(old.W.dtype)
    if rho < 1.0:  # else it is the one that alpha gives
        W[-1] = common.b[classes]
    return GroupWeights(W, Tally(share))


# -- lists -----------------------------------------------------------------------------------------


def join_candidates(
    piece: Piece,
    found: Sequence[Rivals],
    common: Common,
    groups: Sequence[Classes],
    tau: float,
    fresh: int,
) -> Candidates:
    """The union of what all groups named: own class, variables that rows hold, best rivals."""
    y, held = piece.rows.y, piece.held
    n, dtype = y.size, held.values.dtype
    own, known = np.zeros(n, dtype), np.zeros(held.classes.size, dtype)
    best, scores = np.empty((n, 0), np.int32), np.empty((n, 0), dtype)
    value = np.empty((n, 0))
    for classes, rivals in zip(groups, found, strict=True):
        first, last = classes[0], classes[-1]
        own = np.where((y >= first) & (y <= last), rivals.own, own)
        known[(held.classes >= first) & (held.classes <= last)] = rivals.known
        more = rivals.scores.astype(np.float64) + tau * common.b[rivals.classes]
        more[rivals.classes < 0] = -np.inf
        best, scores = np.hstack([best, rivals.classes]), np.hstack([scores, rivals.scores])
        value = np.hstack([value, more])
        top = np.argsort(-value, axis=1, kind="stable")[:, :fresh]
        best, scores, value = (np.take_along_axis(a, top, 1) for a in (best, scores, value))
    rows, rival = held.rows(), held.classes != y[held.rows()]
    a = np.zeros(n, dtype)
    a[rows[~rival]] = held.values[~rival]
    joins = best >= 0
    row = np.concatenate([np.arange(n), rows[rival], np.nonzero(joins)[0]])
    order = np.argsort(row, kind="stable")
    listed = np.concatenate([y, held.classes[rival], best[joins]])[order]
    score = np.concatenate([own, known[rival], scores[joins]])[order]
    alpha = np.concatenate([a, held.values[rival], np.zeros(int(joins.sum()), dtype)])[order]
    start = starts(np.bincount(row, minlength=n))
    return Candidates(start, listed.astype(np.int32, copy=False), score, alpha, alpha.copy())


def starts(counts: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Where lists of such lengths begin, and where the last one ends."""
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def nonzeros(
    values: Array, candidates: Candidates
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32], Array]:
    """Those of some numbers, one a candidate, that are not zero: starts, classes, numbers."""
    found = values != 0
    passed = starts(found)
    return passed[candidates.start], candidates.classes[found], values[found]


def lists_at(alpha: Any, rows: npt.NDArray[Any]) -> Lists:
    """The variables of some rows."""
    place = positions(alpha.start[rows], alpha.size[rows])
    return Lists(alpha.size[rows], alpha.classes[place], alpha.values[place])


def pool_of(held: Lists) -> SparseAlpha:
    """The same lists one after another in a pool without room."""
    start = np.cumsum(held.size, dtype=np.int64) - held.size
    used = np.array([held.classes.size], np.int64)
    return SparseAlpha(start, held.size, held.size.copy(), held.classes, held.values, used)
