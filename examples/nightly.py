"""A nightly job: fit from a Zarr store, and replace the model only if the new one is no worse.

    python examples/nightly.py TRAIN.zarr VALIDATION.zarr MODEL.zarr

From cron, `17 2 * * *` and the line above; a runner of workflows calls `nightly` as its task.
Without arguments it makes up two nights of data in a temporary folder and shows both outcomes.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from sklearn.datasets import make_blobs

from dask_mcsvm import LinearMCSVC
from dask_mcsvm.storage import open_dataset, write_dataset


def rows_of(path):
    dataset = open_dataset(path)
    return dataset.read_rows(0, dataset.shape[0]), dataset.classes[dataset.read_labels()]


def nightly(train, validation, model_path):
    """Train on `train`; the better of the old model and the new one on `validation` stays."""
    X, y = rows_of(validation)
    new = LinearMCSVC(C=0.1, random_state=0).fit(*rows_of(train))
    score = new.score(X, y)
    print(f"new model: accuracy {score:.4f}, relative gap {new.gap_:.1e}")
    if Path(model_path).exists():
        old = LinearMCSVC.load(model_path).score(X, y)
        print(f"old model: accuracy {old:.4f}")
        if score < old:
            print("the old model stays")
            return False
    # The folder changes its content in one step: whoever loads it meanwhile gets one or the other.
    about = {"data": str(train), "fingerprint": open_dataset(train).fingerprint, "score": score}
    new.save(model_path, overwrite=True, notes=about)
    print("the new model is in place")
    return True


def two_nights(folder):
    X, y = make_blobs(1500, 10, centers=6, cluster_std=5.0, random_state=0)
    X /= 20
    write_dataset(f"{folder}/validation.zarr", X[1000:], y[1000:])
    write_dataset(f"{folder}/train.zarr", X[:1000], y[:1000])
    paths = [f"{folder}/{name}.zarr" for name in ("train", "validation", "model")]
    assert nightly(*paths)
    broken = (y[:1000] + (X[:1000, 0] > 0)) % 6  # somebody mixed up the labels upstream
    write_dataset(paths[0], X[:1000], broken, overwrite=True)
    assert not nightly(*paths)


if len(sys.argv) == 4:
    nightly(*sys.argv[1:])
else:
    with TemporaryDirectory() as folder:
        two_nights(folder)
