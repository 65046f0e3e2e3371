"""A run of LaRank: the model, and the visits that make it grow."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from dask_mcsvm.checks import check_range, positive_range
from dask_mcsvm.formulations.margins import EQUAL, Margins
from dask_mcsvm.solvers.kernels.jit import apart
from dask_mcsvm.solvers.kernels.margins import for_kernels
from dask_mcsvm.solvers.kernels.rows import as_rows, read_only

from .cache import Examples, block_values, provide_row
from .certify import PatternPart, other_losses, pattern_part, seen_losses, settled_cost
from .kernels import Kernel, norms_of, self_values
from .models import (
    KernelModel,
    LinearModel,
    grown_model,
    grown_patterns,
    larger,
    new_kernel_model,
    new_linear_model,
)
from .state import (
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
from .steps import GROW, SCHEDULES, WANT, advance
from .transfer import export, restore

#: Kernel rows of so many examples are computed together: a tile of patterns stays in the cache of
#: the processor for all of them. Values between the examples themselves are computed too, half a
#: block per example, and mostly for nothing: much larger blocks would cost more than they save.
BLOCK_ROWS = 64

#: What a kernel value costs the schedule, in coefficients or gradients touched. It is the same for
#: all kernels, also those whose values come from elsewhere: the same kernel matrix gives the same
#: steps, however it is computed. Between 16 (as for LETTER) and 256 (USPS) columns one pass changes
#: little; of one the schedule would hardly improve what it has before it takes a new example.
VALUE_COST = 64.0

ALL_OPERATIONS = (1.0, 1.0, 1.0)

#: Violations up to this are left alone, unless a gap asks for less ...
TAU = 1e-4
#: ... and the share of the allowed gap that violations left alone may add up to.
TAU_SHARE = 0.1


@dataclass(frozen=True)
class Aim:
    """When a fit is good enough: at a relative gap ``tol``, or at P - D = ``absolute``.

    ``total_cost`` is Σ C_i.
    """

    by_gap: bool
    tol: float
    absolute: float
    total_cost: float

    def tau(self, dual: float) -> float:
        """The violation to leave alone in the next epoch."""
        if not self.by_gap:
            return TAU
        allowed = max(self.tol * max(dual, 0.0), self.absolute)
        return min(TAU, TAU_SHARE * allowed / self.total_cost)


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
        Odds of the operations by gain per number touched, by gain per second (not repeatable), or
        the three in turn.
    max_support : int or None
        Support patterns kept at most.
    cache_bytes : int
        Kernel values cached at most.
    operations : tuple of three floats
        0.0 leaves PROCESSNEW, PROCESSOLD or OPTIMIZE out; for experiments.
    margins : Margins
        What mistakes cost.
    """

    def __init__(
        self,
        *,
        n_classes: int,
        n_features: int,
        is_sparse: bool,
        dtype: np.dtype,
        kernel: Kernel,
        seed: int,
        tau: float = TAU,
        schedule: str = "cost",
        max_support: int | None = None,
        cache_bytes: int = 500 * 2**20,
        operations: tuple[float, float, float] = ALL_OPERATIONS,
        margins: Margins = EQUAL,
    ):
        self.k, self.d, self.is_sparse, self.dtype = n_classes, n_features, is_sparse, dtype
        self.kernel, self.seed, self.tau, self.schedule = kernel, seed, tau, schedule
        self.max_support, self.cache_bytes, self.operations = max_support, cache_bytes, operations
        self.margins = margins
        capacity, room = 64, 1024
        self.patterns = new_patterns(capacity, min(4, n_classes + 1))
        self.store = new_store(is_sparse, self._stored_columns, dtype, capacity, room)
        self.model: KernelModel | LinearModel
        if kernel.name == "linear":
            self.model = new_linear_model(n_features, n_classes, dtype, for_kernels(margins))
        else:
            width = self.patterns.classes.shape[1]
            self.model = new_kernel_model(
                kernel.compiled(n_features), n_classes, capacity, width, dtype, cache_bytes,
                for_kernels(margins),
            )  # fmt: skip
        self.tally = Tally(
            np.zeros(N_COUNTS, np.int64),
            np.zeros(N_SUMS),
            np.ones(3),
            np.array([seed], np.uint64),
            np.zeros(2, np.int64),
            apart(n_classes, np.float64),
            apart(n_classes, dtype),
        )
        if isinstance(self.model, KernelModel):
            self.tally.counts[FREE] = self.model.owner.size
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
    def counters(self) -> dict[str, Any]:
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

    def pattern_rows(self):
        """Rows of the support patterns, (P, d)."""
        return stored_rows(self.store, self.n_patterns, self._stored_columns)

    def pattern_ids(self) -> np.ndarray:
        """Numbers of the support patterns among the examples processed, (P,)."""
        return self.patterns.ids[: self.n_patterns].copy()

    def coefficients(self) -> sp.csr_array:
        """beta of the support patterns, (k, P)."""
        P, patterns = self.n_patterns, self.patterns
        listed = np.arange(patterns.classes.shape[1]) < patterns.held[:P, None]
        slots = np.nonzero(listed)[0]
        entries = (patterns.beta[:P][listed], (patterns.classes[:P][listed], slots))
        return sp.coo_array(entries, shape=(self.k, P)).tocsr()

    def export(self) -> dict[str, Any]:
        """The run as arrays of their own; `restore` carries on from them."""
        return export(self)

    def restore(self, state: dict[str, Any]) -> LaRank:
        """Take over the state of a run with the same parameters, which is only read."""
        restore(self, state)
        return self

    @property
    def parameters(self) -> dict[str, Any]:
        """What the constructor was given."""
        shape = {"n_classes": self.k, "n_features": self.d, "is_sparse": self.is_sparse}
        names = ("dtype", "kernel", "seed", "tau", "schedule", "max_support", "cache_bytes")
        return shape | {name: getattr(self, name) for name in (*names, "operations", "margins")}

    def copy(self) -> LaRank:
        """Another run that would go on like this one; its cache is empty."""
        return rebuild(self.parameters, self.export())

    def __reduce__(self):
        return rebuild, (self.parameters, self.export())

    # -- examples ----------------------------------------------------------------------------------

    def examples(self, X, y, C, base: int | None = None) -> Examples:
        """Rows of the stream; `process` may visit them any number of times.

        ``base`` is the number of the first; by default they come next. Rows whose numbers came
        before are recognised where they are support patterns. X may be dense or CSR.
        """
        n = X.shape[0]
        precomputed = self.kernel.name == "precomputed"
        X = X if self.is_sparse == sp.issparse(X) else self._alike(X)
        rows = as_rows(np.empty((n, 0), self.dtype) if precomputed else X)
        norms, square = np.zeros(n), np.full(n, np.nan)
        C = read_only(np.asarray(C, np.float64))
        if precomputed:
            square[:] = X.diagonal()
        elif not self.kernel.is_external:
            norms = norms_of(X)
            square = norms.copy()
            if isinstance(self.model, KernelModel):
                square = self_values(self.model.function, norms)
            if not np.abs(square).max(initial=0.0) <= np.finfo(self.dtype).max:  # NaN too
                raise ValueError(
                    f"kernel={self.kernel.name!r} overflows {np.dtype(self.dtype)} on a row of X; "
                    "scale the columns with sklearn.preprocessing.MaxAbsScaler, or lower gamma."
                )
        self._check_range(C, np.abs(X).max(initial=0) if precomputed else square)
        width = np.full(n, VALUE_COST)
        if isinstance(self.model, LinearModel):
            width = np.diff(rows[2]) if self.is_sparse else np.full(n, self.d)
        first = self.n_seen if base is None else base
        self.n_seen = max(self.n_seen, first + n)
        return Examples(
            X,
            rows,
            read_only(np.asarray(y, np.int32)),
            C,
            norms,
            square,
            width.astype(np.float64),
            first,
            self._slots_of(first, n),
            np.zeros(n),
        )

    def _alike(self, X):
        """Rows of the other kind as those that the run began with."""
        if not self.is_sparse:
            return X.toarray()
        X = sp.csr_array(X)
        X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int64)
        return X

    def _check_range(self, C: np.ndarray, square: Any) -> None:
        """Refuse C_i and K(x, x) that no step could work with; a function's values come later."""
        largest = 1.0 if self.kernel.name == "callable" else float(np.max(square, initial=0.0))
        if C.any():
            check_range(positive_range(C), np.sqrt(largest), 0.0, self.dtype, are_zero=largest == 0)

    def _slots_of(self, base: int, n: int) -> np.ndarray:
        """Slots of the examples base..base + n that are patterns, (n,), -1 for the others."""
        slot_of = np.full(n, -1, np.int32)
        rows = self.patterns.ids[: self.n_patterns] - base
        here = (rows >= 0) & (rows < n)
        slot_of[rows[here]] = np.flatnonzero(here)
        return slot_of

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
            seconds = 0.0  # the clock must leave no trace where it decides nothing
            if self.schedule == "time":
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
                provide_row(self, int(counts[WANTED]), examples)
            else:
                return

    def for_all_patterns(self, visit, examples: Examples | None, *arguments, model=None) -> None:
        """Call a kernel that goes from slot to slot and stops at one whose kernel row it wants."""
        start = 0
        while True:
            state = (model or self.model, self.patterns, self.store)
            start = visit(*state, start, *arguments, self.tally)
            if start >= self.n_patterns:
                return
            provide_row(self, start, examples)

    def objective(self, examples: Examples, *, exact: bool = True) -> tuple[float, float]:
        """Primal and dual objective on the examples processed so far, in float64.

        With ``exact=False`` losses of examples that are no patterns are those last seen, free of
        charge; the primal is then an estimate.
        """
        part = pattern_part(self, examples)
        losses, common = self.other_losses(examples, exact=exact)
        return part.bounds(losses, common)

    def other_losses(self, examples: Examples, *, exact: bool = True) -> tuple[float, float]:
        """Σ C_i ξ_i of examples that are no patterns, and Σ C_i of those with K(x, x) = 0."""
        others = other_losses(self, examples, BLOCK_ROWS) if exact else seen_losses(examples)
        return others, settled_cost(self, examples)

    def pattern_part(self, examples: Examples | None) -> PatternPart:
        """What the support patterns tell of primal and dual."""
        return pattern_part(self, examples)

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
            values = block_values(self, examples, order)
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


def rebuild(parameters: dict[str, Any], state: dict[str, Any]) -> LaRank:
    """A run from what `parameters` and `export` gave."""
    return LaRank(**parameters).restore(state)
