"""The plan: how a problem of a given shape will be solved, decided before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dask_mcsvm.data.row_source import RowScale
from dask_mcsvm.formulations import FORMULATIONS

from .table import EARLY_SHRINK, IN_MEMORY, solver_at

#: A d x d float64 matrix is 128 MiB then, and its inverse takes seconds.
SPLITTING_FEATURES = 4096
#: When `auto` begins with the splitting solver: its matrices take no longer than so many epochs of
#: sdm, which would otherwise be tried first; and a part common to all rows is so long in units of
#: 1/C, and so large a share of the rows' squares. Steps of one row at a time undo each other along
#: that part. Measured as CPU seconds of sdm over those of splitting
#: (Crammer-Singer, C = 1, gap 1e-3): digits, letter, satimage and covtype as they come 1.5 to 21 or
#: more, made clusters with such a part 1.8 to 15. At a share of 0.36 to 0.48 it is 0.2 to 2, also
#: with the same shape and scale: what then decides is whether the classes overlap, which nothing
#: tells in advance. Standardized rows and rows of unit length are for sdm (0.04 to 2). There sdm
#: begins, and splitting goes on from its dual variables if it turns out to be slow (see `local`).
#: A pass of splitting must not take longer than so many epochs either: where it does, twenty epochs
#: cost next to nothing beside it.
TRIAL, COMMON_LENGTH, COMMON_SHARE, DEAR_PASS = 20.0, 30.0, 0.5, 4.0
#: Of the splitting solver: rows per feature of a Gram matrix, and how much less a multiply-add of
#: such a matrix or of its inverse costs than one of an epoch.
GRAM_ROWS, MATRIX_RATE = 4, 8
#: W is hybrid from so many classes on ...
HYBRID_CLASSES = 512
#: ... where its weights, so many times the nonzeros of the rows (5 to 8 of 900 to 10,000 classes),
#: fill no more than this share of an array.
WEIGHTS_PER_NONZERO, HYBRID_DENSITY = 7, 1 / 8
#: Of an array larger than this less is known, and it has more to lose: with hundreds of rows a
#: class there may be half a weight for a nonzero, and features that do fill become dense rows.
LARGE_ARRAY = 2**30
#: Threads visit rows where an epoch makes so many multiply-adds, a twentieth of a second: with
#: less they meet too often. No more than so many, since each repeats all others' moves, which
#: is a third of what one thread does alone; and their weights, each has a W, take no more than so
#: many bytes, but those of two may.
THREAD_WORK, MOST_THREADS, THREAD_BYTES = 2e8, 8, 2**32
#: What a visit of sdm costs, each nonzero of its row, and each of these for every class; a score in
#: a pass of splitting, each value of a dense or a sparse row for every class, and an entry of a
#: matrix. Nanoseconds, of which only ratios are used: an epoch visits few classes of a row where
#: there are many, a pass all of them (docs/decisions/splitting-or-sdm.md).
VISIT, NONZERO, PRODUCT = 300.0, 2.0, 0.03
SCORE, DENSE_VALUE, SPARSE_VALUE, ENTRY = 30.0, 0.2, 5.0, 0.3


def matrix_epochs(n: int, d: int, k: int, nnz: int) -> float:
    """Epochs of sdm that take as long as the splitting solver's matrices.

    They are one per class, which take no more room than the rows, or one for all classes.
    """
    d1 = d + 1
    count = 1 if k * d1 > n else k
    gram = min(n, count * GRAM_ROWS * d1) * d1**2 / 2
    return (gram + count * d1**3) / (MATRIX_RATE * (nnz + n) * k)


def pass_epochs(n: int, d: int, k: int, nnz: int) -> float:
    """Epochs of sdm that take as long as a pass of the splitting solver."""
    each = nnz / n
    value = DENSE_VALUE if nnz == n * d else SPARSE_VALUE
    visit = VISIT + each * (NONZERO + PRODUCT * k)
    return k * (SCORE + value * each + ENTRY * d**2 / n) / visit


def splitting_pays(n: int, d: int, k: int, scale: RowScale | None) -> str | None:
    """Why rows of this shape and scale are for the splitting solver; None where they are not."""
    if scale is None or d > SPLITTING_FEATURES or matrix_epochs(n, d, k, n * d) > TRIAL:
        return None
    if pass_epochs(n, d, k, n * d) > DEAR_PASS:
        return None
    share = scale.common / scale.square
    if scale.common < COMMON_LENGTH or share < COMMON_SHARE:
        return None
    return f"dense rows that are not centred (their mean makes up {share:.0%} of their squares)"


def refuses_hybrid(is_sparse: bool, is_centred: bool, formulation: str) -> str | None:
    """What a hybrid W is not for; None where it can be."""
    if not is_sparse:
        return "dense rows"
    if is_centred:
        return "standardize=True (standardize='scale' leaves zeros zero)"
    if FORMULATIONS[formulation].columns_sum_to_zero:
        return f"{formulation}, whose classes share a part of W"
    return None


def visiting_threads(
    n_jobs: int, *, work: int, model_bytes: int, formulation: str, memory_limit: int | None
) -> int:
    """How many threads visit rows that are not centred, with a dense W.

    Each of them repeats what the others' visits add to W. That pays where a visit looks at many
    classes and moves few: debfiles, 450,000 rows, 58 classes take 0.73 of one thread's time with
    Crammer-Singer, and 0.9 to 1.0 with the others, which move more.
    """
    if work < THREAD_WORK or not FORMULATIONS[formulation].loss_is_maximum:
        return 1
    most = (memory_limit or max(THREAD_BYTES, 2 * model_bytes)) // model_bytes
    return max(1, min(n_jobs, most, MOST_THREADS))


def choose_weights(
    asked: str | None,
    *,
    k: int,
    d: int,
    nnz: int,
    dense_bytes: int,
    refused: str | None,
    memory_limit: int | None,
    is_full: bool,
) -> tuple[str, str]:
    """The layout of W, and why; ``is_full`` says that most weights will not be zero."""
    is_large = memory_limit is not None and dense_bytes > memory_limit
    size = f"{dense_bytes / 2**20:,.1f} MiB"
    if asked == "hybrid" and refused:
        raise ValueError(
            f"solver_options['weights'] is 'hybrid', which is not for {refused}; leave it out."
        )
    if is_large and (refused or asked == "dense"):
        why = f", and lists are not for {refused}" if refused else ""
        raise ValueError(
            f"W takes {size}, more than memory_limit={memory_limit}{why}; raise memory_limit, or "
            "pass dask.array.from_array(X, chunks=(10_000, -1))."
        )
    if asked:
        return asked, "asked for"
    if is_large:
        return "hybrid", f"as an array {size}, more than memory_limit"
    if refused is None and k >= HYBRID_CLASSES and not is_full:
        density = min(1.0, WEIGHTS_PER_NONZERO * nnz / (d * k))
        if density <= HYBRID_DENSITY or dense_bytes > LARGE_ARRAY:
            return "hybrid", f"{size} as an array"
    return "dense", size


@dataclass(frozen=True)
class Plan:
    """What a fit will do: a pure function of shape, nonzeros, n_jobs and parameters."""

    solver: str
    reason: str
    formulation: str
    schedule: str
    cooling: bool
    stop: str
    n: int
    d: int
    k: int
    nnz: int
    dtype: str
    n_jobs: int
    #: So many of the n_jobs threads visit rows; all certify.
    threads: int = 1
    #: The solver that goes on where the first one turns out to be slow.
    then: str | None = None
    #: The layout of W, why, and how many bytes it may take.
    weights: str = "dense"
    weights_reason: str = ""
    memory_limit: int | None = None

    @property
    def model_bytes(self) -> int:
        return (self.d + 1) * self.k * np.dtype(self.dtype).itemsize

    def __repr__(self) -> str:
        then = f"; {self.then} goes on if that is slow" if self.then else ""
        rows = "dense rows" if self.nnz == self.n * self.d else f"{self.nnz:,} nonzeros"
        each = f", {self.threads} of them" if self.threads > 1 else ""
        memory = f"W {self.model_bytes / 2**20:,.1f} MiB{each}, beyond X"
        if self.weights == "hybrid":
            memory = f"W of lists and dense rows ({self.weights_reason}), beyond X"
        one = ""
        if self.solver == "sdm" and self.threads < self.n_jobs:
            few = "one thread visits" if self.threads == 1 else f"{self.threads} threads visit"
            one = f" ({few} rows, all certify)"
        return "\n".join(
            [
                f"solver       {self.solver}: {self.reason}{then}",
                f"formulation  {self.formulation}",
                f"data         {self.n:,} x {self.d:,}, {rows}, {self.k:,} classes, {self.dtype}",
                f"schedule     {self.schedule}, stops by {self.stop}, n_jobs={self.n_jobs}{one}",
                f"memory       {memory}",
                f"one epoch    {(self.nnz + self.n) * self.k / 1e6:,.0f} million multiply-adds",
            ]
        )


def refuse_many_features(d: int, *, instead: str) -> None:
    """An error where the splitting solver's matrices would take too much room."""
    if d > SPLITTING_FEATURES:
        raise ValueError(
            f"solver='splitting' keeps d x d matrices and takes up to {SPLITTING_FEATURES:,} "
            f"features, but X has {d:,}; use solver={instead!r}."
        )


def make_plan(
    *,
    n: int,
    d: int,
    k: int,
    nnz: int,
    is_sparse: bool,
    dtype: np.dtype[Any],
    formulation: str,
    solver: str,
    n_jobs: int,
    options: Mapping[str, Any] | None,
    scale: RowScale | None = None,
    is_centred: bool = False,
    memory_limit: int | None = None,
    has_intercept: bool = True,
) -> Plan:
    """Decide how to solve a problem of this shape; ``scale`` of dense rows lets `auto` choose."""
    asked, row = solver, solver_at("sdm" if solver == "auto" else solver, IN_MEMORY)
    settings = row.chosen(options, asked)
    if solver == "splitting":
        refuse_many_features(d, instead="sdm")
    kind = "sparse" if is_sparse else "dense"
    chosen, reason, then = solver, f"asked for by solver={solver!r}", None
    if solver == "auto":
        # Options are those of sdm: who gives one wants it.
        is_free = settings == row.chosen(None)
        why = splitting_pays(n, d, k, scale) if is_free else None
        chosen, reason = ("splitting", why) if why else ("sdm", f"{kind} rows in memory")
        if is_free and not why and d <= SPLITTING_FEATURES:
            then = "splitting"
    by_newton = chosen == "splitting"
    # Without an intercept each row of one-vs-rest pushes down nearly all classes by itself.
    form = FORMULATIONS[formulation]
    refused = refuses_hybrid(is_sparse, is_centred, formulation)
    if by_newton:
        refused = "solver='splitting'"
    dense_bytes = (d + 1) * k * np.dtype(dtype).itemsize
    weights, why_weights = choose_weights(
        settings.get("weights"), k=k, d=d, nnz=nnz, dense_bytes=dense_bytes, refused=refused,
        memory_limit=memory_limit, is_full=not has_intercept and form.classes_are_independent,
    )  # fmt: skip
    threads = 1
    # Of centred sparse rows what a visit adds to all scores is for one thread to know.
    if weights == "dense" and not (by_newton or (is_centred and is_sparse)):
        threads = visiting_threads(
            n_jobs, work=(nnz + n) * k, model_bytes=dense_bytes, formulation=formulation,
            memory_limit=memory_limit,
        )  # fmt: skip
    return Plan(
        solver=chosen,
        reason=reason,
        formulation=formulation,
        schedule="newton" if by_newton else settings["schedule"] or "adaptive",
        cooling=not by_newton and settings["cooling"],
        stop="gap" if by_newton else settings["stop"],
        n=n,
        d=d,
        k=k,
        nnz=nnz,
        dtype=np.dtype(dtype).name,
        n_jobs=n_jobs,
        threads=threads,
        then=then if weights == "dense" else None,  # the other solver makes an array
        weights=weights,
        weights_reason=why_weights,
        memory_limit=memory_limit,
    )


def begun_by_second(plan: Plan) -> Plan:
    """The same fit, if it starts from one that the plan's second solver had to end."""
    assert plan.then is not None
    return replace(
        plan,
        solver=plan.then,
        reason="it ended the fit that this one starts from",
        schedule="newton",
        cooling=False,
        then=None,
    )


@dataclass(frozen=True)
class PassPlan:
    """What a fit out of core will do: early shrinking, or shards in one process."""

    reason: str
    n: int
    d: int
    k: int
    nnz: int
    dtype: str
    n_jobs: int
    chunks: int
    memory_limit: int | None
    solver: str = EARLY_SHRINK
    formulation: str = "one_vs_rest"

    def __repr__(self) -> str:
        passes = "one pass over all rows, then over those still free"
        if self.solver != EARLY_SHRINK:
            passes = "blocks of chunks that fit in memory together, one after another"
        limit = "no limit" if self.memory_limit is None else f"{self.memory_limit / 2**20:,.0f} MiB"
        return "\n".join(
            [
                f"solver       {self.solver}: {self.reason}",
                f"formulation  {self.formulation}",
                f"data         {self.n:,} x {self.d:,}, {self.nnz:,} nonzeros, {self.k:,} classes, "
                f"{self.dtype}, {self.chunks:,} chunks",
                f"schedule     {passes}; n_jobs={self.n_jobs}",
                f"memory       {limit} beyond what the process holds",
            ]
        )


def parse_size(value: Any) -> int:
    """Bytes from a number or a text such as "2GB"."""
    from dask.utils import parse_bytes

    return int(parse_bytes(value))
