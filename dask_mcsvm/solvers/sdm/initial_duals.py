"""How dual variables begin and how they grow, in memory and in shards alike."""

from __future__ import annotations

import numpy as np

from dask_mcsvm.formulations import FORMULATIONS
from dask_mcsvm.formulations.margins import Margins, dearest_rival
from dask_mcsvm.solvers.duals import DENSE_CLASSES, has_lists
from dask_mcsvm.solvers.kernels.dual_variables import (
    SparseAlpha,
    alpha_store,
    empty_alpha,
    tidy_pool,
)
from dask_mcsvm.solvers.kernels.jit import kernel

#: Above DENSE_CLASSES a visit of Crammer-Singer adds at most so many to an example's list: the
#: first visits, when all scores are equal, would otherwise spread alpha over all k classes. The
#: other losses hold many classes at the optimum too and are limited only where n·k is large.
FRESH_CLASSES = 8
#: From so many classes on the others are limited in memory, too: W = 0 violates all margins, and
#: would be filled by the first visits. Weston-Watkins takes the epochs that it takes anyway.
MANY_CLASSES, MANY_FRESH = 512, 32
FRESH_VARIABLES = 2**27


def start_alpha(data, k: int, formulation: str) -> np.ndarray | SparseAlpha:
    """alpha = 0, but for rows without features, whose optimum is known [ZERO]."""
    n, itemsize = data.y.size, data.C.dtype.itemsize
    alpha = empty_alpha(n, k, data.C.dtype, sparse=has_lists(formulation, n, k, itemsize))
    for i in np.flatnonzero(data.square == 0):
        classes, a = optimum_without_features(formulation, data.y[i], data.C[i], k, data.margins)
        alpha = with_room(alpha, k)
        store_row(alpha, i, classes, a)
    return alpha


def optimum_without_features(formulation: str, y: int, C: float, k: int, margins: Margins):
    """Classes and stored variables of a row whose features are all zero."""
    form = FORMULATIONS[formulation]
    if form.starts_at_bound:
        return np.empty(0, np.int32), np.empty(0)  # stored as C - alpha = 0
    if form.loss_is_maximum:  # one rival has all of C
        return np.array([y, dearest_rival(margins, y, k)], np.int32), np.array([C, -C])
    classes = np.arange(k, dtype=np.int32)
    if not form.has_own_variable:
        classes = np.delete(classes, y)
    return classes, np.full(classes.size, C)


def seen_at_zero(data, C: np.ndarray, k: int, formulation: str) -> np.ndarray:
    """Loss and gap of every example at W = 0 and alpha = 0, (n, 2) float64."""
    loss = FORMULATIONS[formulation](k, 1.0, data.margins).losses_at_zero(data.y)
    return np.stack([loss, loss * C.astype(np.float64)], axis=1)


@kernel
def store_row(alpha, i, classes, a):
    """Set the variables of one example."""
    alpha_store(alpha, i, classes, a, classes.size)


def with_room(alpha: np.ndarray | SparseAlpha, k: int) -> np.ndarray | SparseAlpha:
    """The same variables, with room for one more example however many classes it fills.

    Their lists may move, of which the old arrays are told.
    """
    if isinstance(alpha, SparseAlpha) and needs_room(alpha, k):
        return tidy_pool(alpha, slice(None), alpha.classes.size // 2 + 2 * k)
    return alpha


def needs_room(alpha: SparseAlpha, k: int) -> bool:
    """Whether lists may outgrow their pools at the next visit."""
    return bool(alpha.used[0] + 2 * k > alpha.classes.size)


def fresh_of_many(formulation: str, n: int, k: int, *, is_soft: bool) -> int:
    """How many classes a visit of rows in memory may add to an example's list.

    One-vs-rest needs all of them: a row pushes down k - 1 classes. A soft intercept does that for
    all rows at once, and a visit that works on the classes that violate most takes 11 epochs
    instead of 27 to 37 (1,000 classes, gap 1e-2). Without an intercept it would be more than 40
    instead of 6.
    """
    form = FORMULATIONS[formulation]
    if k >= MANY_CLASSES and not form.loss_is_maximum and not form.columns_sum_to_zero:
        if not form.classes_are_independent:
            return MANY_FRESH
        if is_soft:
            return FRESH_CLASSES
    return fresh_classes(formulation, n, k)


def fresh_classes(formulation: str, n: int, k: int) -> int:
    """How many classes a visit may add to an example's list."""
    if k <= DENSE_CLASSES:
        return k
    if FORMULATIONS[formulation].loss_is_maximum:
        return FRESH_CLASSES
    return k if n * k <= FRESH_VARIABLES else DENSE_CLASSES
