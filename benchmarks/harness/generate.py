"""Generated rows that look like text."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp


@dataclass(frozen=True)
class Recipe:
    """A generated set: rows, vocabulary, classes and mean number of words in a row."""

    n: int
    d: int
    k: int
    words: int


def text_like(recipe: Recipe, part: int | None = None) -> tuple[sp.csr_array, np.ndarray]:
    """Rows like tf-idf of short texts: Zipf's law in words and classes, rows of unit length; y.

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
    return counts.astype(np.float32), y.astype(np.int32)


@dataclass(frozen=True)
class Pages:
    """A generated set like the large ones of web pages (LSHTC): thousands of classes."""

    n: int
    d: int
    k: int


#: Words of a page; of them those from the features of its class, and how many such there are.
PAGE_WORDS, OWN_WORDS, OWN_FEATURES = 140, 20, 10


def page_like(recipe: Pages) -> tuple[sp.csr_array, np.ndarray]:
    """Rows of about 100 nonzeros, frequencies of words and of classes by Zipf's law; y.

    Twenty words of a row come from the ten features of its class. Every twentieth label is wrong,
    but no class is empty. Weights are tf-idf, rows of unit length.
    """
    n, d, k = recipe.n, recipe.d, recipe.k
    rng = np.random.default_rng([n, d, k])
    y = _zipf(rng, k, n, shift=1)
    y[:k] = np.arange(k)
    topics = rng.integers(0, d, (k, OWN_FEATURES), dtype=np.int32)
    words = np.empty((n, PAGE_WORDS), np.int32)
    for first in range(0, n, 10_000):
        some = words[first : first + 10_000]
        size = some.shape[0]
        common = _zipf(rng, d, size * (PAGE_WORDS - OWN_WORDS), shift=1)
        some[:, OWN_WORDS:] = common.reshape(size, -1)
        which = rng.integers(0, OWN_FEATURES, (size, OWN_WORDS))
        own = topics[y[first : first + size]]
        some[:, :OWN_WORDS] = np.take_along_axis(own, which, axis=1)
    starts = np.arange(0, words.size + 1, PAGE_WORDS, dtype=np.int32)
    counts = sp.csr_array((np.ones(words.size, np.float32), words.ravel(), starts), shape=(n, d))
    counts.sum_duplicates()
    frequency = np.bincount(counts.indices, minlength=d)
    idf = (1 + np.log((1 + n) / (1 + frequency))).astype(np.float32)
    values = (1 + np.log(counts.data)) * idf[counts.indices]
    squares = np.add.reduceat(values.astype(np.float64) ** 2, counts.indptr[:-1])
    values /= np.repeat(np.sqrt(squares), np.diff(counts.indptr)).astype(np.float32)
    X = sp.csr_array((values, counts.indices.copy(), counts.indptr), shape=(n, d))

    wrong = k + np.flatnonzero(rng.random(n - k) < 0.05)
    y[wrong] = rng.integers(0, k, wrong.size)
    return X, y.astype(np.int32)


def _zipf(rng: np.random.Generator, n_ranks: int, size: int, *, shift: float) -> np.ndarray:
    """Ranks 0..n_ranks-1 with probabilities as 1 / (rank + shift)."""
    cumulative = np.cumsum(1 / (np.arange(n_ranks) + shift))
    return np.searchsorted(cumulative, rng.random(size) * cumulative[-1])
