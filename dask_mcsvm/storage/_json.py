"""Python values and class labels as strict JSON, and back with their types."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

# JSON has no nan or inf, and a gap may be nan.
_FLOAT = "$float"


# Deeper than anything we write; Python's own functions give up near 1000.
_DEPTH = 100


def parse_json(text: bytes) -> Any:
    """Strict JSON of bounded depth out of a file.

    Raises
    ------
    ValueError
        It is not JSON, has nan or inf, or is nested too deeply.
    """
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    level = [value]
    for _ in range(_DEPTH):
        level = [
            item
            for outer in level
            if isinstance(outer, dict | list)
            for item in (outer.values() if isinstance(outer, dict) else outer)
        ]
    if level:
        raise ValueError("nested too deeply")
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def to_json(value: Any, name: str = "meta") -> Any:
    """`value` made of dicts, lists and scalars (NumPy's too) as plain JSON values.

    Raises
    ------
    TypeError
        Something else is in it; the message gives its place.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return {_FLOAT: str(value)}
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: to_json(item, f"{name}[{key!r}]") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item, f"{name}[{i}]") for i, item in enumerate(value)]
    raise TypeError(
        f"{name} is a {type(value).__name__}; files hold None, strings, numbers, lists and dicts "
        "with string keys only. Pass arrays among the arrays."
    )


def from_json(value: Any) -> Any:
    """What `to_json` was given (tuples come back as lists)."""
    if isinstance(value, dict):
        if set(value) == {_FLOAT} and isinstance(value[_FLOAT], str):
            return float(value[_FLOAT])
        return {key: from_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [from_json(item) for item in value]
    return value


def fixed_width(labels: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """NumPy's strings of variable width as ordinary ones: their dtype has no stable name."""
    return np.array(labels.tolist(), dtype=str) if labels.dtype.kind == "T" else labels


def encode_classes(classes: npt.ArrayLike) -> dict[str, Any]:
    """Class labels with their NumPy dtype as JSON, for the meta of a model or dataset.

    Parameters
    ----------
    classes : array-like of shape (k,)
        Strings, integers, floats or bools; an object array must hold strings only.

    Returns
    -------
    dict
        ``{"dtype": ..., "values": [...]}``, for `decode_classes`.

    Examples
    --------
    >>> encode_classes(np.array(["ham", "spam"]))
    {'dtype': '<U4', 'values': ['ham', 'spam']}
    """
    labels = fixed_width(np.asarray(classes))
    if labels.dtype.kind == "O" and not all(isinstance(label, str) for label in labels):
        kinds = sorted({type(label).__name__ for label in labels})
        raise TypeError(
            f"class labels are objects of type {', '.join(kinds)}; they must be strings, integers, "
            "floats or bools. Use y.astype(str)."
        )
    if labels.dtype.kind not in "OUbiuf":
        raise TypeError(
            f"class labels have dtype {labels.dtype}; they must be strings, integers, floats or "
            "bools. Use y.astype(str)."
        )
    return {"dtype": labels.dtype.str, "values": to_json(labels.tolist())}


def decode_classes(encoded: Mapping[str, Any]) -> npt.NDArray[Any]:
    """The array that `encode_classes` was given, read-only.

    Raises
    ------
    ValueError
        It is not what `encode_classes` makes.

    Examples
    --------
    >>> decode_classes({"dtype": "<i8", "values": [3, 7]})
    array([3, 7])
    """
    try:
        dtype, values = np.dtype(encoded["dtype"]), from_json(encoded["values"])
        longest = max((len(value) for value in values if isinstance(value, str)), default=0)
        kinds = {type(value) for value in values}
        fits = isinstance(encoded["dtype"], str) and isinstance(values, list)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise ValueError("the classes are damaged") from None
    allowed: dict[str, type[Any]] = {"O": str, "U": str, "b": bool, "i": int, "u": int, "f": float}
    if not fits or not kinds <= {allowed.get(dtype.kind)}:
        raise ValueError("the classes are damaged")
    # The width of strings is a claim, and each label takes as much memory.
    if 4 * longest < dtype.itemsize and dtype.itemsize * len(values) > 1 << 28:
        raise ValueError(f"the classes claim strings of {dtype.itemsize // 4} characters")
    try:
        classes = np.array(values, dtype=dtype)
    except OverflowError:
        raise ValueError(f"a class is out of the range of {dtype}") from None
    classes.flags.writeable = False
    return classes
