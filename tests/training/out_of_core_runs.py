"""Small problems on disk for the tests of this folder, and fits that end as tests want them to."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import scipy.sparse as sp

import dask_mcsvm
from dask_mcsvm.training import ArraySource, train_early_shrink

#: A memory limit with which the problems here take several loads.
LITTLE = 40_000


def rows_and_labels(*, n=600, d=8, k=3, csr=False, dtype="float64", seed=0):
    """Overlapping clusters: variables at both bounds and between, also at the optimum."""
    rng = np.random.default_rng(seed)
    y = rng.integers(k, size=n).astype(np.int32)
    X = rng.normal(size=(k, d))[y] + rng.normal(size=(n, d))
    X *= rng.random((n, d)) < 0.6
    X = X.astype(dtype)
    return (sp.csr_array(X) if csr else X), y


def source_of(*, block_rows=100, weight=None, **options):
    X, y = rows_and_labels(**options)
    weight = np.ones(y.size) if weight is None else weight
    return ArraySource(X, y, weight, int(y.max()) + 1, block_rows)


class KilledError(Exception):
    """Stands for the end of a process, where a test needs what is on disk only."""


def fit_until(source, passes, **options):
    """A fit that dies right after so many passes."""
    seen = []

    def on_epoch(record):
        seen.append(record)
        if len(seen) == passes:
            raise KilledError

    try:
        train_early_shrink(source, on_epoch=on_epoch, **options)
    except KilledError:
        return
    raise AssertionError(f"it ended after {len(seen)} passes")


class DeadlySource:
    """A source whose process is killed by the kernel at one of its reads."""

    def __init__(self, source, reads):
        self._source, self._left = source, reads

    def __getattr__(self, name):
        return getattr(self._source, name)

    def read(self, b):
        self._left -= 1
        if self._left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return self._source.read(b)


def run_child(code, **values):
    """Run code in a fresh interpreter that knows `values` and this module; the finished process."""
    head = (
        f"import json, sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        f"values = json.loads({json.dumps(json.dumps(values))})\n"
        "from out_of_core_runs import *\n"
    )
    package = str(Path(dask_mcsvm.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": package}
    return subprocess.run(
        [sys.executable, "-c", head + code],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
