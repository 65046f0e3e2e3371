"""Who decides in a fit by splitting on Dask: what the next pass over the rows is to find out.

Newton's method, its linear system and its line search are loops whose length nobody knows when a
graph is built. So a graph is a row of passes that are all alike, and the pilot, a small value that
travels from pass to pass, says what each is for:

    look     the prox of every row at W + t P: objectives, gradient, slope along P
    sample   some active rows, to make a preconditioner from
    product  curvature along a direction: one step of conjugate gradients
    gather   all active rows, if they are few: the pilot then works out a direction by itself

    look ─► multipliers move? ─► look      steps were long enough: a new augmented Lagrangian
         ├► gather ──────────────────────────────────────────┬─► look at W + P, then at
         └► sample, if CG got slow ─► product ─► ... product ┘   other lengths along P
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import astuple, dataclass, fields
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dask_mcsvm.solvers._blas import one_blas_thread
from dask_mcsvm.solvers._decisions import (
    CG_TOLERANCE,
    CURVED_ON_DASK,
    EASY,
    FIRST_RHO,
    SLOPE_LEFT_ON_DASK,
    Length,
    best_multiple,
    centred,
    cg_tolerance,
    curved_stride,
    gradient_left,
    multipliers_move,
    next_rho,
    sample_misled,
)
from dask_mcsvm.solvers._newton import (
    BLAS_RATE,
    CG_STEPS,
    ROWS_PER_FEATURE,
    CurvedRows,
    Preconditioner,
    conjugate_gradients,
    curvature_blocks,
    find_active,
)
from dask_mcsvm.solvers._products import curvature
from dask_mcsvm.solvers._steps import LOSSES
from dask_mcsvm.solvers.portion import Look, Sample, sample_grams

Array = npt.NDArray[Any]

LOOK, SAMPLE, PRODUCT, GATHER = range(4)
#: So many bytes of active rows go to the pilot; to send them takes as long as a few passes.
GATHERED_BYTES = 2**24
#: Numbers that the classes' own blocks of a preconditioner may take (64 MiB); above, all classes
#: share one.
MOST_FACTORS = 2**23


class Request(NamedTuple):
    """What all portions are asked in a pass."""

    phase: int
    columns: Array  # (k, d + 1) the point to look at, or the direction of a product
    rho: float
    moves: bool  # the multipliers become those last found, before the look
    stride: int
    free: Array  # (k,)
    shared: bool


@dataclass
class Pilot:
    """W, where Newton's method stands, and what is known; a block of state.

    A task works on a copy and gives its fields new values; arrays are never written to.
    """

    W: Array  # (d + 1, k) of the rows' type: the best seen, as it will be handed out
    columns: Array  # (k, d + 1) the present W
    g: Array  # gradient there
    P: Array  # the direction, or as much as CG has of it
    r: Array  # residual of CG
    search: Array  # direction of CG
    factors: Array  # (blocks, d + 1, d + 1), or none yet
    free: Array  # (k,) rows in which a class is free
    length: Array  # a `Length`, spelled out
    phase: int = LOOK
    moves: bool = False
    tries: bool = False  # the look is at columns + t P
    rho: float = FIRST_RHO
    steps: int = 0  # since the multipliers moved
    easy: int = 0  # those of them that left little of the gradient
    norm_before: float = 0.0  # of the gradient before the last step
    tolerance: float = CG_TOLERANCE
    samples: bool = True  # a part of the rows has not misled yet
    stride: int = 1
    products: int = 0
    rz: float = 0.0
    rz_first: float = 0.0
    cg_work: float = 0.0
    best_primal: float = np.inf
    primal: float = np.inf
    dual: float = 0.0
    dual_here: float = 0.0
    scale_here: float = 1.0
    dual_held: float = 0.0
    scale_held: float = 1.0
    violation: float = 0.0
    active: int = 0
    dual_before: float = 0.0  # at the beginning of the epoch
    work: float = 0.0  # class scores of the epoch

    def arrays(self) -> dict[str, Array]:
        """Every field by name."""
        return {field.name: np.asarray(getattr(self, field.name)) for field in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> Pilot:
        """The pilot that `arrays` came from."""
        values: dict[str, Any] = {n: x if x.ndim else x.item() for n, x in arrays.items()}
        return cls(**values)

    @property
    def point(self) -> Array:
        """The W that the next look is at."""
        return self.columns + Length(*self.length).t * self.P if self.tries else self.columns

    @property
    def held_is_better(self) -> bool:
        """Whether the dual belongs to what is held, not to what the last look found."""
        return self.dual_held >= self.dual_here


@dataclass(frozen=True)
class Course:
    """What does not change in a fit."""

    formulation: str
    n: int
    k: int
    d1: int
    tau: float
    square: float  # mean of ‖x_i‖² + tau²

    # -- what the next pass is asked ---------------------------------------------------------------

    def request(self, pilot: Pilot) -> Request:
        """What the pilot wants to know."""
        columns = pilot.search if pilot.phase == PRODUCT else pilot.point
        return Request(
            pilot.phase, columns, pilot.rho, pilot.moves, pilot.stride, pilot.free,
            self._shared(pilot),
        )  # fmt: skip

    def _shared(self, pilot: Pilot) -> bool:
        """Whether one preconditioner serves all classes: at first, and where k take much room."""
        size = self.k * self.d1
        return pilot.factors.size == 0 or size > self.n or size * self.d1 > MOST_FACTORS

    # -- what follows from the answer --------------------------------------------------------------

    def steer(self, before: Pilot, answer: Any, *, first: bool) -> Pilot:
        """The pilot after a pass; `first` of an epoch, whose tally begins anew."""
        pilot = copy.copy(before)
        if first:
            pilot.dual_before, pilot.work = pilot.dual, 0.0
        with one_blas_thread():
            if pilot.phase == LOOK:
                self._after_look(pilot, answer)
            elif pilot.phase == SAMPLE:
                self._after_sample(pilot, answer)
            elif pilot.phase == GATHER:
                self._after_gather(pilot, answer)
            else:
                self._after_product(pilot, answer)
        return pilot

    def _after_look(self, pilot: Pilot, seen: Look) -> None:
        point = pilot.point
        H = centred(seen.H, self.formulation)
        g = point - H
        primal = 0.5 * float(np.vdot(point, point)) + float(seen.sums[0])
        pilot.scale_here, pilot.dual_here = best_multiple(float(seen.sums[1]), float(np.vdot(H, H)))
        pilot.dual = max(pilot.dual_here, pilot.dual_held)
        if primal < pilot.best_primal:
            pilot.best_primal = primal
            pilot.W = np.ascontiguousarray(point.T, pilot.W.dtype)
        pilot.violation, pilot.work = seen.violation, pilot.work + self.n * self.k
        pilot.moves = False
        if pilot.tries:
            length, slope = Length(*pilot.length), float(np.vdot(g, pilot.P))
            if not length.is_enough(slope):
                pilot.length = np.array(astuple(length.after(slope)))
                return
            pilot.tries = False
            pilot.samples = pilot.samples and not sample_misled(pilot.stride, length.t)
        pilot.columns, pilot.g, pilot.primal = point, g, primal
        pilot.free, pilot.active = seen.free, seen.active
        if pilot.steps and multipliers_move(primal, pilot.dual_here, g, pilot.steps):
            self._move(pilot)
        else:
            self._turn(pilot)

    def _move(self, pilot: Pilot) -> None:
        """Take over the multipliers found, and a penalty that suits the steps it took."""
        pilot.dual_held, pilot.scale_held = pilot.dual_here, pilot.scale_here
        pilot.rho = next_rho(pilot.rho, pilot.steps - pilot.easy)
        pilot.steps, pilot.easy, pilot.norm_before = 0, 0, 0.0
        pilot.phase, pilot.moves = LOOK, True

    def _turn(self, pilot: Pilot) -> None:
        """Begin to work out a new direction."""
        left = gradient_left(pilot.g, pilot.norm_before)
        pilot.easy += left <= EASY
        pilot.norm_before, pilot.tolerance = float(np.linalg.norm(pilot.g)), cg_tolerance(left)
        pilot.stride = 1 if not pilot.samples else curved_stride(
            pilot.best_primal - pilot.dual, pilot.best_primal, free=int(pilot.free.sum()),
            active=pilot.active, wanted=CURVED_ON_DASK * self.k * self.d1,
        )  # fmt: skip
        row_bytes = self.d1 * pilot.W.itemsize
        if pilot.active // pilot.stride * row_bytes <= GATHERED_BYTES:
            pilot.phase = GATHER
        elif self._wears(pilot):
            pilot.phase = SAMPLE
        else:
            self._begin_cg(pilot)

    def _wears(self, pilot: Pilot) -> bool:
        """Whether CG has spent as much as a new preconditioner costs; an old one stays good."""
        free, blocks = int(pilot.free.sum()), 1 if self._shared(pilot) else self.k
        sampled = min(free, blocks * ROWS_PER_FEATURE * self.d1)
        cost = (sampled * self.d1**2 / 2 + blocks * self.d1**3) / BLAS_RATE
        return pilot.factors.size == 0 or pilot.cg_work > cost

    def _after_gather(self, pilot: Pilot, rows: CurvedRows) -> None:
        """The direction from the active rows themselves."""
        active, loss = np.arange(rows.y.size), LOSSES[self.formulation](self.k)
        rho = pilot.rho * pilot.stride
        if self._wears(pilot):
            free = find_active(loss, rows.b, rows.y, 0, np.empty_like(active))[1]
            grams = curvature_blocks(loss, rows, active, free=free, shared=self._shared(pilot))
            pilot.factors = Preconditioner.of_grams(grams, rho, centred=self._is_centred).factors
            pilot.cg_work = 0.0

        def product(P: Array) -> Array:
            curved = centred(curvature(loss, rows, active, P), self.formulation)
            return np.asarray(P + rho * curved)

        solve = partial(self._solve, pilot)
        pilot.P, products = conjugate_gradients(product, solve, pilot.g, pilot.tolerance)
        self._count(pilot, products)
        self._end_cg(pilot)

    def _count(self, pilot: Pilot, products: int) -> None:
        """Class scores, and what CG has spent since its preconditioner was made."""
        free = int(pilot.free.sum()) / pilot.stride
        pilot.work += products * free
        each = 2 * free * self.d1 + len(pilot.factors) * self.d1**2 / BLAS_RATE
        pilot.cg_work += products * each

    def _after_sample(self, pilot: Pilot, found: Sample) -> None:
        pilot.factors = Preconditioner.of_grams(
            sample_grams(found), pilot.rho, centred=self._is_centred
        ).factors
        pilot.cg_work = 0.0
        self._begin_cg(pilot)

    def _begin_cg(self, pilot: Pilot) -> None:
        pilot.P, pilot.r = np.zeros_like(pilot.g), -pilot.g
        pilot.search = self._solve(pilot, pilot.r)
        pilot.rz = pilot.rz_first = float(np.vdot(pilot.r, pilot.search))
        pilot.products = 0
        pilot.phase = PRODUCT
        if not pilot.rz > 0:
            self._end_cg(pilot)

    def _after_product(self, pilot: Pilot, curved: Array) -> None:
        """One step of conjugate gradients (see `conjugate_gradients` of solvers)."""
        Hs = pilot.search + pilot.rho * pilot.stride * centred(curved, self.formulation)
        pilot.products += 1
        self._count(pilot, 1)
        along = float(np.vdot(pilot.search, Hs))
        if not along > 0:  # rounding has the upper hand
            self._end_cg(pilot)
            return
        pilot.P = pilot.P + (pilot.rz / along) * pilot.search
        pilot.r = pilot.r - (pilot.rz / along) * Hs
        z = self._solve(pilot, pilot.r)
        rz = float(np.vdot(pilot.r, z))
        pilot.search, pilot.rz = z + (rz / pilot.rz) * pilot.search, rz
        if pilot.products >= CG_STEPS or not rz > pilot.tolerance**2 * pilot.rz_first:
            self._end_cg(pilot)

    def _end_cg(self, pilot: Pilot) -> None:
        """Look at the end of the direction, or move on where nothing but rounding is left."""
        first = float(np.vdot(pilot.g, pilot.P))
        pilot.steps += 1
        if first >= 0:
            self._move(pilot)
            return
        pilot.phase, pilot.tries = LOOK, True
        pilot.length = np.array(astuple(Length(first, left=SLOPE_LEFT_ON_DASK)))

    def _solve(self, pilot: Pilot, R: Array) -> Array:
        return Preconditioner(pilot.factors, centred=self._is_centred).solve(R)

    @property
    def _is_centred(self) -> bool:
        return self.formulation != "one_vs_rest"
