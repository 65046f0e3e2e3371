"""A portion of the rows in a fit by splitting: what one task does with it, as pure functions.

The rows keep their multipliers. A pass looks at a W, which is sent to all portions, and answers
with sums that do not depend on how the rows are divided: only their rounding does. What a sample of
the rows holds follows from the rows' numbers, not from the portion they are in.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from ._decisions import centred
from ._jit import kernel
from ._newton import ROWS_PER_FEATURE, CurvedRows, column_squares, find_active
from ._products import block_rows, curvature, float64_blocks, scores_of, weighted_rows
from ._prox import examine_scores, free_classes, free_weight, settle
from ._rows import as_rows, read_only
from ._steps import LOSSES

Array = npt.NDArray[Any]


class PortionRows(NamedTuple):
    """The rows themselves, and what is known of the problem."""

    X: Any  # (m, d) dense or CSR
    y: npt.NDArray[np.int32]
    C: npt.NDArray[np.float64]
    ids: npt.NDArray[np.int64]  # numbers of the rows in the whole set
    tau: float
    k: int
    formulation: str
    parts: npt.NDArray[np.float64]  # of the penalty (see `_decisions.penalty_parts`)

    @property
    def curving(self) -> npt.NDArray[np.float64]:
        """What the rows' curvature is multiplied by, the penalty apart."""
        return self.C * self.parts

    @property
    def loss(self) -> Any:
        return LOSSES[self.formulation](self.k)


class Look(NamedTuple):
    """What a pass over the rows found at a W."""

    H: Array  # (k, d + 1) float64, Σ B(alpha_i) x_i, not centred
    sums: Array  # (2,) Σ C_i loss_i, Σ l(alpha_i)
    violation: float
    free: Array  # (k,) int64, rows in which a class is free
    active: int  # rows that curve


def look(rows: PortionRows, held: Array, columns: Array, rho: float, b: Array) -> Look:
    """The prox of every row at its scores, and all that follows from it; columns (k, d + 1).

    ``held`` and ``b`` (m, k) are multipliers in units of the rows' own C_i (see `_prox`): those of
    the augmented Lagrangian, and those that the look finds, which are written.
    """
    n, height, out = rows.X.shape[0], block_rows(rows.X), np.empty(3)
    loss, y, C = rows.loss, read_only(rows.y), read_only(rows.C)
    H, sums, violation = np.zeros_like(columns), np.zeros(2), 0.0
    for first in range(0, n, height):
        here = slice(first, first + height)
        X = rows.X[here]
        S = scores_of(X, columns, rows.tau)
        Cb = np.empty_like(S)
        settle(loss, S, held[here], rho * rows.parts[here], y[here], C[here], b[here], Cb, out)
        H += weighted_rows(X, Cb, rows.tau)
        sums += out[:2]
        violation = max(violation, float(out[2]))
    active = _active(rows, b)
    free = np.zeros(rows.k, np.int64)
    count_free(loss, active, y, b, free)
    return Look(H, sums, violation, free, active.size)


def product(rows: PortionRows, b: Array, P: Array, stride: int) -> Array:
    """Σ C_i x_i ⊗ J_i (P x_i) over the active rows that `stride` leaves, (k, d + 1)."""
    here = CurvedRows(rows.X, rows.y, rows.curving, b, rows.tau)
    return curvature(rows.loss, here, _active(rows, b, stride), P)


def gather(rows: PortionRows, b: Array, stride: int) -> CurvedRows:
    """The active rows that `stride` leaves, dense, with all that curvature takes."""
    here = _active(rows, b, stride)
    X = rows.X[here]
    dense = X.toarray() if sp.issparse(X) else X
    return CurvedRows(dense, rows.y[here], rows.curving[here], b[here], rows.tau)


class Sample(NamedTuple):
    """Some of the active rows, enough of each class to build a preconditioner from."""

    X: Array  # (s, d + 1) the rows, with their constant feature
    weights: Array  # (s, classes) each row's part of each class's block, over its chance
    diagonal: Array  # (classes, d + 1) Σ weight_i x_ij² of all active rows


def sample(rows: PortionRows, b: Array, free: Array, *, shared: bool) -> Sample:
    """Rows by their chances: those of rare classes are taken rather than those of others.

    free (k,) counts the free rows of each class in all portions. A choice of `ROWS_PER_FEATURE`
    rows per feature and class is enough (see `_newton`). `shared` weighs for the mean of all
    classes.
    """
    d1, blocks = rows.X.shape[1] + 1, 1 if shared else rows.k
    counts = np.maximum(1, free.sum(keepdims=True) if shared else free)
    wanted = np.minimum(1.0, ROWS_PER_FEATURE * d1 / counts)
    active = _active(rows, b)
    chances, weights = np.empty(active.size), np.zeros((active.size, blocks))
    weigh_sample(
        rows.loss, active, read_only(rows.y), read_only(rows.curving), b, wanted, chances, weights
    )  # fmt: skip
    chosen = _draws(rows.ids[active]) < chances
    diagonal = np.zeros((blocks, d1))
    for m in range(blocks):
        members = np.flatnonzero(weights[:, m])
        column_squares(as_rows(rows.X), rows.tau, active[members], weights[members, m], diagonal[m])
    here = active[chosen]
    X = np.empty((here.size, d1), rows.X.dtype)
    X[:, :-1] = rows.X[here].toarray() if sp.issparse(rows.X) else rows.X[here]
    X[:, -1] = rows.tau
    return Sample(X, weights[chosen] / chances[chosen, None], diagonal)


def sample_grams(found: Sample) -> Iterator[Array]:
    """Σ weight_i x_i x_i^T of each class, in the rows' type; the diagonal is of all active rows."""
    for weights, exact in zip(found.weights.T, found.diagonal, strict=True):
        members = weights > 0
        part = found.X[members] * np.sqrt(weights[members])[:, None].astype(found.X.dtype)
        gram = part.T @ part
        diagonal = np.diag_indices_from(gram)
        gram[diagonal] = np.maximum(gram[diagonal], exact)
        yield gram


def exact_columns(W: Array, formulation: str) -> Array:
    """W (d + 1, k) by classes in float64: the nearest that the primal allows."""
    columns = W.T.astype(np.float64)
    return centred(columns, formulation) if formulation == "lee_lin_wahba" else columns


def examine(rows: PortionRows, b: Array, scale: float, columns: Array) -> Look:
    """Loss at W by classes and dual of scale·C_i b_i as it would be stored, in float64."""
    y, C, dtype = read_only(rows.y), read_only(rows.C), rows.X.dtype
    H, sums = np.zeros_like(columns), np.zeros(2)
    for here, X in float64_blocks(rows.X):
        S = scores_of(X, columns, rows.tau)
        B = np.empty_like(S)
        alpha = (scale * C[here, None] * b[here]).astype(dtype)
        sums += examine_scores(rows.loss, S, y[here], C[here], alpha, B)
        H += weighted_rows(X, B, rows.tau)
    return Look(H, sums, 0.0, np.zeros(rows.k, np.int64), 0)


def _active(rows: PortionRows, b: Array, stride: int = 1) -> npt.NDArray[np.int64]:
    """Places of the rows that curve, or of one in ``stride`` of them."""
    places = np.empty(rows.y.size, np.int64)
    count, _ = find_active(rows.loss, b, read_only(rows.y), 0, places)
    active = places[:count]
    return active if stride == 1 else active[_draws(rows.ids[active]) < 1 / stride]


def _draws(ids: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """A number in [0, 1) for each row, evenly spread and without regard to the rows' order."""
    mixed = ids.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(32)
    mixed *= np.uint64(0xD6E8FEB86659FD93)
    return np.asarray((mixed >> np.uint64(11)) * 2.0**-53, np.float64)


@kernel
def count_free(loss, active, y, b, counts):
    """counts (k,) += rows in which a class is free."""
    classes = np.empty(loss.k, np.int32)
    for i in active:
        for c in range(free_classes(loss, b[i], y[i], classes)):
            counts[classes[c]] += 1


@kernel
def weigh_sample(loss, active, y, C, b, wanted, chances, weights):
    """The chance of each active row to be taken, and its part of each class's block of H.

    wanted (k,) or (1,): the share of a class's rows that are needed, or of all rows' free classes.
    weights (rows, classes), or (rows, 1) for the mean of the blocks.
    """
    classes = np.empty(loss.k, np.int32)
    shared = wanted.size == 1
    for place in range(active.size):
        i = active[place]
        q = free_classes(loss, b[i], y[i], classes)
        part = C[i] * free_weight(loss, q)
        chance = wanted[0] * q if shared else 0.0
        if shared:
            weights[place, 0] = part * q / loss.k
        else:
            for c in range(q):
                weights[place, classes[c]] = part
                chance = max(chance, wanted[classes[c]])
        chances[place] = min(chance, 1.0)
