"""What arrays must be like before compiled code reads them: sparse structure, range of numbers.

Compiled loops index without looking and multiply without asking. Everything here is NumPy, reads
its arguments once and changes none of them. And what pandas and lists bring that NumPy reads
wrongly: missing labels, nullable dtypes, text; by attributes, since pandas is no dependency.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

# Costs, squared norms and their products stay between 1 / LIMIT and LIMIT. float32 reaches 2**127:
# what is left is for sums over rows and classes (2**27 of them). float64 reaches 2**1023: there
# the squares of such sums have to fit as well.
LIMIT = {np.dtype(np.float32): 2.0**100, np.dtype(np.float64): 2.0**400}


# Sparse structure -------------------------------------------------------------------------------


def check_sparse(X: Any, name: str = "X") -> None:
    """Refuse a SciPy sparse X whose index arrays point outside of it; dense X is left alone.

    SciPy's own conversions and slices index without looking as well, so this comes before any.
    """
    if not sp.issparse(X) or X.ndim < 2:
        return
    if X.ndim > 2:
        raise ValueError(
            f"{name} has {X.ndim} dimensions; Expected 2D array of shape (n_samples, n_features)."
        )
    kind = str(X.format)
    if kind in ("csr", "csc"):
        sizes = X.shape if kind == "csr" else X.shape[::-1]
        _check_compressed(X.indptr, X.indices, X.data, sizes, f"{name} ({kind.upper()})", kind)
    elif kind == "bsr":
        high, wide = X.blocksize
        sizes = X.shape[0] // high, X.shape[1] // wide
        _check_compressed(X.indptr, X.indices, X.data, sizes, f"{name} (BSR)", kind)
    elif kind == "coo":
        for axis, places, size in (("row", X.row, X.shape[0]), ("col", X.col, X.shape[1])):
            if places.shape != (X.data.size,) or not _are_inside(places, size):
                raise _damaged(
                    f"{name} (COO)", f"{axis} must hold {X.data.size} numbers below {size}", "coo"
                )
    elif kind == "dia" and (X.data.ndim != 2 or X.offsets.shape != X.data.shape[:1]):
        raise _damaged(f"{name} (DIA)", "offsets must have one number per row of data", kind)


def _check_compressed(
    indptr: Any, indices: Any, data: Any, sizes: tuple[int, int], name: str, kind: str
) -> None:
    """Index arrays of `sizes[0]` compressed rows (or columns) of length `sizes[1]`."""
    rows, width = sizes
    if indptr.shape != (rows + 1,) or indptr.dtype.kind not in "iu":
        raise _damaged(
            name, f"indptr has shape {indptr.shape} and must have {rows + 1} integers", kind
        )
    if indptr[0] != 0 or (indptr[1:] < indptr[:-1]).any():
        raise _damaged(name, "indptr must begin at 0 and never decrease", kind)
    stored = min(indices.size, data.shape[0])
    if indices.ndim != 1 or indptr[-1] > stored:
        raise _damaged(
            name, f"indptr ends at {indptr[-1]}, but only {stored} entries are there", kind
        )
    if not _are_inside(indices[: indptr[-1]], width):
        raise _damaged(name, f"indices must be integers from 0 to {width - 1}", kind)


def _are_inside(places: Any, size: int) -> bool:
    """Whether all are integers in [0, size); one pass, in which negative ones are very large."""
    if places.dtype.kind not in "iu":
        return False
    unsigned = np.ascontiguousarray(places).view(f"u{places.dtype.itemsize}")
    return bool(unsigned.max(initial=0) < size) or places.size == 0


def _damaged(name: str, what: str, kind: str) -> ValueError:
    return ValueError(
        f"{name} is damaged: {what}; build it again, for example with "
        f"scipy.sparse.{kind}_array(dense)."
    )


# Range of numbers -------------------------------------------------------------------------------


def largest_norm(rows: Any, block_rows: int = 4096) -> float:
    """max_i ‖x_i‖, summed in float64 block by block so that no large copy is made."""
    largest = 0.0
    for start in range(0, rows.shape[0], block_rows):
        block = rows[start : start + block_rows].astype(np.float64)
        squares = block.multiply(block) if sp.issparse(block) else block * block
        largest = max(largest, float(np.asarray(squares.sum(axis=1)).max()))
    return math.sqrt(largest)


def positive_range(costs: Any) -> tuple[float, float]:
    """The smallest and the largest of those above 0."""
    costs = np.asarray(costs, np.float64)
    return float(costs.min(where=costs > 0, initial=np.inf)), float(costs.max(initial=0.0))


def check_rows_range(rows: Any, costs: tuple[float, float], tau: float) -> None:
    """`check_range` of rows in memory, dense or CSR, of the float type that solves them."""
    values = rows.data if sp.issparse(rows) else rows
    largest = max(float(values.max(initial=0)), -float(values.min(initial=0)))
    width = int(np.diff(rows.indptr).max(initial=0)) if sp.issparse(rows) else rows.shape[1]
    # A bound of the norms is enough for nearly all rows, and takes no squares.
    norm = largest * math.sqrt(width)
    if not costs[1] * (norm * norm + tau * tau) <= LIMIT[np.dtype(rows.dtype)]:
        norm = largest_norm(rows)
    check_range(costs, norm, tau, rows.dtype, are_zero=largest == 0)


def check_range(
    costs: tuple[float, float],
    largest_norm: float,
    tau: float,
    dtype: npt.DTypeLike,
    *,
    are_zero: bool = False,
) -> None:
    """Refuse a problem whose numbers its float type cannot hold with room for sums and squares.

    Parameters
    ----------
    costs : (float, float)
        The smallest and the largest C_i, that is C times weights, of rows of positive weight.
    largest_norm : float
        max_i ‖x_i‖, or a bound on it.
    tau : float
        Value of the constant feature; 0.0 for none.
    dtype : dtype
        float32 or float64.
    are_zero : bool
        Whether all rows are zero: then no score can be lost.
    """
    kind = np.dtype(dtype)
    high = LIMIT[kind]
    low, wider = 1 / high, ', or type dtype="float64"' if kind == np.float32 else ""
    span = f"{kind} takes {low:.1e} to {high:.1e}"
    least, most = costs
    if not low <= least <= most <= high:
        worst = most if not most <= high else least
        raise ValueError(
            f"C times the weight of a row is {worst:.1e}, and {span}; change C or the weights (0 "
            f"leaves a row out){wider}."
        )
    if tau and not low <= tau * tau <= high:
        raise ValueError(
            f"intercept_scaling is {tau:.1e}, whose square is {tau * tau:.1e}, and {span}; use "
            f"a value nearer to 1, or fit_intercept=False{wider}."
        )
    size = most * (largest_norm * largest_norm + tau * tau)
    if not size <= high or (size < low and not are_zero):
        raise ValueError(
            f"C times the largest squared norm of a row is {size:.1e}, and {span}; scale the "
            f"columns of X with sklearn.preprocessing.StandardScaler, or change C{wider}."
        )


def check_scales(scale: npt.NDArray[np.float64], dtype: npt.DTypeLike) -> None:
    """Refuse deviations of columns (d,) by which weights of a float type cannot be divided."""
    kind = np.dtype(dtype)
    column = int(scale.argmin()) if scale.size else 0
    if scale.size and scale[column] < 1 / LIMIT[kind]:
        wider = ', or type dtype="float64"' if kind == np.float32 else ""
        raise ValueError(
            f"column {column} of X has a deviation of {scale[column]:.1e}, and standardize divides "
            f"{kind} weights by {1 / LIMIT[kind]:.1e} or more; drop that column, or multiply it by "
            f"a number{wider}."
        )


Array = npt.NDArray[Any]
#: What Dask makes later, with no shape to ask for.
SHAPELESS = ("Delayed", "DelayedAttr", "DelayedLeaf", "Bag", "Item", "Scalar")


def refuse_shapeless(name: str, given: Any) -> None:
    """An error if rows, labels or weights are of Dask, and no array or frame; Dask is not asked."""
    kind = type(given)
    if kind.__name__ in SHAPELESS and kind.__module__.split(".")[0] in ("dask", "dask_expr"):
        raise TypeError(
            f"{name} is a {kind.__name__} of Dask, which does not say its shape; type "
            f"dask.array.from_delayed({name}, shape=..., dtype=...), or {name}.compute()."
        )


#: Kinds of dtype that are numbers.
NUMERIC = "fiub"


def refuse_masked(name: str, values: Any, where: str = "") -> None:
    """An error if values of a masked array are hidden: NumPy would go on with what lies below."""
    if np.ma.isMaskedArray(values) and np.ma.is_masked(values):
        row = int(np.argwhere(np.ma.getmaskarray(values))[0][0])
        raise ValueError(
            f"{name} has masked values, the first in row {row}{where}; fill them, for example with "
            f"{name}.filled(0), or drop those rows."
        )


# Labels -----------------------------------------------------------------------------------------


def plain_labels(y: Any, first: int = 0) -> Any:
    """Labels without gaps; nullable integers become NumPy's, all else stays as it is.

    Parameters
    ----------
    y : array-like of shape (n,)
        What has another shape is left for others to refuse.
    first : int
        Number of the first of these rows, for the message.

    Raises
    ------
    ValueError
        A label is None, NaN or pandas.NA. NumPy would make floats of the others, or of a list of
        strings a class named "nan".
    """
    row = missing_label(y)
    if row is not None:
        raise ValueError(
            f"y has no label in row {first + row}; every row needs a label: drop the others with "
            "X[keep], y[keep]."
        )
    numpy_dtype = nullable_dtype(getattr(y, "dtype", None))
    return y if numpy_dtype is None else y.to_numpy(dtype=numpy_dtype)


def missing_label(y: Any) -> int | None:
    """The first row without a label, or None."""
    if isinstance(y, list | tuple):
        return next((row for row, label in enumerate(y) if is_missing(label)), None)
    if getattr(y, "ndim", 0) != 1:
        return None
    if np.ma.isMaskedArray(y) and np.ma.is_masked(y):
        gaps = np.ma.getmaskarray(y)
    elif hasattr(y, "isna"):
        gaps = np.asarray(y.isna())
    elif y.dtype.kind == "f":
        gaps = np.isnan(y)
    elif y.dtype.kind == "O":
        gaps = np.fromiter(map(is_missing, y), bool, len(y))
    else:
        return None
    return int(gaps.argmax()) if gaps.any() else None


def is_missing(label: object) -> bool:
    """Whether a label is None, NaN, NaT or pandas.NA: all but None differ from themselves."""
    try:
        return label is None or bool(label != label)
    except TypeError:  # pandas.NA is neither true nor false
        return True
    except ValueError:  # an array, which is another fault
        return False


def nullable_dtype(dtype: Any) -> np.dtype[Any] | None:
    """The numbers under a nullable dtype of pandas or Arrow; None of any other dtype."""
    found = None if isinstance(dtype, np.dtype) else getattr(dtype, "numpy_dtype", None)
    return found if isinstance(found, np.dtype) and found.kind in NUMERIC else None


# Columns ----------------------------------------------------------------------------------------


def numeric_columns(frame: Any) -> Any:
    """A frame whose values are one array of numbers, and no objects.

    Gaps become NaN, for the next check to find.
    """
    dtypes = list(zip(frame.columns, frame.dtypes, strict=True))
    refuse_columns([(name, dtype) for name, dtype in dtypes if not _is_number(dtype)])
    casts = {}
    for name, dtype in dtypes:
        under = nullable_dtype(dtype)
        if under is not None:
            casts[name] = under if under.kind == "f" else np.dtype(np.float64)
        elif dtype.kind == "b":  # beside floats it would make objects of all columns
            casts[name] = np.dtype(np.uint8)
    return frame.astype(casts) if casts else frame


def refuse_text(X: Any) -> None:
    """An error if X is a frame in memory with columns that no cast makes numbers of."""
    if hasattr(X, "columns") and hasattr(X, "dtypes"):
        columns = list(zip(X.columns, X.dtypes, strict=True))
        refuse_columns([c for j, c in enumerate(columns) if not _casts(X, j, c[1])])


def refuse_columns(found: list[tuple[Any, Any]], at_most: int = 3) -> None:
    """An error that names columns, if there are any."""
    if not found:
        return
    shown = ", ".join(f"{name!r} ({dtype})" for name, dtype in found[:at_most])
    more = f" and {len(found) - at_most} more" if len(found) > at_most else ""
    names = f"{[name for name, _ in found[:at_most]]}"
    raise ValueError(
        f"X has columns that are no numbers: {shown}{more}; drop them with "
        f"X.drop(columns={names}), or encode them with sklearn.preprocessing.OneHotEncoder."
    )


def _is_number(dtype: Any) -> bool:
    kind = dtype.kind if isinstance(dtype, np.dtype) else None
    return kind in tuple(NUMERIC) or nullable_dtype(dtype) is not None


def _casts(frame: Any, j: int, dtype: Any) -> bool:
    if _is_number(dtype):
        return True
    if getattr(dtype, "kind", "") in ("m", "M"):  # nanoseconds of one column beside others
        return False
    try:
        np.asarray(frame.iloc[:, j], np.float64)
    except (ValueError, TypeError):
        return False
    return True
