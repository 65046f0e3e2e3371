"""Rows that are not in memory, given to a fitted model: checked as rows in memory are."""

from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

from dask_mcsvm.data.containers import NamedRows
from dask_mcsvm.data.lazy_input import checked_rows, column_names, lazy_rows, whole_rows
from dask_mcsvm.data.lazy_source import share_of_hits
from dask_mcsvm.data.validation import checked_names, saying_what_to_type
from dask_mcsvm.training.runner import find_runner


def check_lazy_rows(estimator: Any, X: Any) -> Any:
    """What `check_rows` is for rows in memory; nothing is computed.

    Number and names of the columns are checked now, and each chunk when it is computed.

    Returns
    -------
    dask.array.Array of shape (n, d)
        Whole rows in the chunks of X; those of a frame are not counted.
    """
    rows = whole_rows(lazy_rows(X))
    # scikit-learn reads names off pandas frames; an array has a number of columns and no names.
    is_frame = hasattr(X, "columns") and not isinstance(X, NamedRows)
    if not is_frame and (names := column_names(X)) is not None:
        estimator = checked_names(estimator, names)
    columns = X._meta if is_frame else np.empty((0, rows.shape[1]))
    with saying_what_to_type():
        validate_data(estimator, columns, reset=False, skip_check_array=True)
    return checked_rows(rows)


def lazy_accuracy(estimator: Any, X: Any, y: Any, sample_weight: Any) -> float:
    """Weighted share of right predictions, chunk by chunk."""
    return share_of_hits(estimator.predict(X), X, y, sample_weight, find_runner())
