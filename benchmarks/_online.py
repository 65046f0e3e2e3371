"""What LaRank is compared with, small and clear: averaged perceptron, MIRA, MCSVM.

All take rows of the training kernel matrix from `rows(i)` and return coefficients beta (n, k): the
score of class m at x is Σ_j beta_jm K(x_j, x). They count the kernel values they need.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dask_mcsvm.formulations.crammer_singer import project_to_simplex

Rows = Callable[[int], np.ndarray]


@dataclass(frozen=True)
class Trained:
    """Coefficients (n, k), kernel values and arg max searches it took."""

    beta: np.ndarray
    kernels: int
    arg_max: int


def averaged_perceptron(rows: Rows, y: np.ndarray, k: int, epochs: int, seed: int) -> Trained:
    """Freund and Schapire (1998), multi-class as in Collins (2002): the mean of all hypotheses."""
    n, visits = y.size, 0
    beta, held = np.zeros((n, k)), np.zeros((n, k))  # held: beta times the visits it has lasted
    since = np.zeros(n, np.int64)
    seen = Seen(n)
    for order in orders(n, epochs, seed):
        for i in order:
            support = np.flatnonzero(beta.any(axis=1))
            scores = rows(i)[support] @ beta[support]
            seen.look(i, support)
            guess = int(np.argmax(scores))
            visits += 1
            if guess != y[i]:
                held[i] += beta[i] * (visits - since[i])
                since[i] = visits
                beta[i, y[i]] += 1.0
                beta[i, guess] -= 1.0
    held += beta * (visits + 1 - since)[:, None]
    return Trained(held / visits, seen.kernels, epochs * n)


def mira(rows: Rows, y: np.ndarray, k: int, C: float, seed: int) -> Trained:
    """Crammer and Singer (2003): one pass, the whole row of coefficients of each example solved."""
    n = y.size
    beta, seen = np.zeros((n, k)), Seen(n)
    (order,) = orders(n, 1, seed)
    for i in order:
        support, row = np.flatnonzero(beta.any(axis=1)), rows(i)
        seen.look(i, support)
        beta[i] = solved_row(beta[i], row[support] @ beta[support], row[i], y[i], C)
    return Trained(beta, seen.kernels, n)


def mcsvm(rows: Rows, y: np.ndarray, k: int, C: float, gap: float, steps: int) -> Trained:
    """Crammer and Singer (2001): the example that violates most, by the full gradient."""
    n = y.size
    own = np.arange(k) == y[:, None]
    beta, scores, asked = np.zeros((n, k)), np.zeros((n, k)), np.zeros(n, bool)
    for step in range(steps):
        g = own - scores
        can_grow = beta < C * own - 1e-10 * C
        violation = np.where(can_grow, g, -np.inf).max(axis=1) - g.min(axis=1)
        if step % 100 == 0:
            loss = (g[own] - g.min(axis=1)).sum()
            if C * loss - np.sum(beta * g) <= gap:
                break
        i = int(np.argmax(violation))
        row = rows(i)
        asked[i] = True
        new = solved_row(beta[i], scores[i], row[i], y[i], C)
        scores += np.outer(row, new - beta[i])
        beta[i] = new
    return Trained(beta, int(asked.sum()) * n, 0)


def solved_row(
    beta: np.ndarray, scores: np.ndarray, square: float, label: int, C: float
) -> np.ndarray:
    """The best coefficients of one example, the others fixed: a projection [CS-S]."""
    own = np.arange(beta.size) == label
    g = scores + ~own
    upper = C * own
    return upper - project_to_simplex(upper - beta + (g - g.max()) / square, C)


def orders(n: int, epochs: int, seed: int) -> list[np.ndarray]:
    return [np.random.default_rng([seed, epoch]).permutation(n) for epoch in range(epochs)]


class Seen:
    """Counts distinct kernel values, as if all of them fitted a cache."""

    def __init__(self, n: int) -> None:
        self.known = np.zeros((n, n), bool)
        self.kernels = 0

    def look(self, i: int, columns: np.ndarray) -> None:
        fresh = columns[~self.known[i, columns]]
        self.kernels += fresh.size
        self.known[i, fresh] = self.known[fresh, i] = True
