"""An estimator's parameters, checked and spelled out, and the problem they pose."""

import logging
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dask_mcsvm.data.row_source import row_scale
from dask_mcsvm.data.validation import (
    check_callbacks,
    check_choice,
    check_dtype,
    check_flag,
    check_integer,
    check_n_jobs,
    check_number,
    check_standardize,
    check_verbose,
    draw_seed,
    is_dataset,
)
from dask_mcsvm.errors import FLOAT32_TOL, PrecisionWarning, bad_parameter, precision_message
from dask_mcsvm.estimators._margins import refuse_margins
from dask_mcsvm.formulations import FORMULATIONS, formulation_name
from dask_mcsvm.progress import Record, line_of, listening
from dask_mcsvm.solvers.standardized import CentredCsr, DenseStandardized
from dask_mcsvm.training import (
    SPLITTING_FEATURES,
    PassPlan,
    Plan,
    make_plan,
    parse_size,
)
from dask_mcsvm.training.table import EARLY_SHRINK, IN_MEMORY, ON_DASK, SOLVERS, places_of

logger = logging.getLogger("dask_mcsvm")


@dataclass(frozen=True)
class Settings:
    """Parameters of one fit. `tau` is None where the constant feature is the largest row norm.

    `carry` is a folder through which the fits of a path on Dask hand on their alpha.
    """

    formulation: str
    solver: str
    C: float
    tol: float
    max_epochs: int
    tau: float | None
    dtype: np.dtype[Any] | None
    n_jobs: int
    warm_start: bool
    options: dict[str, Any]
    checkpoint: str | None
    resume: bool
    scratch: str | None
    memory_limit: int | None
    callbacks: tuple[Callable[[dict[str, Any]], object], ...]
    verbose: int
    seed: int
    #: As given: they are read when the classes are known.
    margins: Any = None
    carry: str | None = None
    probability: bool = False
    standardize: bool | str = False
    #: Whether constant columns have been told of, by the fit that this one is a part of.
    told: bool = False
    #: What is set in `dask.config` and was not given, by the names of arguments and options.
    configured: Mapping[str, Any] = field(default_factory=dict)
    #: The last C of a path, so that one that is too large is refused before the first fit.
    last_C: float | None = None

    def cost_range(self, weights: tuple[float, float]) -> tuple[float, float]:
        """The smallest and the largest C_i of all fits to come, given those of the weights."""
        least, most = weights
        return self.C * least, (self.last_C or self.C) * most


def read_settings(estimator: Any, *, lazy: bool = False) -> Settings:
    """Check every parameter that can be checked without looking at the data.

    `lazy` says that the rows are read chunk by chunk; each kind of rows has its own solvers.
    What is not given may be set in `dask.config`.
    """
    settings = _given_settings(estimator, lazy)
    if not lazy and settings.solver != EARLY_SHRINK:
        return settings
    from dask_mcsvm.training.defaults import configured  # imports Dask

    given = {"scratch": settings.scratch, "memory_limit": settings.memory_limit}
    given |= settings.options
    used = {name: value for name, value in configured().items() if given.get(name) is None}
    return replace(
        settings, scratch=settings.scratch or used.get("scratch"),
        memory_limit=settings.memory_limit or used.get("memory_limit"), configured=used,
    )  # fmt: skip


def _given_settings(estimator: Any, lazy: bool) -> Settings:
    """What the estimator's parameters say."""
    solver = check_choice("solver", estimator.solver, ("auto", *SOLVERS))
    _check_kind(estimator, solver, lazy)
    formulation = formulation_name(estimator.formulation)
    refuse_margins(estimator.margins, formulation)
    return Settings(
        formulation=formulation,
        solver=solver,
        C=check_number("C", estimator.C, above=0.0, example="C=1.0"),
        tol=check_number("tol", estimator.tol, at_least=0.0, example="tol=1e-3"),
        max_epochs=check_integer(
            "max_epochs", estimator.max_epochs, at_least=1, example="max_epochs=1000"
        ),
        tau=_read_tau(estimator.fit_intercept, estimator.intercept_scaling),
        dtype=check_dtype(estimator.dtype),
        n_jobs=check_n_jobs(estimator.n_jobs),
        warm_start=check_flag("warm_start", estimator.warm_start),
        options=_read_options(estimator.solver_options),
        checkpoint=read_path("checkpoint", estimator.checkpoint),
        resume=check_flag("resume", estimator.resume),
        scratch=read_path("scratch", estimator.scratch),
        memory_limit=_read_bytes(estimator.memory_limit),
        callbacks=check_callbacks(estimator.callbacks),
        verbose=check_verbose(estimator.verbose),
        seed=draw_seed(estimator.random_state),
        margins=estimator.margins,
        probability=check_flag("probability", estimator.probability),
        standardize=check_standardize(estimator.standardize),
    )


def wants_early_shrink(X: Any, settings: Settings) -> bool:
    """Asked for, or what "auto" takes for a dataset that has to be read within a limit."""
    if settings.solver == EARLY_SHRINK:
        return True
    is_able = FORMULATIONS[settings.formulation].classes_are_independent
    # It does not centre sparse rows; the other way of reading a dataset does.
    is_able = is_able and settings.standardize is not True
    return settings.solver == "auto" and is_able and _is_limited(X, settings)


def wants_blocks(X: Any, settings: Settings) -> bool:
    """Whether `shards` reads a dataset within a limit, one block after another, in this process.

    No client is looked for: the same call must train the same model with and without one.
    """
    by_blocks = settings.solver in ("auto", "shards") and settings.options.get("lanes", 1) == 1
    return by_blocks and _is_limited(X, settings)


def _is_limited(X: Any, settings: Settings) -> bool:
    return is_dataset(X) and settings.memory_limit is not None


def _check_kind(estimator: Any, solver: str, lazy: bool) -> None:
    places = places_of(solver)
    if lazy and places == (IN_MEMORY,):
        raise ValueError(
            f"solver={solver!r} works on rows in memory, but X is read chunk by chunk; use "
            "solver='auto', or pass X.compute()."
        )
    if not lazy and ON_DASK in places and IN_MEMORY not in places:
        raise ValueError(
            f"solver={solver!r} works on Dask arrays and datasets, but X is in memory; use "
            "solver='auto', or pass dask.array.from_array(X, chunks=(10_000, -1))."
        )
    check_kept(estimator, ("checkpoint", "scratch"), lazy or solver == EARLY_SHRINK)
    if (lazy or solver == EARLY_SHRINK) and estimator.warm_start:
        raise ValueError(
            "warm_start keeps alpha in memory, which a fit chunk by chunk does not; use "
            'checkpoint="folder" and resume=True.'
        )


def check_kept(estimator: Any, names: tuple[str, ...], is_kept: bool) -> None:
    """Refuse parameters of a fit that keeps its state in files, unless this one does."""
    kept = [name for name in names if getattr(estimator, name) is not None]
    if not is_kept and (kept or estimator.resume):
        name = kept[0] if kept else "resume"
        raise ValueError(
            f"{name} is for fits on Dask arrays and datasets, but X is in memory; leave it out, or "
            "pass dask.array.from_array(X, chunks=(10_000, -1))."
        )
    if estimator.resume and estimator.checkpoint is None:
        raise ValueError('resume=True needs checkpoint="folder", the one to go on from.')


def _read_options(value: object) -> dict[str, Any]:
    if value is None or isinstance(value, Mapping):
        return dict(value or {})
    needed = "a dict of option to value, or None"
    raise bad_parameter("solver_options", value, needed, 'solver_options={"schedule": "uniform"}')


def read_path(name: str, value: object) -> str | None:
    if value is None or isinstance(value, str | os.PathLike):
        return None if value is None else os.fspath(value)
    raise bad_parameter(name, value, "a path or None", f'{name}="folder"')


def _read_bytes(value: object) -> int | None:
    if value is None:
        return None
    try:
        size = parse_size(value)
    except (TypeError, ValueError):
        size = 0
    if size <= 0 or isinstance(value, bool):
        needed = "a number of bytes above 0 or a text"
        raise bad_parameter("memory_limit", value, needed, 'memory_limit="2GB"')
    return size


def _read_tau(fit_intercept: object, scaling: object) -> float | None:
    by_radius = isinstance(scaling, str) and scaling == "radius"
    if isinstance(scaling, str) and not by_radius:
        needed = 'a finite number above 0 or "radius"'
        raise bad_parameter("intercept_scaling", scaling, needed, "intercept_scaling=1.0")
    tau = None
    if not by_radius:
        example = "intercept_scaling=1.0"
        tau = check_number("intercept_scaling", scaling, above=0.0, example=example)
    return tau if check_flag("fit_intercept", fit_intercept) else 0.0


def plan_for(X: Any, C: Any, n_classes: int, dtype: np.dtype[Any], settings: Settings) -> Plan:
    """How a fit on X (n, d), dense or CSR, would run; C (n,) or one for all rows."""
    n, d = X.shape
    is_sparse = not isinstance(X, np.ndarray | DenseStandardized)
    wants_scale = settings.solver == "auto" and not is_sparse
    return make_plan(
        n=n,
        d=d,
        k=n_classes,
        nnz=int(X.nnz) if is_sparse else n * d,
        is_sparse=is_sparse,
        dtype=dtype,
        formulation=settings.formulation,
        solver=settings.solver,
        n_jobs=settings.n_jobs,
        options=settings.options,
        scale=row_scale(X, float(np.mean(C))) if wants_scale else None,
        is_centred=isinstance(X, CentredCsr),
        memory_limit=settings.memory_limit,
        has_intercept=settings.tau != 0,
    )


def what_else_to_try(plan: Any, solver: str) -> dict[str, Any]:
    """For the warning of a fit that `solver` could not end: what has not been tried yet."""
    if isinstance(plan, PassPlan):
        return {"more_memory": plan.memory_limit is not None}
    # A plan with a second solver takes it where the first is slow: it only needs the epochs.
    untried = solver != "splitting" and plan.then is None and plan.d <= SPLITTING_FEATURES
    return {"instead": "splitting"} if untried else {}


def warn_of_precision(settings: Settings, dtype: np.dtype[Any]) -> None:
    """Say before a long fit that float32 will not get there."""
    if dtype == np.float32 and 0 < settings.tol < FLOAT32_TOL:
        warnings.warn(precision_message(settings.tol), PrecisionWarning, stacklevel=4)


@contextmanager
def progress(
    verbose: int, callbacks: Sequence[Callable[[Record], object]]
) -> Iterator[Callable[[Record], bool]]:
    """Yields the `on_epoch` of one fit: it logs, calls back, and says whether to stop.

    A callback that has a `close` method is closed when the fit ends, however it ends; one that has
    a `note` method hears of epochs that take long, one that has `announce` of kernels that are
    compiled. A callback that raises ends the fit with its error.
    """

    def on_epoch(record: Record) -> bool:
        if verbose:
            logger.info("%s", line_of(record))
        # Each gets its own copy (the record stays in history_), and each is called, also after
        # another has asked to stop. Only True stops: many functions return something by habit.
        answers = [callback(dict(record)) for callback in callbacks]
        return any(isinstance(a, bool | np.bool_) and bool(a) for a in answers)

    def announce() -> None:
        logger.info(COMPILING)
        for tell in _methods(callbacks, "announce"):
            tell(COMPILING)

    from dask_mcsvm.solvers.compiling import on_compile  # imports Numba

    audible = _audible_logger() if verbose else nullcontext()
    with audible, listening(_methods(callbacks, "note")), on_compile(announce):
        try:
            yield on_epoch
        finally:
            for callback in callbacks:
                close = getattr(callback, "close", None)
                if callable(close):
                    close()


#: Before the first epoch of the first fit of its kind.
COMPILING = "compiling kernels for this processor, once; they are kept"


def _methods(callbacks: Sequence[Any], name: str) -> list[Callable[[str], object]]:
    return [getattr(c, name) for c in callbacks if callable(getattr(c, name, None))]


@contextmanager
def _audible_logger() -> Iterator[None]:
    """Make INFO reach the terminal of a user who has not configured logging, for this fit only."""
    handler = None if logger.hasHandlers() else logging.StreamHandler()
    level = logger.level
    if handler is not None:
        handler.setFormatter(logging.Formatter("%(message)s"))
        logger.addHandler(handler)
    if level == logging.NOTSET:  # a level that was chosen stays
        logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(level)
        if handler is not None:
            logger.removeHandler(handler)
