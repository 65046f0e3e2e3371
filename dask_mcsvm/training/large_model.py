"""Where W stays when it is too large for the client: in files that workers write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dask_mcsvm.graphs.model_files import file_widths, read_weights, write_weights
from dask_mcsvm.graphs.state import Graph, Key
from dask_mcsvm.storage import absolute_path, remove_parts

from .dask_plan import WHOLE_MODEL, DaskPlan
from .runner import Runner


def folder_for(
    plan: DaskPlan, *, scratch: str | None, checkpoint: str | None, limit: int | None
) -> str | None:
    """The folder for W if it is cut by classes and larger than the limit; else None.

    Raises
    ------
    ValueError
        It has to stay in files, and there is no folder that will be there after the fit.
    """
    limit = WHOLE_MODEL if limit is None else limit
    if not plan.groups or plan.model_bytes <= limit:
        return None
    folder = scratch or checkpoint
    if folder is None:
        raise ValueError(
            f"W takes {plan.model_bytes:,} bytes, more than the {limit:,} that may be held at once "
            '(memory_limit), and stays in files; pass scratch="/a/folder/all/workers/see" to keep '
            f"them in, or memory_limit={plan.model_bytes} to have coef_ in memory."
        )
    return folder


def keep_in_files(
    groups: Sequence[tuple[npt.NDArray[np.intp], Key]],
    pending: Graph,
    plan: DaskPlan,
    runner: Runner,
    folder: str,
    run: str,
) -> Any:
    """W (d + 1, k) as a Dask array that reads what the workers have written; whole or not at all.

    The client sees none of it.
    """
    path = f"{absolute_path(folder)}/weights-{run}"
    widths = file_widths(plan.k, len(plan.groups))
    graph, keys = write_weights(groups, widths, path, run)
    try:
        runner.run({**pending, **graph}, [], keys)
    except BaseException:
        remove_parts(path)
        raise
    return read_weights(path, widths, plan.d + 1, np.dtype(plan.dtype))
