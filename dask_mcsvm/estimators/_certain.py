"""Labels that the exact optimum would give as well [NEAR]."""

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dask_mcsvm.data.validation import is_lazy
from dask_mcsvm.errors import CertificateError
from dask_mcsvm.estimators._certificate import Certificate, own_intercept, refuse_no_bound
from dask_mcsvm.estimators._predict import score_blocks, some_rows
from dask_mcsvm.formulations import Nearness, Standardization, distance_bound

#: Entries of W whose squares are added at a time.
BLOCK = 2**20
#: Sums of the same squares in another order differ by less than this share.
SAME = 1e-9


def weights_square(
    coef: Any,
    intercept: npt.NDArray[Any],
    tau: float,
    columns: Standardization | None = None,
) -> float:
    """||W||^2 in float64 of coef (k, d), dense, sparse or a Dask array, and intercept (k,)."""
    bias = np.square(own_intercept(coef, intercept, columns) / (tau or 1.0)).sum()
    if columns is not None:
        return float(bias) + _scaled_square(coef, columns.scale)
    if is_lazy(coef):
        return float((coef.astype(np.float64) ** 2).sum().compute()) + float(bias)
    W = coef.data[None] if sp.issparse(coef) else coef.T
    flat = W.ravel(order="A" if W.flags.forc else "K")
    parts = (flat[first : first + BLOCK] for first in range(0, flat.size, BLOCK))
    return float(bias + sum(np.square(part, dtype=np.float64).sum() for part in parts))


def _scaled_square(coef: Any, scale: npt.NDArray[np.float64]) -> float:
    """||W||^2 of coef (k, d) times the scale of each column."""
    if sp.issparse(coef):
        squares = coef.astype(np.float64).power(2).sum(axis=0)
        return float(np.square(scale) @ np.asarray(squares).ravel())
    if is_lazy(coef):
        return float(((coef.astype(np.float64) * scale) ** 2).sum().compute())
    step = max(1, BLOCK // coef.shape[0])
    return float(
        sum(
            np.square(coef[:, j : j + step] * scale[j : j + step]).sum()
            for j in range(0, scale.size, step)
        )
    )


def nearness_of(model: Any, certificate: Any) -> Nearness:
    """How near a fitted model is to the optimum.

    Raises
    ------
    CertificateError
        If its fit proved nothing, or the weights are no longer those that it proved it of.
    """
    trained = model._trained
    square = weights_square(model.coef_, model.intercept_, trained.tau, trained.columns)
    if certificate is None:
        refuse_no_bound(model.dual_)
        if not np.isfinite(model.primal_):
            raise CertificateError(
                "the fit proved no gap (gap_ is nan); fit again with a solver that certifies."
            )
        # Not "differs by more": nan, of a file that does not say, differs too.
        if not abs(square - trained.square) <= SAME * square:
            raise CertificateError(
                "coef_ or intercept_ are not known to be those that the fit certified; type "
                "certain(X, certificate=model.certify(X_train, y_train)) with the training rows."
            )
        primal, dual = model.primal_, model.dual_
    elif isinstance(certificate, Certificate):
        primal, dual = certificate.primal, certificate.dual
    else:
        raise TypeError(
            f"certificate is a {type(certificate).__name__}; it must be what certify returns: type "
            "certain(X, certificate=model.certify(X_train, y_train))."
        )
    unit = float(np.finfo(model.coef_.dtype).eps)
    summands = trained.n_given + model.n_features_in_
    distance = distance_bound(primal, dual, square=square, unit=unit, summands=summands)
    return Nearness(
        distance, float(np.sqrt(square)), trained.tau, unit, trained.formulation, trained.columns
    )


def certain_rows(
    X: Any, coef: Any, intercept: npt.NDArray[Any], near: Nearness
) -> npt.NDArray[np.bool_]:
    """Whether the label of each row (n,) is certain; rows in memory, block by block."""
    k = coef.shape[0]
    out = np.empty(X.shape[0], np.bool_)
    for rows, scores in score_blocks(X, coef, intercept):
        two = scores if k == 2 else np.partition(scores, k - 2, axis=1)[:, k - 2 :]
        out[rows] = near.is_certain(two, near.reach(some_rows(X, rows)), k)
    return out
