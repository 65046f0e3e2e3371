"""Parts of lazy rows: held back from a fit by weights of 0, then scored, chunk by chunk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from dask.array import core as da
from dask.delayed import Delayed, delayed

from dask_mcsvm.formulations import HeldOut, logits

from .held_out import chosen_parts, count_parts, parts_of_rows
from .lazy_source import LazySource, Runner, _compute

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class LazyParts:
    """The rows of a fit as Dask arrays, and which parts are held out of them."""

    source: LazySource
    X: da.Array
    y: da.Array
    chosen: Sequence[int]
    runner: Runner

    def weights_without(self, part: int) -> da.Array:
        """Sample weights that are 0 for the rows of a part."""
        blocks = [
            da.from_delayed(delayed(weights_of_others)(X, w, part), (size,), np.float64)
            for (X, _, w), size in zip(_chunks(self.source), self.source.sizes, strict=True)
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

    def sums(self, part: int, decision: da.Array) -> HeldOut:
        """Of the rows of a part, from their decisions."""
        found = decision.to_delayed().ravel()  # of two classes (n,), else (n, k) in one column
        tasks = [
            delayed(held_out_sums, name="held-out")(block, *chunk, part, self.source.factors)
            for block, chunk in zip(found, _chunks(self.source), strict=True)
        ]
        total, *rest = _compute(tasks, self.runner)
        for sums in rest:
            total = total.plus(sums)
        assert isinstance(total, HeldOut)
        return total


def lazy_parts(source: LazySource, runner: Runner) -> LazyParts:
    """Look at every chunk of a fit, and choose the parts to hold out."""
    k, d = source.classes.size, source.n_features
    tasks = [delayed(count_chunk, name="count-parts")(*chunk, k) for chunk in _chunks(source)]
    counts, _ = np.sum(_compute(tasks, runner), axis=0)
    empty = sp.csr_array((0, d)) if source.is_sparse else np.empty((0, d))
    rows = [
        da.from_delayed(X, (size, d), source.dtype, meta=empty.astype(source.dtype))
        for X, size in zip(source.X, source.sizes, strict=True)
    ]
    labels = [
        da.from_delayed(delayed(labels_of)(codes, source.classes), (size,), source.classes.dtype)
        for codes, size in zip(source.codes, source.sizes, strict=True)
    ]
    return LazyParts(
        source, da.concatenate(rows), da.concatenate(labels), chosen_parts(counts), runner
    )


def _chunks(source: LazySource) -> list[tuple[Delayed, Delayed, Delayed | None]]:
    weights: Sequence[Delayed | None] = source.weights or [None] * len(source.codes)
    return list(zip(source.X, source.codes, weights, strict=True))


# -- tasks -----------------------------------------------------------------------------------------


def count_chunk(X: Any, codes: Array, weights: Any, k: int) -> Array:
    """Rows and weights of a chunk, by part and class."""
    return count_parts(_parts(X), codes, _weights(weights, codes.size), k)


def labels_of(codes: Array, classes: Array) -> Array:
    """Labels of a chunk from their codes."""
    return classes[codes]


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
