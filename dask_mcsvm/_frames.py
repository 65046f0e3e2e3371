"""What pandas and lists bring that NumPy reads wrongly: missing labels, nullable dtypes, text.

By attributes and not by types: pandas is not a dependency. Dask frames have the same attributes.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
#: Kinds of dtype that are numbers.
NUMERIC = "fiub"


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
    if hasattr(y, "isna"):
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
    try:
        np.asarray(frame.iloc[:, j], np.float64)
    except (ValueError, TypeError):
        return False
    return True
