"""Which rows are held out, to see how sure a model may be of rows that it has not seen [PROB]."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

#: Rows fall into so many parts; a model that has not seen one of them is asked about it.
PARTS = 5
#: So many held-out rows tell the temperature to 3%, which costs a thousandth of the log loss; 2,000
#: rows told it to 5%. Parts are held out, one after another, until they have that many.
ENOUGH_ROWS = 5000
#: The temperature is the same at this gap as at 1e-3, within 0.5% (all text sets, C = 1 and 10, all
#: formulations), and half of the epochs are saved; so many times the gap of the model itself.
HELD_OUT_TOL, TIMES_TOL = 3e-2, 30.0
#: Rows that differ by so little are taken for equal.
RESOLUTION = 1e4
#: Entries of dense rows that are looked at together.
BLOCK = 2**18


def held_out_tol(tol: float) -> float:
    """To which gap a fit without some rows goes, beside one to ``tol``.

    Examples
    --------
    >>> held_out_tol(1e-3), held_out_tol(0.1), held_out_tol(0.0)
    (0.03, 0.1, 0.03)
    """
    return max(tol, min(TIMES_TOL * tol, HELD_OUT_TOL)) if tol > 0 else HELD_OUT_TOL


def parts_of_rows(X: Any) -> np.ndarray:
    """The part of each row, (n,) int8: a function of its values alone.

    Copies of a row are held out together, and a weight of 2 does what two copies do. Nor does it
    matter whether rows are sparse, in which order they come and how they are cut into chunks.
    """
    along = np.random.default_rng(0).normal(size=X.shape[1])
    if sp.issparse(X):
        found, square = X @ along, np.asarray(X.multiply(X).sum(axis=1, dtype=np.float64)).ravel()
    else:
        step = max(1, BLOCK // X.shape[1])
        blocks = [X[i : i + step].astype(np.float64) for i in range(0, X.shape[0], step)]
        found = np.concatenate([np.einsum("ij,j->i", rows, along) for rows in blocks])
        square = np.concatenate([np.einsum("ij,ij->i", rows, rows) for rows in blocks])
    norm = np.sqrt(np.where(square > 0, square, 1.0))
    place = RESOLUTION * (found / norm + np.log(norm))
    # What lies just below a whole number is 1.0 from it once rounded.
    found = np.minimum(PARTS * (place - np.floor(place)), PARTS - 1)
    return np.asarray(found, np.int8)


def count_parts(part: np.ndarray, y: np.ndarray, weights: np.ndarray, k: int) -> np.ndarray:
    """Rows of positive weight, and their weights, by part and class: (2, PARTS, k) float64."""
    place, size = part.astype(np.int64) * k + y, PARTS * k
    counts = [np.bincount(place, w, minlength=size) for w in (weights > 0, weights)]
    return np.stack(counts).reshape(2, PARTS, k)


def chosen_parts(counts: np.ndarray) -> list[int]:
    """The parts to hold out: enough rows together, and two classes left to learn from.

    ``counts`` (PARTS, k) are the rows of each part and class.

    Examples
    --------
    >>> chosen_parts(np.full((PARTS, 2), 10_000)), chosen_parts(np.full((PARTS, 2), 300))
    ([0], [0, 1, 2, 3, 4])
    """
    chosen: list[int] = []
    for part in range(PARTS):
        has_rows = counts[part].any()
        if has_rows and np.count_nonzero(counts.sum(axis=0) - counts[part]) >= 2:
            chosen.append(part)
        if counts[chosen].sum() >= ENOUGH_ROWS:
            break
    return chosen
