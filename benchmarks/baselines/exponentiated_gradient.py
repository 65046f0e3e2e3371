"""Exponentiated gradient for Crammer-Singer's dual (Collins et al. 2008), one example at a time.

The variables of an example are a distribution p_i over the classes, W = C Σ_i x_i (1[y_i] - p_i)ᵀ,
and the dual is D = C Σ_i Σ_{m ≠ y_i} p_im - ½ |W|². A step multiplies p_im by exp(η_i g_im), where
g_im = w_m·x_i + [m ≠ y_i], and makes it a distribution again. It is taken only if D rises: η_i is
halved until it does, and grows by 5 % when it did at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from .rows import Rows


class ExponentiatedGradient:
    """A run; it begins with equal probabilities."""

    def __init__(self, rows: Rows, y: np.ndarray, k: int, C: float, seed: int = 0) -> None:
        self.rows, self.y, self.k, self.C = rows, y.astype(np.int64), k, C
        n = y.size
        self.log_p = np.zeros((n, k))  # up to a constant per example
        self.step = 1 / (C * np.maximum(rows.square, 1e-12))
        self.rng = np.random.default_rng(seed)
        G = -np.full((n, k), C / k)
        G[np.arange(n), self.y] += C
        self.W = np.ascontiguousarray(rows.matrix.T @ G)

    def advance(self) -> None:
        """n examples, drawn at random."""
        order = self.rng.integers(0, self.y.size, self.y.size)
        sweep(*self.rows[:4], self.y, self.C, self.log_p, self.step, self.W, order)

    def dual(self) -> float:
        p = np.exp(self.log_p - self.log_p.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        rivals = float((1 - p[np.arange(self.y.size), self.y]).sum())
        return self.C * rivals - 0.5 * float(np.vdot(self.W, self.W))


@njit(cache=True)
def normalized(logarithms: Any, out: Any) -> None:
    most = logarithms.max()
    total = 0.0
    for m in range(out.size):
        out[m] = np.exp(logarithms[m] - most)
        total += out[m]
    for m in range(out.size):
        out[m] /= total


@njit(cache=True)
def sweep(
    data: Any, indices: Any, indptr: Any, square: Any, y: Any, C: float, log_p: Any, step: Any,
    W: Any, order: Any,
) -> None:  # fmt: skip
    k = W.shape[1]
    g, old, new, moved = np.empty(k), np.empty(k), np.empty(k), np.empty(k)
    for i in order:
        if square[i] == 0:
            continue
        g[:] = 1.0
        g[y[i]] = 0.0
        for at in range(indptr[i], indptr[i + 1]):
            j, v = indices[at], data[at]
            for m in range(k):
                g[m] += v * W[j, m]
        normalized(log_p[i], old)
        at_once = True
        while True:
            for m in range(k):
                moved[m] = log_p[i, m] + step[i] * g[m]
            normalized(moved, new)
            rise = 0.0
            for m in range(k):
                change = new[m] - old[m]
                rise += change * (g[m] - 0.5 * C * square[i] * change)
            if rise >= 0 or step[i] * square[i] * C < 1e-6:
                break
            step[i] /= 2
            at_once = False
        if rise < 0:
            continue
        if at_once:
            step[i] *= 1.05
        most = moved.max()
        for m in range(k):
            log_p[i, m] = moved[m] - most
        for at in range(indptr[i], indptr[i + 1]):
            j, v = indices[at], C * data[at]
            for m in range(k):
                W[j, m] -= v * (new[m] - old[m])
