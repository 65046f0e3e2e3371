"""Exact multi-class support vector machines for Dask, with a duality gap on every model.

Public names are loaded on first use (PEP 562): ``import dask_mcsvm`` imports neither Numba nor
Dask nor scikit-learn, compiles nothing and starts nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dask_mcsvm.estimators import LinearMCSVC as LinearMCSVC
    from dask_mcsvm.estimators.larank import LaRankSVC as LaRankSVC

# The one place of the version; pyproject.toml reads it here. Asking importlib.metadata instead
# would cost more than everything else in this file.
__version__ = "0.1.0"

__all__ = ["LaRankSVC", "LinearMCSVC", "__version__"]

_HOME = {
    "LaRankSVC": "dask_mcsvm.estimators.larank",
    "LinearMCSVC": "dask_mcsvm.estimators",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value  # the next access does not come here
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
