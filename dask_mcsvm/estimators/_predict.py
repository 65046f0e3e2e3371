"""Scores of rows, block by block: no (n, k) array where only the best classes are asked for."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.metrics import accuracy_score
from sklearn.utils.validation import check_is_fitted

from dask_mcsvm.checks import plain_labels, refuse_masked
from dask_mcsvm.data.validation import is_lazy
from dask_mcsvm.estimators._containers import taken_in
from dask_mcsvm.formulations import FORMULATIONS
from dask_mcsvm.training import HYBRID_CLASSES

IntArray = npt.NDArray[np.intp]

# Scores held at once: large enough for a fast product, small beside any model that needs care.
BLOCK_BYTES = 32 * 2**20
# So many best classes are kept in order while the others are looked at; more are sorted.
LISTED_TOP = 64
# So many weights of a sparse model are made into lists at a time.
LISTED_WEIGHTS = 2**25


class Scored:
    """The score of an estimator whose `predict` is lazy for lazy rows."""

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Accuracy: the weighted share of rows whose class is predicted.

        Parameters
        ----------
        X, y, sample_weight
            In memory or lazy; a dataset has labels and weights of its own.
        """
        check_is_fitted(self)
        X, y, sample_weight = taken_in(self, X, y, sample_weight)
        if is_lazy(X):
            from dask_mcsvm.estimators._lazy_rows import lazy_accuracy  # imports Dask

            return lazy_accuracy(self, X, y, sample_weight)
        y = plain_labels(y)
        refuse_masked("sample_weight", sample_weight)
        predicted = self.predict(X)  # type: ignore[attr-defined]
        return float(accuracy_score(y, predicted, sample_weight=sample_weight))


def score_blocks(
    X: Any, coef: Any, intercept: npt.NDArray[Any]
) -> Iterator[tuple[slice, npt.NDArray[Any]]]:
    """Rows and their scores X W + b, a block at a time, in the precision of `coef`.

    Parameters
    ----------
    X : ndarray or SciPy CSR of shape (n, d)
        Any numeric dtype; blocks of it are cast to that of `coef`, never all of it.
    coef : ndarray or SciPy sparse of shape (k, d)
        A dense one is best as the transpose of a C-contiguous (d, k), which is what a fit leaves.
    intercept : ndarray of shape (k,)
        Added to the scores.

    Yields
    ------
    (slice, ndarray of shape (rows of the slice, k))
    """
    if stays_listed(X, coef):
        model = listed_model(X, coef, intercept)
        for rows in row_slices(X, coef):
            yield rows, model.scores(some_rows(X, rows).astype(coef.dtype, copy=False))
        return
    W = coef.T
    if sp.issparse(W):
        W = W.tocsc() if not sp.issparse(X) else W.tocsr()
    elif sp.issparse(X):
        W = np.ascontiguousarray(W)  # SciPy would do it again for every block
    for rows in row_slices(X, coef):
        scores = some_rows(X, rows).astype(coef.dtype, copy=False) @ W
        scores = scores.toarray() if sp.issparse(scores) else np.asarray(scores)
        scores += intercept
        yield rows, scores


def row_slices(X: Any, coef: Any) -> Iterator[slice]:
    """Blocks of rows whose scores, or a cast of which, take `BLOCK_BYTES`."""
    n, widest = X.shape[0], coef.shape[0]
    if X.dtype != coef.dtype:
        widest = max(widest, _entries(X) // max(1, n))
    step = max(1, BLOCK_BYTES // (widest * coef.dtype.itemsize))
    for start in range(0, n, step):
        yield slice(start, min(start + step, n))


def stays_listed(X: Any, coef: Any) -> bool:
    """Whether rows are scored by lists of weights: several times as fast as by an array."""
    return bool(sp.issparse(X) and sp.issparse(coef) and coef.shape[0] >= HYBRID_CLASSES)


def listed_model(X: Any, coef: Any, intercept: npt.NDArray[Any]) -> Any:
    """The weights as lists, for the rows of X."""
    from dask_mcsvm.solvers.listed_model import ListedModel  # imports Numba

    return ListedModel(sp.csr_array(coef), intercept, int(np.diff(X.indptr).max(initial=0)))


def _entries(X: Any) -> int:
    return int(X.nnz if sp.issparse(X) else X.size)


def some_rows(X: Any, rows: slice) -> Any:
    """X[rows] as a view, which SciPy's own slice of a CSR is not."""
    if not sp.issparse(X):
        return X[rows]
    indptr = X.indptr[rows.start : rows.stop + 1]
    entries = slice(indptr[0], indptr[-1])
    parts = (X.data[entries], X.indices[entries], indptr - indptr[0])
    return sp.csr_array(parts, shape=(indptr.size - 1, X.shape[1]))


def decision_blocks(
    X: Any, coef: Any, intercept: npt.NDArray[Any], formulation: str
) -> Iterator[tuple[slice, npt.NDArray[Any]]]:
    """As `score_blocks`, but one number per row for two classes: what `decision_function` gives."""
    for rows, scores in score_blocks(X, coef, intercept):
        is_two = scores.shape[1] == 2
        yield rows, two_class_decision(scores, formulation) if is_two else scores


def class_scores(X: Any, coef: Any, intercept: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """All scores at once, shape (n, k), in the precision of `coef`."""
    out = np.empty((X.shape[0], coef.shape[0]), coef.dtype)
    for rows, scores in score_blocks(X, coef, intercept):
        out[rows] = scores
    return out


def two_class_decision(scores: npt.NDArray[Any], formulation: str) -> npt.NDArray[Any]:
    """One number per row, (n,), above 0 for the second class, from scores (n, 2).

    One-vs-rest trains both columns on the same problem with signs exchanged, so the second is
    the answer; the other formulations only know the difference.
    """
    if FORMULATIONS[formulation].classes_are_independent:
        return scores[:, 1].copy()
    return np.asarray(scores[:, 1] - scores[:, 0])


def best_classes(
    X: Any, coef: Any, intercept: npt.NDArray[Any], formulation: str, top: int = 1
) -> IntArray:
    """Places of the `top` best classes of each row, best first, shape (n, top)."""
    if stays_listed(X, coef) and top <= LISTED_TOP:
        return best_listed(X, coef, intercept, top)
    out = np.empty((X.shape[0], top), np.intp)
    for rows, scores in score_blocks(X, coef, intercept):
        if scores.shape[1] == 2:
            second = two_class_decision(scores, formulation) > 0
            out[rows] = np.where(second[:, None], [[1, 0]], [[0, 1]])[:, :top]
        elif top == 1:
            out[rows, 0] = scores.argmax(axis=1)
        else:
            out[rows] = top_places(scores, top)
    return out


def best_listed(X: Any, coef: Any, intercept: npt.NDArray[Any], top: int) -> IntArray:
    """The same by lists, which never hold more than a block of the classes a second time."""
    from dask_mcsvm.solvers.listed_model import Best  # imports Numba

    coef, best = sp.csr_array(coef), Best.of_none(X.shape[0], top, coef.dtype)
    for classes in class_slices(coef):
        model = listed_model(X, some_rows(coef, classes), intercept[classes])
        for rows in row_slices(X, coef):
            block = some_rows(X, rows).astype(coef.dtype, copy=False)
            model.compare(block, classes.start, Best(best.scores[rows], best.places[rows]))
    return best.places


def class_slices(coef: Any) -> Iterator[slice]:
    """Blocks of the classes of a CSR (k, d) of about `LISTED_WEIGHTS`."""
    k, first = coef.shape[0], 0
    while first < k:
        most = int(coef.indptr[first]) + LISTED_WEIGHTS
        last = max(first + 1, int(np.searchsorted(coef.indptr, most, "right")) - 1)
        yield slice(first, last)
        first = last


def top_places(scores: npt.NDArray[Any], top: int) -> IntArray:
    """The `top` largest of each row of scores (n, k), largest first, ties by place.

    Examples
    --------
    >>> top_places(np.array([[0.0, 2.0, 1.0, 2.0]]), 3)
    array([[1, 3, 2]])
    """
    k = scores.shape[1]
    if top == k:
        return np.argsort(-scores, axis=1, kind="stable")
    places = np.sort(np.argpartition(-scores, top - 1, axis=1)[:, :top], axis=1)
    values = np.take_along_axis(scores, places, axis=1)
    order = np.argsort(-values, axis=1, kind="stable")
    best = np.take_along_axis(places, order, axis=1)
    # A partition picks any of the classes tied at the edge; there, sort the whole row.
    tied = (scores >= values.min(axis=1, keepdims=True)).sum(axis=1) > top
    best[tied] = np.argsort(-scores[tied], axis=1, kind="stable")[:, :top]
    return best
