"""What LaRank is compared with, small and clear: averaged perceptron, MIRA, MCSVM.

All take rows of the training kernel matrix from `rows(i)` and return coefficients beta (n, k): the
score of class m at x is Σ_j beta_jm K(x_j, x). They count the kernel values they need, and give up
after `patience` CPU seconds.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

import numpy as np

from dask_mcsvm.formulations.crammer_singer import project_to_simplex

Rows = Callable[[int], np.ndarray]


@dataclass(frozen=True)
class Trained:
    """Coefficients (n, k), kernel values and arg max searches, and whether it came to an end."""

    beta: np.ndarray
    kernels: int
    arg_max: int
    finished: bool


def averaged_perceptron(
    rows: Rows, y: np.ndarray, k: int, epochs: int, seed: int, patience: float = math.inf
) -> Trained:
    """Freund and Schapire (1998), multi-class as in Collins (2002): the mean of all hypotheses."""
    n, visits = y.size, 0
    beta, held = np.zeros((n, k)), np.zeros((n, k))  # held: beta times the visits it has lasted
    since = np.zeros(n, np.int64)
    seen, end = Seen(n), time.process_time() + patience
    for order in orders(n, epochs, seed):
        for i in order:
            if time.process_time() > end:
                break
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
    return Trained(held / visits, seen.kernels, visits, visits == epochs * n)


def mira(
    rows: Rows, y: np.ndarray, k: int, C: float, seed: int, patience: float = math.inf
) -> Trained:
    """Crammer and Singer (2003): one pass, the whole row of coefficients of each example solved."""
    n = y.size
    beta, seen, visits = np.zeros((n, k)), Seen(n), 0
    end = time.process_time() + patience
    (order,) = orders(n, 1, seed)
    for i in order:
        if time.process_time() > end:
            break
        visits += 1
        support, row = np.flatnonzero(beta.any(axis=1)), rows(i)
        seen.look(i, support)
        beta[i] = solved_row(beta[i], row[support] @ beta[support], row[i], y[i], C)
    return Trained(beta, seen.kernels, visits, visits == n)


def mcsvm(
    rows: Rows, y: np.ndarray, k: int, C: float, gap: float, patience: float = math.inf
) -> Trained:
    """Crammer and Singer (2001): the example that violates most, by the full gradient."""
    n = y.size
    own = np.arange(k) == y[:, None]
    beta, scores, asked = np.zeros((n, k)), np.zeros((n, k)), np.zeros(n, bool)
    finished, end = False, time.process_time() + patience
    for step in count():
        g = own - scores
        can_grow = beta < C * own - 1e-10 * C
        violation = np.where(can_grow, g, -np.inf).max(axis=1) - g.min(axis=1)
        if step % 100 == 0:
            loss = (g[own] - g.min(axis=1)).sum()
            finished = bool(C * loss - np.sum(beta * g) <= gap)
            if finished or time.process_time() > end:
                break
        i = int(np.argmax(violation))
        row = rows(i)
        asked[i] = True
        new = solved_row(beta[i], scores[i], row[i], y[i], C)
        scores += np.outer(row, new - beta[i])
        beta[i] = new
    return Trained(beta, int(asked.sum()) * n, 0, finished)


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
