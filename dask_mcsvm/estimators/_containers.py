"""What was given in a container, AnnData or xarray, as arrays: at the door of every method."""

from typing import Any

from dask_mcsvm.data.containers import refuse_layer, without_container
from dask_mcsvm.data.validation import check_layer


def rows_of(estimator: Any, X: Any) -> Any:
    """X for `predict` and its like, from the layer that the model was fitted to."""
    return without_container(X, None, None, estimator.layer)[0]


def taken_in(
    estimator: Any, X: Any, y: Any = None, sample_weight: Any = None, *, fits: bool = False
) -> tuple[Any, Any, Any]:
    """X, y and weights; a fit refuses a layer of rows that have none."""
    check_layer(estimator.layer)
    if fits:
        refuse_layer(X, estimator.layer)
    return without_container(X, y, sample_weight, estimator.layer)
