"""Scores of a sparse model of many classes, and the best of them, without an array of weights."""

from __future__ import annotations

from typing import Any, NamedTuple

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


class Best(NamedTuple):
    """The best classes of rows so far, best first."""

    scores: npt.NDArray[Any]  # (n, top), ascending to -inf where there are fewer classes
    places: npt.NDArray[np.intp]  # (n, top)

    @classmethod
    def of_none(cls, n: int, top: int, dtype: np.dtype[Any]) -> Best:
        return cls(np.full((n, top), -np.inf, dtype), np.full((n, top), -1, np.intp))


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

    def compare(self, X: sp.csr_array, first: int, best: Best) -> None:
        """Take classes into the best ones of each row, the first of these being number ``first``.

        Those that are there come before them: of equal scores the first ones stay.
        """
        find_best(as_rows(X), self.weights.lists, X.dtype.type(1), first, self.k, *best)


@kernel
def score_rows(rows, W, one, out):
    """Scores of all rows into ``out`` (n, k)."""
    for i in range(out.shape[0]):
        row_scores(rows, i, W, one, out[i])


@kernel
def find_best(rows, W, one, first, k, best, places):
    """Take k classes from number ``first`` on into the best ones of all rows (n, top)."""
    s = apart(k, W.values.dtype)
    for i in range(places.shape[0]):
        row_scores(rows, i, W, one, s)
        place_best(s, first, best[i], places[i])


@bare_kernel
def place_best(s, first, best, places):
    """Put larger scores, and their places, where they belong; of equal ones the first are first."""
    last = places.size - 1
    for start in range(0, s.size, STRETCH):
        stop = min(s.size, start + STRETCH)
        if largest(s, start, stop) <= best[last]:
            continue
        for m in range(start, stop):
            if s[m] <= best[last]:
                continue
            c = last
            while c > 0 and best[c - 1] < s[m]:
                best[c], places[c] = best[c - 1], places[c - 1]
                c -= 1
            best[c], places[c] = s[m], first + m
