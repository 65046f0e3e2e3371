"""The passes of early shrinking over chunks and over active rows, and the state they change."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dask_mcsvm.data.row_source import Chunk, Source, read_ahead
from dask_mcsvm.formulations import half_square
from dask_mcsvm.progress import Meter

from .active_rows import ActiveStore, Load, Piece, as_arrays, by_class, from_arrays

if TYPE_CHECKING:
    from dask_mcsvm.solvers.early_shrink.visits import Block
    from dask_mcsvm.storage import Checkpoint, Scratch

#: Inner passes by default: where all active rows are in memory, and where they are not.
INNER_PASSES, INNER_PASSES_OF_MANY = 20, 10


class EarlyShrink:
    """The state of one run, and its three kinds of pass; each changes it in place."""

    def __init__(
        self,
        source: Source,
        scratch: Scratch,
        pool: ThreadPoolExecutor,
        C: float,
        tau: float,
        seed: int,
        load_bytes: float,
        inner_passes: int | None = None,
    ) -> None:
        from dask_mcsvm.solvers.early_shrink import (
            visits,  # numba: imported when something is solved
        )

        (self.n, d), self.k = source.shape, source.n_classes
        self.kernels, self.source, self.pool = visits, source, pool
        self.C, self.tau, self.seed = C, tau, seed
        self.load_bytes, self.inner_passes = load_bytes, inner_passes
        self.n_blocks = len(source.row_offsets) - 1
        self.store = ActiveStore(scratch, self.n_blocks, d, source.dtype, source.is_sparse)
        self.W = np.zeros((self.k, d + 1), source.dtype)
        self.judged = self.W  # the weights that the last certificate is about
        self.dual = np.zeros(self.k)
        self.gaps = np.full(self.k, np.inf)  # what its active variables last showed of the gap
        self.passes = self.work = self.n_loads = 0
        self.resident: Load | None = None

    def rng(self) -> np.random.Generator:
        """Random numbers of this pass: a function of the seed and its number alone."""
        return np.random.default_rng([self.seed, self.passes])

    # -- passes ------------------------------------------------------------------------------------

    def stream(self) -> None:
        """One pass of dual coordinate ascent over all chunks; 0 < alpha < C survives."""
        rng = self.rng()
        seeds = rng.integers(2**63, size=(self.n_blocks, self.k))
        for b, chunk, block in self._chunks(rng):
            results = self.pool.map(partial(self._stream_class, block), range(self.k), seeds[b])
            self._keep(b, chunk, block, results)

    def _stream_class(self, block: Block, m: int, seed: int) -> Any:
        alpha = np.zeros(block.y.size, self.W.dtype)
        ids = np.arange(alpha.size, dtype=np.int32)
        gain, visits, _ = self.kernels.ascend(block, m, ids, alpha, self.W[m], 1, 0.0, seed)
        self.dual[m] += gain
        free = (alpha > 0) & (alpha < block.C.astype(alpha.dtype)) & (block.square > 0)
        return visits, *_split(alpha, free)

    def certify(self, slack: float) -> tuple[float, float]:
        """One pass over all chunks at W: primal of W and dual of alpha, in float64.

        P(W) - D(alpha) bounds the distance to the optimum for any W, so that both come from a
        single pass, with W as the steps left it. The exact W(alpha) takes its place afterwards.
        """
        self.flush()
        exact, loss, linear = np.zeros(self.W.shape), np.zeros(self.k), np.zeros(self.k)
        for b, chunk, block in self._chunks(self.rng()):
            piece = self.store.piece(b)

            task = partial(self._certify_class, block, piece, slack, exact, loss, linear)
            self._keep(b, chunk, block, self.pool.map(task, range(self.k)))
        self.dual = linear - [half_square(w) for w in exact]
        primal = loss.sum() + sum(half_square(w) for w in self.W)
        self.judged, self.W = self.W, exact.astype(self.W.dtype)
        self.gaps[:] = np.inf
        return float(primal), float(self.dual.sum())

    def _certify_class(
        self,
        block: Block,
        piece: Piece,
        slack: float,
        exact: np.ndarray,
        loss: np.ndarray,
        linear: np.ndarray,
        m: int,
    ) -> Any:
        alpha = np.zeros(block.y.size, self.W.dtype)
        ids, values = piece.rest.of(m)
        alpha[ids] = values
        ids, values = piece.held.of(m)
        alpha[piece.places[ids]] = values
        awake, w = np.empty(alpha.size, np.bool_), self.W[m].astype(np.float64)
        lost, total = self.kernels.certify_class(block, m, alpha, w, slack, exact[m], awake)
        loss[m] += lost
        linear[m] += total
        return alpha.size, *_split(alpha, awake)

    def active_pass(self, slack: float, enough: np.ndarray) -> None:
        """N inner passes over the active rows, as many of them at a time as fit in memory.

        ``enough`` (k,): classes whose active variables show no more of the gap are left alone.
        """
        rng = self.rng()
        groups = self.store.loads(self.load_bytes, rng.permutation(self.n_blocks))
        self.n_loads = len(groups)
        seeds = rng.integers(2**63, size=(len(groups), self.k))
        classes = np.flatnonzero(self.gaps > enough)
        self.gaps[classes] = 0.0
        meter = Meter(len(groups) * classes.size, "classes of active rows")
        for pieces, seed in zip(groups, seeds, strict=True):
            if self.resident is None:
                self.resident = self.store.open(pieces, self.tau)
            self._solve(self.resident, classes, slack, enough / len(groups), seed, meter)
            if len(groups) > 1:
                self.flush()

    def _solve(
        self,
        load: Load,
        classes: np.ndarray,
        slack: float,
        enough: np.ndarray,
        seed: np.ndarray,
        meter: Meter,
    ) -> None:
        """Inner passes over one load; threads share the classes."""
        visit = partial(self._visit, load, slack)
        results = self.pool.map(visit, classes.tolist(), enough[classes], seed[classes])
        for m, (gain, visits, gap) in zip(classes, results, strict=True):
            self.dual[m] += gain
            self.work += visits
            self.gaps[m] += gap
            meter.add(1)

    def _visit(self, load: Load, slack: float, m: int, enough: float, seed: int) -> Any:
        """Inner passes over one class of a load."""
        chosen = load.variables(m)
        ids, alpha = load.lists.ids[chosen], load.lists.alpha[chosen]
        passes = self.inner_passes or (INNER_PASSES if self.n_loads == 1 else INNER_PASSES_OF_MANY)
        gain, visits, before = self.kernels.ascend(
            load.block, m, ids, alpha, self.W[m], passes, enough, seed
        )
        awake = np.empty(ids.size, np.bool_)
        gap = self.kernels.look(load.block, m, ids, alpha, self.W[m], slack, awake)
        load.lists.alpha[chosen], load.awake[chosen] = alpha, awake
        # What a load shows when it was just solved, the next load undoes in part: among several
        # the gap before counts. By the other one covtype in 48 MB was certified ten times instead
        # of seven (three, where its rows lie on disk in random order).
        return gain, visits + ids.size, gap if self.n_loads == 1 else before

    # -- rows --------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Write the rows in memory back to the store."""
        if self.resident is not None:
            self.store.close(self.resident)
            self.resident = None

    def active_variables(self) -> int:
        """How many variables are worked on."""
        if self.resident is not None:
            return int(np.count_nonzero(self.resident.awake))
        return int(self.store.variables.sum())

    def dual_density(self) -> float:
        """Share of the n k dual variables that are not zero."""
        pieces = map(self.store.piece, range(self.n_blocks))
        count = sum(np.count_nonzero(p.held.alpha) + p.rest.ids.size for p in pieces)
        return float(count / (self.n * self.k))

    def _keep(self, b: int, chunk: Chunk, block: Any, results: Iterator[Any]) -> None:
        """Store what the classes of a chunk hold, and what they left behind."""
        visits, held, rest = zip(*results, strict=True)
        self.work += sum(visits)
        self.store.put(b, chunk.X, block.y, block.C, by_class(held), by_class(rest))

    def _chunks(self, rng: np.random.Generator) -> Iterator[tuple[int, Chunk, Any]]:
        """All chunks in random order."""
        order = rng.permutation(self.n_blocks).tolist()
        for b, chunk in read_ahead(self.source, order, Meter(self.n).add):
            yield (
                b,
                chunk,
                self.kernels.make_block(chunk.X, chunk.y, self.C * chunk.weight, self.tau),
            )
            del chunk  # before the next one comes

    # -- checkpoint --------------------------------------------------------------------------------

    def save(self, kept: Checkpoint, meta: dict[str, Any]) -> None:
        """Commit W, all variables and `meta`; rows are not saved, the source has them."""
        self.flush()
        generation = kept.begin()
        records = []
        for b in range(self.n_blocks):
            arrays = as_arrays(self.store.piece(b))
            records.append(kept.write_block(kept.path, generation, f"block-{b}", arrays))
        numbers = {"passes": self.passes, "work": self.work, "seed": self.seed}
        state = {"W": self.W, "judged": self.judged, "dual": self.dual, "gaps": self.gaps}
        kept.commit(generation, records, {**meta, **numbers, "n_loads": self.n_loads}, state)

    def restore(self, kept: Checkpoint, problem: dict[str, Any]) -> dict[str, Any] | None:
        """Take over what `save` wrote, reading the active rows again; its meta, None if none."""
        from dask_mcsvm.storage import check_alike, restoring  # zarr: imported when it is needed

        found = kept.read_of(problem)
        if found is None:
            return None
        generation, state, meta = found
        with restoring(kept.path):
            needed = {"W": self.W, "judged": self.judged, "dual": self.dual, "gaps": self.gaps}
            check_alike(state, needed)
            vars(self).update(state)
            numbers = ("passes", "work", "seed", "n_loads")
            self.passes, self.work, self.seed, self.n_loads = (meta[name] for name in numbers)
        for b in range(self.n_blocks):
            arrays = kept.read_block(kept.path, generation, f"block-{b}")
            with restoring(kept.path):
                piece = from_arrays(arrays)
            chunk = self.source.read(b)
            self.store.put_rows(b, chunk.X, chunk.y, self.C * chunk.weight, piece.places)
            self.store.put_variables(b, piece)
        return meta


def _split(alpha: np.ndarray, held: np.ndarray) -> tuple[Any, Any]:
    """Rows and values of the variables held, and of those left behind that are not zero."""
    parts = (np.flatnonzero(held), np.flatnonzero(~held & (alpha > 0)))
    (ids, values), (left, rest) = ((part.astype(np.int32), alpha[part]) for part in parts)
    return (ids, values), (left, rest)
