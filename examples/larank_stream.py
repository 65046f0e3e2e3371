"""A classifier that learns from a stream with an RBF kernel, in bounded memory.

Run it with: python examples/larank_stream.py
"""

import tempfile

import numpy as np

from dask_mcsvm import LaRankSVC

CLASSES, FEATURES, CHUNK = 5, 8, 500


def chunks(n_chunks: int, seed: int):
    """Rows as they would come from a queue: five clusters that overlap."""
    rng = np.random.default_rng(seed)
    centers = np.random.default_rng(0).normal(size=(CLASSES, FEATURES))
    for _ in range(n_chunks):
        y = rng.integers(0, CLASSES, CHUNK)
        yield (centers[y] + 0.6 * rng.normal(size=(CHUNK, FEATURES))).astype(np.float32), y


def main() -> None:
    X_test, y_test = next(chunks(1, seed=99))
    model = LaRankSVC(C=1.0, gamma=0.1, max_support=600, cache_size=10, random_state=0)
    for number, (X, y) in enumerate(chunks(6, seed=1), start=1):
        model.partial_fit(X, y, classes=np.arange(CLASSES))
        print(
            f"{number * CHUNK:5} rows  {model.n_support_:3} support patterns  "
            f"dual {model.dual_:7.1f}  accuracy {model.score(X_test, y_test):.3f}"
        )
    with tempfile.TemporaryDirectory() as folder:
        model.save(f"{folder}/model.zarr")
        again = LaRankSVC.load(f"{folder}/model.zarr")  # and partial_fit goes on from here
    assert (again.predict(X_test) == model.predict(X_test)).all()


if __name__ == "__main__":
    main()
