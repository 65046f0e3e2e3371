"""What block minimization holds between chunks, and its passes over them.

The arithmetic is that of `shards` with one lane, without its tasks. A block is as many chunks as
fit in memory together, drawn anew in every pass; slices of its chunks take turns. Dual variables
of the other chunks wait on disk where memory has no room for them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dask_mcsvm.data.row_source import Source, read_ahead
from dask_mcsvm.data.rows import make_block
from dask_mcsvm.formulations import FORMULATIONS, relative_gap
from dask_mcsvm.formulations.margins import EQUAL, Margins, fingerprint
from dask_mcsvm.progress import Meter
from dask_mcsvm.solvers.duals import Duals
from dask_mcsvm.solvers.kernels.certify import centre_columns, common_square, finish_block
from dask_mcsvm.solvers.row_block import RowBlock
from dask_mcsvm.solvers.sdm.intercept import stiffness, visits_between_moves
from dask_mcsvm.solvers.sdm.shard import Shard, shard_columns, take_table
from dask_mcsvm.solvers.sdm.shard_tasks import (
    How,
    Weights,
    count_rows,
    look_at_rows,
    make_shard,
    report_tally,
    square_sum,
    start_weights,
    visits_of,
)
from dask_mcsvm.solvers.sdm.single_block import OwnWeights
from dask_mcsvm.training.loop import COUNTED, Advance, Run

if TYPE_CHECKING:
    from dask_mcsvm.storage import Checkpoint, Scratch

#: Slices of a chunk in an inner pass. Rows that deserve many visits would otherwise have them one
#: after another, and a chunk be solved far beyond what the others make of it: with 12 chunks of
#: news20_bydate, three in memory, 4 slices take 21 passes to a gap of 1e-3 and one takes 53; with
#: the rows sorted by class 10 take 23 passes and 4 take 40.
SLICES = 10
#: Share of the memory for chunks that dual variables of other chunks may have.
WAITING_SHARE = 0.25


def blocks_that_fit(order: np.ndarray, sizes: np.ndarray, budget: float) -> list[list[int]]:
    """Chunks in the given order, cut where the next one would not fit; one at least.

    Examples
    --------
    >>> blocks_that_fit(np.array([2, 0, 1]), np.array([5, 5, 5]), budget=10)
    [[2, 0], [1]]
    """
    blocks, room = list[list[int]](), 0.0
    for b in order.tolist():
        if not blocks or sizes[b] > room:
            blocks.append([])
            room = budget
        blocks[-1].append(b)
        room -= float(sizes[b])
    return blocks


class ShardStore:
    """Dual variables by chunk: in memory as long as there is room, in a scratch folder else."""

    def __init__(self, scratch: Scratch, room: float) -> None:
        self.scratch, self.room = scratch, room
        self.held: dict[int, Shard] = {}
        self.sizes: dict[int, int] = {}

    def put(self, b: int, shard: Shard) -> None:
        """Take over the variables of chunk b."""
        arrays = shard.arrays()
        self.held.pop(b, None)
        self.sizes.pop(b, None)
        size = sum(values.nbytes for values in arrays.values())
        if sum(self.sizes.values()) + size <= self.room:
            self.held[b], self.sizes[b] = shard, size
        else:
            self.scratch.write_note(f"shard-{b}", arrays)

    def get(self, b: int) -> Shard:
        """The variables of chunk b, only to be read."""
        if b in self.held:
            return self.held[b]
        return Shard.from_arrays(self.scratch.read_note(f"shard-{b}"))


class BlockMinimization(Run):
    """A run whose epoch is a pass over all chunks; each changes its state in place."""

    solver = "shards"
    #: A certificate reads all rows once more, about a third of a pass.
    patience = 32.0

    def __init__(
        self,
        source: Source,
        shards: ShardStore,
        kept: Checkpoint | None,
        formulation: str,
        C: float,
        tau: float,
        seed: int,
        inner_passes: int,
        groups: Callable[[np.ndarray], list[list[int]]],
        margins: Margins = EQUAL,
    ) -> None:
        (self.n, d), self.k = source.shape, source.n_classes
        self.groups, self.kept, self.scores = groups, kept, self.n * self.k
        self.save_every = None if kept is None else 1
        self.source, self.shards, self.formulation = source, shards, formulation
        self.C, self.tau, self.seed, self.inner_passes = C, tau, seed, inner_passes
        self.margins = margins
        self.n_blocks = len(source.row_offsets) - 1
        self.weights = start_weights(d + 1, self.k, source.dtype, self.n_blocks)
        self.judged = self.weights.W  # what the last certificate is about
        self.n_loads = 0
        self.rho, self.cost, self.density = 1.0, 0.0, 0.0
        self.resident: dict[int, RowBlock] = {}  # all rows, if they fit

    @property
    def dual(self) -> float:  # type: ignore[override]
        return self.weights.dual

    def relative(self, primal: float, dual: float) -> float:
        """The relative duality gap; what all rows cost at W = 0 is known after the first pass."""
        at_zero = FORMULATIONS[self.formulation].loss_at_zero(self.k) * self.cost
        return float(relative_gap(self.formulation, primal, dual, at_zero))

    # -- passes ------------------------------------------------------------------------------------

    def begin(self) -> None:
        """The first variables of every chunk, W(alpha), and how stiff the intercept is [SOFT]."""
        if self.epoch > 0:
            return
        exact, shift, linear = *self._zeros(), 0.0
        squares, used = 0.0, 0
        for b, rows in self._rows(range(self.n_blocks), Meter(self.n)):
            shard = make_shard(rows, self.k, self.formulation, self.tau)
            linear += self._add(rows, shard, exact, shift)
            squares += float(np.sum(rows.square - self.tau**2))
            used += rows.y.size
            self.cost += float(rows.C.sum())
            self.shards.put(b, shard)
        self.rho = stiffness(visits_between_moves(self.n), squares / max(1, used), self.tau)
        self._renew(exact, shift, linear)

    def advance(self) -> Advance:
        """Every chunk, block by block, with some inner passes each."""
        began, rng = time.perf_counter(), np.random.default_rng([self.seed, self.epoch])
        blocks = self.groups(rng.permutation(self.n_blocks))
        visits = visits_between_moves(self.n)
        weights = OwnWeights(self.weights, How(self.formulation, self.tau, self.rho, 1, visits))
        meter = Meter(self.n)
        for block in blocks:
            rows = self.resident or dict(self._rows(block))
            tables = {b: weights.lay(rows[b], self.shards.get(b)) for b in block}
            for turn in range(self.inner_passes):
                parts = {}
                for b in block:
                    preference = np.ascontiguousarray(tables[b].preference)
                    order = visits_of(rows[b], preference, (self.seed, self.epoch, b, turn))
                    weights.count(b, 0.0, count_rows(order))
                    parts[b] = np.array_split(order, SLICES)
                for part in range(SLICES):
                    for b in rng.permutation(block).tolist():
                        weights.visit(tables[b], parts[b][part])
                        meter.add(rows[b].y.size / (SLICES * self.inner_passes))
            for b, table in tables.items():
                shard = take_table(table)
                weights.count(b, shard.gap, 0)
                self.shards.put(b, shard)
            self.resident = rows if len(blocks) == 1 else {}
        self.weights = weights.weights()
        self.epoch, self.n_loads = self.epoch + 1, len(blocks)
        self.tally = report_tally(self.weights, self.n * self.inner_passes)
        self.pace = self.n / max(time.perf_counter() - began, 1e-9)
        return Advance(self.tally.work, self.tally.gap)

    def facts(self, history: Sequence[dict[str, Any]]) -> dict[str, Any]:
        del history
        return {
            "active": self.tally.active,
            "violation": self.tally.violation,
            "pass": "blocks",
            "loads": self.n_loads,
            "rows_per_second": self.pace,
        }

    def model(self) -> dict[str, Any]:
        return {"W": self.judged, "alpha": None, "dual_density": self.density}

    def certify(self) -> tuple[float, float]:
        """One pass over all chunks: primal of W as it stands, dual of alpha; in float64.

        P(W) - D(alpha) is a bound for any W. The exact W(alpha) takes its place afterwards.
        """
        exact, shift, linear = *self._zeros(), 0.0
        loss, stored = 0.0, 0.0
        if shift.size:  # the primal is that of centred columns, and float32 leaves none centred
            centre_columns(self.weights.W)
        gaps = self.weights.gaps.copy()
        for b, rows in self._rows(range(self.n_blocks), Meter(self.n)):
            shard = self.shards.get(b)
            linear += self._add(rows, shard, exact, shift)
            shard, (lost, gaps[b]) = look_at_rows(
                rows, shard, self.weights, self.formulation, self.tau
            )
            loss += lost
            duals = Duals(self.formulation, self.k, rows.C, shard.alpha)
            stored += duals.density * rows.y.size if rows.y.size else 0.0
            self.shards.put(b, shard)
        square = square_sum(self.weights.W) - common_square(self.weights.W, self.formulation)
        self.judged, self.density = self.weights.W, stored / self.n
        self._renew(exact, shift, linear)
        self.weights = self.weights._replace(gaps=gaps)
        return 0.5 * square + loss, self.weights.dual

    # -- pieces ------------------------------------------------------------------------------------

    def _zeros(self) -> tuple[np.ndarray, np.ndarray]:
        """float64 room for W(alpha), and for LLW's common part of all columns."""
        d1 = self.source.shape[1] + 1
        has_shift = FORMULATIONS[self.formulation].columns_sum_to_zero
        return np.zeros((d1, self.k)), np.zeros(d1 if has_shift else 0)

    def _add(self, rows: RowBlock, shard: Shard, exact: np.ndarray, shift: np.ndarray) -> float:
        """Add a chunk to W(alpha); returns its linear part of the dual."""
        data = rows.data(self.tau)
        return shard_columns(shard, data, rows.C, self.formulation, self.k, 0, exact, shift)

    def _renew(self, exact: np.ndarray, shift: np.ndarray, linear: float) -> None:
        """W from exact columns; the soft intercept stays what it was."""
        own = exact[-1] + (shift[-1] if shift.size else 0.0)
        W, squares = np.empty_like(self.weights.W), np.empty(self.k)
        exact[-1] = 0.0 if not shift.size else -shift[-1]  # the intercept has its own square
        finish_block(exact, shift, 0, W, squares)
        W[-1] = self.weights.W[-1]
        if shift.size:
            centre_columns(W)
        sums = np.array([linear, squares.sum(), 0.0])
        self.weights = self.weights._replace(W=W, own=own, sums=sums)

    def _rows(
        self, order: Sequence[int], meter: Meter | None = None
    ) -> Iterator[tuple[int, RowBlock]]:
        if self.resident:
            yield from ((b, self.resident[b]) for b in order)
            return
        offsets = self.source.row_offsets
        for b, chunk in read_ahead(self.source, list(order), meter.add if meter else None):
            yield b, make_block(
                chunk.X, chunk.y, self.C * chunk.weight, first=offsets[b], stop=offsets[b + 1],
                n_classes=self.k, tau=self.tau, dtype=self.source.dtype, margins=self.margins,
            )  # fmt: skip
            del chunk  # before the next one comes

    # -- checkpoint --------------------------------------------------------------------------------

    def save(self, counted: dict[str, Any]) -> None:
        """Commit W, all variables and what was counted."""
        kept = self.kept
        assert kept is not None
        generation = kept.begin()
        records = [
            kept.write_block(kept.path, generation, f"shard-{b}", self.shards.get(b).arrays())
            for b in range(self.n_blocks)
        ]
        numbers = {name: getattr(self, name) for name in _NUMBERS}
        state = {**self.weights.arrays(), "judged": self.judged}
        meta = {"problem": self._problem(), **numbers, **counted}
        kept.commit(generation, records, meta, state)

    def resume(self) -> dict[str, Any] | None:
        """Take over what `save` wrote; what was counted, None if there is nothing."""
        from dask_mcsvm.storage import check_alike, restoring  # zarr: imported when it is needed

        kept = self.kept
        found = None if kept is None else kept.read_of(self._problem())
        if kept is None or found is None:
            return None
        generation, state, meta = found
        with restoring(kept.path):
            check_alike(state, {**self.weights.arrays(), "judged": self.judged})
            self.judged = state.pop("judged")
            self.weights = Weights.from_arrays(state)
            for name in _NUMBERS:
                setattr(self, name, meta[name])
            for b in range(self.n_blocks):
                arrays = kept.read_block(kept.path, generation, f"shard-{b}")
                self.shards.put(b, Shard.from_arrays(arrays))
            return {name: meta[name] for name in COUNTED}

    def _problem(self) -> dict[str, Any]:
        """What a fit to be resumed must have in common with this one."""
        return {
            "rows": self.source.identity(),
            "formulation": self.formulation,
            "C": self.C,
            "tau": self.tau,
            "inner_passes": self.inner_passes,
            **({"margins": fingerprint(self.margins)} if self.margins != EQUAL else {}),
        }


_NUMBERS = ("epoch", "n_loads", "rho", "cost", "density", "seed")
