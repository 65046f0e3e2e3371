"""Certificates by tasks: of rows that are read chunk by chunk, or of a model in files."""

import uuid
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dask_mcsvm.data.intake import dask_rows
from dask_mcsvm.data.lazy_source import summed_columns
from dask_mcsvm.data.validation import is_lazy
from dask_mcsvm.errors import CertificateError
from dask_mcsvm.estimators._certificate import (
    Certificate,
    bias_of,
    compare,
    refuse_no_bound,
    refuse_uneven,
    weights_of,
)
from dask_mcsvm.estimators._lazy_rows import check_lazy_rows
from dask_mcsvm.estimators._prune import column_squares
from dask_mcsvm.formulations import FORMULATIONS
from dask_mcsvm.graphs.model_files import memory_block, one_chunk, primal_in_parts
from dask_mcsvm.training import Problem, parse_size
from dask_mcsvm.training.runner import Runner, find_runner


def lazy_certificate(estimator: Any, X: Any, y: Any, sample_weight: Any) -> Certificate:
    """The certificate of a fitted estimator; tasks look at the rows, sums come back."""
    refuse_no_bound(estimator.dual_)
    if estimator._trained.columns is not None:
        raise ValueError(
            "certify takes rows in memory where the fit had standardize, but X is read chunk by "
            "chunk; pass X.compute()."
        )
    check_lazy_rows(estimator, X)
    trained, runner, limit = estimator._trained, find_runner(), estimator.memory_limit
    classes = None if y is None else estimator.classes_  # a dataset has its own
    source = dask_rows(
        X, y, sample_weight, classes, runner, class_weight=trained.class_weight,
        dtype=trained.dtype, memory_limit=None if limit is None else parse_size(limit),
    )  # fmt: skip
    if not np.array_equal(source.classes, estimator.classes_):
        raise CertificateError(
            "the classes of the dataset are not those of the fit; the certificate holds for the "
            "training rows only: pass those."
        )
    trained.refuse_others(source)
    run = uuid.uuid4().hex[:12]
    rows = source.rows(trained.C, tau=trained.tau, run=run, margins=trained.margins)
    primal = _primal(
        rows.graph, rows.keys, estimator.coef_, estimator.intercept_, trained.formulation,
        trained.tau, runner, run,
    )  # fmt: skip
    runner.release(source.held)
    total = trained.C * float(source.totals.sum())
    return compare(trained.formulation, source.classes.size, total, primal, estimator.dual_)


def lazy_squares(estimator: Any, X: Any) -> npt.NDArray[np.float64]:
    """Sum of the squares of each feature (d,) over lazy rows."""
    return summed_columns(check_lazy_rows(estimator, X), column_squares, find_runner())


def primal_of_rows(problem: Problem, coef: Any, intercept: npt.NDArray[Any]) -> float:
    """P(W) of rows in memory and a coef (k, d) in files, of which only parts are in memory."""
    run = uuid.uuid4().hex[:12]
    graph, blocks = memory_block(problem.rows, problem.y, problem.C, problem.margins, run)
    return _primal(
        graph, blocks, coef, intercept, problem.formulation, problem.tau, find_runner(), run
    )


def _primal(
    graph: dict[Any, Any],
    blocks: Sequence[Any],
    coef: Any,
    intercept: npt.NDArray[Any],
    formulation: str,
    tau: float,
    runner: Runner,
    run: str,
) -> float:
    if is_lazy(coef):
        bias = bias_of(intercept, tau)
        if FORMULATIONS[formulation].columns_sum_to_zero:
            off = max(float(abs(coef.sum(axis=0)).max()), abs(float(bias.sum())))
            refuse_uneven(off, max(float(abs(coef).max()), float(np.abs(bias).max())))
    else:
        W = weights_of(coef, intercept, formulation, tau)
        coef, bias = one_chunk(W[:-1].T), W[-1]
    tasks, value = primal_in_parts(
        graph, blocks, coef, bias, formulation=formulation, tau=tau, run=run
    )
    (primal,) = runner.run(tasks, [], [value])
    return float(primal)
