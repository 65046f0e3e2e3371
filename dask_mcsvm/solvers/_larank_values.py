"""Examples of a LaRank run and the kernel values their visits need, in blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from ._larank_cache import known_values, place_row
from ._larank_kernels import UNKNOWN, call_kernel, compute_block
from ._larank_state import EVALUATIONS
from ._rows import read_only


@dataclass(eq=False)
class Examples:
    """Rows to learn from, and what a run remembers of them between visits."""

    X: np.ndarray | sp.csr_array  # (n, d); the (n, n) matrix of a precomputed kernel
    rows: np.ndarray | tuple[np.ndarray, np.ndarray, np.ndarray]
    y: np.ndarray  # (n,) int32
    C: np.ndarray  # (n,) float64
    norms: np.ndarray  # (n,) float64: ‖x‖²
    square: np.ndarray  # (n,) float64: K(x, x)
    width: np.ndarray  # (n,) float64: see ``Limits.width``
    base: int  # id of the first
    slot_of: np.ndarray  # (n,) int32
    seen: np.ndarray  # (n,) float64


def block_values(run: Any, examples: Examples, order: np.ndarray) -> np.ndarray:
    """Kernel values (b, P + b) of examples `order` to all patterns, and to those before them."""
    P, b, model = run.n_patterns, order.size, run.model
    model.column[:P] = np.arange(P)
    out = np.full((b, P + b), UNKNOWN, run.dtype)
    if model.example_row.size:
        known_values(model, order, examples.slot_of, P, out)
    counts = run.tally.counts
    if run.kernel.is_external:
        counts[EVALUATIONS] += external_values(run, examples, order, out)
        return out
    norms = examples.norms[order]
    left = (model.function, examples.rows, order, norms)
    counts[EVALUATIONS] += compute_block(*left, *stored(run), False, out, 0)
    counts[EVALUATIONS] += compute_block(*left, examples.rows, order, norms, True, out, P)
    return out


def stored(run: Any) -> tuple[Any, np.ndarray, np.ndarray]:
    """Rows of the patterns, their numbers and norms, as `compute_block` takes them."""
    P, store = run.n_patterns, run.store
    if isinstance(store, tuple):
        return tuple(map(read_only, store)), 2 * np.arange(P), run.model.norms[:P]
    return read_only(store), np.arange(P), run.model.norms[:P]


def external_values(run: Any, examples: Examples, order: np.ndarray, out: np.ndarray) -> int:
    """Fill `out` by calling the user's kernel, or from the matrix; returns how many values."""
    P, X = run.n_patterns, examples.X
    if run.kernel.name == "precomputed":
        out[:, :P] = X[np.ix_(order, run.patterns.ids[:P])]
        out[:, P:] = X[np.ix_(order, order)]
        return 0  # nobody computed anything
    rows = X[order]
    lacking = np.flatnonzero((out[:, :P] == UNKNOWN).any(axis=1))
    if lacking.size:
        out[lacking, :P] = call_kernel(run.kernel.function, rows[lacking], run.pattern_rows())
    out[:, P:] = call_kernel(run.kernel.function, rows, rows)
    examples.square[order] = out[:, P:].diagonal()
    return lacking.size * P + order.size**2


def provide_row(run: Any, p: int, examples: Examples | None) -> None:
    """Compute the kernel row of slot p and put it into the cache."""
    P, row = run.n_patterns, np.full((1, run.n_patterns), UNKNOWN, run.dtype)
    if run.kernel.name == "precomputed":
        assert examples is not None
        ids = run.patterns.ids[:P]
        row[0] = examples.X[ids[p], ids]
    elif run.kernel.is_external:
        rows = run.pattern_rows()
        row[:] = call_kernel(run.kernel.function, rows[p : p + 1], rows)
        run.tally.counts[EVALUATIONS] += P
    else:
        rows, slots, norms = stored(run)
        one = (run.model.function, rows, slots[p : p + 1], norms[p : p + 1])
        run.tally.counts[EVALUATIONS] += compute_block(*one, rows, slots, norms, False, row, 0)
        row[0, p] = run.patterns.square[p]
    place_row(run.model, p, row[0], run.tally.counts)
