"""Kernel values K(x, z) = f(x·z, ‖x‖², ‖z‖²) of many pairs of rows.

A value depends on its two rows alone, to the last bit, not on the block it is computed in: every
pair of dense rows goes through the same loop, a tile of two by four, whose edges repeat the last
row. So a stream gives the same model however it is cut into chunks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numba import types

from dask_mcsvm.solvers.kernels.jit import by_type, kernel, part
from dask_mcsvm.solvers.kernels.rows import as_rows, square_norms

RBF, POLY, SIGMOID, EXTERNAL = 0, 1, 2, 3
KINDS = {"rbf": RBF, "poly": POLY, "sigmoid": SIGMOID}

#: The largest value of a user's kernel: steps square C_i, which may be large too, and multiply.
LARGEST_VALUE = 2.0**100

#: Share of ‖x‖² + ‖z‖² up to which ‖x - z‖² is summed anew, column by column. What x·z gets wrong
#: beyond it, 1e-7 of the norms in float32, changes an RBF kernel's value by less than 1e-4.
NEAR = 2.0**-10

#: ‖x‖²‖z‖² below which x·z is summed anew in float64: float32 products of such rows round to 0, and
#: a gamma of 1 / variance makes ordinary kernel values of them.
SHORT = 2.0**-200

#: After the last column of any row.
BEYOND = np.iinfo(np.int64).max

#: A value that is not known yet; kernels of finite rows never give it.
UNKNOWN = np.inf


class KernelFunction(NamedTuple):
    """A kernel as compiled code sees it; EXTERNAL values come from Python."""

    kind: int
    gamma: float
    degree: float
    coef0: float
    d: int  # columns of the rows


@kernel
def from_product(function, dot, square_x, square_z):
    """K(x, z) from x·z, ‖x‖² and ‖z‖²."""
    if function.kind == RBF:
        # The compiler may associate this sum as it likes: sorted, K(x, z) = K(z, x) exactly.
        low, high = min(square_x, square_z), max(square_x, square_z)
        return np.exp(-function.gamma * max(low + high - 2.0 * dot, 0.0))
    if function.kind == POLY:
        return (function.gamma * dot + function.coef0) ** function.degree
    return np.tanh(function.gamma * dot + function.coef0)


@part
def is_cancelled(function, dot, norms):
    """Whether ‖x - z‖² is so much smaller than ‖x‖² + ‖z‖² that x·z says little of it.

    By float32 products the squared distance of a row of norm 10,000 to itself is up to 80; by
    float64 products that of two rows of norm 1e10 is wrong by some ten thousands.
    """
    return function.kind == RBF and norms - 2.0 * dot <= NEAR * norms


@part
def from_columns(function, x, z):
    """The RBF kernel of two dense rows, in float64 and without cancellation."""
    square = 0.0
    for f in range(x.size):
        apart = np.float64(x[f]) - np.float64(z[f])
        square += apart * apart
    return np.exp(-function.gamma * square)


@part
def product(x, z):
    """x·z of two dense rows in float64."""
    total = 0.0
    for f in range(x.size):
        total += np.float64(x[f]) * np.float64(z[f])
    return total


@part
def value_of(function, dot, square_x, square_z, a, i, b, j):
    """The kernel of dense rows i of a and j of b, whose product is known in their type."""
    if square_x * square_z < SHORT:
        dot = product(a[i], b[j])
    if is_cancelled(function, dot, square_x + square_z):
        return from_columns(function, a[i], b[j])
    return from_product(function, dot, square_x, square_z)


@part
def from_entries(function, data_x, indices_x, data_z, indices_z):
    """The same of two sparse rows, whose indices are sorted."""
    square = 0.0
    e = f = 0
    while e < indices_x.size or f < indices_z.size:
        apart = 0.0
        column_x = indices_x[e] if e < indices_x.size else BEYOND
        column_z = indices_z[f] if f < indices_z.size else BEYOND
        if column_x <= column_z:
            apart += np.float64(data_x[e])
            e += 1
        if column_z <= column_x:
            apart -= np.float64(data_z[f])
            f += 1
        square += apart * apart
    return np.exp(-function.gamma * square)


@kernel
def self_values(function, norms):
    """K(x, x) from ‖x‖², (n,)."""
    out = np.empty(norms.size)
    for i in range(norms.size):
        out[i] = from_product(function, norms[i], norms[i], norms[i])
    return out


def kernel_block(function, a, index_a, norm_a, b, index_b, norm_b, triangle, out, first):
    """Compute what is UNKNOWN in out[r, first + c] = K(a[index_a[r]], b[index_b[c]]); how many?

    ``norm_a`` and ``norm_b`` are ‖x‖² in the order of the indices. With ``triangle`` only c < r.
    """


@by_type(kernel_block)
def _kernel_block(function, a, index_a, norm_a, b, index_b, norm_b, triangle, out, first):
    if isinstance(a, types.Array):

        def dense(function, a, index_a, norm_a, b, index_b, norm_b, triangle, out, first):
            last_r, last_c = index_a.size - 1, index_b.size - 1
            dots = np.empty((2, 4))
            computed = 0
            for c in range(0, last_c + 1, 4):
                to_c = min(c + 3, last_c)
                for r in range(0, last_r + 1, 2):
                    to_r = min(r + 1, last_r)
                    missing = False
                    for row in range(r, to_r + 1):
                        for column in range(c, to_c + 1):
                            wanted = not triangle or column < row
                            missing |= wanted and out[row, first + column] == UNKNOWN
                    if not missing:
                        continue
                    tile_products(
                        a[index_a[r]],
                        a[index_a[to_r]],
                        b[index_b[c]],
                        b[index_b[min(c + 1, last_c)]],
                        b[index_b[min(c + 2, last_c)]],
                        b[index_b[to_c]],
                        dots,
                    )
                    for row in range(r, to_r + 1):
                        for column in range(c, to_c + 1):
                            wanted = not triangle or column < row
                            if wanted and out[row, first + column] == UNKNOWN:
                                out[row, first + column] = value_of(
                                    function, dots[row - r, column - c], norm_a[row],
                                    norm_b[column], a, index_a[row], b, index_b[column],
                                )  # fmt: skip
                                computed += 1
            return computed

        return dense

    def csr(function, a, index_a, norm_a, b, index_b, norm_b, triangle, out, first):
        data_a, indices_a, indptr_a = a
        data_b, indices_b, indptr_b = b
        scattered = np.zeros(function.d, data_a.dtype)
        computed = 0
        for r in range(index_a.size):
            start, stop = indptr_a[index_a[r]], indptr_a[index_a[r] + 1]
            for e in range(start, stop):
                scattered[indices_a[e]] = data_a[e]
            for c in range(min(r, index_b.size) if triangle else index_b.size):
                if out[r, first + c] == UNKNOWN:
                    first_b, last_b = indptr_b[index_b[c]], indptr_b[index_b[c] + 1]
                    dot = 0.0
                    for e in range(first_b, last_b):
                        dot += np.float64(scattered[indices_b[e]]) * np.float64(data_b[e])
                    if is_cancelled(function, dot, norm_a[r] + norm_b[c]):
                        out[r, first + c] = from_entries(
                            function,
                            data_a[start:stop],
                            indices_a[start:stop],
                            data_b[first_b:last_b],
                            indices_b[first_b:last_b],
                        )
                    else:
                        out[r, first + c] = from_product(function, dot, norm_a[r], norm_b[c])
                    computed += 1
            for e in range(start, stop):
                scattered[indices_a[e]] = 0
        return computed

    return csr


@kernel
def tile_products(x0, x1, z0, z1, z2, z3, dots):
    """dots (2, 4): products of two rows with four. Eight sums share six loads per feature."""
    s00 = s01 = s02 = s03 = s10 = s11 = s12 = s13 = x0.dtype.type(0)
    for f in range(x0.size):
        u, v = x0[f], x1[f]
        s00 += u * z0[f]
        s01 += u * z1[f]
        s02 += u * z2[f]
        s03 += u * z3[f]
        s10 += v * z0[f]
        s11 += v * z1[f]
        s12 += v * z2[f]
        s13 += v * z3[f]
    dots[0, 0], dots[0, 1], dots[0, 2], dots[0, 3] = s00, s01, s02, s03
    dots[1, 0], dots[1, 1], dots[1, 2], dots[1, 3] = s10, s11, s12, s13


@kernel
def compute_block(function, a, index_a, norm_a, b, index_b, norm_b, triangle, out, first):
    """`kernel_block`, for Python to call."""
    return kernel_block(function, a, index_a, norm_a, b, index_b, norm_b, triangle, out, first)


# -- kernels as Python knows them ------------------------------------------------------------------


@dataclass(frozen=True)
class Kernel:
    """A kernel by its name, "linear", "rbf", "poly", "sigmoid", "precomputed" or "callable".

    ``function`` of a callable kernel takes rows (a, d) and (b, d) and returns (a, b).
    """

    name: str
    gamma: float = 1.0
    degree: float = 3.0
    coef0: float = 0.0
    function: Callable[[Any, Any], Any] | None = None

    @property
    def is_external(self) -> bool:
        """Whether values come from Python."""
        return self.name in ("precomputed", "callable")

    def compiled(self, d: int) -> KernelFunction:
        """What compiled code takes, for rows of d columns."""
        kind = KINDS.get(self.name, EXTERNAL)
        return KernelFunction(kind, float(self.gamma), float(self.degree), float(self.coef0), d)


def norms_of(X) -> np.ndarray:
    """‖x‖² of all rows, float64."""
    return square_norms(as_rows(X), X.shape[0], 0.0)


def kernel_matrix(kernel: Kernel, X, Z, norms: np.ndarray | None = None) -> np.ndarray:
    """K (a, b) between rows X (a, d) and Z (b, d) of one dtype, both dense or both csr_array.

    ``norms`` are those of Z. A precomputed kernel has no rows to compare.
    """
    if kernel.function is not None:
        return call_kernel(kernel.function, X, Z)
    out = np.full((X.shape[0], Z.shape[0]), UNKNOWN, X.dtype)
    index_x, index_z = np.arange(X.shape[0]), np.arange(Z.shape[0])
    norms = norms_of(Z) if norms is None else norms
    function = kernel.compiled(X.shape[1])
    compute_block(
        function, as_rows(X), index_x, norms_of(X), as_rows(Z), index_z, norms, False, out, 0
    )
    return out


def call_kernel(function: Callable[[Any, Any], Any] | None, X, Z) -> np.ndarray:
    """The values of a user's kernel, checked.

    Raises
    ------
    ValueError
        If they are not a finite (a, b) array.
    """
    assert function is not None
    returned, shape = function(X, Z), (X.shape[0], Z.shape[0])
    try:
        values = np.asarray(returned)
        found = f"shape {values.shape} and dtype {values.dtype}"
    except ValueError:  # rows of several lengths
        values, found = np.empty(0), f"a {type(returned).__name__} that is no array"
    if values.shape != shape or values.dtype.kind not in "fiu":
        raise ValueError(
            f"the kernel returned {found} for rows of shape {X.shape} and {Z.shape}; it must "
            f"return numbers of shape {shape}: type kernel=lambda X, Z: X @ Z.T to compare."
        )
    with np.errstate(over="ignore"):
        values = values.astype(X.dtype, copy=False)
    largest = float(np.abs(values).max(initial=0))
    if not np.isfinite(largest):
        raise ValueError(
            "the kernel returned NaN or infinity; it must be finite for all rows: scale the "
            "columns of X, or bound the kernel."
        )
    if largest > LARGEST_VALUE:
        raise ValueError(
            f"the kernel returned a value of {largest:.1e}; values must be at most "
            f"{LARGEST_VALUE:.1e}: scale the columns of X, or bound the kernel."
        )
    return values
