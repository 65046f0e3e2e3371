"""LinearMCSVC: exact linear multi-class SVMs with the interface of scikit-learn."""

import warnings
from dataclasses import replace
from typing import Any, Self

from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags

from dask_mcsvm.data.validation import (
    TrainingSet,
    as_rows,
    check_rows,
    is_lazy,
    working_dtype,
)
from dask_mcsvm.errors import ConvergenceWarning, convergence_message
from dask_mcsvm.estimators._callbacks import CallbackSupportMixin, epochs_as_tasks
from dask_mcsvm.estimators._certain import weights_square
from dask_mcsvm.estimators._certificate import Trained, raw_weights
from dask_mcsvm.estimators._containers import taken_in
from dask_mcsvm.estimators._delayed import DelayedFit, fit_span, graph_of_epoch, runs_on_dask
from dask_mcsvm.estimators._fits import Posed, pose, standardization_of
from dask_mcsvm.estimators._model import LinearModel
from dask_mcsvm.estimators._path import PathResult, fit_path
from dask_mcsvm.estimators._probability import find_temperature
from dask_mcsvm.estimators._prune import density_of
from dask_mcsvm.estimators._settings import (
    Settings,
    plan_for,
    progress,
    read_settings,
    wants_early_shrink,
    warn_of_precision,
    what_else_to_try,
)
from dask_mcsvm.estimators._shown import Shown, printed
from dask_mcsvm.estimators._warm import KeptAlpha
from dask_mcsvm.estimators.files import ModelFile
from dask_mcsvm.formulations import moments
from dask_mcsvm.solvers.sparse_weights import split_weights
from dask_mcsvm.solvers.standardized import standardized_rows
from dask_mcsvm.training import Fit


class LinearMCSVC(
    Shown, DelayedFit, CallbackSupportMixin, LinearModel, ModelFile, ClassifierMixin, BaseEstimator
):
    """Linear multi-class support vector machine, solved exactly and certified.

    Minimizes 1/2 ||W||^2 + sum_i C_i loss_i over the weights of all classes together, where
    C_i = C * sample_weight_i * class_weight[y_i] and the loss is that of the formulation. The
    fit ends with a duality gap computed in float64: no weights whatsoever have an objective
    lower than ``primal_ - gap``.

    Parameters
    ----------
    formulation : {"crammer_singer", "weston_watkins", "lee_lin_wahba", "one_vs_rest"}
        The loss; "cs", "ww", "llw" and "ovr" for short.
    solver : {"auto", "sdm", "splitting", "shards", "rounds", "averaging", "classes", ...}
        "sdm" is the sequential dual method for rows in memory: exact steps of one example at a
        time. "splitting" is for dense rows in memory that are not normalized, up to 4096
        features: Newton steps on all rows at once. The others work on Dask: "shards" by row
        chunks, for all formulations; "rounds" (weston_watkins), "averaging" (lee_lin_wahba),
        "classes" (one_vs_rest) and "exchange" (crammer_singer) by groups of classes, for models
        larger than a worker.
        "early_shrink" (one_vs_rest) reads a dataset several times larger than memory; so does
        "shards" of a dataset with a `memory_limit`: block minimization, one machine.
    C : float
        Cost of a unit of loss, above 0. Large values fit the rows, small ones keep W small.
    tol : float
        Stop when the relative duality gap is at most this. 0 runs exactly `max_epochs`.
    max_epochs : int
        Stop after this many epochs, each n * k class scores, with a `ConvergenceWarning`.
    fit_intercept : bool
        Whether to learn an intercept: the weight of one more feature, of constant value.
    intercept_scaling : float or "radius"
        That value, tau; "radius" is the largest norm of a row. The intercept b is penalized by
        1/2 ||b / tau||^2, so a larger value frees it, see Notes.
    class_weight : dict, "balanced" or None
        Factor of C per class, 1 for classes that a dict leaves out. "balanced" is inversely
        proportional to the sum of `sample_weight` in the class.
    margins : array-like of shape (n_classes, n_classes), dict or None
        What a mistake costs, 1 by default: the margin by which a row of class y has to score its
        own class above m. A matrix with [y, m] in the order of `classes_` and a diagonal of 0; or
        ``{(true, predicted): cost}``, 1 for all other pairs; or a tree ``{child: parent}`` of
        classes and names of groups: the length of the path between two classes over that of the
        longest. For Crammer-Singer and Weston-Watkins.
    probability : bool
        Whether the model has `predict_proba`. A fifth of the rows is then left out of one more fit
        to 30 times the gap (of fewer than 25,000 rows several fifths, in turn): `temperature_`.
    standardize : bool or "scale"
        Train on columns of mean 0 and variance 1 (weighted by `sample_weight`), as if a
        StandardScaler came first, but without making sparse rows dense; "scale" leaves the means.
        `coef_` and `intercept_` are those of the rows as they come: `predict` takes these.
    dtype : {"float32", "float64"} or None
        Arithmetic of the solver. None keeps float64 rows in float64 and solves all others in
        float32, which halves memory and reaches a relative gap of about 1e-5.
    layer : str or None
        Of AnnData: where the rows are, in `fit` and `predict`, if not in X: the name of a layer, or
        a path such as "raw/X" and "obsm/X_pca".
    n_jobs : int or None
        Threads in memory: None is one, -1 all cores. With Crammer-Singer, where an epoch is work
        enough for several, each visits its own rows with a W of its own and repeats what the
        others add to theirs, as it comes: faster, and certified, but not the same bytes twice.
        Otherwise, and with a W of lists (see `coef_`), one thread visits rows and all certify,
        which is repeatable, as are None, 1, and "splitting" with any number; `explain` tells which.
        Fits on Dask run in the threads of its workers and take no notice of it.
    warm_start : bool
        Keep the dual variables, and start the next fit on the same rows from them.
    checkpoint : path or None
        On Dask: a folder, seen by all workers, that holds the state of the fit after every so
        many epochs, whole or not at all.
    resume : bool
        Go on from the checkpoint, if there is one; it must be of the same data and parameters.
    scratch : path or None
        On Dask without a checkpoint: a folder, seen by all workers, for the state of the fit.
        By default a temporary one, if all workers are on this machine. A `coef_` too large for
        `memory_limit` stays there, in a folder ``weights-...``, until you remove it.
    memory_limit : int, text such as "2GB", or None
        A dataset with "auto", "shards" (one lane) or "early_shrink" is read by this process, also
        if there is a client, and this is how many bytes it may use beyond what it holds. On Dask:
        rows stay in the workers' memory between epochs only if they take less than 0.4 of it, and
        a larger W is cut into groups of classes that never meet in one process, `coef_` included,
        or refused (Crammer-Singer, or "shards").
        Of rows in memory it is how many bytes W may take while it is trained: where an array is
        larger, sparse rows get a W of lists, and what still does not fit is an error.
    solver_options : dict or None
        Options of the solver; unknown keys are refused with a list of the known ones.
    callbacks : tuple of callable
        Each is called with a record (dict) of every epoch; returning True stops the fit, and an
        error ends it and leaves the model as it was. Those of scikit-learn (1.9 and later) are set
        by ``set_callbacks``.
    verbose : int
        Above 0: one line per epoch, through ``logging.getLogger("dask_mcsvm")``.
    random_state : int, RandomState or None
        Seed of the order in which examples are visited.

    Attributes
    ----------
    coef_ : ndarray, SciPy CSR or Dask array of shape (n_classes, n_features)
        Weights, one row per class, also for two classes; CSR after `sparsify`, and where W was
        trained as lists (sparse rows, 512 classes and more, see `explain`). A Dask array that
        reads files in `scratch` where the classes were cut into groups and all of it takes more
        than `memory_limit` (1 GiB by default).
    intercept_ : ndarray of shape (n_classes,)
        In float64, also where `coef_` is float32; zeros if ``fit_intercept=False``.
    classes_ : ndarray of shape (n_classes,)
        Labels, sorted.
    primal_, dual_, gap_ : float
        Objective, lower bound on every objective, and relative duality gap, in float64.
    n_iter_ : int
        Epochs run, rounded up, at most `max_epochs`.
    history_ : list of dict
        A record per epoch: epoch, seconds, primal, dual, gap, active, ... Where it is certified,
        ``gap`` is the certificate's; ``estimate`` is what the visits of the epoch had seen.
    stop_ : str
        Why the fit ended: "gap", "max_epochs", "callback", ...
    density_, dual_density_ : float
        Share of nonzeros in `coef_` and among the dual variables.
    temperature_ : float
        Only with ``probability=True``: the factor of the scores in the softmax of `predict_proba`.
    solver_, plan_ : str, Plan
        What ran, and how; the one that ended the fit, where the plan has two.
    mean_, scale_ : ndarray of shape (n_features,)
        Of the columns, float64; only with `standardize`.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
        Only if X had column names, all strings.

    Notes
    -----
    An intercept without any penalty is the limit of a large `intercept_scaling`. By how much the
    result still exceeds the best unpenalized objective is bounded by ||b||^2 / (2 tau^2), b being
    the unpenalized intercept: tau = 10 leaves 0.5% of ||b||^2, tau = 100 0.005%. A larger tau costs
    no epochs: the intercept follows the other weights softly. Centering the columns of a dense X
    keeps b small besides, and speeds training up. There is no setting that is exact.

    With two classes the decision function of a binary SVM with cost c comes from C = c / 2
    (Crammer-Singer, Weston-Watkins) or C = c (one-vs-rest); C = 2 c with Lee-Lin-Wahba gives
    twice that function.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from dask_mcsvm import LinearMCSVC
    >>> X, y = load_iris(return_X_y=True)
    >>> model = LinearMCSVC(random_state=0).fit(X, y)
    >>> model.coef_.shape, bool(model.gap_ <= model.tol), model.score(X, y) > 0.95
    ((3, 4), True, True)
    """

    _alpha: KeptAlpha

    def __init__(
        self,
        *,
        formulation: str = "crammer_singer",
        solver: str = "auto",
        C: float = 1.0,
        tol: float = 1e-3,
        max_epochs: int = 1000,
        fit_intercept: bool = True,
        intercept_scaling: float | str = 1.0,
        class_weight: Any = None,
        margins: Any = None,
        probability: bool = False,
        standardize: bool | str = False,
        dtype: Any = None,
        layer: str | None = None,
        n_jobs: int | None = None,
        warm_start: bool = False,
        checkpoint: Any = None,
        resume: bool = False,
        scratch: Any = None,
        memory_limit: Any = None,
        solver_options: dict[str, Any] | None = None,
        callbacks: Any = (),
        verbose: int = 0,
        random_state: Any = None,
    ) -> None:
        self.formulation = formulation
        self.solver = solver
        self.C = C
        self.tol = tol
        self.max_epochs = max_epochs
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.class_weight = class_weight
        self.margins = margins
        self.probability = probability
        self.standardize = standardize
        self.dtype = dtype
        self.layer = layer
        self.n_jobs = n_jobs
        self.warm_start = warm_start
        self.checkpoint = checkpoint
        self.resume = resume
        self.scratch = scratch
        self.memory_limit = memory_limit
        self.solver_options = solver_options
        self.callbacks = callbacks
        self.verbose = verbose
        self.random_state = random_state

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, classes: Any = None) -> Self:
        """Train on rows in memory, or chunk by chunk with Dask.

        Parameters
        ----------
        X : array-like, SciPy sparse, Dask array or frame, Zarr, AnnData, or path, (n, n_features)
            NumPy, pandas or any SciPy sparse format (CSR is not converted). Never changed, and
            not copied if it is C-contiguous or canonical CSR of the arithmetic's dtype. Dask
            arrays, dense or of CSR chunks, are trained on by the current client's workers, or by
            threads without one. A path is that of a dataset written by this package or of a file of
            AnnData (.zarr, .h5ad), which is read chunk by chunk. An xarray.DataArray is as lazy as
            what it holds.
        y : array-like or Dask array of shape (n_samples,), or str
            Labels: integers or strings. A dataset has its own. Of AnnData also the path of a
            column, such as "obs/cell_type".
        sample_weight : array-like of shape (n_samples,) or str, optional
            Factors of C, at least 0. A weight of 2 is two copies of the row, 0 is none.
        classes : array-like of shape (n_classes,), optional
            All classes, if y may lack some; by default those in y. Each has a row in `coef_`.

        Returns
        -------
        LinearMCSVC
            Itself. If an error is raised, it is as it was before.

        Warns
        -----
        ConvergenceWarning
            If `max_epochs` ended the fit above `tol`.
        PrecisionWarning
            If `tol` is below what float32 can reach.
        """
        given = X, y
        X, y, sample_weight = taken_in(self, X, y, sample_weight, fits=True)
        settings = read_settings(self, lazy=is_lazy(X))
        span = fit_span(self, runs_on_dask(X, settings))
        with span, epochs_as_tasks(self, *given, settings) as settings:
            last = getattr(self, "_alpha", None) if settings.warm_start else None
            self._learn(pose(self, X, y, sample_weight, classes, settings, last), settings)
            return self

    def path(
        self, X: Any, y: Any, Cs: Any, validation: Any = None, sample_weight: Any = None
    ) -> PathResult:
        """Fit a model per value of C, each started from the one before.

        Out of core ("early_shrink", or a dataset with `memory_limit`), and by "splitting" on Dask,
        each fit starts afresh.

        Parameters
        ----------
        X, y, sample_weight
            As in `fit`.
        Cs : sequence of float
            Values of C; solved in ascending order, which keeps every start feasible as it is.
        validation : (X_val, y_val), float or None
            Rows to score the models on, or the share of the rows given to hold back for that,
            at random but for one row of each class. The models learn from the others only.

        Returns
        -------
        PathResult
            A model per C, their scores, and the best of them. This estimator stays as it was.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dask_mcsvm import LinearMCSVC
        >>> X, y = load_iris(return_X_y=True)
        >>> found = LinearMCSVC(random_state=0).path(X, y, [0.01, 0.1, 1.0], validation=0.3)
        >>> found.Cs, found.best_.score(X, y) > 0.9
        ((0.01, 0.1, 1.0), True)
        """
        X, y, sample_weight = taken_in(self, X, y, sample_weight, fits=True)
        return fit_path(self, X, y, Cs, validation, sample_weight)

    def epoch_graph(self, X: Any, y: Any = None, epoch: int = 0) -> Any:
        """The graph of one epoch of a fit on Dask, to look at; nothing is trained.

        Rows and state are nodes of it which only have a name. All rows are read once, as in
        `explain`.

        Parameters
        ----------
        X, y
            As in `fit`: rows that Dask reads.
        epoch : int
            Which one: each has an order of its own.

        Returns
        -------
        dask.delayed.Delayed
            For ``dask.visualize``, or ``dict(model.epoch_graph(X, y).__dask_graph__())``.

        Examples
        --------
        >>> import dask.array as da
        >>> from sklearn.datasets import load_iris
        >>> from dask_mcsvm import LinearMCSVC
        >>> X, y = (da.from_array(part, chunks=50) for part in load_iris(return_X_y=True))
        >>> model = LinearMCSVC(formulation="ww", solver="rounds", random_state=0)
        >>> graph = model.epoch_graph(X.rechunk((50, -1)), y, epoch=3).__dask_graph__()
        >>> ("ww-round-e3-r0", "fit") in graph
        True
        """
        X, y, _ = taken_in(self, X, y, fits=True)
        return graph_of_epoch(self, X, y, epoch)

    def explain(self, X: Any, y: Any = None) -> str:
        """Print, and return, how a fit on X and y would run; nothing is trained.

        All rows are read once, as a fit begins by doing: the plan depends on their number, their
        nonzeros and their scale. Those of Dask are read by its workers.

        Parameters
        ----------
        X, y
            As in `fit`. Without y the classes are those of the last fit.

        Returns
        -------
        str
            A cell of a notebook that ends with this call does not show it a second time.
        """
        X, y, _ = taken_in(self, X, y, fits=True)
        lazy = is_lazy(X)
        settings = read_settings(self, lazy=lazy)
        if y is not None or lazy:
            plan = pose(self, X, y, None, None, settings).plan
        elif wants_early_shrink(X, settings) or not hasattr(self, "classes_"):
            raise ValueError("explain needs y to count the classes; type explain(X, y).")
        else:
            rows = check_rows(self, X)
            dtype = working_dtype(rows.dtype, settings.dtype)
            if settings.standardize:
                rows = as_rows(rows, dtype)
                columns = standardization_of(moments(rows), dtype, settings)
                rows = standardized_rows(rows, columns)
            plan = plan_for(rows, settings.C, self.classes_.size, dtype, settings)
        return printed(plan)

    def _warn_unless_converged(self, fit: Fit, plan: Any, settings: Settings) -> None:
        if fit.stop == "max_epochs" and not fit.converged and settings.tol > 0:
            name, more = type(self).__name__, what_else_to_try(plan, fit.solver or plan.solver)
            message = convergence_message(
                name, settings.max_epochs, fit.gap, settings.tol,
                standardizes=bool(settings.standardize), **more,
            )  # fmt: skip
            warnings.warn(message, ConvergenceWarning, stacklevel=4)

    def _learn(self, posed: Posed, settings: Settings) -> KeptAlpha | None:
        """Everything of `fit` that follows the checks; returns what the next one may start from."""
        source, plan, formulation = posed.source, posed.plan, settings.formulation
        warn_of_precision(settings, source.dtype)
        with progress(settings.verbose, settings.callbacks) as on_epoch:
            fit = posed.train(
                tol=settings.tol, max_epochs=settings.max_epochs, seed=settings.seed,
                on_epoch=on_epoch,
            )  # fmt: skip
        self._warn_unless_converged(fit, plan, settings)
        trained = Trained(
            formulation=formulation, C=settings.C, tau=posed.tau, class_weight=self.class_weight,
            dtype=source.dtype, n_given=source.n_given, totals=settings.C * source.totals,
            margins=posed.margins,
            columns=posed.columns,
        )  # fmt: skip
        temperature = find_temperature(self, posed, fit, settings) if settings.probability else None
        self._remember(source.classes, source.features, plan, fit, trained, temperature)
        if fit.alpha is None or not isinstance(source, TrainingSet):
            return None
        kept = KeptAlpha(
            fit.alpha, source.y, source.kept, source.classes, formulation, self.solver_
        )
        if settings.warm_start:
            self._alpha = kept
        return kept

    def _remember(
        self,
        classes: Any,
        features: dict[str, Any],
        plan: Any,
        fit: Fit,
        trained: Trained,
        temperature: float | None,
    ) -> None:
        """Set the fitted attributes, all at the end: a fit that fails has changed none."""
        stale_names = (
            "feature_names_in_", "temperature_", "mean_", "scale_", "_alpha", "notes_", "_versions",
        )  # fmt: skip
        for stale in stale_names:
            self.__dict__.pop(stale, None)
        self.__dict__.update(features)
        self.classes_ = classes
        W, bias = split_weights(fit.W)
        W, offset = raw_weights(W, trained.columns)
        self.coef_ = W.T  # a view: the solver's layout is also the best for predict
        self.intercept_ = trained.tau * bias + offset
        if trained.columns is not None:
            self.mean_, self.scale_ = trained.columns.mean, trained.columns.scale
        self.primal_, self.dual_, self.gap_ = fit.primal, fit.dual, fit.gap
        self.n_iter_, self.history_, self.stop_ = fit.n_iter, fit.history, fit.stop
        self.density_ = density_of(self.coef_)
        self.dual_density_ = fit.dual_density
        self.plan_, self.solver_ = plan, fit.solver or plan.solver
        if temperature is not None:
            self.temperature_ = temperature
        square = weights_square(self.coef_, self.intercept_, trained.tau, trained.columns)
        self._trained = replace(trained, square=square)
