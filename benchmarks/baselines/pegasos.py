"""Pegasos (Shalev-Shwartz et al. 2007): stochastic subgradient steps on the primal of each class.

One-vs-rest, λ = 1 / (C n). Step t takes one row, shrinks W by 1 - 1/t and adds ± x / (λ t) to the
classes whose margin is below 1. All classes see the same rows, so that they share the scale of W.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from .rows import Rows


class Pegasos:
    """A run; it begins with W = 0."""

    def __init__(self, rows: Rows, y: np.ndarray, k: int, C: float, seed: int = 0) -> None:
        self.rows, self.y, self.C, self.t = rows, y.astype(np.int64), C, 0
        self.scaled, self.scale = np.zeros((rows.d, k)), 1.0
        self.rng = np.random.default_rng(seed)

    def advance(self) -> None:
        """n rows, drawn at random."""
        order = self.rng.integers(0, self.y.size, self.y.size)
        regular = 1 / (self.C * self.y.size)
        self.scale = steps(*self.rows[:3], self.y, regular, self.scaled, self.scale, self.t, order)
        self.t += order.size

    @property
    def W(self) -> np.ndarray:
        return self.scale * self.scaled

    def primal(self) -> float:
        """½ |W|² + C Σ loss of all classes."""
        W = self.W
        signs = np.where(np.arange(W.shape[1]) == self.y[:, None], 1.0, -1.0)
        loss = np.maximum(0.0, 1.0 - signs * (self.rows.matrix @ W)).sum()
        return 0.5 * float(np.vdot(W, W)) + self.C * float(loss)


@njit(cache=True)
def steps(
    data: Any, indices: Any, indptr: Any, y: Any, regular: float, W: Any, scale: float, t: int,
    order: Any,
) -> float:  # fmt: skip
    k = W.shape[1]
    scores = np.empty(k)
    for i in order:
        t += 1
        scores[:] = 0.0
        for at in range(indptr[i], indptr[i + 1]):
            for m in range(k):
                scores[m] += data[at] * W[indices[at], m]
        scores *= scale
        if t == 1:  # 1 - 1/t is 0, and W is
            scale = 1.0
        else:
            scale *= 1 - 1 / t
        if scale < 1e-6:
            W *= scale
            scale = 1.0
        for m in range(k):
            sign = 1.0 if m == y[i] else -1.0
            if sign * scores[m] < 1:
                for at in range(indptr[i], indptr[i + 1]):
                    W[indices[at], m] += sign * data[at] / (regular * t * scale)
    return scale
