"""Block minimization out of core (Yu et al. 2012): all formulations, rows larger than memory.

As many chunks as fit in memory are a block, drawn at random. A block is solved for a few passes
with all others held fixed, then comes the next; passes over all of them go on until the duality
gap is closed. It is `shards` with one lane [SHARD], without a task graph, in bounded memory.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dask_mcsvm.formulations import FORMULATIONS, relative_gap

from ._block_state import WAITING_SHARE, BlockMinimization, ShardStore, blocks_that_fit
from ._budget import chunk_bytes, make_block_budget, returning_freed_memory
from .block_source import DatasetSource, Source
from .problem import Fit, OnEpoch, counted_epochs, is_over

if TYPE_CHECKING:
    from dask_mcsvm.storage import Checkpoint

#: Passes over a block while it is in memory: half of the passes over the disk that one takes, for
#: about the same work (news20_bydate in two blocks: 9 passes and 19 epochs; 19 and 20 with one).
INNER_PASSES = 2
#: Bytes of a chunk of a dataset with its variables: blocks are drawn from many chunks, so that no
#: two passes have the same. With one chunk to a block (147,000 rows of file names, 58 classes, nine
#: blocks, gap 1e-2) a fit takes 34 epochs; with two 16, with four to sixteen 14, in memory 6.
CHUNK_BYTES = 2 << 20
#: Certify when the gap that visits saw is within this factor of tol, and after so many passes.
NEAR, LONG = 1.2, 16


def check_block_options(options: Mapping[str, Any] | None) -> int:
    """The number of inner passes; other names and values are refused."""
    given = dict(options or {})
    for name in given:
        if name not in ("inner_passes", "lanes"):
            raise ValueError(
                f"solver_options has {name!r}, which solver='shards' within a memory_limit does "
                "not know; use 'inner_passes', or leave memory_limit out."
            )
    passes = given.get("inner_passes", INNER_PASSES)
    whole = isinstance(passes, int | np.integer) and not isinstance(passes, bool)
    if not whole or passes < 1:
        raise ValueError(
            f"solver_options['inner_passes'] is {passes!r}; use an integer of at least 1."
        )
    return int(passes)


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
    >>> from dask_mcsvm.training.block_minimization import train_block_minimization
    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(300, dtype=np.int32) % 3
    >>> X = np.eye(3)[y] + 0.3 * rng.normal(size=(300, 3))
    >>> source = ArraySource(X, y, np.ones(300), n_classes=3, block_rows=100)
    >>> fit = train_block_minimization(source, formulation="crammer_singer", tol=1e-3)
    >>> fit.W.shape, bool(fit.gap <= 1e-3)
    ((4, 3), True)
    """
    from dask_mcsvm.storage import Checkpoint, Scratch  # zarr: imported when it is needed

    inner_passes = check_block_options(options)
    budget = make_block_budget(source, memory_limit, formulation)
    with ExitStack() as stack:
        if memory_limit is not None:
            stack.enter_context(returning_freed_memory())
        folder = stack.enter_context(Scratch(scratch))
        kept = None if checkpoint is None else stack.enter_context(Checkpoint(checkpoint))
        store = ShardStore(folder, WAITING_SHARE * budget.load)
        sizes, room = chunk_bytes(source, formulation), (1 - WAITING_SHARE) * budget.load
        run = BlockMinimization(
            source, store, formulation, C, float(tau), seed, inner_passes,
            partial(blocks_that_fit, sizes=sizes, budget=room),
        )  # fmt: skip
        return _Loop(run, kept, tol, max_epochs, on_epoch).run(resume)


class _Loop:
    """Pass after pass, until a certificate says that it is enough."""

    def __init__(
        self,
        run: BlockMinimization,
        kept: Checkpoint | None,
        tol: float,
        max_epochs: int,
        on_epoch: OnEpoch | None,
    ) -> None:
        self.state, self.kept = run, kept
        self.tol, self.max_epochs, self.on_epoch = tol, max_epochs, on_epoch
        self.history: list[dict[str, Any]] = []
        self.work, self.looked, self.seconds = 0, 0, 0.0
        self.blindness = 1.0  # the gap over its estimate at the last certificate

    @property
    def epochs(self) -> float:
        return self.work / (self.state.n * self.state.k)

    def run(self, resume: bool) -> Fit:
        started = time.perf_counter()
        if not (resume and self._restore()):
            self.state.start()
        begun = started - self.seconds
        stop = self._done() if self.history else None
        while stop is None:
            stop = self._pass(begun)
        last, state = self.history[-1], self.state
        if not last["certified"]:
            self._certify_into(last)
        return Fit(
            W=state.judged,
            alpha=None,
            primal=last["primal"],
            dual=last["dual"],
            gap=last["gap"],
            history=self.history,
            n_iter=counted_epochs(self.epochs, self.max_epochs),
            converged=last["gap"] <= self.tol,
            stop=stop,
            dual_density=state.density,
        )

    def _pass(self, begun: float) -> str | None:
        state, started = self.state, time.perf_counter()
        tally = state.sweep()
        now = time.perf_counter()
        self.work += max(1, tally.work)
        dual = state.weights.dual
        record: dict[str, Any] = {
            "epoch": self.epochs,
            "seconds": now - begun,
            "primal": dual + tally.gap,
            "dual": dual,
            "gap": self._relative(dual + tally.gap, dual),
            "certified": False,
            "active": tally.active,
            "violation": tally.violation,
            "pass": "blocks",
            "loads": state.n_loads,
            "rows_per_second": state.n / max(now - started, 1e-9),
        }
        if self._time_to_look(seen := record["gap"]):
            self._certify_into(record)
            self.blindness = max(1.0, record["gap"] / seen) if seen > 0 else 1.0
            record["seconds"] = time.perf_counter() - begun
        self.history.append(record)
        self.seconds = record["seconds"]
        self._save()
        if self.on_epoch is not None and self.on_epoch(dict(record)):
            return "callback"
        return self._done()

    def _certify_into(self, record: dict[str, Any]) -> None:
        primal, dual = self.state.certify()
        self.looked = self.state.passes
        record.update(primal=primal, dual=dual, gap=self._relative(primal, dual), certified=True)

    def _time_to_look(self, estimate: float) -> bool:
        """A certificate reads all rows once more, about a third of a pass."""
        waited = self.state.passes - self.looked
        is_near = self.blindness * estimate <= NEAR * self.tol
        return self.tol > 0 and (is_near or waited >= LONG)

    def _done(self) -> str | None:
        last = self.history[-1]
        if last["certified"] and last["gap"] <= self.tol and self.tol > 0:
            return "gap"
        # To the nearest: visits by preference are n k scores on average, not each time.
        return "max_epochs" if is_over(self.epochs, self.max_epochs) else None

    def _relative(self, primal: float, dual: float) -> float:
        state = self.state
        at_zero = FORMULATIONS[state.formulation].loss_at_zero(state.k) * state.cost
        return float(relative_gap(state.formulation, primal, dual, at_zero))

    # -- checkpoint --------------------------------------------------------------------------------

    def _save(self) -> None:
        if self.kept is not None:
            meta = {name: getattr(self, name) for name in _SAVED}
            self.state.save(self.kept, {"problem": self._problem(), **meta})

    def _restore(self) -> bool:
        """Go on where the checkpoint ends; False where there is none."""
        from dask_mcsvm.storage import restoring  # zarr: imported when it is needed

        meta = None if self.kept is None else self.state.restore(self.kept, self._problem())
        if self.kept is None or meta is None:
            return False
        with restoring(self.kept.path):
            vars(self).update({name: meta[name] for name in _SAVED})
        return True

    def _problem(self) -> dict[str, Any]:
        """What a fit to be resumed must have in common with this one."""
        state = self.state
        return {
            "rows": state.source.identity(),
            "formulation": state.formulation,
            "C": state.C,
            "tau": state.tau,
            "inner_passes": state.inner_passes,
        }


_SAVED = ("history", "work", "looked", "seconds", "blindness")
