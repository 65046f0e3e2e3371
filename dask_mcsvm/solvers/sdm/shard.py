"""A shard of rows: its dual variables, laid out for visits, and judged.

The intercept is soft here: while a slice runs, the constant feature answers a change of alpha with
``rho`` times its weight, and the intercept itself moves between slices (docs/math.md, [SOFT]).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from dask_mcsvm.formulations import FORMULATIONS
from dask_mcsvm.solvers.kernels.certify import examine, weights_block
from dask_mcsvm.solvers.kernels.dual_variables import SparseAlpha, compact_alpha
from dask_mcsvm.solvers.kernels.rows import read_only
from dask_mcsvm.solvers.kernels.standard_rows import summing, with_scores_of
from dask_mcsvm.solvers.kernels.steps import LOSSES

from .change import Change
from .initial_duals import fresh_classes, seen_at_zero, start_alpha
from .intercept import Sweep
from .sweeps import Data, make_scratch
from .table import Table


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


def lay_copy(shard: Shard, data: Data) -> Table:
    """A shard laid out for visits, with some room for lists to grow; the shard stays as it is."""
    alpha = shard.alpha
    own = alpha.copy() if isinstance(alpha, np.ndarray) else with_own_pools(alpha)
    return Table.lay(data, own, shard.preference, shard.seen, shard.average.copy())


def with_own_pools(alpha: SparseAlpha) -> SparseAlpha:
    """The same lists, copied as they lie."""
    used, spare = int(alpha.used[0]), alpha.classes.size // 2 + 256
    pools = (np.empty(used + spare, pool.dtype) for pool in (alpha.classes, alpha.values))
    classes, values = pools
    classes[:used], values[:used] = alpha.classes[:used], alpha.values[:used]
    return alpha._replace(classes=classes, values=values, used=alpha.used.copy())


def take_table(table: Table) -> Shard:
    """What visits made of a shard."""
    preference, seen = map(np.ascontiguousarray, (table.preference, table.seen))
    return without_spare(Shard(table.variables, preference, table.average, seen))


def sweep_of(
    table: Table, W: np.ndarray, shift: np.ndarray, formulation: str, span: int
) -> Callable[[np.ndarray], Sweep]:
    """What visits rows in a given order, changing W (d + 1, k), LLW's ``shift`` and the table.

    These may be some rows of a shard that has ``span``.
    """
    k = W.shape[1]
    loss, scratch = LOSSES[formulation](k), make_scratch(k, W.dtype)
    fresh = fresh_classes(formulation, span, k)
    return lambda order: table.sweep(loss, order, W, shift, fresh, span, scratch)


def without_spare(shard: Shard) -> Shard:
    """For others to keep: the lists of a sparse alpha without room to grow."""
    if isinstance(shard.alpha, np.ndarray):
        return shard
    return shard._replace(alpha=compact_alpha(shard.alpha, 0))


def common_part(W: np.ndarray, formulation: str) -> np.ndarray:
    """LLW's shift of all columns, zeros (d + 1,); empty for the others."""
    has_shift = FORMULATIONS[formulation].columns_sum_to_zero
    return np.zeros(W.shape[0] if has_shift else 0, W.dtype)


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
