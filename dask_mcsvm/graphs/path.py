"""The state of a fit as the start of one with another C (docs/math.md, [PATH]).

With alpha all that is linear in it is multiplied by the ratio of the C, so that what was at a bound
is at the new one. What the solver has learnt about rows, and what it counted, begins anew; the
certificate that a seeded fit begins with makes the sums.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import singledispatch
from typing import Any

import numpy as np
from dask.task_spec import Task, TaskRef

from dask_mcsvm.data.rows import Graph, Key
from dask_mcsvm.formulations import Tally
from dask_mcsvm.solvers.groups.blocks import GroupWeights, PairDuals, RoundWeights, Side
from dask_mcsvm.solvers.groups.exchange import Common
from dask_mcsvm.solvers.groups.sparse_duals import Lists
from dask_mcsvm.solvers.kernels.dual_variables import SparseAlpha
from dask_mcsvm.solvers.sdm.shard import Shard
from dask_mcsvm.solvers.sdm.shard_tasks import Weights

from .state import Block, load_state


def load_rescaled(
    names: list[str],
    kinds: Mapping[str, type[Block]],
    path: str,
    generation: int,
    run: str,
    ratio: float,
) -> tuple[Graph, dict[str, Key]]:
    """Tasks that read the blocks of a state for a C `ratio` times as large, and their keys."""
    graph, read = load_state(names, kinds, path, generation, run)
    state: dict[str, Key] = {}
    for name, held in read.items():
        key = state[name] = (f"rescale-{name}", run, generation)
        graph[key] = Task(key, rescaled, TaskRef(held), ratio)
    return graph, state


def can_rescale(kinds: Mapping[str, type[Block]]) -> bool:
    """Whether the state of a solver is such a start; that of splitting is not."""
    return all(kind in rescaled.registry for kind in kinds.values())


# -- tasks -----------------------------------------------------------------------------------------


@singledispatch
def rescaled(block: Any, ratio: float) -> Any:
    """A block of state as it would be for a C `ratio` times as large."""
    raise TypeError(f"{type(block).__name__} is no start for another C.")


@rescaled.register
def _(block: Weights, ratio: float) -> Weights:
    W, own, pull = (times(part, ratio) for part in (block.W, block.own, block.pull))
    return block._replace(W=W, own=own, pull=pull)


@rescaled.register
def _(block: Shard, ratio: float) -> Shard:
    alpha: Any = block.alpha
    if isinstance(alpha, SparseAlpha):
        alpha = alpha._replace(values=times(alpha.values, ratio))
    else:
        alpha = times(alpha, ratio)
    n = block.preference.size
    return Shard(alpha, np.ones(n), np.zeros(1), block.seen)


@rescaled.register
def _(block: GroupWeights, ratio: float) -> GroupWeights:
    return GroupWeights(times(block.W, ratio), Tally())


@rescaled.register
def _(block: Side, ratio: float) -> Side:
    return Side(times(block.alpha, ratio), np.zeros_like(block.rest))


@rescaled.register
def _(block: Common, ratio: float) -> Common:
    b, own, pull = (times(part, ratio) for part in block[:3])
    return Common(b, own, pull, np.zeros(1), np.zeros_like(block.tally))


@rescaled.register
def _(block: RoundWeights, ratio: float) -> RoundWeights:
    own = tuple(_longer(lists, ratio) for lists in block.own)
    return RoundWeights(times(block.W, ratio), Tally(), times(block.bias, ratio), own)


@rescaled.register
def _(block: PairDuals, ratio: float) -> PairDuals:
    first, second = np.ones_like(block.preference_a), np.ones_like(block.preference_b)
    ab, ba = _longer(block.ab, ratio), _longer(block.ba, ratio)
    return PairDuals(ab, ba, first, second, np.zeros(1))


def _longer(lists: Lists, ratio: float) -> Lists:
    return lists._replace(values=times(lists.values, ratio))


def times(values: Any, ratio: float) -> Any:
    """The product, in the dtype of the values."""
    return values * values.dtype.type(ratio)
