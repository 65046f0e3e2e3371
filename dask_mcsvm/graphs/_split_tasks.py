"""What the tasks of `splitting` compute, and the values that travel between them.

Tasks are pure: kernels write to new arrays, so that a task may run twice, or elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dask_mcsvm.solvers._blas import one_blas_thread
from dask_mcsvm.solvers._decisions import WARM_RHO, best_multiple, centred, penalty_parts
from dask_mcsvm.solvers._newton import CurvedRows
from dask_mcsvm.solvers.duals import Duals
from dask_mcsvm.solvers.portion import (
    Look,
    PortionRows,
    Sample,
    examine,
    gather,
    look,
    product,
    sample,
)
from dask_mcsvm.solvers.shard import Shard

from ._pilot import GATHER, LOOK, SAMPLE, Course, Pilot, Request
from .rows import RowBlock
from .state import Bounds, Tally

Array = npt.NDArray[Any]
#: What a pass brings back: a `Look`, a `Sample`, `CurvedRows` or an array of products.
Answer = Any
#: A block of rows: chunks next to each other.
Pieces = tuple[RowBlock, ...]
#: Chunks below this size are joined. Larger ones are left where they are: a copy of all rows takes
#: as much memory again, and on 2,000,000 x 256 rows as long as three passes.
PIECE_BYTES = 2**24


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


def bundle_rows(chunks: Sequence[RowBlock]) -> Pieces:
    """Several chunks as one block of pieces: only small chunks are copied, to join them."""
    pieces: list[list[RowBlock]] = []
    for chunk in chunks:
        before = sum(map(_rows_bytes, pieces[-1])) if pieces else PIECE_BYTES
        if max(before, _rows_bytes(chunk)) < PIECE_BYTES:
            pieces[-1].append(chunk)
        else:
            pieces.append([chunk])
    return tuple(map(join_rows, pieces))


def join_rows(blocks: Sequence[RowBlock]) -> RowBlock:
    """Several chunks as one."""
    if len(blocks) == 1:
        return blocks[0]
    ids, X, y, C, square = zip(*blocks, strict=True)
    is_sparse = any(map(sp.issparse, X))
    rows = sp.vstack(X, format="csr") if is_sparse else np.concatenate(X)
    return RowBlock(
        np.concatenate(ids), rows, np.concatenate(y), np.concatenate(C), np.concatenate(square)
    )


def _rows_bytes(block: RowBlock) -> int:
    return int(block.X.data.nbytes)


def start_rows(pieces: Pieces, course: Course) -> Visited:
    """A block's multipliers before the first pass: none."""
    zeros = np.zeros((sum(piece.y.size for piece in pieces), course.k), pieces[0].X.dtype)
    return Visited(zeros, zeros)


def start_pilot(course: Course, dtype: np.dtype[Any]) -> Pilot:
    """W = 0, about to be looked at."""
    zeros = np.zeros((course.k, course.d1))
    return Pilot(
        W=np.zeros((course.d1, course.k), dtype), columns=zeros, g=zeros, P=zeros, r=zeros,
        search=zeros, factors=np.zeros((0, course.d1, course.d1)),
        free=np.zeros(course.k, np.int64), length=np.zeros(8),
    )  # fmt: skip


def take_shards(pieces: Pieces, shards: Sequence[Shard], course: Course) -> Visited:
    """A block's multipliers from the dual variables of shards, which hold the same rows."""
    y, C = (np.concatenate([piece[j] for piece in pieces]) for j in (2, 3))
    rows = np.cumsum([shard.preference.size for shard in shards])
    found = [
        Duals(course.formulation, course.k, cost, shard.alpha).multipliers(own)
        for shard, own, cost in zip(
            shards, np.split(y, rows[:-1]), np.split(C, rows[:-1]), strict=True
        )
    ]
    held = np.concatenate(found).astype(pieces[0].X.dtype)
    W = np.zeros((course.d1, course.k), held.dtype)
    with one_blas_thread():
        seen = [examine(part, held[here], 1.0, W) for part, here in places(pieces, course)]
    return Visited(held, held, add_answers(seen))


def warm_pilot(pilot: Pilot, looks: Sequence[Look], course: Course) -> Pilot:
    """The W of the multipliers that all blocks hold, about to be looked at."""
    seen: Look = add_answers(looks)
    columns = centred(seen.H, course.formulation)
    scale, dual = best_multiple(float(seen.sums[1]), float(np.vdot(columns, columns)))
    return replace(
        pilot, columns=columns, scale_held=scale, dual_held=dual, dual=dual, rho=WARM_RHO
    )


def visit(pieces: Pieces, before: Visited, request: Request, course: Course) -> Visited:
    """One pass over a block of rows."""
    held = before.b if request.phase == LOOK and request.moves else before.held
    b = np.empty_like(held) if request.phase == LOOK else before.b
    answers: list[Answer] = []
    found: Answer
    with one_blas_thread():
        for rows, here in places(pieces, course):
            if request.phase == LOOK:
                found = look(rows, held[here], request.columns, request.rho, b[here])
            elif request.phase == SAMPLE:
                found = sample(rows, b[here], request.free, shared=request.shared)
            elif request.phase == GATHER:
                found = gather(rows, b[here], request.stride)
            else:
                found = product(rows, b[here], request.columns, request.stride)
            answers.append(found)
    return Visited(held, b, add_answers(answers))


def places(pieces: Pieces, course: Course) -> Iterator[tuple[PortionRows, slice]]:
    """Each piece, and where its rows are among those of the block."""
    first = 0
    for piece in pieces:
        yield portion_rows(piece, course), slice(first, first + piece.y.size)
        first += piece.y.size


def portion_rows(rows: RowBlock, course: Course) -> PortionRows:
    """A block of rows as the splitting solver takes it."""
    return PortionRows(
        rows.X, rows.y, rows.C, rows.ids, course.tau, course.k, course.formulation,
        penalty_parts(rows.square, course.square),
    )  # fmt: skip


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


def steer(pilot: Pilot, answers: Sequence[Answer], course: Course, *, first: bool) -> Pilot:
    """The pilot after a pass."""
    return course.steer(pilot, add_answers(answers), first=first)


def report_tally(pilot: Pilot, n: int) -> Tally:
    """What the passes of an epoch did with the n rows."""
    gap = pilot.best_primal - pilot.dual
    return Tally(
        pilot.dual - pilot.dual_before, pilot.violation, int(pilot.work), gap, pilot.active / n
    )


def examine_rows(pieces: Pieces, visited: Visited, pilot: Pilot, course: Course) -> Look:
    """A block's part of the certificate: of the best W, and of the better multipliers."""
    b, scale = (
        (visited.held, pilot.scale_held) if pilot.held_is_better else (visited.b, pilot.scale_here)
    )
    with one_blas_thread():
        seen: Look = add_answers(
            [examine(rows, b[here], scale, pilot.W) for rows, here in places(pieces, course)]
        )
    return seen


def close_certificate(pilot: Pilot, looks: Sequence[Look], course: Course) -> Pilot:
    """The pilot with exact objectives of what it holds."""
    seen: Look = add_answers(looks)
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
