"""Score splitting for dense rows: an augmented Lagrangian whose W step is Newton's method.

The scores are split from the losses, Z = XW ([SPLIT] of docs/math.md). For fixed multipliers the
best Z is a prox per row, which leaves a smooth, piecewise quadratic function of W; a few Newton
steps minimize it, then the multipliers move. Only rows with a variable between its bounds curve, so
a Newton step costs one pass over X for the scores of the direction and one for the gradient, at the
speed of BLAS, and its linear system a fraction of a pass.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from ._blas import one_blas_thread
from ._decisions import (
    CURVED_PER_WEIGHT,
    EASY,
    FIRST_RHO,
    SLOPES,
    WARM_RHO,
    Length,
    best_multiple,
    centred,
    cg_tolerance,
    curved_stride,
    gradient_left,
    multipliers_move,
    next_rho,
    penalty_parts,
    sample_misled,
)
from ._newton import (
    BLAS_RATE,
    ROWS_PER_FEATURE,
    CurvedRows,
    Preconditioner,
    conjugate_gradients,
    curvature_blocks,
    find_active,
)
from ._products import block_rows, curvature, scores_of, weighted_rows
from ._prox import examine_scores, settle, slope
from ._rows import as_rows, read_only, square_norms
from ._steps import LOSSES
from .duals import Duals
from .sequential import EpochResult

#: Curved rows that a thread works on together.
CURVED_BLOCK = 4096
#: float32 scores are made anew after so many steps that only added to them.
FRESH_SCORES = 16


class Splitting:
    """A run of the splitting method on rows in memory; each epoch changes it in place.

    ``primal``, ``dual`` and ``gap`` follow from float32 sums over all rows until `certify` replaces
    them by exact values.
    """

    #: W is made anew in every pass, so that there is no drift to certify against.
    drifts = False

    def __init__(self, X, y, C, *, n_classes, formulation, tau, seed=0, n_jobs=1, start=None):
        (self.n, d), self.dtype, k = X.shape, X.dtype, n_classes
        self.X, self.tau = X, float(tau)
        self.y = read_only(np.asarray(y, np.int32))
        self.C = read_only(np.asarray(C, np.float64))
        self.formulation, self.loss, self.k = formulation, LOSSES[formulation](k), k
        self.pool = ThreadPoolExecutor(n_jobs) if n_jobs > 1 else None
        self.blocks = _blocks(X)
        self.S = np.zeros((self.n, k), self.dtype)
        self.T = np.zeros((self.n, k), self.dtype)  # b, and scores of the direction in a step
        self.held = np.zeros((self.n, k), self.dtype)
        self.columns = np.zeros((k, d + 1))  # W by classes
        square = square_norms(as_rows(X), self.n, self.tau)
        self.parts = penalty_parts(square, float(self.C @ square) / float(self.C.sum()))
        self.curving = read_only(self.C * self.parts)  # of the rows' curvature, the penalty apart
        self.rho, self.steps, self.since_fresh, self.is_flat = FIRST_RHO, 0, 0, False
        self.easy, self.norm_before, self.samples = 0, 0.0, True
        self.preconditioner = None
        self.cg_work = 0.0
        self.best_primal, self.best_columns = np.inf, self.columns
        self.dual_held, self.scale_held = 0.0, 1.0  # of no multipliers at all
        with one_blas_thread():
            if start is not None:
                self._take(start)
            self._look()

    # -- what a loop reads -------------------------------------------------------------------------

    @property
    def gap(self) -> float:
        return self.best_primal - self.dual

    @property
    def W(self) -> np.ndarray:
        """The best W seen, (d + 1, k) of the rows' type."""
        return np.ascontiguousarray(self.best_columns.T, self.dtype)

    def duals(self) -> Duals:
        """The dual variables that `dual` belongs to."""
        alpha = np.empty((self.n, self.k), self.dtype)
        for first, last, _ in self.blocks:
            here = slice(first, last)
            stored = self._alpha(here)
            if self.formulation == "lee_lin_wahba":
                stored += self.C[here, None].astype(self.dtype)
                stored[np.arange(last - first), self.y[here]] = 0
            elif self.formulation in ("one_vs_rest", "weston_watkins"):
                np.negative(stored, out=stored)
                own = np.arange(last - first), self.y[here]
                stored[own] = -stored[own] if self.formulation == "one_vs_rest" else 0
            alpha[here] = stored
        return Duals(self.formulation, self.k, self.C, alpha)

    # -- an epoch ----------------------------------------------------------------------------------

    def newton_epoch(self) -> EpochResult:
        """One Newton step for W, after a move of the multipliers if the last steps earned it."""
        with one_blas_thread():
            moves = multipliers_move(self.primal, self.dual_here, self.g, self.steps)
            if moves or self.is_flat:
                self._move_multipliers()
            active = self.active.size / self.n
            work = self._step()
        return EpochResult(work, self.violation, active)

    def _move_multipliers(self) -> None:
        """Take over the multipliers found, and a penalty that suits the steps it took."""
        self.held, self.T = self.T, self.held
        self.dual_held = self.dual_here
        self.scale_held = self.scale_here
        self.rho = next_rho(self.rho, self.steps - self.easy)
        self.steps, self.easy, self.norm_before, self.is_flat = 0, 0, 0.0, False
        self._look()

    def _step(self) -> int:
        """W moves along Newton's direction; returns the class scores computed."""
        P, products = self._direction()
        work = self.n * self.k + products * (self.free // self.stride)
        self.steps += 1
        first = float(np.vdot(self.g, P))
        self.is_flat = first >= 0  # nothing left to gain but rounding
        if self.is_flat:
            return work
        self._scores(P, self.T)
        t = self._length(P, first)
        if sample_misled(self.stride, t):  # stay, and ask all rows
            self.samples, self.preconditioner, t = False, None, 0.0
        self.columns = self.columns + t * P
        self.since_fresh += 1
        if self.since_fresh >= FRESH_SCORES:
            self._scores(self.columns, self.S)
            self.since_fresh = 0
            work += self.n * self.k
        else:
            self._each(lambda a, z, X: _add(self.S[a:z], self.T[a:z], t))
        self._look()
        return work

    def _length(self, P: np.ndarray, first: float) -> float:
        """A step length at which the slope has fallen to a part of ``first``, by false position."""
        linear, square = float(np.vdot(self.columns, P)), float(np.vdot(P, P))
        length = Length(first)
        for _ in range(SLOPES):
            t = length.t
            here = linear + t * square + sum(self._each(partial(self._slope, t=t)))
            if length.is_enough(here):
                break
            length = length.after(here)
        return length.t

    def _slope(self, first: int, last: int, X: Any, *, t: float) -> float:
        here = slice(first, last)
        down: float = slope(
            self.loss, self.S[here], self.T[here], t, self.held[here], self.rho * self.parts[here],
            self.y[here], self.C[here],
        )  # fmt: skip
        return down

    # -- Newton's system ---------------------------------------------------------------------------

    def _direction(self) -> tuple[np.ndarray, int]:
        """The Newton direction (k, d + 1) at the last look, and the products it took."""
        d1 = self.columns.shape[1]
        shared = self.preconditioner is None or self.k * d1 > self.n
        count = 1 if shared else self.k
        # Far from the solution a part of the rows shows the curvature well enough.
        self.stride = 1 if not self.samples else curved_stride(
            self.gap, self.best_primal, free=self.free, active=self.active.size,
            wanted=CURVED_PER_WEIGHT * self.k * d1,
        )  # fmt: skip
        self.curved = self.active[:: self.stride]
        sampled = min(self.free, count * ROWS_PER_FEATURE * d1)
        cost = (sampled * d1**2 / 2 + count * d1**3) / BLAS_RATE
        # An old one stays good for a while: make anew when CG has spent as much as that costs.
        if self.preconditioner is None or self.cg_work > cost:
            self.preconditioner = None  # let go of the old one first
            self.preconditioner = self._new_preconditioner(shared)
        left = gradient_left(self.g, self.norm_before)
        self.easy += left <= EASY
        self.norm_before = float(np.linalg.norm(self.g))
        P, products = conjugate_gradients(
            self._product, self.preconditioner.solve, self.g, cg_tolerance(left)
        )
        blocks = len(self.preconditioner.factors)
        free = self.free / self.stride
        self.cg_work += products * (2 * free * d1 + blocks * d1**2 / BLAS_RATE)
        return P, products

    def _new_preconditioner(self, shared: bool) -> Preconditioner:
        """A preconditioner for the present active rows and penalty."""
        grams = curvature_blocks(
            self.loss, self._curved_rows, self.curved, free=self.free, shared=shared
        )
        self.cg_work = 0.0
        return Preconditioner.of_grams(
            grams, self.rho * self.stride, centred=self.formulation != "one_vs_rest"
        )

    @property
    def _curved_rows(self) -> CurvedRows:
        return CurvedRows(self.X, self.y, self.curving, self.T, self.tau)

    def _product(self, P: np.ndarray) -> np.ndarray:
        def part(first: int) -> np.ndarray:
            here = self.curved[first : first + CURVED_BLOCK]
            return curvature(self.loss, self._curved_rows, here, P)

        total = np.zeros_like(P)
        for out in self._map(part, range(0, self.curved.size, CURVED_BLOCK)):
            total += out
        return P + self.rho * self.stride * self._centre(total)

    # -- passes over the rows ----------------------------------------------------------------------

    def _look(self) -> None:
        """Prox of every row at the present scores; objectives, gradient and active rows follow."""
        active = np.empty(self.n, np.int64)

        def part(first: int, last: int, X: Any) -> tuple[np.ndarray, np.ndarray, int, int]:
            here, out = slice(first, last), np.empty(3)
            Cb = np.empty((last - first, self.k), self.dtype)
            settle(
                self.loss, self.S[here], self.held[here], self.rho * self.parts[here], self.y[here],
                self.C[here], self.T[here], Cb, out,
            )  # fmt: skip
            count, free = find_active(self.loss, self.T[here], self.y[here], first, active[here])
            return out, weighted_rows(X, Cb, self.tau), count, free

        parts = self._each(part)
        sums = [sum(part[0][j] for part in parts) for j in range(2)]
        self.violation = max(part[0][2] for part in parts)
        H = self._centre(sum(part[1] for part in parts))
        self.active = np.concatenate(
            [active[a : a + part[2]] for (a, _, _), part in zip(self.blocks, parts, strict=True)]
        )
        self.free = sum(part[3] for part in parts)
        self.g = self.columns - H
        self.primal = 0.5 * float(np.vdot(self.columns, self.columns)) + sums[0]
        self.scale_here, self.dual_here = best_multiple(sums[1], float(np.vdot(H, H)))
        if self.primal < self.best_primal:
            self.best_primal, self.best_columns = self.primal, self.columns
        self.dual = max(self.dual_here, self.dual_held)

    def _scores(self, columns: np.ndarray, out: np.ndarray) -> None:
        """out (n, k) = X W for W given by classes."""

        def part(first: int, last: int, X: Any) -> None:
            out[first:last] = scores_of(X, columns, self.tau)

        self._each(part)

    def certify(self) -> tuple[float, float]:
        """Primal of the best W and dual of the better multipliers, all sums in float64."""
        columns = self.W.T.astype(np.float64)

        def part(first: int, last: int, X: Any) -> tuple[float, float, np.ndarray]:
            here, X = slice(first, last), X.astype(np.float64)
            S = scores_of(X, columns, self.tau)
            B = np.empty_like(S)
            primal, linear = examine_scores(
                self.loss, S, self.y[here], self.C[here], self._alpha(here), B
            )
            return primal, linear, weighted_rows(X, B, self.tau)

        with one_blas_thread():
            parts = self._each(part)
        H = self._centre(sum(part[2] for part in parts))
        self.best_primal = 0.5 * float(np.vdot(columns, columns)) + sum(part[0] for part in parts)
        self.dual = sum(part[1] for part in parts) - 0.5 * float(np.vdot(H, H))
        return self.best_primal, self.dual

    def _alpha(self, here: slice) -> np.ndarray:
        """C_i b_i of a block as it is stored: the better of what is held and what was found."""
        held_is_better = self.dual_held >= self.dual_here
        b, scale = (self.held, self.scale_held) if held_is_better else (self.T, self.scale_here)
        return (scale * self.C[here, None] * b[here]).astype(self.dtype)

    def _take(self, start: Duals) -> None:
        """Begin at given dual variables and their W."""
        alpha = start.rescaled(self.C).multipliers(self.y)
        self.held[:] = alpha
        parts = self._each(
            lambda a, z, X: weighted_rows(
                X, (self.C[a:z, None] * alpha[a:z]).astype(self.dtype), self.tau
            )
        )
        self.columns = self._centre(sum(parts))
        # l is Σ alpha, in Crammer-Singer minus that of the rivals; here b is ± alpha.
        linear = float(self.C @ np.abs(alpha).sum(axis=1))
        if self.formulation in ("crammer_singer", "weston_watkins"):
            linear /= 2  # the own class holds the sum of its rivals
        square = float(np.vdot(self.columns, self.columns))
        self.scale_held, self.dual_held = best_multiple(linear, square)
        self._scores(self.columns, self.S)
        self.rho = WARM_RHO

    # -- small tools -------------------------------------------------------------------------------

    def _centre(self, H: np.ndarray) -> np.ndarray:
        return np.asarray(centred(H, self.formulation))

    def _each(self, task: Callable[[int, int, Any], Any]) -> list[Any]:
        return self._map(lambda block: task(*block), self.blocks)

    def _map(self, task: Callable[[Any], Any], items: Any) -> list[Any]:
        """Results in the order of the items, whatever thread made them."""
        return list(map(task, items) if self.pool is None else self.pool.map(task, items))


def _add(S: np.ndarray, T: np.ndarray, t: float) -> None:
    S += S.dtype.type(t) * T


def _blocks(X: Any) -> list[tuple[int, int, Any]]:
    """First row, last row and rows of each block, as views: a task of a thread, a unit of sums."""
    height = block_rows(X)
    bounds = [(a, min(a + height, X.shape[0])) for a in range(0, X.shape[0], height)]
    if not sp.issparse(X):
        return [(a, z, X[a:z]) for a, z in bounds]
    blocks = []
    for a, z in bounds:
        one, end = X.indptr[a], X.indptr[z]
        parts = X.data[one:end], X.indices[one:end], X.indptr[a : z + 1] - one
        blocks.append((a, z, sp.csr_array(parts, shape=(z - a, X.shape[1]), copy=False)))
    return blocks
