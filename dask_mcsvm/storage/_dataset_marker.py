"""The marker of a dataset, checked: what it claims fits together, and fits the chunks it lists."""

from __future__ import annotations

import sys
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from ._blocks import MAX_FEATURES
from ._format import DATASET, is_count, read_marker
from ._json import decode_classes
from ._place import Place
from ._verify import check_claim

_MOST = 1 << 62


def read_dataset_marker(place: Place) -> dict[str, Any]:
    """The marker of a whole dataset; raises DatasetFormatError for one that can't be."""
    marker = read_marker(place, DATASET)
    fault = partial(DATASET.fault, place)
    for name, is_right in _CHECKS.items():
        if not is_right(marker.get(name)):
            raise fault(f"its {name} is {marker.get(name)!r:.60}")
    try:
        classes = decode_classes(marker["classes"])
    except ValueError as error:
        raise fault(str(error)) from None
    if not classes.size or not (classes[1:] > classes[:-1]).all():
        raise fault("its classes are not sorted")
    _check_offsets(marker, fault)
    names = marker.get("feature_names")  # datasets of 0.1 have none
    is_list = isinstance(names, list) and all(isinstance(name, str) for name in names)
    if names is not None and not (is_list and len(names) == marker["d"]):
        raise fault("its feature_names are not one string per column")
    for name, (shape, dtype) in _arrays(marker).items():
        check_claim(name, shape, np.dtype(dtype), marker["chunks"].get(name), fault)
    return marker


def _is_dtype(value: Any) -> bool:
    try:
        dtype = np.dtype(value) if isinstance(value, str) else None
    except TypeError:
        return False
    # Of format 0.1, see `storable_dtype`: integers and two kinds of floats.
    return dtype is not None and (dtype.kind in "iu" or dtype.str in ("<f4", "<f8"))


def _is_norm(value: Any) -> bool:
    return value is None or (type(value) in (int, float) and 0 <= value <= sys.float_info.max)


_CHECKS: dict[str, Any] = {
    "id": lambda value: isinstance(value, str),
    "n": lambda value: is_count(value, _MOST) and value > 0,
    "d": lambda value: is_count(value, MAX_FEATURES + 1) and value > 0,
    "nnz": lambda value: is_count(value, _MOST),
    "dtype": _is_dtype,
    "sparse": lambda value: isinstance(value, bool),
    "weighted": lambda value: isinstance(value, bool),
    "max_row_norm": _is_norm,
    "classes": lambda value: isinstance(value, dict),
    "row_offsets": lambda value: (
        isinstance(value, list) and all(is_count(row, _MOST) for row in value)
    ),
}


def _check_offsets(marker: dict[str, Any], fault: Any) -> None:
    offsets = marker["row_offsets"]
    rising = len(offsets) > 1 and all(a < b for a, b in pairwise(offsets))
    if not rising or offsets[0] != 0 or offsets[-1] != marker["n"]:
        raise fault("its row_offsets do not rise from 0 to its number of rows")


def _arrays(marker: dict[str, Any]) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shape and dtype of every array that a dataset must have."""
    n, nnz = marker["n"], marker["nnz"]
    arrays: dict[str, tuple[tuple[int, ...], str]] = {"y": ((n,), "<i4")}
    if marker["sparse"]:
        arrays |= {
            "X/data": ((nnz,), marker["dtype"]),
            "X/indices": ((nnz,), "<i4"),
            "X/indptr": ((n + 1,), "<i8"),
        }
    else:
        arrays["X"] = ((n, marker["d"]), marker["dtype"])
    if marker["weighted"]:
        arrays["sample_weight"] = ((n,), "<f8")
    return arrays
