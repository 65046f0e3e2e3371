"""Certificates by tasks: of rows that are read chunk by chunk, or of a model in files."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dask_mcsvm.data.intake import dask_rows
from dask_mcsvm.data.lazy_source import summed_columns
from dask_mcsvm.data.validation import is_lazy
from dask_mcsvm.errors import CertificateError
from dask_mcsvm.estimators._certificate import (
    Certificate,
    bias_of,
    compare,
    own_intercept,
    refuse_no_bound,
    refuse_uneven,
    weights_of,
)
from dask_mcsvm.estimators._lazy_rows import check_lazy_rows
from dask_mcsvm.estimators._prune import column_squares
from dask_mcsvm.formulations import FORMULATIONS, Standardization
from dask_mcsvm.graphs.model_files import dense_parts, memory_block, one_chunk, primal_in_parts
from dask_mcsvm.training import HYBRID_CLASSES, Problem, parse_size
from dask_mcsvm.training.runner import Runner, find_runner


@dataclass(frozen=True)
class Weighed:
    """What of a problem the weights are to be read by."""

    formulation: str
    tau: float
    columns: Standardization | None


def lazy_certificate(estimator: Any, X: Any, y: Any, sample_weight: Any) -> Certificate:
    """The certificate of a fitted estimator; tasks look at the rows, sums come back."""
    refuse_no_bound(estimator.dual_)
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
    rows = replace(source, columns=trained.columns).rows(
        trained.C, tau=trained.tau, run=run, margins=trained.margins
    )
    primal = _primal(
        rows.graph, rows.keys, estimator.coef_, estimator.intercept_,
        Weighed(trained.formulation, trained.tau, trained.columns), runner, run,
    )  # fmt: skip
    runner.release(source.held)
    total = trained.C * float(source.totals.sum())
    return compare(trained.formulation, source.classes.size, total, primal, estimator.dual_)


def lazy_squares(estimator: Any, X: Any) -> npt.NDArray[np.float64]:
    """Sum of the squares of each feature (d,) over lazy rows."""
    return summed_columns(check_lazy_rows(estimator, X), column_squares, find_runner())


def primal_of_rows(
    problem: Problem,
    coef: Any,
    intercept: npt.NDArray[Any],
    columns: Standardization | None = None,
) -> float:
    """P(W) of rows in memory and a coef (k, d) in files, of which only parts are in memory."""
    run = uuid.uuid4().hex[:12]
    graph, blocks = memory_block(problem.rows, problem.y, problem.C, problem.margins, run)
    posed = Weighed(problem.formulation, problem.tau, columns)
    return _primal(graph, blocks, coef, intercept, posed, find_runner(), run)


def _primal(
    graph: dict[Any, Any],
    blocks: Sequence[Any],
    coef: Any,
    intercept: npt.NDArray[Any],
    posed: Weighed,
    runner: Runner,
    run: str,
) -> float:
    formulation, tau, columns = posed.formulation, posed.tau, posed.columns
    if sp.issparse(coef) and coef.shape[0] >= HYBRID_CLASSES:
        coef = dense_parts(sp.csr_array(coef))
    if is_lazy(coef):
        bias = bias_of(own_intercept(coef, intercept, columns), tau)
        if columns is not None:
            coef = coef * columns.scale
        if FORMULATIONS[formulation].columns_sum_to_zero:
            off = max(float(abs(coef.sum(axis=0)).max()), abs(float(bias.sum())))
            refuse_uneven(off, max(float(abs(coef).max()), float(np.abs(bias).max())))
    else:
        W = weights_of(coef, intercept, formulation, tau, columns)
        coef, bias = one_chunk(W[:-1].T), W[-1]
    tasks, value = primal_in_parts(
        graph, blocks, coef, bias, formulation=formulation, tau=tau, run=run
    )
    (primal,) = runner.run(tasks, [], [value])
    return float(primal)
