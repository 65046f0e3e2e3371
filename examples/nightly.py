"""A nightly job: fit from a Zarr store, and replace the model only if the new one is no worse.

    python examples/nightly.py TRAIN.zarr VALIDATION.zarr MODEL.zarr [SCHEDULER]

From cron, `17 2 * * *` and the line above; with a scheduler's address rows stay with its workers. A
job that was killed goes on where it was: call it again. Without arguments it makes up two nights.
"""

import shutil
import sys
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

from dask.distributed import Client
from sklearn.datasets import make_blobs

from dask_mcsvm import LinearMCSVC
from dask_mcsvm.storage import open_dataset, write_dataset


def nightly(train, validation, model_path, scheduler=None, callbacks=()):
    """Train on `train`; the better of the old model and the new one on `validation` stays."""
    data = {"data": str(train), "fingerprint": open_dataset(train).fingerprint}
    state = f"{model_path}.{data['fingerprint']}.state"  # that of other rows would be refused
    print("goes on where it was" if Path(state).exists() else "begins", flush=True)
    old = LinearMCSVC.load(model_path) if Path(model_path).exists() else None
    with Client(scheduler) if scheduler else nullcontext():
        svm = LinearMCSVC(tol=1e-2, random_state=0)
        C = svm.path(train, None, Cs=[0.01, 0.1, 1.0], validation=(validation, None)).best_.C
        svm.set_params(C=C, tol=1e-4, checkpoint=state, resume=True, callbacks=callbacks)
        new = svm.fit(train)
        score, standing = new.score(validation), old.score(validation) if old else 0.0
    print(f"new model: C={C:g}, accuracy {score:.4f}, relative gap {new.gap_:.1e}")
    print(f"old model: accuracy {standing:.4f}" if old else "no old model")
    if score >= standing:  # in one step: whoever loads it meanwhile gets one or the other
        new.save(model_path, overwrite=True, notes=data | {"score": score})
    shutil.rmtree(state)
    print("the new model is in place" if score >= standing else "the old model stays")
    return score >= standing


def two_nights(folder):
    X, y = make_blobs(1500, 10, centers=6, cluster_std=5.0, random_state=0)
    X /= 20
    paths = [f"{folder}/{name}.zarr" for name in ("train", "validation", "model")]
    write_dataset(paths[1], X[1000:], y[1000:])
    write_dataset(paths[0], X[:1000], y[:1000])
    assert nightly(*paths)
    broken = (y[:1000] + (X[:1000, 0] > 0)) % 6  # somebody mixed up the labels upstream
    write_dataset(paths[0], X[:1000], broken, overwrite=True)
    assert not nightly(*paths)


if __name__ == "__main__" and len(sys.argv) > 3:
    nightly(*sys.argv[1:])
elif __name__ == "__main__":
    with TemporaryDirectory() as folder:
        two_nights(folder)
