"""Score splitting of rows in memory: an augmented Lagrangian whose W step is Newton's method.

The scores are split from the losses, Z = XW ([SPLIT] of docs/math.md). For fixed multipliers the
best Z is a prox per row, which leaves a smooth, piecewise quadratic function of W; a few Newton
steps minimize it, then the multipliers move. Only rows with a variable between its bounds curve, so
a Newton step costs one pass over X for the scores of the direction and one for the gradient, at the
speed of BLAS, and its linear system a fraction of a pass.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from dask_mcsvm.solvers.duals import Duals
from dask_mcsvm.solvers.kernels.rows import as_rows, read_only, square_norms
from dask_mcsvm.solvers.sdm.run import EpochResult
from dask_mcsvm.solvers.splitting.blas import one_blas_thread

from .machine import EVALUATE, SLOPE, Newton, Request
from .products import scores_of
from .rows import (
    BlockRows,
    Evaluation,
    add_answers,
    certify,
    curved,
    evaluate_scores,
    multipliers,
    slope_at,
    stored_alpha,
    weigh,
)
from .rules import IN_MEMORY, penalty_parts

#: float32 scores are made anew after so many steps that only added to them.
FRESH_SCORES = 16


class Splitting:
    """A run of the splitting method on rows in memory; each epoch changes it in place.

    ``dual`` and ``gap`` follow from float32 sums over all rows until `certify` replaces them by
    exact values.
    """

    #: Epochs between certificates: W is made anew in every pass and does not drift.
    patience = float("inf")

    def __init__(self, X, y, C, *, n_classes, formulation, tau, seed=0, n_jobs=1, start=None):
        (n, d), C, tau = X.shape, read_only(np.asarray(C, np.float64)), float(tau)
        square = square_norms(as_rows(X), n, tau)
        mean = float(C @ square) / float(C.sum())
        self.newton = Newton(formulation, n, n_classes, d + 1, tau, mean, IN_MEMORY)
        self.rows = BlockRows(
            X, read_only(np.asarray(y, np.int32)), C, np.arange(n), penalty_parts(square, mean),
            tau, formulation, n_classes,
        )  # fmt: skip
        self.blocks = list(self.rows.views())
        self.pool = ThreadPoolExecutor(n_jobs) if n_jobs > 1 else None
        # Scores of the present W; multipliers found, and in a step the scores of its direction.
        self.S, self.T, self.fixed = (np.zeros((n, n_classes), X.dtype) for _ in range(3))
        self.active = np.empty(0, np.int64)
        self.work = self.since_fresh = 0
        self.state = self.newton.start(X.dtype)
        with one_blas_thread():
            if start is not None:
                self._take(start)
            self._advance()

    # -- what a loop reads -------------------------------------------------------------------------

    @property
    def dual(self) -> float:
        return self.state.dual

    @property
    def gap(self) -> float:
        return self.state.gap

    @property
    def W(self) -> np.ndarray:
        """The best W seen, (d + 1, k) of the rows' type."""
        return self.state.W

    def duals(self) -> Duals:
        """The dual variables that `dual` belongs to."""
        rows = self.rows
        alpha = stored_alpha(rows, self._better, self.state.scale)
        return Duals(rows.formulation, rows.k, rows.C, alpha)

    def newton_epoch(self) -> EpochResult:
        """One Newton step for W, after a move of the multipliers if the last steps earned it."""
        self.state.begin_epoch()
        with one_blas_thread():
            self._advance()
            while not self.state.stepped:
                self._advance()
        state, (n, k) = self.state, self.S.shape
        # An epoch that finds nothing to gain counts as one, so that a fit ends.
        return EpochResult(max(int(state.work), n * k), state.violation, state.active / n)

    def certify(self) -> tuple[float, float]:
        """Primal of the best W and dual of the better multipliers, all sums in float64."""
        b, state = self._better, self.state
        with one_blas_thread():
            columns = self.newton.exact_columns(state)
            seen = self._each(lambda here, part: certify(part, b[here], state.scale, columns))
        self.newton.certified(state, add_answers(seen))
        return state.best_primal, state.dual

    # -- answers to the state machine --------------------------------------------------------------

    def _advance(self) -> None:
        request = self.newton.request(self.state)
        if request.phase == EVALUATE:
            answer: Any = self._evaluate(request)
        elif request.phase == SLOPE:
            answer = self._slope(request)
        else:
            answer = curved(self.rows, self.T, self.active, request.stride)
        self.newton.advance(self.state, answer, self._map)

    def _evaluate(self, request: Request) -> Evaluation:
        """Prox of every row at W + t P, whose scores follow from those of W and P."""
        if request.moves:
            self.fixed, self.T = self.T, self.fixed
        if self.state.tries:
            self.since_fresh += 1
            if self.since_fresh >= FRESH_SCORES:
                self._scores(request.columns, self.S)
                self.since_fresh = 0
            else:
                t = self.S.dtype.type(self.state.length.t)
                self._each(lambda here, part: _add(self.S[here], t, self.T[here]))
        places = np.empty(self.S.shape[0], np.int64)
        seen = self._each(
            lambda here, part: evaluate_scores(
                part, self.fixed[here], self.S[here], request.penalty, self.T[here], places[here]
            )
        )
        self.active = np.concatenate(
            [
                here.start + places[here][: found.active]
                for (here, _), found in zip(self.blocks, seen, strict=True)
            ]
        )
        work, self.work = self.work, 0
        return add_answers(seen)._replace(work=work)

    def _slope(self, request: Request) -> float:
        """The losses' part of the slope at W + t P, from scores alone."""
        length = self.state.length
        if length.tried == 0:
            self._scores(self.state.cg.P, self.T)
        return sum(
            self._each(
                lambda here, part: slope_at(
                    part, self.fixed[here], self.S[here], self.T[here], length.t, request.penalty
                )
            )
        )

    def _scores(self, columns: np.ndarray, out: np.ndarray) -> None:
        """out (n, k) = X W for W given by classes."""

        def fill(here: slice, part: BlockRows) -> None:
            out[here] = scores_of(part.X, columns, part.tau)

        self._each(fill)
        self.work += out.size

    @property
    def _better(self) -> np.ndarray:
        return self.fixed if self.state.fixed_is_better else self.T

    def _take(self, start: Duals) -> None:
        """Begin at given dual variables and their W."""
        rows = self.rows
        self.fixed[:] = multipliers(rows, start.rescaled(rows.C).to_dense(rows.y))
        seen = self._each(lambda here, part: weigh(part, self.fixed[here]))
        self.newton.warm_start(self.state, add_answers(seen))
        self._scores(self.state.columns, self.S)

    def _each(self, task: Callable[[slice, BlockRows], Any]) -> list[Any]:
        return list(self._map(lambda block: task(*block), self.blocks))

    def _map(self, task: Callable[[Any], Any], items: Any) -> Any:
        """Results in the order of the items, whatever thread made them."""
        return map(task, items) if self.pool is None else self.pool.map(task, items)


def _add(S: np.ndarray, t: Any, T: np.ndarray) -> None:
    S += t * T
