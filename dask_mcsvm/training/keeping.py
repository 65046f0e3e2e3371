"""Where a fit on Dask keeps its state while it runs, and what of it may serve another fit."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from dask_mcsvm.storage import Scratch

from .dask_plan import DaskPlan
from .dask_problem import DaskProblem, decisive
from .runner import Runner


@dataclass(frozen=True)
class Keeping:
    """Where state is written, and whether to go on from what is there.

    ``carry`` is a folder that the fits of a path over C share: each begins with what the one before
    left there.
    """

    checkpoint: str | None
    resume: bool
    scratch: str | None
    memory_limit: int | None = None
    carry: str | None = None

    def place(self, runner: Runner, stack: ExitStack) -> str:
        """The folder that workers write state to."""
        given = self.checkpoint or self.carry
        return given or stack.enter_context(state_folder(self.scratch, runner))


@contextmanager
def state_folder(scratch: str | None, runner: Runner) -> Iterator[str]:
    """A folder for state, and for nothing else, until the block ends."""
    if scratch is None and not runner.is_local:
        raise ValueError(
            "the workers are on other machines, and a fit keeps its state in files; pass "
            'scratch="/a/folder/all/workers/see" (or checkpoint=...).'
        )
    if scratch is not None and not os.path.isdir(scratch):
        raise ValueError(
            f"scratch={scratch!r} is not a folder here; make one that all workers see, or leave it "
            "out."
        )
    with Scratch(scratch) as folder:  # named after this process, the next one removes what it left
        yield f"{folder.path}/state"


def ratio_of_costs(meta: dict[str, Any], problem: DaskProblem, plan: DaskPlan) -> float | None:
    """How many times its C the present one is, if a state differs by nothing else; else None."""
    was, now = dict(meta["identity"]), problem.identity()
    before, after = np.array(was.pop("factors")), np.array(now.pop("factors"))
    if was != now or before.shape != after.shape:
        return None
    if decisive(meta["plan"]) != decisive(plan.to_json()):
        return None
    ratio = float(after[0] / before[0])
    return ratio if np.allclose(before * ratio, after, rtol=1e-12) else None
