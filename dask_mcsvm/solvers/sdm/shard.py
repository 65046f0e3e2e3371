"""A shard of rows: its dual variables, and steps of visits against given weights.

A step works on copies of the variables of those rows that it visits. What it makes of them stands
beside what the epoch began with, as a shard of fewer rows, and both are put together when the epoch
is over: a step copies what it changes, not what there is.

The intercept is soft here: while a slice runs, the constant feature answers a change of alpha with
``rho`` times its weight, and the intercept itself moves between slices (docs/math.md, [SOFT]).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from dask_mcsvm.formulations import FORMULATIONS
from dask_mcsvm.solvers.kernels.certify import examine, weights_block
from dask_mcsvm.solvers.kernels.dual_variables import SparseAlpha, compact_alpha, gather_alpha
from dask_mcsvm.solvers.kernels.jit import kernel
from dask_mcsvm.solvers.kernels.rows import read_only
from dask_mcsvm.solvers.kernels.standard_rows import settle_mean, summing, with_scores_of
from dask_mcsvm.solvers.kernels.steps import LOSSES

from .change import Change, find_change, square_of
from .initial_duals import fresh_classes, seen_at_zero, start_alpha
from .intercept import SoftIntercept, Sweep
from .sweeps import Data, make_scratch
from .table import Table
from .visits import Dealt


class Shard(NamedTuple):
    """What some rows remember from one visit to the next."""

    alpha: np.ndarray | SparseAlpha
    preference: np.ndarray  # (m,) float64, see `Frequencies`
    average: np.ndarray  # (1,) float64
    seen: np.ndarray  # (m, 2) float64: loss and gap of each row as last seen

    @property
    def gap(self) -> float:
        """Σ of what each row last showed of the duality gap."""
        return float(self.seen[:, 1].sum())

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


class Progress(NamedTuple):
    """What the steps of an epoch made of a shard so far."""

    patches: tuple[Shard, ...]  # the rows of each of them, as it left them
    before: np.ndarray | SparseAlpha  # alpha of the last patch before its step
    step: int  # number of that step among those of all lanes
    gap: float  # of all rows


class Slice(NamedTuple):
    """What a slice of visits found: the change of W and what it did to the dual."""

    change: Change  # of W, the intercept apart
    moved: np.ndarray  # (k,) float64, change of the intercept as a hard one
    along: float  # <W, change>
    linear: float  # change of the part of the dual that is linear in alpha
    pull: np.ndarray  # (k,) float64, the multiplier after the moves of the intercept in between
    violation: float
    work: int


def start_shard(data: Data, k: int, formulation: str) -> Shard:
    """alpha = 0, but for rows without features."""
    seen = seen_at_zero(data, data.C, k, formulation)
    seen[data.square == 0, 1] = 0.0
    n = data.y.size
    return Shard(start_alpha(data, k, formulation), np.ones(n), np.zeros(1), seen)


def gather_rows(shard: Shard, patches: tuple[Shard, ...], dealt: Dealt) -> Shard:
    """What the rows of a step remember, copied, with some room for lists to grow."""
    parts = (shard, *patches)
    u = dealt.rows.size
    preference, seen = np.empty(u), np.empty((u, 2))
    for j, part in enumerate(parts):
        mine = np.flatnonzero(dealt.source == j)
        places = dealt.place[mine]
        preference[mine], seen[mine] = part.preference[places], part.seen[places]
    alpha = gather_alpha([part.alpha for part in parts], dealt.source, dealt.place, 4 * u + 256)
    return Shard(alpha, preference, parts[-1].average.copy(), seen)


def merge_patches(shard: Shard, patches: tuple[Shard, ...], dealt: tuple[Dealt, ...]) -> Shard:
    """The shard that an epoch ends with."""
    if not patches:
        return shard
    n = shard.preference.size
    source, place = np.zeros(n, np.int16), np.arange(n, dtype=np.int32)
    preference, seen = shard.preference.copy(), shard.seen.copy()
    for j, (patch, step) in enumerate(zip(patches, dealt, strict=True), 1):
        rows = step.rows
        source[rows], place[rows] = j, np.arange(rows.size, dtype=np.int32)
        preference[rows], seen[rows] = patch.preference, patch.seen
    alpha = gather_alpha([shard.alpha, *(p.alpha for p in patches)], source, place, 0)
    return Shard(alpha, preference, patches[-1].average, seen)


def settle(progress: Progress, steps: np.ndarray, k: int) -> tuple[Shard, ...]:
    """The patches, alpha of the last one moved as far as W was in its step."""
    *settled, last = progress.patches
    alpha = blend(progress.before, last.alpha, float(steps[progress.step]), k)
    return (*settled, last._replace(alpha=alpha))


def lay_table(shard: Shard, data: Data) -> Table:
    """A shard laid out for visits, which change its pools."""
    return Table.lay(data, shard.alpha, shard.preference, shard.seen, shard.average)


def take_table(table: Table) -> Shard:
    """What visits made of a shard."""
    preference, seen = map(np.ascontiguousarray, (table.preference, table.seen))
    return without_spare(Shard(table.variables, preference, table.average, seen))


def visit_rows(
    table: Table,
    W: np.ndarray,
    shift: np.ndarray,
    order: np.ndarray,
    formulation: str,
    intercept: SoftIntercept,
    visits: int,
    span: int,
) -> tuple[Sweep, np.ndarray]:
    """Visit ``order``, changing W (d + 1, k), LLW's ``shift`` and what lies on the table.

    These may be some rows of a shard that has ``span``. Returns what the visits did, and how far
    they moved the intercept; see `SoftIntercept.visit`.
    """
    k = W.shape[1]
    loss, scratch = LOSSES[formulation](k), make_scratch(k, W.dtype)
    fresh = fresh_classes(formulation, span, k)

    def sweep(order: np.ndarray) -> Sweep:
        return table.sweep(loss, order, W, shift, fresh, span, scratch)

    return intercept.visit(order, visits, W, shift, sweep)


def solve_step(
    shard: Shard,
    data: Data,
    before: np.ndarray,
    order: np.ndarray,
    formulation: str,
    intercept: SoftIntercept,
    visits: int,
    span: int,
    features: np.ndarray,
    d: int,
) -> tuple[Shard, Slice]:
    """Visit ``order`` from ``before``, which stays as it is; the shard is changed.

    ``before`` has the rows of W of some ``features`` among d, those that ``data`` knows, and the
    intercept. ``data`` has its constant feature scaled by √rho, and the intercept its row of W
    while visits run, the other way round: scores stay what they are, and b answers with rho
    instead of one.
    """
    W, shift = before.copy(), common_part(before, formulation)
    data = data._replace(rows=with_scores_of(data.rows, W))
    table = lay_table(shard, data)
    done, moved = visit_rows(table, W, shift, order, formulation, intercept, visits, span)
    settle_mean(data.rows, W)
    change, along = find_change(before, W, shift, features, d)
    square = square_of(*change, W.shape[1])
    # The rise of the local dual is linear - <W, change> - 1/2 |change|^2.
    linear = done.gain + along + 0.5 * square
    found = Slice(change, moved, along, linear, intercept.pull, done.violation, done.work)
    return take_table(table), found


def copy_alpha(alpha: np.ndarray | SparseAlpha) -> np.ndarray | SparseAlpha:
    """The same variables in arrays of their own."""
    if isinstance(alpha, np.ndarray):
        return alpha.copy()
    return SparseAlpha(*(part.copy() for part in alpha))


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


def blend(
    old: np.ndarray | SparseAlpha, new: np.ndarray | SparseAlpha, step: float, k: int
) -> np.ndarray | SparseAlpha:
    """alpha moved only a part of the way, 0 <= step <= 1."""
    if step == 1.0:
        return new
    if isinstance(old, np.ndarray):
        return old + old.dtype.type(step) * (new - old)
    n = old.start.size
    room = old.size.astype(np.int64) + new.size
    start = np.cumsum(room) - room
    total = int(room.sum())
    out = SparseAlpha(
        start, np.zeros(n, np.int32), room.astype(np.int32), np.empty(total, np.int32),
        np.empty(total, old.values.dtype), np.array([total], np.int64),
    )  # fmt: skip
    blend_lists(old, new, step, out, np.full(k, np.inf))
    return compact_alpha(out, 0)


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
    with summing(data.rows, data.tau, W, shift) as (rows, tau):
        linear: float = weights_block(
            loss, rows, data.y, read_only(C), tau, data.margins, shard.alpha,
            first, first + W.shape[1], W, shift, scratch,
        )  # fmt: skip
    return linear


def examine_shard(
    shard: Shard, data: Data, C: np.ndarray, W: np.ndarray, formulation: str
) -> tuple[Shard, float]:
    """Loss and gap of every row at W in float64; returns the shard and Σ C_i loss_i."""
    data = data._replace(rows=with_scores_of(data.rows, W))
    seen = np.empty_like(shard.seen)
    loss, scratch = LOSSES[formulation](W.shape[1]), make_scratch(W.shape[1], W.dtype)
    examine(
        loss, data.rows, data.y, read_only(C), data.tau, data.margins, shard.alpha, W,
        0, data.y.size, seen, scratch,
    )  # fmt: skip
    return shard._replace(seen=seen), float(C @ seen[:, 0])
