"""Baselines with kernels: averaged perceptron, MIRA, MCSVM and a cutting plane like SVMstruct's.

All take the training kernel matrix K (n, n), float32, and return coefficients beta (n, k): the
score of class m at x is Σ_j beta_jm K(x_j, x). They hold the scores of all training rows, which
makes them fast; what they count is what a program would compute that asks for scores when it needs
them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit


class Trained(NamedTuple):
    """Coefficients (n, k), kernel values, searches for a largest score, and steps."""

    beta: np.ndarray
    kernels: int
    arg_max: int
    steps: int

    def dual(self, K: np.ndarray, y: np.ndarray) -> float:
        """Σ_i beta_i,yi - ½ Σ_m beta_mᵀ K beta_m: Crammer-Singer's dual."""
        support = np.flatnonzero(self.beta.any(axis=1))
        beta = self.beta[support]
        square = float(np.vdot(beta, K[np.ix_(support, support)] @ beta))
        return float(beta[np.arange(support.size), y[support]].sum()) - 0.5 * square


def averaged_perceptron(
    K: np.ndarray, y: np.ndarray, k: int, epochs: int, seed: int = 0
) -> Trained:
    """Freund and Schapire (1998), multi-class as in Collins (2002): the mean of all hypotheses."""
    rng = np.random.default_rng(seed)
    order = np.concatenate([rng.permutation(y.size) for _ in range(epochs)])
    beta, kernels = perceptron(K, y.astype(np.int64), k, order)
    return Trained(beta, kernels, order.size, order.size)


def mira(K: np.ndarray, y: np.ndarray, k: int, C: float, seed: int = 0) -> Trained:
    """Crammer and Singer (2003): one pass, all coefficients of each example solved once."""
    order = np.random.default_rng(seed).permutation(y.size)
    beta, kernels = pass_of_mira(K, y.astype(np.int64), k, C, order)
    return Trained(beta, kernels, order.size, order.size)


def mcsvm(
    K: np.ndarray, y: np.ndarray, k: int, C: float, gap: float, max_steps: int = 10**9
) -> Trained:
    """Crammer and Singer (2001): the example that violates most, by the full gradient."""
    beta, kernels, count = decompose(K, y.astype(np.int64), k, C, gap, max_steps)
    return Trained(beta, kernels, 0, count)


def svm_struct(
    K: np.ndarray, y: np.ndarray, k: int, C: float, epsilon: float, max_passes: int = 1000
) -> Trained:
    """Tsochantaridis et al. (2005): a working set of classes per example, one slack each."""
    return Trained(*working_sets(K, y.astype(np.int64), k, C, epsilon, max_passes))


@njit(cache=True)
def perceptron(K: Any, y: Any, k: int, order: Any) -> Any:
    n = y.size
    beta, held, scores = np.zeros((n, k)), np.zeros((n, k)), np.zeros((n, k))
    is_support, support, kernels, left = np.zeros(n, np.bool_), 0, 0, order.size
    for i in order:
        kernels += support
        guess = np.argmax(scores[i])
        if guess != y[i]:
            support += not is_support[i]
            is_support[i] = True
            for m, change in ((y[i], 1.0), (guess, -1.0)):
                beta[i, m] += change
                held[i, m] += change * left  # of so many hypotheses
                for j in range(n):
                    scores[j, m] += change * K[i, j]
        left -= 1
    return held / order.size, kernels


@njit(cache=True)
def solve_example(beta: Any, scores: Any, square: float, label: int, C: float, out: Any) -> None:
    """The best coefficients of one example, the others fixed: a projection onto a simplex."""
    k = beta.size
    u = np.empty(k)
    most = scores.max() + 1.0
    for m in range(k):
        own = m == label
        u[m] = (C if own else 0.0) - beta[m] + (scores[m] + (0.0 if own else 1.0) - most) / square
    falling = np.sort(u)[::-1]
    total, theta = 0.0, 0.0
    for c in range(k):
        total += falling[c]
        if falling[c] > (total - C) / (c + 1):
            theta = (total - C) / (c + 1)
    for m in range(k):
        out[m] = (C if m == label else 0.0) - max(0.0, u[m] - theta)


@njit(cache=True)
def put(K: Any, i: int, new: Any, beta: Any, scores: Any) -> None:
    for m in range(new.size):
        change = new[m] - beta[i, m]
        if change != 0:
            beta[i, m] = new[m]
            for j in range(scores.shape[0]):
                scores[j, m] += change * K[i, j]


@njit(cache=True)
def pass_of_mira(K: Any, y: Any, k: int, C: float, order: Any) -> Any:
    n = y.size
    beta, scores, new = np.zeros((n, k)), np.zeros((n, k)), np.empty(k)
    support, kernels = 0, 0
    for i in order:
        kernels += support
        solve_example(beta[i], scores[i], K[i, i], y[i], C, new)
        put(K, i, new, beta, scores)
        support += np.any(new != 0)
    return beta, kernels


@njit(cache=True)
def decompose(K: Any, y: Any, k: int, C: float, gap: float, max_steps: int) -> Any:
    n = y.size
    beta, scores, new = np.zeros((n, k)), np.zeros((n, k)), np.empty(k)
    asked = np.zeros(n, np.bool_)
    step = 0
    while step < max_steps:
        worst, most, distance = 0, -1.0, 0.0
        for i in range(n):
            low, high, linear = np.inf, -np.inf, 0.0
            for m in range(k):
                g = (1.0 if m == y[i] else 0.0) - scores[i, m]
                low = min(low, g)
                if beta[i, m] < (C if m == y[i] else 0.0) - 1e-10 * C:
                    high = max(high, g)
                linear += beta[i, m] * g
            distance += C * (1.0 - scores[i, y[i]] - low) - linear
            if high - low > most:
                worst, most = i, high - low
        if distance <= gap:
            break
        step += 1
        asked[worst] = True
        solve_example(beta[worst], scores[worst], K[worst, worst], y[worst], C, new)
        put(K, worst, new, beta, scores)
    return beta, asked.sum() * n, step


@njit(cache=True)
def reoptimize(K: Any, y: Any, C: float, epsilon: float, known: Any, beta: Any, scores: Any) -> Any:
    """SMO over the working sets to ``epsilon``; how many steps."""
    n, k = beta.shape
    steps, again = 0, True
    while again:
        again = False
        for i in range(n):
            if not known[i].any():
                continue
            for _ in range(10):
                up, down = -1, -1
                for m in range(k):
                    own = m == y[i]
                    if not (own or known[i, m]):
                        continue
                    g = (1.0 if own else 0.0) - scores[i, m]
                    if beta[i, m] < (C if own else 0.0) and (
                        up < 0 or g > (1.0 if up == y[i] else 0.0) - scores[i, up]
                    ):
                        up = m
                    if down < 0 or g < (1.0 if down == y[i] else 0.0) - scores[i, down]:
                        down = m
                if up < 0:
                    break
                rise = (1.0 if up == y[i] else 0.0) - (1.0 if down == y[i] else 0.0)
                rise += scores[i, down] - scores[i, up]
                if rise <= epsilon / 2:
                    break
                size = min(rise / (2 * K[i, i]), (C if up == y[i] else 0.0) - beta[i, up])
                if size <= 1e-12 * C:
                    break
                beta[i, up] += size
                beta[i, down] -= size
                for j in range(n):
                    scores[j, up] += size * K[i, j]
                    scores[j, down] -= size * K[i, j]
                steps += 1
                again = True
    return steps


@njit(cache=True)
def working_sets(K: Any, y: Any, k: int, C: float, epsilon: float, max_passes: int) -> Any:
    n = y.size
    beta, scores = np.zeros((n, k)), np.zeros((n, k))
    known = np.zeros((n, k), np.bool_)
    is_support = np.zeros(n, np.bool_)
    support, kernels, searches, steps, fresh = 0, 0, 0, 0, 0
    for _ in range(max_passes):
        found = 0
        for i in range(n):
            searches += 1
            kernels += support
            worst, most, slack = y[i], 0.0, 0.0
            for m in range(k):
                loss = 0.0 if m == y[i] else 1.0 + scores[i, m] - scores[i, y[i]]
                if loss > most:
                    worst, most = m, loss
                if known[i, m] and loss > slack:
                    slack = loss
            if most > slack + epsilon:
                known[i, worst] = True
                support += not is_support[i]
                is_support[i] = True
                found += 1
                fresh += 1
            if fresh >= 100 or (i == n - 1 and fresh):
                done = reoptimize(K, y, C, epsilon, known, beta, scores)
                steps += done
                kernels += done * support
                fresh = 0
        if found == 0:
            break
    return beta, kernels, searches, steps
