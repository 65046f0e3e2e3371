"""Newton's system of the splitting solver: curvature of the active rows, and a preconditioner.

    H = I + penalty Σ_i C_i x_i x_i^T ⊗ J_i                                   [SPLIT-H]

J_i is the projection that the prox of row i leaves (see ``prox.project_free``), zero for all rows
but those with a variable between its bounds. A product with H therefore costs the active rows times
their two or three free classes, not n·k scores. Directions are (k, d + 1) float64, classes apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numba import types

from dask_mcsvm.solvers.kernels.jit import apart, by_type, kernel
from dask_mcsvm.solvers.kernels.rows import as_rows, read_only, row_axpy, row_dot
from dask_mcsvm.solvers.kernels.standard_rows import StandardRows, kind_of, standardize
from dask_mcsvm.solvers.standardized import shift_of

from .products import centred_columns, uncentred_columns
from .prox import free_classes, free_weight, project_free

#: Rows of a Gram matrix, per feature. More are left out evenly: four rows for each feature bound
#: the eigenvalues of the preconditioned system well enough for a handful of CG steps.
ROWS_PER_FEATURE = 4
GATHERED_ROWS = 1024
#: Curved rows that a thread works on together.
CURVED_BLOCK = 4096
#: A multiply-add of a factorization or Gram matrix costs this much less than one of a kernel.
BLAS_RATE = 8
CG_STEPS = 50
#: Added to a diagonal of ones before it is factorized, in units of its precision.
RIDGE = 16


class CurvedRows(NamedTuple):
    """Rows and their multipliers, of which some curve."""

    X: Any  # (m, d) dense or CSR
    y: np.ndarray  # (m,)
    C: np.ndarray  # (m,) float64, times the row's part of the penalty
    b: np.ndarray  # (m, k)
    active: np.ndarray  # places of the rows that curve, or of some of them
    tau: float


@kernel
def find_active(loss, b, y, active, free):
    """Write the places of the rows that curve; returns how many; free (k,) += those by class."""
    classes = apart(loss.k, np.int32)
    count = 0
    for i in range(y.size):
        q = free_classes(loss, b[i], y[i], classes)
        if q > 0:
            active[count] = i
            count += 1
        for c in range(q):
            free[classes[c]] += 1
    return count


def curvature(loss: Any, rows: CurvedRows, P: np.ndarray, each: Callable[..., Any] = map) -> Any:
    """Σ C_i x_i ⊗ J_i (P x_i) over the active rows, (k, d + 1); ``each`` may be that of threads.

    In the rows' own type, kept in float64: a direction has digits to spare.
    """
    total, shift = np.zeros(P.shape), shift_of(rows.X)
    plain = rows
    if shift is not None:
        P, plain = uncentred_columns(P, shift, rows.tau), rows._replace(X=rows.X.X, tau=1.0)
    part = partial(_curve_some, loss, plain, P.astype(rows.X.dtype))
    for out in each(part, range(0, rows.active.size, CURVED_BLOCK)):
        total += out
    return total if shift is None else centred_columns(total, shift, rows.tau)


def _curve_some(loss: Any, rows: CurvedRows, P: np.ndarray, first: int) -> np.ndarray:
    out, here = np.zeros_like(P), rows.active[first : first + CURVED_BLOCK]
    curve(
        loss, as_rows(rows.X), rows.tau, here, read_only(rows.y), read_only(rows.C), rows.b, P, out
    )  # fmt: skip
    return out


@kernel
def curve(loss, rows, tau, active, y, C, b, P, out):
    """out (k, d + 1) += Σ over active rows of C_i x_i ⊗ J_i (P x_i); sums in the type of out."""
    classes, t = apart(loss.k, np.int32), apart(loss.k, np.float64)
    number = out.dtype.type
    for i in active:
        q = free_classes(loss, b[i], y[i], classes)
        for c in range(q):
            t[c] = row_dot(rows, i, P[classes[c]], number(tau))
        project_free(loss, t, q)
        for c in range(q):
            row_axpy(rows, i, out[classes[c]], number(tau), number(C[i] * t[c]))


@kernel
def free_rows(loss, active, y, C, b, start, members, weights):
    """Active rows by class: those in which class m is free, and their share of m's block of H.

    start (k + 1,) bounds each class's part of members and weights.
    """
    classes, place = apart(loss.k, np.int32), np.zeros(loss.k + 1, np.int64)
    for i in active:
        for c in range(free_classes(loss, b[i], y[i], classes)):
            place[classes[c] + 1] += 1
    start[0] = 0  # one by one: start[:] = place compiles a text for arrays of unlike length
    for m in range(loss.k):
        place[m + 1] += place[m]
        start[m + 1] = place[m + 1]
    for i in active:
        q = free_classes(loss, b[i], y[i], classes)
        for c in range(q):
            members[place[classes[c]]] = i
            weights[place[classes[c]]] = C[i] * free_weight(loss, q)
            place[classes[c]] += 1


@kernel
def mean_weights(loss, active, y, C, b, weights):
    """Each active row's share of the mean of the classes' blocks."""
    classes = apart(loss.k, np.int32)
    for place in range(active.size):
        i = active[place]
        q = free_classes(loss, b[i], y[i], classes)
        weights[place] = C[i] * free_weight(loss, q) * q / loss.k


def row_axpy_squares(rows, i, w, tau, scale):
    """w_j += scale·x_ij² for all features, the constant one too."""


@by_type(row_axpy_squares)
def _row_axpy_squares(rows, i, w, tau, scale):
    if kind_of(rows) is StandardRows:
        return lambda rows, i, w, tau, scale: row_axpy_squares(
            rows.row, standardize(rows, i), w, tau, scale
        )
    if isinstance(rows, types.Array):

        def dense(rows, i, w, tau, scale):
            for j in range(rows.shape[1]):
                w[j] += scale * rows[i, j] * rows[i, j]
            w[w.size - 1] += scale * tau * tau

        return dense

    def csr(rows, i, w, tau, scale):
        data, indices, indptr = rows
        for p in range(indptr[i], indptr[i + 1]):
            w[indices[p]] += scale * data[p] * data[p]
        w[w.size - 1] += scale * tau * tau

    return csr


def squares_of_columns(X, tau, members, weights, out):
    """out (d + 1,) = Σ weight_i x_ij² of all members, of rows of any kind."""
    shift = shift_of(X)
    if shift is None:
        column_squares(as_rows(X), tau, members, weights, out)
        return
    column_squares(as_rows(X.X), 1.0, members, weights, out)
    each = np.zeros(X.shape[0])
    np.add.at(each, members, weights)
    out[:-1] += shift * (shift * out[-1] - 2.0 * (X.X.T @ each))
    out[-1] *= tau * tau
    np.maximum(out, 0.0, out=out)


@kernel
def column_squares(rows, tau, members, weights, out):
    """out (d + 1,) = Σ weight_i x_ij² of all members."""
    out[:] = 0.0
    for place in range(members.size):
        row_axpy_squares(rows, members[place], out, tau, weights[place])


def dense_rows(X, here, tau):
    """Some rows with their constant feature, (rows, d + 1) in their type."""
    out = np.empty((here.size, X.shape[1] + 1), X.dtype)
    out[:, :-1] = as_array(X[here])
    out[:, -1] = tau
    return out


def as_array(X):
    """A few rows of any kind, dense."""
    if sp.issparse(X):
        return X.toarray()
    return X if isinstance(X, np.ndarray) else X.block()


def with_diagonal(gram, exact):
    """A Gram matrix of a choice of rows with the diagonal of all rows, in place.

    A column that is zero in every row of the choice would otherwise look flat, and CG would have
    to find each such column by itself.
    """
    np.maximum(diagonal_of(gram), exact, out=diagonal_of(gram), casting="same_kind")
    return gram


def diagonal_of(gram):
    """The diagonal of a square matrix, as a view to write to."""
    return np.einsum("ii->i", gram)


def sampled_gram(X, tau, members, weights):
    """Σ weight_i x_i x_i^T (d + 1, d + 1) in the rows' type, from an even choice of the members.

    The diagonal is that of all members.
    """
    d1 = X.shape[1] + 1
    stride = max(1, -(-members.size // (ROWS_PER_FEATURE * d1)))
    chosen, shares = members[::stride], np.sqrt(stride * weights[::stride]).astype(X.dtype)
    gram = np.zeros((d1, d1), X.dtype)
    for first in range(0, chosen.size, GATHERED_ROWS):
        here = slice(first, first + GATHERED_ROWS)
        part = dense_rows(X, chosen[here], tau)
        part *= shares[here, None]
        gram += part.T @ part
    if stride == 1:
        return gram
    exact = np.empty(d1)
    squares_of_columns(X, tau, members, weights, exact)
    return with_diagonal(gram, exact)


class Preconditioner:
    """Inverses of the diagonal blocks of H: one per class, or that of their mean for all classes.

    Each as a lower triangular F with F^T F the inverse, in the rows' type. That is symmetric and
    positive however it is rounded, as CG needs it; and a product with F takes a fraction of the
    time of a triangular solve.
    """

    def __init__(self, factors: np.ndarray, *, centred: bool) -> None:
        self.factors, self.centred = factors, centred

    @classmethod
    def of_grams(
        cls, grams: Iterable[np.ndarray], penalty: float, *, centred: bool
    ) -> Preconditioner:
        """From Σ C_i x_i x_i^T of each block's rows, which are overwritten."""
        return cls(np.stack([_inverse_factor(gram, penalty) for gram in grams]), centred=centred)

    def solve(self, R: np.ndarray) -> np.ndarray:
        """About H^-1 R, as a symmetric positive operator on R (k, d + 1)."""
        R = R.astype(self.factors.dtype)
        if len(self.factors) == 1:
            out = (R @ self.factors[0].T) @ self.factors[0]
        else:
            out = np.stack([_apply(F, r) for F, r in zip(self.factors, R, strict=True)])
        # H does not curve along a change common to all classes, but each diagonal block does: left
        # in, that direction alone took CG from 6 steps to more than 60 on USPS.
        out = out.astype(np.float64)
        return out - out.mean(axis=0) if self.centred else out


def _apply(F: np.ndarray, r: np.ndarray) -> np.ndarray:
    """F^T F r; BLAS sees F^T, upper triangular, without a copy."""
    (trmv,) = scipy.linalg.blas.get_blas_funcs(("trmv",), (F,))
    return np.asarray(trmv(F.T, trmv(F.T, r, trans=1)))


def curvature_blocks(
    loss: Any, rows: CurvedRows, *, free: int, shared: bool
) -> Iterator[np.ndarray]:
    """Gram matrices of the active rows: one per class, or their mean for all classes.

    ``free`` is at least the number of free classes of all active rows.
    """
    active = rows.active
    size = active.size if shared else free
    members, weights, start = active, np.empty(size), np.array([0, size])
    if shared:
        mean_weights(loss, active, read_only(rows.y), rows.C, rows.b, weights)
    else:
        start, members = np.empty(loss.k + 1, np.int64), np.empty(size, np.int64)
        free_rows(loss, active, read_only(rows.y), rows.C, rows.b, start, members, weights)
    for a, z in pairwise(start):
        yield sampled_gram(rows.X, rows.tau, members[a:z], weights[a:z])


def _inverse_factor(gram: np.ndarray, penalty: float) -> np.ndarray:
    """F, lower triangular, with F^T F about (I + penalty G)^-1; G is overwritten.

    With its diagonal scaled to one the matrix has few digits to lose to features of unlike scales.
    What rounding has taken from a singular one is put back as a ridge.
    """
    diagonal = diagonal_of(gram)
    squares = diagonal.astype(np.float64)
    if not np.isfinite(squares).all():  # no ridge would ever be enough
        raise FloatingPointError(
            "the curvature of the rows is not finite: features are too large for their float type; "
            "scale them, for example with sklearn.preprocessing.StandardScaler."
        )
    scale = (1 / np.sqrt(1 + penalty * squares)).astype(gram.dtype)
    # penalty G itself may overflow
    share = np.sqrt(penalty / (1 + penalty * squares)).astype(gram.dtype)
    gram *= share[:, None]
    gram *= share
    potrf, trtri = scipy.linalg.lapack.get_lapack_funcs(("potrf", "trtri"), (gram,))
    ridge, info = RIDGE * np.finfo(gram.dtype).eps, 1
    while info:
        diagonal[:] = 1 + ridge
        factor, info = potrf(gram, lower=True, clean=True)
        ridge *= 10
    inverse, _ = trtri(factor, lower=True, overwrite_c=True)
    return np.ascontiguousarray(inverse * scale)


class ConjugateGradients(NamedTuple):
    """H P = -g, solved with one product with H at a time; ``solve`` is the preconditioner's."""

    P: np.ndarray
    r: np.ndarray  # residual
    direction: np.ndarray  # of the next product
    rz: float = 0.0  # square of the residual in the preconditioned norm
    first: float = 0.0  # that at the beginning
    products: int = 0

    @classmethod
    def begin(cls, g: np.ndarray, solve: Callable[[np.ndarray], np.ndarray]) -> ConjugateGradients:
        z = solve(-g)
        rz = float(np.vdot(-g, z))
        return cls(np.zeros_like(g), -g, z, rz, rz)

    def is_done(self, tolerance: float) -> bool:
        return self.products >= CG_STEPS or not self.rz > tolerance**2 * self.first

    def after(
        self, Hd: np.ndarray, solve: Callable[[np.ndarray], np.ndarray]
    ) -> ConjugateGradients:
        """After a product with H."""
        products, curvature = self.products + 1, float(np.vdot(self.direction, Hd))
        if not curvature > 0:  # rounding has the upper hand
            return self._replace(rz=0.0, products=products)
        t = self.rz / curvature
        P, r = self.P + t * self.direction, self.r - t * Hd
        z = solve(r)
        rz = float(np.vdot(r, z))
        return ConjugateGradients(
            P, r, z + (rz / self.rz) * self.direction, rz, self.first, products
        )
