"""Epochs of LaRank over rows in memory, until they are enough or the gap is closed."""

import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dask_mcsvm.estimators._larank_settings import Settings
from dask_mcsvm.solvers.larank import Examples, LaRank, settled_cost

#: An estimate within this factor of what is allowed is worth a certificate.
NEAR = 1.5


@dataclass(frozen=True)
class Outcome:
    """What the epochs came to; primal and gap are nan where nothing was certified."""

    primal: float
    dual: float
    n_iter: int
    stop: str
    history: list[dict[str, Any]]

    @property
    def gap(self) -> float:
        """The relative duality gap."""
        return (self.primal - self.dual) / self.primal if self.primal > 0 else self.primal


def costs_of(C: float, weights: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """C_i of each row (or class), whose sum the objective must be able to hold."""
    with np.errstate(over="ignore"):
        costs = C * weights
        total = float(costs.sum())
    if not np.isfinite(total):
        raise ValueError(
            f"C={C:g} times the weights overflows float64; lower C, or divide sample_weight and "
            "class_weight by their mean."
        )
    return costs


def order_of(n: int, shuffle: bool, seed: int, *place: int) -> npt.NDArray[np.int64]:
    """The order of n rows; `place` says which visit of which rows it is."""
    if not shuffle:
        return np.arange(n)
    return np.random.default_rng([seed, *place]).permutation(n)


class Epochs:
    """The rule by which epochs end, and their history; rows may be in memory or on a cluster."""

    def __init__(self, settings: Settings, total_cost: float, on_epoch: Any) -> None:
        self.settings, self.total_cost, self.on_epoch = settings, total_cost, on_epoch
        self.begun = time.perf_counter()
        self.history: list[dict[str, Any]] = []
        self.primal = float("nan")

    def tau(self, run: LaRank) -> float:
        """The violation to leave alone in the next epoch."""
        return self.settings.tau(max(run.dual, 0.0), self.total_cost)

    def is_near(self, primal: float, dual: float) -> bool:
        """Whether an estimated primal is worth a certificate."""
        return primal - dual <= NEAR * self.settings.allowed_gap(dual)

    def is_done(self, primal: float, dual: float) -> bool:
        """Whether a certified gap is small enough."""
        tol = self.settings.tol
        if not (math.isfinite(primal) and math.isfinite(dual)):
            return False
        return primal - dual <= (self.settings.C if tol is None else tol * primal)

    def record(self, run: LaRank, primal: float, dual: float, certified: bool) -> bool:
        """Note an epoch; returns whether a callback asks to stop."""
        self.primal = primal if certified else float("nan")
        counters = run.counters
        entry = {
            "epoch": len(self.history) + 1,
            "seconds": time.perf_counter() - self.begun,
            "primal": primal,
            "dual": dual,
            "gap": (primal - dual) / primal if primal > 0 else primal,
            "certified": certified,
            "support": run.n_patterns,
            "kernel_evaluations": counters["kernel_evaluations"],
            "arg_max": counters["arg_max"],
        }
        self.history.append(entry)
        return bool(self.on_epoch(dict(entry)))

    def certify_last(self, primal: float, dual: float) -> None:
        """Replace the estimates of the last record: a callback ended the fit."""
        self.primal, gap = primal, (primal - dual) / primal
        self.history[-1].update(primal=primal, dual=dual, gap=gap, certified=True)

    def outcome(self, stop: str) -> Outcome:
        last = self.history[-1]
        return Outcome(self.primal, last["dual"], len(self.history), stop, self.history)


def run_epochs(run: LaRank, examples: Examples, settings: Settings, on_epoch: Any) -> Outcome:
    """Visit the examples again and again, as the settings say."""
    epochs = Epochs(settings, float(examples.C.sum()), on_epoch)
    again = settings.max_epochs > 1
    for epoch in range(settings.max_epochs):
        run.tau = epochs.tau(run)
        order = order_of(examples.y.size, settings.shuffle, settings.seed, epoch)
        run.process(examples, order, keep_rows=again)
        if not settings.by_gap:
            dual = run.dual + settled_cost(examples)
            if epochs.record(run, float("nan"), dual, False):
                return epochs.outcome("callback")
            continue
        primal, dual = run.objective(examples, exact=False)
        certified = epochs.is_near(primal, dual) or epoch + 1 == settings.max_epochs
        if certified:
            primal, dual = run.objective(examples)
        stopped = epochs.record(run, primal, dual, certified)
        if stopped and not certified:
            epochs.certify_last(*run.objective(examples))
        if certified and epochs.is_done(primal, dual):
            return epochs.outcome("gap")
        if stopped:
            return epochs.outcome("callback")
    return epochs.outcome("max_epochs" if settings.by_gap else "epochs")
