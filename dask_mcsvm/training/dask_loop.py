"""The loop on Dask: an epoch as one graph, a record, a certificate, a checkpoint, a clean slate."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
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
from .local import USEFUL_GAP, epochs_to_tol, log_hand_over, second_is_due
from .problem import Fit, OnEpoch, counted_epochs, is_over
from .runner import Runner, room_for_rows
from .warm import warm_name, warm_up

#: What a fit is after an epoch, besides what its blocks hold.
COUNTED = ("epoch", "work", "dual", "last_look", "blindness", "history", "state")


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
        loop = _DaskLoop(problem, plan, runner, store, tol, max_epochs, seed, on_epoch)
        loop.room = room_for_rows(runner, keeping.memory_limit)
        loop.is_kept = bool(keeping.checkpoint or keeping.carry)
        loop.model_folder = model_folder
        if keeping.carry is not None:
            loop.seed_from_last()
        if keeping.resume and keeping.checkpoint is not None:
            loop.resume(seed_is_given)
        if keeping.checkpoint is None:
            return loop.run()
        with _naming(keeping.checkpoint, loop):
            return loop.run()


@contextmanager
def _naming(checkpoint: str, loop: _DaskLoop) -> Iterator[None]:
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
        epoch = loop.save_finished()
        if epoch == 0:
            raise
        raise FitInterrupted(
            f"Stopped by Ctrl-C; {checkpoint} holds the fit after {epoch} "
            f"epoch{'s' * (epoch > 1)}: type fit again with resume=True."
        ) from None


class _DaskLoop:
    """One fit from first epoch to certificate."""

    def __init__(
        self,
        problem: DaskProblem,
        plan: DaskPlan,
        runner: Runner,
        store: Checkpoint,
        tol: float,
        max_epochs: int,
        seed: int,
        on_epoch: OnEpoch | None,
    ) -> None:
        self.problem, self.plan, self.runner, self.store = problem, plan, runner, store
        #: What runs now: the plan, or what its second solver makes of it.
        self.running = plan
        self.tol, self.max_epochs, self.on_epoch = tol, max_epochs, on_epoch
        self.seed, self.run_id = seed, uuid.uuid4().hex[:12]
        self.begun = time.perf_counter()
        self.history: list[dict[str, Any]] = []
        self.epoch, self.work, self.dual, self.last_look = 0, 0, 0.0, 0.0
        #: The gap over its estimate at the last certificate.
        self.blindness = 1.0
        self.state: State = {}
        #: As it was after the last whole epoch, with its state, if that is still held.
        self.finished: dict[str, Any] = {}
        self.saved = 0
        #: Bytes of rows that may stay in memory between epochs.
        self.room = room_for_rows(runner, None)
        #: Class scores of one epoch.
        self.scores = int(problem.source.counts.sum()) * plan.k
        #: Whether anybody will read the state when the fit is over.
        self.is_kept = False
        #: C over that of the fit whose state this one begins with.
        self.ratio: float | None = None
        #: Where W goes if it is too large for the client.
        self.model_folder: str | None = None
        #: Tasks that the next graph has to begin with.
        self.pending: Graph = {}

    # -- one fit -----------------------------------------------------------------------------------

    def run(self) -> Fit:
        self._prepare()
        if self.ratio is not None and can_rescale(self.solver.kinds):
            self.dual = self._seed(self.ratio)
        elif self.state and self.ratio is None:
            self._load(self.state)
        else:
            self.state = {}
            self.dual = self._advance(self.solver.start()).gain
        stop = self._reached_tol()
        self.spent = self.runner.spent()
        while stop is None and not is_over(self.epochs, self.max_epochs):
            if self.running is self.plan and second_is_due(self.plan, self.history, self.tol):
                self._take_over()
            stop = self._one_epoch()
        return self._finish(stop or "max_epochs")

    @property
    def epochs(self) -> float:
        """Effective loops so far, over the rows that count."""
        return self.work / self.scores

    def _prepare(self) -> None:
        """Have kernels compiled and rows held for what runs now."""
        is_sparse = self.problem.source.is_sparse
        self.runner.prepare(
            warm_name(self.running, is_sparse=is_sparse),
            partial(warm_up, self.running, is_sparse=is_sparse),
        )
        self.solver = self._make_solver()
        self._keep_rows()

    def _take_over(self) -> None:
        """The second solver goes on, from the dual variables of the first if they help."""
        self.running = second_plan(self.plan)
        log_hand_over(self.plan.solver, self.running.solver, self.history[-1])
        self.runner.release(self.solver.held)
        self.run_id, self.blindness = uuid.uuid4().hex[:12], 1.0
        self._prepare()
        stage = self.solver.start()
        if self.history[-1]["gap"] <= USEFUL_GAP:
            assert isinstance(self.solver, ChunkedSplitting)
            shards = [self.state[f"shard-{c}"] for c in range(self.plan.blocks)]
            stage = self.solver.start_from(shards)
        self.dual = self._advance(stage).gain

    def _make_solver(self) -> Solver:
        rows = self.problem.source.rows(
            self.problem.factors, dtype=self.problem.dtype, tau=self.problem.tau, run=self.run_id
        )
        return make_solver(self.running, rows, self.seed, self.run_id)

    def _keep_rows(self) -> None:
        """Hold the rows in the workers' memory if they take only a part of it."""
        self.rows_graph = dict(self.solver.data)
        if self.problem.source.n_bytes <= self.room:
            self.runner.run(self.rows_graph, self.solver.held, [])
            self.rows_graph = {}
        self.runner.release(self.problem.source.held)

    def _one_epoch(self) -> str | None:
        begun = time.perf_counter()
        stage = self.solver.epoch(self.state, self.epoch)
        tally: Tally = self._advance(stage)
        self.epoch += 1
        self.work += max(1, tally.work)
        self.dual += tally.gain
        primal, gap, certified = self.dual + tally.gap, self._estimate(tally), False
        if self._time_to_look(gap):
            primal, self.dual = self._certify()
            seen, gap, certified = gap, self.problem.relative(primal, self.dual), True
            self.blindness = max(1.0, gap / seen) if seen > 0 else 1.0
        record = {
            "epoch": self.epochs,
            "seconds": time.perf_counter() - self.begun,
            "primal": primal,
            "dual": self.dual,
            "gap": gap,
            "certified": certified,
            "active": tally.active,
            "violation": tally.violation,
            "tasks": len(stage.graph),
            "epoch_seconds": time.perf_counter() - begun,
            **self._spent(),
        }
        self.history.append(record)
        if self.epoch - self.saved >= self.plan.save_every:
            self._save()
        self.finished = {name: getattr(self, name) for name in COUNTED}
        self.finished["history"] = list(self.history)
        if self.on_epoch is not None and self.on_epoch(dict(record)):
            return "callback"
        return self._reached_tol()

    def _spent(self) -> dict[str, Any]:
        """For the record: seconds by kind of task and bytes sent since the last one."""
        now = self.runner.spent()
        seconds, sent = now.since(self.spent)
        self.spent = now
        return {"task_seconds": seconds, "bytes": sent} if seconds else {}

    def _reached_tol(self) -> str | None:
        """Whether the last epoch, perhaps one before a resume, was certified to be good enough."""
        last = self.history[-1] if self.history else {"certified": False}
        return "gap" if last["certified"] and last["gap"] <= self.tol else None

    def _estimate(self, tally: Tally) -> float:
        """What the visits saw of the gap; nan where they see too little."""
        if np.isnan(tally.gap):
            return float("nan")
        return self.problem.relative(self.dual + tally.gap, self.dual)

    def _time_to_look(self, estimate: float) -> bool:
        """Certify when the estimate is near tol, and now and then in any case."""
        if self.tol == 0:
            return False
        waited = self.epoch - self.last_look
        # Visits saw rows at weights that have moved since: by as much as at the last look.
        near = self.blindness * estimate <= 1.2 * self.tol and waited >= min(4, 0.1 * self.epoch)
        patience = epochs_to_tol(self.history, self.tol) if np.isnan(estimate) else 16.0
        if near or waited >= max(patience, 0.1 * self.epoch):
            self.last_look = self.epoch
            return True
        return False

    def _finish(self, stop: str) -> Fit:
        # Before the last certificate, which makes W anew: a fit that goes on from here takes the
        # same steps as one that was never stopped.
        if self.is_kept and self.epoch != self.saved:
            self._save()
        last = self.history[-1]
        if not last["certified"]:
            primal, dual = self._certify()
            gap = self.problem.relative(primal, dual)
            last.update(primal=primal, dual=dual, gap=gap, certified=True)
        primal, dual, gap = last["primal"], last["dual"], last["gap"]
        W = self._collect_weights()
        return Fit(
            W=W,
            alpha=None,
            primal=primal,
            dual=dual,
            gap=gap,
            history=self.history,
            n_iter=counted_epochs(self.epochs, self.max_epochs),
            converged=gap <= self.tol,
            stop=stop,
            dual_density=float("nan"),
            solver=self.running.solver,
        )

    # -- graphs ------------------------------------------------------------------------------------

    def _advance(self, stage: Stage) -> Any:
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
            list(names), self.solver.kinds, self.store.path, self.generation, self.run_id
        )

    def _seed(self, ratio: float) -> float:
        """Begin with the state of a fit of another C, rescaled [PATH]; the dual of it."""
        self.pending, self.state = load_rescaled(
            list(self.state), self.solver.kinds, self.store.path, self.generation, self.run_id,
            ratio,
        )  # fmt: skip
        return self._certify()[1]

    def _certify(self) -> tuple[float, float]:
        bounds: Bounds = self._advance(self.solver.certify(self.state, self.epoch))
        return float(bounds.primal), float(bounds.dual)

    def _collect_weights(self) -> Any:
        """W (d + 1, k) of the certified state: on the client, or a Dask array of files."""
        parts = self.solver.weights(self.state)
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

    def _save(self) -> None:
        """Have the workers write the state and go on from the files: what made it is forgotten."""
        self.generation = self.store.begin()
        writes, keys = save_state(self.state, self.store.path, self.generation, self.run_id)
        records = self.runner.run({**self.pending, **writes}, [], keys)
        self.runner.release(self.state.values())
        self._load(self.state)
        meta = {
            "identity": self.problem.identity(),
            "plan": self.plan.to_json(),
            "solver": self.running.solver,
            "seed": self.seed,
            **{name: getattr(self, name) for name in COUNTED if name != "state"},
            "seconds": time.perf_counter() - self.begun,
            "blocks": list(self.state),
        }
        self.store.commit(self.generation, records, meta)
        self.saved = self.epoch

    def save_finished(self) -> int:
        """Save the last whole epoch, if its state is still there; which one is on disk then."""
        if self.finished.get("state") is self.state and self.finished["epoch"] != self.saved:
            vars(self).update(self.finished)
            self._save()
        return self.saved

    def resume(self, seed_is_given: bool) -> None:
        """Go on from the last checkpoint, if there is one and it is of this problem."""
        found = self.store.read()
        if found is None:
            return
        _, meta = found
        with restoring(self.store.path):
            refuse_other(meta, self.problem, self.plan, self.seed if seed_is_given else None)
            self.seed = meta["seed"]
            vars(self).update({name: meta[name] for name in COUNTED if name != "state"})
            self.saved = self.epoch
            self.begun -= meta["seconds"]
            self._find_state(meta)

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
