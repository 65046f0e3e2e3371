"""Block minimization out of core (Yu et al. 2012): all formulations, rows larger than memory.

As many chunks as fit in memory are a block, drawn at random. A block is solved for a few passes
with all others held fixed, then comes the next; passes over all of them go on until the duality
gap is closed. It is `shards` with one lane [SHARD], without a task graph, in bounded memory.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

from dask_mcsvm.data.row_source import DatasetSource, Source
from dask_mcsvm.training.loop import Fit, Loop, OnEpoch
from dask_mcsvm.training.table import BY_CHUNKS, solver_at

from .block_state import WAITING_SHARE, BlockMinimization, ShardStore, blocks_that_fit
from .budget import chunk_bytes, make_block_budget, returning_freed_memory

#: Bytes of a chunk of a dataset with its variables: blocks are drawn from many chunks, so that no
#: two passes have the same. With one chunk to a block (147,000 rows of file names, 58 classes, nine
#: blocks, gap 1e-2) a fit takes 34 epochs; with two 16, with four to sixteen 14, in memory 6.
CHUNK_BYTES = 2 << 20


def cut_to_chunks(source: DatasetSource, formulation: str) -> DatasetSource:
    """The source in chunks as small as block minimization likes them, however it was written."""
    return source.cut(chunk_bytes(source, formulation), CHUNK_BYTES)


def train_block_minimization(
    source: Source,
    *,
    formulation: str,
    C: float = 1.0,
    tau: float = 1.0,
    tol: float = 1e-3,
    max_epochs: int = 1000,
    seed: int = 0,
    memory_limit: int | None = None,
    scratch: str | os.PathLike[str] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: bool = False,
    options: Mapping[str, Any] | None = None,
    on_epoch: OnEpoch | None = None,
) -> Fit:
    """Train on rows that are read chunk by chunk.

    Parameters
    ----------
    source : Source
        `DatasetSource` or `ArraySource`; may be several times larger than memory.
    formulation : str
        The long name of one of the four.
    C : float
        Cost of a unit of loss, times the weight of the row.
    tau : float
        Value of the constant feature, 0.0 for none.
    tol : float
        Stop when the relative duality gap is at most this.
    max_epochs : int
        Stop after so many times n k class scores.
    seed : int
        The result depends on it and on `memory_limit`.
    memory_limit : int, optional
        Bytes beyond what the process holds already. Dual variables that do not fit go to
        `scratch`; None keeps all rows in memory.
    scratch : str or path-like, optional
        Folder for them, removed in the end; by default that of temporary files.
    checkpoint : str or path-like, optional
        Written after every pass.
    resume : bool
        Go on from the last finished pass in `checkpoint`, if there is one.
    options : mapping, optional
        ``inner_passes`` (2): passes over a block while it is in memory.
    on_epoch : callable, optional
        Called with each record of the history; a true answer ends the fit, certified.

    Returns
    -------
    Fit
        Without alpha. Each record of its history is one pass over all chunks, in "loads" blocks.

    Raises
    ------
    ValueError, OSError, DatasetFormatError, CheckpointError
        As `train_early_shrink`.

    Examples
    --------
    >>> import numpy as np
    >>> from dask_mcsvm.training import ArraySource
    >>> from dask_mcsvm.training.runs.block_minimization import train_block_minimization
    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(300, dtype=np.int32) % 3
    >>> X = np.eye(3)[y] + 0.3 * rng.normal(size=(300, 3))
    >>> source = ArraySource(X, y, np.ones(300), n_classes=3, block_rows=100)
    >>> fit = train_block_minimization(source, formulation="crammer_singer", tol=1e-3)
    >>> fit.W.shape, bool(fit.gap <= 1e-3)
    ((4, 3), True)
    """
    from dask_mcsvm.storage import Checkpoint, Scratch  # zarr: imported when it is needed

    inner_passes = solver_at("shards", BY_CHUNKS).chosen(options)["inner_passes"]
    budget = make_block_budget(source, memory_limit, formulation)
    with ExitStack() as stack:
        if memory_limit is not None:
            stack.enter_context(returning_freed_memory())
        folder = stack.enter_context(Scratch(scratch))
        kept = None if checkpoint is None else stack.enter_context(Checkpoint(checkpoint))
        store = ShardStore(folder, WAITING_SHARE * budget.load)
        sizes, room = chunk_bytes(source, formulation), (1 - WAITING_SHARE) * budget.load
        run = BlockMinimization(
            source, store, kept, formulation, C, float(tau), seed, inner_passes,
            partial(blocks_that_fit, sizes=sizes, budget=room),
        )  # fmt: skip
        counted = run.resume() if resume else None
        return Loop(run, run.relative, tol, max_epochs, on_epoch, counted).fit()
