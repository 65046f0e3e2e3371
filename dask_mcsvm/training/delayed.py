"""What is handed to Dask instead of being run here: a fit as one task, the graph of an epoch."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from functools import partial
from typing import Any

from dask.delayed import Delayed, delayed
from dask.task_spec import Task

from . import defaults
from .dask_plan import DaskPlan
from .runs.on_dask import DaskProblem
from .table import ON_DASK, solver_at


def delayed_fit(model: Any, *data: Any) -> Delayed:
    """``model.fit(*data)`` as one task; a fit inside a task lends its thread while it waits.

    What is Delayed is made before. Other data go along as they are: as arguments of a delayed
    function Dask would make one array of its own first. What `dask.config` says is read here, where
    the user is.
    """
    made = {place: part for place, part in enumerate(data) if isinstance(part, Delayed)}
    kept = tuple(None if place in made else part for place, part in enumerate(data))
    work = partial(fit_here, model, kept, defaults.configured(), tuple(made))
    name = f"{type(model).__name__}-fit-{uuid.uuid4().hex}"
    task = delayed(work, name=name, pure=False)
    found: Delayed = task(*made.values(), dask_key_name=name)
    return found


def fit_here(
    model: Any,
    data: tuple[Any, ...],
    configured: Mapping[str, Any],
    places: tuple[int, ...],
    *made: Any,
) -> Any:
    """The task of a delayed fit; the same model however often it runs.

    ``made`` take their ``places`` in the data.
    """
    given = list(data)
    for place, part in zip(places, made, strict=True):
        given[place] = part
    with defaults.given(configured):
        return model.fit(*given)


def epoch_graph(problem: DaskProblem, plan: DaskPlan, epoch: int) -> Delayed:
    """The tasks of one epoch; rows and state that it would find are nodes which only have a name.

    A seed of 0 stands for that of a fit: it decides the order of visits, not what reads what.
    """
    run = "fit"
    rows = problem.source.rows(problem.C, tau=problem.tau, run=run, margins=problem.margins)
    solver = solver_at(plan.solver, ON_DASK).make(plan, rows, 0, run)
    stage = solver.epoch(solver.start().state, epoch)
    graph = dict(stage.graph)
    read = {key for task in stage.graph.values() for key in task.dependencies}
    for key in read - set(stage.graph):
        graph[key] = Task(key, refuse_to_run, str(key))
    return Delayed(stage.report, graph)


def refuse_to_run(name: str) -> None:
    """In the place of rows and state."""
    raise ValueError(
        f"{name} is a name without a value: epoch_graph is to look at; type fit(X, y)."
    )
