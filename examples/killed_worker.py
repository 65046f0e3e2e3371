"""On a cluster, with a worker that dies in the middle: the fit goes on, to the same bytes.

python examples/killed_worker.py
"""

import logging
import os
import signal
import tempfile
from pathlib import Path

import numpy as np
from dask.distributed import Client, LocalCluster
from sklearn.datasets import load_digits
from sklearn.preprocessing import normalize

from dask_mcsvm import LinearMCSVC
from dask_mcsvm.storage import write_dataset


def main() -> None:
    """Fit twice: undisturbed, and with one of two worker processes killed after two epochs."""
    X, y = load_digits(return_X_y=True)
    settings = {"formulation": "ww", "solver": "shards", "C": 0.1, "tol": 1e-2, "random_state": 0}
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            dashboard_address=None,
            local_directory=folder,
            silence_logs=logging.CRITICAL,  # distributed warns of the death, at length
        ) as cluster,
        Client(cluster) as client,
    ):
        # On disk, so that whoever takes over can read the rows again.
        path = str(Path(folder, "digits.zarr"))
        write_dataset(path, normalize(X), y, block_rows=300)

        calm = LinearMCSVC(**settings).fit(path)
        print(f"undisturbed:  {calm.n_iter_} epochs, relative gap {calm.gap_:.1e}")

        pids = client.run(os.getpid)

        def strike(state: dict) -> None:
            if state["epoch"] >= 2 and pids:
                os.kill(pids.popitem()[1], signal.SIGKILL)
                pids.clear()
                print("a worker was killed")

        model = LinearMCSVC(**settings, callbacks=[strike]).fit(path)
        print(f"with a death: {model.n_iter_} epochs, relative gap {model.gap_:.1e}")
        print("same bytes:  ", np.array_equal(model.coef_, calm.coef_))


if __name__ == "__main__":  # worker processes import this file
    main()
