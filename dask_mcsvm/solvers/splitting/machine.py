"""State machine of the Newton solver: the same in memory and on Dask.

Newton's method, its linear system and its line search are loops whose length is not known before.
On Dask a graph is therefore a row of passes that are all alike. The state says what the next pass
over the rows is to find out (a request), and moves on with what it found (an answer):

    evaluate  the prox of every row at W + t P: objectives, gradient, slope along P
    slope     the slope at W + t P alone, where the rows keep scores and it takes no pass
    gather    the active rows themselves: Newton's system is solved at once
    sample    some active rows, to make a preconditioner from
    product   curvature along a direction: one step of conjugate gradients

    evaluate ─► multipliers move? ─► evaluate   after enough steps: a new augmented Lagrangian
             ├► gather ──────────────────────────────────────────┬─► evaluate at W + P, then at
             └► sample, if CG got slow ─► product ─► ... product ┘   other lengths along P
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dask_mcsvm.formulations import FORMULATIONS
from dask_mcsvm.solvers.kernels.steps import LOSSES

from . import rules
from .newton import (
    BLAS_RATE,
    ROWS_PER_FEATURE,
    ConjugateGradients,
    CurvedRows,
    Preconditioner,
    curvature,
    curvature_blocks,
)
from .rows import Evaluation
from .rules import Length, Place

Array = npt.NDArray[Any]

EVALUATE, SLOPE, GATHER, SAMPLE, PRODUCT = range(5)


class Request(NamedTuple):
    """What a block of rows has to know of the state."""

    phase: int
    columns: Array  # (k, d + 1) the W to evaluate, or the direction of a product
    penalty: float
    moves: bool  # those last found become the fixed multipliers, before W is evaluated
    stride: int
    free: Array  # (k,)
    shared: bool


@dataclass
class NewtonState:
    """W, where Newton's method stands, and what is known.

    `Newton.advance` gives fields new values and never writes to arrays.
    """

    W: Array  # (d + 1, k) of the rows' type: the best seen, as it will be handed out
    columns: Array  # (k, d + 1) the present W
    g: Array  # gradient there
    cg: ConjugateGradients  # the direction, or as much as CG has of it
    factors: Array  # (blocks, d + 1, d + 1) of the preconditioner, or none yet
    free: Array  # (k,) rows in which a class is free
    length: Length = field(default_factory=Length)
    phase: int = EVALUATE
    moves: bool = False
    tries: bool = False  # the next W to evaluate is columns + t P
    stepped: bool = False  # the last answer ended a step
    penalty: float = rules.FIRST_PENALTY
    steps: int = 0  # since the multipliers moved
    easy: int = 0  # those of them that left little of the gradient
    norm_before: float = 0.0  # of the gradient before the last step
    tolerance: float = rules.CG_TOLERANCE
    samples: bool = True  # a part of the rows has not misled yet
    stride: int = 1
    cg_work: float = 0.0  # since the preconditioner was made
    best_primal: float = np.inf
    dual: float = 0.0
    dual_found: float = 0.0  # of the multipliers that the last evaluation found
    scale_found: float = 1.0
    dual_fixed: float = 0.0  # of those of the augmented Lagrangian
    scale_fixed: float = 1.0
    violation: float = 0.0
    active: int = 0
    dual_before: float = 0.0  # at the beginning of the epoch
    work: float = 0.0  # class scores of the epoch

    def arrays(self) -> dict[str, Array]:
        """Every field by name, those of `cg` and `length` one by one."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        for name in ("cg", "length"):
            parts = values.pop(name)._asdict()
            values |= {f"{name}_{part}": value for part, value in parts.items()}
        return {name: np.asarray(value) for name, value in values.items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> NewtonState:
        """The state that `arrays` came from."""
        values: dict[str, Any] = {n: x if x.ndim else x.item() for n, x in arrays.items()}
        for name, kind in (("cg", ConjugateGradients), ("length", Length)):
            values[name] = kind(**{part: values.pop(f"{name}_{part}") for part in kind._fields})
        return cls(**values)

    @property
    def gap(self) -> float:
        return self.best_primal - self.dual

    @property
    def point(self) -> Array:
        """The W that is evaluated next."""
        return self.columns + self.length.t * self.cg.P if self.tries else self.columns

    @property
    def fixed_is_better(self) -> bool:
        """Whether the dual is that of the fixed multipliers, not of those last found."""
        return self.dual_fixed >= self.dual_found

    @property
    def scale(self) -> float:
        """The multiple of the better multipliers that the dual belongs to."""
        return self.scale_fixed if self.fixed_is_better else self.scale_found

    def begin_epoch(self) -> None:
        """Count the work and the gain of an epoch from here."""
        self.dual_before, self.work = self.dual, 0.0


@dataclass(frozen=True)
class Newton:
    """What does not change in a fit, and how a state follows from the one before."""

    formulation: str
    n: int
    k: int
    d1: int
    tau: float
    square: float  # mean of ‖x_i‖² + tau², by C_i
    place: Place

    def start(self, dtype: npt.DTypeLike) -> NewtonState:
        """W = 0, about to be evaluated."""
        zeros = np.zeros((self.k, self.d1))
        return NewtonState(
            W=np.zeros((self.d1, self.k), dtype), columns=zeros, g=zeros,
            cg=ConjugateGradients(zeros, zeros, zeros), factors=self._no_factors,
            free=np.zeros(self.k, np.int64),
        )  # fmt: skip

    def warm_start(self, state: NewtonState, seen: Evaluation) -> None:
        """Begin at the W of fixed multipliers, of which ``seen`` has the sums."""
        state.columns, state.penalty = self._centred(seen.H), rules.WARM_PENALTY
        state.scale_fixed, state.dual_fixed = rules.best_multiple(
            float(seen.sums[1]), float(np.vdot(state.columns, state.columns))
        )

    def request(self, state: NewtonState) -> Request:
        """What the rows are to find out next."""
        columns = state.cg.direction if state.phase == PRODUCT else state.point
        return Request(
            state.phase, columns, state.penalty, state.moves, state.stride, state.free,
            self._is_shared(state),
        )  # fmt: skip

    def advance(
        self, state: NewtonState, answer: Any, each: Callable[..., Iterable[Any]] = map
    ) -> None:
        """The state after an answer; ``each`` maps over blocks of gathered rows."""
        state.stepped = False
        if state.phase == EVALUATE:
            self._after_evaluation(state, answer)
        elif state.phase == SLOPE:
            self._after_slope(state, float(np.vdot(state.point, state.cg.P)) + answer)
        elif state.phase == GATHER:
            self._after_gather(state, answer, each)
        elif state.phase == SAMPLE:
            self._precondition(state, answer.grams())
            self._begin_cg(state)
        else:
            self._after_product(state, answer)

    def exact_columns(self, state: NewtonState) -> Array:
        """The best W by classes in float64: the nearest that the primal allows."""
        columns = state.W.T.astype(np.float64)
        must_centre = FORMULATIONS[self.formulation].columns_sum_to_zero
        return self._centred(columns) if must_centre else columns

    def certified(self, state: NewtonState, seen: Evaluation) -> None:
        """Replace the objectives of the best W and of the better multipliers by exact ones."""
        W, H = self.exact_columns(state), self._centred(seen.H)
        state.best_primal = 0.5 * float(np.vdot(W, W)) + float(seen.sums[0])
        state.dual = float(seen.sums[1]) - 0.5 * float(np.vdot(H, H))

    # -- steps -------------------------------------------------------------------------------------

    def _after_evaluation(self, state: NewtonState, seen: Evaluation) -> None:
        point, H = state.point, self._centred(seen.H)
        g = point - H
        primal = 0.5 * float(np.vdot(point, point)) + float(seen.sums[0])
        if state.moves:
            state.dual_fixed, state.scale_fixed = state.dual_found, state.scale_found
        state.scale_found, state.dual_found = rules.best_multiple(
            float(seen.sums[1]), float(np.vdot(H, H))
        )
        state.dual = max(state.dual_found, state.dual_fixed)
        if primal < state.best_primal:
            state.best_primal = primal
            state.W = np.ascontiguousarray(point.T, state.W.dtype)
        state.violation, state.moves = seen.violation, False
        state.work += seen.work
        if state.tries:
            length, slope = state.length, float(np.vdot(g, state.cg.P))
            if not (self.place.keeps_scores or length.is_enough(slope)):
                state.length = length.after(slope)
                return
            state.tries, state.stepped = False, True
            state.samples = state.samples and not rules.sample_misled(state.stride, length.t)
        state.columns, state.g = point, g
        state.free, state.active = seen.free, seen.active
        if state.steps and rules.multipliers_move(primal, state.dual_found, g, state.steps):
            self._move_multipliers(state)
        else:
            self._begin_direction(state)

    def _after_slope(self, state: NewtonState, slope: float) -> None:
        """Evaluate W at a length that is long enough."""
        if not state.length.is_enough(slope):
            state.length = state.length.after(slope)
            if not state.length.is_last:
                return
        state.phase = EVALUATE

    def _move_multipliers(self, state: NewtonState) -> None:
        """Fix the multipliers found in the next pass, with a penalty that suits the steps."""
        state.penalty = rules.next_penalty(state.penalty, state.steps - state.easy)
        state.steps, state.easy, state.norm_before = 0, 0, 0.0
        state.phase, state.moves = EVALUATE, True

    def _begin_step(self, state: NewtonState) -> None:
        """Try the whole direction, or move on where nothing but rounding is left."""
        first = float(np.vdot(state.g, state.cg.P))
        state.steps += 1
        if first >= 0:
            state.stepped = True
            self._move_multipliers(state)
            return
        state.phase, state.tries = SLOPE if self.place.keeps_scores else EVALUATE, True
        state.length = Length(first, self.place.slope_left)

    # -- directions --------------------------------------------------------------------------------

    def _begin_direction(self, state: NewtonState) -> None:
        left = rules.gradient_left(state.g, state.norm_before)
        state.easy += left <= rules.EASY
        state.norm_before = float(np.linalg.norm(state.g))
        state.tolerance = rules.cg_tolerance(left)
        # Far from the solution a part of the rows shows the curvature well enough.
        state.stride = 1 if not state.samples else rules.curved_stride(
            state.gap, state.best_primal, free=int(state.free.sum()), active=state.active,
            wanted=self.place.curved_per_weight * self.k * self.d1,
        )  # fmt: skip
        row_bytes = self.d1 * state.W.itemsize
        if state.active // state.stride * row_bytes <= self.place.gathered_bytes:
            state.phase = GATHER
        elif self._is_worn(state):
            state.phase = SAMPLE
        else:
            self._begin_cg(state)

    def _after_gather(
        self, state: NewtonState, rows: CurvedRows, each: Callable[..., Iterable[Any]]
    ) -> None:
        """The whole direction from the active rows at hand."""
        loss = LOSSES[self.formulation](self.k)
        if self._is_worn(state):
            free, shared = int(state.free.sum()), self._is_shared(state)
            state.factors = self._no_factors  # let go of the old ones first
            self._precondition(state, curvature_blocks(loss, rows, free=free, shared=shared))
        self._begin_cg(state)
        while state.phase == PRODUCT:
            self._after_product(state, curvature(loss, rows, state.cg.direction, each))

    def _precondition(self, state: NewtonState, grams: Iterable[Array]) -> None:
        penalty = state.penalty * state.stride
        made = Preconditioner.of_grams(grams, penalty, centred=self._is_centred)
        state.factors, state.cg_work = made.factors, 0.0

    def _begin_cg(self, state: NewtonState) -> None:
        state.phase = PRODUCT
        self._go_on(state, ConjugateGradients.begin(state.g, self._solver(state)))

    def _after_product(self, state: NewtonState, curved: Array) -> None:
        curving = state.penalty * state.stride * self._centred(curved)
        self._go_on(state, state.cg.after(state.cg.direction + curving, self._solver(state)))

    def _go_on(self, state: NewtonState, cg: ConjugateGradients) -> None:
        state.cg = cg
        if cg.is_done(state.tolerance):
            free = int(state.free.sum()) / state.stride
            each = 2 * free * self.d1 + len(state.factors) * self.d1**2 / BLAS_RATE
            state.work += cg.products * free
            state.cg_work += cg.products * each
            self._begin_step(state)

    def _is_worn(self, state: NewtonState) -> bool:
        """Whether CG has spent as much as a new preconditioner costs; an old one stays good."""
        free, blocks = int(state.free.sum()), 1 if self._is_shared(state) else self.k
        sampled = min(free, blocks * ROWS_PER_FEATURE * self.d1)
        cost = (sampled * self.d1**2 / 2 + blocks * self.d1**3) / BLAS_RATE
        return state.factors.size == 0 or state.cg_work > cost

    def _is_shared(self, state: NewtonState) -> bool:
        """Whether one preconditioner serves all classes: at first, and where k take much room."""
        size = self.k * self.d1
        is_large = size > self.n or size * self.d1 > self.place.most_factors
        return state.factors.size == 0 or is_large

    def _solver(self, state: NewtonState) -> Callable[[Array], Array]:
        return Preconditioner(state.factors, centred=self._is_centred).solve

    @property
    def _no_factors(self) -> Array:
        return np.zeros((0, self.d1, self.d1))

    @property
    def _is_centred(self) -> bool:
        return not FORMULATIONS[self.formulation].classes_are_independent

    def _centred(self, H: Array) -> Array:
        """Columns (k, d + 1) of W without their mean, which is zero in all but one-vs-rest."""
        return H - H.mean(axis=0) if self._is_centred else H
