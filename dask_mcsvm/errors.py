"""Exceptions and warnings with their messages: what was found, what is needed, what to type."""

from sklearn.exceptions import ConvergenceWarning

__all__ = [
    "CertificateError",
    "CheckpointError",
    "ClusterLostError",
    "ConvergenceWarning",
    "DatasetFormatError",
    "FitInterrupted",
    "ModelFormatError",
    "PrecisionWarning",
    "WorkersKilledError",
    "advised",
    "bad_parameter",
    "convergence_message",
    "precision_message",
]


class CertificateError(ValueError):
    """The rows given to `certify` cannot be those of the fit, so there is no certificate."""


class DatasetFormatError(ValueError):
    """A folder is not a whole dataset that this release can read."""


class ModelFormatError(ValueError):
    """A folder is not a whole model that this release can read."""


class CheckpointError(ValueError):
    """A checkpoint is damaged, of another version, or held by another fit."""


class ClusterLostError(RuntimeError):
    """The scheduler or all workers went away in the middle of a fit."""


class WorkersKilledError(RuntimeError):
    """A task was running on one worker after another when they died."""


class FitInterrupted(KeyboardInterrupt):
    """Ctrl-C in the middle of a fit that goes on from a checkpoint."""


class PrecisionWarning(UserWarning):
    """A tolerance was asked for that the arithmetic of the fit cannot reach."""


# Scores of float32 rows carry errors of a few 1e-7; a relative gap far below that is chance.
FLOAT32_TOL = 1e-5


def bad_parameter(name: str, value: object, needed: str, example: str) -> ValueError:
    """The error for a parameter outside its range, in one sentence.

    Examples
    --------
    >>> raise bad_parameter("C", -1, "a finite number above 0", "C=1.0")
    Traceback (most recent call last):
    ValueError: C is -1; it must be a finite number above 0, for example C=1.0.
    """
    return ValueError(f"{name} is {value!r}; it must be {needed}, for example {example}.")


def short(value: float) -> str:
    """Two digits in scientific notation, without an empty one: 3.1e-02, 1e-03."""
    return f"{value:.1e}".replace(".0e", "e")


def convergence_message(
    estimator: str,
    max_epochs: int,
    gap: float,
    tol: float,
    *,
    instead: str | None = None,
    more_memory: bool = False,
    standardizes: bool = True,
) -> str:
    """What a fit says that ran out of epochs.

    ``instead`` is a solver to try; ``more_memory`` says that a limit of memory holds it up,
    ``standardizes`` that the fit has done so already, or cannot.

    Examples
    --------
    >>> convergence_message("LinearMCSVC", 50, 0.0309, 1e-3)  # doctest: +ELLIPSIS
    'LinearMCSVC stopped after max_epochs=50 with relative gap 3.1e-02 > tol=1e-03; raise ...'
    """
    raised = "max_epochs, tol or memory_limit" if more_memory else "max_epochs or tol"
    tried = "" if instead is None else f"try solver={instead!r}, "
    how = "" if standardizes else " (standardize='scale')"
    return (
        f"{estimator} stopped after max_epochs={max_epochs} with relative gap {short(gap)} > "
        f"tol={short(tol)}; raise {raised}, {tried}or scale the rows of X to unit norm "
        f"or its features to unit variance{how}."
    )


def precision_message(tol: float) -> str:
    """What a float32 fit says when asked for a gap that only float64 can reach."""
    return (
        f"tol={short(tol)} is below what float32 can reach (a relative gap of about "
        f'{short(FLOAT32_TOL)}); type dtype="float64", or raise tol.'
    )


# scikit-learn's validators find the fault; their words stay (its checks and users' tests match
# them), the rest of their often long text gives way to what to type. First match wins.
_ADVICE = (
    ("X contains NaN", "fill the gaps with sklearn.impute.SimpleImputer, or drop those rows"),
    ("X contains infinity", "drop those rows with X[numpy.isfinite(X).all(axis=1)], or clip them"),
    ("y contains NaN", "every row needs a label: drop the others with X[keep], y[keep]"),
    ("y contains infinity", "labels must be finite: drop those rows with X[keep], y[keep]"),
    ("Input contains NaN", "every row needs a label: drop the others with X[keep], y[keep]"),
    ("sample_weight contains", "weights must be finite and at least 0: use 0 to leave a row out"),
    (
        "Expected 2D",
        "Reshape your data with X.reshape(-1, 1) if it has one feature, "
        "or X.reshape(1, -1) if it is one row",
    ),
    ("while dim <= 2 is required", "make each sample one row with X.reshape(len(X), -1)"),
    ("sample(s) (shape=", "pass X of shape (n_samples, n_features) and as many labels"),
    ("feature(s) (shape=", "pass X of shape (n_samples, n_features) with at least one column"),
    ("inconsistent numbers of samples", "pass one label per row, len(y) == X.shape[0]"),
    ("Complex data not supported", "pass numpy.hstack([Z.real, Z.imag]) in place of the complex Z"),
    ("requires y to be passed", "type fit(X, y)"),
    ("y should be a 1d array", "for several labels per row use sklearn.multiclass."
     "OneVsRestClassifier(LinearMCSVC())"),
    ("Unknown label type: continuous", "classes must be integers or strings: for real-valued "
     "targets use sklearn.svm.LinearSVR"),
    ("Unknown label type", "classes must be integers or strings: type y.astype(str)"),
    ("not supported between instances", "labels must be of one kind: type y.astype(str)"),
    ("Expected unique column names", "give each a name of its own with X.columns = [...], or drop "
     "the later ones with X.loc[:, ~X.columns.duplicated()]"),
    ("features as input", "pass the columns that fit saw, in the same order"),
    ("could not convert string to float", "X must be numeric: encode text columns with "
     "sklearn.preprocessing.OneHotEncoder"),
    ("arrays of bytes/strings", "type X.astype(float), or encode text columns with "
     "sklearn.preprocessing.OneHotEncoder"),
    ("argument must be", "X must be numeric: type X.astype(float) to find the cell"),
)  # fmt: skip


def advised(error: Exception) -> Exception:
    """scikit-learn's error with what to type in place of its longer text.

    Returns
    -------
    ValueError or TypeError
        Of the type of `error`; `error` itself where there is nothing to add.
    """
    message = str(error)
    # The line that names the fault, without the printed array or the essay that follows.
    found = message.split("\n")[0].split(".Convert")[0].split(". Maybe")[0].rstrip(".: ")
    found = found.removesuffix(", got")
    for words, advice in _ADVICE:
        if words in message:
            kind = TypeError if isinstance(error, TypeError) else ValueError
            return kind(f"{found}; {advice}.")
    return error
