"""What a fit on Dask solves, and whether a checkpoint is of the same problem."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dask_mcsvm.errors import CheckpointError
from dask_mcsvm.formulations import FORMULATIONS, relative_gap

from .dask_plan import DaskPlan
from .lazy_source import LazySource


@dataclass(frozen=True)
class DaskProblem:
    """What is to be solved: chunks of rows, and what each costs."""

    source: LazySource
    factors: np.ndarray  # (k,) C times the class weight
    formulation: str
    tau: float
    dtype: np.dtype[Any]

    @property
    def primal_at_zero(self) -> float:
        """P(0), which the relative gap of Lee-Lin-Wahba is measured by."""
        total = float(self.factors @ self.source.class_totals)
        return FORMULATIONS[self.formulation].loss_at_zero(self.factors.size) * total

    def relative(self, primal: float, dual: float) -> float:
        """The relative duality gap of this problem's formulation."""
        return float(relative_gap(self.formulation, primal, dual, self.primal_at_zero))

    def identity(self) -> dict[str, Any]:
        """What a checkpoint must have been written for."""
        source = self.source
        return {
            "rows": list(source.sizes),
            "columns": source.n_features,
            "dtype": self.dtype.name,
            "checksums": [fact.checksum for fact in source.facts],
            "formulation": self.formulation,
            "tau": self.tau,
            "factors": self.factors.tolist(),
        }


def refuse_other(
    meta: dict[str, Any], problem: DaskProblem, plan: DaskPlan, seed: int | None
) -> None:
    """An error if a checkpoint is of other data or other parameters."""
    was, now = meta["identity"], problem.identity()
    for name in ("rows", "columns", "checksums"):
        if was[name] != now[name]:
            raise CheckpointError(
                f"the checkpoint was written for other data ({name} differ); pass the same X, y "
                "and sample_weight, or another checkpoint path."
            )
    for name in ("formulation", "dtype", "tau", "factors"):
        if was[name] != now[name]:
            raise CheckpointError(
                f"the checkpoint was written with another {name} ({was[name]!r:.60}); pass the "
                "same parameters, or another checkpoint path."
            )
    if decisive(meta["plan"]) != decisive(plan.to_json()):
        raise CheckpointError(
            f"the checkpoint was written by another plan (solver {meta['plan']['solver']!r}); pass "
            "the same solver and solver_options, or another checkpoint path."
        )
    if seed is not None and seed != meta["seed"]:
        raise CheckpointError(
            "the checkpoint was written with another random_state; pass the same, or none."
        )


def decisive(plan: dict[str, Any]) -> dict[str, Any]:
    """What of a plan, as it is or out of JSON, changes the steps."""
    groups = [list(group) for group in plan["groups"]]
    # Checkpoints of plans that had one solver do not name a second.
    return {"then": None, **plan, "groups": groups, "save_every": None}
