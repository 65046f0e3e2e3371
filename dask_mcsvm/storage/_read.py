"""Reading parts of a dataset by its place and id: what tasks carry instead of arrays.

A reader is pinned to the version it opened: bytes that differ from those listed in that version's
marker are an error, whether they are damaged or another version's.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from ._dataset_marker import read_dataset_marker
from ._format import DATASET, Array
from ._place import Place
from ._replace import is_between_names
from ._verify import open_verified, read_values

REPLACED = "the dataset was replaced after it was opened; open it again with open_dataset"


def read_csr(place: Place, id: str, start: int, stop: int) -> Any:
    """Rows start:stop as a `scipy.sparse.csr_matrix` that kernels may index without looking.

    A matrix, not a `csr_array`: Dask joins blocks of those only since 2025.3.
    """
    marker = _marker(place, id)
    n, d, nnz = marker["n"], marker["d"], marker["nnz"]
    dtype = np.dtype(marker["dtype"])
    indptr = _values(place, id, "X/indptr", (n + 1,), np.int64, slice(start, stop + 1))
    lo, hi = int(indptr[0]), int(indptr[-1])
    if lo < 0 or (np.diff(indptr) < 0).any():
        raise DATASET.fault(place, f"X/indptr does not rise in rows {start} to {stop}")
    if hi > nnz:
        raise DATASET.fault(place, f"X/indptr ends at {hi}, behind the last nonzero")
    indices = _values(place, id, "X/indices", (nnz,), np.int32, slice(lo, hi))
    data = _values(place, id, "X/data", (nnz,), dtype, slice(lo, hi))
    if hi > lo and not 0 <= indices.min() <= indices.max() < d:
        raise DATASET.fault(
            place, f"rows {start} to {stop} have a column index outside 0 to {d - 1}"
        )
    return sp.csr_matrix((data, indices, indptr - lo), shape=(stop - start, d))


def read_dense(place: Place, id: str, start: int, stop: int) -> Array:
    """Rows start:stop as an array (stop - start, d)."""
    marker = _marker(place, id)
    shape = (marker["n"], marker["d"])
    return _values(place, id, "X", shape, marker["dtype"], slice(start, stop))


def read_row_starts(place: Place, id: str, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Position of the first nonzero of each of the given rows (n is the end of the last)."""
    marker = _marker(place, id)
    starts = _values(place, id, "X/indptr", (marker["n"] + 1,), np.int64, rows)
    if starts[0] < 0 or starts[-1] > marker["nnz"] or (np.diff(starts) < 0).any():
        raise DATASET.fault(place, "X/indptr does not rise")
    return starts


def read_codes(place: Place, id: str, start: int, stop: int) -> npt.NDArray[np.int32]:
    """Class codes of rows start:stop, all of them in 0..n_classes - 1."""
    marker = _marker(place, id)
    n_classes = len(marker["classes"]["values"])
    codes = _values(place, id, "y", (marker["n"],), np.int32, slice(start, stop))
    wrong = np.flatnonzero((codes < 0) | (codes >= n_classes))
    if len(wrong):
        row = int(wrong[0])
        raise DATASET.fault(
            place,
            f"y[{start + row}] is {codes[row]}, but the {n_classes} classes have codes 0 to "
            f"{n_classes - 1}",
        )
    return codes


def read_weights(place: Place, id: str, start: int, stop: int) -> npt.NDArray[np.float64]:
    """Sample weights of rows start:stop."""
    n = _marker(place, id)["n"]
    return _values(place, id, "sample_weight", (n,), np.float64, slice(start, stop))


@lru_cache(maxsize=16)
def _marker(place: Place, id: str) -> dict[str, Any]:
    """The marker of one version, which never changes."""
    try:
        marker = read_dataset_marker(place)
    except (FileNotFoundError, DATASET.error) as error:
        raise _lost(place, id, error) from error
    if marker["id"] != id:
        raise DATASET.error(f"{place.shown}: {REPLACED}.")
    return marker


def _values(
    place: Place, id: str, name: str, shape: tuple[int, ...], dtype: Any, rows: slice | Array
) -> Array:
    fault = partial(_fault, place, id)
    dtype = np.dtype(dtype)
    array = open_verified(place, DATASET, _marker(place, id), name, shape, dtype=dtype, fault=fault)
    if array.attrs.get("dask_mcsvm_id") != id:
        raise DATASET.error(f"{place.shown}: {REPLACED}.")
    return read_values(array, name, fault, rows)


def _fault(place: Place, id: str, found: str) -> Exception:
    return _lost(place, id, DATASET.fault(place, found))


def _lost(place: Place, id: str, otherwise: Exception) -> Exception:
    """Why bytes are not those of the version opened: it is gone, replaced, or damaged."""
    if is_between_names(place):
        return DATASET.error(f"{place.shown}: {REPLACED}.")
    if not place.exists():
        return FileNotFoundError(f"{place.shown}: the dataset is gone; check the path.")
    try:
        replaced = read_dataset_marker(place)["id"] != id
    except (FileNotFoundError, DATASET.error):
        replaced = False
    return DATASET.error(f"{place.shown}: {REPLACED}.") if replaced else otherwise
