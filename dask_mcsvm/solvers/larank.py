"""LaRank (Bordes et al. 2007): Crammer-Singer with any kernel, examples as they come."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from ._larank_cache import known_values, place_row
from ._larank_certify import other_losses, pattern_part, seen_losses, settled_cost
from ._larank_grow import (
    grown_model,
    grown_patterns,
    larger,
    new_kernel_model,
    new_linear_model,
)
from ._larank_kernels import (
    UNKNOWN,
    Kernel,
    call_kernel,
    compute_block,
    norms_of,
    self_values,
)
from ._larank_models import KernelModel, LinearModel
from ._larank_schedule import GROW, SCHEDULES, WANT, advance
from ._larank_state import (
    ARG_MAX,
    DUAL,
    DUAL_LOST,
    EVALUATIONS,
    FREE,
    HITS,
    LONGEST,
    MISSES,
    N_COUNTS,
    N_SUMS,
    NEXT,
    PATTERNS,
    PERFORMED,
    REMOVED,
    STEPS,
    USED,
    VECTORS,
    WANTED,
    WIDEST,
    Block,
    Limits,
    Tally,
    grown_store,
    new_patterns,
    new_store,
    stored_rows,
)
from ._larank_transfer import export, restore
from ._rows import as_rows, read_only

#: Kernel rows of so many examples are computed together: a tile of patterns stays in the cache of
#: the processor for all of them. Values between the examples themselves are computed too, half a
#: block per example, and mostly for nothing: much larger blocks would cost more than they save.
BLOCK_ROWS = 64

ALL_OPERATIONS = (1.0, 1.0, 1.0)


@dataclass(eq=False)
class Examples:
    """Rows to learn from, and what a run remembers of them between visits."""

    X: np.ndarray | sp.csr_array  # (n, d); the (n, n) matrix of a precomputed kernel
    rows: np.ndarray | tuple[np.ndarray, np.ndarray, np.ndarray]
    y: np.ndarray  # (n,) int32
    C: np.ndarray  # (n,) float64
    norms: np.ndarray  # (n,) float64: ‖x‖²
    square: np.ndarray  # (n,) float64: K(x, x)
    width: np.ndarray  # (n,) float64: nonzeros
    base: int  # id of the first
    slot_of: np.ndarray  # (n,) int32
    seen: np.ndarray  # (n,) float64


class LaRank:
    """A run of LaRank: a model that grows as examples are processed, in place.

    Parameters
    ----------
    n_classes, n_features : int
    is_sparse : bool
        Whether rows are CSR.
    dtype : dtype
        Of rows, cached kernel values and W; coefficients and gradients are float64.
    kernel : Kernel
    seed : int
        Of the choice of operations and patterns.
    tau : float
        Violations up to this are left alone.
    schedule : {"cost", "time", "fixed"}
        Odds of the operations by gain per multiply-add, by gain per second (not repeatable), or
        the three in turn.
    max_support : int or None
        Support patterns kept at most.
    cache_bytes : int
        Kernel values cached at most.
    operations : tuple of three floats
        0.0 leaves PROCESSNEW, PROCESSOLD or OPTIMIZE out; for experiments.
    """

    def __init__(
        self, *, n_classes, n_features, is_sparse, dtype, kernel: Kernel, seed, tau=1e-4, schedule="cost",
        max_support=None, cache_bytes=500 * 2**20, operations=ALL_OPERATIONS,
    ):  # fmt: skip
        self.k, self.d, self.is_sparse, self.dtype = n_classes, n_features, is_sparse, dtype
        self.kernel, self.tau, self.schedule = kernel, tau, schedule
        self.max_support, self.cache_bytes, self.operations = max_support, cache_bytes, operations
        capacity, room = 64, 1024
        self.patterns = new_patterns(capacity, min(4, n_classes + 1))
        self.store = new_store(is_sparse, self._stored_columns, dtype, capacity, room)
        self.model: KernelModel | LinearModel
        if kernel.name == "linear":
            self.model = new_linear_model(n_features, n_classes, dtype)
        else:
            width = self.patterns.classes.shape[1]
            self.model = new_kernel_model(
                kernel.compiled(n_features), n_classes, capacity, width, dtype, cache_bytes
            )
        self.tally = Tally(
            np.zeros(N_COUNTS, np.int64),
            np.zeros(N_SUMS),
            np.ones(3),
            np.array([seed], np.uint64),
            np.zeros(2, np.int64),
            np.zeros(n_classes),
            np.zeros(n_classes, dtype),
        )
        if isinstance(self.model, KernelModel):
            self._free_all_rows()
        self.n_seen = 0

    # -- what the run is made of -------------------------------------------------------------------

    @property
    def _stored_columns(self) -> int:
        """A precomputed kernel has no rows to store."""
        return 0 if self.kernel.name == "precomputed" else self.d

    @property
    def n_patterns(self) -> int:
        return int(self.tally.counts[PATTERNS])

    @property
    def counters(self) -> dict[str, int | float]:
        """How much was done so far."""
        counts = self.tally.counts
        return {
            "kernel_evaluations": int(counts[EVALUATIONS]),
            "cache_hits": int(counts[HITS]),
            "cache_misses": int(counts[MISSES]),
            "arg_max": int(counts[ARG_MAX]),
            "steps": int(counts[STEPS]),
            "support_vectors": int(counts[VECTORS]),
            "operations": tuple(counts[PERFORMED : PERFORMED + 3].tolist()),
            "removed": int(counts[REMOVED]),
            "dual_lost": float(self.tally.sums[DUAL_LOST]),
        }

    @property
    def dual(self) -> float:
        """The dual objective: the sum of all gains."""
        return float(self.tally.sums[DUAL])

    def _free_all_rows(self) -> None:
        self.tally.counts[FREE] = self.model.owner.size

    def pattern_rows(self):
        """Rows of the support patterns, (P, d)."""
        return stored_rows(self.store, self.n_patterns, self._stored_columns)

    def pattern_ids(self) -> np.ndarray:
        """Numbers of the support patterns among the examples processed, (P,)."""
        return self.patterns.ids[: self.n_patterns].copy()

    def coefficients(self) -> sp.csr_array:
        """beta of the support patterns, (k, P)."""
        P, patterns = self.n_patterns, self.patterns
        held = np.arange(patterns.classes.shape[1]) < patterns.count[:P, None]
        slots = np.nonzero(held)[0]
        entries = (patterns.beta[:P][held], (patterns.classes[:P][held], slots))
        return sp.coo_array(entries, shape=(self.k, P)).tocsr()

    def export(self) -> dict[str, Any]:
        """The run as arrays; `restore` on a run with the same parameters carries on from it."""
        return export(self)

    def restore(self, state: dict[str, Any]) -> LaRank:
        """Take over an exported state, which is only read; returns itself."""
        restore(self, state)
        return self

    # -- examples ----------------------------------------------------------------------------------

    def examples(self, X, y, C) -> Examples:
        """Rows of the stream that come next; `process` may visit them any number of times."""
        n = X.shape[0]
        precomputed = self.kernel.name == "precomputed"
        rows = as_rows(np.empty((n, 0), self.dtype) if precomputed else X)
        norms, square = np.zeros(n), np.full(n, np.nan)
        if precomputed:
            square[:] = X.diagonal()
        elif not self.kernel.is_external:
            norms = norms_of(X)
            square = norms.copy()
            if isinstance(self.model, KernelModel):
                square = self_values(self.model.function, norms)
            if not np.isfinite(square.astype(self.dtype)).all():
                raise ValueError(
                    f"kernel={self.kernel.name!r} overflows {np.dtype(self.dtype)} on a row of X; "
                    "scale the columns with sklearn.preprocessing.MaxAbsScaler, or lower gamma."
                )
        width = np.diff(rows[2]) if self.is_sparse else np.full(n, self.d)
        if precomputed:
            width = np.ones(n)
        made = Examples(
            X,
            rows,
            read_only(np.asarray(y, np.int32)),
            read_only(np.asarray(C, np.float64)),
            norms,
            square,
            width.astype(np.float64),
            self.n_seen,
            np.full(n, -1, np.int32),
            np.zeros(n),
        )
        self.n_seen += n
        return made

    def process(self, examples: Examples, order, *, keep_rows: bool = False) -> None:
        """Visit the rows `order` once each, with as many other operations as pay (Algorithm 5).

        With ``keep_rows`` their kernel rows are cached for another visit, as far as room allows.
        """
        if isinstance(self.model, KernelModel) and keep_rows and not self.model.example_row.size:
            rows = np.full(examples.y.size, -1, np.int32)
            self.model = grown_model(
                self.model._replace(example_row=rows), self.patterns, self.tally, self.cache_bytes
            )
        for start in range(0, order.size, BLOCK_ROWS):
            began = time.perf_counter()
            block = self.block(examples, np.asarray(order[start : start + BLOCK_ROWS], np.int64))
            seconds = (time.perf_counter() - began) / block.order.size
            self._run(block, self._limits(examples, seconds), examples)

    def _limits(self, examples: Examples, seconds_new: float) -> Limits:
        return Limits(
            float(self.tau),
            SCHEDULES[self.schedule],
            np.array(self.operations),
            seconds_new,
            np.iinfo(np.int64).max if self.max_support is None else self.max_support,
            examples.width,
        )

    def _run(self, block: Block, limits: Limits, examples: Examples) -> None:
        counts = self.tally.counts
        counts[NEXT] = 0
        while True:
            state = (self.model, self.patterns, self.store, block, limits, examples.norms)
            reason = advance(*state, self.tally)
            if reason == GROW:
                self._grow(self._longest_row(block))
            elif reason == WANT:
                self._provide_row(int(counts[WANTED]), examples)
            else:
                return

    def for_all_patterns(self, visit, examples: Examples, *arguments, model=None) -> None:
        """Call a kernel that goes from slot to slot and stops at one whose kernel row it wants."""
        start = 0
        while True:
            state = (model or self.model, self.patterns, self.store)
            start = visit(*state, start, *arguments, self.tally)
            if start >= self.n_patterns:
                return
            self._provide_row(start, examples)

    def objective(self, examples: Examples, *, exact: bool = True) -> tuple[float, float]:
        """Primal and dual objective on the examples processed so far, in float64.

        With ``exact=False`` losses of examples that are no patterns are those last seen, free of
        charge; the primal is then an estimate.
        """
        part, common = pattern_part(self, examples), settled_cost(examples)
        others = other_losses(self, examples, BLOCK_ROWS) if exact else seen_losses(examples)
        primal = part.half_square + part.slack + others + common
        return primal, part.linear - part.half_square + common

    def _longest_row(self, block: Block) -> int:
        if not self.is_sparse:
            return 0
        indptr = block.rows[2]
        return int((indptr[block.order + 1] - indptr[block.order]).max(initial=0))

    def _grow(self, entries: int) -> None:
        """More room wherever the next step might lack it."""
        counts, patterns = self.tally.counts, self.patterns
        capacity, width = patterns.classes.shape
        P = self.n_patterns
        if capacity <= P:
            capacity = larger(capacity)
        if counts[WIDEST] >= width:
            width = min(2 * width, self.k + 1)
        if isinstance(self.store, tuple) and counts[USED] + entries > self.store[0].size:
            live = int(np.diff(self.store[2][: 2 * P].reshape(-1, 2)).sum())
            room = max(self.store[0].size, larger(live + entries))
            self.store, counts[USED] = grown_store(self.store, counts[USED], P, capacity, room)
        elif capacity > patterns.ids.size:
            room = self.store[0].size if isinstance(self.store, tuple) else 0
            self.store, counts[USED] = grown_store(self.store, counts[USED], P, capacity, room)
        self.patterns = grown_patterns(patterns, capacity, width)
        if isinstance(self.model, KernelModel):
            longest = int(counts[LONGEST])
            self.model = grown_model(
                self.model, self.patterns, self.tally, self.cache_bytes, longest=longest
            )

    # -- kernel values -----------------------------------------------------------------------------

    def block(self, examples: Examples, order: np.ndarray) -> Block:
        """The next examples with their kernel values to all patterns and to each other."""
        values = np.empty((0, 0), self.dtype)
        if isinstance(self.model, KernelModel):
            values = self._block_values(examples, order)
        return Block(
            examples.rows,
            examples.y,
            examples.C,
            examples.square,
            examples.base,
            order,
            examples.slot_of,
            examples.seen,
            values,
        )

    def _block_values(self, examples: Examples, order: np.ndarray) -> np.ndarray:
        P, b, model = self.n_patterns, order.size, self.model
        model.column[:P] = np.arange(P)
        out = np.full((b, P + b), UNKNOWN, self.dtype)
        known_values(model, order, P, out)
        counts = self.tally.counts
        if self.kernel.is_external:
            counts[EVALUATIONS] += self._external_values(examples, order, out)
            return out
        slots = np.arange(P) * (2 if self.is_sparse else 1)
        norms = examples.norms[order]
        left = (model.function, examples.rows, order, norms)
        counts[EVALUATIONS] += compute_block(
            *left, self.store, slots, model.norms[:P], False, out[:, :P]
        )
        counts[EVALUATIONS] += compute_block(*left, examples.rows, order, norms, True, out[:, P:])
        return out

    def _external_values(self, examples: Examples, order: np.ndarray, out: np.ndarray) -> int:
        """Fill `out` by calling the user's kernel, or from the matrix; returns how many values."""
        P, X = self.n_patterns, examples.X
        if self.kernel.name == "precomputed":
            out[:, :P] = X[np.ix_(order, self.patterns.ids[:P])]
            out[:, P:] = X[np.ix_(order, order)]
            return 0  # nobody computed anything
        rows = X[order]
        lacking = np.flatnonzero((out[:, :P] == UNKNOWN).any(axis=1))
        if lacking.size:
            out[lacking, :P] = call_kernel(self.kernel.function, rows[lacking], self.pattern_rows())
        out[:, P:] = call_kernel(self.kernel.function, rows, rows)
        examples.square[order] = out[:, P:].diagonal()
        return lacking.size * P + order.size**2

    def _provide_row(self, p: int, examples: Examples) -> None:
        """Compute the kernel row of slot p in Python and put it into the cache."""
        if self.kernel.name == "precomputed":
            ids = self.patterns.ids[: self.n_patterns]
            row = examples.X[ids[p], ids]
        else:
            rows = self.pattern_rows()
            row = call_kernel(self.kernel.function, rows[p : p + 1], rows)[0]
            self.tally.counts[EVALUATIONS] += row.size
        place_row(self.model, p, np.ascontiguousarray(row, self.dtype), self.tally.counts)
