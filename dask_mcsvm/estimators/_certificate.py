"""A proof of quality for a model as it is now, changed since the fit or not."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dask_mcsvm.data.row_source import RowSource
from dask_mcsvm.data.validation import TrainingSet, is_lazy
from dask_mcsvm.errors import CertificateError
from dask_mcsvm.formulations import FORMULATIONS, Standardization, relative_gap
from dask_mcsvm.formulations.margins import EQUAL, Margins
from dask_mcsvm.solvers.sparse_weights import SparseWeights
from dask_mcsvm.solvers.standardized import standardized_rows
from dask_mcsvm.training import HYBRID_CLASSES, Problem, certify_primal

# Objectives are sums of n float64 terms; what is smaller than this share of them is rounding.
ROUNDING = 1e-9
# Parts of an intercept that are as small a share of it are rounding, too.
SAME = 1e-12


@dataclass(frozen=True)
class Certificate:
    """How far a model can be from the optimum: primal - optimum <= gap.

    Attributes
    ----------
    primal : float
        P(W) of the model on the training rows, in float64.
    dual : float
        The lower bound on every P(W) that the fit proved.
    gap : float
        primal - dual, not negative.
    relative_gap : float
        The gap in the units of `tol`: a share of the primal, or for Lee-Lin-Wahba of what
        training can gain.
    """

    primal: float
    dual: float
    gap: float
    relative_gap: float


@dataclass(frozen=True, eq=False)
class Trained:
    """The problem a model was fitted to; parameters may change afterwards, this does not.

    Attributes
    ----------
    formulation : str
    C, tau : float
    class_weight : object
        As given to the estimator.
    dtype : dtype
        Of the rows the solver saw.
    n_given : int
        Rows passed to fit, those of weight 0 included.
    totals : ndarray of shape (k,)
        Sum of C_i per class: tells other labels or weights from those of the fit.
    square : float
        ||W||^2 as the fit left it: tells an edited W; nan for a file that does not say.
    margins : Margins
        What mistakes cost.
    columns : Standardization, optional
        Of the rows; W is that of standardized ones, `coef_` that of rows as they come.
    """

    formulation: str
    C: float
    tau: float
    class_weight: Any
    dtype: np.dtype[Any]
    n_given: int
    totals: npt.NDArray[np.float64]
    square: float = math.nan
    margins: Margins = EQUAL
    columns: Standardization | None = None

    def pose(self, data: TrainingSet) -> Problem:
        """The problem of the fit, from rows that are said to be the same."""
        C = self.C * data.weights
        self.refuse_others(data)
        rows = standardized_rows(data.rows, self.columns)
        return Problem(
            rows=rows,
            y=data.y,
            C=C,
            n_classes=self.totals.size,
            formulation=self.formulation,
            tau=self.tau,
            margins=self.margins,
        )

    def refuse_others(self, source: RowSource) -> None:
        """An error if such a number of rows, or sum of C_i per class, cannot be the fit's."""
        if source.n_given != self.n_given:
            raise CertificateError(
                f"X has {source.n_given} rows, but the fit had {self.n_given}; the certificate "
                "holds for the training rows only: pass those."
            )
        totals = self.C * source.totals
        if totals.shape != self.totals.shape or not np.allclose(totals, self.totals, rtol=1e-9):
            raise CertificateError(
                "y or sample_weight are not those of the fit; the certificate holds for the "
                "training rows only: pass the same labels and weights."
            )
        if self.columns is None:  # what scores would be lost in is else not these rows
            least, most = source.weight_range()
            source.check_range((self.C * least, self.C * most), self.tau)


def certify(
    problem: Problem,
    coef: Any,
    intercept: npt.NDArray[Any],
    dual: float,
    n_jobs: int,
    columns: Standardization | None = None,
) -> Certificate:
    """The certificate of coef (k, d) and intercept (k,) against a dual bound, rows in memory."""
    refuse_no_bound(dual)
    if is_lazy(coef):
        from dask_mcsvm.estimators._lazy_certificate import primal_of_rows  # imports Dask

        primal = primal_of_rows(problem, coef, intercept, columns)
    else:
        weigh = listed_weights if stays_listed(problem, coef) else weights_of
        W = weigh(coef, intercept, problem.formulation, problem.tau, columns)
        primal = certify_primal(problem, W, n_jobs=n_jobs)
    return compare(problem.formulation, problem.n_classes, float(problem.C.sum()), primal, dual)


def refuse_no_bound(dual: float) -> None:
    """An error before any work if there is nothing to compare with."""
    if not np.isfinite(dual):
        raise CertificateError(
            "the fit proved no lower bound (dual_ is nan); fit again with a solver that certifies."
        )


def compare(
    formulation: str, n_classes: int, total_cost: float, primal: float, dual: float
) -> Certificate:
    """The certificate of a primal and a bound; ``total_cost`` is the sum of all C_i."""
    gap = primal - dual
    if gap < -ROUNDING * max(abs(primal), abs(dual)):
        raise CertificateError(
            f"the primal {primal:.6g} is below the bound {dual:.6g} that the fit proved, so X "
            "are not the training rows; pass the rows that fit saw."
        )
    at_zero = FORMULATIONS[formulation].loss_at_zero(n_classes) * total_cost
    relative = relative_gap(formulation, primal, dual, at_zero)
    return Certificate(primal, dual, max(0.0, gap), max(0.0, relative))


def weights_of(
    coef: Any,
    intercept: npt.NDArray[Any],
    formulation: str,
    tau: float,
    columns: Standardization | None = None,
) -> npt.NDArray[Any]:
    """W (d + 1, k): the columns of `coef`, and the constant feature's weights below them.

    With ``columns`` those of standardized rows.
    """
    k, d = coef.shape
    dense = coef.toarray() if sp.issparse(coef) else np.asarray(coef)
    W = np.zeros((d + 1, k))
    W[:d], W[d] = dense.T, bias_of(own_intercept(coef, intercept, columns), tau)
    if columns is not None:
        W[:d] *= columns.scale[:, None]
    if FORMULATIONS[formulation].columns_sum_to_zero:
        refuse_uneven(float(np.abs(W.sum(axis=1)).max()), float(np.abs(W).max()))
    return W


def stays_listed(problem: Problem, coef: Any) -> bool:
    """Whether a sparse coef (k, d) is certified without an array of its shape."""
    is_able = sp.issparse(coef) and sp.issparse(problem.rows)
    tied = FORMULATIONS[problem.formulation].columns_sum_to_zero
    return is_able and not tied and coef.shape[0] >= HYBRID_CLASSES


def listed_weights(
    coef: sp.csr_array,
    intercept: npt.NDArray[Any],
    formulation: str,
    tau: float,
    columns: Standardization | None = None,
) -> SparseWeights:
    """The same as `weights_of` of a sparse coef; ``columns`` are not centred."""
    del formulation  # none whose columns sum to zero
    W = sp.csc_array(coef.T, copy=columns is not None)
    if columns is not None:
        W.data = W.data * columns.scale[W.indices]
    if not W.has_canonical_format:
        W = W.copy()  # it may be the user's
        W.sum_duplicates()
    return SparseWeights(W, bias_of(intercept, tau))


def raw_weights(W: Any, columns: Standardization | None) -> tuple[Any, Any]:
    """Weights (d, k) of the rows as they come, and what is added to their intercepts [STD-V].

    W is that of standardized rows, and is changed.
    """
    if columns is None:
        return W, 0.0
    if sp.issparse(W):  # CSC; the rows are not centred
        W.data /= columns.scale[W.indices]
        return W, 0.0
    if is_lazy(W):  # files keep those of standardized rows
        V = W / columns.scale[:, None].astype(W.dtype)
        return V, -np.asarray((columns.mean @ V).compute()) if columns.centred else 0.0
    return columns.raw_weights(W), columns.offset(W)


def own_intercept(
    coef: Any, intercept: npt.NDArray[Any], columns: Standardization | None
) -> npt.NDArray[np.float64]:
    """The intercepts (k,) without what centring added to them."""
    given = np.asarray(intercept, np.float64)
    if columns is None or not columns.centred:
        return given
    added = -np.asarray(coef @ columns.mean, np.float64)
    rest = given - added
    rest[np.abs(rest) <= SAME * np.abs(added)] = 0.0  # sums in another order
    return rest


def bias_of(intercept: npt.NDArray[Any], tau: float) -> npt.NDArray[np.float64]:
    """Weights (k,) of the constant feature."""
    if tau > 0:
        return np.asarray(intercept, np.float64) / tau
    if np.any(intercept):
        raise CertificateError(
            "intercept_ is not zero, but the fit had fit_intercept=False; the objective has no "
            "place for it: set intercept_ to zeros, or fit with fit_intercept=True."
        )
    return np.zeros(len(intercept))


def refuse_uneven(off: float, largest: float) -> None:
    """Such a W is outside the primal's domain of Lee-Lin-Wahba and could undercut the bound."""
    if off > 1e-4 * max(1e-30, largest):
        raise CertificateError(
            f"the classes' weights sum to {off:.1e}; those of lee_lin_wahba must sum to zero: "
            "subtract coef_.mean(axis=0) from coef_ and intercept_.mean() from intercept_."
        )
