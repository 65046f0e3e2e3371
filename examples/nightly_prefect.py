"""The nightly job as a flow of Prefect: retried after a failure, it goes on from its checkpoint.

    pip install prefect
    python examples/nightly_prefect.py

`nightly_flow.serve(cron="17 2 * * *", parameters={...})` runs it every night; `scheduler` is the
address of a Dask cluster, whose workers share the folder of the stores.
"""

from importlib.util import find_spec
from tempfile import TemporaryDirectory

from nightly import nightly  # the file beside this one
from sklearn.datasets import make_blobs

from dask_mcsvm.storage import write_dataset

if find_spec("prefect") is None:
    raise SystemExit(print("this example needs Prefect; type: pip install prefect"))

from prefect import flow, task

TRIES = []  # of this process


@task(retries=2, retry_delay_seconds=1, log_prints=True)
def train_and_swap(train, validation, model, scheduler=None, fails_at=None):
    """The whole job is one task: a checkpoint, and not a result of Prefect, is what it keeps."""
    TRIES.append(train)

    def after_epoch(record):
        if len(TRIES) == 1 and fails_at is not None and record["epoch"] >= fails_at:
            raise ConnectionError("a service went away")

    return nightly(train, validation, model, scheduler, callbacks=(after_epoch,))


@flow
def nightly_flow(train, validation, model, scheduler=None, fails_at=None):
    return train_and_swap(train, validation, model, scheduler, fails_at)


if __name__ == "__main__":
    X, y = make_blobs(1500, 10, centers=6, cluster_std=5.0, random_state=0)
    with TemporaryDirectory() as folder:
        train, validation = f"{folder}/train.zarr", f"{folder}/validation.zarr"
        write_dataset(train, X[:1000] / 20, y[:1000])
        write_dataset(validation, X[1000:] / 20, y[1000:])
        swapped = nightly_flow(train, validation, f"{folder}/model.zarr", fails_at=12)
    print(f"{len(TRIES)} tries; the new model is in place: {swapped}")
