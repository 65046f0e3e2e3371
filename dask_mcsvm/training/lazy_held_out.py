"""Parts of lazy rows: held back from a fit by weights of 0, then scored, chunk by chunk."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import dask.array as da
import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from dask.delayed import Delayed, delayed

from dask_mcsvm.data.lazy_input import encode_chunk
from dask_mcsvm.formulations import HeldOut, logits
from dask_mcsvm.storage import Dataset, open_dataset

from .held_out import chosen_parts, count_parts, parts_of_rows
from .lazy_source import _blocks, _compute, _spans, like, row_chunks
from .runner import Runner

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class LazyParts:
    """Rows, labels and weights as Dask arrays of the same chunks, and what is held out of them."""

    X: da.Array
    y: da.Array
    weights: da.Array | None
    codes: Sequence[Delayed]
    class_totals: Array  # (k,)
    chosen: Sequence[int]
    runner: Runner

    @property
    def _chunks(self) -> list[tuple[Delayed, Delayed, Delayed | None]]:
        weights = [None] * len(self.codes) if self.weights is None else _blocks(self.weights)
        return list(zip(_blocks(self.X), self.codes, weights, strict=True))

    def weights_without(self, part: int) -> da.Array:
        """Weights that are 0 for the rows of a part."""
        blocks = [
            da.from_delayed(delayed(weights_of_others)(X, w, part), (size,), np.float64)
            for (X, _, w), size in zip(self._chunks, self.X.chunks[0], strict=True)
        ]
        found: da.Array = da.concatenate(blocks)
        return found

    def rows_of(self, part: int) -> da.Array:
        """The rows of a part, in chunks of unknown length."""
        chunks = ((np.nan,) * self.X.numblocks[0], self.X.chunks[1])
        rows: da.Array = da.map_blocks(
            rows_of_part, self.X, part=part, chunks=chunks, meta=self.X._meta
        )
        return rows

    def sums(self, part: int, decision: da.Array, factors: Array) -> HeldOut:
        """Of the rows of a part, from their decisions; ``factors`` (k,) are class weights."""
        found = [block.ravel()[0] for block in decision.to_delayed()]
        tasks = [
            delayed(held_out_sums, name="held-out")(block, X, codes, w, part, factors)
            for block, (X, codes, w) in zip(found, self._chunks, strict=True)
        ]
        total, *rest = _compute(tasks, self.runner)
        for sums in rest:
            total = total.plus(sums)
        assert isinstance(total, HeldOut)
        return total


def lazy_parts(X: Any, y: Any, sample_weight: Any, classes: Array, runner: Runner) -> LazyParts:
    """Look at every chunk of what `fit` was given, and choose the parts to hold out."""
    if isinstance(X, str | os.PathLike | Dataset):
        dataset = X if isinstance(X, Dataset) else open_dataset(X)
        X, y = dataset.to_dask(labels=True)
        sample_weight = dataset.weights_to_dask()
    X = row_chunks(X, runner)
    y = like(y, X, "y", runner)
    weights = None if sample_weight is None else like(sample_weight, X, "sample_weight", runner)
    codes = [
        delayed(encode_chunk, name="codes")(block, classes, first=first, stop=stop)
        for block, (first, stop) in zip(_blocks(y), _spans(X), strict=True)
    ]
    parts = LazyParts(X, y, weights, codes, np.zeros(0), (), runner)
    tasks = [
        delayed(count_chunk, name="count-parts")(*chunk, classes.size) for chunk in parts._chunks
    ]
    counts, totals = np.sum(_compute(tasks, runner), axis=0)
    return LazyParts(X, y, weights, codes, totals.sum(axis=0), chosen_parts(counts), runner)


# -- tasks -----------------------------------------------------------------------------------------


def count_chunk(X: Any, codes: Array, weights: Any, k: int) -> Array:
    """Rows and weights of a chunk, by part and class."""
    return count_parts(_parts(X), codes, _weights(weights, codes.size), k)


def weights_of_others(X: Any, weights: Any, part: int) -> Array:
    """The weights of a chunk, 0 for the rows of a part."""
    return np.where(_parts(X) == part, 0.0, _weights(weights, X.shape[0]))


def rows_of_part(X: Any, part: int) -> Any:
    """The rows of a part among those of a chunk."""
    return (sp.csr_array(X) if sp.issparse(X) else np.asarray(X))[_parts(X) == part]


def held_out_sums(
    decision: Array, X: Any, codes: Array, weights: Any, part: int, factors: Array
) -> HeldOut:
    """What the rows of a part say of the temperature, from their decisions."""
    mine = _parts(X) == part
    y = codes[mine]
    return HeldOut.of(logits(decision), y, _weights(weights, mine.size)[mine] * factors[y])


def _parts(X: Any) -> Array:
    return parts_of_rows(sp.csr_array(X) if sp.issparse(X) else np.asarray(X))


def _weights(weights: Any, n: int) -> Array:
    return np.ones(n) if weights is None else np.asarray(weights, np.float64)
