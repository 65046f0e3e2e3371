"""Models of a LaRank run with room to begin with, and with more of it."""

from __future__ import annotations

import numpy as np

from ._larank_cache import NOBODY
from ._larank_kernels import UNKNOWN, KernelFunction
from ._larank_models import KernelModel, LinearModel
from ._larank_state import FREE, HAND, PATTERNS, Patterns, Tally, enlarged


def larger(size: int) -> int:
    """Half as much again: growing n times costs what the last size does, and wastes a third."""
    return max(64, size + size // 2)


def new_linear_model(d: int, k: int, dtype: np.dtype) -> LinearModel:
    return LinearModel(np.zeros((d + 1, k), dtype), np.zeros(k, dtype))


def new_kernel_model(
    function: KernelFunction, k: int, capacity: int, width: int, dtype: np.dtype, cache_bytes: int
) -> KernelModel:
    """No support vectors, an empty cache."""
    room, rows = 16, cache_rows(cache_bytes, capacity, 0, dtype)
    return KernelModel(
        function,
        np.zeros(capacity),
        np.zeros(k, np.int64),
        np.zeros((k, room), np.int32),
        np.zeros((k, room)),
        np.zeros((k, room)),
        np.zeros((k, room), np.int32),
        np.zeros((capacity, width), np.int32),
        np.full((rows, capacity), UNKNOWN, dtype),
        np.full(capacity, -1, np.int32),
        np.full(rows, NOBODY, np.int64),
        np.zeros(rows, np.uint8),
        np.arange(rows, dtype=np.int32),
        np.empty(0, np.int32),
        np.zeros(capacity, np.int32),
        np.zeros(capacity, dtype),
    )


def cache_rows(cache_bytes: int, capacity: int, n_examples: int, dtype: np.dtype) -> int:
    """Rows of `capacity` values that fit; a step needs two."""
    fitting = cache_bytes // (capacity * np.dtype(dtype).itemsize)
    return int(max(2, min(fitting, capacity + n_examples)))


def grown_patterns(patterns: Patterns, capacity: int, width: int) -> Patterns:
    """The same patterns with more room."""
    if patterns.classes.shape == (capacity, width):
        return patterns
    shapes = [(capacity, width) if array.ndim == 2 else (capacity,) for array in patterns]
    return Patterns(*map(lambda a, s: enlarged(a, *s), patterns, shapes))


def grown_model(
    model: KernelModel, patterns: Patterns, tally: Tally, cache_bytes: int, longest: int = 0
) -> KernelModel:
    """The same model with room for what `patterns` has room for, and a cache cut to fit."""
    (k, room), (capacity, width) = model.member.shape, patterns.classes.shape
    if longest >= room:
        room = larger(longest)
        model = model._replace(
            member=enlarged(model.member, k, room),
            weight=enlarged(model.weight, k, room),
            grad=enlarged(model.grad, k, room),
            back=enlarged(model.back, k, room),
        )
    rows = cache_rows(cache_bytes, capacity, model.example_row.size, model.values.dtype)
    model = model._replace(
        place=enlarged(model.place, capacity, width),
        norms=enlarged(model.norms, capacity),
        column=enlarged(model.column, capacity),
        row=enlarged(model.row, capacity),
    )
    if model.values.shape == (rows, capacity):
        return model
    return _moved_cache(model, tally, rows, capacity)


def _moved_cache(model: KernelModel, tally: Tally, rows: int, capacity: int) -> KernelModel:
    """A cache of another shape that holds what fits: patterns first, then other examples."""
    owned = np.flatnonzero(model.owner != NOBODY)
    kept = owned[np.argsort(model.owner[owned] < NOBODY, kind="stable")][:rows]
    P = min(int(tally.counts[PATTERNS]), model.values.shape[1])
    values = np.empty((rows, capacity), model.values.dtype)  # untouched pages cost no memory
    values[: kept.size, :P] = model.values[kept, :P]
    values[: kept.size, P:] = UNKNOWN
    owner = np.full(rows, NOBODY, np.int64)
    owner[: kept.size] = model.owner[kept]
    row_of = np.full(capacity, -1, np.int32)
    example_row = np.full_like(model.example_row, -1)
    places = np.arange(kept.size, dtype=np.int32)
    of_pattern = model.owner[kept] > NOBODY
    row_of[model.owner[kept[of_pattern]]] = places[of_pattern]
    example_row[-2 - model.owner[kept[~of_pattern]]] = places[~of_pattern]
    used = np.zeros(rows, np.uint8)
    used[: kept.size] = model.used[kept]
    free = np.zeros(rows, np.int32)
    free[: rows - kept.size] = np.arange(rows - 1, kept.size - 1, -1)
    tally.counts[FREE], tally.counts[HAND] = rows - kept.size, 0
    return model._replace(
        values=values, owner=owner, row_of=row_of, example_row=example_row, used=used, free=free
    )
