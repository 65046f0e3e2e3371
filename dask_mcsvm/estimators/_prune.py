"""The smallest model within a gap: weights are set to zero as long as the certificate holds."""

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dask_mcsvm.errors import CertificateError
from dask_mcsvm.estimators._certain import weights_square
from dask_mcsvm.estimators._certificate import Certificate, own_intercept
from dask_mcsvm.formulations import FORMULATIONS

#: Shares of the weights that may be kept: each step leaves 1% less, down to one in 65,536.
KEPT = 2.0 ** -(np.arange(1025) / 64)
#: Weights whose influence tells how influences are spread.
SAMPLE = 2**18


def refuse_tied(formulation: str) -> None:
    """An error for a formulation whose classes' weights must sum to zero."""
    form = FORMULATIONS[formulation]
    if form.columns_sum_to_zero:
        raise ValueError(
            f"the weights of {formulation} sum to zero over the classes, which zeros here and "
            "there would break; prune a model of another formulation."
        )


def column_squares(X: Any) -> npt.NDArray[np.float64]:
    """Sum of the squares of each feature (d,) over rows (n, d) in memory."""
    if sp.issparse(X):
        squares = np.square(X.data, dtype=np.float64)
        return np.asarray(np.bincount(X.indices, squares, minlength=X.shape[1]))
    step = max(1, SAMPLE // max(1, X.shape[1]))
    blocks = (X[i : i + step].astype(np.float64) for i in range(0, X.shape[0], step))
    return np.asarray(sum(np.einsum("ij,ij->j", rows, rows) for rows in blocks))


def pruned(
    model: Any,
    squares: npt.NDArray[np.float64],
    max_gap: float,
    certify: Callable[[Any], Certificate],
) -> Any:
    """A copy of a fitted model with as many weights at zero as the gap allows.

    Parameters
    ----------
    squares : ndarray of shape (d,)
        Sum of the squares of each feature over the training rows: with the square of a weight it
        is how far the scores of all rows move if that weight goes. Where columns are centred, of
        the distances from their mean, or what is proportional to it.
    certify : callable
        The certificate of a model.
    """
    best = certify(model)
    if not best.relative_gap <= max_gap:
        refuse_gap(best.relative_gap, model.gap_, max_gap)
    coef = sp.csr_array(model.coef_) if sp.issparse(model.coef_) else np.asarray(model.coef_)
    columns = model._trained.columns
    own = own_intercept(model.coef_, model.intercept_, columns)
    levels = thresholds(coef, squares)
    found, low, high = model, 0, len(levels)  # `low` is allowed, `high` is not
    while high - low > 1:
        middle = (low + high) // 2
        trial = copy.copy(model)
        trial.coef_ = without_least(coef, squares, levels[middle])
        if columns is not None and columns.centred:
            trial.intercept_ = own - trial.coef_ @ columns.mean
        seen = certify(trial)
        if seen.relative_gap <= max_gap:
            low, best, found = middle, seen, trial
        else:
            high = middle
    return as_fitted(found, best)


def refuse_gap(found: float, fitted: float, max_gap: float) -> None:
    """An error for a model whose gap is above `max_gap` with all its weights."""
    if fitted <= max_gap:
        raise CertificateError(
            f"the gap of the model is {found:.2g} on these rows, and was {fitted:.2g} on those of "
            "the fit: X, y or sample_weight are not those, or coef_ was changed; pass what fit "
            "saw, or a larger max_gap."
        )
    raise ValueError(
        f"max_gap is {max_gap:g}, and the gap of the model is {found:.2g} with all its weights; "
        "pass a larger max_gap, or fit with a smaller tol."
    )


def thresholds(coef: Any, squares: npt.NDArray[np.float64]) -> list[float]:
    """Influences below which weights go, ascending; below the first, 0, none does."""
    drawn: Any = np.random.default_rng(0).integers(coef.size, size=SAMPLE)  # of a CSR those stored
    if coef.size <= SAMPLE:
        drawn = np.arange(coef.size)
    if sp.issparse(coef):
        weights, columns = coef.data[drawn], coef.indices[drawn]
    else:
        rows, columns = np.unravel_index(drawn, coef.shape)
        weights = coef[rows, columns]
    some = np.square(weights, dtype=np.float64) * squares[columns]
    some = some[some > 0]
    return [0.0, *np.quantile(some, 1 - KEPT[1:]).tolist()] if some.size else [0.0]


def without_least(coef: Any, squares: npt.NDArray[np.float64], level: float) -> sp.csr_array:
    """The weights whose influence reaches the level, class by class."""
    if sp.issparse(coef):
        coef = coef.copy()
        coef.data[np.square(coef.data, dtype=np.float64) * squares[coef.indices] < level] = 0
        coef.eliminate_zeros()
        return coef
    parts = []
    for row in coef:
        influence = np.square(row, dtype=np.float64) * squares
        kept = np.flatnonzero((influence >= level) & (row != 0))
        parts.append((row[kept], kept.astype(np.int32)))
    indptr = np.cumsum([0, *(kept.size for _, kept in parts)])
    if indptr[-1] <= np.iinfo(np.int32).max:  # SciPy widens the indices to what this is
        indptr = indptr.astype(np.int32)
    data, indices = (np.concatenate(part) for part in zip(*parts, strict=True))
    return sp.csr_array((data, indices, indptr), shape=coef.shape)


def density_of(coef: Any) -> float:
    """Share of the weights (k, d) that are not zero."""
    nonzero = np.count_nonzero(coef.data if sp.issparse(coef) else coef)
    return float(nonzero / (coef.shape[0] * coef.shape[1]))


def as_fitted(model: Any, certificate: Certificate) -> Any:
    """A copy of a model of other weights than its fit's, dense where that is smaller."""
    coef, trained = model.coef_, model._trained
    if sp.issparse(coef) and coef.data.nbytes + coef.indices.nbytes >= coef.dtype.itemsize * (
        coef.shape[0] * coef.shape[1]
    ):
        coef = np.ascontiguousarray(coef.toarray().T).T
    new = copy.copy(model)
    new.__dict__.pop("_alpha", None)
    new.coef_ = coef
    new.primal_, new.gap_ = certificate.primal, certificate.relative_gap
    new.density_ = density_of(coef)
    square = weights_square(coef, model.intercept_, trained.tau, trained.columns)
    new._trained = replace(trained, square=square)
    return new
