"""Early shrinking out of core (Alrajeh et al., Algorithm 2), and certified.

One pass over all chunks, then only the survivors. The paper's method ends there; by default a last
pass at weights that stand still computes the duality gap, and whatever it finds in the wrong place
comes back, until the gap is closed. docs/math.md, "Early shrinking", has the formulas.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np

from dask_mcsvm.data.row_source import Source
from dask_mcsvm.formulations import relative_gap
from dask_mcsvm.training.loop import COUNTED, Advance, Fit, Loop, OnEpoch, Run
from dask_mcsvm.training.table import BY_CHUNKS, EARLY_SHRINK, solver_at

from .budget import make_budget, returning_freed_memory
from .passes import EarlyShrink

if TYPE_CHECKING:
    from dask_mcsvm.storage import Checkpoint

#: The paper's stopping rule, and when the first look at everything is due.
DUAL_CHANGE = 0.01
#: Active rows are solved to this share of tol; the rest is left for what is not active.
SHARE = 0.3
#: A variable at a bound comes back if g is closer than this to where it would leave it, and rests
#: again when it is further off than that [AWAKE]. With 0.5 for both, covtype in a third of its
#: memory took six passes over all rows instead of four.
SLACK, DROP = 0.5, 1.0
#: Nor are they solved further than to this share of the last certified gap: which of them matter is
#: known no better than that.
REDUCTION = 0.01
#: Look at everything again after so many passes over the active rows.
PHASE_PASSES = 25


def train_early_shrink(
    source: Source,
    *,
    C: float = 1.0,
    tau: float | str = 1.0,
    tol: float = 1e-3,
    max_epochs: int = 1000,
    seed: int = 0,
    n_jobs: int = 1,
    memory_limit: int | None = None,
    scratch: str | os.PathLike[str] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: bool = False,
    options: Mapping[str, Any] | None = None,
    on_epoch: OnEpoch | None = None,
) -> Fit:
    """Train one-vs-rest on rows that are read chunk by chunk.

    Parameters
    ----------
    source : Source
        `DatasetSource` or `ArraySource`; may be several times larger than memory.
    C : float
        Cost of a unit of loss, times the weight of the row.
    tau : float or "radius"
        Value of the constant feature, 0.0 for none; "radius" is the largest norm of a row.
    tol : float
        Stop when the relative duality gap is at most this.
    max_epochs : int
        Stop after so many times n k class scores.
    seed, n_jobs : int
        The result depends on the seed and on `memory_limit`, not on the number of threads.
    memory_limit : int, optional
        Bytes beyond what the process holds already; None keeps all active rows in memory.
    scratch : str or path-like, optional
        Folder for the active rows, removed in the end; by default that of temporary files.
    checkpoint : str or path-like, optional
        Written after every pass.
    resume : bool
        Go on from the last finished pass in `checkpoint`, if there is one.
    options : mapping, optional
        ``certify`` (True): look at all rows until the gap is at most `tol`. False is the method of
        the paper: the gap is nan, and a change of the dual below 1% ends it. ``inner_passes``:
        passes over active rows while they are in memory; None: 20 if they all are, else 10.
    on_epoch : callable, optional
        Called with each record of the history; a true answer ends the fit, certified.

    Returns
    -------
    Fit
        Without alpha. Each record of its history is one pass: "pass" ("stream", "active" or
        "certify"), "active" and "active_rows" (shares of variables and rows), "loads" (how many
        times memory was filled), "rows_per_second", "seconds_left" (nan where nobody can know).

    Raises
    ------
    ValueError
        An option is unknown, or `memory_limit` is below what one chunk needs.
    OSError
        The scratch folder can not be written, or has no room left.
    DatasetFormatError
        A chunk can not be read.
    CheckpointError
        `resume` finds a fit of other rows or parameters, or another fit writes there.

    Examples
    --------
    >>> import numpy as np
    >>> from dask_mcsvm.training import ArraySource, train_early_shrink
    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(300, dtype=np.int32) % 3
    >>> X = np.eye(3)[y] + 0.3 * rng.normal(size=(300, 3))
    >>> source = ArraySource(X, y, np.ones(300), n_classes=3, block_rows=100)
    >>> fit = train_early_shrink(source, C=1.0, tol=1e-3)
    >>> fit.W.shape, bool(fit.gap <= 1e-3), [r["pass"] for r in fit.history][:2]
    ((4, 3), True, ['stream', 'active'])
    """
    from dask_mcsvm.storage import Checkpoint, Scratch  # zarr: imported when it is needed

    chosen = solver_at(EARLY_SHRINK, BY_CHUNKS).chosen(options)
    budget = make_budget(source, memory_limit, n_jobs)
    radius = source.radius() or 1.0 if tau == "radius" else float(tau)
    with ExitStack() as stack:
        if memory_limit is not None:
            stack.enter_context(returning_freed_memory())
        folder = stack.enter_context(Scratch(scratch))
        kept = None if checkpoint is None else stack.enter_context(Checkpoint(checkpoint))
        pool = stack.enter_context(ThreadPoolExecutor(n_jobs))
        passes = EarlyShrink(
            source, folder, pool, C, radius, seed, budget.load, chosen["inner_passes"]
        )
        run = ShrinkRun(passes, kept, tol, certifies=chosen["certify"])
        counted = run.resume() if resume else None
        return Loop(run, run.relative, tol, max_epochs, on_epoch, counted).fit()


class ShrinkRun(Run):
    """Which pass comes next, and when the run itself is settled; an epoch of it is one pass."""

    solver = EARLY_SHRINK
    looks_itself = True

    def __init__(
        self, passes: EarlyShrink, kept: Checkpoint | None, tol: float, *, certifies: bool
    ) -> None:
        self.state, self.kept, self.tol, self.certifies = passes, kept, tol, certifies
        self.scores = passes.n * passes.k
        self.save_every = None if kept is None else 1
        self.next = "stream"
        self.phase = 0  # certifying passes so far
        self.phase_passes = 0
        self.last_gap = 1.0

    @property
    def dual(self) -> float:  # type: ignore[override]
        return float(self.state.dual.sum())

    @staticmethod
    def relative(primal: float, dual: float) -> float:
        """The relative duality gap of one-vs-rest."""
        return relative_gap("one_vs_rest", primal, dual, math.nan)

    def advance(self) -> Advance:
        state, self.kind, before, work = self.state, self.next, self.dual, self.state.work
        began, bounds, rows = time.perf_counter(), None, state.n
        if self.kind == "stream":
            state.stream()
        elif self.kind == "certify":
            bounds = self.certify()
        else:
            rows = int(state.store.rows.sum())
            state.active_pass(DROP if self.certifies else -math.inf, self._enough())
            self.phase_passes += 1
        state.passes += 1
        self.epoch = state.passes
        self.pace = rows / max(time.perf_counter() - began, 1e-9)
        self.next = self._following(before)
        stop = "dual" if self.next == "settled" else None
        return Advance(state.work - work, bounds=bounds, stop=stop)

    def certify(self) -> tuple[float, float]:
        # Without a certificate only free variables stay, as in the paper.
        primal, dual = self.state.certify(SLACK if self.certifies else -math.inf)
        self.phase, self.phase_passes = self.phase + 1, 0
        self.last_gap = self.relative(primal, dual)
        return primal, dual

    def facts(self, history: Sequence[dict[str, Any]]) -> dict[str, Any]:
        state = self.state
        facts = {
            "active": state.active_variables() / self.scores,
            "pass": self.kind,
            "active_rows": float(state.store.rows.sum() / state.n),
            "active_gap": float(state.gaps.sum()),
            "loads": state.n_loads,
            "rows_per_second": self.pace,
        }
        goal = float(self._enough().sum())
        left = seconds_left([*history[:-1], history[-1] | facts], goal)
        return facts | {"seconds_left": left}

    def model(self) -> dict[str, Any]:
        state = self.state
        state.flush()
        W = np.ascontiguousarray(state.judged.T if self.certifies else state.W.T)
        return {"W": W, "alpha": None, "dual_density": state.dual_density()}

    def _enough(self) -> np.ndarray:
        """How much of the gap the active variables of each class may show."""
        dual = np.maximum(self.state.dual, self.state.dual.mean())
        share = max(SHARE * self.tol, REDUCTION * self.last_gap)
        return share * dual if self.certifies else np.zeros(dual.size)

    def _following(self, before: float) -> str:
        if self.kind != "active":
            return "active"
        least = 0.0 if self.phase else DUAL_CHANGE * self.dual
        settled = self.dual - before <= least or bool(np.all(self.state.gaps <= self._enough()))
        if self.certifies:
            return "certify" if settled or self.phase_passes >= PHASE_PASSES else "active"
        return "settled" if settled else "active"

    # -- checkpoint --------------------------------------------------------------------------------

    def save(self, counted: dict[str, Any]) -> None:
        """Make this moment the current generation of the checkpoint."""
        assert self.kept is not None
        own = {name: getattr(self, name) for name in _SAVED}
        self.state.save(self.kept, {"problem": self._problem(), **own, **counted})

    def resume(self) -> dict[str, Any] | None:
        """Go on where the checkpoint ends; what was counted, None where there is nothing."""
        from dask_mcsvm.storage import restoring  # zarr: imported when it is needed

        meta = None if self.kept is None else self.state.restore(self.kept, self._problem())
        if self.kept is None or meta is None:
            return None
        with restoring(self.kept.path):
            vars(self).update({name: meta[name] for name in _SAVED})
            self.epoch = self.state.passes
            return {name: meta[name] for name in COUNTED}

    def _problem(self) -> dict[str, Any]:
        """What a fit to be resumed must have in common with this one."""
        state = self.state
        return {
            "rows": state.source.identity(),
            "C": state.C,
            "tau": state.tau,
            "certify": self.certifies,
            "inner_passes": state.inner_passes,
        }


_SAVED = ("next", "phase", "phase_passes", "last_gap")


def seconds_left(history: Sequence[Mapping[str, Any]], goal: float) -> float:
    """Time to the end, if the gap of the active rows goes on falling as in the last two passes.

    That is the time until it is down to ``goal``, and the pass over all rows that follows. nan
    where the last two records are not of that kind, or the gap did not fall.

    Examples
    --------
    >>> history = [{"pass": "stream", "seconds": 4.0}]
    >>> history += [{"pass": "active", "seconds": 4.0 + t, "active_gap": 100.0 / 10**t}
    ...             for t in (1, 2)]
    >>> seconds_left(history, goal=0.01)
    6.0
    """
    if len(history) < 2 or not history[-2]["pass"] == history[-1]["pass"] == "active":
        return math.nan
    (gap0, gap1), (t0, t1) = ([r[key] for r in history[-2:]] for key in ("active_gap", "seconds"))
    if not 0 < gap1 < gap0 < math.inf or goal <= 0:
        return math.nan
    pace: float = math.log(gap0 / gap1) / (t1 - t0)
    again: float = history[0]["seconds"]
    return max(0.0, math.log(gap1 / goal) / pace) + again
