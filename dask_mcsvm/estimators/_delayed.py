"""What an estimator hands to Dask: a fit as one task, the graph of an epoch, a span per fit."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from sklearn.base import clone

from dask_mcsvm.data.validation import check_integer, is_lazy
from dask_mcsvm.estimators._fits import pose
from dask_mcsvm.estimators._settings import (
    Settings,
    read_settings,
    wants_blocks,
    wants_early_shrink,
)


class DelayedFit:
    """`fit_delayed` of both estimators."""

    def fit_delayed(
        self, X: Any, y: Any = None, sample_weight: Any = None, classes: Any = None
    ) -> Any:
        """A fit that runs when it is computed: one task, for graphs of several fits.

        On a cluster that task runs on a worker and gives up its thread while it waits for the tasks
        of the fit. What `dask.config` says of the fit is read now.

        Parameters
        ----------
        X, y, sample_weight, classes
            As in `fit`, or Delayed ones of such.

        Returns
        -------
        dask.delayed.Delayed
            Of a fitted clone; this estimator stays as it is.

        Examples
        --------
        >>> import dask
        >>> from sklearn.datasets import load_iris
        >>> from dask_mcsvm import LinearMCSVC
        >>> X, y = load_iris(return_X_y=True)
        >>> fits = [LinearMCSVC(C=C, random_state=0).fit_delayed(X, y) for C in (0.1, 1.0)]
        >>> [model.C for model in dask.compute(*fits)]
        [0.1, 1.0]
        """
        from dask_mcsvm.training.delayed import delayed_fit  # imports Dask

        return delayed_fit(clone(self), X, y, sample_weight, classes)


def graph_of_epoch(estimator: Any, X: Any, y: Any, epoch: Any) -> Any:
    """See `LinearMCSVC.epoch_graph`."""
    epoch = check_integer("epoch", epoch, at_least=0, example="epoch=0")
    draw = None
    if is_lazy(X):
        draw = pose(estimator, X, y, None, None, read_settings(estimator, lazy=True)).epoch_graph
    if draw is None:
        raise ValueError(
            "an epoch is a graph of tasks only on Dask, and this fit would run in this process; "
            "pass dask.array.from_array(X, chunks=(10_000, -1)), without a memory_limit if X is a "
            "dataset."
        )
    return draw(epoch)


def fit_span(estimator: Any, on_dask: bool, *names: str) -> AbstractContextManager[None]:
    """In it the tasks of a fit on Dask are a span, named after the class and what it does."""
    if not on_dask:
        return nullcontext()
    from dask_mcsvm.training.runner import spanned

    first, *rest = names or ("fit",)
    return spanned(f"{type(estimator).__name__}.{first}", *rest)


def runs_on_dask(X: Any, settings: Settings) -> bool:
    """Whether a fit is graphs of tasks: a dataset may be read in this process."""
    return is_lazy(X) and not (wants_early_shrink(X, settings) or wants_blocks(X, settings))
