"""Standardized rows as kernels take them, and the one of them that a visit works on ([STD])."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from dask_mcsvm.solvers.standardized import centre_weights, lower_weights, shift_scores

from .jit import bare_part


class StandardRows(NamedTuple):
    """Dense rows that are standardized one at a time, in working space of one thread."""

    X: np.ndarray  # (n, d)
    mean: np.ndarray  # (d,) float64
    inverse: np.ndarray  # (d,) float64, 1 / scale
    row: np.ndarray  # (1, d) of X's type


class CentredRows(NamedTuple):
    """CSR rows x / scale, and what takes their mean off the scores [STD-S].

    ``spread`` and ``level`` belong to one W: they are empty until somebody has one.
    """

    csr: tuple[np.ndarray, np.ndarray, np.ndarray]
    common: np.ndarray  # (n,) float64, c_i
    far: float  # |m|²
    shift: np.ndarray  # (d,) float64, m
    spread: np.ndarray  # (k,) float64, Σ B(alpha_i) that W lacks m times
    level: np.ndarray  # (k,) float64, m·w_m


def own_rows(rows):
    """The same rows with working space for one more thread."""
    if isinstance(rows, StandardRows):
        return rows._replace(row=np.empty_like(rows.row))
    return rows


def with_weights(rows, spread, level):
    """Centred rows whose scores are those of one W; all others as they are."""
    if isinstance(rows, CentredRows):
        return rows._replace(spread=spread, level=level)
    return rows


def with_scores_of(rows, W):
    """Centred rows for visits and certificates of W (d + 1, k); all others as they are."""
    if not isinstance(rows, CentredRows):
        return rows
    return with_weights(rows, np.zeros(W.shape[1]), shift_scores(W, rows.shift))


def beside(rows, others):
    """Centred rows whose visits and those of ``others`` change the scores of the same W."""
    if not isinstance(rows, CentredRows):
        return rows
    return with_weights(rows, others.spread, others.level)


def settle_mean(rows, W):
    """Give W (d + 1, k), in place, what visits of centred rows kept apart from it [STD-W]."""
    if isinstance(rows, CentredRows):
        lower_weights(W, rows.shift, rows.spread)
        rows.spread[:] = 0.0


@contextmanager
def summing(rows, tau, *sums: np.ndarray) -> Iterator[tuple[Any, Any]]:
    """Rows and constant for kernels that add them, times factors, to ``sums`` (d + 1, ...).

    When that is done, the sums are those of the centred rows.
    """
    if not isinstance(rows, CentredRows):
        yield rows, tau
        return
    before = [W[-1:].copy() for W in sums if W.size]
    for W in sums:
        W[-1:] = 0
    yield uncentred(rows, tau)
    for W, last in zip((W for W in sums if W.size), before, strict=True):
        centre_weights(W, rows.shift, float(tau))
        W[-1:] += last


def uncentred(rows, tau):
    """What sums over rows take: the rows x / scale with a constant feature of one [STD-W].

    All rows but centred ones are taken as they are, with their own constant ``tau``.
    """
    if isinstance(rows, CentredRows):
        return rows.csr, type(tau)(1)
    return rows, tau


def kind_of(rows):
    """Which named tuple a compiled kernel has in its hands; None of any other type."""
    return getattr(rows, "instance_class", None)


@bare_part
def standardize(rows, i):
    """Write row i, standardized in float64 and rounded once, into ``rows.row``; returns its place.

    No array is returned, which parts of kernels that count none cannot do.
    """
    row = rows.row
    for j in range(row.shape[1]):
        row[0, j] = (np.float64(rows.X[i, j]) - rows.mean[j]) * rows.inverse[j]
    return 0
