"""One sweep by one thread, or by several on slices of the examples with exact combination.

Each thread owns a fixed random part of the examples and a copy of W. A sweep is cut into slices; at
the end of a slice every thread repeats the others' logged changes in its own W, so that all copies
hold W(alpha) again. Nothing depends on which thread is faster: the same seed and the same number of
threads give the same bytes.

Two threads may both correct what one correction would have done. Over a slice that is little, but
it is not proved; :meth:`Threads.reconsider` compares what the sweeps promised with what the
certificate finds and, when they overshot, lets each thread weigh its own changes by sigma = number
of threads, with which the dual cannot fall (the safe aggregation of CoCoA+; docs/math.md, shards).
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import repeat

import numpy as np

from ._alpha import SparseAlpha, share_alpha
from .sdm import Log, Scratch, make_log, make_scratch, replay

#: How often the threads combine in one sweep.
SLICES = 16
#: Below so many examples per thread a slice is shorter than the hand-over.
ROWS_PER_THREAD = 1024


@dataclass(frozen=True)
class Sweep:
    """What one sweep did: rise of the dual, largest violation, class scores computed."""

    gain: float
    violation: float
    work: int


@dataclass
class Worker:
    """What one thread works on."""

    W: np.ndarray
    shift: np.ndarray
    alpha: np.ndarray | SparseAlpha
    sigma: float
    average: np.ndarray
    log: Log
    spare_log: Log
    scratch: Scratch


class Threads:
    """The threads of one run; with one thread a sweep is a plain call."""

    def __init__(self, run, n_threads):
        (self.n, k), dtype = (run.n, run.k), run.W.dtype
        self.count, self.stale = n_threads, False
        self.no_log = make_log(0, 0, dtype)
        rng = np.random.default_rng([run.seed, n_threads])
        self.owner = rng.permutation(self.n) % n_threads
        visits = -(-2 * self.n // (SLICES * n_threads)) if n_threads > 1 else 0
        entries = 8 * visits + k + 1 if n_threads > 1 else 0
        self.workers = [
            Worker(
                run.W if t == 0 else run.W.copy(),
                run.shift if t == 0 else run.shift.copy(),
                run.alpha,
                1.0,
                np.zeros(1),
                make_log(visits, entries, dtype),
                make_log(visits, entries, dtype),
                make_scratch(k, dtype),
            )
            for t in range(n_threads)
        ]

    def sweep(self, run, order, kernel) -> Sweep:
        """Visit ``order``; ``kernel(part, begin, worker)`` is one thread's share."""
        if self.count == 1 or order.size < ROWS_PER_THREAD * self.count:
            self._settle(run)
            self.stale = self.count > 1
            return self._alone(run, order, kernel)
        if self.stale:
            self.refresh(run)
        with ThreadPoolExecutor(self.count) as pool:
            return self._together(run, order, kernel, pool)

    def _settle(self, run) -> None:
        """Bring the first copy of W up to date, for a sweep too short to share."""
        for t, worker in enumerate(self.workers):
            scale = 1.0 if t > 0 else 1.0 - worker.sigma
            if scale != 0:
                replay(run.loss, run.data, worker.spare_log, scale, run.W, run.shift)
            worker.spare_log.size[0] = 0

    def _alone(self, run, order, kernel) -> Sweep:
        """A plain sweep; sigma = 1 and no log, since no other thread works meanwhile."""
        worker = replace(self.workers[0], sigma=1.0, log=self.no_log)
        position, results = 0, []
        while position < order.size:
            run.make_room(1)
            worker.alpha = run.alpha
            position, *result = kernel(order, position, worker)
            results.append(result)
        return _added(results)

    def _together(self, run, order, kernel, pool) -> Sweep:
        parts = [order[self.owner[order] == t] for t in range(self.count)]
        positions, results = [0] * self.count, []
        self._share(run)
        for cut in range(1, SLICES + 1):
            ends = [-(-part.size * cut // SLICES) for part in parts]
            while any(position < end for position, end in zip(positions, ends, strict=True)):
                done = list(
                    pool.map(
                        self._slice,
                        repeat(run),
                        parts,
                        ends,
                        positions,
                        repeat(kernel),
                        self.workers,
                    )
                )
                for worker in self.workers:
                    worker.log, worker.spare_log = worker.spare_log, worker.log
                if any(
                    position < end and position == before
                    for (position, *_), end, before in zip(done, ends, positions, strict=True)
                ):
                    self._share(run)
                positions = [position for position, *_ in done]
                results += [result for _, *result in done]
        self._collect(run)
        return _added(results)

    def _slice(self, run, part, end, begin, kernel, worker):
        """Repeat what the others changed in the last slice, then work on this one."""
        for other in self.workers:
            # With sigma > 1 the own copy has gone too far by the factor; take the excess back.
            scale = 1.0 - worker.sigma if other is worker else 1.0
            if scale != 0:
                replay(run.loss, run.data, other.spare_log, scale, worker.W, worker.shift)
        worker.log.size[0] = 0
        return kernel(part[:end], begin, worker)

    def _share(self, run) -> None:
        self._collect(run)
        run.make_room(self.count)
        for worker, alpha in zip(self.workers, share_alpha(run.alpha, self.count), strict=True):
            worker.alpha = alpha

    def _collect(self, run) -> None:
        """Let the run's alpha know how much of the pool the threads have used."""
        if (
            isinstance(run.alpha, SparseAlpha)
            and self.workers[0].alpha.classes is run.alpha.classes
        ):
            run.alpha.used[0] = max(worker.alpha.used[0] for worker in self.workers)

    def refresh(self, run) -> None:
        """Let all copies of W start from the run's."""
        for worker in self.workers[1:]:
            worker.W[:] = run.W
            worker.shift[:] = run.shift
        for worker in self.workers:
            worker.spare_log.size[0] = 0
        self.stale = False

    def reconsider(self, promised, found) -> None:
        """Be safe from now on if the dual rose by less than half of what the sweeps promised."""
        if self.count > 1 and found < 0.5 * promised:
            for worker in self.workers:
                worker.sigma = float(self.count)


def _added(results) -> Sweep:
    if not results:
        return Sweep(0.0, 0.0, 0)
    gains, violations, works = zip(*results, strict=True)
    return Sweep(sum(gains), max(violations), sum(works))
