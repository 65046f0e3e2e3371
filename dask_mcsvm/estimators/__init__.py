"""What users import: estimators with the interface of scikit-learn."""

from dask_mcsvm.estimators._certificate import Certificate
from dask_mcsvm.estimators._path import PathResult
from dask_mcsvm.estimators.linear import LinearMCSVC

__all__ = ["Certificate", "LinearMCSVC", "PathResult"]
