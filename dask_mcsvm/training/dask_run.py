"""A run on Dask: an epoch is one graph, its state stays on the workers or in files."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import numpy as np
from dask.task_spec import Task, TaskRef

from dask_mcsvm.errors import ClusterLostError, FitInterrupted, WorkersKilledError
from dask_mcsvm.graphs.path import can_rescale, load_rescaled
from dask_mcsvm.graphs.splitting import ChunkedSplitting
from dask_mcsvm.graphs.state import (
    Bounds,
    Graph,
    Solver,
    Stage,
    State,
    Tally,
    load_state,
    save_state,
)
from dask_mcsvm.storage import Checkpoint, restoring

from .dask_plan import DaskPlan, make_solver, second_plan
from .dask_problem import DaskProblem, refuse_other
from .keeping import Keeping, ratio_of_costs
from .large_model import folder_for, keep_in_files
from .loop import COUNTED, Advance, Loop, Run
from .problem import Fit, OnEpoch
from .runner import Runner, room_for_rows
from .warm import warm_name, warm_up


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
        run.room = room_for_rows(runner, keeping.memory_limit)
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
        self.room = room_for_rows(runner, None)
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
        self.runner.prepare(
            warm_name(plan, is_sparse=is_sparse), partial(warm_up, plan, is_sparse=is_sparse)
        )
        rows = problem.source.rows(
            problem.factors, dtype=problem.dtype, tau=problem.tau, run=run_id
        )
        graphs = make_solver(plan, rows, self.seed, run_id)
        self.rows_graph = dict(graphs.data)
        if problem.source.n_bytes <= self.room:
            self.runner.run(self.rows_graph, graphs.held, [])
            self.rows_graph = {}
        self.runner.release(problem.source.held)
        return graphs

    def _run(self, stage: Stage) -> Any:
        """Run one graph; the state it leaves stays on the workers."""
        graph = {**self.rows_graph, **self.pending, **stage.graph}
        (report,) = self.runner.run(
            graph, list(stage.state.values()), [stage.report], stage.places
        )
        kept = set(stage.state.values())
        self.runner.release(key for key in self.state.values() if key not in kept)
        self.state, self.pending = stage.state, {}
        return report

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
        W = np.empty((self.plan.d + 1, self.plan.k), self.problem.dtype)
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
