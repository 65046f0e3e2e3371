"""Visits by one lane: no other lane changes W meanwhile, so they change it in place.

Tasks side by side return what they changed, for a sum. Alone, W is copied once an epoch and the
change need not be kept apart from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dask_mcsvm.solvers.kernels.standard_rows import beside, settle_mean, with_scores_of
from dask_mcsvm.solvers.row_block import RowBlock
from dask_mcsvm.solvers.sdm.intercept import SoftIntercept, fall
from dask_mcsvm.solvers.sdm.shard import (
    Shard,
    common_part,
    lay_copy,
    sweep_of,
    take_table,
)
from dask_mcsvm.solvers.sdm.table import Table

from .shard_tasks import Array, How, Weights, count_rows, soft_data, visits_of


class OwnWeights:
    """Weights that one lane has to itself, for visits to rows of any block."""

    def __init__(self, weights: Weights, how: How) -> None:
        self.before, self.how, self.W = weights, how, weights.W.copy()
        self.shift = common_part(self.W, how.formulation)
        self.rows: Any = None  # the first ones laid out: centred rows have scores in common
        self.intercept = SoftIntercept(how.rho, self.W.shape[1])
        self.intercept.own, self.intercept.pull = weights.own, weights.pull
        self.dual, self.gaps = weights.dual, weights.gaps.copy()
        self.tally = np.array([weights.dual, 0.0, 0.0, 0.0])

    def lay(self, rows: RowBlock, shard: Shard) -> Table:
        """A block laid out for visits."""
        data = soft_data(rows, self.how)
        if self.rows is None:
            self.rows = with_scores_of(data.rows, self.W)
        return lay_copy(shard, data._replace(rows=beside(data.rows, self.rows)))

    def visit(self, table: Table, order: Array) -> None:
        """Visit ``order``; W and what lies on the table are changed."""
        x, how = self.intercept.own, self.how
        sweep = sweep_of(table, self.W, self.shift, how.formulation, table.preference.size)
        done, moved = self.intercept.visit(order, how.visits, self.W, self.shift, sweep)
        self.intercept.move(self.W)
        self.dual += done.gain - fall(x, moved)
        self.tally[1] = max(self.tally[1], done.violation)
        self.tally[2] += done.work

    def count(self, block: int, gap: float, visited: int) -> None:
        """What the rows of a block show of the gap now, and how many were visited."""
        self.gaps[block] = gap
        self.tally[3] += visited

    def weights(self) -> Weights:
        """What the visits so far made of the weights."""
        if self.shift.size:
            self.W[:-1] += self.shift[:-1, None]
            self.shift[:-1] = 0
        settle_mean(self.rows, self.W)
        own, sums = self.intercept.own, self.before.sums.copy()
        # Only the total is kept until the next certificate, not its part that is linear in alpha.
        was = self.before.own
        sums[0] += self.dual - self.before.dual + 0.5 * (own @ own - was @ was)
        return self.before._replace(
            W=self.W, own=own, pull=self.intercept.pull, gaps=self.gaps, sums=sums,
            tally=self.tally,
        )  # fmt: skip


def solve_epoch(
    rows: RowBlock, shard: Shard, weights: Weights, how: How, seed: Sequence[int]
) -> tuple[Shard, Weights]:
    """A task: all visits of the only block there is."""
    own, order = OwnWeights(weights, how), visits_of(rows, shard.preference, seed)
    table = own.lay(rows, shard)
    own.visit(table, order)
    solved = take_table(table)
    own.count(0, solved.gap, count_rows(order))
    return solved, own.weights()
