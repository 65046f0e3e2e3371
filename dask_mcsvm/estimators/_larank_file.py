"""What `LaRankSVC.load` makes of a file, after every part of it was checked."""

import math
from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import numpy.typing as npt

from dask_mcsvm.estimators._larank_bench import Kept
from dask_mcsvm.estimators._larank_settings import KERNELS
from dask_mcsvm.estimators._margins import given_margins, stored_margins
from dask_mcsvm.solvers.larank import ALL_OPERATIONS, SCHEDULES, Kernel, checked_state, rebuild
from dask_mcsvm.storage import decode_classes

Test = Callable[[Any], bool]

#: Parameters that belong to one fit, not to its model, with what a loaded model has: not saved.
OF_ONE_FIT: dict[str, Any] = {"checkpoint": None, "resume": False}

#: No row has a larger number, no array more entries.
LARGEST = 2**62


def _integer(low: int, high: int = LARGEST) -> Test:
    return lambda value: type(value) is int and low <= value <= high


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _is_finite(value: Any) -> bool:
    return type(value) is float and math.isfinite(value)


def _is_positive(value: Any) -> bool:
    return _is_finite(value) and value > 0


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_table(value: Any) -> bool:
    return isinstance(value, dict)


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _among(*choices: Any) -> Test:
    return lambda value: any(type(value) is type(one) and value == one for one in choices)


#: Numbers that a saved model brings back besides its arrays.
SAVED: dict[str, Test] = {
    "n_features_in_": _integer(1),
    "gamma_": _is_positive,
    "n_iter_": _integer(1),
    "primal_": _is_number,
    "dual_": _is_number,
    "gap_": _is_number,
    "stop_": _among("epochs", "gap", "max_epochs", "callback"),
    "history_": lambda value: _is_list(value) and all(map(_is_table, value)),
}
PARTS: dict[str, Test] = {
    "parameters": _is_table,
    "classes": _is_table,
    "run": _is_table,
    "kernel": lambda value: _is_list(value) and len(value) == 4,
    "names": lambda value: _is_list(value) and all(isinstance(name, str) for name in value),
    "n_seen": _integer(0),
}
RUN: dict[str, Test] = {
    "n_classes": _integer(1, 2**31 - 1),
    "n_features": _integer(0),
    "is_sparse": _is_flag,
    "dtype": _among("float32", "float64"),
    "seed": _integer(0, 2**31 - 1),
    "tau": lambda value: _is_finite(value) and value >= 0,
    "schedule": _among(*SCHEDULES),
    "max_support": lambda value: value is None or _integer(2)(value),
    "cache_bytes": _integer(0),
    "operations": _among(list(ALL_OPERATIONS)),
}
KERNEL: dict[str, Test] = {
    "name": _among(*KERNELS),
    "gamma": _is_positive,
    "degree": lambda value: _is_finite(value) and value >= 1 and value == int(value),
    "coef0": _is_finite,
}


def read_file(
    names: Collection[str], arrays: dict[str, Any], meta: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any], Kept]:
    """Parameters (those called `names`), fitted attributes, and the run to go on from.

    Raises
    ------
    ValueError
        With a few words on what is wrong.
    """
    parts, saved = _values("", meta, PARTS), _values("", meta, SAVED)
    run = _values("run: ", parts["run"], RUN)
    given = dict(zip(KERNEL, parts["kernel"], strict=True))
    run["kernel"] = kernel = Kernel(**_values("kernel: ", given, KERNEL))
    run |= {"dtype": np.dtype(run["dtype"]), "operations": ALL_OPERATIONS}
    classes = _classes(parts["classes"])
    run["margins"] = stored_margins(arrays, classes.size)
    _agree("n_classes", run["n_classes"], classes.size)
    _agree("gamma_", saved["gamma_"], kernel.gamma)
    d = saved["n_features_in_"]
    if kernel.name == "precomputed":  # rows of weight 0 were left out
        _agree("is_sparse", run["is_sparse"], False)
        _agree("n_features", run["n_features"], min(d, run["n_features"]))
    else:
        _agree("n_features", run["n_features"], d)
    learned = saved | {"classes_": classes}
    if parts["names"]:
        _agree("the number of names", len(parts["names"]), d)
        learned["feature_names_in_"] = np.array(parts["names"], dtype=object)
    state = checked_state(run, arrays | {"n_seen": parts["n_seen"]})
    highest = d if kernel.name == "precomputed" else LARGEST
    learned["support_"] = _support(arrays.get("support"), state["ids"], highest)
    # Files of 0.1 have neither.
    parameters = _parameters(names, {"margins": None, "layer": None, **parts["parameters"]})
    parameters["margins"] = given_margins(parameters["margins"], arrays)
    return parameters, learned, Kept.of(rebuild(run, state))


def _values(where: str, given: dict[str, Any], tests: dict[str, Test]) -> dict[str, Any]:
    for name, test in tests.items():
        if name not in given:
            raise ValueError(f"{where}{name} is missing")
        if not test(given[name]):
            raise ValueError(f"{where}{name} is {_shown(given[name])}")
    return {name: given[name] for name in tests}


def _shown(value: Any) -> str:
    """A value, shortened to what a message can hold."""
    if isinstance(value, list | dict):
        return f"a {type(value).__name__} of {len(value)}"
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."


def _agree(name: str, found: Any, needed: Any) -> None:
    if found != needed:
        raise ValueError(f"{name} is {found}, {needed} is needed")


def _classes(encoded: dict[str, Any]) -> npt.NDArray[Any]:
    try:
        classes = decode_classes(encoded)
        is_sorted = classes.ndim == 1 and np.array_equal(np.unique(classes), classes)
    except (KeyError, TypeError, ValueError, OverflowError, MemoryError) as error:
        raise ValueError(f"classes can not be read: {error!s:.80}") from error
    if not is_sorted or not classes.size:
        raise ValueError("classes are not a sorted list")
    return classes


def _support(support: Any, ids: Any, highest: int) -> npt.NDArray[np.int64]:
    """Numbers among the rows given: those of the rows seen, or more where some had no weight."""
    is_list = isinstance(support, np.ndarray) and support.dtype == np.int64
    if not is_list or support.shape != ids.shape:
        raise ValueError("support is not a number for each pattern")
    order = np.argsort(ids)
    rising = (np.diff(support[order]) >= np.diff(ids[order])).all()
    if not rising or (support < ids).any() or (support >= highest).any():
        raise ValueError("support are not numbers of rows")
    return np.asarray(support)


def _parameters(names: Collection[str], stored: dict[str, Any]) -> dict[str, Any]:
    kept = set(names) - set(OF_ONE_FIT)
    strangers = sorted(set(stored) - kept)
    if strangers:
        raise ValueError(f"the parameter {_shown(strangers[0])} is not known")
    missing = sorted(kept - set(stored))
    if missing:
        raise ValueError(f"the parameter {missing[0]} is missing")
    parameters = stored | {"callbacks": ()}
    weights = parameters["class_weight"]
    if isinstance(weights, list):
        try:
            weights = dict(weights)
        except (TypeError, ValueError):
            raise ValueError("class_weight is not a list of pairs") from None
        parameters["class_weight"] = weights
    return parameters
