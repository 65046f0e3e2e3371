"""Rows that are read block by block: from a dataset on disk, or from arrays in memory."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dask_mcsvm.checks import check_range, positive_range
from dask_mcsvm.formulations import Moments, Standardization, moments
from dask_mcsvm.solvers.standardized import DenseStandardized, RowsOfX, standardized_rows

if TYPE_CHECKING:
    from dask_mcsvm.storage import Dataset


#: Values of standardized rows that exist at a time.
SCALED_VALUES = 2**20


class RowSource(Protocol):
    """Where the rows of a fit come from, wherever they are, and what it must know of them.

    Attributes
    ----------
    classes : ndarray of shape (k,)
        Sorted labels, also those that no row has.
    features : dict
        `n_features_in_`, and `feature_names_in_` if X has names.
    n_given : int
        Rows that were passed, those of weight 0 included.
    dtype : dtype
        float32 or float64: the arithmetic.
    totals : ndarray of shape (k,)
        Sum of the weights of each class; a weight is sample_weight times class_weight.
    """

    @property
    def classes(self) -> npt.NDArray[Any]: ...
    @property
    def features(self) -> dict[str, Any]: ...
    @property
    def n_given(self) -> int: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def totals(self) -> npt.NDArray[np.float64]: ...
    def weight_range(self) -> tuple[float, float]:
        """The smallest weight above 0, and the largest."""

    def radius(self) -> float:
        """The largest Euclidean norm of a row."""

    def check_range(self, costs: tuple[float, float], tau: float) -> None:
        """Refuse costs C_i and rows whose squares the arithmetic cannot hold."""


class RowScale(NamedTuple):
    """How large dense rows are, in units of 1/C: what slows steps of one row at a time."""

    common: float  # C ‖mean row‖²
    square: float  # C times the mean of ‖x_i‖²


def row_scale(X: npt.NDArray[Any] | DenseStandardized, cost: float) -> RowScale | None:
    """How large dense rows are, times their mean cost; None if all are zero."""
    if isinstance(X, DenseStandardized):
        return _standardized_scale(X, cost)
    square = float(np.einsum("ij,ij->", X, X, dtype=np.float64)) / X.shape[0]
    mean = X.mean(axis=0, dtype=np.float64)
    return RowScale(cost * float(mean @ mean), cost * square) if square > 0 else None


def _standardized_scale(X: DenseStandardized, cost: float) -> RowScale | None:
    """The same of rows that are made a few at a time."""
    n, square, total = X.shape[0], 0.0, np.zeros(X.shape[1])
    step = max(1, SCALED_VALUES // X.shape[1])
    for first in range(0, n, step):
        rows = X[first : first + step].block()
        square += float(np.einsum("ij,ij->", rows, rows, dtype=np.float64))
        total += rows.sum(axis=0, dtype=np.float64)
    mean = total / n
    return RowScale(cost * float(mean @ mean), cost * square / n) if square > 0 else None


class WeightsByClass(NamedTuple):
    """Sample weights of each class, arrays of shape (k,)."""

    totals: npt.NDArray[np.float64]
    lightest: npt.NDArray[np.float64]  # above 0; inf of a class without rows
    heaviest: npt.NDArray[np.float64]

    def range(self, factors: npt.NDArray[np.float64]) -> tuple[float, float]:
        """The smallest weight above 0 and the largest, each times the factor of its class."""
        present = self.totals > 0
        least, most = (factors * each for each in (self.lightest, self.heaviest))
        return positive_range(np.concatenate([least[present], most[present]]))


def weights_by_class(
    codes: npt.NDArray[Any], weights: npt.NDArray[np.float64], k: int
) -> WeightsByClass:
    """Of rows whose classes are ``codes`` (n,)."""
    used = weights > 0
    lightest, heaviest = np.full(k, np.inf), np.zeros(k)
    np.minimum.at(lightest, codes[used], weights[used])
    np.maximum.at(heaviest, codes[used], weights[used])
    totals = np.bincount(codes, weights, minlength=k).astype(np.float64)
    return WeightsByClass(totals, lightest, heaviest)


def made(X: Any) -> Any:
    """A block of rows, dense standardized ones as an array of their own."""
    return X.block() if isinstance(X, DenseStandardized) else X


class Chunk(NamedTuple):
    """One block of rows, in memory."""

    X: Any  # ndarray or CSR of shape (rows, d), of the source's dtype
    y: np.ndarray  # (rows,) int32, codes
    weight: np.ndarray  # (rows,) float64, factors of C


class Source(Protocol):
    """What an out-of-core solver reads: blocks of rows, as often as it likes."""

    @property
    def shape(self) -> tuple[int, int]: ...
    @property
    def n_classes(self) -> int: ...
    @property
    def dtype(self) -> np.dtype[Any]:
        """float32 or float64: the arithmetic, and the type of what `read` returns."""

    @property
    def is_sparse(self) -> bool: ...
    @property
    def row_offsets(self) -> Sequence[int]:
        """Block b is the rows ``row_offsets[b]`` to ``row_offsets[b + 1]``."""

    def read(self, b: int) -> Chunk: ...
    def entries(self) -> np.ndarray:
        """Values stored for each block, (n_blocks,)."""

    def radius(self) -> float:
        """The largest Euclidean norm of a row."""

    def identity(self) -> dict[str, Any]:
        """JSON values that differ where the rows do."""

    def without(self, rows: np.ndarray) -> Source:
        """The same source with weights of 0 for some rows, (n,) bool."""


def read_ahead(
    source: Source, order: Sequence[int], done: Callable[[float], object] | None = None
) -> Iterator[tuple[int, Chunk]]:
    """Blocks in the given order, the next one read while this one is at work.

    `done` hears how many rows they are once they are done with.
    """
    with ThreadPoolExecutor(1) as reader:
        ahead = reader.submit(source.read, order[0])
        for b, after in zip(order, [*order[1:], None], strict=True):
            chunk = ahead.result()
            if after is not None:
                ahead = reader.submit(source.read, after)
            rows = chunk.y.size
            yield b, chunk
            del chunk  # before the next one comes
            if done is not None:
                done(rows)


@dataclass(frozen=True, eq=False)
class DatasetSource:
    """The rows of a dataset on disk.

    Parameters
    ----------
    dataset : Dataset
    dtype : dtype, optional
        The arithmetic; float64 rows keep it by default, all others become float32.
    class_factors : ndarray of shape (n_classes,), optional
        Factor of the weight per class.
    weights : WeightsByClass, optional
        Those of the dataset; read from it by default.
    left_out : ndarray of shape (n,), bool, optional
        Rows whose weight is 0 here.
    columns : Standardization, optional
        By which rows are standardized when they are read; ``norms`` are the largest ones of such a
        row and of x / scale.

    Raises
    ------
    ValueError
        Rows hold NaN or infinity, or values whose squares overflow.
    """

    dataset: Dataset
    dtype: np.dtype[Any] = None  # type: ignore[assignment]
    class_factors: np.ndarray | None = None
    weights: WeightsByClass = None  # type: ignore[assignment]
    left_out: np.ndarray | None = None
    columns: Standardization | None = None
    norms: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if self.weights is None:
            codes = self.dataset.read_labels()
            found = self.dataset.read_weights()
            found = np.ones(codes.size) if found is None else found
            by_class = weights_by_class(codes, found, self.n_classes)
            object.__setattr__(self, "weights", by_class)
        stored = self.dataset.dtype
        chosen = self.dtype or (np.float64 if stored == np.float64 else np.float32)
        object.__setattr__(self, "dtype", np.dtype(chosen))
        norm = self.dataset.max_row_norm
        if not math.isfinite(norm):
            raise ValueError(
                f"{self.dataset.path}: X contains NaN or infinity; drop those rows and write the "
                "dataset again."
            )
        if norm > math.sqrt(float(np.finfo(self.dtype).max)):
            raise ValueError(
                f"{self.dataset.path}: X has a row of norm {norm:.1e}, whose square overflows "
                f"{self.dtype}; scale the columns and write the dataset again."
            )

    @property
    def shape(self) -> tuple[int, int]:
        return self.dataset.shape

    @property
    def n_classes(self) -> int:
        return self.dataset.n_classes

    @property
    def is_sparse(self) -> bool:
        return self.dataset.is_sparse

    @property
    def row_offsets(self) -> Sequence[int]:
        return self.dataset.row_offsets

    @property
    def classes(self) -> npt.NDArray[Any]:
        return self.dataset.classes

    @property
    def features(self) -> dict[str, Any]:
        names = self.dataset.feature_names
        return {
            "n_features_in_": self.shape[1],
            **({} if names is None else {"feature_names_in_": names}),
        }

    @property
    def n_given(self) -> int:
        return self.shape[0]

    @property
    def factors(self) -> npt.NDArray[np.float64]:
        """Factor of the weight per class, (k,)."""
        return np.ones(self.n_classes) if self.class_factors is None else self.class_factors

    @property
    def totals(self) -> npt.NDArray[np.float64]:
        return self.factors * self.weights.totals

    def weight_range(self) -> tuple[float, float]:
        return self.weights.range(self.factors)

    def check_range(self, costs: tuple[float, float], tau: float) -> None:
        norm = max(self.norms or [self.radius()])
        check_range(costs, norm, tau, self.dtype, are_zero=norm == 0)

    def read(self, b: int) -> Chunk:
        X = self.dataset.read_block(b).astype(self.dtype, copy=False)
        X = made(standardized_rows(X, self.columns))
        y = self.dataset.read_block_labels(b)
        weight = self.dataset.read_weights(*self.row_offsets[b : b + 2])
        weight = np.ones(y.size) if weight is None else weight
        if self.class_factors is not None:
            weight = weight * self.class_factors[y]
        if self.left_out is not None:
            weight = np.where(self.left_out[slice(*self.row_offsets[b : b + 2])], 0.0, weight)
        return Chunk(X, y, weight)

    def without(self, rows: np.ndarray) -> DatasetSource:
        return replace(self, left_out=rows)

    def entries(self) -> np.ndarray:
        return self.dataset.block_entries()

    def radius(self) -> float:
        return self.norms[0] if self.norms else self.dataset.max_row_norm

    def moments(self) -> Moments:
        """Mean and squares of the columns, by sample weights; classes of weight zero have none."""
        plain, found = replace(self, class_factors=None, columns=None), None
        for _, chunk in read_ahead(plain, range(len(self.row_offsets) - 1)):
            part = moments(chunk.X, np.where(self.factors[chunk.y] > 0, chunk.weight, 0.0))
            found = part if found is None else found.merged(part)
        assert found is not None
        return found

    def standardized(self, columns: Standardization) -> DatasetSource:
        """The same rows standardized, and how long they are then."""
        plain, squares = replace(self, columns=None), np.zeros(2)
        for _, chunk in read_ahead(plain, range(len(self.row_offsets) - 1)):
            here = columns.square_norms(chunk.X[chunk.weight > 0])
            squares = np.maximum(squares, [part.max(initial=0.0) for part in here])
        longest, scaled = np.sqrt(squares).tolist()
        return replace(self, columns=columns, norms=(longest, scaled))

    def identity(self) -> dict[str, Any]:
        factors = [] if self.class_factors is None else self.class_factors.tolist()
        return {
            "fingerprint": self.dataset.fingerprint,
            "chunks": len(self.row_offsets) - 1,
            "dtype": self.dtype.name,
            "class_factors": factors,
            **({} if self.columns is None else {"centred": self.columns.centred}),
        }

    def cut(self, sizes: np.ndarray, most: float) -> DatasetSource:
        """The same rows in chunks of at most `most` bytes, given the sizes of those there are."""
        offsets = [
            start + piece * (stop - start) // pieces
            for (start, stop), size in zip(pairwise(self.row_offsets), sizes.tolist(), strict=True)
            for pieces in [min(math.ceil(size / most), stop - start)]
            for piece in range(pieces)
        ]
        finer = replace(self.dataset, row_offsets=(*offsets, self.shape[0]))
        return replace(self, dataset=finer)


@dataclass(frozen=True, eq=False)
class ArraySource(RowsOfX):
    """Rows in memory, handed out by blocks.

    Parameters
    ----------
    X : ndarray, CSR or DenseStandardized of shape (n, d)
        float32 or float64, checked.
    y : ndarray of shape (n,), int32
    weight : ndarray of shape (n,), float64
    n_classes : int
    block_rows : int
    """

    X: Any
    y: np.ndarray
    weight: np.ndarray
    n_classes: int
    block_rows: int

    @property
    def is_sparse(self) -> bool:
        return bool(sp.issparse(self.X))

    @property
    def row_offsets(self) -> Sequence[int]:
        n = self.shape[0]
        return [*range(0, n, self.block_rows), n]

    def read(self, b: int) -> Chunk:
        rows = slice(*self.row_offsets[b : b + 2])
        return Chunk(made(self.X[rows]), self.y[rows], self.weight[rows])

    def without(self, rows: np.ndarray) -> ArraySource:
        return replace(self, weight=np.where(rows, 0.0, self.weight))

    def entries(self) -> np.ndarray:
        offsets = np.asarray(self.row_offsets)
        if self.is_sparse:
            return np.diff(self.X.indptr[offsets])
        return np.diff(offsets) * self.shape[1]

    def radius(self) -> float:
        largest = 0.0
        for b in range(len(self.row_offsets) - 1):
            X = self.read(b).X.astype(np.float64)
            squares = X.multiply(X) if self.is_sparse else X * X
            largest = max(largest, float(np.asarray(squares.sum(axis=1)).max()))
        return math.sqrt(largest)

    def identity(self) -> dict[str, Any]:
        parts = [self.X.data, self.X.indices, self.X.indptr] if self.is_sparse else [self.X]
        if isinstance(self.X, DenseStandardized):
            parts = [self.X.X, self.X.mean, self.X.inverse]
        sums = [
            zlib.crc32(np.ascontiguousarray(a).view(np.uint8).data)
            for a in (*parts, self.y, self.weight)
        ]
        return {"shape": list(self.shape), "blocks": list(self.row_offsets), "crc32": sums}
