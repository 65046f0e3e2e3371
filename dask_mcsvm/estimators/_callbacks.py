"""Callbacks in the way of scikit-learn 1.9 and later: `set_callbacks`, a task per epoch."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

try:
    from sklearn.callback import CallbackSupportMixin as CallbackSupportMixin
    from sklearn.callback import with_callbacks
except ImportError:  # scikit-learn before 1.9 has none, and the estimators no `set_callbacks`

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Nothing."""


S = TypeVar("S")


@contextmanager
def epochs_as_tasks(estimator: Any, X: Any, y: Any, settings: S) -> Iterator[S]:
    """Settings of a fit whose epochs scikit-learn's callbacks hear of, too."""
    if not getattr(estimator, "_skl_callbacks", None):
        yield settings
        return
    try:
        # How many epochs a fit takes is not known, only how many it may.
        root = estimator._init_callback_context(max_subtasks=None)
        root.call_on_fit_task_begin(estimator=estimator, X=X, y=y)

        def after_epoch(_: dict[str, Any]) -> bool:
            epoch = root.subcontext(task_name="epoch")
            epoch.call_on_fit_task_begin(estimator=estimator, X=X, y=y)
            return bool(epoch.call_on_fit_task_end(estimator=estimator, X=X, y=y))

        own = settings.callbacks  # type: ignore[attr-defined]
        yield replace(settings, callbacks=(*own, after_epoch))  # type: ignore[type-var]
        learned = {name: value for name, value in vars(estimator).items() if name.endswith("_")}
        if hasattr(estimator, "_trained"):
            learned["_trained"] = estimator._trained
        root.call_on_fit_task_end(
            estimator=estimator, X=X, y=y, reconstruction_attributes=lambda: learned
        )
    finally:
        with_callbacks(_nothing)(estimator)  # which ends what `_init_callback_context` began


def _nothing(estimator: Any) -> None:
    """Stands for a fit."""
