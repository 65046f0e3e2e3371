"""The mathematics: primal, dual, W(alpha), gap and exact step of four multi-class SVMs.

Plain NumPy in float64, slow and obviously right: the specification that kernels are tested
against. Formulas carry labels such as [WW-S]; docs/math.md explains each.

Symbols
-------
n, d, k    : int           examples, features, classes
X          : (n, d)        rows x_i; dense or CSR, float32 or float64, computed in float64
y          : (n,) int      labels y_i in 0..k-1
C          : () or (n,)    cost C_i of a unit of loss, float64 >= 0
W          : (d, k)        columns w_m, float64
scores     : (n, k)        w_m.x_i, float64
alpha      : (n, k)        dual variables; alpha_{i, y_i} = 0 in Weston-Watkins and Lee-Lin-Wahba
B          : (n, k)        coefficients, linear in alpha, W = X^T B
g          : (n, k)        gradient of -D at alpha, a function of the scores
A          : (n,)          squared norms ||x_i||^2
v          : (n,), (n, k)  violations: per example in Crammer-Singer, else per variable
P, D, gap  : float         P(W), D(alpha), P(W(alpha)) - D(alpha) >= 0

Examples
--------
>>> import numpy as np
>>> from dask_mcsvm.formulations import WestonWatkins
>>> X, y = np.eye(3), np.arange(3)
>>> ww = WestonWatkins(n_classes=3, C=1.0)
>>> alpha = np.zeros((3, 3))
>>> for i in range(3):
...     alpha[i] = ww.example_step(i, alpha, ww.weights(alpha, X, y), X, y)
>>> round(ww.gap(alpha, X, y), 12)
0.0
"""

from dask_mcsvm.formulations._base import Formulation, half_square
from dask_mcsvm.formulations._names import (
    FORMULATIONS,
    SHORT_NAMES,
    formulation_name,
    relative_gap,
)
from dask_mcsvm.formulations._nearness import Nearness, distance_bound
from dask_mcsvm.formulations._standardize import Moments, Standardization, is_constant, moments
from dask_mcsvm.formulations._tally import Bounds, Tally
from dask_mcsvm.formulations._temperature import HeldOut, best_temperature, logits, softmax
from dask_mcsvm.formulations.crammer_singer import CrammerSinger
from dask_mcsvm.formulations.lee_lin_wahba import LeeLinWahba
from dask_mcsvm.formulations.one_vs_rest import OneVsRest
from dask_mcsvm.formulations.weston_watkins import WestonWatkins

__all__ = [
    "FORMULATIONS",
    "SHORT_NAMES",
    "Bounds",
    "CrammerSinger",
    "Formulation",
    "HeldOut",
    "LeeLinWahba",
    "Moments",
    "Nearness",
    "OneVsRest",
    "Standardization",
    "Tally",
    "WestonWatkins",
    "best_temperature",
    "distance_bound",
    "formulation_name",
    "half_square",
    "is_constant",
    "logits",
    "moments",
    "relative_gap",
    "softmax",
]
