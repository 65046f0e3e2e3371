"""LaRankSVC: online multi-class SVMs with or without a kernel, in the way of scikit-learn."""

import warnings
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags

from dask_mcsvm.data.validation import TrainingSet, check_sample_weight, check_training_set, is_lazy
from dask_mcsvm.errors import ConvergenceWarning, convergence_message
from dask_mcsvm.estimators._callbacks import CallbackSupportMixin, epochs_as_tasks
from dask_mcsvm.estimators._containers import taken_in
from dask_mcsvm.estimators._delayed import DelayedFit, fit_span
from dask_mcsvm.estimators._larank_bench import Kept, bench_of, one_at_a_time
from dask_mcsvm.estimators._larank_model import LaRankModel, exposed
from dask_mcsvm.estimators._larank_settings import (
    WITH_GAMMA,
    Settings,
    check_classes,
    costs_of,
    parameters_of,
    read_settings,
    resolve_gamma,
    variance_of,
)
from dask_mcsvm.estimators._settings import progress
from dask_mcsvm.estimators._shown import Shown
from dask_mcsvm.solvers.larank import TAU, LaRank
from dask_mcsvm.training import Fit
from dask_mcsvm.training.runs.larank import order_of, train_larank

NAN = float("nan")


class LaRankSVC(
    Shown, DelayedFit, CallbackSupportMixin, LaRankModel, ClassifierMixin, BaseEstimator
):
    """Multi-class SVM of Crammer and Singer that learns online, with a kernel or without.

    LaRank looks at examples one by one, and between two of them improves the coefficients of
    those it has kept, as long as that pays. One pass is nearly as good as the optimum; with
    ``stop="gap"`` it goes on until the duality gap proves the optimum. There is no intercept: a
    linear kernel that needs one wants a constant column in X.

    Parameters
    ----------
    kernel : {"linear", "rbf", "poly", "sigmoid", "precomputed"} or callable
        A function takes rows (a, d) and (b, d) and returns (a, b). "precomputed": X is the matrix
        of kernel values. "linear" keeps weights instead of kernel values.
    C : float
        Cost of a unit of loss, above 0.
    gamma : float, "scale" or "auto"
        Of "rbf", "poly" and "sigmoid", as in scikit-learn: "scale" is 1 / (n_features * X.var()),
        rows counted by `sample_weight`, "auto" 1 / n_features. `partial_fit` fixes it in its first
        call.
    degree : int
        Of "poly".
    coef0 : float
        Of "poly" and "sigmoid".
    max_epochs : int or None
        Passes over the rows. None is 1, or 1000 with ``stop="gap"``.
    shuffle : bool
        Visit rows in random order. In `partial_fit` the rows of one call.
    stop : {"epochs", "gap"}
        After `max_epochs`, or when the duality gap is small.
    tol : float or None
        Relative duality gap to stop at; None stops when primal - dual is at most C.
    cache_size : float
        Megabytes of kernel values kept. What does not fit is computed again: the model is the same.
    schedule : {"cost", "time", "fixed"}
        What chooses the next operation: the rise of the dual per number touched (a kernel value
        counts 64, whatever the kernel), per second (as in the paper; not repeatable), or turns.
    max_support : int or None
        Support patterns kept at most; the one that the dual needs least gives way (`dual_lost_`).
    checkpoint : path or None
        On Dask: a folder, seen by all workers, that holds the model after every tenth epoch, whole
        or not at all.
    resume : bool
        Go on from the checkpoint, if there is one; it must be of the same data and parameters.
    class_weight : dict, "balanced" or None
        Factor of C per class; "balanced" is not for `partial_fit`, which does not see all rows.
    margins : array-like of shape (n_classes, n_classes), dict or None
        What a mistake costs, as in `LinearMCSVC`. `partial_fit` fixes it in its first call.
    dtype : {"float32", "float64"} or None
        Of rows, weights and cached kernel values. None keeps float64, all else is float32.
    layer : str or None
        Of AnnData: where the rows are, if not in X, as in `LinearMCSVC`.
    callbacks : tuple of callable
        Each is called with a record (dict) of every epoch; returning True stops the fit, and an
        error ends it and leaves the model as it was. Those of scikit-learn (1.9 and later) are set
        by ``set_callbacks``.
    verbose : int
        Above 0: one line per epoch, through ``logging.getLogger("dask_mcsvm")``.
    random_state : int, RandomState or None
        Seed of the order of the rows and of the choice of operations.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    support_ : ndarray of shape (n_support,)
        Numbers of the support patterns among the rows of the fit, or of the stream.
    support_vectors_ : ndarray or csr_array of shape (n_support, n_features)
    dual_coef_ : csr_array of shape (n_classes, n_support)
        Coefficients; those of a pattern sum to zero.
    coef_ : ndarray of shape (n_classes, n_features)
        Weights of a linear kernel.
    n_support_ : int
    gamma_ : float
        The number that `gamma` came to.
    dual_ : float
        The dual objective.
    primal_, gap_ : float
        Objective and relative duality gap; nan unless ``stop="gap"``.
    n_iter_, history_, stop_ : int, list of dict, str
        Epochs, a record of each, and why the fit ended: "epochs", "gap", "max_epochs", "callback".
    kernel_evaluations_, cache_hits_, cache_misses_, n_arg_max_, n_steps_ : int
        Kernel values computed; kernel rows of patterns found in the cache and computed again;
        searches over all classes; successful steps.
    dual_lost_ : float
        What `max_support` cost the dual.
    n_features_in_ : int

    References
    ----------
    Bordes, Bottou, Gallinari, Weston (2007), Solving multiclass support vector machines with
    LaRank, Algorithms 1 to 5.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from dask_mcsvm import LaRankSVC
    >>> X, y = load_iris(return_X_y=True)
    >>> model = LaRankSVC(random_state=0).fit(X, y)
    >>> model.score(X, y) > 0.9, model.dual_coef_.shape == (3, model.n_support_)
    (True, True)
    >>> stream = LaRankSVC(kernel="linear", C=0.1, random_state=0)
    >>> for rows in (slice(0, 50), slice(50, 100), slice(100, 150)):
    ...     _ = stream.partial_fit(X[rows], y[rows], classes=[0, 1, 2])
    >>> stream.coef_.shape
    (3, 4)
    """

    def __init__(
        self,
        *,
        kernel: Any = "rbf",
        C: float = 1.0,
        gamma: float | str = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        max_epochs: int | None = None,
        shuffle: bool = True,
        stop: str = "epochs",
        tol: float | None = None,
        cache_size: float = 500.0,
        schedule: str = "cost",
        max_support: int | None = None,
        checkpoint: Any = None,
        resume: bool = False,
        class_weight: Any = None,
        margins: Any = None,
        dtype: Any = None,
        layer: str | None = None,
        callbacks: Any = (),
        verbose: int = 0,
        random_state: Any = None,
    ) -> None:
        self.kernel = kernel
        self.C = C
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.max_epochs = max_epochs
        self.shuffle = shuffle
        self.stop = stop
        self.tol = tol
        self.cache_size = cache_size
        self.schedule = schedule
        self.max_support = max_support
        self.checkpoint = checkpoint
        self.resume = resume
        self.class_weight = class_weight
        self.margins = margins
        self.dtype = dtype
        self.layer = layer
        self.callbacks = callbacks
        self.verbose = verbose
        self.random_state = random_state

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.pairwise = self.kernel == "precomputed"
        return tags

    @one_at_a_time
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, classes: Any = None) -> Self:
        """Train from nothing.

        Parameters
        ----------
        X : array-like, SciPy sparse, Dask array, AnnData or path, of shape (n_samples, n_features)
            The path is that of a dataset that this package wrote, or of a file of AnnData. Chunks
            of a Dask array, a dataset or a file are visited one at a time, in random order,
            wherever they are: the model travels, not the rows.
        y : array-like or Dask array of shape (n_samples,)
            Labels; a dataset has its own. Of AnnData also a column, such as "obs/cell_type".
        sample_weight : array-like or Dask array of shape (n_samples,), optional
            Factors of C, at least 0.
        classes : array-like of shape (n_classes,), optional
            All classes, if y may lack some.

        Returns
        -------
        LaRankSVC
            Itself. If an error is raised, or Ctrl-C pressed, it is as it was before; until then
            other threads predict and save what it was before.

        Raises
        ------
        RuntimeError
            If another call of `fit` or `partial_fit` is training it.

        Warns
        -----
        ConvergenceWarning
            If ``stop="gap"`` and `max_epochs` ended the fit above `tol`.
        """
        given = X, y
        X, y, sample_weight = taken_in(self, X, y, sample_weight, fits=True)
        settings = read_settings(self, lazy=is_lazy(X))
        span = fit_span(self, is_lazy(X))
        with span, epochs_as_tasks(self, *given, settings) as settings:
            if is_lazy(X):
                from dask_mcsvm.estimators._larank_lazy import fit_chunks  # imports Dask

                run, fit, learned, gamma = fit_chunks(self, settings, X, y, sample_weight, classes)
                numbers = None
            else:
                data = self._check(X, y, sample_weight, classes, settings.dtype)
                rows = _square(data) if settings.kernel == "precomputed" else data.rows
                run, gamma = _start(settings, rows, data, sample_weight)
                examples = run.examples(rows, data.y, costs_of(settings.C, data.weights))
                aim, shuffle = settings.aim(float(examples.C.sum())), settings.shuffle
                with progress(settings.verbose, settings.callbacks) as on_epoch:
                    fit = train_larank(
                        run, examples, aim, shuffle=shuffle, max_epochs=settings.max_epochs,
                        on_epoch=on_epoch,
                    )  # fmt: skip
                numbers = None if data.kept is None else np.flatnonzero(data.kept)
                learned = {"classes_": data.classes, **data.features}
            self._warn_unless_converged(settings, fit)
            stop = "epochs" if fit.stop == "max_epochs" and not settings.by_gap else fit.stop
            fitted = (fit.primal, fit.dual, fit.gap, fit.n_iter, stop, fit.history)
            self._remember(run, fitted, learned, gamma, numbers)
            return self

    @one_at_a_time
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Learn from the next rows of a stream, each visited once.

        With ``shuffle=False`` and a number for `gamma`, chunk after chunk gives what `fit` gives
        on all rows at once.

        Parameters
        ----------
        X : array-like or SciPy sparse of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        classes : array-like of shape (n_classes,)
            All classes that will ever come; needed in the first call.
        sample_weight : array-like of shape (n_samples,), optional

        Returns
        -------
        LaRankSVC
            Itself. If an error is raised, or Ctrl-C pressed, it is as it was before; until then
            other threads predict and save what it was before.

        Raises
        ------
        RuntimeError
            If another call of `fit` or `partial_fit` is training it.
        """
        X, y, sample_weight = taken_in(self, X, y, sample_weight, fits=True)
        settings = read_settings(self)
        self._check_stream(settings, classes)
        first = not hasattr(self, "_run")
        known = classes if first else self.classes_
        dtype = settings.dtype if first else self._run.dtype
        data = self._check(X, y, sample_weight, known, dtype, reset=first, part=True)
        if first:
            run, gamma = _start(settings, data.rows, data, sample_weight)
        else:
            run, gamma = bench_of(self).take(self._run), self.gamma_
            run.max_support, run.schedule = settings.max_support, settings.schedule
        run.tau = TAU
        examples = run.examples(data.rows, data.y, costs_of(settings.C, data.weights))
        run.process(examples, order_of(data.y.size, settings.shuffle, run.seed, examples.base))
        fitted: tuple[Any, ...] = (NAN, run.dual, NAN, 1, "epochs", [])
        learned = {"classes_": data.classes, **data.features}
        kept = self._remember(run, fitted, learned, gamma, None)
        bench_of(self).last = kept, run
        return self

    def _check_stream(self, settings: Settings, classes: Any) -> None:
        if settings.kernel == "precomputed":
            raise ValueError(
                'kernel is "precomputed"; partial_fit needs rows, whose kernel values to later '
                'rows can be computed: pass a function, for example kernel="rbf".'
            )
        if isinstance(self.class_weight, str):
            raise ValueError(
                f"class_weight is {self.class_weight!r}; partial_fit does not see all rows: type "
                "class_weight={label: weight, ...}, or pass sample_weight."
            )
        if not hasattr(self, "_run"):
            if classes is None:
                raise ValueError(
                    "the first call of partial_fit needs all classes that will ever come; type "
                    "partial_fit(X, y, classes=numpy.unique(all_labels))."
                )
            return
        if classes is not None and not np.array_equal(check_classes(classes), self.classes_):
            raise ValueError(
                f"classes are not the {self.classes_.size} of the first call; they are fixed by "
                "it: leave classes out, or start afresh with sklearn.base.clone."
            )
        if self._run.kernel.name != settings.kernel:
            raise ValueError(
                f"kernel is now {settings.kernel!r}; this model was begun with "
                f"{self._run.kernel.name!r}: start afresh with sklearn.base.clone."
            )

    def _check(
        self, X: Any, y: Any, weight: Any, classes: Any, dtype: Any, **how: bool
    ) -> TrainingSet:
        return check_training_set(
            self,
            X,
            y,
            sample_weight=weight,
            classes=None if classes is None else check_classes(classes),
            class_weight=self.class_weight,
            dtype=dtype,
            **how,
        )

    def _warn_unless_converged(self, settings: Settings, fit: Fit) -> None:
        if not settings.by_gap or fit.stop != "max_epochs" or fit.converged or settings.tol == 0:
            return
        tol = settings.C / fit.primal if settings.tol is None else settings.tol
        message = convergence_message(type(self).__name__, settings.max_epochs, fit.gap, tol)
        warnings.warn(message, ConvergenceWarning, stacklevel=4)  # whoever called `fit`

    def _remember(
        self,
        run: LaRank,
        fitted: tuple[Any, ...],
        learned: dict[str, Any],
        gamma: float,
        numbers: npt.NDArray[np.int64] | None,
    ) -> Kept:
        """Set the fitted attributes, all at the end and all together: whoever looks, and whenever
        an interrupt comes, they belong to one model."""
        kept, bench_of(self).last = Kept.of(run), None
        stale = ("feature_names_in_", "coef_")
        others = {name: value for name, value in vars(self).items() if name not in stale}
        names = ("primal_", "dual_", "gap_", "n_iter_", "stop_", "history_")
        found = {"gamma_": gamma, **dict(zip(names, fitted, strict=True))}
        self.__dict__ = others | learned | found | exposed(run, kept, numbers)
        return kept


def _start(
    settings: Settings, rows: Any, data: TrainingSet, sample_weight: Any
) -> tuple[LaRank, float]:
    """A run for rows like these, and the number that gamma comes to."""
    if not data.y.size and settings.gamma == "scale" and settings.kernel in WITH_GAMMA:
        raise ValueError(
            'class_weight is zero for every row, and gamma="scale" is computed from rows of '
            "positive weight; begin with rows of another class, or type a number for gamma."
        )
    weights = check_sample_weight(sample_weight, data.n_given)
    if weights is not None and data.kept is not None:
        weights = weights[data.kept]
    gamma = resolve_gamma(settings, rows.shape[1], lambda: variance_of(rows, weights))
    shape = {"classes": data.classes, "d": rows.shape[1], "is_sparse": sp.issparse(rows)}
    return LaRank(**parameters_of(settings, gamma, dtype=rows.dtype, **shape)), gamma


def _square(data: TrainingSet) -> Any:
    """Kernel values between the rows of positive weight."""
    n_given = data.n_given
    if data.rows.shape[1] != n_given:
        raise ValueError(
            f"X has shape {(n_given, data.rows.shape[1])}; a precomputed kernel must be square, "
            "one row and column per training row: pass K = kernel(X, X)."
        )
    rows = data.rows if data.kept is None else data.rows[:, data.kept]
    return np.ascontiguousarray(rows.toarray() if sp.issparse(rows) else rows)
