"""The nightly job on a cluster, killed in the middle and called again: the same bytes.

    python examples/nightly_on_cluster.py

`dask scheduler` and two `dask worker` are processes of their own. The job is killed after its first
checkpoint, and the second call goes on from there."""

import os
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from nightly import nightly  # the file beside this one
from sklearn.datasets import make_blobs

from dask_mcsvm import LinearMCSVC
from dask_mcsvm.storage import kind_of, write_dataset


def main(folder):
    X, y = make_blobs(3000, 12, centers=8, cluster_std=4.0, random_state=0)
    train, validation = f"{folder}/train.zarr", f"{folder}/validation.zarr"
    write_dataset(train, X[:2000] / 20, y[:2000], block_rows=500)
    write_dataset(validation, X[2000:] / 20, y[2000:])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        scheduler = "tcp://{}:{}".format(*free.getsockname())
    with ExitStack() as stack:
        worker = ["worker", scheduler, "--nthreads", "1", "--local-directory", folder]
        for command in (["scheduler", "--host", scheduler, "--no-dashboard"], worker, worker):
            line = [sys.executable, "-m", "dask", *command]
            started = subprocess.Popen(line, stderr=subprocess.DEVNULL, start_new_session=True)
            stack.callback(started.wait)
            stack.callback(os.killpg, started.pid, signal.SIGTERM)  # workers have children
        job = [sys.executable, __file__, train, validation, f"{folder}/night.zarr", scheduler]
        first = subprocess.run([*job, "dies"], check=False)
        print("the first call ended with", first.returncode, flush=True)
        subprocess.run(job, check=True)
    nightly(train, validation, f"{folder}/calm.zarr")  # here, without a cluster or a death
    night, calm = (LinearMCSVC.load(f"{folder}/{name}.zarr") for name in ("night", "calm"))
    print("same bytes:", night.coef_.tobytes() == calm.coef_.tobytes())


def killed(record):
    if any(kind_of(state) == "checkpoint" for state in Path(sys.argv[3]).parent.glob("*.state")):
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__" and len(sys.argv) > 4:
    nightly(*sys.argv[1:5], callbacks=(killed,) if sys.argv[5:] else ())
elif __name__ == "__main__":
    with TemporaryDirectory() as folder:
        main(folder)
