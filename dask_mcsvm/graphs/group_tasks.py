"""What the tasks of all class-group solvers share.

A task is a pure function: it copies what it changes, calls a kernel and returns new arrays. So it
may run twice, or elsewhere, and arrays that several tasks share stay as they were.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from dask.task_spec import Task, TaskRef

from dask_mcsvm.data.rows import Graph, Key
from dask_mcsvm.formulations import Bounds, Tally
from dask_mcsvm.solvers.groups.blocks import GroupWeights, Side
from dask_mcsvm.solvers.groups.independent import make_group_scratch
from dask_mcsvm.solvers.sdm.sweeps import Scratch


@dataclass(frozen=True)
class Visit:
    """How a task goes through its rows: all that it knows besides its arrays."""

    seed: tuple[int, ...]
    epoch: int
    groups: tuple[int, ...]
    step: int
    part: int
    slices: int
    passes: int
    patience: int
    first: bool = False  # of an epoch, for its group: the tally begins anew

    def order(self, *sizes: int) -> npt.NDArray[np.int64]:
        """Rows to visit, (passes, rows), those of a second group after those of the first."""
        starts = np.cumsum([0, *sizes[:-1]])
        rows = np.concatenate(
            [
                start + self._part_of(g, n)
                for g, n, start in zip(self.groups, sizes, starts, strict=True)
            ]
        )
        rng = np.random.default_rng([*self.seed, self.epoch, self.part, *self.groups, self.step])
        return np.stack([rng.permutation(rows) for _ in range(self.passes)])

    def _part_of(self, group: int, n: int) -> npt.NDArray[np.int64]:
        """This part of a group's rows; in one epoch all visits cut them alike."""
        rng = np.random.default_rng([*self.seed, self.epoch, group, self.step])
        rows: npt.NDArray[np.int64] = np.array_split(rng.permutation(n), self.slices)[self.part]
        return rows


class Average(NamedTuple):
    """What a barrier found: by how much to lower every column of W, and what that gains."""

    move: npt.NDArray[np.float64]  # (d + 1,)
    rise: float


def pick(graph: Graph, key: Key, source: Key, place: int) -> Key:
    """Add a task that takes one item of a result, so that the others need not travel with it."""
    graph[key] = Task(key, item, TaskRef(source), place)
    return key


# -- tasks -----------------------------------------------------------------------------------------


def start_weights(n_rows: int, n_classes: int, dtype: np.dtype[Any]) -> GroupWeights:
    """No weights yet."""
    return GroupWeights(np.zeros((n_rows, n_classes), dtype), Tally())


def zero_weights(old: GroupWeights) -> GroupWeights:
    """float64 zeros of the same shape."""
    return GroupWeights(np.zeros(old.W.shape), Tally())


def finish_weights(
    new: GroupWeights, old: GroupWeights, average: Average | None = None
) -> GroupWeights:
    """float64 weights in the dtype of the old ones; the tally becomes the group's share of D."""
    W = new.W if average is None else new.W - average.move[:, None]
    share = new.tally.gain - 0.5 * float(np.sum(np.square(W)))  # [D]
    return GroupWeights(W.astype(old.W.dtype), Tally(share))


def scratch_for(*weights: npt.NDArray[Any]) -> Scratch:
    """Working space for the classes of these groups."""
    scratch: Scratch = make_group_scratch(max(W.shape[1] for W in weights), weights[0].dtype)
    return scratch


def item(values: Sequence[Any], place: int) -> Any:
    """One of several results."""
    return values[place]


def sum_tallies(tallies: Sequence[Tally]) -> Tally:
    """What all visits did, in the order given."""
    total = Tally()
    for tally in tallies:
        total = total.plus(tally[:3])
    return total


def tally_bounds(tally: Tally, primal: float) -> Bounds:
    """A certificate from a tally whose gain is the dual."""
    return Bounds(primal, tally.gain)


def start_gain(sides: Sequence[Side]) -> Tally:
    """The dual of variables that move no W: Σ alpha."""
    return Tally(sum(float(side.alpha.sum(dtype=np.float64)) for side in sides))
