"""A run on Dask: an epoch is one graph, its state stays on the workers or in files."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from dask.delayed import delayed
from dask.local import get_sync
from dask.task_spec import Task, TaskRef

from dask_mcsvm.data.lazy_source import LazySource
from dask_mcsvm.data.rows import Graph, Key, row_blocks
from dask_mcsvm.errors import CheckpointError, ClusterLostError, FitInterrupted, WorkersKilledError
from dask_mcsvm.formulations import FORMULATIONS, Bounds, Standardization, Tally, relative_gap
from dask_mcsvm.formulations.margins import EQUAL, Margins, fingerprint, toy_margins
from dask_mcsvm.graphs.model_files import file_widths, read_weights, write_weights
from dask_mcsvm.graphs.path import can_rescale, load_rescaled
from dask_mcsvm.graphs.splitting import ChunkedSplitting
from dask_mcsvm.graphs.state import Solver, Stage, State, load_state, save_state
from dask_mcsvm.solvers.duals import DENSE_CLASSES, has_lists
from dask_mcsvm.solvers.groups.schedule import even_groups
from dask_mcsvm.storage import Checkpoint, Scratch, absolute_path, remove_parts, restoring
from dask_mcsvm.training.dask_plan import WHOLE_MODEL, DaskPlan, second_plan
from dask_mcsvm.training.loop import COUNTED, Advance, Fit, Loop, OnEpoch, Run
from dask_mcsvm.training.runner import RESIDENT_SHARE, LocalRunner, Runner
from dask_mcsvm.training.table import ON_DASK, solver_at

# Where state is kept, and what of it serves another fit -------------------------------------------


@dataclass(frozen=True)
class Keeping:
    """Where state is written, and whether to go on from what is there.

    ``carry`` is a folder that the fits of a path over C share: each begins with what the one before
    left there.
    """

    checkpoint: str | None
    resume: bool
    scratch: str | None
    memory_limit: int | None = None
    carry: str | None = None

    def place(self, runner: Runner, stack: ExitStack) -> str:
        """The folder that workers write state to."""
        given = self.checkpoint or self.carry
        return given or stack.enter_context(state_folder(self.scratch, runner))


@contextmanager
def state_folder(scratch: str | None, runner: Runner) -> Iterator[str]:
    """A folder for state, and for nothing else, until the block ends."""
    if scratch is None and not runner.is_local:
        raise ValueError(
            "the workers are on other machines, and a fit keeps its state in files; pass "
            'scratch="/a/folder/all/workers/see" (or checkpoint=...).'
        )
    if scratch is not None and not os.path.isdir(scratch):
        raise ValueError(
            f"scratch={scratch!r} is not a folder here; make one that all workers see, or leave it "
            "out."
        )
    with Scratch(scratch) as folder:  # named after this process, the next one removes what it left
        yield f"{folder.path}/state"


def ratio_of_costs(meta: dict[str, Any], problem: DaskProblem, plan: DaskPlan) -> float | None:
    """How many times its C the present one is, if a state differs by nothing else; else None."""
    was, now = dict(meta["identity"]), problem.identity()
    before, after = np.array(was.pop("factors")), np.array(now.pop("factors"))
    if was != now or before.shape != after.shape:
        return None
    if decisive(meta["plan"]) != decisive(plan.to_json()):
        return None
    ratio = float(after[0] / before[0])
    return ratio if np.allclose(before * ratio, after, rtol=1e-12) else None


# The problem, and whether a checkpoint is of it ---------------------------------------------------


@dataclass(frozen=True)
class DaskProblem:
    """What is to be solved: chunks of rows, and what each costs."""

    source: LazySource
    C: float
    formulation: str
    tau: float
    margins: Margins = EQUAL

    @property
    def primal_at_zero(self) -> float:
        """P(0), which the relative gap of Lee-Lin-Wahba is measured by."""
        total = self.C * float(self.source.totals.sum())
        return FORMULATIONS[self.formulation].loss_at_zero(self.source.classes.size) * total

    def relative(self, primal: float, dual: float) -> float:
        """The relative duality gap of this problem's formulation."""
        return float(relative_gap(self.formulation, primal, dual, self.primal_at_zero))

    def identity(self) -> dict[str, Any]:
        """What a checkpoint must have been written for."""
        source = self.source
        return {
            "rows": list(source.sizes),
            "columns": source.n_features,
            "dtype": source.dtype.name,
            "checksums": [fact.checksum for fact in source.facts],
            "formulation": self.formulation,
            "tau": self.tau,
            "factors": (self.C * source.factors).tolist(),
            "margins": fingerprint(self.margins),
            "standardize": None if source.columns is None else source.columns.centred,
        }


def refuse_other(
    meta: dict[str, Any], problem: DaskProblem, plan: DaskPlan, seed: int | None
) -> None:
    """An error if a checkpoint is of other data or other parameters."""
    # Older ones name none.
    was, now = {"margins": "", "standardize": None, **meta["identity"]}, problem.identity()
    for name in ("rows", "columns", "checksums"):
        if was[name] != now[name]:
            raise CheckpointError(
                f"the checkpoint was written for other data ({name} differ); pass the same X, y "
                "and sample_weight, or another checkpoint path."
            )
    for name in ("formulation", "dtype", "tau", "factors"):
        if was[name] != now[name]:
            raise CheckpointError(
                f"the checkpoint was written with another {name} ({was[name]!r:.60}); pass the "
                "same parameters, or another checkpoint path."
            )
    for name, found in (("margins", "other margins"), ("standardize", "another standardize")):
        if was[name] != now[name]:
            raise CheckpointError(
                f"the checkpoint was written with {found}; pass the same parameters, or another "
                "checkpoint path."
            )
    if decisive(meta["plan"]) != decisive(plan.to_json()):
        raise CheckpointError(
            f"the checkpoint was written by another plan (solver {meta['plan']['solver']!r}); pass "
            "the same solver and solver_options, or another checkpoint path."
        )
    if seed is not None and seed != meta["seed"]:
        raise CheckpointError(
            "the checkpoint was written with another random_state; pass the same, or none."
        )


#: Of a plan, what may differ when a fit goes on; what a limit decided is in its groups and blocks.
UNDECIDED = ("scratch", "memory_limit", "configured")


def decisive(plan: dict[str, Any]) -> dict[str, Any]:
    """What of a plan, as it is or out of JSON, changes the steps."""
    groups = [list(group) for group in plan["groups"]]
    # Checkpoints of plans that had one solver do not name a second.
    known = {"then": None, **plan, "groups": groups, "save_every": None}
    return {name: value for name, value in known.items() if name not in UNDECIDED}


# The run ------------------------------------------------------------------------------------------


def train_on_dask(
    problem: DaskProblem,
    plan: DaskPlan,
    runner: Runner,
    keeping: Keeping,
    *,
    tol: float,
    max_epochs: int,
    seed: int,
    seed_is_given: bool,
    on_epoch: OnEpoch | None = None,
) -> Fit:
    """Train until the relative duality gap is at most ``tol``; see `local.train`."""
    model_folder = folder_for(
        plan, scratch=keeping.scratch, checkpoint=keeping.checkpoint, limit=keeping.memory_limit
    )
    with ExitStack() as stack:
        store = stack.enter_context(Checkpoint(keeping.place(runner, stack)))
        run = DaskRun(problem, plan, runner, store, seed)
        run.room = runner.room_for_rows(keeping.memory_limit)
        run.is_kept = bool(keeping.checkpoint or keeping.carry)
        run.model_folder = model_folder
        counted = None
        if keeping.carry is not None:
            run.seed_from_last()
        if keeping.resume and keeping.checkpoint is not None:
            counted = run.resume(seed_is_given)
        loop = Loop(run, problem.relative, tol, max_epochs, on_epoch, counted)
        if keeping.checkpoint is None:
            return loop.fit()
        with _naming(keeping.checkpoint, loop):
            return loop.fit()


@contextmanager
def _naming(checkpoint: str, loop: Loop) -> Iterator[None]:
    """Errors of a fit that can go on say from where."""
    try:
        yield
    except ClusterLostError as error:
        raise ClusterLostError(
            f"{error}; start one and type fit again with checkpoint={checkpoint!r}, resume=True."
        ) from error.__cause__
    except WorkersKilledError as error:
        raise WorkersKilledError(
            f"{error}; with the same chunks the fit goes on from checkpoint={checkpoint!r}, "
            "resume=True."
        ) from error.__cause__
    except KeyboardInterrupt:
        epoch = loop.save_whole()
        if epoch == 0:
            raise
        raise FitInterrupted(
            f"Stopped by Ctrl-C; {checkpoint} holds the fit after {epoch} "
            f"epoch{'s' * (epoch > 1)}: type fit again with resume=True."
        ) from None


class DaskRun(Run):
    """Epochs as graphs."""

    plan: DaskPlan

    def __init__(
        self,
        problem: DaskProblem,
        plan: DaskPlan,
        runner: Runner,
        store: Checkpoint,
        seed: int,
    ) -> None:
        self.problem, self.plan, self.runner, self.store = problem, plan, runner, store
        #: What runs now: the plan, or what its second solver makes of it.
        self.running = plan
        self.seed, self.run_id = seed, uuid.uuid4().hex[:12]
        self.dual, self.scores = 0.0, int(problem.source.counts.sum()) * plan.k
        self.save_every = plan.save_every
        self.state: State = {}
        #: Bytes of rows that may stay in memory between epochs.
        self.room = runner.room_for_rows(None)
        #: C over that of the fit whose state this one begins with.
        self.ratio: float | None = None
        #: Where W goes if it is too large for the client.
        self.model_folder: str | None = None
        #: Tasks that the next graph has to begin with.
        self.pending: Graph = {}

    @property
    def solver(self) -> str:  # type: ignore[override]
        return self.running.solver

    # -- what the loop asks for --------------------------------------------------------------------

    def begin(self) -> None:
        self.graphs = self._prepare(self.running, self.run_id)
        if self.ratio is not None and can_rescale(self.graphs.kinds):
            self.dual = self._seed(self.ratio)
        elif self.state and self.ratio is None:
            self._load(self.state)
        else:
            self.state = {}
            self.dual = self._run(self.graphs.start()).gain
        self.spent = self.runner.spent()

    def advance(self) -> Advance:
        self.began = time.perf_counter()
        stage = self.graphs.epoch(self.state, self.epoch)
        tally: Tally = self._run(stage)
        self.epoch, self.dual = self.epoch + 1, self.dual + tally.gain
        self.tally, self.tasks = tally, len(stage.graph)
        return Advance(tally.work, tally.gap)

    def certify(self) -> tuple[float, float]:
        bounds: Bounds = self._run(self.graphs.certify(self.state, self.epoch))
        self.dual = float(bounds.dual)
        return float(bounds.primal), self.dual

    def facts(self, history: Sequence[dict[str, Any]]) -> dict[str, Any]:
        del history
        now = self.runner.spent()
        seconds, sent = now.since(self.spent)
        self.spent = now
        return {
            "active": self.tally.active,
            "violation": self.tally.violation,
            "tasks": self.tasks,
            "epoch_seconds": time.perf_counter() - self.began,
            **({"task_seconds": seconds, "bytes": sent} if seconds else {}),
        }

    def take_over(self, *, from_duals: bool) -> None:
        running, run_id = second_plan(self.plan), uuid.uuid4().hex[:12]
        self.runner.release(self.graphs.held)
        graphs = self._prepare(running, run_id)
        stage = graphs.start()
        if from_duals:
            assert isinstance(graphs, ChunkedSplitting)
            shards = [self.state[f"shard-{c}"] for c in range(self.plan.blocks)]
            stage = graphs.start_from(shards)
        self.dual = self._run(stage).gain
        # All at once: until there is a state of the second solver, Ctrl-C saves that of the first.
        self.running, self.run_id, self.graphs = running, run_id, graphs

    def model(self) -> dict[str, Any]:
        return {"W": self._collect_weights(), "alpha": None, "dual_density": float("nan")}

    # -- rows and graphs ---------------------------------------------------------------------------

    def _prepare(self, plan: DaskPlan, run_id: str) -> Solver:
        """Have kernels compiled, and rows held if they take only a part of the workers' memory."""
        problem, is_sparse = self.problem, self.problem.source.is_sparse
        columns = toy_columns(problem.source)
        self.runner.prepare(
            warm_name(plan, margins=problem.margins, is_sparse=is_sparse, columns=columns),
            partial(
                warm_up, plan, kind=type(problem.margins), is_sparse=is_sparse, columns=columns
            ),
        )
        rows = problem.source.rows(problem.C, tau=problem.tau, run=run_id, margins=problem.margins)
        graphs: Solver = solver_at(plan.solver, ON_DASK).make(plan, rows, self.seed, run_id)
        self.rows_graph = dict(graphs.data)
        if problem.source.n_bytes <= self.room:
            self.runner.run(self.rows_graph, graphs.held, [])
            self.rows_graph = {}
        self.runner.release(problem.source.held)
        return graphs

    def _run(self, stage: Stage) -> Any:
        """Run one graph; the state it leaves stays on the workers."""
        graph = {**self.rows_graph, **self.pending, **stage.graph}
        places = stage.places if self._has_room(stage) else {}
        (report,) = self.runner.run(graph, list(stage.state.values()), [stage.report], places)
        kept = set(stage.state.values())
        self.runner.release(key for key in self.state.values() if key not in kept)
        self.state, self.pending = stage.state, {}
        return report

    def _has_room(self, stage: Stage) -> bool:
        """Whether the rows may be where a stage would have them."""
        if not stage.rows_everywhere:
            return True
        return self.problem.source.n_bytes <= RESIDENT_SHARE * self.runner.memory_of_each

    def _load(self, names: State) -> None:
        """The next graph begins by reading the state from the files."""
        self.pending, self.state = load_state(
            list(names), self.graphs.kinds, self.store.path, self.generation, self.run_id
        )

    def _seed(self, ratio: float) -> float:
        """Begin with the state of a fit of another C, rescaled [PATH]; the dual of it."""
        self.pending, self.state = load_rescaled(
            list(self.state), self.graphs.kinds, self.store.path, self.generation, self.run_id,
            ratio,
        )  # fmt: skip
        return self.certify()[1]

    def _collect_weights(self) -> Any:
        """W (d + 1, k) of the certified state: on the client, or a Dask array of files."""
        parts = self.graphs.weights(self.state)
        if self.model_folder is not None:
            groups = [(classes, self.state[name]) for classes, name in parts]
            return keep_in_files(
                groups, self.pending, self.plan, self.runner, self.model_folder, self.run_id
            )
        keys = [("model", self.run_id, p) for p in range(len(parts))]
        graph = {
            key: Task(key, weights_of, TaskRef(self.state[name]))
            for key, (_, name) in zip(keys, parts, strict=True)
        }
        columns = self.runner.run({**self.pending, **graph}, [], keys)
        W = np.empty((self.plan.d + 1, self.plan.k), self.problem.source.dtype)
        for (classes, _), part in zip(parts, columns, strict=True):
            W[:, classes] = part
        return W

    # -- checkpoints -------------------------------------------------------------------------------

    def save(self, counted: dict[str, Any]) -> None:
        """Have the workers write the state and go on from the files: what made it is forgotten."""
        self.generation = self.store.begin()
        writes, keys = save_state(self.state, self.store.path, self.generation, self.run_id)
        records = self.runner.run({**self.pending, **writes}, [], keys)
        self.runner.release(self.state.values())
        self._load(self.state)
        meta = {
            "identity": self.problem.identity(),
            "plan": self.plan.to_json(),
            "solver": self.solver,
            "seed": self.seed,
            "epoch": self.epoch,
            "dual": self.dual,
            "blocks": list(self.state),
            **counted,
        }
        self.store.commit(self.generation, records, meta)

    def resume(self, seed_is_given: bool) -> dict[str, Any] | None:
        """Go on from the last checkpoint, if there is one of this problem; what was counted."""
        found = self.store.read()
        if found is None:
            return None
        _, meta = found
        with restoring(self.store.path):
            refuse_other(meta, self.problem, self.plan, self.seed if seed_is_given else None)
            self.seed, self.epoch, self.dual = meta["seed"], meta["epoch"], meta["dual"]
            self._find_state(meta)
            return {name: meta[name] for name in COUNTED}

    def seed_from_last(self) -> None:
        """Begin with what a fit of another C left here, if there is one that differs by C alone."""
        found = self.store.read()
        self.ratio = None if found is None else ratio_of_costs(found[1], self.problem, self.plan)
        if found is not None and self.ratio is not None:
            self._find_state(found[1])

    def _find_state(self, meta: dict[str, Any]) -> None:
        generation = self.store.generation
        assert generation is not None
        self.generation = generation
        if self.plan.then is not None and meta.get("solver") == self.plan.then:
            self.running = second_plan(self.plan)
        self.state = dict.fromkeys(meta["blocks"])


def weights_of(block: Any) -> Any:
    """W of a block of state."""
    return block.W


# A fit of a few rows that calls every kernel of a plan, for workers to compile them ---------------


def toy_columns(source: LazySource) -> Standardization | None:
    """What makes rows of three features of the kind that the rows of a fit are."""
    given = source.columns
    if given is None or (source.is_sparse and not given.centred):  # CSR like any other
        return None
    return Standardization(np.zeros(3), np.ones(3), True)


def warm_name(
    plan: DaskPlan,
    *,
    is_sparse: bool,
    margins: Margins = EQUAL,
    columns: Standardization | None = None,
) -> str:
    """Plans of the same name call the same kernels."""
    rows, alpha = "csr" if is_sparse else "dense", "lists" if keeps_lists(plan) else "array"
    rows = rows if columns is None else f"standardized-{rows}"
    side = "steps" if plan.solver == "shards" and plan.blocks > 1 else "whole"
    parts = [plan.solver, plan.formulation, plan.dtype, rows, alpha, side]
    return "-".join(parts if margins == EQUAL else [*parts, type(margins).__name__])


def keeps_lists(plan: DaskPlan) -> bool:
    """Whether dual variables are stored as lists, by kernels of their own."""
    n = plan.n // plan.blocks if plan.solver == "shards" else 0
    return has_lists(plan.formulation, n, plan.k, np.dtype(plan.dtype).itemsize)


def warm_up(
    plan: DaskPlan,
    *,
    is_sparse: bool,
    kind: type = tuple,
    columns: Standardization | None = None,
) -> None:
    """One epoch and one certificate of a plan like this one, in this thread."""
    k = DENSE_CLASSES + 1 if keeps_lists(plan) else 4
    X = np.eye(k, 3, dtype=plan.dtype)
    chunk = [sp.csr_array(X) if is_sparse else X, np.arange(k, dtype=np.int32), np.ones(k)]
    chunks = min(2, plan.blocks) if plan.solver == "shards" else 1
    rows = row_blocks(
        *([delayed(part)] * chunks for part in chunk), sizes=(k,) * chunks, n_features=3,
        n_classes=k, dtype=plan.dtype, tau=1.0, run="warm", margins=toy_margins(kind, k),
        columns=columns,
    )  # fmt: skip
    toy = replace(
        plan, n=k * chunks, d=3, k=k, chunks=chunks, blocks=chunks, lanes=min(plan.lanes, chunks),
        slices=1, groups=even_groups(k, 2), passes=1,
    )  # fmt: skip
    runner: Runner = LocalRunner(get_sync)
    solver = solver_at(toy.solver, ON_DASK).make(toy, rows, 0, "warm")
    runner.run(solver.data, solver.held, [])
    stage = solver.start()
    runner.run(stage.graph, list(stage.state.values()), [stage.report])
    for build in (solver.epoch, solver.certify):
        stage = build(stage.state, 0)
        runner.run(stage.graph, list(stage.state.values()), [stage.report])


# W where it is too large for the client: in files that workers write ------------------------------


def folder_for(
    plan: DaskPlan, *, scratch: str | None, checkpoint: str | None, limit: int | None
) -> str | None:
    """The folder for W if it is cut by classes and larger than the limit; else None.

    Raises
    ------
    ValueError
        It has to stay in files, and there is no folder that will be there after the fit.
    """
    limit = WHOLE_MODEL if limit is None else limit
    if not plan.groups or plan.model_bytes <= limit:
        return None
    folder = scratch or checkpoint
    if folder is None:
        raise ValueError(
            f"W takes {plan.model_bytes:,} bytes, more than the {limit:,} that may be held at once "
            '(memory_limit), and stays in files; pass scratch="/a/folder/all/workers/see" to keep '
            f"them in, or memory_limit={plan.model_bytes} to have coef_ in memory."
        )
    return folder


def keep_in_files(
    groups: Sequence[tuple[npt.NDArray[np.intp], Key]],
    pending: Graph,
    plan: DaskPlan,
    runner: Runner,
    folder: str,
    run: str,
) -> Any:
    """W (d + 1, k) as a Dask array that reads what the workers have written; whole or not at all.

    The client sees none of it.
    """
    path = f"{absolute_path(folder)}/weights-{run}"
    widths = file_widths(plan.k, len(plan.groups))
    graph, keys = write_weights(groups, widths, path, run)
    try:
        runner.run({**pending, **graph}, [], keys)
    except BaseException:
        remove_parts(path)
        raise
    return read_weights(path, widths, plan.d + 1, np.dtype(plan.dtype))
