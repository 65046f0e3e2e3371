"""Cutting planes for Crammer-Singer (Joachims et al. 2008; as a bundle method Teo et al. 2007).

The loss of all examples together, R(W), is a maximum of planes <A, W> + b. Every iteration adds the
plane that touches R at the present W, and minimizes ½ |W|² + C max_t (<A_t, W> + b_t): its dual has
a variable per plane, λ in a simplex, W = -C Σ_t λ_t A_t. Its optimum is a lower bound of P.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from .rows import Rows

#: Iterations without weight after which a plane is forgotten, as in SVMstruct.
IDLE = 50


class CuttingPlane:
    """A run; it begins with W = 0 and the plane of no loss."""

    def __init__(self, rows: Rows, y: np.ndarray, k: int, C: float) -> None:
        self.X, self.y, self.C = rows.matrix, y.astype(np.int64), C
        self.own = np.arange(y.size), self.y
        self.W = np.zeros((rows.d, k))
        self.planes = [np.zeros((rows.d, k), np.float32)]
        self.b, self.gram = np.zeros(1), np.zeros((1, 1))
        self.weight, self.idle = np.ones(1), np.zeros(1, np.int64)
        self.lower = 0.0

    def advance(self) -> None:
        """One plane more."""
        plane, b = self._touching()
        products = np.array([float(np.vdot(plane, other)) for other in self.planes])
        square = float(np.vdot(plane, plane))
        self.gram = np.block([[self.gram, products[:, None]], [products[None], square]])
        self.planes.append(plane)
        self.b, self.weight = np.append(self.b, b), np.append(self.weight, 0.0)
        best_weights(self.gram, self.b, self.C, self.weight, 1e-9)
        self.idle = np.where(self.weight > 0, 0, np.append(self.idle, 0) + 1)
        self._forget()
        self.W[:] = 0.0
        for weight, one in zip(self.weight, self.planes, strict=True):
            if weight:
                self.W -= self.C * weight * one
        squares = float(self.weight @ self.gram @ self.weight)
        self.lower = self.C * float(self.weight @ self.b) - 0.5 * self.C**2 * squares

    def dual(self) -> float:
        return self.lower

    def _touching(self) -> tuple[np.ndarray, float]:
        scores = self.X @ self.W + 1.0
        scores[self.own] -= 1.0
        worst = scores.argmax(axis=1)
        G = np.zeros_like(scores)
        G[np.arange(worst.size), worst] += 1.0
        G[self.own] -= 1.0
        return np.asarray(self.X.T @ G, np.float32), float(np.sum(worst != self.y))

    def _forget(self) -> None:
        kept = np.flatnonzero(self.idle <= IDLE)
        self.planes = [self.planes[t] for t in kept]
        self.b, self.weight, self.idle = self.b[kept], self.weight[kept], self.idle[kept]
        self.gram = self.gram[np.ix_(kept, kept)]


@njit(cache=True)
def best_weights(gram: Any, b: Any, C: float, weight: Any, tolerance: float) -> None:
    """Maximize C λ·b - ½ C² λ·Gλ over the simplex, two weights at a time."""
    gradient = C * b - C * C * (gram @ weight)
    for _ in range(200 * b.size + 100_000):
        up, down = 0, -1
        for t in range(b.size):
            if gradient[t] > gradient[up]:
                up = t
            if weight[t] > 0 and (down < 0 or gradient[t] < gradient[down]):
                down = t
        rise = gradient[up] - gradient[down]
        if rise <= tolerance * C * max(1.0, b.max()):
            break
        bend = C * C * (gram[up, up] + gram[down, down] - 2 * gram[up, down])
        size = weight[down] if bend <= 0 else min(weight[down], rise / bend)
        weight[up] += size
        weight[down] = 0.0 if size == weight[down] else weight[down] - size
        for t in range(b.size):
            gradient[t] -= C * C * size * (gram[t, up] - gram[t, down])
