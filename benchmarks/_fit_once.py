"""A fresh process that fits once and prints how much memory that took.

Peak of the fit minus what is in use after imports and compilation. Rows are counted, in the form
each side keeps them; reading and unpacking their file is not, where the peak can be set back
(Linux).
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _data import Dataset, load_dataset, warm_up_rows
from _sides import MAX_EPOCHS, C, Liblinear
from harness.measure import forget_peak, resident_bytes
from threadpoolctl import threadpool_limits

from dask_mcsvm import LinearMCSVC


def ready_liblinear(data: Dataset, epsilon: float, **_: Any) -> Callable[[], Any]:
    """A call that trains with LIBLINEAR; it holds LIBLINEAR's copy of the rows, not ours."""
    liblinear = Liblinear(data)
    return lambda: liblinear.run(epsilon)


def ready_ours(data: Dataset, tol: float, patience: float, **_: Any) -> Callable[[], Any]:
    """A call that fits as a user would: the estimator, checks of the input included."""
    end = time.perf_counter() + patience
    model = LinearMCSVC(
        C=C,
        tol=tol,
        max_epochs=MAX_EPOCHS,
        fit_intercept=False,
        n_jobs=1,
        callbacks=(lambda record: time.perf_counter() > end,),
        random_state=0,
    )
    return lambda: model.fit(data.X, data.y)


READY = {"liblinear": ready_liblinear, "ours": ready_ours}


def main(job: dict[str, Any]) -> dict[str, Any]:
    ready = READY[job["side"]]
    few = warm_up_rows(job["k"], is_sparse=job["is_sparse"])
    ready(few, epsilon=0.1, tol=1e-2, patience=10.0)()
    forget_peak()
    before = resident_bytes()
    folder = Path(job["folder"]) if job["folder"] else None
    fit = ready(
        load_dataset(job["name"], folder, job["size"]),
        epsilon=job["epsilon"],
        tol=job["tol"],
        patience=job["patience"],
    )
    was_reset = forget_peak()
    fit()
    return {"bytes": resident_bytes(peak=True) - before, "import": before, "file_apart": was_reset}


if __name__ == "__main__":
    with threadpool_limits(1):
        print(json.dumps(main(json.loads(sys.argv[1]))))
