"""Larger than memory: LIBSVM text becomes a dataset on disk, and a fit never holds all of it.

    python examples/larger_than_memory.py [ROWS]

The text is made up here, in a temporary folder; put the path of your own file in its place. From
the shell: `dask mcsvm convert train.svm train.zarr`, then `dask mcsvm fit train.zarr --model
model.zarr --formulation ovr --solver early_shrink --memory-limit 64MB`.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

from dask_mcsvm import LinearMCSVC
from dask_mcsvm.storage import convert_libsvm

rows = int(sys.argv[1]) if len(sys.argv) == 2 else 20_000
rng = np.random.default_rng(0)


def write_text(path: Path) -> None:
    """Rows of 20 words; each of 30 classes likes some words better than others."""
    favourites = rng.integers(1, 5000, size=(30, 60))
    with path.open("w", encoding="ascii") as file:
        for label in rng.integers(30, size=rows):
            words = np.append(rng.choice(favourites[label], 8), rng.integers(1, 5000, 12))
            entries = " ".join(f"{word}:0.22" for word in np.unique(words))
            file.write(f"{label} {entries}\n")


with tempfile.TemporaryDirectory() as folder:
    text, store = Path(folder, "train.svm"), Path(folder, "train.zarr")
    write_text(text)
    dataset = convert_libsvm(text, store)  # streams: memory does not grow with the file
    print(f"{text.stat().st_size / 1e6:.1f} MB of text: {dataset.shape}, {dataset.nnz} nonzeros")

    model = LinearMCSVC(
        formulation="one_vs_rest", solver="early_shrink", memory_limit="64MB", C=0.1, random_state=0
    ).fit(store)
    print(f"{len(model.history_)} passes with at most 64 MB of rows and variables in memory")
    print(f"relative gap {model.gap_:.1e}")
    print(f"accuracy on the training rows {model.score(store):.3f}")
