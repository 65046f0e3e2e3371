"""The state of one sequential dual run in memory, and an epoch of each schedule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
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
from dask_mcsvm.solvers.sparse_weights import SparseWeights
from dask_mcsvm.solvers.standardized import centre_weights, shift_of, shift_scores

from .hybrid import HybridWeights
from .initial_duals import fresh_of_many, needs_room, seen_at_zero, start_alpha
from .intercept import (
    UNIFORM_PACE,
    SoftIntercept,
    Sweep,
    stiffness,
    visits_between_meetings,
    visits_between_moves,
)
from .moves import NEXT, exchange_moves, has_room, make_moves, note_in
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
#: Room for so many more moves than a thread has visits from one meeting to the next.
SPARE = 1024


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
        weights="dense", limit=None, threads=1,
    ):  # fmt: skip
        """``weights`` is the layout of W, hybrid for CSR rows; it may take ``limit`` bytes then.

        So many ``threads`` visit rows, more than one with a dense W that has no common part (LLW)
        and rows that are not centred; ``n_jobs`` certify.
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
        self.threads = threads
        self.hybrid = None
        if weights == "hybrid":
            longest = int(np.diff(X.indptr).max(initial=0))
            self.hybrid = HybridWeights(d, k, dtype, longest, limit=limit)
        # Of each thread; that of the first is the one that counts.
        height = 0 if self.hybrid else d + 1
        self.all_W = [np.zeros((height, k), dtype) for _ in range(threads)]
        has_shift = FORMULATIONS[formulation].columns_sum_to_zero
        #: What Lee-Lin-Wahba adds to all columns, (d + 1,); empty for the others.
        self.shift = np.zeros(d + 1 if has_shift else 0, dtype)
        self.moves = None
        if threads > 1:
            visits = visits_between_meetings(self.n) // threads + SPARE
            self.moves = make_moves(threads, visits, k, dtype)
        self.are_alike = False  # whether all threads' weights are those of the first
        self.scratches = [make_scratch(k, dtype) for _ in range(n_jobs)]
        self.pool = ThreadPoolExecutor(n_jobs)  # starts no thread before it is used
        self.preference = np.ones(self.n)
        self.averages = [apart(1, np.float64) for _ in range(self.threads)]
        for average in self.averages:
            average[0] = 0.0
        self.visited = np.flatnonzero(self.data.square > 0)
        if threads > 1:
            self.owner = (np.arange(self.n) // STRIPE % threads).astype(np.int32)
        self.epoch, self.epsilon = 0, 1.0
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
        self.visited_of = self._deal_rows(self.visited)
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
        rho = stiffness(visits_between_moves(self.n), mean_square, tau)
        if rho == 1.0:
            return
        self.soft = SoftIntercept(rho, self.k)
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
        """(d + 1, k), that of the first thread; of a hybrid W its dense rows only."""
        return self.hybrid.dense if self.hybrid else self.all_W[0]

    def weights(self) -> Any:
        """W as the certificate left it, (d + 1, k), at the end of the run.

        No array of it is made where it is hybrid, and its lists are given up.
        """
        if self.hybrid is None:
            return self.W
        return self.hybrid.give_weights(self.loss, self.data, self.C, self.alpha, self.scratches[0])

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

    def _deal_rows(self, rows: np.ndarray) -> list[np.ndarray]:
        """Those of each thread."""
        if self.threads == 1:
            return [rows]
        owner = self.owner[rows]
        return [rows[owner == t] for t in range(self.threads)]

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
        sweep = self._full(self._shuffled(self._rngs(), self.visited_of), adapt=False)
        return EpochResult(sweep.work + self._skipped(), sweep.violation, 1.0)

    def shrink_epoch(self, *, cooling: bool = True) -> EpochResult:
        """A full loop, then shrunk loops to ε (Keerthi et al., section 2.1).

        The shrunk loops end when none of their variables violates by ε or after five effective
        loops. With cooling ε starts at 1 and falls tenfold when a full loop meets it.
        """
        rngs = self._rngs()
        sweep = self._full(self._shuffled(rngs, self.visited_of), adapt=False)
        work, active = sweep.work + self._skipped(), 1.0
        if not cooling:
            self.epsilon = 1e-3
        elif sweep.violation < self.epsilon:
            self.epsilon /= 10
        limit = work + 5 * self.n * self.k
        while work < limit:
            rest = self._active()
            active = rest.size / self.n
            loop = self._shrunk(self._shuffled(rngs, self._deal_rows(rest)))
            work += loop.work
            if loop.work == 0 or loop.violation < self.epsilon:
                break
        return EpochResult(work, sweep.violation, active)

    def adaptive_epoch(self) -> EpochResult:
        """n visits, each example as often as its gains deserve."""
        rngs = self._rngs()

        def draw(t):
            order = draw_visits(self.visited_of[t], self.preference, rngs[t])
            return order, np.count_nonzero(np.bincount(order))

        drawn = self._of_each(draw)
        sweep = self._full([order for order, _ in drawn], adapt=True)
        active = sum(rows for _, rows in drawn) / self.n
        return EpochResult(sweep.work + self._skipped(), sweep.violation, active)

    def _skipped(self) -> int:
        """Class scores that rows without features spare; an epoch counts them all the same."""
        return (self.n - self.visited.size) * self.k

    def _rngs(self) -> list[np.random.Generator]:
        """Random numbers of this epoch: a function of the seed, the epoch and the thread alone."""
        seeds: list[list[int]] = [[self.seed, self.epoch]]
        if self.threads > 1:
            seeds = [[self.seed, self.epoch, t] for t in range(self.threads)]
        self.epoch += 1
        return [np.random.default_rng(seed) for seed in seeds]

    def _shuffled(
        self, rngs: list[np.random.Generator], rows: list[np.ndarray]
    ) -> list[np.ndarray]:
        return self._of_each(lambda t: rngs[t].permutation(rows[t]))

    def _of_each(self, task: Callable[[int], Any]) -> list[Any]:
        """What a task gives for each thread, made by all of them."""
        if self.threads == 1:
            return [task(0)]
        waiting = [self.pool.submit(task, t) for t in range(self.threads)]
        try:
            return [item.result() for item in waiting]
        finally:  # nobody changes anything any more, also where one failed or Ctrl-C came
            wait(waiting)

    def _full(self, orders: list[np.ndarray], *, adapt: bool) -> Sweep:
        span = self.n // self.threads if adapt else 0  # each makes that share of the visits

        def visit(t, W, shift, part, begin):
            data = self.visit_data._replace(rows=self.rows_of[t])
            return full_sweep(
                self.loss, data, part, begin, W, shift, self.alphas[t], self.fresh,
                Frequencies(self.preference, self.averages[t], span), self.seen, self.scratches[t],
            )  # fmt: skip

        return self._sweep(orders, visit)

    def _shrunk(self, orders: list[np.ndarray]) -> Sweep:
        def visit(t, W, shift, part, begin):
            data = self.visit_data._replace(rows=self.rows_of[t])
            return shrunk_sweep(
                self.loss, data, part, begin, W, shift, self.alphas[t],
                self.scratches[t],
            )  # fmt: skip

        return self._sweep(orders, visit)

    def _sweep(self, orders: list[np.ndarray], visit: Callable[..., Any]) -> Sweep:
        """Visit the rows of each thread; they come together now and then and begin alike."""
        if self.threads == 1:
            return self._side_by_side(orders, visit)[0]
        visits = sum(order.size for order in orders)
        meetings = max(1, round(visits / visits_between_meetings(self.n)))
        done = Sweep()
        for shares in zip(*(np.array_split(order, meetings) for order in orders), strict=True):
            while any(share.size for share in shares):
                more, shares = self._side_by_side(shares, visit)
                done += more
        return done

    def _side_by_side(
        self, shares: Sequence[np.ndarray], visit: Callable[..., Any]
    ) -> tuple[Sweep, list[np.ndarray]]:
        """Each thread visits its share of an order, then b follows; also the visits that are left.

        Those are of threads that had no more room to note their moves.
        """
        weights: list[Any] = [self.hybrid.lists if self.hybrid else self.W]
        if self.moves is not None:
            self._make_alike()
            self.moves.published[:] = 0
            tau = self.visit_data.tau
            weights = [note_in(W, self.moves, t, tau) for t, W in enumerate(self.all_W)]
        softs = [self.soft and self.soft.copy() for _ in shares]
        ended = self._of_each(lambda t: self._visits(t, shares[t], visit, weights[t], softs[t]))
        if self.moves is not None:  # once all have published all
            for _ in range(2):
                self._of_each(
                    lambda t: exchange_moves(self.rows_of[t], weights[t], self.scratches[t])
                )
        done = sum((sweep for sweep, *_ in ended), Sweep())
        self.dual += done.gain
        if self.soft is not None:
            moved = sum((by for _, by, _ in ended), np.zeros(self.k))
            self.dual -= self.soft.follow(moved, softs, self.W, self.shift)
        return done, [left for *_, left in ended]

    def _make_alike(self) -> None:
        """All threads begin with the weights of the first."""
        for W in self.all_W[1:]:
            if self.are_alike:
                W[-1] = self.W[-1]
            else:
                W[:] = self.W
        self.are_alike = True

    def _visits(
        self,
        t: int,
        order: np.ndarray,
        visit: Callable[..., Any],
        weights: Any,
        soft: SoftIntercept | None,
    ) -> tuple[Sweep, np.ndarray, np.ndarray]:
        """Visits of one thread, how far they moved a soft intercept, and those that are left."""
        left = [order[:0]]

        def sweep(order: np.ndarray) -> Sweep:
            """The kernel stops early when alpha or W needs room."""
            position, done = 0, Sweep()
            if self.moves is not None:
                weights.progress[NEXT] = 0
            while position < order.size:
                if self.moves is not None and not has_room(weights):
                    left.append(order[position:])
                    break
                self._make_room(t)
                position, *what = visit(t, weights, self.shift, order, position)
                done += Sweep(*what)
            return done

        if soft is None:
            return sweep(order), np.zeros(self.k), np.concatenate(left)
        visits = visits_between_moves(self.n, self.threads)
        others = None if self.moves is None else weights.others
        W = self.hybrid.dense if self.hybrid else self.all_W[t]
        done, moved = soft.visit(order, visits, W, self.shift, sweep, others)
        return done, moved, np.concatenate(left)

    def _make_room(self, t: int) -> None:
        if self.hybrid:
            self.hybrid.make_room()
        alpha = self.alphas[t]
        if isinstance(alpha, SparseAlpha) and needs_room(alpha, self.k):
            spare = alpha.classes.size // 2 + 2 * self.k
            mine = np.flatnonzero(self.owner == t) if self.threads > 1 else slice(None)
            self.alphas[t] = tidy_pool(alpha, mine, spare)

    def _active(self) -> np.ndarray:
        return active_examples(self.loss, self.data, self.alpha, self.scratches[0])

    # -- certificate -------------------------------------------------------------------------------

    def certify(self) -> tuple[float, float]:
        """Recompute W from alpha in float64; returns primal and dual of the result.

        Blocks of classes and of rows are fixed, and sums are taken in one order, so that the number
        of threads changes nothing.
        """
        self.are_alike = False
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
