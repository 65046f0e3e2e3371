"""Scores of a sparse model of many classes, and the best of them, without an array of weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from .kernels.candidate_classes import largest
from .kernels.jit import apart, bare_kernel, kernel
from .kernels.rows import as_rows, row_scores
from .sdm.hybrid import HybridWeights
from .sparse_weights import SparseWeights

#: Scores that are compared together with the least of the best, which most of them are below.
STRETCH = 32


class ListedModel:
    """A coef (k, d) and intercept (k,) as features have them: lists, and rows of frequent ones."""

    def __init__(self, coef: sp.csr_array, intercept: npt.NDArray[Any], longest: int) -> None:
        """For rows of at most ``longest`` nonzeros."""
        k, d = coef.shape
        self.weights, self.k = HybridWeights(d, k, coef.dtype, longest), k
        columns = sp.csc_array(coef.T)
        if not columns.has_canonical_format:
            columns = columns.copy()
            columns.sum_duplicates()
        self.weights.take_weights(SparseWeights(columns, intercept))

    def scores(self, X: sp.csr_array) -> npt.NDArray[Any]:
        """X W + b (n, k), in the type of both."""
        out = np.empty((X.shape[0], self.k), X.dtype)
        score_rows(as_rows(X), self.weights.lists, X.dtype.type(1), out)
        return out

    def best(self, X: sp.csr_array, top: int) -> npt.NDArray[np.intp]:
        """Places of the ``top`` largest scores of each row, largest first, ties by place."""
        out = np.empty((X.shape[0], top), np.intp)
        find_best(as_rows(X), self.weights.lists, X.dtype.type(1), self.k, out)
        return out


@kernel
def score_rows(rows, W, one, out):
    """Scores of all rows into ``out`` (n, k)."""
    for i in range(out.shape[0]):
        row_scores(rows, i, W, one, out[i])


@kernel
def find_best(rows, W, one, k, out):
    """The best classes of all rows into ``out`` (n, top)."""
    s, best = apart(k, W.values.dtype), apart(out.shape[1], W.values.dtype)
    for i in range(out.shape[0]):
        row_scores(rows, i, W, one, s)
        place_best(s, best, out[i])


@bare_kernel
def place_best(s, best, places):
    """Write the places of the largest scores, in order; of equal ones the first come first."""
    top, count = places.size, 0
    for start in range(0, s.size, STRETCH):
        stop = min(s.size, start + STRETCH)
        if count == top and largest(s, start, stop) <= best[top - 1]:
            continue
        for m in range(start, stop):
            if count == top and s[m] <= best[top - 1]:
                continue
            c = count if count < top else top - 1
            count = min(count + 1, top)
            while c > 0 and best[c - 1] < s[m]:
                best[c], places[c] = best[c - 1], places[c - 1]
                c -= 1
            best[c], places[c] = s[m], m
