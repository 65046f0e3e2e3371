"""A run of LaRank over rows in memory: an epoch is one visit of every row."""

from __future__ import annotations

from collections.abc import Sequence
from math import nan
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dask_mcsvm.formulations import relative_gap
from dask_mcsvm.training.loop import Advance, Fit, Loop, OnEpoch, Run

if TYPE_CHECKING:
    from dask_mcsvm.solvers.larank import Aim, LaRank


def relative(primal: float, dual: float) -> float:
    """The relative duality gap of LaRank's formulation."""
    return float(relative_gap("crammer_singer", primal, dual, nan))


def order_of(n: int, shuffle: bool, seed: int, *place: int) -> npt.NDArray[np.int64]:
    """The order of n rows; `place` says which visit of which rows it is."""
    if not shuffle:
        return np.arange(n)
    return np.random.default_rng([seed, *place]).permutation(n)


def train_larank(
    larank: LaRank,
    examples: Any,
    aim: Aim,
    *,
    shuffle: bool,
    max_epochs: int,
    on_epoch: OnEpoch | None = None,
) -> Fit:
    """Visit the examples again and again; `larank` is changed in place.

    The `Fit` has neither W nor alpha.
    """
    run = LaRankRun(larank, examples, aim, shuffle, again=max_epochs > 1)
    return Loop(run, relative, aim.tol, max_epochs, on_epoch).fit()


class LaRankRun(Run):
    """Epochs over rows in memory."""

    solver = "larank"
    scores = 1  # an epoch is a pass, whatever it costs

    def __init__(
        self, larank: LaRank, examples: Any, aim: Aim, shuffle: bool, *, again: bool
    ) -> None:
        self.larank, self.examples, self.aim = larank, examples, aim
        self.shuffle, self.again = shuffle, again
        self.certifies, self.absolute = aim.by_gap, aim.absolute
        self.dual = larank.dual

    def advance(self) -> Advance:
        larank, examples = self.larank, self.examples
        larank.tau = self.aim.tau(larank.dual)
        order = order_of(examples.y.size, self.shuffle, larank.seed, self.epoch)
        larank.process(examples, order, keep_rows=self.again)
        self.epoch, gap = self.epoch + 1, nan
        if self.aim.by_gap:
            primal, self.dual = larank.objective(examples, exact=False)
            gap = primal - self.dual
        else:
            self.dual = larank.dual + larank.other_losses(examples, exact=False)[1]
        return Advance(1, gap)

    def certify(self) -> tuple[float, float]:
        primal, self.dual = self.larank.objective(self.examples)
        return primal, self.dual

    def facts(self, history: Sequence[dict[str, Any]]) -> dict[str, Any]:
        del history
        counters = self.larank.counters
        names = ("kernel_evaluations", "arg_max")
        return {"support": self.larank.n_patterns} | {name: counters[name] for name in names}

    def model(self) -> dict[str, Any]:
        return {"W": None, "alpha": None, "dual_density": nan}
