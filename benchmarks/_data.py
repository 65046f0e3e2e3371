"""Datasets for benchmarks: a folder of .npz files, or generated rows that look like text.

A file holds ``X_train_data``, ``X_train_indices``, ``X_train_indptr`` and ``X_train_shape`` (CSR),
or a dense ``X_train``; and ``y_train``, integers. Anything else in it is ignored. Only training
rows are used: benchmarks here are about objectives, not about accuracy.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp

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


class UnknownDatasetError(ValueError):
    """No set of such a name, or none at all."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Training rows and codes of classes.

    Attributes
    ----------
    X : ndarray or csr_array of shape (n, d), float32
    y : ndarray of shape (n,), int32
        Every code in 0..k-1 occurs: LIBLINEAR knows only the classes it has seen.
    """

    name: str
    X: np.ndarray | sp.csr_array
    y: np.ndarray
    k: int

    @property
    def is_sparse(self) -> bool:
        return sp.issparse(self.X)

    @property
    def nnz(self) -> int:
        return int(self.X.nnz) if self.is_sparse else self.X.size

    @property
    def nbytes(self) -> int:
        if not self.is_sparse:
            return self.X.nbytes
        return self.X.data.nbytes + self.X.indices.nbytes + self.X.indptr.nbytes


@dataclass(frozen=True)
class Recipe:
    """A generated set: rows, vocabulary, classes and mean number of words in a row."""

    n: int
    d: int
    k: int
    words: int


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
    known = known or [name for name in present if dense or _is_sparse_file(folder, name)]
    if not known:
        raise UnknownDatasetError(f"{folder} holds no sparse .npz set; add --dense or --datasets")
    return known


def load_dataset(name: str, folder: Path | None, size: str) -> Dataset:
    """A set by its name, in the same bytes every time."""
    if folder is None:
        return text_like(name, RECIPES[size][name])
    X, y = _read(folder / f"{name}.npz")
    if size == "tiny":  # spread over the file, since rows are often sorted by class
        kept = np.unique(np.linspace(0, y.size - 1, TINY_ROWS).astype(np.int64))
        X, y = X[kept], y[kept]
    classes, codes = np.unique(y, return_inverse=True)
    return Dataset(name, X, codes.astype(np.int32), classes.size)


def _stems(folder: Path) -> list[str]:
    return sorted(path.stem for path in folder.glob("*.npz"))


def _is_sparse_file(folder: Path, name: str) -> bool:
    with np.load(folder / f"{name}.npz") as arrays:
        return "X_train_indptr" in arrays


def _read(path: Path) -> tuple[np.ndarray | sp.csr_array, np.ndarray]:
    with np.load(path) as arrays:
        y = arrays["y_train"]
        if "X_train" in arrays:
            return np.ascontiguousarray(arrays["X_train"], np.float32), y
        parts = [arrays[f"X_train_{part}"] for part in ("data", "indices", "indptr")]
        shape = tuple(int(size) for size in arrays["X_train_shape"])
    return sp.csr_array((parts[0].astype(np.float32, copy=False), *parts[1:]), shape=shape), y


def text_like(name: str, recipe: Recipe, part: int | None = None) -> Dataset:
    """Rows like tf-idf of short texts: Zipf's law in words and classes, rows of unit length.

    A third of a row's words come from its class, whose words are few and partly shared with other
    classes; the others come from the common vocabulary. Every twentieth label is wrong, so that no
    W separates the classes. With a number of a part these are other rows in the same words, so that
    parts make one set.
    """
    shape = [recipe.n, recipe.d, recipe.k, recipe.words]
    rng = np.random.default_rng(shape if part is None else [*shape, part])
    language = rng if part is None else np.random.default_rng(shape[1:])
    y = _zipf(rng, recipe.k, recipe.n, shift=10)
    y[: recipe.k] = np.arange(recipe.k)  # no class is empty
    lengths = np.maximum(3, rng.lognormal(np.log(recipe.words), 0.5, recipe.n)).astype(np.int64)
    rows = np.repeat(np.arange(recipe.n), lengths)
    vocabulary = language.permutation(recipe.d)
    topics = language.integers(0, recipe.d, (recipe.k, 50))
    own = topics[y[rows], _zipf(rng, 50, rows.size, shift=2)]
    common = _zipf(rng, recipe.d, rows.size, shift=3)
    words = vocabulary[np.where(rng.random(rows.size) < 0.33, own, common)]

    counts = sp.coo_array((np.ones(rows.size), (rows, words)), (recipe.n, recipe.d)).tocsr()
    counts.sum_duplicates()
    frequency = np.bincount(counts.indices, minlength=recipe.d)
    idf = 1 + np.log((1 + recipe.n) / (1 + frequency))
    counts.data = (1 + np.log(counts.data)) * idf[counts.indices]
    counts.data /= np.repeat(np.sqrt(counts.power(2).sum(axis=1)), np.diff(counts.indptr))

    wrong = recipe.k + np.flatnonzero(rng.random(recipe.n - recipe.k) < 0.05)
    y[wrong] = rng.integers(0, recipe.k, wrong.size)
    return Dataset(name, counts.astype(np.float32), y.astype(np.int32), recipe.k)


def _zipf(rng: np.random.Generator, n_ranks: int, size: int, *, shift: float) -> np.ndarray:
    """Ranks 0..n_ranks-1 with probabilities as 1 / (rank + shift)."""
    cumulative = np.cumsum(1 / (np.arange(n_ranks) + shift))
    return np.searchsorted(cumulative, rng.random(size) * cumulative[-1])


def warm_up_rows(k: int, *, is_sparse: bool) -> Dataset:
    """A few rows with labels among k classes: enough to compile what a set of this kind needs."""
    X = text_like("warm-up", RECIPES["tiny"]["zipf12"]).X
    X.data[: X.indptr[1]] = 0  # a row without features: solvers treat those apart
    X.eliminate_zeros()
    y = (np.random.default_rng(0).permutation(X.shape[0]) % k).astype(np.int32)
    return Dataset("warm-up", X if is_sparse else X.toarray(), y, k)
