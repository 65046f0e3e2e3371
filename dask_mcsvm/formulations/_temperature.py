"""Probabilities from scores: a softmax whose temperature is fitted to held-out rows [PROB]."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from dask_mcsvm.formulations._base import FloatArray

#: Factors of the scores at which a pass over held-out rows takes its sums, each twice the last, so
#: that one exponential serves all. Scores of text want 5 to 30, at a small C a thousand.
LADDER: FloatArray = np.asarray(2.0 ** np.arange(-6, 19), np.float64)
#: The share of labels that may be anything: without it rows that are all right would ask for
#: probabilities of 0 and 1.
NOISE = 1e-3


def logits(decision: npt.NDArray[Any]) -> FloatArray:
    """What the softmax is taken of, (n, k) float64: the scores, or 0 and the one number of two."""
    wide = decision.astype(np.float64)
    return np.stack([np.zeros_like(wide), wide], axis=1) if wide.ndim == 1 else wide


def softmax(values: FloatArray) -> FloatArray:
    """Probabilities (n, k) of logits (n, k) [PROB]."""
    powers = np.exp(values - values.max(axis=1, keepdims=True))
    found: FloatArray = powers / powers.sum(axis=1, keepdims=True)
    return found


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Sums over held-out rows from which the best temperature follows; they add up over blocks.

    Scores are relative to the largest of their row.

    Attributes
    ----------
    own, mean : float
        Of the score of the own class, and of the mean of all classes.
    expected, variance : ndarray of shape (len(LADDER),)
        Of the score's expectation and variance under the softmax at each step of the ladder.
    """

    own: float
    mean: float
    expected: FloatArray
    variance: FloatArray

    @classmethod
    def of(cls, values: FloatArray, y: npt.NDArray[Any], weights: FloatArray) -> "HeldOut":
        """Of rows with logits (n, k), codes y (n,) and weights (n,)."""
        below = values - values.max(axis=1, keepdims=True, initial=-np.inf)
        square, powers = below * below, np.exp(LADDER[0] * below)
        expected, variance = np.empty_like(LADDER), np.empty_like(LADDER)
        for step in range(LADDER.size):
            total = powers.sum(axis=1)
            first = np.einsum("im,im->i", powers, below) / total
            second = np.einsum("im,im->i", powers, square) / total
            expected[step], variance[step] = weights @ first, weights @ (second - first * first)
            powers *= powers
        own = below[np.arange(y.size), y]
        return cls(float(weights @ own), float(weights @ below.mean(axis=1)), expected, variance)

    def plus(self, other: "HeldOut") -> "HeldOut":
        """The sums over the rows of both."""
        return HeldOut(
            self.own + other.own,
            self.mean + other.mean,
            self.expected + other.expected,
            self.variance + other.variance,
        )

    def temperature(self) -> float:
        """The factor of the scores with the largest likelihood.

        The likelihood is concave, and its slope is the sum of the own scores less that of the
        expected ones: zero where these meet. Between two steps of the ladder the expected sum is
        the cubic in log t that has the right values and slopes at both.
        """
        wanted = (1 - NOISE) * self.own + NOISE * self.mean
        above = int(np.searchsorted(self.expected, wanted))
        if above == 0 or above == LADDER.size:
            return float(LADDER[min(above, LADDER.size - 1)])
        before, after = self.expected[above - 1 : above + 1]
        slopes = np.log(2.0) * (LADDER * self.variance)[above - 1 : above + 1]
        low, high = 0.0, 1.0
        for _ in range(50):
            t = 0.5 * (low + high)
            u = 1 - t
            value = u * u * ((1 + 2 * t) * before + t * slopes[0])
            value += t * t * ((3 - 2 * t) * after - u * slopes[1])
            low, high = (t, high) if value < wanted else (low, t)
        return float(LADDER[above - 1] * 2.0**low)


def best_temperature(parts: Iterable[HeldOut]) -> float:
    """The temperature that all parts together want; 1 where no row was held out."""
    found = list(parts)
    return reduce(HeldOut.plus, found).temperature() if found else 1.0
