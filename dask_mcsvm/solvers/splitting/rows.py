"""What a block of rows does for one request of the Newton state machine, as pure functions.

The rows have their multipliers. An answer is made of sums that do not depend on how the rows are
divided into blocks: only their rounding does. Which rows are in a sample follows from their
numbers, not from the block they are in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dask_mcsvm.formulations import FORMULATIONS
from dask_mcsvm.formulations.margins import EQUAL, Margins
from dask_mcsvm.solvers.kernels.jit import apart, kernel
from dask_mcsvm.solvers.kernels.margins import move_scores, moved_by
from dask_mcsvm.solvers.kernels.rows import read_only
from dask_mcsvm.solvers.kernels.steps import LOSSES

from .newton import (
    ROWS_PER_FEATURE,
    CurvedRows,
    as_array,
    dense_rows,
    find_active,
    squares_of_columns,
    with_diagonal,
)
from .products import float64_blocks, row_views, scores_of, weighted_rows
from .prox import certify_scores, free_classes, free_weight, prox_rows, slope

Array = npt.NDArray[Any]


class BlockRows(NamedTuple):
    """The rows themselves, and what is known of the problem."""

    X: Any  # (m, d) dense or CSR
    y: npt.NDArray[np.int32]
    C: npt.NDArray[np.float64]
    ids: npt.NDArray[np.int64]  # numbers of the rows in the whole set
    parts: npt.NDArray[np.float64]  # of the penalty (see `rules.penalty_parts`)
    tau: float
    formulation: str
    k: int
    margins: Margins = EQUAL

    @property
    def loss(self) -> Any:
        return LOSSES[self.formulation](self.k)

    def views(self) -> Iterator[tuple[slice, BlockRows]]:
        """Blocks of a size that suits a pass, and where they are."""
        for here, X in row_views(self.X):
            y, C = read_only(self.y[here]), read_only(self.C[here])
            ids, parts = self.ids[here], self.parts[here]
            yield here, self._replace(X=X, y=y, C=C, ids=ids, parts=parts)

    def move(self, S: Array) -> Array:
        """Scores S (m, k) of these rows, moved in place by margins [MARGIN-SHIFT]."""
        if self.margins != EQUAL:
            move_scores(self.margins, read_only(self.y), S)
        return S

    def margin_part(self, B: Array) -> float:
        """What Σ l(alpha_i) has less than with margins of 1, for coefficients B (m, k)."""
        if self.margins == EQUAL:
            return 0.0
        return float(moved_by(self.margins, read_only(self.y), B))


# -- objectives and gradient -----------------------------------------------------------------------


class Evaluation(NamedTuple):
    """Sums over rows that objectives and gradient at a W follow from."""

    H: Array  # (k, d + 1) float64, Σ B(alpha_i) x_i, not centred
    sums: Array  # (2,) Σ C_i loss_i, Σ l(alpha_i)
    violation: float
    free: Array  # (k,) int64, rows in which a class is free
    active: int  # rows that curve
    work: int  # class scores computed


def evaluate(rows: BlockRows, fixed: Array, columns: Array, penalty: float, b: Array) -> Evaluation:
    """The prox of every row at its scores, for W given by classes (k, d + 1).

    ``fixed`` and ``b`` (m, k) are multipliers in units of the rows' own C_i (see `prox`): those of
    the augmented Lagrangian, and those that this finds and writes.
    """
    places = np.empty(rows.y.size, np.int64)
    found = [no_rows(*columns.shape)]
    for here, part in rows.views():
        S = part.move(scores_of(part.X, columns, rows.tau))
        seen = evaluate_scores(part, fixed[here], S, penalty, b[here], places[here])
        found.append(seen._replace(work=S.size))
    return add_answers(found)


def evaluate_scores(
    rows: BlockRows, fixed: Array, S: Array, penalty: float, b: Array, places: Array
) -> Evaluation:
    """The same at given moved scores; places of active rows are written to the first ``places``."""
    loss, out = rows.loss, np.empty(3)
    Cb, free = np.empty_like(S), np.zeros(rows.k, np.int64)
    prox_rows(loss, S, fixed, penalty * rows.parts, rows.y, rows.C, b, Cb, out)
    out[1] -= rows.margin_part(Cb)
    active = find_active(loss, b, rows.y, places, free)
    H = weighted_rows(rows.X, Cb, rows.tau)
    return Evaluation(H, out[:2], float(out[2]), free, active, 0)


def slope_at(rows: BlockRows, fixed: Array, S: Array, T: Array, t: float, penalty: float) -> float:
    """The losses' part of the slope at S + t T."""
    down: float = slope(rows.loss, S, T, t, fixed, penalty * rows.parts, rows.y, rows.C)
    return down


def no_rows(k: int, d1: int) -> Evaluation:
    """The sums over no rows at all."""
    return Evaluation(np.zeros((k, d1)), np.zeros(2), 0.0, np.zeros(k, np.int64), 0, 0)


def add_answers(answers: Sequence[Any]) -> Any:
    """The answers of several blocks to one request together, in the order given."""
    first = answers[0]
    if isinstance(first, Evaluation):
        H, sums, violation, free, active, work = zip(*answers, strict=True)
        return Evaluation(_sum(H), _sum(sums), max(violation), _sum(free), sum(active), sum(work))
    if isinstance(first, Sample):
        X, weights, diagonal = zip(*answers, strict=True)
        return Sample(np.concatenate(X), np.concatenate(weights), _sum(diagonal))
    if isinstance(first, CurvedRows):
        rows, y, C, b = (np.concatenate([a[j] for a in answers]) for j in range(4))
        return CurvedRows(rows, y, C, b, np.arange(y.size), first.tau)
    return _sum(answers)


def _sum(parts: Sequence[Any]) -> Any:
    return sum(parts[1:], parts[0])


# -- curvature -------------------------------------------------------------------------------------


def curved(rows: BlockRows, b: Array, active: Array, stride: int) -> CurvedRows:
    """The rows with what their curvature takes; of the active ones, one in ``stride``."""
    if stride > 1:
        active = active[_draws(rows.ids[active]) < 1 / stride]
    return CurvedRows(rows.X, rows.y, rows.C * rows.parts, b, active, rows.tau)


def find_curved(rows: BlockRows, b: Array, stride: int) -> CurvedRows:
    """`curved` of rows whose active ones are not known."""
    places = np.empty(rows.y.size, np.int64)
    count = find_active(rows.loss, b, read_only(rows.y), places, np.zeros(rows.k, np.int64))
    return curved(rows, b, places[:count], stride)


def gather(rows: CurvedRows) -> CurvedRows:
    """The active rows alone, dense."""
    here = rows.active
    X = as_array(rows.X[here])
    return CurvedRows(X, rows.y[here], rows.C[here], rows.b[here], np.arange(here.size), rows.tau)


class Sample(NamedTuple):
    """Some of the active rows, enough of each class to build a preconditioner from."""

    X: Array  # (s, d + 1) the rows, with their constant feature
    weights: Array  # (s, classes) each row's part of each class's block, over its chance
    diagonal: Array  # (classes, d + 1) Σ weight_i x_ij² of all active rows

    def grams(self) -> Iterator[Array]:
        """Σ weight_i x_i x_i^T by class in the rows' type, with the diagonal of all active rows."""
        for weights, exact in zip(self.weights.T, self.diagonal, strict=True):
            members = weights > 0
            part = self.X[members] * np.sqrt(weights[members])[:, None].astype(self.X.dtype)
            yield with_diagonal(part.T @ part, exact)


def sample(rows: BlockRows, b: Array, free: Array, *, stride: int, shared: bool) -> Sample:
    """Rows by their chances: those of rare classes are taken rather than those of others.

    free (k,) counts the free rows of each class in all blocks. A choice of `ROWS_PER_FEATURE` rows
    per feature and class is enough (see `newton`). ``shared`` weighs for the mean of all classes.
    All weights are those of one in ``stride`` rows, as in products.
    """
    d1, blocks = rows.X.shape[1] + 1, 1 if shared else rows.k
    counts = np.maximum(1, free.sum(keepdims=True) if shared else free)
    wanted = np.minimum(1.0, ROWS_PER_FEATURE * d1 / counts)
    here = find_curved(rows, b, 1)
    active = here.active
    chances, weights = np.empty(active.size), np.zeros((active.size, blocks))
    weigh_sample(
        rows.loss, active, read_only(rows.y), here.C / stride, b, wanted, chances, weights
    )  # fmt: skip
    chosen = _draws(rows.ids[active]) < chances
    diagonal = np.zeros((blocks, d1))
    for m in range(blocks):
        members = np.flatnonzero(weights[:, m])
        squares_of_columns(rows.X, rows.tau, active[members], weights[members, m], diagonal[m])
    X = dense_rows(rows.X, active[chosen], rows.tau)
    return Sample(X, weights[chosen] / chances[chosen, None], diagonal)


def _draws(ids: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """A number in [0, 1) for each row, evenly spread and without regard to the rows' order."""
    mixed = ids.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(32)
    mixed *= np.uint64(0xD6E8FEB86659FD93)
    return np.asarray((mixed >> np.uint64(11)) * 2.0**-53, np.float64)


@kernel
def weigh_sample(loss, active, y, C, b, wanted, chances, weights):
    """The chance of each active row to be taken, and its part of each class's block of H.

    wanted (k,) or (1,): the share of a class's rows that are needed, or of all rows' free classes.
    weights (rows, classes), or (rows, 1) for the mean of the blocks.
    """
    classes = apart(loss.k, np.int32)
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


# -- dual variables --------------------------------------------------------------------------------


def certify(rows: BlockRows, b: Array, scale: float, columns: Array) -> Evaluation:
    """Loss at W by classes and dual of scale·C_i b_i as it would be stored, in float64."""
    found = no_rows(*columns.shape)
    for here, X in float64_blocks(rows.X):
        y, C = read_only(rows.y[here]), read_only(rows.C[here])
        part = rows._replace(y=y)
        S = part.move(scores_of(X, columns, rows.tau))
        alpha, B = _scaled(rows, here, b, scale), np.empty_like(S)
        found.sums[:] += certify_scores(rows.loss, S, y, C, alpha, B)
        found.sums[1] -= part.margin_part(B)
        found.H[:] += weighted_rows(X, B, rows.tau)
    return found


def _scaled(rows: BlockRows, here: slice, b: Array, scale: float) -> Array:
    return (scale * rows.C[here, None] * b[here]).astype(rows.X.dtype)


def stored_alpha(rows: BlockRows, b: Array, scale: float) -> Array:
    """Dual variables of multipliers scale·C_i b_i, as `Duals` stores them."""
    alpha, form = np.empty_like(b), FORMULATIONS[rows.formulation]
    for here, part in rows.views():
        stored, own = _scaled(rows, here, b, scale), (np.arange(part.y.size), part.y)
        own_alpha = stored[own] if form.has_own_variable else 0
        if form.starts_at_bound:
            stored += part.C[:, None].astype(stored.dtype)
        else:
            stored *= form.rival_sign
        stored[own] = own_alpha
        alpha[here] = stored
    return alpha


def multipliers(rows: BlockRows, alpha: Array) -> Array:
    """Multipliers (m, k) of dual variables (m, k), in the rows' type."""
    b, own = alpha / rows.C[:, None], (np.arange(rows.y.size), rows.y)
    form = FORMULATIONS[rows.formulation]
    own_b = b[own]
    b *= form.rival_sign
    b[own] = own_b
    if form.compares_with_own and not form.has_own_variable:
        b[own] = -b.sum(axis=1)
    return b.astype(rows.X.dtype)


def weigh(rows: BlockRows, b: Array) -> Evaluation:
    """Sums that the dual of multipliers b follows from."""
    Cb = (rows.C[:, None] * b).astype(rows.X.dtype)
    # l is Σ alpha, in Crammer-Singer minus that of the rivals; here b is ± alpha.
    linear = float(rows.C @ np.abs(b).sum(axis=1, dtype=np.float64))
    if FORMULATIONS[rows.formulation].compares_with_own:
        linear /= 2  # the own class has the sum of its rivals
    linear -= rows.margin_part(Cb)
    H = weighted_rows(rows.X, Cb, rows.tau)
    return no_rows(*H.shape)._replace(H=H, sums=np.array([0.0, linear]))
