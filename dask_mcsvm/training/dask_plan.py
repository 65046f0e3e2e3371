"""The plan of a fit on Dask: a pure function of the data's shape and the parameters.

The number of workers is not among them: it changes how fast a plan runs, not what it computes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from dask_mcsvm.data.row_source import RowScale
from dask_mcsvm.formulations import FORMULATIONS
from dask_mcsvm.solvers.groups.schedule import (
    balanced_groups,
    default_groups,
    even_groups,
    ww_costs,
)
from dask_mcsvm.solvers.sdm.intercept import stiffness, visits_between_moves

from .plan import (
    SPLITTING_FEATURES,
    refuse_many_features,
    splitting_pays,
)
from .table import BY_GROUPS, ON_DASK, solver_at

#: Multiply-adds that a task should have: Dask spends about 2 ms on a task and 20 on a barrier ...
TASK_WORK = 4e7
#: ... of which the splitting solver has five in a row for every pass: 2,000,000 x 256 on two
#: workers took 51 s in 16 blocks and 42 in 8 ...
SPLIT_TASK_WORK = 5e8
#: ... and so many more for each weight. A step of one of several lanes saves the weights of its
#: features and lists what it changed, and lanes take more epochs: 6,500,000 rows of file names, 58
#: classes and 262,144 features, take each of two lanes 3.0 s an epoch in 20 steps, for 8 epochs,
#: and one lane of all rows 3.9 s for 6.
WEIGHT_WORK = 40
#: Slices per lane, if there are several: with fewer, chunks solved side by side undo each other's
#: work (to a gap of 1e-2, two lanes of 50,000 generated rows: Crammer-Singer 9, Weston-Watkins 12
#: epochs with 20 slices, 16 and 20 with 10, 25 and more with 5; one lane takes 7 and 8).
SLICES_PER_LANE = 10
MAX_LANES = 64
#: An epoch of rounds is cut into so many slices, if that leaves every visit of two groups so many
#: multiply-adds, and so many more for each weight of the two, which a visit copies. In one slice
#: where four were cut: news20_bydate 2.2 instead of 4.6 s inside tasks, onet_titles 19 instead of
#: 73, to the same gap.
ROUND_SLICES, VISIT_WORK, VISIT_WEIGHT_WORK = 4, 5e6, 2
#: A step of `exchange` has so many rows for each class: a visit goes through those of its classes
#: that moved before it. Fewer would be steps of barriers, and more hold rows whose rivals were
#: named long ago.
STEP_ROWS, STEP_LIMITS = 4, (1024, 32768)
#: Solvers whose epochs are rows of steps: small chunks of rows are joined for them.
STEPWISE = ("shards", "exchange")
#: Rows that take no more are joined to one block per lane, whatever their chunks were: a slice is
#: then a sample of all rows of its lane. Rows dealt at random to one block for each step, which
#: would copy fewer variables, have all their visits of an epoch in a row: 100,000 rows of file
#: names to a gap of 1e-2 in two lanes of 20 steps take 12 epochs joined and 18 in four blocks a
#: lane; in twenty the gap is 4.7e-2 after 15. One lane takes 9.
JOINED_BYTES = 2**30
#: Slices, at least, of chunks that are not joined: rows visited long before others look at weights
#: that have forgotten them (8 chunks of the rows above, one lane: 8 slices are far from the gap
#: after 25 epochs, 24 take 25, 40 take 16; two lanes take 36 with 12 slices and 10 with 40).
SLICES_OF_CHUNKS = 40
#: Passes over the rows in one graph of the splitting solver: a graph costs a round trip to the
#: client, and those after the last look that was needed are for nothing.
PASSES = 8
#: W as one block while so many bytes of it fit a worker three times over; and in the client's
#: memory, unless memory_limit says how much that may hold.
WHOLE_MODEL = 2**30
#: Of W on a worker that has a lane of it: what an epoch began with, and what visits change.
COPIES = 2


@dataclass(frozen=True)
class DaskPlan:
    """What a fit on Dask will do."""

    solver: str
    reason: str
    formulation: str
    n: int
    d: int
    k: int
    nnz: int
    dtype: str
    chunks: int
    blocks: int
    lanes: int
    slices: int
    passes: int
    groups: tuple[tuple[int, ...], ...]
    rho: float
    square: float  # mean of ‖x_i‖² + tau², by C_i
    save_every: int
    #: The solver that goes on where the first one turns out to be slow.
    then: str | None = None
    #: What was asked for and decides nothing by itself, and which settings `dask.config` gave.
    scratch: str | None = None
    memory_limit: int | None = None
    configured: tuple[str, ...] = ()

    @property
    def model_bytes(self) -> int:
        return (self.d + 1) * self.k * np.dtype(self.dtype).itemsize

    def to_json(self) -> dict[str, Any]:
        """For a checkpoint; equal plans are equal there."""
        return {name: value for name, value in asdict(self).items() if name != "reason"}

    def __repr__(self) -> str:
        how = f"{len(self.groups)} groups of classes, {self.slices} slices an epoch"
        if self.solver == "shards":
            side = " one after another" if self.lanes == 1 else f", {self.lanes} side by side"
            how = f"{self.blocks:,} blocks of rows{side}, {self.slices} steps an epoch or more"
            if self.blocks == 1:
                how = "1 block of rows on one worker at a time, an epoch is one task"
        elif self.solver == "splitting":
            how = f"{self.lanes} blocks of rows, {self.passes} passes a graph"
        elif self.solver == "exchange":
            how = f"{len(self.groups)} groups of classes, {self.slices} steps an epoch or more"
        then = f"; {self.then} goes on if that is slow" if self.then else ""
        limit = "" if self.memory_limit is None else f", limit {self.memory_limit / 2**20:,.1f} MiB"
        more = [f"scratch      {self.scratch}"] if self.scratch else []
        if self.configured:
            names = ", ".join(f"mcsvm.{name.replace('_', '-')}" for name in self.configured)
            more.append(f"dask.config  {names}")
        return "\n".join(
            [
                f"solver       {self.solver}: {self.reason}{then}",
                f"formulation  {self.formulation}",
                f"data         {self.n:,} x {self.d:,}, {self.nnz:,} nonzeros, {self.k:,} classes, "
                f"{self.dtype}, {self.chunks:,} row chunks",
                f"schedule     {how}, saved every {self.save_every} epochs",
                f"memory       W {self.model_bytes / 2**20:,.1f} MiB{limit}",
                f"one epoch    {(self.nnz + self.n) * self.k / 1e6:,.0f} million multiply-adds",
                *more,
            ]
        )


def make_dask_plan(
    *,
    n: int,
    d: int,
    nnz: int,
    counts: np.ndarray,
    chunks: int,
    mean_square: float,
    cost_square: float,
    dtype: np.dtype[Any],
    formulation: str,
    tau: float,
    solver: str,
    options: Mapping[str, Any] | None,
    memory_limit: int | None = None,
    scale: RowScale | None = None,
    configured: Mapping[str, Any] | None = None,
    scratch: str | None = None,
) -> DaskPlan:
    """Decide how to solve a problem of this shape; ``scale`` of dense rows lets `auto` choose.

    ``configured`` options take the place of those that were not given, where the solver has them.

    ``mean_square`` and ``cost_square`` are means of ‖x_i‖²: of all rows alike, and by their C_i.
    """
    k = counts.size
    why = splitting_pays(n, d, k, scale) if solver == "auto" and not options else None
    room = min(WHOLE_MODEL, memory_limit or WHOLE_MODEL)
    chosen, reason = choose_solver(solver, formulation, (d + 1) * k * dtype.itemsize, room)
    if why is not None:
        chosen, reason = "splitting", why
    # Only dense rows have a scale. Options are those of shards: who gives one wants it.
    is_free = solver == "auto" and not options and scale is not None
    has_second = is_free and chosen == "shards" and d <= SPLITTING_FEATURES
    row = solver_at(chosen, ON_DASK, formulation)
    configured = {
        name: value for name, value in (configured or {}).items()
        if name in row.options or name in ("scratch", "memory_limit")
    }  # fmt: skip
    wanted = {name: value for name, value in configured.items() if name in row.options}
    chosen_options = row.chosen({**wanted, **(options or {})})
    given = {name: value for name, value in chosen_options.items() if value is not None}
    if chosen == "splitting":
        refuse_many_features(d, instead="shards")
        lanes = given.get("lanes", split_lanes((nnz + n) * k))
    else:
        lanes = given.get("lanes", default_lanes((nnz + n) * k, (d + 1) * k))
    row_bytes = nnz * (dtype.itemsize + np.dtype(np.int32).itemsize)
    # The steps of `exchange` follow each other: one line of them, of all rows.
    lanes = 1 if chosen == "exchange" else min(lanes, chunks)
    blocks = lanes if row_bytes <= min(JOINED_BYTES, memory_limit or JOINED_BYTES) else chunks
    groups: tuple[tuple[int, ...], ...] = ()
    if chosen == "exchange":
        groups = even_groups(k, min(k, given.get("groups", default_groups(k, d, room))))
    elif chosen in BY_GROUPS:
        per_row = nnz / max(1, n)
        costs = ww_costs(counts.tolist(), (counts * per_row).astype(np.int64).tolist())
        groups = balanced_groups(costs, min(k, given.get("groups", default_groups(k, d, room))))
    slices = 20  # of averaging
    if chosen == "shards":
        slices = default_slices(lanes, blocks)
    elif chosen == "exchange":
        slices = exchange_steps(n, k)
    elif chosen != "averaging":
        slices = round_slices((nnz + n) * k, len(groups), (d + 1) * k)
    slices = given.get("slices", slices)
    visits = visits_between_moves(n, lanes if chosen == "shards" else 1)
    return DaskPlan(
        solver=chosen, reason=reason, formulation=formulation, n=n, d=d, k=k, nnz=nnz,
        dtype=dtype.name, chunks=chunks, blocks=blocks if chosen in STEPWISE else chunks,
        lanes=lanes, slices=slices, groups=groups, rho=stiffness(visits, mean_square, tau),
        square=cost_square + tau**2,
        passes=given.get("passes", PASSES if chosen == "splitting" else 1),
        save_every=given["save_every"],
        then="splitting" if has_second else None, scratch=scratch, memory_limit=memory_limit,
        configured=tuple(configured),
    )  # fmt: skip


def second_plan(plan: DaskPlan) -> DaskPlan:
    """How the second solver of a plan goes on."""
    assert plan.then == "splitting"
    # Blocks of joined chunks stay what they are: each has its dual variables.
    lanes = min(split_lanes((plan.nnz + plan.n) * plan.k), plan.chunks)
    return replace(
        plan, solver=plan.then, reason=f"{plan.solver} is slow here", then=None,
        blocks=plan.chunks, lanes=plan.blocks if plan.blocks < plan.chunks else lanes,
        passes=PASSES,
    )  # fmt: skip


def choose_solver(solver: str, formulation: str, model_bytes: int, room: int) -> tuple[str, str]:
    """The solver's name and why; W is one block if it takes no more than `room` bytes."""
    able = FORMULATIONS[formulation].group_solver
    if solver == "auto":
        if model_bytes <= room:
            return "shards", "rows in chunks, and W fits a worker"
        return able, f"W of {model_bytes / 2**20:,.0f} MiB is cut by classes"
    return solver, f"asked for by solver={solver!r}"


def refuse_large_model(plan: DaskPlan, worker_bytes: int) -> None:
    """An error where W is larger than what holds all of it, by shards, may hold."""
    if plan.solver != "shards":
        return
    limit, whose = plan.memory_limit, f"memory_limit={plan.memory_limit}"
    if limit is None or plan.model_bytes <= limit:
        limit, whose = worker_bytes // COPIES, f"half of the {worker_bytes:,} bytes of a worker"
    if plan.model_bytes <= limit:
        return
    able = FORMULATIONS[plan.formulation].group_solver
    raise ValueError(
        f"W takes {plan.model_bytes:,} bytes, more than {whose}, and solver='shards' holds all of "
        f"it; type solver={able!r}, which cuts W by classes."
    )


def default_lanes(work: int, n_weights: int) -> int:
    """As many blocks side by side as leave every task a decent size."""
    lanes, least = 1, TASK_WORK + WEIGHT_WORK * n_weights
    while lanes < MAX_LANES and work / (SLICES_PER_LANE * (2 * lanes) ** 2) >= least:
        lanes *= 2
    return lanes


def split_lanes(work: int) -> int:
    """Blocks of rows of the splitting solver, a power of two: workers share them evenly."""
    return 1 << max(0, int(work / SPLIT_TASK_WORK).bit_length() - 1)


def default_slices(lanes: int, blocks: int) -> int:
    """Steps of an epoch by shards."""
    if blocks > lanes:
        return max(SLICES_OF_CHUNKS, SLICES_PER_LANE * lanes)
    return 1 if lanes == 1 else SLICES_PER_LANE * lanes


def exchange_steps(n: int, k: int) -> int:
    """Steps of an epoch of `exchange`."""
    return -(-n // int(np.clip(STEP_ROWS * k, *STEP_LIMITS)))


def round_slices(work: int, groups: int, n_weights: int) -> int:
    """How often rounds are gone through in an epoch: less often where visits would be short."""
    pairs = max(1, groups * (groups - 1) // 2)
    least = VISIT_WORK + VISIT_WEIGHT_WORK * n_weights * min(2, groups) / max(1, groups)
    return int(np.clip(work / (pairs * least), 1, ROUND_SLICES))
