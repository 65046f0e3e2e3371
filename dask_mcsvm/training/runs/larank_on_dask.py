"""A run of LaRank on Dask: the model visits chunk after chunk, wherever they are."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from math import nan
from typing import Any

import numpy as np
import scipy.sparse as sp
from dask.task_spec import DataNode, Task, TaskRef

from dask_mcsvm.graphs.larank import MODEL, Passed, Visits
from dask_mcsvm.solvers.larank import Aim, Kernel, LaRank
from dask_mcsvm.storage import Checkpoint
from dask_mcsvm.training.loop import Advance, Fit, Loop, OnEpoch
from dask_mcsvm.training.runner import Runner
from dask_mcsvm.training.table import SAVE_EVERY

from .larank import relative
from .on_dask import DaskProblem, DaskRun, _naming

#: Chunks in one graph, if rows do not stay in memory: more would be read long before their turn.
WINDOW = 4


@dataclass(frozen=True)
class LaRankPlan:
    """How a fit runs: ``parameters`` of the `LaRank` to train, and how rows are visited."""

    parameters: dict[str, Any]
    aim: Aim
    shuffle: bool
    k: int
    save_every: int = SAVE_EVERY
    solver = "larank"
    then = None

    def to_json(self) -> dict[str, Any]:
        """All that decides the steps, for a checkpoint to be compared with."""
        kernel = asdict(self.parameters["kernel"])
        function = kernel.pop("function")
        kernel["function"] = getattr(function, "__qualname__", type(function).__name__)
        plain = {name: self.parameters[name] for name in ("schedule", "max_support", "cache_bytes")}
        stop = {"by_gap": self.aim.by_gap, "shuffle": self.shuffle}
        return plain | kernel | stop | {"solver": self.solver, "groups": []}


def train_larank_on_dask(
    problem: DaskProblem,
    plan: LaRankPlan,
    runner: Runner,
    *,
    max_epochs: int,
    checkpoint: str | None,
    resume: bool,
    seed_is_given: bool,
    on_epoch: OnEpoch | None = None,
) -> tuple[Fit, LaRank]:
    """Visit the chunks again and again; the `Fit` has neither W nor alpha."""
    with ExitStack() as stack:
        store = None if checkpoint is None else stack.enter_context(Checkpoint(checkpoint))
        run = DaskLaRankRun(problem, plan, runner, store)
        counted = run.resume(seed_is_given) if resume and store is not None else None
        loop = Loop(run, relative, plan.aim.tol, max_epochs, on_epoch, counted)
        if checkpoint is not None:
            stack.enter_context(_naming(checkpoint, loop))
        return loop.fit(), run.larank


class DaskLaRankRun(DaskRun):
    """Epochs as one graph of visits, or as several where rows are read anew."""

    plan: Any
    graphs: Any

    def __init__(
        self, problem: DaskProblem, plan: LaRankPlan, runner: Runner, store: Checkpoint | None
    ) -> None:
        any_plan, any_store = (plan, store)  # type: Any, Any
        super().__init__(problem, any_plan, runner, any_store, plan.parameters["seed"])
        self.scores = 1  # an epoch is a pass, whatever it costs
        self.certifies, self.absolute = plan.aim.by_gap, plan.aim.absolute
        self.is_kept = store is not None

    def advance(self) -> Advance:
        self.began, self.tasks = time.perf_counter(), 0
        size = WINDOW if self.rows_graph else len(self.problem.source.sizes)
        windows = self.graphs.windows(self.epoch, size)
        for window in windows:
            ends = window is windows[-1]
            stage = self.graphs.visits(self.state, self.epoch, window, ends=ends)
            self.passed: Passed = self._run(stage)
            self.tasks += len(stage.graph)
        self.epoch, self.dual = self.epoch + 1, self.passed.dual
        return Advance(1, self.passed.primal - self.dual)

    def facts(self, history: Sequence[dict[str, Any]]) -> dict[str, Any]:
        del history
        passed, seconds = self.passed, time.perf_counter() - self.began
        return {
            "support": passed.support,
            "kernel_evaluations": passed.kernel_evaluations,
            "arg_max": passed.arg_max,
            "tasks": self.tasks,
            "epoch_seconds": seconds,
        }

    def save(self, counted: dict[str, Any]) -> None:
        """As `DaskRun.save`; without a checkpoint the model comes here and starts from here."""
        if self.is_kept:
            super().save(counted)
            return
        key = ("larank-model", self.run_id, self.epoch)
        model = self._fetch()
        self.runner.release(self.state.values())
        self.pending, self.state = {key: DataNode(key, model)}, {MODEL: key}

    def model(self) -> dict[str, Any]:
        self.larank: LaRank = self._fetch().run
        return {"W": None, "alpha": None, "dual_density": nan}

    def _fetch(self) -> Any:
        key = ("larank-fetch", self.run_id, self.epoch)
        graph = {key: Task(key, as_it_is, TaskRef(self.state[MODEL]))}
        return self.runner.run({**self.pending, **graph}, [], [key])[0]

    def _prepare(self, plan: Any, run_id: str) -> Any:
        """Have kernels compiled, and rows held if they take only a part of the workers' memory."""
        problem, source = self.problem, self.problem.source
        kind = "linear" if plan.parameters["kernel"].name == "linear" else "rbf"
        is_sparse = plan.parameters["is_sparse"]
        dtype, layout = source.dtype.name, "csr" if is_sparse else "dense"
        work = partial(warm_up, kind=kind, dtype=dtype, is_sparse=is_sparse)
        self.runner.prepare(f"larank-{kind}-{dtype}-{layout}", work)
        rows = source.rows(problem.C, tau=0.0, run=run_id, all_rows=True)
        parameters = plan.parameters | {"seed": self.seed}
        graphs = Visits(rows, parameters, plan.aim, plan.shuffle, run_id)
        self.rows_graph = dict(graphs.data)
        if source.n_bytes <= self.room:
            self.runner.run(self.rows_graph, graphs.held, [])
            self.rows_graph = {}
        self.runner.release(source.held)
        return graphs


def as_it_is(value: Any) -> Any:
    """A task that hands on what it is given."""
    return value


def warm_up(*, kind: str, dtype: str, is_sparse: bool) -> None:
    """An epoch and a certificate of a few rows, in this thread; kernels of a kind are alike."""
    X = np.eye(4, 3, dtype=dtype)
    rows = sp.csr_array(X) if is_sparse else X
    run = LaRank(
        n_classes=4, n_features=3, is_sparse=is_sparse, dtype=np.dtype(dtype), kernel=Kernel(kind),
        seed=0,
    )  # fmt: skip
    examples = run.examples(rows, np.arange(4), np.ones(4))
    run.process(examples, np.arange(4))
    run.copy().objective(examples)
