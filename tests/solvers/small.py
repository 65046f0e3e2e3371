"""Small problems, feasible dual variables and fits in one line for the tests of this folder.

A combination of loss, rows, alpha and float type is one more kernel to compile, so the tests keep
to a few: all four losses in float64 on dense rows with dense alpha and on CSR rows with sparse
alpha, and the other two pairings in float32 once each.
"""

from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from dask_mcsvm.formulations import FORMULATIONS
from dask_mcsvm.solvers.duals import Duals
from dask_mcsvm.solvers.kernels.dual_variables import compact_alpha, empty_alpha
from dask_mcsvm.solvers.sdm.initial_duals import store_row
from dask_mcsvm.solvers.sdm.run import SequentialDual
from dask_mcsvm.solvers.sdm.table import Table
from dask_mcsvm.training import Problem, make_plan, train

NAMES = tuple(FORMULATIONS)
SCHEDULES = ("uniform", "shrink", "adaptive")
#: name of the formulation, CSR rows?, sparse alpha?, dtype
IN_FLOAT64 = [(name, sparse, sparse, "float64") for sparse in (False, True) for name in NAMES]
IN_FLOAT32 = [
    ("crammer_singer", True, False, "float32"),
    ("lee_lin_wahba", False, True, "float32"),
]
GRID = 1024  # feasible alphas are multiples of C / GRID: exact in float32 where C is a power of two


def combination_name(value):
    """How pytest shows a combination."""
    if isinstance(value, tuple):
        name, csr, sparse, dtype = value
        kind = f"{'csr' if csr else 'dense'}-rows-{'sparse' if sparse else 'dense'}-alpha"
        return f"{name}-{kind}-{dtype}"
    return None


# -- problems --------------------------------------------------------------------------------------


def clusters(
    name,
    *,
    n=60,
    d=12,
    k=5,
    csr=False,
    dtype="float64",
    tau=1.0,
    zero_rows=0,
    weighted=True,
    seed=0,
):
    """Overlapping clusters whose optimum has variables at both bounds and between."""
    rng = np.random.default_rng(seed)
    y = (np.arange(n) % k).astype(np.int32)
    X = rng.normal(size=(k, d))[y] + rng.normal(size=(n, d))
    X *= rng.random((n, d)) < 0.7
    X[:, 0] += X[:, 0] == 0  # no row is empty ...
    X[:zero_rows] = 0.0  # ... but these
    X = X.astype(dtype)
    C = np.full(n, 0.0625) * (rng.choice([0.5, 1.0, 2.0], n) if weighted else 1.0)
    return Problem(sp.csr_array(X) if csr else X, y, C, k, name, tau)


def with_constant(problem):
    """The rows as the formulations see them: float64, the constant feature a last column."""
    X = problem.rows.toarray() if sp.issparse(problem.rows) else problem.rows
    column = np.full((X.shape[0], 1), problem.tau)
    return np.hstack([np.asarray(X, np.float64), column])


def specification(problem):
    """The formulation of a problem, in plain NumPy."""
    return FORMULATIONS[problem.formulation](problem.n_classes, problem.C)


def make_run(problem, **options):
    """The state of a run on a problem."""
    return SequentialDual(
        problem.rows, problem.y, problem.C, n_classes=problem.n_classes,
        formulation=problem.formulation, tau=problem.tau, seed=options.pop("seed", 0), **options,
    )  # fmt: skip


def make_hard_run(problem, **options):
    """The same with an intercept that every visit moves like any other weight."""
    run = make_run(problem, **options)
    run.soft = None
    return lay_again(run, run.data, run.alphas[0])


def lay_again(run, data, alpha):
    """The same run of other rows or variables, laid out as a fit does: no other kernel compiles."""
    table = Table.lay(data, alpha, run.preference, run.seen, run.averages[0])
    run.visit_data, run.preference, run.seen = table.data, table.preference, table.seen
    run.alphas = [table.alpha]
    return run


def fit(problem, *, schedule=None, tol=1e-9, max_epochs=20_000, seed=0, n_jobs=1, **options):
    """Train; `options` go to `train`, but for "stop" and "cooling", which go to the plan."""
    solver_options = {"schedule": schedule}
    solver_options |= {key: options.pop(key) for key in ("stop", "cooling") if key in options}
    (n, d), is_sparse = problem.rows.shape, sp.issparse(problem.rows)
    plan = make_plan(
        n=n, d=d, k=problem.n_classes, nnz=problem.rows.nnz if is_sparse else n * d,
        is_sparse=is_sparse, dtype=problem.rows.dtype, formulation=problem.formulation,
        solver="sdm", n_jobs=n_jobs, options=solver_options,
    )  # fmt: skip
    return train(problem, plan, tol=tol, max_epochs=max_epochs, seed=seed, n_jobs=n_jobs, **options)


def scaled_C(problem, factor):
    return replace(problem, C=problem.C * factor)


# -- dual variables --------------------------------------------------------------------------------


def random_alpha(name, y, C, k, rng):
    """A feasible alpha (n, k), many of its variables at a bound."""
    n = y.size
    own = np.arange(k) == y[:, None]
    if name == "crammer_singer":
        alpha = np.zeros((n, k))
        for i in range(n):
            share = rng.choice([0, GRID, rng.integers(GRID)])
            cuts = np.sort(rng.integers(share + 1, size=k - 2))
            alpha[i, ~own[i]] = -C[i] * np.diff([0, *cuts, share]) / GRID
            alpha[i, y[i]] = C[i] * share / GRID
        return alpha
    parts = np.clip(rng.integers(-GRID, 2 * GRID, size=(n, k)), 0, GRID)
    alpha = C[:, None] * parts / GRID
    return alpha if name == "one_vs_rest" else np.where(own, 0.0, alpha)


def as_duals(name, alpha, y, C, *, sparse=False, dtype="float64"):
    """alpha (n, k) as solvers store it."""
    n, k = alpha.shape
    stored = alpha
    if name == "lee_lin_wahba":
        stored = C[:, None] - alpha
        stored[np.arange(n), y] = 0.0
    stored = stored.astype(dtype)
    return Duals(name, k, C, sparse_alpha(stored) if sparse else stored)


def sparse_alpha(dense):
    """The nonzeros of an (n, k) array as lists in pools."""
    n, k = dense.shape
    alpha = compact_alpha(empty_alpha(n, k, dense.dtype, sparse=True), 2 * n * k + 2 * k)
    for i, row in enumerate(dense):
        classes = np.flatnonzero(row).astype(np.int32)
        store_row(alpha, i, classes, row[classes])
    return alpha


def nonzeros(alpha):
    """Where the values in use are in the pool of a sparse alpha."""
    pieces = [
        np.arange(start, start + size) for start, size in zip(alpha.start, alpha.size, strict=True)
    ]
    return np.concatenate(pieces)
