"""Score splitting by chunks of rows: Newton's method whose path no partition changes.

An epoch is a row of passes over all rows ([SPLIT] of docs/math.md). In a pass every block of rows
answers a request of the Newton state machine (solvers/splitting/machine.py), a tree adds up the
answers if they are many, and the state moves on: its direction, its step and its penalty follow
from sums over all rows.

    rows 0 ────┐                                                   ┌─ cs-pass (block 0)
    block 0 ───┼─ cs-pass ─ cs-answer ─┐                           │
    cs-request ┤                       ├─ cs-advance ─ cs-request ─┤        (next pass)
    block 1 ───┼─ cs-pass ─ cs-answer ─┘                           │
    rows 1 ────┘                                                   └─ cs-pass (block 1)

Multipliers stay with their rows; what travels is one (k, d + 1) array each way.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
from dask.task_spec import List, Task, TaskRef

from dask_mcsvm.data.rows import Graph, Key, Rows
from dask_mcsvm.formulations import FORMULATIONS, Bounds, Tally
from dask_mcsvm.solvers.duals import Duals
from dask_mcsvm.solvers.kernels.margins import for_kernels
from dask_mcsvm.solvers.row_block import RowBlock
from dask_mcsvm.solvers.sdm.shard import Shard
from dask_mcsvm.solvers.splitting.blas import one_blas_thread
from dask_mcsvm.solvers.splitting.machine import (
    EVALUATE,
    PRODUCT,
    SAMPLE,
    Newton,
    NewtonState,
    Request,
)
from dask_mcsvm.solvers.splitting.newton import curvature
from dask_mcsvm.solvers.splitting.rows import (
    BlockRows,
    Evaluation,
    add_answers,
    certify,
    evaluate,
    find_curved,
    gather,
    multipliers,
    sample,
    weigh,
)
from dask_mcsvm.solvers.splitting.rules import ON_DASK, Place, penalty_parts
from dask_mcsvm.solvers.standardized import Standardized

from .regroup import join_blocks
from .state import Block, Stage, State

Array = npt.NDArray[Any]
#: What a pass brings back: an `Evaluation`, a `Sample`, `CurvedRows` or an array of products.
Answer = Any
#: A block of rows: chunks next to each other.
Chunks = tuple[RowBlock, ...]

#: Answers that one task of the tree adds.
FAN_IN = 32
#: Chunks below this size are joined. Larger ones are left where they are: a copy of all rows takes
#: as much memory again, and on 2,000,000 x 256 rows as long as three passes.
JOINED_BYTES = 2**24


class Multipliers(NamedTuple):
    """Multipliers of a block of rows, and the answer of the pass that left them.

    The answer is read once and is no part of the state.
    """

    fixed: Array  # (m, k) of the augmented Lagrangian
    b: Array  # (m, k) last found
    answer: Answer = None

    def arrays(self) -> dict[str, Array]:
        """The multipliers."""
        return {"fixed": self.fixed, "b": self.b}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> Multipliers:
        """The block that `arrays` came from."""
        return cls(**arrays)


@dataclass(frozen=True)
class ChunkedSplitting:
    """Builds the graphs of a fit by splitting; satisfies `Solver` for all four formulations.

    State is ``newton`` (`NewtonState`) and ``rows-p``, the multipliers of block p (`Multipliers`).

    Attributes
    ----------
    rows : Rows
    formulation : str
    blocks : int
        Chunks next to each other make up so many blocks, each a task of a pass.
    passes : int
        Passes over the rows in the graph of an epoch.
    square : float
        Mean of ‖x_i‖² + tau² by C_i; longer rows have a smaller penalty.
    run : str
        Unique id of this fit, part of every task key.
    place : Place
        What a pass costs and a task may receive.
    """

    rows: Rows
    formulation: str
    blocks: int
    passes: int
    square: float
    run: str
    place: Place = ON_DASK

    kinds: ClassVar[Mapping[str, type[Block]]] = {"newton": NewtonState, "rows": Multipliers}

    @property
    def data(self) -> Graph:
        """The rows in blocks; stages refer to them by key."""
        graph = dict(self.rows.graph)
        for key, part in zip(self.held, self.rows.parts(len(self.held)), strict=True):
            chunks = List(*(TaskRef(self.rows.keys[c]) for c in part))
            graph[key] = Task(key, join_small_chunks, chunks)
        return graph

    @cached_property
    def held(self) -> tuple[Key, ...]:
        """Blocks of rows, which every pass reads."""
        count = max(1, min(self.blocks, len(self.rows.keys)))
        return tuple(("split-rows", self.run, p) for p in range(count))

    @property
    def newton(self) -> Newton:
        """What does not change in a fit."""
        rows = self.rows
        return Newton(
            self.formulation, rows.n, rows.n_classes, rows.n_features + 1, rows.tau, self.square,
            self.place,
        )  # fmt: skip

    def start(self) -> Stage:
        """No multipliers, and W = 0."""
        graph: Graph = {}
        state = {"newton": self._key("start-newton")}
        graph[state["newton"]] = Task(state["newton"], self.newton.start, self.rows.dtype)
        for p, block in enumerate(self.held):
            key = state[f"rows-{p}"] = self._key("start", p)
            graph[key] = Task(key, start_rows, TaskRef(block), self.newton)
        return Stage(graph, state, self._report(graph, state, "start-report"))

    def start_from(self, shards: Sequence[Key]) -> Stage:
        """The dual variables of shards, in the order of the rows, and their W.

        There are as many shards as blocks, or as chunks.
        """
        graph: Graph = {}
        state, seen = {"newton": self._key("warm-newton")}, []
        # Shards of whole blocks, or of the chunks that are joined to them.
        is_whole = len(shards) == len(self.held)
        parts = [[p] for p in range(len(shards))] if is_whole else self.rows.parts(len(self.held))
        for p, (block, part) in enumerate(zip(self.held, parts, strict=True)):
            taken, weighed = self._key("take", p), self._key("weigh", p)
            alphas = List(*(TaskRef(shards[c]) for c in part))
            graph[taken] = Task(taken, take_shards, TaskRef(block), alphas, self.newton)
            graph[weighed] = Task(weighed, weigh_rows, TaskRef(block), TaskRef(taken), self.newton)
            state[f"rows-{p}"] = taken
            seen.append(weighed)
        few = List(*map(TaskRef, self._fewer(graph, seen, "weigh-sum")))
        graph[state["newton"]] = Task(
            state["newton"], warm_newton, few, self.newton, self.rows.dtype
        )
        return Stage(graph, state, self._report(graph, state, "start-report"))

    def epoch(self, state: State, epoch: int) -> Stage:
        """Some passes over all rows; what each is for, the state decides on the way."""
        graph: Graph = {}
        now = dict(state)
        for turn in range(self.passes):
            self._pass(graph, now, epoch, turn)
        for p in range(len(self.held)):
            key = self._key(f"multipliers-e{epoch}", p)
            graph[key] = Task(key, multipliers_of, TaskRef(now[f"rows-{p}"]))
            now[f"rows-{p}"] = key
        return Stage(graph, now, self._report(graph, now, f"report-e{epoch}"))

    def certify(self, state: State, epoch: int) -> Stage:
        """Loss at the best W and dual of the better multipliers, in float64."""
        graph: Graph = {}
        now, seen = {}, []
        for p, block in enumerate(self.held):
            before = TaskRef(state[f"rows-{p}"])
            looked, kept = self._key(f"certify-rows-e{epoch}", p), self._key(f"kept-e{epoch}", p)
            graph[looked] = Task(
                looked, certify_rows, TaskRef(block), before, TaskRef(state["newton"]),
                self.newton,
            )  # fmt: skip
            graph[kept] = Task(kept, multipliers_of, before)
            now[f"rows-{p}"] = kept
            seen.append(looked)
        few = self._fewer(graph, seen, f"certify-sum-e{epoch}")
        now["newton"] = self._key(f"certify-e{epoch}")
        graph[now["newton"]] = Task(
            now["newton"], close_certificate, TaskRef(state["newton"]), List(*map(TaskRef, few)),
            self.newton,
        )  # fmt: skip
        report = self._key(f"certify-report-e{epoch}")
        graph[report] = Task(report, report_bounds, TaskRef(now["newton"]))
        return Stage(graph, now, report)

    def weights(self, state: State) -> list[tuple[npt.NDArray[np.intp], str]]:
        """All classes are in one block."""
        del state
        return [(np.arange(self.rows.n_classes), "newton")]

    # -- parts of a graph --------------------------------------------------------------------------

    def _pass(self, graph: Graph, now: dict[str, Key], epoch: int, turn: int) -> None:
        """One request, and the answer of every block."""
        asked = self._key(f"request-e{epoch}-r{turn}")
        graph[asked] = Task(asked, self.newton.request, TaskRef(now["newton"]))
        answers = []
        for p, block in enumerate(self.held):
            seen = self._key(f"pass-e{epoch}-r{turn}", p)
            graph[seen] = Task(
                seen, pass_rows, TaskRef(block), TaskRef(now[f"rows-{p}"]), TaskRef(asked),
                self.newton,
            )  # fmt: skip
            answers.append(self._key(f"answer-e{epoch}-r{turn}", p))
            graph[answers[-1]] = Task(answers[-1], answer_of, TaskRef(seen))
            now[f"rows-{p}"] = seen
        few = self._fewer(graph, answers, f"sum-e{epoch}-r{turn}")
        key = self._key(f"advance-e{epoch}-r{turn}")
        graph[key] = Task(
            key, advance, TaskRef(now["newton"]), List(*map(TaskRef, few)), self.newton,
            first=turn == 0,
        )  # fmt: skip
        now["newton"] = key

    def _fewer(self, graph: Graph, keys: list[Key], name: str) -> list[Key]:
        """At most `FAN_IN` sums, by a tree and in the order of the blocks.

        The reader adds those up: each task between a pass and the next is a round trip.
        """
        level = 0
        while len(keys) > FAN_IN:
            parts = [keys[p : p + FAN_IN] for p in range(0, len(keys), FAN_IN)]
            keys = [self._key(name, level, p) for p in range(len(parts))]
            for key, part in zip(keys, parts, strict=True):
                graph[key] = Task(key, add_answers, List(*map(TaskRef, part)))
            level += 1
        return keys

    def _report(self, graph: Graph, now: State, name: str) -> Key:
        key = self._key(name)
        graph[key] = Task(key, report_tally, TaskRef(now["newton"]), self.rows.n)
        return key

    def _key(self, name: str, *place: Any) -> Key:
        return (f"{FORMULATIONS[self.formulation].short_name}-{name}", self.run, *place)


# -- tasks: pure, so that one may run twice, or elsewhere ------------------------------------------


def join_small_chunks(chunks: Sequence[RowBlock]) -> Chunks:
    """Several chunks as one block of rows: only small chunks are copied, to join them."""
    parts: list[list[RowBlock]] = []
    for chunk in chunks:
        before = sum(map(_rows_bytes, parts[-1])) if parts else JOINED_BYTES
        if max(before, _rows_bytes(chunk)) < JOINED_BYTES:
            parts[-1].append(chunk)
        else:
            parts.append([chunk])
    return tuple(join_blocks(part) if len(part) > 1 else part[0] for part in parts)


def _rows_bytes(block: RowBlock) -> int:
    X = block.X.X if isinstance(block.X, Standardized) else block.X
    return int(X.data.nbytes)


def start_rows(chunks: Chunks, newton: Newton) -> Multipliers:
    """A block's multipliers before the first pass: none."""
    zeros = np.zeros((sum(chunk.y.size for chunk in chunks), newton.k), chunks[0].X.dtype)
    return Multipliers(zeros, zeros)


def take_shards(chunks: Chunks, shards: Sequence[Shard], newton: Newton) -> Multipliers:
    """A block's multipliers from the dual variables of shards, which hold the same rows."""
    y, C = (np.concatenate([chunk[j] for chunk in chunks]) for j in (2, 3))
    cuts = np.cumsum([shard.preference.size for shard in shards])[:-1]
    alpha = np.concatenate(
        [
            Duals(newton.formulation, newton.k, costs, shard.alpha).to_dense(own)
            for shard, own, costs in zip(shards, np.split(y, cuts), np.split(C, cuts), strict=True)
        ]
    )
    b = np.concatenate([multipliers(rows, alpha[here]) for rows, here in row_parts(chunks, newton)])
    return Multipliers(b, b)


def weigh_rows(chunks: Chunks, now: Multipliers, newton: Newton) -> Evaluation:
    """A block's part of the sums that the dual of the multipliers follows from."""
    with one_blas_thread():
        seen: Evaluation = add_answers(
            [weigh(rows, now.fixed[here]) for rows, here in row_parts(chunks, newton)]
        )
    return seen


def warm_newton(seen: Sequence[Evaluation], newton: Newton, dtype: np.dtype[Any]) -> NewtonState:
    """The W of the multipliers that all blocks hold, about to be evaluated."""
    state = newton.start(dtype)
    newton.warm_start(state, add_answers(seen))
    state.dual = state.dual_fixed
    return state


def pass_rows(chunks: Chunks, before: Multipliers, request: Request, newton: Newton) -> Multipliers:
    """One pass over a block of rows."""
    evaluates = request.phase == EVALUATE
    fixed = before.b if evaluates and request.moves else before.fixed
    b = np.empty_like(fixed) if evaluates else before.b
    answers: list[Answer] = []
    with one_blas_thread():
        for rows, here in row_parts(chunks, newton):
            if evaluates:
                found: Answer = evaluate(
                    rows, fixed[here], request.columns, request.penalty, b[here]
                )
            elif request.phase == SAMPLE:
                found = sample(
                    rows, b[here], request.free, stride=request.stride, shared=request.shared
                )
            else:
                some = find_curved(rows, b[here], request.stride)
                is_product = request.phase == PRODUCT
                found = curvature(rows.loss, some, request.columns) if is_product else gather(some)
            answers.append(found)
    return Multipliers(fixed, b, add_answers(answers))


def row_parts(chunks: Chunks, newton: Newton) -> Iterator[tuple[BlockRows, slice]]:
    """The rows of each chunk as the solver takes them, and their places in the block."""
    first = 0
    for ids, X, y, C, square, margins in chunks:
        parts = penalty_parts(square, newton.square)
        rows = BlockRows(
            X, y, C, ids, parts, newton.tau, newton.formulation, newton.k, for_kernels(margins)
        )
        yield rows, slice(first, first + y.size)
        first += y.size


def answer_of(visited: Multipliers) -> Answer:
    """The answer alone, so that the multipliers need not travel with it."""
    return visited.answer


def multipliers_of(visited: Multipliers) -> Multipliers:
    """The multipliers alone."""
    return visited._replace(answer=None)


def advance(
    before: NewtonState, answers: Sequence[Answer], newton: Newton, *, first: bool
) -> NewtonState:
    """The state after a pass, the ``first`` of an epoch or a later one."""
    state = copy.copy(before)
    if first:
        state.begin_epoch()
    with one_blas_thread():
        newton.advance(state, add_answers(answers))
    return state


def report_tally(state: NewtonState, n: int) -> Tally:
    """What the passes of an epoch did with the n rows."""
    gain, active = state.dual - state.dual_before, state.active / n
    return Tally(gain, state.violation, int(state.work), state.gap, active)


def certify_rows(
    chunks: Chunks, now: Multipliers, state: NewtonState, newton: Newton
) -> Evaluation:
    """A block's part of the certificate: of the best W, and of the better multipliers."""
    b, parts = now.fixed if state.fixed_is_better else now.b, row_parts(chunks, newton)
    columns = newton.exact_columns(state)
    with one_blas_thread():
        seen: Evaluation = add_answers(
            [certify(rows, b[here], state.scale, columns) for rows, here in parts]
        )
    return seen


def close_certificate(
    before: NewtonState, seen: Sequence[Evaluation], newton: Newton
) -> NewtonState:
    """The state with exact objectives of its best W and better multipliers."""
    state = copy.copy(before)
    newton.certified(state, add_answers(seen))
    return state


def report_bounds(state: NewtonState) -> Bounds:
    """Primal and dual of a certified state."""
    return Bounds(state.best_primal, state.dual)
