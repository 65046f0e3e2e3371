"""Sets of cells for the study of the same name: scanpy's pbmc68k_reduced, and many like it.

    pip install scanpy && python benchmarks/make_cells.py DIR
    python benchmarks/make_cells.py DIR --source 10x_pbmc68k_reduced.h5ad

writes DIR/pbmc68k_reduced.npz, the log counts of 700 cells (a fifth of each class to test), and
DIR/pbmc_like.npz: cells drawn from it. A drawn cell has the shares of two
cells of one class, mixed at random, some 1500 molecules drawn from them, and is made log counts
again; every twentieth label is another's.
"""

from __future__ import annotations

import argparse
import warnings
from importlib.util import find_spec
from pathlib import Path

import anndata
import numpy as np
import scipy.sparse as sp

DRAWN, TEST, WRONG, DEPTH = 60_000, 0.2, 0.05, 1500


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where to write")
    parser.add_argument("--source", type=Path, help="default: the file of the installed scanpy")
    given = parser.parse_args()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the age of the file
        cells = anndata.read_h5ad(given.source or bundled())
    X = sp.csr_matrix(cells.raw.X, dtype=np.float32)
    y = np.unique(cells.obs["bulk_labels"].astype(str), return_inverse=True)[1]
    rng = np.random.default_rng(0)
    given.folder.mkdir(parents=True, exist_ok=True)
    save(given.folder / "pbmc68k_reduced.npz", X, y, rng)
    save(given.folder / "pbmc_like.npz", *drawn(X, y, rng), rng)


def bundled() -> Path:
    """The file in the wheel of scanpy, which need not be imported."""
    found = find_spec("scanpy")
    if found is None or found.origin is None:
        raise SystemExit("make_cells.py: scanpy is not installed; type pip install scanpy")
    return Path(found.origin).parent / "datasets" / "10x_pbmc68k_reduced.h5ad"


def drawn(X: sp.csr_matrix, y: np.ndarray, rng: np.random.Generator) -> tuple[sp.csr_matrix, ...]:
    """Log counts of cells that were never measured."""
    counts = np.expm1(X.toarray().astype(np.float64))
    shares = counts / counts.sum(axis=1, keepdims=True)
    own = rng.integers(y.size, size=DRAWN)
    blocks, codes = [], y[own]
    mates = [np.flatnonzero(y == c) for c in range(y.max() + 1)]
    for cell, c in zip(own, codes, strict=True):
        part = rng.random()
        mixed = part * shares[cell] + (1 - part) * shares[rng.choice(mates[c])]
        depth = DEPTH * rng.lognormal(0.0, 0.4)
        found = rng.multinomial(int(depth), mixed)
        blocks.append(sp.csr_matrix(np.log1p(found * (1e4 / depth)), dtype=np.float32))
    wrong = rng.random(DRAWN) < WRONG
    codes = np.where(wrong, rng.integers(y.max() + 1, size=DRAWN), codes)
    return sp.vstack(blocks, format="csr"), codes


def save(path: Path, X: sp.csr_matrix, y: np.ndarray, rng: np.random.Generator) -> None:
    """Training and test rows as the harness reads them."""
    order, tested = rng.permutation(y.size), np.zeros(y.size, bool)
    for c in np.unique(y):
        rows = order[y[order] == c]
        tested[rows[: max(1, round(TEST * rows.size))]] = True
    parts: dict[str, object] = {}
    for name, rows in (("train", ~tested), ("test", tested)):
        part = X[rows]
        parts |= {
            f"X_{name}_data": part.data, f"X_{name}_indices": part.indices,
            f"X_{name}_indptr": part.indptr, f"X_{name}_shape": np.array(part.shape),
            f"y_{name}": y[rows].astype(np.int32),
        }  # fmt: skip
    np.savez_compressed(path, **parts)
    print(f"{path}: {np.count_nonzero(~tested):,} training rows, {X.shape[1]} genes")


if __name__ == "__main__":
    main()
