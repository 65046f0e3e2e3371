"""Checks of parameters, rows, labels and weights, before anything is computed.

Everything here reads the user's objects and changes none of them. An error is one sentence: what
was found, what is needed, what to type.
"""

import copy
import math
import numbers
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from joblib.parallel import get_active_backend
from sklearn.utils import check_array, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d, validate_data

from dask_mcsvm.checks import (
    NUMERIC,
    check_range,
    check_rows_range,
    check_sparse,
    largest_norm,
    plain_labels,
    positive_range,
    refuse_masked,
    refuse_shapeless,
    refuse_text,
)
from dask_mcsvm.errors import advised, bad_parameter
from dask_mcsvm.formulations import Standardization

from .containers import NamedRows

FloatArray: TypeAlias = npt.NDArray[np.float64]
# A C-contiguous ndarray, or a csr_array with int32 indices and int64 indptr; float32 or float64.
Rows: TypeAlias = Any


# Parameters -------------------------------------------------------------------------------------


def check_number(
    name: str,
    value: object,
    *,
    above: float | None = None,
    at_least: float | None = None,
    example: str,
) -> float:
    """A finite real number in range, as a float; True and False are not numbers here."""
    needed = "a finite number"
    if above is not None or at_least is not None:
        needed += f" above {above:g}" if above is not None else f" of at least {at_least:g}"
    if not isinstance(value, numbers.Real) or isinstance(value, bool | np.bool_):
        raise bad_parameter(name, value, needed, example)
    try:
        number = float(value)
    except OverflowError:  # an integer beyond all floats
        number = math.inf
    too_low = number <= above if above is not None else False
    too_low |= number < at_least if at_least is not None else False
    if not math.isfinite(number) or too_low:
        raise bad_parameter(name, value, needed, example)
    return number


def check_integer(name: str, value: object, *, at_least: int, example: str) -> int:
    """An integer in range, as an int; True and False are not numbers here."""
    valid = isinstance(value, numbers.Integral) and not isinstance(value, bool | np.bool_)
    if not valid or int(value) < at_least:  # type: ignore[call-overload]
        raise bad_parameter(name, value, f"an integer of at least {at_least}", example)
    return int(value)  # type: ignore[call-overload, no-any-return]


def check_flag(name: str, value: object) -> bool:
    """True or False; 0, "no" and the like would be read differently by different people."""
    if not isinstance(value, bool | np.bool_):
        raise bad_parameter(name, value, "True or False", f"{name}=True")
    return bool(value)


def check_standardize(value: object) -> bool | str:
    """False, True, or "scale": standardized without centring."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, str) and value == "scale":
        return value
    raise bad_parameter("standardize", value, 'True, False or "scale"', "standardize=True")


def check_verbose(verbose: object) -> int:
    """How much to say: 0 is nothing; True is 1."""
    given = int(verbose) if isinstance(verbose, bool) else verbose
    return check_integer("verbose", given, at_least=0, example="verbose=1")


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> str:
    """One of the strings accepted."""
    if not isinstance(value, str) or value not in choices:
        accepted = f"{', '.join(map(repr, choices[:-1]))} or {choices[-1]!r}"
        raise bad_parameter(name, value, accepted, f"{name}={choices[0]!r}")
    return value


def check_layer(layer: object) -> None:
    """The name of a layer of AnnData, or None."""
    if layer is not None and not (isinstance(layer, str) and layer):
        needed = "the name of a layer of AnnData, or None"
        raise bad_parameter("layer", layer, needed, 'layer="counts"')


def check_dtype(dtype: object) -> np.dtype[Any] | None:
    """The arithmetic asked for, None where the rows decide."""
    if dtype is None:
        return None
    for accepted in (np.dtype(np.float32), np.dtype(np.float64)):
        try:
            same = accepted == dtype
        except TypeError:  # NumPy was shown something that names no dtype
            same = False
        if same:
            return accepted
    needed = '"float32", "float64" or None (None keeps the precision of X)'
    raise bad_parameter("dtype", dtype, needed, 'dtype="float64"')


def check_callbacks(callbacks: object) -> tuple[Any, ...]:
    """A sequence of callables, as a tuple."""
    if isinstance(callbacks, tuple | list) and all(callable(call) for call in callbacks):
        return tuple(callbacks)
    needed = "a tuple or list of functions of one record"
    raise bad_parameter("callbacks", callbacks, needed, "callbacks=(print,)")


def check_n_jobs(n_jobs: object) -> int:
    """How many threads: None is 1, -1 all cores, -2 all but one, as in joblib.

    Cores are those this process may run on, not those of the machine. A fit that runs beside
    others in a worker of joblib, as in GridSearchCV(n_jobs=2), gets its share of them.
    """
    if n_jobs is None:
        return 1
    if not isinstance(n_jobs, numbers.Integral) or isinstance(n_jobs, bool) or n_jobs == 0:
        needed = "a positive integer, -1 for all cores, or None for one"
        raise bad_parameter("n_jobs", n_jobs, needed, "n_jobs=-1")
    threads = int(n_jobs)
    if threads < 0:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        threads = max(1, (cores or 1) + 1 + threads)
    if get_active_backend()[0].nesting_level:  # joblib tells its processes their share so
        threads = min(threads, int(os.environ.get("OMP_NUM_THREADS", "1")))
    return threads


def draw_seed(random_state: object) -> int:
    """One integer that every random choice of a fit derives from."""
    try:
        return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))
    except ValueError:
        needed = "None, an integer or a numpy.random.RandomState"
        raise bad_parameter("random_state", random_state, needed, "random_state=0") from None


# Rows -------------------------------------------------------------------------------------------


@contextmanager
def saying_what_to_type(X: Any = None) -> Iterator[None]:
    """scikit-learn's complaints, of X too, leave this block in one sentence that ends in advice."""
    try:
        yield
    except (ValueError, TypeError) as error:
        refuse_text(X)
        if (better := advised(error)) is error:
            raise
        raise better from error


def is_lazy(X: Any) -> bool:
    """Whether X is read chunk by chunk: a Dask collection, Zarr, a dataset or its path.

    By names: asking Dask would import it, also for those who never use it.
    """
    if isinstance(X, str | os.PathLike):
        return True
    if isinstance(X, NamedRows):
        return is_lazy(X.rows)
    refuse_shapeless("X", X)
    home = type(X).__module__.split(".")
    return home[0] in {"dask", "dask_expr", "zarr"} or home[:2] == ["dask_mcsvm", "storage"]


def is_dataset(X: Any) -> bool:
    """Whether X is a dataset or its path, which has labels and weights of its own."""
    return isinstance(X, str | os.PathLike) or type(X).__name__ == "Dataset"


def check_rows(estimator: Any, X: Any) -> Rows:
    """X of a fitted estimator's `predict`: numeric, finite, 2-d, with the columns of the fit.

    Returns
    -------
    ndarray or SciPy CSR of shape (n, d)
        In its own dtype; never a copy of numeric input that is dense or CSR already.
    """
    return _validated(estimator, X, reset=False)


def _validated(estimator: Any, X: Any, *y: Any, reset: bool) -> Any:
    """`validate_data` of rows that no conversion may read before their structure was checked."""
    names = None
    if isinstance(X, NamedRows):
        X, names = X.rows, X.columns
        estimator = checked_names(estimator, names, reset=reset)
    check_sparse(X)
    refuse_masked("X", X)
    with saying_what_to_type(X):
        # "numeric", not a float type: int8 rows are cast block by block later, not all at once.
        how = {"reset": reset, "accept_sparse": "csr", "dtype": "numeric"}
        found = validate_data(estimator, X, *y, **how)
    if reset and names is not None:
        estimator.feature_names_in_ = names
    rows = found[0] if y else found
    check_sparse(rows)  # lists and dictionaries of entries are CSR by now
    rows = _as_numbers(rows, X)
    return (rows, *found[1:]) if y else rows


def _as_numbers(rows: Any, given: Any) -> Any:
    """Rows that scikit-learn let through as objects or times: categories of a frame, long ints."""
    if rows.dtype.kind in NUMERIC:
        return rows
    refuse_text(given)
    if rows.dtype.kind != "O":
        raise ValueError(f"X has dtype {rows.dtype}; X must be numeric: type X.astype(float).")
    try:
        return rows.astype(np.float64)
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError(
            f"X has a value that is no number of float64 ({error}); X must be numeric: drop or "
            "scale the column that has it."
        ) from error


def checked_names(estimator: Any, names: npt.NDArray[Any], *, reset: bool = False) -> Any:
    """An estimator for scikit-learn to check rows without names by, once their names were checked.

    scikit-learn takes names off frames only. The sentence begins with its words.
    """
    if reset:
        return estimator
    fitted = getattr(estimator, "feature_names_in_", None)
    if fitted is None:
        warnings.warn(
            f"X has feature names, but {type(estimator).__name__} was fitted without feature names",
            stacklevel=2,
        )
        return estimator
    if not np.array_equal(fitted, names):
        raise ValueError(
            "The feature names should match those that were passed during fit; "
            f"{_other_names(fitted.tolist(), names.tolist())}: type X[:, model.feature_names_in_]."
        )
    shadow = copy.copy(estimator)
    del shadow.feature_names_in_
    return shadow


def _other_names(fitted: list[str], given: list[str]) -> str:
    """How names differ from those of the fit."""
    parts = []
    for what, found in (
        ("missing", sorted(set(fitted) - set(given))),
        ("unknown", sorted(set(given) - set(fitted))),
    ):
        if found:
            parts.append(f"{len(found)} {what} ({', '.join(map(repr, found[:3]))})")
    return " and ".join(parts) or "they are the same in another order"


def working_dtype(stored: np.dtype[Any], asked: np.dtype[Any] | None) -> np.dtype[Any]:
    """The rule of `dtype`: as asked; else float64 for float64, float32 for all else."""
    if asked is not None:
        return asked
    wide = stored.kind == "f" and stored.itemsize > np.dtype(np.float32).itemsize
    return np.dtype(np.float64 if wide else np.float32)


def as_rows(X: Any, dtype: np.dtype[Any]) -> Rows:
    """Checked X as a solver wants it; shares memory with X wherever X is that already.

    Returns
    -------
    ndarray or csr_array of shape (n, d)
        Dense: C-contiguous. CSR: int32 indices, sorted and without duplicates, int64 indptr.
    """
    values = X.data if sp.issparse(X) else X
    largest = max(abs(float(values.max(initial=0))), abs(float(values.min(initial=0))))
    check_largest(largest, X.shape[1], dtype)
    return _as_csr(X, dtype) if sp.issparse(X) else np.ascontiguousarray(X, dtype=dtype)


def check_largest(largest: float, d: int, dtype: np.dtype[Any]) -> None:
    """Refuse rows of d columns whose largest value is too large to square."""
    # Squared norms are summed over the row; past the square root of the range they overflow.
    if largest > math.sqrt(float(np.finfo(dtype).max)) / d:
        raise ValueError(
            f"X has a value of magnitude {largest:.1e}, whose square overflows {dtype}; "
            "scale the columns with sklearn.preprocessing.MaxAbsScaler."
        )


def _as_csr(X: Any, dtype: np.dtype[Any]) -> Rows:
    if X.shape[1] > np.iinfo(np.int32).max:
        raise ValueError(
            f"X has {X.shape[1]} columns; at most {np.iinfo(np.int32).max} can be indexed: "
            "hash the features with sklearn.feature_extraction.FeatureHasher."
        )
    # A wrapper of our own: SciPy caches flags on the object and sorts in place.
    csr = sp.csr_array((X.data, X.indices, X.indptr), shape=X.shape)
    if not csr.has_canonical_format:
        csr = csr.copy()
        csr.sum_duplicates()  # sorts as well
    csr.data = csr.data.astype(dtype, copy=False)
    # Half the bytes of int64 indices; assigned, because the constructor would widen both again.
    csr.indices = csr.indices.astype(np.int32, copy=False)
    csr.indptr = csr.indptr.astype(np.int64, copy=False)
    return csr


# Labels and weights -----------------------------------------------------------------------------


def encode_labels(
    y: npt.NDArray[Any], classes: Any = None
) -> tuple[npt.NDArray[Any], npt.NDArray[np.int32]]:
    """Sorted classes (k,) and each label's place among them, (n,) int32.

    Parameters
    ----------
    y : ndarray of shape (n,)
        Labels; anything sortable.
    classes : array-like, optional
        All classes, also those without a row in y. By default those found in y.
    """
    present, places = np.unique(y, return_inverse=True)
    if classes is None:
        return present, places.astype(np.int32)
    known = np.unique(column_or_1d(classes, input_name="classes"))
    place_of = {label: place for place, label in enumerate(known.tolist())}
    strangers = [label for label in present.tolist() if label not in place_of]
    if strangers:
        some = ", ".join(repr(label) for label in strangers[:5])
        raise ValueError(
            f"y has {len(strangers)} label(s) that are not in classes ({some}); "
            "add them to classes, or drop their rows."
        )
    places_of_present = np.array([place_of[label] for label in present.tolist()], np.int32)
    return known, places_of_present[places]


def check_sample_weight(sample_weight: Any, n: int) -> FloatArray | None:
    """Weights (n,) in float64, finite, not negative, not all zero; None where none were given."""
    refuse_shapeless("sample_weight", sample_weight)
    if sample_weight is None:
        return None
    if isinstance(sample_weight, numbers.Number):
        sample_weight = np.full(n, sample_weight)
    refuse_masked("sample_weight", sample_weight)
    with saying_what_to_type():
        weights: FloatArray = check_array(
            sample_weight, ensure_2d=False, dtype=np.float64, input_name="sample_weight"
        )
    if weights.shape != (n,):
        raise ValueError(
            f"sample_weight has shape {weights.shape}; it must have one weight per row of X, "
            f"shape ({n},)."
        )
    if weights.min() < 0:
        raise ValueError(
            f"sample_weight has a negative value ({weights.min():g}); weights must be at least 0: "
            "use 0 to leave a row out."
        )
    if not weights.any():
        raise ValueError("sample_weight is zero for every row; at least two classes need weight.")
    return weights


def class_weights(class_weight: Any, classes: npt.NDArray[Any], counts: FloatArray) -> FloatArray:
    """One factor per class, (k,) float64; ``counts`` (k,) is the sum of weights in each class.

    "balanced" counts weights, not rows, over the classes that have any, so that a weight of 3
    is the same as three copies and a weight of 0 the same as no row.
    """
    k = classes.size
    if class_weight is None:
        return np.ones(k)
    if isinstance(class_weight, str) and class_weight == "balanced":
        present = counts > 0
        factors = np.zeros(k)
        factors[present] = counts.sum() / (present.sum() * counts[present])
        return factors
    if not isinstance(class_weight, Mapping):
        needed = 'None, "balanced" or a dict of class to weight'
        raise bad_parameter("class_weight", class_weight, needed, 'class_weight="balanced"')
    place_of = {label: place for place, label in enumerate(classes.tolist())}
    strangers = [label for label in class_weight if label not in place_of]
    if strangers:
        raise ValueError(
            f"class_weight has key(s) that are no class of y ({strangers[0]!r}); the classes are "
            f"{_listed(classes)}: remove the key, or name the class in fit(..., classes=...)."
        )
    factors = np.ones(k)
    for label, weight in class_weight.items():
        name, example = f"class_weight[{label!r}]", f"class_weight={{{label!r}: 2.0}}"
        factors[place_of[label]] = check_number(name, weight, at_least=0.0, example=example)
    return factors


def _listed(classes: npt.NDArray[Any], at_most: int = 5) -> str:
    shown = ", ".join(repr(label) for label in classes[:at_most].tolist())
    return shown + (", ..." if classes.size > at_most else "")


# A training set ---------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class TrainingSet:
    """What a fit learns from, every check passed: the `RowSource` of rows in memory.

    Attributes
    ----------
    rows : ndarray or csr_array of shape (n, d)
        Rows of positive weight; the others teach nothing and are left out.
    y : ndarray of shape (n,), int32
        Place of each row's label in `classes`.
    weights : ndarray of shape (n,), float64
        sample_weight times class weight, all above 0.
    given : ndarray of shape (n,), float64, or None
        sample_weight alone; None where none were given.
    classes : ndarray of shape (k,)
        Sorted labels, also those that no row of positive weight has.
    kept : ndarray of shape (n_given,), bool, or None
        Which of the rows given are in `rows`; None if all are.
    features : dict
        `n_features_in_`, and `feature_names_in_` if X has names: set by the fit when it succeeds.
    columns : Standardization, optional
        By which `rows` are standardized; ``norms`` are the largest ones of a row and of x / scale.
    """

    rows: Rows
    y: npt.NDArray[np.int32]
    weights: FloatArray
    classes: npt.NDArray[Any]
    kept: npt.NDArray[np.bool_] | None
    features: dict[str, Any]
    given: FloatArray | None = None
    columns: Standardization | None = None
    norms: tuple[float, ...] = ()

    @property
    def n_given(self) -> int:
        """Rows that were passed, those of weight 0 included."""
        return self.y.size if self.kept is None else self.kept.size

    @property
    def dtype(self) -> np.dtype[Any]:
        """float32 or float64: the arithmetic."""
        dtype: np.dtype[Any] = self.rows.dtype
        return dtype

    @property
    def totals(self) -> FloatArray:
        """Sum of the weights of each class, (k,)."""
        return np.bincount(self.y, self.weights, minlength=self.classes.size).astype(np.float64)

    def weight_range(self) -> tuple[float, float]:
        """The smallest and the largest weight."""
        return positive_range(self.weights)

    def radius(self) -> float:
        """The largest Euclidean norm of a row."""
        return largest_norm(self.rows) if self.columns is None else self.norms[0]

    def check_range(self, costs: tuple[float, float], tau: float) -> None:
        """Refuse costs C_i and rows whose squares the arithmetic cannot hold."""
        if self.columns is None:
            check_rows_range(self.rows, costs, tau)
        else:
            longest = max(self.norms)
            check_range(costs, longest, tau, self.dtype, are_zero=longest == 0)


def check_training_set(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    sample_weight: Any,
    classes: Any,
    class_weight: Any,
    dtype: np.dtype[Any] | None,
    reset: bool = True,
    part: bool = False,
) -> TrainingSet:
    """Check X, y and weights; the estimator stays as it was, whatever happens.

    With reset=False the columns of X must be those of the fit, as in `validate_data`. With
    part=True these rows are some of many, and may be of one class.
    """
    refuse_shapeless("y", y)
    # validate_data writes what it learns about the columns: let it write on a copy.
    shadow = copy.copy(estimator)
    y = plain_labels(y)
    X, y = _validated(shadow, X, y, reset=reset)
    with saying_what_to_type(X):
        check_classification_targets(y)
    learned = ("n_features_in_", "feature_names_in_")
    features = {name: vars(shadow)[name] for name in learned if name in vars(shadow)}
    classes, places = encode_labels(y, classes)
    given = check_sample_weight(sample_weight, places.size)
    weights = np.ones(places.size) if given is None else given
    counts = np.bincount(places, weights, minlength=classes.size).astype(np.float64)
    weights = weights * class_weights(class_weight, classes, counts)[places]
    kept = None
    if not weights.all():
        kept = weights > 0
        X, places, weights = X[kept], places[kept], weights[kept]
        given = None if given is None else given[kept]
    if not part:
        rows_of = np.bincount(places, minlength=classes.size)
        refuse_one_class(classes, rows_of, "" if kept is None else " of positive weight")
    rows = as_rows(X, working_dtype(X.dtype, dtype))
    return TrainingSet(rows, places, weights, classes, kept, features, given)


def refuse_one_class(
    classes: npt.NDArray[Any], rows: npt.NDArray[Any], kind: str = " of positive weight"
) -> None:
    """An error unless at least two classes have ``rows`` (k,), of that kind."""
    present = np.flatnonzero(rows)
    if present.size >= 2:
        return
    found = f"1 class ({classes[present].tolist()[0]!r})" if present.size else "no class at all"
    raise ValueError(
        f"y has rows{kind} of {found}; a classifier needs rows{kind} of at least two classes: add "
        "rows of another class."
    )
