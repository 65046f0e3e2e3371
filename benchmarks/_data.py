"""Datasets of the bench scripts: a folder of .npz files, or generated rows that look like text.

Only training rows are used: these scripts are about objectives, not about accuracy.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from harness.data import Dataset, UnknownDatasetError, is_sparse_file, read_set
from harness.generate import Recipe, text_like

#: What a run takes from a folder by default, if it holds any of them; otherwise all sparse sets.
TEXT_SETS = (
    "news20_bydate",
    "reuters52",
    "banking77",
    "clinc150",
    "naics_index",
    "onet_titles",
    "wordnet_hyper",
)
#: Added by --dense.
DENSE_SETS = ("usps", "letter", "mnist")
#: --size tiny keeps so many rows of a set from a folder.
TINY_ROWS = 400


# In each size one set up to 64 classes and one above: the solver stores the two differently.
RECIPES = {
    "tiny": {"zipf12": Recipe(300, 500, 12, 20), "zipf80": Recipe(400, 600, 80, 10)},
    "full": {
        "zipf20": Recipe(10_000, 50_000, 20, 150),
        "zipf150": Recipe(15_000, 12_000, 150, 15),
        "zipf1000": Recipe(20_000, 40_000, 1000, 12),
    },
}


def dataset_names(
    asked: list[str] | None, folder: Path | None, size: str, *, dense: bool
) -> list[str]:
    """The sets of a run: those asked for, once all are known to exist, or the default ones."""
    present = list(RECIPES[size]) if folder is None else _stems(folder)
    where = "the generated sets" if folder is None else str(folder)
    for name in asked or []:
        if name not in present:
            names = ", ".join(present) or "no .npz file"
            raise UnknownDatasetError(f"there is no dataset {name!r}; {where}: {names}")
    if asked or folder is None:
        return asked or present
    known = [name for name in TEXT_SETS + DENSE_SETS * dense if name in present]
    known = known or [name for name in present if dense or is_sparse_file(folder / f"{name}.npz")]
    if not known:
        raise UnknownDatasetError(f"{folder} holds no sparse .npz set; add --dense or --datasets")
    return known


def load_dataset(name: str, folder: Path | None, size: str) -> Dataset:
    """A set by its name, in the same bytes every time."""
    if folder is None:
        X, y = text_like(RECIPES[size][name])
        return Dataset(name, X, y, RECIPES[size][name].k)
    X, y = read_set(folder / f"{name}.npz")
    if size == "tiny":  # spread over the file, since rows are often sorted by class
        kept = np.unique(np.linspace(0, y.size - 1, TINY_ROWS).astype(np.int64))
        X, y = X[kept], y[kept]
    classes, codes = np.unique(y, return_inverse=True)
    return Dataset(name, X, codes.astype(np.int32), classes.size)


def _stems(folder: Path) -> list[str]:
    return sorted(path.stem for path in folder.glob("*.npz"))


def warm_up_rows(k: int, *, is_sparse: bool) -> Dataset:
    """A few rows with labels among k classes: enough to compile what a set of this kind needs."""
    X, _ = text_like(RECIPES["tiny"]["zipf12"])
    X.data[: X.indptr[1]] = 0  # a row without features: solvers treat those apart
    X.eliminate_zeros()
    y = (np.random.default_rng(0).permutation(X.shape[0]) % k).astype(np.int32)
    return Dataset("warm-up", X if is_sparse else X.toarray(), y, k)
