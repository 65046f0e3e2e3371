"""What a fitted linear model does: score rows, predict, prove its quality, change its storage."""

from typing import Any, Self, cast

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from dask_mcsvm.data.validation import (
    check_integer,
    check_n_jobs,
    check_number,
    check_rows,
    check_training_set,
    is_dataset,
    is_lazy,
)
from dask_mcsvm.estimators._certain import certain_rows, nearness_of
from dask_mcsvm.estimators._certificate import Certificate, Trained, certify
from dask_mcsvm.estimators._containers import rows_of, taken_in
from dask_mcsvm.estimators._predict import (
    Scored,
    best_classes,
    class_scores,
    two_class_decision,
)
from dask_mcsvm.estimators._probability import (
    fitted_temperature,
    has_probabilities,
    probabilities,
)
from dask_mcsvm.estimators._prune import column_squares, pruned, refuse_tied
from dask_mcsvm.estimators.explain import Explanation, explained, feature_names
from dask_mcsvm.training import parse_size


class LinearModel(Scored):
    """Methods of an estimator whose fit left `coef_`, `intercept_`, `classes_` and `dual_`."""

    coef_: Any
    intercept_: npt.NDArray[Any]
    classes_: npt.NDArray[Any]
    dual_: float
    n_jobs: int | None
    memory_limit: Any
    _trained: Trained

    def decision_function(self, X: Any) -> Any:
        """Scores of the classes.

        Parameters
        ----------
        X : array-like or SciPy sparse of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_classes), or (n_samples,) for two classes
            In the precision of `coef_`. For two classes the score of the second less that of
            the first, except for one-vs-rest, where the second's score is the answer by itself.
        """
        check_is_fitted(self)
        X = rows_of(self, X)
        if is_lazy(X) or is_lazy(self.coef_):
            from dask_mcsvm.estimators._lazy import lazy_scores

            return lazy_scores(self, X)
        scores = class_scores(check_rows(self, X), self.coef_, self.intercept_)
        if scores.shape[1] == 2:
            return two_class_decision(scores, self._trained.formulation)
        return scores

    @available_if(has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Any:
        """Probabilities of the classes, if the model was fitted with ``probability=True``.

        The softmax of the scores times `temperature_`; the most probable class is that of
        `predict`.

        Parameters
        ----------
        X : array-like, SciPy sparse, Dask array or frame, or dataset, (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_classes), or a Dask array where `predict` gives one
            In the precision of `coef_`; two columns for two classes.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dask_mcsvm import LinearMCSVC
        >>> X, y = load_iris(return_X_y=True)
        >>> model = LinearMCSVC(probability=True, random_state=0).fit(X, y)
        >>> model.predict_proba(X).shape
        (150, 3)
        """
        check_is_fitted(self)
        X, temperature = rows_of(self, X), fitted_temperature(self)
        if is_lazy(X) or is_lazy(self.coef_):
            from dask_mcsvm.estimators._lazy import lazy_probabilities

            return lazy_probabilities(self, X, temperature)
        form = self._trained.formulation
        return probabilities(check_rows(self, X), self.coef_, self.intercept_, form, temperature)

    def predict(self, X: Any) -> Any:
        """The class with the highest score, shape (n_samples,), for each row of X."""
        check_is_fitted(self)
        X = rows_of(self, X)
        if is_lazy(X) or is_lazy(self.coef_):
            from dask_mcsvm.estimators._lazy import lazy_labels

            return lazy_labels(self, X)
        best: npt.NDArray[Any] = self.predict_topk(X, 1)[:, 0]
        return best

    def predict_topk(self, X: Any, n: int) -> Any:
        """The n classes with the highest scores, best first.

        Parameters
        ----------
        X : array-like or SciPy sparse of shape (n_samples, n_features)
        n : int
            From 1 to the number of classes.

        Returns
        -------
        ndarray of shape (n_samples, n)
            Labels; where scores are equal, in the order of `classes_`.
        """
        check_is_fitted(self)
        n = check_integer("n", n, at_least=1, example="n=1")
        k = self.classes_.size
        if n > k:
            raise ValueError(f"n is {n}, but there are {k} classes; type n={k} to rank them all.")
        X = rows_of(self, X)
        if is_lazy(X) or is_lazy(self.coef_):
            from dask_mcsvm.estimators._lazy import lazy_topk

            return lazy_topk(self, X, n)
        X = check_rows(self, X)
        best = best_classes(X, self.coef_, self.intercept_, self._trained.formulation, n)
        labels: npt.NDArray[Any] = self.classes_[best]
        return labels

    def certain(self, X: Any, certificate: Certificate | None = None) -> Any:
        """Whether the exact optimum gives each row the label that `predict` gives it.

        The certificate bounds how far W is from the optimum's, and with it how far a score can
        be off; a label is certain where its margin over every rival is larger. No row that is
        certain changes its label however long the fit goes on; one that is not may or may not.

        Parameters
        ----------
        X : array-like, SciPy sparse, Dask array or frame, or dataset, (n_samples, n_features)
        certificate : Certificate, optional
            What `certify` returned, if `coef_` was changed since the fit; by default the fit's.

        Returns
        -------
        ndarray of bool of shape (n_samples,), or a Dask array where `predict` gives one

        Raises
        ------
        CertificateError
            If the fit proved no bound, or `coef_` is not what it proved it of.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dask_mcsvm import LinearMCSVC
        >>> X, y = load_iris(return_X_y=True)
        >>> model = LinearMCSVC(tol=1e-7, random_state=0).fit(X, y)
        >>> bool(model.certain(X).mean() > 0.9)
        True
        """
        check_is_fitted(self)
        X, near = rows_of(self, X), nearness_of(self, certificate)
        if is_lazy(X) or is_lazy(self.coef_):
            from dask_mcsvm.estimators._lazy import lazy_certain

            return lazy_certain(self, X, near)
        return certain_rows(check_rows(self, X), self.coef_, self.intercept_, near)

    def certify(self, X: Any, y: Any = None, sample_weight: Any = None) -> Certificate:
        """Prove how good the model is now, also if `coef_` was changed since the fit.

        Parameters
        ----------
        X, y, sample_weight
            The training rows, labels and weights, in any order of the rows. Lazy ones are looked
            at chunk by chunk, on the workers of the current client if there is one; a dataset has
            labels and weights of its own.

        Returns
        -------
        Certificate
            primal, dual, gap, relative_gap: the objective of `coef_` and `intercept_` in float64
            against the bound `dual_` that the fit proved.

        Raises
        ------
        CertificateError
            If these cannot be the training rows.
        """
        check_is_fitted(self)
        X, y, sample_weight = taken_in(self, X, y, sample_weight)
        if y is None and not is_dataset(X):
            raise ValueError("certify needs the labels of these rows; type certify(X, y).")
        if is_lazy(X):
            from dask_mcsvm.estimators._lazy_certificate import lazy_certificate

            return lazy_certificate(self, X, y, sample_weight)
        trained = self._trained
        data = check_training_set(
            self,
            X,
            y,
            sample_weight=sample_weight,
            classes=self.classes_,
            class_weight=trained.class_weight,
            dtype=trained.dtype,
            reset=False,
        )
        problem = trained.pose(data)
        threads = check_n_jobs(self.n_jobs)
        return certify(problem, self.coef_, self.intercept_, self.dual_, threads, trained.columns)

    def prune(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, max_gap: float = 2e-3
    ) -> Self:
        """The smallest model whose certified gap is still within `max_gap`.

        Weights are set to zero, those first that move the scores of the training rows least, as
        long as `certify` proves a relative gap of at most `max_gap`. It takes about ten passes
        over the rows.

        Parameters
        ----------
        X, y, sample_weight
            The training rows, labels and weights, as for `certify`.
        max_gap : float
            At least the gap that the model has now.

        Returns
        -------
        LinearMCSVC
            A fitted copy with its own `coef_` (CSR where that is smaller), `primal_`, `gap_` and
            `density_`; this model stays as it was.

        Raises
        ------
        CertificateError
            If these cannot be the training rows.
        ValueError
            If `max_gap` is below the gap of the model, or its weights must sum to zero over the
            classes (lee_lin_wahba).

        Examples
        --------
        >>> from sklearn.datasets import load_digits
        >>> from dask_mcsvm import LinearMCSVC
        >>> X, y = load_digits(return_X_y=True)
        >>> model = LinearMCSVC(C=0.1, random_state=0).fit(X / 16, y)
        >>> small = model.prune(X / 16, y, max_gap=1e-2)
        >>> small.gap_ <= 1e-2, small.density_ < model.density_
        (True, True)
        """
        check_is_fitted(self)
        refuse_tied(self._trained.formulation)
        max_gap = check_number("max_gap", max_gap, above=0.0, example="max_gap=2e-3")
        refuse_files(self.coef_, "prune")
        X, y, sample_weight = taken_in(self, X, y, sample_weight)
        if y is None and not is_dataset(X):
            raise ValueError("prune needs the labels of the training rows; type prune(X, y).")
        columns = self._trained.columns
        if columns is not None and columns.centred:
            squares = np.square(columns.scale)
        elif is_lazy(X):
            from dask_mcsvm.estimators._lazy_certificate import lazy_squares

            squares = lazy_squares(self, X)
        else:
            squares = column_squares(check_rows(self, X))
        return cast(
            "Self",
            pruned(self, squares, max_gap, lambda model: model.certify(X, y, sample_weight)),
        )

    def explain_prediction(self, x: Any, names: Any = None, *, top: int = 10) -> Explanation:
        """Which features speak for the label of a row, against the next best one.

        Parameters
        ----------
        x : array-like or SciPy sparse of shape (1, n_features) or (n_features,)
            One row.
        names : sequence of str of length n_features, optional
            Of the features, such as a vectorizer's ``get_feature_names_out()``; by default those
            of the fit, or numbers.
        top : int
            How many features to list.

        Returns
        -------
        Explanation
            label, rival, margin, intercept, reasons; its repr is a table.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dask_mcsvm import LinearMCSVC
        >>> X, y = load_iris(return_X_y=True)
        >>> model = LinearMCSVC(random_state=0).fit(X, y)
        >>> why = model.explain_prediction(X[0], names=load_iris().feature_names)
        >>> why.label, why.rival, why.reasons[0].feature
        (0, 1, 'petal length (cm)')
        """
        check_is_fitted(self)
        refuse_files(self.coef_, "explain_prediction")
        names = feature_names(self, names)
        top = check_integer("top", top, at_least=1, example="top=10")
        row = check_rows(self, np.reshape(x, (1, -1)) if np.ndim(x) == 1 else x)
        if row.shape[0] != 1:
            raise ValueError(
                f"x has {row.shape[0]} rows, and one is explained at a time; type "
                "explain_prediction(X[:1])."
            )
        return explained(self, row, names, top)

    def sparsify(self) -> Self:
        """Turn `coef_` into a CSR array: smaller where most weights are zero (`density_`)."""
        check_is_fitted(self)
        refuse_files(self.coef_, "sparsify")
        if not sp.issparse(self.coef_):
            self.coef_ = sp.csr_array(self.coef_)
        return self

    def densify(self) -> Self:
        """Turn `coef_` back into an ndarray, if that is not above `memory_limit`."""
        check_is_fitted(self)
        if sp.issparse(self.coef_):
            size = int(np.prod(self.coef_.shape)) * self.coef_.dtype.itemsize
            if self.memory_limit is not None and size > parse_size(self.memory_limit):
                raise ValueError(
                    f"coef_ takes {size:,} bytes as an array, more than "
                    f"memory_limit={self.memory_limit!r}; leave it sparse, or raise memory_limit."
                )
            # As a fit leaves it: the transpose of a C-contiguous (d, k).
            self.coef_ = np.ascontiguousarray(self.coef_.toarray().T).T
        return self


def refuse_files(coef: Any, what: str) -> None:
    """An error if all of a `coef_` that stays in files would have to be in memory."""
    if is_lazy(coef):
        raise ValueError(
            f"{what} needs coef_ in memory, and it is a Dask array of {coef.nbytes:,} bytes in "
            "files; if that fits, type model.coef_ = model.coef_.compute() first."
        )
