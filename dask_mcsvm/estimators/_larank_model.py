"""What a fitted LaRankSVC does: score rows in memory, write itself to disk, come back."""

import copy
import os
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted

from dask_mcsvm.data.validation import as_rows, check_rows, class_weights, is_lazy
from dask_mcsvm.errors import ModelFormatError
from dask_mcsvm.estimators._containers import rows_of
from dask_mcsvm.estimators._larank_bench import Kept
from dask_mcsvm.estimators._larank_file import OF_ONE_FIT, SAVED, read_file
from dask_mcsvm.estimators._larank_settings import read_settings
from dask_mcsvm.estimators._margins import margin_arrays, plain_margins, read_margins
from dask_mcsvm.estimators._predict import Scored
from dask_mcsvm.solvers.larank import Kernel, LaRank, kernel_matrix, norms_of
from dask_mcsvm.storage import encode_classes, load_model, save_model

#: Kernel values and scores of a block of rows held at once.
BLOCK_BYTES = 32 * 2**20


class Scorer:
    """Scores of rows: a small, picklable part of a model.

    Parameters
    ----------
    kernel : Kernel
    support : ndarray or csr_array of shape (P, d), or ndarray of shape (P,)
        Rows of the support patterns; their numbers if the kernel is precomputed.
    beta : csr_array of shape (k, P)
    W : ndarray of shape (d, k) or None
        Of a linear kernel.
    """

    def __init__(self, kernel: Kernel, support: Any, beta: Any, W: Any) -> None:
        self.kernel, self.support, self.W = kernel, support, W
        self.n_classes, self.transposed = beta.shape[0], sp.csc_array(beta.T)
        self.dtype = np.dtype(np.float64) if W is None else W.dtype
        self.norms = norms_of(support) if W is None and support.ndim == 2 else None

    def __call__(self, X: Any) -> npt.NDArray[Any]:
        """Scores (n, k) of checked rows."""
        out: npt.NDArray[Any] = np.zeros((X.shape[0], self.n_classes), self.dtype)
        if self.W is None and self.support.shape[0] == 0:
            return out
        widest = max(self.n_classes, self.support.shape[0], 1)
        step = max(1, BLOCK_BYTES // (8 * widest))
        for start in range(0, X.shape[0], step):
            with np.errstate(over="ignore", invalid="ignore"):
                out[start : start + step] = self._scores(X[start : start + step])
            if not np.isfinite(out[start : start + step]).all():
                raise ValueError(
                    f"the scores of a row of X overflow (kernel={self.kernel.name!r}); its values "
                    "must be of the size of those that fit saw: scale them alike."
                )
        return out

    def _scores(self, X: Any) -> Any:
        if self.W is not None:
            return X.astype(self.W.dtype, copy=False) @ self.W
        if self.kernel.name == "precomputed":
            values = X[:, self.support]
            values = values.toarray() if sp.issparse(values) else values
            return np.asarray(values, np.float64) @ self.transposed
        rows = as_rows(alike(X, self.support), self.support.dtype)
        values = kernel_matrix(self.kernel, rows, self.support, self.norms)
        return values.astype(np.float64) @ self.transposed


def alike(X: Any, support: Any) -> Any:
    """X dense where the support is, CSR where it is."""
    if sp.issparse(support):
        return X if sp.issparse(X) else sp.csr_array(X)
    return X.toarray() if sp.issparse(X) else X


def decide(scores: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The decision function: scores, or for two classes the second's less the first's."""
    return scores if scores.shape[1] != 2 else np.asarray(scores[:, 1] - scores[:, 0])


def best(scores: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    """The place of the best class of each row, the first of equals."""
    return np.asarray(scores.argmax(axis=1))


def exposed(
    run: LaRank, kept: Kept, numbers: npt.NDArray[np.int64] | None = None
) -> dict[str, Any]:
    """What users read of a run; `numbers` are its examples' among the rows given."""
    ids, counters = run.pattern_ids(), run.counters
    attributes = {
        "support_": ids if numbers is None else numbers[ids],
        "support_vectors_": kept.state["rows"],
        "dual_coef_": run.coefficients(),
        "n_support_": run.n_patterns,
        "kernel_evaluations_": counters["kernel_evaluations"],
        "cache_hits_": counters["cache_hits"],
        "cache_misses_": counters["cache_misses"],
        "n_arg_max_": counters["arg_max"],
        "n_steps_": counters["steps"],
        "dual_lost_": counters["dual_lost"],
        "_run": kept,
    }
    if run.kernel.name == "linear":
        attributes["coef_"] = kept.state["W"][:-1].T
    return attributes


class LaRankModel(Scored):
    """Methods of an estimator whose fit left `_run` and `classes_`."""

    classes_: npt.NDArray[Any]
    n_features_in_: int
    margins: Any
    support_: npt.NDArray[np.int64]
    support_vectors_: Any
    dual_coef_: Any
    coef_: npt.NDArray[Any]
    _run: Kept

    def decision_function(self, X: Any) -> Any:
        """Scores of the classes.

        Parameters
        ----------
        X : array-like, SciPy sparse, Dask array or frame, or path, (n_samples, n_features)
            For a precomputed kernel the values between these rows and all training rows.

        Returns
        -------
        ndarray of shape (n_samples, n_classes), or (n_samples,) for two classes
            For two classes the score of the second less that of the first. Lazy if X is.
        """
        self = copy.copy(self)  # as it is now, whatever is trained meanwhile
        check_is_fitted(self)
        X = rows_of(self, X)
        if is_lazy(X):
            from dask_mcsvm.estimators._lazy_rows import check_lazy_rows  # these import Dask
            from dask_mcsvm.graphs.larank import lazy_scores

            X = check_lazy_rows(self, X)
            return lazy_scores(X, self._scorer(), decide, self.classes_.size)
        return decide(self._scorer()(check_rows(self, X)))

    def predict(self, X: Any) -> Any:
        """The class with the highest score, shape (n_samples,), for each row of X; lazy if X is."""
        self = copy.copy(self)  # as it is now, whatever is trained meanwhile
        check_is_fitted(self)
        X = rows_of(self, X)
        if is_lazy(X):
            from dask_mcsvm.estimators._lazy_rows import check_lazy_rows  # these import Dask
            from dask_mcsvm.graphs.larank import lazy_labels

            X = check_lazy_rows(self, X)
            return lazy_labels(X, self._scorer(), best, self.classes_)
        return self.classes_[best(self._scorer()(check_rows(self, X)))]

    def _scorer(self) -> Scorer:
        kernel = self._run.kernel
        if kernel.name == "linear":
            return Scorer(kernel, self.support_vectors_, self.dual_coef_, self.coef_.T)
        rows = self.support_ if kernel.name == "precomputed" else self.support_vectors_
        return Scorer(kernel, rows, self.dual_coef_, None)

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the model to a folder of Zarr arrays and JSON; `partial_fit` can go on from it.

        Parameters
        ----------
        path : str or path-like
            Local path or fsspec URL.
        overwrite : bool
            Replace a model at `path`, once the new one is whole.

        Raises
        ------
        TypeError
            If the kernel is a function: files hold no code.
        """
        self = copy.copy(self)  # as it is now, whatever is trained meanwhile
        check_is_fitted(self)
        self._check_parameters(self.classes_)
        if self._run.kernel.function is not None:
            raise TypeError(
                "kernel is a function, and files hold no code; keep support_vectors_ and "
                'dual_coef_ yourself, or use a kernel with a name, for example kernel="rbf".'
            )
        state = dict(self._run.state)
        meta = {name: getattr(self, name) for name in SAVED}
        meta |= {"estimator": type(self).__name__, "n_seen": int(state.pop("n_seen"))}
        meta |= {"classes": encode_classes(self.classes_), "parameters": self._plain_parameters()}
        run = dict(self._run.parameters)
        kernel, margins = run.pop("kernel"), run.pop("margins")
        run["dtype"] = np.dtype(run["dtype"]).name
        meta["run"] = run
        meta["kernel"] = [kernel.name, kernel.gamma, kernel.degree, kernel.coef0]
        meta["names"] = getattr(self, "feature_names_in_", np.array([])).tolist()
        arrays = {**state, "support": self.support_, **margin_arrays(margins, self.margins)}
        save_model(path, arrays, meta, overwrite=overwrite)

    def _plain_parameters(self) -> dict[str, Any]:
        """Parameters as JSON has them; a generator and what belongs to one fit stay behind."""
        given = self.get_params(deep=False)  # type: ignore[attr-defined]
        parameters = {name: given[name] for name in given if name not in OF_ONE_FIT}
        parameters["callbacks"] = []
        if not isinstance(parameters["random_state"], int | None):
            parameters["random_state"] = self._run.parameters["seed"]
        if parameters["dtype"] is not None:
            parameters["dtype"] = np.dtype(parameters["dtype"]).name
        weights = parameters["class_weight"]
        if isinstance(weights, dict):
            parameters["class_weight"] = [list(pair) for pair in weights.items()]
        parameters["margins"] = plain_margins(self.margins)
        return parameters

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a model that `save` wrote.

        Raises
        ------
        ModelFormatError
            If it is not a whole model of this estimator.
        """
        arrays, meta = load_model(path)
        if meta.get("estimator") != cls.__name__:
            raise ModelFormatError(
                f"{path} holds a {meta.get('estimator', 'model of another kind')}; "
                f"load it with that class, not with {cls.__name__}."
            )
        try:
            return cls._of_parts(arrays, meta)
        except ValueError as error:
            raise ModelFormatError(
                f"{os.fspath(path)}: its parts do not make a {cls.__name__} ({error}); save it "
                "again with save(..., overwrite=True)."
            ) from error

    @classmethod
    def _of_parts(cls, arrays: dict[str, Any], meta: dict[str, Any]) -> Self:
        names = cls().get_params(deep=False)  # type: ignore[attr-defined]
        parameters, learned, kept = read_file(names, arrays, meta)
        model = cls(**parameters)
        model._check_parameters(learned["classes_"])
        vars(model).update(exposed(kept.run(), kept) | learned)
        return model

    def _check_parameters(self, classes: npt.NDArray[Any]) -> None:
        """Refuse what `fit` would: parameters may be set after it, and are saved too."""
        shown: Any = copy.copy(self)
        vars(shown).update(OF_ONE_FIT)
        if shown.random_state is None or isinstance(shown.random_state, np.random.RandomState):
            shown.random_state = 0  # settings draw a number, and nobody asked for one
        read_settings(shown)
        class_weights(shown.class_weight, classes, np.ones(classes.size))
        read_margins(shown.margins, classes)
