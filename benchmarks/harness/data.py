"""Rows of a case: a set of a folder, debfiles, or generated; in memory, or read by workers.

A set is NAME.npz in --data-dir ($DASK_MCSVM_DATA): ``X_train_data``, ``X_train_indices``,
``X_train_indptr`` and ``X_train_shape`` (CSR), or a dense ``X_train``; ``y_train``, integers; the
same for test. debfiles is a folder of ``part-*.npz``: CSR rows (data, indices, indptr), labels
``y_section`` and ``y_package`` and a mask ``test``.

A case names its rows by a dict: "name"; "rows", how many of them (of debfiles the first ones, of a
set some spread over its file, since files are often sorted by class); "labels" of debfiles; and of
"generated" rows the fields of a `Recipe`, with "parts" if they are made part by part. "generated
pages" have n, d and k, and how many rows to "test". "debfiles by package" are all rows of the first
"parts", whose own test rows would be of packages never seen: every tenth row of a package is one
here. "classes" limits the packages to the largest ones, "rows" takes some rows of these.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from .generate import Pages, Recipe, page_like, text_like

Spec = dict[str, Any]
Rows = tuple[Any, np.ndarray]
GENERATED, DEBFILES = "generated", "debfiles"
#: Generated rows of thousands of classes; rows of debfiles by package, split within packages.
PAGES, PACKAGES = "generated pages", "debfiles by package"


class UnknownDatasetError(ValueError):
    """No set of such a name, or none at all."""


@dataclass(frozen=True)
class Places:
    """Where files are; plain text, to go to other processes."""

    folder: str | None = None
    debfiles: str | None = None

    def plain(self) -> dict[str, Any]:
        return asdict(self)

    def files(self, name: str) -> list[Path]:
        """The files of a set; an error says what is missing and what to type."""
        if name in (GENERATED, PAGES):
            return []
        if name in (DEBFILES, PACKAGES):
            place = self.debfiles or (self.folder and f"{self.folder}/debfiles")
            found = sorted(Path(place).glob("part-*.npz")) if place else []
            wanted, option = f"part-*.npz in {place}", "--debfiles DIR"
        else:
            path = Path(self.folder or ".", f"{name}.npz")
            found = [path] if self.folder and path.exists() else []
            wanted, option = f"{name}.npz in {self.folder}", "--data-dir DIR"
        if not found:
            raise UnknownDatasetError(f"there is no {wanted}; type {option}")
        return found


@dataclass(frozen=True, eq=False)
class Dataset:
    """Training rows and codes of classes, and test rows where they were asked for.

    Attributes
    ----------
    X : ndarray or csr_array of shape (n, d), float32
    y : ndarray of shape (n,), int32
    """

    name: str
    X: np.ndarray | sp.csr_array
    y: np.ndarray
    k: int
    test: Rows | None = None

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


def load(spec: Spec, places: Places, *, test: bool = False) -> Dataset:
    """The rows of a case in memory."""
    name, tested = spec["name"], None
    if name == GENERATED:
        if test and "parts" not in spec:  # only parts share their words with test rows
            spec = spec | {"parts": 1}
        parts = [make_part(spec, p) for p in range(spec.get("parts", 1))]
        tested = make_part(spec, len(parts)) if test else None
    elif name == PAGES:
        n = spec["n"]
        X, y = page_like(Pages(n + spec["test"], spec["d"], spec["k"]))
        parts, tested = [(X[:n], y[:n])], (X[n:], y[n:])
    elif name == PACKAGES:
        rows, tested = packages(spec, places)
        parts = [rows]
    elif name == DEBFILES:
        files = _first_parts(spec, places)
        parts = [read_part(path, spec["labels"], rows) for path, rows in files]
        if test:
            tested = _joined([read_part(p, spec["labels"], None, test=True) for p, _ in files])
    else:
        (path,) = places.files(name)
        parts = [_spread(read_set(path), spec.get("rows"))]
        tested = read_set(path, "test") if test else None
    X, y = _joined(parts)
    return Dataset(name, X, y, np.unique(y).size, tested)


def lazy(spec: Spec, places: Places, chunks: int) -> tuple[Any, Any]:
    """The same as Dask arrays whose chunks workers read or make; a set comes in ``chunks``."""
    from dask.delayed import delayed

    if spec["name"] == GENERATED:
        made = [delayed(make_part)(spec, p) for p in range(spec["parts"])]
        return _as_arrays(made, _heights(spec["n"], spec["parts"]), spec["d"])
    if spec["name"] == DEBFILES:
        files = _first_parts(spec, places)
        parts = [delayed(read_part)(path, spec["labels"], rows) for path, rows in files]
        return _as_arrays(parts, [rows for _, rows in files], _features(files[0][0]))
    (path,) = places.files(spec["name"])
    rows = _spread(read_set(path), spec.get("rows"))
    heights = _heights(rows[1].size, chunks)
    parts = [
        delayed(read_slice)(path, spec.get("rows"), last - height, last)
        for last, height in zip(np.cumsum(heights).tolist(), heights, strict=True)
    ]
    return _as_arrays(parts, heights, rows[0].shape[1])


def checksum(spec: Spec, places: Places) -> str:
    """Of the files that hold the rows; generated rows have none."""
    if spec["name"] in (GENERATED, PAGES):
        return GENERATED
    if spec["name"] == PACKAGES:
        files = places.files(PACKAGES)[: spec["parts"]]
    elif spec["name"] == DEBFILES:
        files = [path for path, _ in _first_parts(spec, places)]
    else:
        files = places.files(spec["name"])
    return sha256("".join(_file_sum(path) for path in files).encode()).hexdigest()[:16]


@lru_cache
def _file_sum(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()


# -- parts: what a task on a worker calls ----------------------------------------------------------


@lru_cache(1)
def read_set(path: Path, which: str = "train") -> Rows:
    """Rows and codes of a set of a folder."""
    with np.load(path) as arrays:
        y = arrays[f"y_{which}"].astype(np.int32)
        if f"X_{which}" in arrays:
            return np.ascontiguousarray(arrays[f"X_{which}"], np.float32), y
        csr = [arrays[f"X_{which}_{part}"] for part in ("data", "indices", "indptr")]
        shape = tuple(int(size) for size in arrays[f"X_{which}_shape"])
    return sp.csr_array((csr[0].astype(np.float32, copy=False), *csr[1:]), shape=shape), y


def is_sparse_file(path: Path) -> bool:
    with np.load(path) as arrays:
        return "X_train_indptr" in arrays


def read_slice(path: Path, rows: int | None, first: int, last: int) -> Rows:
    X, y = _spread(read_set(path), rows)
    return X[first:last], y[first:last]


def read_part(path: Path, labels: str, rows: int | None, *, test: bool = False) -> Rows:
    """The first training rows, or all test rows, of a part of debfiles."""
    with np.load(path) as part:
        shape = part["indptr"].size - 1, int(part["shape"][1])
        X = sp.csr_array((part["data"], part["indices"], part["indptr"]), shape=shape)
        kept = np.flatnonzero(part["test"] == test)[:rows]
        return X[kept].astype(np.float32, copy=False), part[f"y_{labels}"][kept]


#: Training rows that a package has at least.
PACKAGE_ROWS = 50


def packages(spec: Spec, places: Places) -> tuple[Rows, Rows]:
    """Training and test rows of the packages that have enough of them."""
    files = places.files(PACKAGES)[: spec["parts"]]
    read = [read_part(path, "package", None, test=test) for path in files for test in (False, True)]
    X, y = _joined(read)
    order = np.argsort(y, kind="stable")
    starts = np.cumsum(np.bincount(y)) - np.bincount(y)
    number = np.empty(y.size, np.int64)  # of a row among those of its package
    number[order] = np.arange(y.size) - starts[y[order]]
    is_test = number % 10 == 9
    sizes = np.bincount(y[~is_test], minlength=starts.size)
    kept = np.flatnonzero(sizes >= PACKAGE_ROWS)
    kept = np.sort(kept[np.argsort(-sizes[kept], kind="stable")][: spec.get("classes")])
    codes = np.full(starts.size, -1, np.int32)
    codes[kept] = np.arange(kept.size, dtype=np.int32)
    y = codes[y]
    train, test = (np.flatnonzero((y >= 0) & (is_test == wanted)) for wanted in (False, True))
    if "rows" in spec:  # parts are in random order already, but the two halves of each are not
        train = np.sort(np.random.default_rng(0).permutation(train)[: spec["rows"]])
    return (X[train], y[train]), (X[test], y[test])


def make_part(spec: Spec, part: int) -> Rows:
    """A part of generated rows; the last one is followed by the test rows."""
    recipe = Recipe(**{field: spec[field] for field in ("n", "d", "k", "words")})
    if "parts" not in spec:
        return text_like(recipe, part or None)
    heights = _heights(recipe.n, spec["parts"])
    return text_like(replace(recipe, n=heights[part % len(heights)]), part)


def _first_parts(spec: Spec, places: Places) -> list[tuple[Path, int]]:
    """Which parts hold the first rows, and how many of them each."""
    found, left = [], spec["rows"]
    for path in places.files(DEBFILES):
        if left:
            with np.load(path) as part:
                rows = min(left, int(np.sum(part["test"] == 0)))
            found.append((path, rows))
            left -= rows
    if left:
        rows = spec["rows"]
        raise UnknownDatasetError(f"debfiles has {rows - left:,} training rows, not {rows:,}")
    return found


def _features(path: Path) -> int:
    with np.load(path) as part:
        return int(part["shape"][1])


def _spread(rows: Rows, n: int | None) -> Rows:
    X, y = rows
    if n is None:
        return rows
    kept = np.unique(np.linspace(0, y.size - 1, n).astype(np.int64))
    return X[kept], y[kept]


def _joined(parts: list[Rows]) -> Rows:
    if len(parts) == 1:
        return parts[0]
    rows, labels = zip(*parts, strict=True)
    return sp.csr_array(sp.vstack(rows, format="csr")), np.concatenate(labels)


def _heights(n: int, parts: int) -> list[int]:
    return [part.size for part in np.array_split(np.arange(n), parts)]


def _as_arrays(parts: list[Any], heights: list[int], d: int) -> tuple[Any, Any]:
    import dask.array as da

    meta = sp.csr_array((0, d), dtype=np.float32)
    pairs = list(zip(parts, heights, strict=True))
    X = [da.from_delayed(part[0], (rows, d), np.float32, meta=meta) for part, rows in pairs]
    y = [da.from_delayed(part[1], (rows,), np.int32) for part, rows in pairs]
    return da.concatenate(X), da.concatenate(y)
