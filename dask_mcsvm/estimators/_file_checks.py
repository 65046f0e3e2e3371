"""What a model file must hold to become a LinearMCSVC: types, ranges, and that they fit together.

Every check raises ValueError with what was found; `load` adds the path.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from dask_mcsvm.data.validation import is_lazy
from dask_mcsvm.formulations import FORMULATIONS

FLOATS = (np.dtype(np.float32), np.dtype(np.float64))
MOST = 2**62


def is_count(value: Any) -> bool:
    """An integer of at least 0."""
    return type(value) is int and 0 <= value < MOST


def is_number(value: Any) -> bool:
    """A real number that float64 has; nan and infinity are some."""
    if type(value) is int:
        return abs(value) < MOST
    return type(value) is float


def check_weights(W: Any, intercept: Any, totals: Any, d: int, k: int) -> None:
    """W (d, k), intercept and class totals (k,): floats, finite, of these shapes."""
    shapes = {"W": W.shape, "intercept": intercept.shape, "class_totals": totals.shape}
    if shapes != {"W": (d, k), "intercept": (k,), "class_totals": (k,)}:
        raise ValueError(f"{k} classes and {d} features, but shapes {shapes}")
    for name, values in (("W", W), ("intercept", intercept), ("class_totals", totals)):
        if sp.issparse(values) and name != "W":
            raise ValueError(f"{name} is sparse")
        if values.dtype not in FLOATS:
            raise ValueError(f"{name} has dtype {values.dtype}")
        stored = values.data if sp.issparse(values) else values
        if not is_lazy(values) and not np.isfinite(stored).all():
            raise ValueError(f"{name} holds nan or inf")
    if (totals < 0).any():
        raise ValueError("class_totals are negative")


def check_classes(classes: Any) -> None:
    """Sorted, each once."""
    if classes.ndim != 1 or not classes.size or not (classes[1:] > classes[:-1]).all():
        raise ValueError("the classes are not sorted")


def check_fitted(plain: Any) -> None:
    """The fitted attributes that are JSON values."""
    is_text = {"solver_": (str,), "stop_": (str, type(None))}
    for name, value in _mapping(plain, "fitted").items():
        if name == "history_":
            right = isinstance(value, list) and all(map(_is_record, value))
        elif name in is_text:
            right = isinstance(value, is_text[name])
        elif name in ("n_iter_", "n_features_in_"):
            right = is_count(value)
        elif name == "temperature_":
            right = is_number(value) and 0 < value < math.inf
        else:
            right = is_number(value)
        if not right:
            raise ValueError(f"{name} is {value!r:.60}")


def _is_record(value: Any) -> bool:
    """An epoch: text, numbers, and numbers by name (seconds by kind of task)."""
    if not isinstance(value, dict):
        return False
    nested = [item.values() if isinstance(item, dict) else (item,) for item in value.values()]
    return all(isinstance(x, str | bool | None) or is_number(x) for part in nested for x in part)


def check_trained(trained: Any) -> None:
    """The problem that a model was fitted to."""
    found = _mapping(trained, "trained")
    if found["formulation"] not in list(FORMULATIONS):
        raise ValueError(f"formulation is {found['formulation']!r:.60}")
    for name, least in (("C", 0.0), ("tau", 0.0)):
        value = found[name]
        if not is_number(value) or not math.isfinite(value) or value < least:
            raise ValueError(f"{name} is {value!r:.60}")
    if not is_number(found.get("square", math.nan)):  # files of 0.1 have none
        raise ValueError(f"square is {found['square']!r:.60}")
    if not is_count(found["n_given"]):
        raise ValueError(f"n_given is {found['n_given']!r:.60}")
    if found["dtype"] not in [dtype.name for dtype in FLOATS]:
        raise ValueError(f"dtype is {found['dtype']!r:.60}")


def check_columns(mean: Any, scale: Any, centred: Any, d: int) -> None:
    """Mean and scale of the columns that a model was standardized by."""
    for name, values in (("mean", mean), ("scale", scale)):
        if sp.issparse(values) or values.shape != (d,) or values.dtype != np.float64:
            raise ValueError(f"{name} is not {d} numbers in float64")
        if not np.isfinite(values).all():
            raise ValueError(f"{name} holds nan or inf")
    if not (scale > 0).all() or type(centred) is not bool:
        raise ValueError("the columns' scale is not above 0, or centred is not true or false")


def check_names(names: Any, d: int) -> None:
    """Names of features: none, or one each."""
    is_list = isinstance(names, list) and all(isinstance(name, str) for name in names)
    if names is not None and not (is_list and len(names) == d):
        raise ValueError(f"feature_names are not {d} strings")


def check_versions(versions: Any) -> None:
    """Names of libraries and their versions."""
    if not all(isinstance(text, str) for text in _mapping(versions, "versions").values()):
        raise ValueError("versions are not text")


def check_parts(parts: Any, stamps: Sequence[int], d: Any, k: int) -> None:
    """Widths of the files of W, and their dtype."""
    widths, dtype = _mapping(parts, "parts")["classes"], parts["dtype"]
    whole = isinstance(widths, list) and all(is_count(width) for width in widths)
    if not whole or sum(widths) != k or len(widths) != len(stamps) or not is_count(d):
        raise ValueError(f"{len(stamps)} files do not make the weights of {k} classes")
    if dtype not in [dtype.name for dtype in FLOATS]:
        raise ValueError(f"dtype is {dtype!r:.60}")


def _mapping(value: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{name} is {value!r:.60}")
    return value
