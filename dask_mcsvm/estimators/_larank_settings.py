"""LaRankSVC's parameters, checked and spelled out."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dask_mcsvm.data.validation import (
    check_callbacks,
    check_choice,
    check_dtype,
    check_flag,
    check_integer,
    check_layer,
    check_number,
    check_verbose,
    draw_seed,
    saying_what_to_type,
)
from dask_mcsvm.errors import bad_parameter
from dask_mcsvm.estimators._margins import read_margins
from dask_mcsvm.estimators._settings import check_kept, read_path
from dask_mcsvm.solvers.larank import TAU, Aim, Kernel

WITH_GAMMA = ("rbf", "poly", "sigmoid")
KERNELS = ("linear", "rbf", "poly", "sigmoid", "precomputed")
#: Epochs of a fit that runs until the gap closes, if the user names no number.
GAP_EPOCHS = 1000
#: Of "poly"; beyond it every value is 0, 1 or infinite.
LARGEST_DEGREE = 1000


@dataclass(frozen=True)
class Settings:
    """Parameters of one fit. ``tol`` None is the paper's rule: primal - dual <= C."""

    kernel: str
    function: Callable[[Any, Any], Any] | None
    gamma: float | str
    degree: int
    coef0: float
    C: float
    max_epochs: int
    shuffle: bool
    by_gap: bool
    tol: float | None
    cache_bytes: int
    schedule: str
    max_support: int | None
    checkpoint: str | None
    resume: bool
    dtype: np.dtype[Any] | None
    callbacks: tuple[Callable[[dict[str, Any]], object], ...]
    verbose: int
    seed: int
    margins: Any = None

    def aim(self, total_cost: float) -> Aim:
        """When the fit is good enough; C_i sum up to `total_cost`."""
        if not self.by_gap:
            return Aim(False, 0.0, 0.0, total_cost)
        if self.tol is None:
            return Aim(True, 0.0, self.C, total_cost)
        return Aim(True, self.tol, 0.0, total_cost)


def read_settings(estimator: Any, *, lazy: bool = False) -> Settings:
    """Check every parameter that can be checked without looking at the data."""
    check_layer(estimator.layer)
    check_kept(estimator, ("checkpoint",), lazy)
    kernel, function = estimator.kernel, None
    if callable(kernel):
        kernel, function = "callable", estimator.kernel
    elif not (isinstance(kernel, str) and kernel in KERNELS):
        needed = "a function of two arrays of rows, or one of " + ", ".join(map(repr, KERNELS))
        raise bad_parameter("kernel", kernel, needed, 'kernel="rbf"')
    by_gap = check_choice("stop", estimator.stop, ("epochs", "gap")) == "gap"
    tol, support = estimator.tol, estimator.max_support
    return Settings(
        kernel=kernel,
        function=function,
        gamma=_read_gamma(estimator.gamma),
        degree=_read_degree(estimator.degree),
        coef0=check_number("coef0", estimator.coef0, example="coef0=1.0"),
        C=check_number("C", estimator.C, above=0.0, example="C=1.0"),
        max_epochs=_read_epochs(estimator.max_epochs, by_gap),
        shuffle=check_flag("shuffle", estimator.shuffle),
        by_gap=by_gap,
        tol=None if tol is None else check_number("tol", tol, at_least=0.0, example="tol=1e-3"),
        cache_bytes=_read_cache(estimator.cache_size),
        schedule=check_choice("schedule", estimator.schedule, ("cost", "time", "fixed")),
        max_support=None
        if support is None
        else min(
            check_integer("max_support", support, at_least=2, example="max_support=1000"), 2**62
        ),
        checkpoint=read_path("checkpoint", estimator.checkpoint),
        resume=check_flag("resume", estimator.resume),
        dtype=check_dtype(estimator.dtype),
        callbacks=check_callbacks(estimator.callbacks),
        verbose=check_verbose(estimator.verbose),
        seed=draw_seed(estimator.random_state),
        margins=estimator.margins,
    )


def _read_gamma(gamma: object) -> float | str:
    if isinstance(gamma, str) and gamma in ("scale", "auto"):
        return gamma
    if isinstance(gamma, str):
        needed = 'a finite number above 0, "scale" or "auto"'
        raise bad_parameter("gamma", gamma, needed, 'gamma="scale"')
    return check_number("gamma", gamma, above=0.0, example='gamma="scale"')


def _read_degree(degree: object) -> int:
    read = check_integer("degree", degree, at_least=1, example="degree=3")
    if read > LARGEST_DEGREE:
        needed = f"an integer from 1 to {LARGEST_DEGREE}"
        raise bad_parameter("degree", degree, needed, "degree=3")
    return read


def _read_cache(megabytes: object) -> int:
    """Bytes; more than any machine has are as good as none too many."""
    read = check_number("cache_size", megabytes, above=0.0, example="cache_size=500")
    return int(min(read, 2.0**40) * 2**20)


def _read_epochs(max_epochs: object, by_gap: bool) -> int:
    if max_epochs is None:
        return GAP_EPOCHS if by_gap else 1
    return check_integer("max_epochs", max_epochs, at_least=1, example="max_epochs=1")


def check_classes(classes: Any) -> npt.NDArray[Any]:
    """The list of all classes that a user gave, sorted and each once."""
    try:
        labels = np.asarray(classes)
        found = f"has shape {labels.shape}"
    except ValueError:  # lists of several lengths
        labels, found = np.empty((0, 0)), "has lists of several lengths"
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        raise ValueError(
            f"classes {found}; it must be a list of all labels: type classes=numpy.unique(y)."
        )
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise ValueError("classes has NaN or infinity; type classes=numpy.unique(y).")
    with saying_what_to_type():
        known: npt.NDArray[Any] = np.unique(labels)
    return known


def resolve_gamma(settings: Settings, d: int, variance: Callable[[], float]) -> float:
    """gamma as a number; "scale" is 1 / (d · variance of X), as in scikit-learn."""
    gamma = settings.gamma
    if gamma == "auto":
        return 1.0 / d
    if gamma == "scale":
        spread = variance()
        if 0.0 < d * spread < 1.0 / sys.float_info.max:
            if settings.kernel not in WITH_GAMMA:
                return 1.0  # a number that is not used
            raise ValueError(
                f'gamma is "scale", and X has a variance of {spread:.1e}, whose inverse overflows '
                "float64; scale the columns with sklearn.preprocessing.StandardScaler, or type a "
                "number for gamma."
            )
        return 1.0 / (d * spread) if spread > 0 else 1.0
    return float(gamma)


def variance_of(X: Any, weights: npt.NDArray[np.float64] | None = None) -> float:
    """Variance of all entries of X, dense or CSR, in float64; weights are copies of rows."""
    total = square = 0.0
    for start in range(0, X.shape[0], 4096):  # no float64 copy of all of X
        part = X[start : start + 4096].astype(np.float64)
        w = np.ones(part.shape[0]) if weights is None else weights[start : start + 4096]
        squares = part.multiply(part) if sp.issparse(part) else part * part
        total += float(w @ np.asarray(part.sum(axis=1)).ravel())
        square += float(w @ np.asarray(squares.sum(axis=1)).ravel())
    size = X.shape[1] * (X.shape[0] if weights is None else weights.sum())
    return float(max(0.0, square / size - (total / size) ** 2)) if size else 0.0


def costs_of(C: float, weights: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """C_i of each row (or class), whose sum the objective must be able to hold."""
    with np.errstate(over="ignore"):
        costs = C * weights
        total = float(costs.sum())
    if not np.isfinite(total):
        raise ValueError(
            f"C={C:g} times the weights overflows float64; lower C, or divide sample_weight and "
            "class_weight by their mean."
        )
    return costs


def parameters_of(
    settings: Settings,
    gamma: float,
    *,
    classes: npt.NDArray[Any],
    d: int,
    is_sparse: bool,
    dtype: np.dtype[Any],
) -> dict[str, Any]:
    """Of the `LaRank` to train."""
    name = settings.kernel
    return {
        "n_classes": classes.size,
        "n_features": d,
        "is_sparse": is_sparse,
        "dtype": dtype,
        "kernel": Kernel(name, gamma, float(settings.degree), settings.coef0, settings.function),
        "seed": settings.seed,
        "tau": TAU,
        "schedule": settings.schedule,
        "max_support": settings.max_support,
        "cache_bytes": settings.cache_bytes,
        "margins": read_margins(settings.margins, classes),
    }
