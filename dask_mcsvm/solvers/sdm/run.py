"""The state of one sequential dual run in memory, and an epoch of each schedule."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

import numpy as np

from dask_mcsvm.formulations import FORMULATIONS
from dask_mcsvm.formulations.margins import EQUAL
from dask_mcsvm.solvers.duals import Duals
from dask_mcsvm.solvers.kernels.certify import (
    centre_columns,
    common_square,
    examine,
    finish_block,
    weights_block,
)
from dask_mcsvm.solvers.kernels.dual_variables import (
    SparseAlpha,
    compact_alpha,
    deal_lists,
    join_lists,
    tidy_pool,
)
from dask_mcsvm.solvers.kernels.jit import apart, kernel
from dask_mcsvm.solvers.kernels.margins import for_kernels
from dask_mcsvm.solvers.kernels.rows import as_rows, read_only, square_norms
from dask_mcsvm.solvers.kernels.standard_rows import own_rows, uncentred, with_weights
from dask_mcsvm.solvers.kernels.steps import LOSSES
from dask_mcsvm.solvers.kernels.weights import Shared
from dask_mcsvm.solvers.sparse_weights import SparseWeights
from dask_mcsvm.solvers.standardized import centre_weights, shift_of, shift_scores

from .hybrid import HybridWeights
from .initial_duals import fresh_of_many, needs_room, seen_at_zero, start_alpha
from .intercept import (
    UNIFORM_PACE,
    SoftIntercept,
    Sweep,
    cut_visits,
    stiffness,
    visits_between_meetings,
    visits_between_moves,
)
from .sweeps import (
    Data,
    Frequencies,
    active_examples,
    full_sweep,
    make_scratch,
    shrunk_sweep,
)
from .table import Table, lay_apart, with_places_of
from .visits import draw_visits

#: float64 columns of W made at a time when certifying. Smaller blocks read the lists of alpha more
#: often: 8 MiB took 1.5 times as long as 64 MiB with 1032 classes.
BLOCK_BYTES = 64 * 2**20
ROWS_PER_TASK = 4096
#: So many rows next to each other belong to one thread: what visits write of a row then shares no
#: cache line with the rows of another.
STRIPE = 64
#: Multiply-adds of an epoch from which on threads pay: about a fiftieth of a second.
THREAD_WORK = 3e7


@dataclass(frozen=True)
class EpochResult:
    """What one epoch did: class scores computed, largest violation, share of rows visited."""

    work: int
    violation: float
    active: float


class SequentialDual:
    """A run of the sequential dual method on rows in memory; each epoch changes it in place.

    ``dual`` and ``gap`` are estimates from what the last visits saw, free of charge, until
    :meth:`certify` replaces them by exact values.
    """

    #: Epochs after which W, a sum of many steps, is made anew from alpha by a certificate.
    patience = 32.0

    def __init__(
        self, X, y, C, *, n_classes, formulation, tau, seed, n_jobs=1, start=None, margins=EQUAL,
        weights="dense", limit=None,
    ):  # fmt: skip
        """``weights`` is the layout of W; hybrid is for CSR rows, and visits take one thread.

        ``limit`` is how many bytes a hybrid W may take.
        """
        (self.n, d), dtype, k = X.shape, X.dtype, n_classes
        self.formulation, self.seed, self.n_jobs = formulation, seed, n_jobs
        self.C = read_only(np.asarray(C, np.float64))
        # Of centred sparse rows what a visit adds to all scores is for one thread to know.
        self.mean = shift_of(X)
        rows = with_weights(as_rows(X), np.zeros(k), np.zeros(k))
        self.data = Data(
            rows,
            read_only(np.asarray(y, np.int32)),
            read_only(self.C.astype(dtype)),
            read_only(square_norms(rows, self.n, float(tau))),
            dtype.type(tau),
            for_kernels(margins),
        )
        self.loss = LOSSES[formulation](k)
        values = X.size if isinstance(X, np.ndarray) else X.nnz
        is_work = (values + self.n) * k >= THREAD_WORK
        is_shared = is_work and self.mean is None and weights == "dense"
        self.threads = n_jobs if is_shared else 1
        self.hybrid = None
        if weights == "hybrid":
            longest = int(np.diff(X.indptr).max(initial=0))
            self.hybrid = HybridWeights(d, k, dtype, longest, limit=limit)
        # Threads share W, but for the last row: each has one of its own behind the others.
        self.all_W = np.zeros((0 if self.hybrid else d + self.threads, k), dtype)
        has_shift = FORMULATIONS[formulation].columns_sum_to_zero
        self.all_shift = np.zeros(d + self.threads if has_shift else 0, dtype)
        self.scratches = [make_scratch(k, dtype) for _ in range(n_jobs)]
        self.pool = ThreadPoolExecutor(n_jobs)  # starts no thread before it is used
        self.preference = np.ones(self.n)
        self.averages = [apart(1, np.float64) for _ in range(self.threads)]
        for average in self.averages:
            average[0] = 0.0
        self.visited = np.flatnonzero(self.data.square > 0)
        self.epoch, self.epsilon = 0, 1.0
        self.owner = np.arange(self.n) // STRIPE % self.threads
        self.alphas: list[np.ndarray | SparseAlpha] = []
        if start is None:
            self._deal(start_alpha(self.data, k, formulation))
        else:
            self._deal(start.rescaled(self.C).stored)
        self.seen = seen_at_zero(self.data, self.C, k, formulation)
        self.dual = 0.0
        self.soft = None
        if start is not None or self.shift.size or self.visited.size < self.n:
            self.certify()
        self._soften(float(tau), start is not None)
        self.fresh = fresh_of_many(formulation, self.n, k, is_soft=self.soft is not None)
        table = Table.lay(
            self.visit_data, self.alphas[0], self.preference, self.seen, self.averages[0]
        )
        self.visit_data, self.preference, self.seen = table.data, table.preference, table.seen
        self.rows_of = [own_rows(table.data.rows) for _ in range(self.threads)]
        self.alphas = [with_places_of(part, table.alpha) for part in self.alphas]

    def _soften(self, tau: float, warm: bool) -> None:
        """Let visits see a soft intercept, unless it weighs little beside the features."""
        self.visit_data = self.data
        mean_square = float(self.data.square.mean()) - tau**2
        rho = stiffness(visits_between_moves(self.n, self.threads), mean_square, tau)
        if rho == 1.0:
            return
        self.soft = SoftIntercept(rho, self.k, self.threads)
        self.soft.start(self.W, warm)
        self.visit_data = self.data._replace(
            tau=self.W.dtype.type(tau * self.soft.root),
            # At least what b itself adds, also where tau² has swallowed the features.
            square=read_only(np.maximum(self.data.square - (1 - rho) * tau**2, rho * tau**2)),
        )

    @property
    def k(self) -> int:
        return self.loss.k

    @property
    def W(self) -> np.ndarray:
        """(d + 1, k), the last row that of the first thread; of a hybrid W its dense rows only."""
        return self.hybrid.dense if self.hybrid else self._own_rows(self.all_W, 0)

    def weights(self) -> Any:
        """W as the certificate left it, (d + 1, k), at the end of the run.

        No array of it is made where it is hybrid, and its lists are given up.
        """
        if self.hybrid is None:
            return self.W
        return self.hybrid.give_weights(self.loss, self.data, self.C, self.alpha, self.scratches[0])

    @property
    def shift(self) -> np.ndarray:
        """What Lee-Lin-Wahba adds to all columns, (d + 1,); empty for the others."""
        return self._own_rows(self.all_shift, 0)

    def _own_rows(self, rows: np.ndarray, t: int) -> np.ndarray:
        """What thread t sees of W or of the shift: its own row is the last one."""
        return rows[: rows.shape[0] - self.threads + 1 + t] if rows.size else rows

    @property
    def alpha(self) -> np.ndarray | SparseAlpha:
        """The variables of all threads."""
        lists = [alpha for alpha in self.alphas if isinstance(alpha, SparseAlpha)]
        return lay_apart(join_lists(lists, self.owner) if len(lists) > 1 else self.alphas[0])

    def _deal(self, alpha: np.ndarray | SparseAlpha) -> None:
        """Lists of variables grow in pools; each thread has its own."""
        self.alphas = [alpha] * self.threads
        if self.threads > 1 and isinstance(alpha, SparseAlpha):
            self.alphas = [*deal_lists(alpha, self.owner, self.threads)]

    @property
    def gap(self) -> float:
        """Σ of what each example last showed of the duality gap, and what a soft b adds to it."""
        apart = 0.0 if self.soft is None else self.soft.distance(self.W)
        return float(self.seen[:, 1].sum()) + apart

    def duals(self) -> Duals:
        """The dual variables, for a later start."""
        alpha = self.alpha
        stored = alpha if isinstance(alpha, np.ndarray) else compact_alpha(alpha, 0)
        return Duals(self.formulation, self.k, self.C, stored)

    # -- epochs ------------------------------------------------------------------------------------

    def uniform_epoch(self) -> EpochResult:
        """Every example once, in random order (Keerthi et al., Algorithm 2.1)."""
        if self.soft is not None:
            self.soft.pace = UNIFORM_PACE
        sweep = self._full(self._rng().permutation(self.visited), adapt=False)
        return EpochResult(sweep.work + self._skipped(), sweep.violation, 1.0)

    def shrink_epoch(self, *, cooling: bool = True) -> EpochResult:
        """A full loop, then shrunk loops to ε (Keerthi et al., section 2.1).

        The shrunk loops end when none of their variables violates by ε or after five effective
        loops. With cooling ε starts at 1 and falls tenfold when a full loop meets it.
        """
        rng = self._rng()
        sweep = self._full(rng.permutation(self.visited), adapt=False)
        work, active = sweep.work + self._skipped(), 1.0
        if not cooling:
            self.epsilon = 1e-3
        elif sweep.violation < self.epsilon:
            self.epsilon /= 10
        limit = work + 5 * self.n * self.k
        while work < limit:
            rest = self._active()
            active = rest.size / self.n
            loop = self._shrunk(rng.permutation(rest))
            work += loop.work
            if loop.work == 0 or loop.violation < self.epsilon:
                break
        return EpochResult(work, sweep.violation, active)

    def adaptive_epoch(self) -> EpochResult:
        """n visits, each example as often as its gains deserve."""
        rng = self._rng()
        order = draw_visits(self.visited, np.ascontiguousarray(self.preference), rng)
        sweep = self._full(order, adapt=True)
        work = sweep.work + self._skipped()
        return EpochResult(work, sweep.violation, np.count_nonzero(np.bincount(order)) / self.n)

    def _skipped(self) -> int:
        """Class scores that rows without features spare; an epoch counts them all the same."""
        return (self.n - self.visited.size) * self.k

    def _rng(self) -> np.random.Generator:
        """Random numbers of this epoch: a function of the seed and the epoch alone."""
        rng = np.random.default_rng([self.seed, self.epoch])
        self.epoch += 1
        return rng

    def _full(self, order: np.ndarray, *, adapt: bool) -> Sweep:
        span = self.n if adapt else 0

        def visit(t, W, shift, part, begin):
            data = self.visit_data._replace(rows=self.rows_of[t])
            return full_sweep(
                self.loss, data, part, begin, W, shift, self.alphas[t], self.fresh,
                Frequencies(self.preference, self.averages[t], span), self.seen, self.scratches[t],
            )  # fmt: skip

        return self._sweep(order, visit)

    def _shrunk(self, order: np.ndarray) -> Sweep:
        def visit(t, W, shift, part, begin):
            data = self.visit_data._replace(rows=self.rows_of[t])
            return shrunk_sweep(
                self.loss, data, part, begin, W, shift, self.alphas[t],
                self.scratches[t],
            )  # fmt: skip

        return self._sweep(order, visit)

    def _sweep(self, order: np.ndarray, visit: Callable[..., Any]) -> Sweep:
        """Visit all of ``order``; threads come together now and then to have one intercept."""
        slices = [order]
        if self.threads > 1 and self.data.tau != 0:
            is_soft = self.soft is not None
            between = visits_between_meetings if is_soft else visits_between_moves
            slices = cut_visits(order, between(self.n))
        return sum((self._side_by_side(part, visit) for part in slices), Sweep())

    def _side_by_side(self, order: np.ndarray, visit: Callable[..., Any]) -> Sweep:
        """Each thread visits its own rows of ``order``, all from one W; then b follows."""
        before = self.W[-1].copy()
        self.all_W[self.W.shape[0] :] = before
        softs = [self.soft and self.soft.copy() for _ in range(self.threads)]
        owner = self.owner[order] if self.threads > 1 else np.zeros(1, np.intp)
        shares = [order if self.threads == 1 else order[owner == t] for t in range(self.threads)]
        waiting = [
            self.pool.submit(self._visits, t, shares[t], visit, softs[t])
            for t in range(1, self.threads)
        ]
        ended = [self._visits(0, shares[0], visit, softs[0]), *(item.result() for item in waiting)]
        done = sum((sweep for sweep, _ in ended), Sweep())
        self.dual += done.gain
        if self.soft is None:
            self._gather_intercepts(before)
        else:
            moved = sum((by for _, by in ended), np.zeros(self.k))
            self.dual -= self.soft.follow(moved, softs, self.W, self.shift)
        return done

    def _visits(
        self, t: int, order: np.ndarray, visit: Callable[..., Any], soft: SoftIntercept | None
    ) -> tuple[Sweep, np.ndarray]:
        """The visits of one thread, and how far they moved a soft intercept."""
        W, shift = self._own_rows(self.all_W, t), self._own_rows(self.all_shift, t)
        weights = W if self.threads == 1 else Shared(W, shift[:, None], np.zeros(1, np.int32))
        if self.hybrid:
            W, weights = self.hybrid.dense, self.hybrid.lists

        def sweep(order: np.ndarray) -> Sweep:
            """The kernel stops early when alpha or W needs room."""
            position, done = 0, Sweep()
            while position < order.size:
                self._make_room(t)
                position, *what = visit(t, weights, shift, order, position)
                done += Sweep(*what)
            return done

        if soft is None:
            return sweep(order), np.zeros(self.k)
        visits = visits_between_moves(self.n, self.threads)
        return soft.visit(order, visits, W, shift, sweep)

    def _make_room(self, t: int) -> None:
        if self.hybrid:
            self.hybrid.make_room()
        alpha = self.alphas[t]
        if isinstance(alpha, SparseAlpha) and needs_room(alpha, self.k):
            spare = alpha.classes.size // 2 + 2 * self.k
            mine = np.flatnonzero(self.owner == t) if self.threads > 1 else slice(None)
            self.alphas[t] = tidy_pool(alpha, mine, spare)

    def _gather_intercepts(self, before: np.ndarray) -> None:
        """The intercept of the first thread takes over what the others added to theirs."""
        if self.threads == 1:
            return
        self.W[-1] += (self.all_W[self.W.shape[0] :] - before).sum(axis=0)
        if self.shift.size:
            rest = self.all_shift[self.shift.size :]
            self.shift[-1] += rest.sum()
            rest[:] = 0

    def _active(self) -> np.ndarray:
        return active_examples(self.loss, self.data, self.alpha, self.scratches[0])

    # -- certificate -------------------------------------------------------------------------------

    def certify(self) -> tuple[float, float]:
        """Recompute W from alpha in float64; returns primal and dual of the result.

        Blocks of classes and of rows are fixed, and sums are taken in one order, so that the number
        of threads changes nothing.
        """
        alpha = self.alpha
        b = self.W[-1] + self.shift[-1] if self.shift.size else self.W[-1].copy()
        if self.hybrid:
            linear, square = self.hybrid.take_duals(
                self.loss, self.data, self.C, alpha, self.scratches[0]
            )
        else:
            linear, square = self._make_dense(alpha)
        self.dual = linear - 0.5 * square
        if self.soft is not None:  # alpha gave x, and b is kept
            self.soft.own = self.W[-1].astype(np.float64)
            self.W[-1] = b
        return self.primal(alpha), self.dual

    def _make_dense(self, alpha) -> tuple[float, float]:
        """W = W(alpha); returns the dual's linear part and ‖W‖²."""
        d1, k = self.W.shape
        width = max(1, min(k, BLOCK_BYTES // (8 * d1)))
        blocks = [(first, min(k, first + width)) for first in range(0, k, width)]
        shift = self._common_part(alpha)
        squares = np.empty(k)
        rows, tau = uncentred(self.data.rows, self.data.tau)

        def make_columns(block, scratch):
            first, last = block
            W = np.zeros((d1, last - first))
            linear = weights_block(
                self.loss, own_rows(rows), self.data.y, self.C, tau, self.data.margins, alpha,
                first, last, W, np.empty(0), scratch,
            )  # fmt: skip
            if self.mean is not None:
                centre_weights(W, self.mean, float(self.data.tau))
            finish_block(W, shift, first, self.W, squares)
            return linear

        linear = self._in_threads(make_columns, blocks)[0]
        if self.shift.size:
            self.shift[:] = 0
            centre_columns(self.W)
        return linear, squares.sum()

    def _common_part(self, alpha) -> np.ndarray:
        """What Lee-Lin-Wahba adds to all columns of W, float64; empty for the others."""
        shift = np.zeros(self.shift.size)
        if shift.size:
            rows, tau = uncentred(self.data.rows, self.data.tau)
            weights_block(
                self.loss, rows, self.data.y, self.C, tau, self.data.margins, alpha, 0, 0,
                np.zeros((shift.size, 0)), shift, self.scratches[0],
            )  # fmt: skip
            if self.mean is not None:
                centre_weights(shift, self.mean, float(self.data.tau))
        return shift

    def primal(self, alpha: np.ndarray | SparseAlpha) -> float:
        """P(W) in float64; refreshes the loss and gap of every example."""
        blocks = [(i, min(self.n, i + ROWS_PER_TASK)) for i in range(0, self.n, ROWS_PER_TASK)]
        seen = np.empty((self.n, 2))
        if self.mean is not None:  # the columns of this W are those of centred rows
            self.data.rows.spread[:] = 0
            self.data.rows.level[:] = shift_scores(self.W, self.mean)

        def look(block, scratch):
            W = self.hybrid.for_thread() if self.hybrid else self.W
            examine(
                self.loss, own_rows(self.data.rows), self.data.y, self.C, self.data.tau,
                self.data.margins, alpha, W, *block, seen, scratch,
            )  # fmt: skip

        self._in_threads(look, blocks)
        self.seen[:] = seen
        if self.hybrid:
            square = self.hybrid.square_sum()
        else:
            square = square_sum(self.W) - common_square(self.W, self.formulation)
        return 0.5 * square + float(self.C @ seen[:, 0])

    def _in_threads(self, task, blocks):
        if self.n_jobs == 1 or len(blocks) == 1:
            return [task(block, self.scratches[0]) for block in blocks]
        free = SimpleQueue()
        for scratch in self.scratches:
            free.put(scratch)

        def run(block):
            scratch = free.get()
            try:
                return task(block, scratch)
            finally:
                free.put(scratch)

        return list(self.pool.map(run, blocks))


def primal_of(X, y, C, W, *, formulation, tau, n_jobs=1, margins=EQUAL):
    """P(W) in float64 of given weights (d + 1, k), an array or `SparseWeights`."""
    is_listed = isinstance(W, SparseWeights)
    run = SequentialDual(
        X, y, C, n_classes=W.shape[1], formulation=formulation, tau=tau, seed=0, n_jobs=n_jobs,
        margins=margins, weights="hybrid" if is_listed else "dense",
    )  # fmt: skip
    if is_listed:
        run.hybrid.take_weights(W)
    else:
        run.W[:] = W
    return run.primal(run.alpha)


@kernel
def square_sum(W):
    """‖W‖² in float64, of any float type."""
    total = 0.0
    for j in range(W.shape[0]):
        for m in range(W.shape[1]):
            total += np.float64(W[j, m]) * np.float64(W[j, m])
    return total
