"""What all solvers on Dask have in common: rows in blocks, state in blocks, an epoch as one graph.

A solver is an object that builds graphs and never computes (`Solver`). Between epochs its state is
a set of named blocks, which stay where they were made, on the workers. Now and then the loop has
them written to disk by the workers and read back, so that the scheduler can forget the tasks that
made them, and a fit that was killed can go on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, Self, TypeAlias

import numpy as np
import numpy.typing as npt
from dask.task_spec import Task, TaskRef

from dask_mcsvm.data.rows import Graph, Key
from dask_mcsvm.storage import read_block, restoring, write_block

#: Name of a block of state, such as "weights-2", to the key of its value.
State: TypeAlias = Mapping[str, Key]


class Block(Protocol):
    """A block of state: arrays under names, so that it can be written without pickle."""

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """All that it holds, scalars as arrays of no dimension."""

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> Self:
        """The block that `arrays` came from, to the last bit."""


@dataclass(frozen=True)
class Stage:
    """A graph, the keys of the state it leaves, and the key of its report (`Tally`, `Bounds`).

    The graph refers to the keys of the state before and does not hold them.
    """

    graph: Graph
    state: dict[str, Key]
    report: Key
    #: Tasks that begin a line of work of their own, with its number: a hint to begin each line on
    #: another worker. What follows goes where its data are. None of them needs another.
    places: Mapping[Key, int] = field(default_factory=dict)
    #: Whether every line reads all rows, which then are on every worker.
    rows_everywhere: bool = False


class Solver(Protocol):
    """Builds the graphs of a fit; what it needs of the data it was given when it was made."""

    @property
    def kinds(self) -> Mapping[str, type[Block]]:
        """The class of each block of state, by the part of its name before the first "-"."""

    @property
    def data(self) -> Graph:
        """Graph of all that the stages read besides the state; they refer to it by key."""

    @property
    def held(self) -> tuple[Key, ...]:
        """Those of its keys that every epoch reads: worth keeping in memory for a whole fit."""

    def start(self) -> Stage:
        """The first alpha and its W; the report is a `Tally` whose gain is the dual of it."""

    def epoch(self, state: State, epoch: int) -> Stage:
        """Visit everything about once; the report is a `Tally`."""

    def certify(self, state: State, epoch: int) -> Stage:
        """W made anew from repaired alpha in float64; the report is `Bounds`."""

    def weights(self, state: State) -> list[tuple[npt.NDArray[np.intp], str]]:
        """Classes and the name of the block whose ``W`` (d + 1, classes) holds their columns."""


def save_state(state: State, path: str, generation: int, run: str) -> tuple[Graph, list[Key]]:
    """Tasks that write every block of a state, and the keys of their records."""
    graph: Graph = {}
    keys = []
    for name, held in state.items():
        key = (f"save-{name}", run, generation)
        graph[key] = Task(key, save_block, TaskRef(held), path, generation, name)
        keys.append(key)
    return graph, keys


def load_state(
    names: list[str],
    kinds: Mapping[str, type[Block]],
    path: str,
    generation: int,
    run: str,
) -> tuple[Graph, dict[str, Key]]:
    """Tasks that read the blocks of a state, and the keys of the blocks."""
    graph: Graph = {}
    state = {}
    for name in names:
        key = (f"load-{name}", run, generation)
        kind = kinds[name.split("-", 1)[0]]
        graph[key] = Task(key, load_block, kind, path, generation, name)
        state[name] = key
    return graph, state


def pick(graph: Graph, key: Key, source: Key, place: int) -> Key:
    """Add a task that takes one item of a result, so that the others need not travel with it."""
    graph[key] = Task(key, item, TaskRef(source), place)
    return key


# -- tasks -----------------------------------------------------------------------------------------


def save_block(block: Block, path: str, generation: int, name: str) -> dict[str, Any]:
    """Write one block; its record is what a commit needs to know."""
    return write_block(path, generation, name, block.arrays())


def load_block(kind: type[Block], path: str, generation: int, name: str) -> Block:
    """Read one block."""
    arrays = read_block(path, generation, name)
    with restoring(path):
        return kind.from_arrays(arrays)


def item(values: Sequence[Any], place: int) -> Any:
    """One of several results."""
    return values[place]
