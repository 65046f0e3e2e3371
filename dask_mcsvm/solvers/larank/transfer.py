"""A LaRank run as plain arrays, to move it to another process or to disk, and back.

The cache stays behind: its values are computed again when they are wanted, to the last bit. Arrays
from elsewhere are checked before they are a state: compiled code indexes without looking.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from .kernels import Kernel, norms_of, self_values
from .models import KernelModel, grown_model, grown_patterns
from .state import (
    COST,
    FREE,
    GAIN,
    HAND,
    LEAST,
    LEFT,
    LONGEST,
    N_COUNTS,
    N_SUMS,
    NEXT,
    OPERATION,
    PATTERNS,
    REMOVE,
    SECONDS,
    TURN,
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


# -- arrays from elsewhere -------------------------------------------------------------------------

#: Coefficients of a pattern sum to zero up to this part of its cost, norms agree up to this part.
ROUNDING = 1e-5

#: Arrays of every state, with their dtype; P patterns with V support vectors, in this order.
BY_PATTERN = {"ids": "i8", "label": "i4", "cost": "f8", "square": "f8", "held": "i4"}
BY_VECTOR = {"classes": "i4", "beta": "f8"}
FIXED = {
    "counts": ("i8", (N_COUNTS,)),
    "sums": ("f8", (N_SUMS,)),
    "ratio": ("f8", (3,)),
    "generator": ("u8", (1,)),
}
#: ... and of a state with a kernel.
KERNEL_BY_VECTOR = {"place": "i4", "grad": "f8"}


def checked_state(parameters: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """The arrays of a state, every one checked by itself and against the others.

    Parameters
    ----------
    parameters : dict
        As `LaRank.parameters` gives them; these have been checked.
    given : dict
        Arrays from a file, and the number ``n_seen``.

    Raises
    ------
    ValueError
        With a few words on what is wrong.
    """
    kernel: Kernel = parameters["kernel"]
    k, dtype = parameters["n_classes"], np.dtype(parameters["dtype"])
    ids = _of(given, "ids")
    _must(isinstance(ids, np.ndarray) and ids.ndim == 1, "ids are not a list of numbers")
    P = ids.shape
    state = {name: _array(given, name, kind, shape) for name, (kind, shape) in FIXED.items()}
    state |= {name: _array(given, name, kind, P) for name, kind in BY_PATTERN.items()}
    state["n_seen"] = given["n_seen"]
    _check_patterns(state, k)
    V = (int(state["held"].sum()),)
    state |= {name: _array(given, name, kind, V) for name, kind in BY_VECTOR.items()}
    _check_vectors(state, k)
    _check_tally(state, P[0], V[0])
    columns = 0 if kernel.name == "precomputed" else parameters["n_features"]
    state["rows"] = _rows(given, (*P, columns), dtype, parameters["is_sparse"])
    if kernel.name == "linear":
        state["W"] = _array(given, "W", dtype, (columns + 1, k))
        _must(not state["W"][-1].any(), "W has weights of a column that is not there")
        norms = norms_of(state["rows"])
    else:
        state |= {name: _array(given, name, kind, V) for name, kind in KERNEL_BY_VECTOR.items()}
        _check_lists(state, k)
        state["norms"] = norms = _array(given, "norms", "f8", P)
    _check_squares(state, kernel, norms, columns)
    return state


def _must(holds: Any, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)


def _of(given: dict[str, Any], name: str) -> Any:
    _must(name in given, f"the array {name} is missing")
    return given[name]


def _array(given: dict[str, Any], name: str, kind: Any, shape: tuple[int, ...]) -> np.ndarray:
    values, dtype = _of(given, name), np.dtype(kind)
    _must(isinstance(values, np.ndarray), f"{name} is not a dense array")
    _must(values.dtype == dtype, f"{name} has dtype {values.dtype}, {dtype} is needed")
    _must(values.shape == shape, f"{name} has shape {values.shape}, {shape} is needed")
    _must(dtype.kind != "f" or np.isfinite(values).all(), f"{name} has NaN or infinity")
    return values


def _rows(given: dict[str, Any], shape: tuple[int, int], dtype: np.dtype, is_sparse: bool) -> Any:
    rows = _of(given, "rows")
    if not is_sparse:
        return _array(given, "rows", dtype, shape)
    _must(sp.issparse(rows) and rows.format == "csr", "rows are not CSR")
    _must(rows.shape == shape, f"rows have shape {rows.shape}, {shape} is needed")
    _must(rows.dtype == dtype, f"rows have dtype {rows.dtype}, {dtype} is needed")
    rows = sp.csr_array((rows.data, rows.indices, rows.indptr), shape=rows.shape)
    rows.check_format(full_check=True)
    _must(rows.has_canonical_format, "rows have columns out of order or twice")
    _must(np.isfinite(rows.data).all(), "rows have NaN or infinity")
    return rows


def _check_patterns(state: dict[str, Any], k: int) -> None:
    ids, n_seen = state["ids"], state["n_seen"]
    _must(ids.size <= n_seen, f"there are {ids.size} patterns of {n_seen} rows seen")
    _must(((ids >= 0) & (ids < n_seen)).all(), f"ids are not all in 0 to {n_seen - 1}")
    _must(np.unique(ids).size == ids.size, "ids has a number twice")
    _must(((state["label"] >= 0) & (state["label"] < k)).all(), f"label is not in 0 to {k - 1}")
    _must((state["cost"] > 0).all(), "cost is not above 0")
    _must((state["square"] > 0).all(), "square is not above 0")
    # In this order: what follows makes arrays of as many entries as held says.
    _must(((state["held"] >= 2) & (state["held"] <= k)).all(), f"held is not in 2 to {k}")


def _check_vectors(state: dict[str, Any], k: int) -> None:
    held, classes, beta = state["held"], state["classes"], state["beta"]
    _must(((classes >= 0) & (classes < k)).all(), f"classes are not all in 0 to {k - 1}")
    first = np.cumsum(held) - held
    _must(np.array_equal(classes[first], state["label"]), "classes do not begin with the label")
    slots = np.repeat(np.arange(held.size), held)
    pairs = slots * np.int64(k) + classes
    _must(np.unique(pairs).size == pairs.size, "a pattern has a class twice")
    own = np.zeros(classes.size, np.bool_)
    own[first] = True
    slack = ROUNDING * state["cost"]
    in_box = (beta[own] > 0) & (beta[own] - slack <= state["cost"])
    _must(in_box.all() and (beta[~own] <= 0).all(), "beta is outside of its bounds")
    sums = np.bincount(slots, beta, held.size)
    _must((np.abs(sums) <= slack).all(), "beta of a pattern does not sum to zero")


def _check_tally(state: dict[str, Any], P: int, V: int) -> None:
    counts = state["counts"]
    _must((counts >= 0).all(), "counts has a negative number")
    _must(counts[PATTERNS] == P and counts[VECTORS] == V, "counts are not those of the patterns")
    _must(counts[OPERATION] <= REMOVE and counts[TURN] < 3, "counts has an unknown operation")
    _must(not counts[list(LOCAL)].any(), "counts are those of a run at work")
    _must((state["ratio"] >= 0).all(), "ratio has a negative number")


def _check_lists(state: dict[str, Any], k: int) -> None:
    """The support vectors of each class are numbered from 0 on, each once."""
    classes, place = state["classes"], state["place"]
    order = np.lexsort((place, classes))
    sizes = np.bincount(classes, minlength=k)
    expected = np.arange(classes.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    _must(np.array_equal(place[order], expected), "place does not number the classes' vectors")


def _check_squares(state: dict[str, Any], kernel: Kernel, norms: np.ndarray, columns: int) -> None:
    """‖x‖² and K(x, x) are those of the rows."""
    if kernel.is_external:
        _must(not norms.any(), "norms are not 0")
        return
    expected = norms_of(state["rows"])
    _must(np.allclose(norms, expected, ROUNDING, 0.0), "norms are not those of the rows")
    if kernel.name != "linear":
        expected = self_values(kernel.compiled(columns), norms)
    _must(np.allclose(state["square"], expected, ROUNDING, 0.0), "square is not that of the rows")
