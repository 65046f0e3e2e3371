"""What the tasks of `splitting` compute, and the values that travel between them.

Tasks are pure: kernels write to new arrays, so that a task may run twice, or elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dask_mcsvm.solvers._blas import one_blas_thread
from dask_mcsvm.solvers._decisions import centred
from dask_mcsvm.solvers._newton import CurvedRows
from dask_mcsvm.solvers.portion import (
    Look,
    PortionRows,
    Sample,
    examine,
    gather,
    look,
    product,
    sample,
    start_portion,
)

from ._pilot import GATHER, LOOK, SAMPLE, Course, Pilot, Request
from .rows import RowBlock
from .state import Bounds, Tally

Array = npt.NDArray[Any]
#: What a pass brings back: a `Look`, a `Sample`, `CurvedRows` or an array of products.
Answer = Any


class Visited(NamedTuple):
    """Multipliers of a block of rows, and what the pass that left them found.

    The answer goes to the pilot once and is no part of the state.
    """

    held: Array  # (m, k)
    b: Array  # (m, k)
    answer: Answer = None

    def arrays(self) -> dict[str, Array]:
        """The multipliers."""
        return {"held": self.held, "b": self.b}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> Visited:
        """The block that `arrays` came from."""
        return cls(**arrays)


def join_rows(blocks: Sequence[RowBlock]) -> RowBlock:
    """Several chunks as one block."""
    if len(blocks) == 1:
        return blocks[0]
    ids, X, y, C, square = zip(*blocks, strict=True)
    is_sparse = any(map(sp.issparse, X))
    rows = sp.vstack(X, format="csr") if is_sparse else np.concatenate(X)
    return RowBlock(
        np.concatenate(ids), rows, np.concatenate(y), np.concatenate(C), np.concatenate(square)
    )


def start_rows(rows: RowBlock, course: Course) -> Visited:
    """A block's multipliers before the first pass: none."""
    return Visited(*start_portion(portion_rows(rows, course)))


def start_pilot(course: Course, dtype: np.dtype[Any]) -> Pilot:
    """W = 0, about to be looked at."""
    zeros = np.zeros((course.k, course.d1))
    return Pilot(
        W=np.zeros((course.d1, course.k), dtype), columns=zeros, g=zeros, P=zeros, r=zeros,
        search=zeros, factors=np.zeros((0, course.d1, course.d1)),
        free=np.zeros(course.k, np.int64), length=np.zeros(8),
    )  # fmt: skip


def visit(rows: RowBlock, before: Visited, request: Request, course: Course) -> Visited:
    """One pass over a block of rows."""
    here = portion_rows(rows, course)
    with one_blas_thread():
        if request.phase == LOOK:
            held = before.b if request.moves else before.held
            left, seen = look(here, held, request.columns, request.rho)
            return Visited(*left, seen)
        if request.phase == SAMPLE:
            found = sample(here, before.b, request.free, shared=request.shared)
            return before._replace(answer=found)
        if request.phase == GATHER:
            return before._replace(answer=gather(here, before.b, request.stride))
        curved = product(here, before.b, request.columns, request.stride)
        return before._replace(answer=curved)


def portion_rows(rows: RowBlock, course: Course) -> PortionRows:
    """A block of rows as the splitting solver takes it."""
    return PortionRows(rows.X, rows.y, rows.C, rows.ids, course.tau, course.k, course.formulation)


def answer_of(visited: Visited) -> Answer:
    """What a pass found, so that the multipliers need not travel with it."""
    return visited.answer


def multipliers_of(visited: Visited) -> Visited:
    """What a pass left behind, without what it found."""
    return visited._replace(answer=None)


def add_answers(answers: Sequence[Answer]) -> Answer:
    """All of one pass together, in the order given."""
    first = answers[0]
    if isinstance(first, Look):
        return Look(
            sum((a.H for a in answers[1:]), first.H),
            sum((a.sums for a in answers[1:]), first.sums),
            max(a.violation for a in answers),
            sum((a.free for a in answers[1:]), first.free),
            sum(a.active for a in answers),
        )
    if isinstance(first, Sample):
        return Sample(
            np.concatenate([a.X for a in answers]),
            np.concatenate([a.weights for a in answers]),
            sum((a.diagonal for a in answers[1:]), first.diagonal),
        )
    if isinstance(first, CurvedRows):
        X, y, C, b = (np.concatenate([a[j] for a in answers]) for j in range(4))
        return CurvedRows(X, y, C, b, first.tau)
    return sum(answers[1:], first)


def ask(pilot: Pilot, course: Course) -> Request:
    """What the portions need to know of the pilot."""
    return course.request(pilot)


def steer(pilot: Pilot, answer: Answer, course: Course, *, first: bool) -> Pilot:
    """The pilot after a pass."""
    return course.steer(pilot, answer, first=first)


def report_tally(pilot: Pilot, n: int) -> Tally:
    """What the passes of an epoch did with the n rows."""
    gap = pilot.best_primal - pilot.dual
    return Tally(
        pilot.dual - pilot.dual_before, pilot.violation, int(pilot.work), gap, pilot.active / n
    )


def examine_rows(rows: RowBlock, visited: Visited, pilot: Pilot, course: Course) -> Look:
    """A block's part of the certificate: of the best W, and of the better multipliers."""
    b, scale = (
        (visited.held, pilot.scale_held) if pilot.held_is_better else (visited.b, pilot.scale_here)
    )
    with one_blas_thread():
        return examine(portion_rows(rows, course), b, scale, pilot.W)


def close_certificate(pilot: Pilot, seen: Look, course: Course) -> Pilot:
    """The pilot with exact objectives of what it holds."""
    W = pilot.W.astype(np.float64)
    H = centred(seen.H, course.formulation)
    return replace(
        pilot,
        best_primal=0.5 * float(np.vdot(W, W)) + float(seen.sums[0]),
        dual=float(seen.sums[1]) - 0.5 * float(np.vdot(H, H)),
    )


def report_bounds(pilot: Pilot) -> Bounds:
    """Primal and dual of a certified pilot."""
    return Bounds(pilot.best_primal, pilot.dual)
