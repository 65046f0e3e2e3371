"""Reading parts of a dataset by its place and id: what tasks carry instead of arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from ._format import DATASET, Array, open_array, read_values
from ._place import Place

REPLACED = "the dataset was replaced after it was opened; open it again with open_dataset"


def read_csr(place: Place, id: str, n_features: int, start: int, stop: int) -> Any:
    """Rows start:stop as a `scipy.sparse.csr_matrix` that kernels may index without looking.

    A matrix, not a `csr_array`: Dask joins blocks of those only since 2025.3.
    """
    indptr = _values(place, _open(place, "X/indptr", id), "X/indptr", start, stop + 1)
    if indptr[0] < 0 or (np.diff(indptr) < 0).any():
        raise DATASET.fault(place, f"X/indptr does not rise in rows {start} to {stop}")
    lo, hi = int(indptr[0]), int(indptr[-1])
    indices = _values(place, _open(place, "X/indices", id), "X/indices", lo, hi)
    data = _values(place, _open(place, "X/data", id), "X/data", lo, hi)
    if not len(indices) == len(data) == hi - lo:
        raise DATASET.fault(place, f"X/indptr ends at {hi}, behind the last nonzero")
    if hi > lo and not 0 <= indices.min() <= indices.max() < n_features:
        raise DATASET.fault(
            place, f"rows {start} to {stop} have a column index outside 0 to {n_features - 1}"
        )
    return sp.csr_matrix((data, indices, indptr - lo), shape=(stop - start, n_features))


def read_dense(place: Place, id: str, start: int, stop: int) -> Array:
    """Rows start:stop as an array (stop - start, d)."""
    return _values(place, _open(place, "X", id), "X", start, stop)


def read_row_starts(place: Place, id: str, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Position of the first nonzero of each of the given rows (n is the end of the last)."""
    array = _open(place, "X/indptr", id)
    try:
        return np.asarray(array.oindex[rows])
    except (RuntimeError, ValueError, OSError) as error:
        raise DATASET.fault(place, f"X/indptr can not be read ({error})") from error


def read_codes(
    place: Place, id: str, n_classes: int, start: int, stop: int
) -> npt.NDArray[np.int32]:
    """Class codes of rows start:stop, all of them in 0..n_classes - 1."""
    codes = _values(place, _open(place, "y", id), "y", start, stop)
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
    return _values(place, _open(place, "sample_weight", id), "sample_weight", start, stop)


def _open(place: Place, name: str, id: str) -> Any:
    try:
        array = open_array(place, name)
    except (OSError, ValueError, KeyError) as error:
        if not place.exists():
            raise FileNotFoundError(
                f"{place.shown}: the dataset is gone; check the path."
            ) from error
        raise DATASET.fault(place, f"the array {name} can not be opened") from error
    if array.attrs.get("dask_mcsvm_id") != id:
        raise DATASET.error(f"{place.shown}: {REPLACED}.")
    return array


def _values(place: Place, array: Any, name: str, start: int, stop: int) -> Array:
    return read_values(place, DATASET, name, start, stop, array)
