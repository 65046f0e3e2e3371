"""The primal objective by row block and class group, in float64 (docs/math.md, the certificate).

A task holds one block of rows and the columns of one group, and adds what these cost to what the
groups before found: W as a whole, or the scores of all classes, need not fit a worker. The client
sees one number.

    rows c ──────────┬─────────────────────┬──────────────────┐
    weights 0 ─ primal-losses c, 0 ─ primal-losses c, 1 ─ primal-sum c ─┐
                           weights 1 ┘                                  ├─ primal
    weights g ─ primal-square g ────────────────────────────────────────┘

Weston-Watkins compares with the score of the own class, which the group that holds it computes
first, in one more chain of the same form (``primal-own``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from dask.task_spec import List, Task, TaskRef

from dask_mcsvm.data.rows import Graph, Key
from dask_mcsvm.formulations import FORMULATIONS
from dask_mcsvm.formulations.margins import cut
from dask_mcsvm.solvers.groups.blocks import placed
from dask_mcsvm.solvers.groups.independent import add_group_losses, add_own_scores
from dask_mcsvm.solvers.kernels.margins import for_kernels
from dask_mcsvm.solvers.kernels.rows import read_only
from dask_mcsvm.solvers.kernels.steps import LOSSES
from dask_mcsvm.solvers.row_block import RowBlock
from dask_mcsvm.solvers.sdm.run import square_sum


class HasWeights(Protocol):
    """What a part of the model is: a block of state with some columns of W."""

    @property
    def W(self) -> npt.NDArray[Any]:
        """(d + 1, classes of the part)"""


class Seen(NamedTuple):
    """What is known of the losses of some rows before the last group was looked at."""

    own: npt.NDArray[np.float64]  # (m,) score of the own class, once its group was looked at
    rivals: npt.NDArray[np.float64]  # (m,) largest rival (CS), or sum of hinges (the others)


def primal(
    blocks: Sequence[Key],
    parts: Sequence[tuple[npt.NDArray[np.intp], Key]],
    *,
    formulation: str,
    tau: float,
    name: str,
    epoch: int,
    run: str,
) -> tuple[Graph, Key]:
    """Build the tasks that compute P(W); computes nothing.

    Parameters
    ----------
    blocks : sequence of keys
        Of `RowBlock` s that together hold every row once.
    parts : sequence of (ndarray of int, key)
        Classes, ascending, and the key of an object whose ``W`` (d + 1, classes) are their columns.
    formulation : str
        The long name.
    tau : float
        Value of the constant feature.
    name : str
        What the names of the tasks begin with.
    epoch, run : int, str
        Unique ids of this certificate and of the fit, part of every task key.

    Returns
    -------
    graph : dict
        Refers to the keys of blocks and parts and does not hold them.
    key : key
        Of a float.
    """
    graph: Graph = {}
    form = FORMULATIONS[formulation]
    key: Key
    sums = []
    for c, block in enumerate(blocks):
        seen: Key | None = None
        looks: list[tuple[str, Callable[..., Seen]]] = [("losses", look_at_part)]
        if form.compares_with_own and not form.loss_is_maximum:  # each hinge needs the own score
            looks.insert(0, ("own", look_at_own))
        for what, look in looks:
            for p, (classes, part) in enumerate(parts):
                key = (f"{name}-primal-{what}-e{epoch}", run, c, p)
                before = None if seen is None else TaskRef(seen)
                graph[key] = Task(
                    key, look, TaskRef(block), TaskRef(part), before, classes=classes,
                    formulation=formulation, tau=tau,
                )  # fmt: skip
                seen = key
        assert seen is not None
        key = (f"{name}-primal-sum-e{epoch}", run, c)
        graph[key] = Task(key, weigh_losses, TaskRef(block), TaskRef(seen), formulation=formulation)
        sums.append(key)
    for p, (_, part) in enumerate(parts):
        key = (f"{name}-primal-square-e{epoch}", run, p)
        graph[key] = Task(key, half_square, TaskRef(part))
        sums.append(key)
    total = (f"{name}-primal-e{epoch}", run)
    graph[total] = Task(total, add_up, List(*map(TaskRef, sums)))
    return graph, total


# -- tasks -----------------------------------------------------------------------------------------


def look_at_own(
    block: RowBlock,
    part: HasWeights,
    before: Seen | None,
    *,
    classes: npt.NDArray[np.intp],
    formulation: str,
    tau: float,
) -> Seen:
    """Add the scores of the rows whose own class is in this part."""
    seen = begin(block, before, formulation)
    data = placed(block, classes).data(tau, part.W)
    add_own_scores(data.rows, data.y, data.tau, part.W, seen.own)
    return seen


def look_at_part(
    block: RowBlock,
    part: HasWeights,
    before: Seen | None,
    *,
    classes: npt.NDArray[np.intp],
    formulation: str,
    tau: float,
) -> Seen:
    """Add what the classes of this part cost."""
    seen = begin(block, before, formulation)
    data, loss = placed(block, classes).data(tau, part.W), LOSSES[formulation](classes.size)
    margins = for_kernels(cut(block.margins, None, classes))
    add_group_losses(
        loss, data.rows, data.y, data.tau, read_only(block.y), margins, part.W, seen.own,
        seen.rivals,
    )  # fmt: skip
    return seen


def begin(block: RowBlock, before: Seen | None, formulation: str) -> Seen:
    """A copy of what is known; at first nothing is."""
    if before is not None:
        return Seen(before.own.copy(), before.rivals.copy())
    nothing = -np.inf if FORMULATIONS[formulation].loss_is_maximum else 0.0
    return Seen(np.zeros(block.y.size), np.full(block.y.size, nothing))


def weigh_losses(block: RowBlock, seen: Seen, *, formulation: str) -> float:
    """Σ_i C_i loss_i of a block."""
    losses = seen.rivals
    if FORMULATIONS[formulation].loss_is_maximum:
        losses = np.maximum(0.0, 1.0 + seen.rivals - seen.own)  # [CS-P]
    return float(block.C @ losses)


def half_square(part: HasWeights) -> float:
    """What the columns of a part add to ½‖W‖²."""
    return 0.5 * float(square_sum(part.W))


def add_up(parts: Sequence[float]) -> float:
    """The sum, in the order given."""
    return float(sum(parts))
