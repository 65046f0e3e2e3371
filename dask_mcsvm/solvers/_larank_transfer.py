"""A LaRank run as plain arrays, to move it to another process or to disk, and back.

The cache stays behind: its values are computed again when they are wanted, to the last bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from ._larank_grow import grown_model, grown_patterns
from ._larank_models import KernelModel
from ._larank_state import (
    COST,
    FREE,
    GAIN,
    HAND,
    LEAST,
    LEFT,
    LONGEST,
    NEXT,
    PATTERNS,
    SECONDS,
    USED,
    VECTORS,
    WIDEST,
    new_store,
)

PER_PATTERN = ("ids", "label", "cost", "square", "held")
#: Counters that describe the arrays of this process.
LOCAL = (NEXT, LEFT, USED, FREE, HAND)


def export(run) -> dict[str, Any]:
    """Everything that the next example needs, in arrays of its own."""
    P, patterns, counts = run.n_patterns, run.patterns, run.tally.counts.copy()
    counts[list(LOCAL)] = 0
    listed = np.arange(patterns.classes.shape[1]) < patterns.held[:P, None]
    state = {name: getattr(patterns, name)[:P].copy() for name in PER_PATTERN}
    state |= {"classes": patterns.classes[:P][listed], "beta": patterns.beta[:P][listed]}
    sums = run.tally.sums.copy()
    sums[[GAIN, COST, SECONDS, LEAST]] = 0.0  # of an operation that is over
    state |= {"counts": counts, "sums": sums, "ratio": run.tally.ratio.copy()}
    state |= {"generator": run.tally.generator.copy(), "n_seen": np.array(run.n_seen)}
    state["rows"] = run.pattern_rows()
    if isinstance(run.model, KernelModel):
        place = run.model.place[:P][listed]
        state |= {"place": place, "grad": run.model.grad[state["classes"], place]}
        state["norms"] = run.model.norms[:P].copy()
    else:
        state["W"] = run.model.W.copy()
    return state


def restore(run, state: dict[str, Any]) -> None:
    """Put an exported state into a fresh run with the same parameters; `state` is only read."""
    tally = run.tally
    free = tally.counts[FREE]
    for name in ("counts", "sums", "ratio", "generator"):
        getattr(tally, name)[:] = state[name]
    counts = tally.counts
    counts[FREE], run.n_seen = free, int(state["n_seen"])
    P, count = int(counts[PATTERNS]), state["held"]
    width = max(int(count.max(initial=0)) + 1, run.patterns.classes.shape[1])
    run.patterns = grown_patterns(run.patterns, max(64, P + P // 8), width)
    for name in PER_PATTERN:
        getattr(run.patterns, name)[:P] = state[name]
    slots = np.repeat(np.arange(P), count)
    places = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    run.patterns.classes[slots, places] = state["classes"]
    run.patterns.beta[slots, places] = state["beta"]
    counts[WIDEST] = count.max(initial=0)
    _restore_rows(run, state["rows"])
    if isinstance(run.model, KernelModel):
        _restore_lists(run, state, slots, places)
    else:
        run.model.W[:] = state["W"]


def _restore_rows(run, rows) -> None:
    P, capacity = rows.shape[0], run.patterns.ids.size
    if not sp.issparse(rows):
        run.store = new_store(False, rows.shape[1], run.dtype, capacity, 0)
        run.store[:P] = rows
        return
    nnz = rows.data.size
    run.store = new_store(True, 0, run.dtype, capacity, max(1024, nnz + nnz // 8))
    run.store[0][:nnz], run.store[1][:nnz] = rows.data, rows.indices
    run.store[2][: 2 * P : 2], run.store[2][1 : 2 * P : 2] = rows.indptr[:-1], rows.indptr[1:]
    run.tally.counts[USED] = nnz


def _restore_lists(run, state: dict[str, Any], slots: np.ndarray, places: np.ndarray) -> None:
    """Lists by class, in the order they had: sums over them must round alike."""
    classes = state["classes"]
    sizes = np.bincount(classes, minlength=run.k)
    counts = run.tally.counts
    counts[LONGEST], counts[VECTORS] = sizes.max(initial=0), classes.size
    run.model = grown_model(
        run.model, run.patterns, run.tally, run.cache_bytes, longest=int(counts[LONGEST])
    )
    model = run.model
    model.size[:] = sizes
    where = (classes, state["place"])
    model.member[where], model.back[where] = slots, places
    model.weight[where], model.grad[where] = state["beta"], state["grad"]
    model.place[slots, places] = state["place"]
    model.norms[: run.n_patterns] = state["norms"]
