"""Row chunks as the blocks of rows that all solvers read: validated, coded, of one float type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from dask.delayed import Delayed
from dask.sizeof import sizeof
from dask.task_spec import DataNode, Task, TaskRef

from dask_mcsvm.formulations import Standardization
from dask_mcsvm.formulations.margins import EQUAL, Margins
from dask_mcsvm.solvers.kernels.rows import as_rows, square_norms
from dask_mcsvm.solvers.row_block import RowBlock, as_block
from dask_mcsvm.solvers.standardized import CentredCsr, DenseStandardized, standardized_rows

#: Name of a task: a string, or a tuple that starts with one.
Key: TypeAlias = Any
Graph: TypeAlias = dict[Key, Any]


@sizeof.register(sp.csr_array)  # type: ignore[untyped-decorator]
def csr_bytes(X: sp.csr_array) -> int:
    """Dask knows CSR matrices only, and would take an array for 56 bytes and never spill it."""
    return int(X.data.nbytes + X.indices.nbytes + X.indptr.nbytes)


@sizeof.register((DenseStandardized, CentredCsr))  # type: ignore[untyped-decorator]
def standardized_bytes(rows: DenseStandardized | CentredCsr) -> int:
    """What they are made of."""
    return int(sizeof(rows.X))


@dataclass(frozen=True)
class Rows:
    """The training set as tasks: a graph and the key of each chunk's `RowBlock`."""

    graph: Graph
    keys: tuple[Key, ...]
    sizes: tuple[int, ...]
    n_features: int
    n_classes: int
    dtype: np.dtype[Any]
    tau: float

    @property
    def n(self) -> int:
        """Rows of all chunks."""
        return sum(self.sizes)

    def parts(self, count: int) -> list[range]:
        """Neighbouring chunks in so many parts of like numbers of rows, none without a chunk."""
        ends, chunks = np.cumsum([0, *self.sizes]), len(self.sizes)
        cuts = [0]
        for part in range(1, count):
            nearest = int(np.abs(ends - ends[-1] * part / count).argmin())
            cuts.append(min(max(nearest, cuts[-1] + 1), chunks - (count - part)))
        return [range(*pair) for pair in pairwise([*cuts, chunks])]


def row_blocks(
    X: Sequence[Delayed],
    y: Sequence[Delayed],
    C: Sequence[Delayed],
    *,
    sizes: Sequence[int],
    n_features: int,
    n_classes: int,
    dtype: npt.DTypeLike,
    tau: float,
    run: str,
    all_rows: bool = False,
    margins: Margins = EQUAL,
    columns: Standardization | None = None,
) -> Rows:
    """Build the tasks that turn row chunks into blocks; computes nothing.

    Parameters
    ----------
    X, y, C : sequences of Delayed, one per row chunk
        Rows (dense or any SciPy CSR), codes of the classes, and the cost of each row. Such as
        ``X.to_delayed().ravel()``.
    sizes : sequence of int
        Rows of each chunk; they number the rows. A chunk that turns out otherwise is an error.
    dtype : dtype
        Of the rows to be made: float32 or float64.
    tau : float
        Value of the constant feature.
    run : str
        Unique id of this fit, part of every task key.
    all_rows : bool
        Whether rows that cost 0 stay in their blocks.
    margins : Margins
        What mistakes cost.
    columns : Standardization, optional
        By which the rows are standardized.
    """
    graph, costs, scale = sources([*X, *y, *C]), ("margins", run), ("columns", run)
    if margins != EQUAL:
        graph[costs] = DataNode(costs, margins)
    if columns is not None:
        graph[scale] = DataNode(scale, columns)
    offsets = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).tolist()
    keys = []
    for c in range(len(sizes)):
        key = ("rows", run, c)
        graph[key] = Task(
            key, make_block, TaskRef(X[c].key), TaskRef(y[c].key), TaskRef(C[c].key),
            first=offsets[c], stop=offsets[c + 1], n_classes=n_classes, tau=tau,
            dtype=np.dtype(dtype), all_rows=all_rows,
            margins=EQUAL if margins == EQUAL else TaskRef(costs),
            columns=None if columns is None else TaskRef(scale),
        )  # fmt: skip
        keys.append(key)
    return Rows(
        graph, tuple(keys), tuple(sizes), n_features, n_classes, np.dtype(dtype), float(tau)
    )


def sources(delayed: Sequence[Delayed]) -> Graph:
    """The graphs of delayed objects as one dict; those of one collection share a graph."""
    graphs: dict[int, Mapping[Key, Any]] = {}
    for item in delayed:
        graph = item.__dask_graph__()
        graphs[id(graph)] = graph
    return {key: task for graph in graphs.values() for key, task in graph.items()}


# -- tasks -----------------------------------------------------------------------------------------


def make_block(
    X: Any,
    y: Any,
    C: Any,
    *,
    first: int,
    stop: int,
    n_classes: int,
    tau: float,
    dtype: np.dtype[Any],
    all_rows: bool = False,
    margins: Margins = EQUAL,
    columns: Standardization | None = None,
) -> RowBlock:
    """The rows first:stop of the whole set, which are this chunk; by default those that cost."""
    codes, n = np.asarray(y), stop - first
    if X.shape[0] != n or codes.shape != (n,):
        raise ValueError(
            f"the chunk of rows {first}:{stop} holds {X.shape[0]} rows and {codes.size} labels; "
            "did the source change? Fit again from the start."
        )
    if n and not 0 <= codes.min() <= codes.max() < n_classes:
        raise ValueError(
            f"the chunk of rows {first}:{stop} holds class codes {codes.min()} to {codes.max()}; "
            f"there are {n_classes} classes, 0 to {n_classes - 1}."
        )
    rows = standardized_rows(as_block(X, dtype), columns)
    square = square_norms(as_rows(rows), n, float(tau))
    if not np.isfinite(square).all():  # kernels take it for granted
        row = first + int(np.flatnonzero(~np.isfinite(square))[0])
        raise ValueError(
            f"row {row} of X (in the chunk of rows {first}:{stop}) holds NaN, infinity or a value "
            f"too large for {dtype}."
        )
    costs = np.broadcast_to(np.asarray(C, np.float64), (n,))
    block = RowBlock(
        np.arange(first, stop, dtype=np.int64),
        rows,
        codes.astype(np.int32, copy=False),
        costs,
        square,
        margins,
    )
    return block if all_rows or (costs > 0).all() else block.some(costs > 0)
