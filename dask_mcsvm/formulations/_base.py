"""What the four formulations share: W is linear in alpha, P and D are two sums each."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dask_mcsvm.formulations.margins import BLOCK_VALUES, EQUAL, Margins, margin_rows

FloatArray: TypeAlias = npt.NDArray[np.float64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]
# An ndarray or a SciPy CSR matrix or array; both know `@`, `.T` and row slices.
Rows: TypeAlias = Any


def as_float64(X: Rows) -> Rows:
    """X in float64, dense or CSR as it came; a copy only where the dtype changes."""
    is_sparse = sp.issparse(X)
    return X.astype(np.float64, copy=False) if is_sparse else np.asarray(X, dtype=np.float64)


def squared_norms(X: Rows) -> FloatArray:
    """A_i = ||x_i||^2, shape (n,)."""
    X, is_sparse = as_float64(X), sp.issparse(X)
    squares = X.multiply(X) if is_sparse else X * X
    return np.asarray(squares.sum(axis=1), dtype=np.float64).ravel()


# eq=False: the generated == would ask for the truth of an array when C is per example.
@dataclass(frozen=True, eq=False)
class Formulation(ABC):
    """A multi-class SVM as a pair of problems, in plain float64 NumPy.

    [P]    P(W) = 1/2 ||W||^2 + sum_i C_i loss_i(W^T x_i)
    [D]    D(alpha) = sum_i l_i(alpha_i) - 1/2 ||W(alpha)||^2, l_i linear
    [W]    W(alpha) = X^T B(alpha), B linear and row by row
    [GAP]  P(W) - P* <= P(W) - D(alpha) for feasible alpha and every W the primal allows

    A formulation supplies B (`coefficients`), loss (`losses_from_scores`), l (`dual_linear`),
    the gradient of -D (`gradients`), its feasible set and the exact step of one example. What
    other rooms must know of it are facts, the class variables below: they look up
    ``FORMULATIONS[name].fact`` and never compare names.

    Parameters
    ----------
    n_classes : int
        k, at least 2.
    C : float or ndarray of shape (n,)
        Cost of a unit of loss, finite and not negative; one number, or one per example.
    margins : Margins
        Delta(y, m), what a mistake costs; 1 by default. Only where `has_margins`.
    """

    n_classes: int
    C: float | npt.NDArray[np.floating]
    margins: Margins = EQUAL

    #: What users may type for the long name, and what the names of tasks begin with.
    short_name: ClassVar[str]
    #: The name in sentences.
    title: ClassVar[str]
    #: `multi_class` of scikit-learn's LinearSVC: the same problem, or else the nearest it has.
    linear_svc: ClassVar[str] = "ovr"
    #: The solver by groups of classes: for a W larger than a worker.
    group_solver: ClassVar[str]
    #: The loss is the largest of the rivals', not their sum: few of a row's variables are not 0.
    loss_is_maximum: ClassVar[bool] = False
    #: Rivals are compared with the own score: the own column has the sum of the rivals' parts.
    compares_with_own: ClassVar[bool] = False
    #: alpha_{i, y_i} is a variable; its sign in the own column of W is +.
    has_own_variable: ClassVar[bool] = False
    #: Sign of a rival's variable in its column of W.
    rival_sign: ClassVar[int] = -1
    #: alpha starts at C_i, where most of it stays, not at 0; `Duals` hold C_i - alpha then.
    starts_at_bound: ClassVar[bool] = False
    #: The primal demands sum_m w_m = 0: a change of alpha_im moves all columns by a common part.
    columns_sum_to_zero: ClassVar[bool] = False
    #: Every class is a problem of its own: columns of W are not tied, not even by their sum.
    classes_are_independent: ClassVar[bool] = False
    #: `tol` is a share of what training can gain, P(0) - D, not of P.
    gap_by_gain: ClassVar[bool] = False
    #: The margin between two classes may be another number than 1.
    has_margins: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.n_classes < 2:
            raise ValueError(f"n_classes={self.n_classes}; a classifier needs 2 classes or more.")
        C = np.asarray(self.C, dtype=np.float64)
        if C.ndim > 1:
            raise ValueError(f"C has shape {C.shape}; use a number or an array of shape (n,).")
        if not np.all(np.isfinite(C) & (C >= 0)):
            raise ValueError(f"C={self.C}; every cost must be finite and at least 0.")
        if self.margins != EQUAL and not self.has_margins:
            raise ValueError(f"{self.title} has no margins between two classes.")

    # What differs between formulations.

    @abstractmethod
    def coefficients(self, alpha: npt.ArrayLike, y: npt.ArrayLike) -> FloatArray:
        """B(alpha), shape (n, k): how much of x_i each column of W holds."""

    @abstractmethod
    def losses_from_scores(self, scores: FloatArray, y: npt.ArrayLike) -> FloatArray:
        """Unweighted loss per example, shape (n,), from scores (n, k)."""

    @abstractmethod
    def dual_linear(self, alpha: npt.ArrayLike, y: npt.ArrayLike) -> FloatArray:
        """l_i(alpha_i), shape (n,): the part of the dual that is linear in alpha."""

    @abstractmethod
    def gradients(self, scores: FloatArray, y: npt.ArrayLike) -> FloatArray:
        """g (n, k), the gradient of -D at scores = X W(alpha); 0 where there is no variable."""

    @abstractmethod
    def feasible(self, alpha: npt.ArrayLike, y: npt.ArrayLike, atol: float = 0.0) -> bool:
        """Whether alpha (n, k) satisfies every constraint of the dual to within atol."""

    @abstractmethod
    def repair(self, alpha: npt.ArrayLike, y: npt.ArrayLike) -> FloatArray:
        """A float64 copy of alpha (n, k) pushed back into the feasible set.

        The identity on feasible alpha; `feasible(result, y)` holds with atol=0 otherwise too.
        """

    @abstractmethod
    def zero_row_alpha(self, y: npt.ArrayLike) -> FloatArray:
        """The alpha (n, k) that would be optimal if every row of X were zero."""

    @abstractmethod
    def violations(self, alpha: npt.ArrayLike, X: Rows, y: npt.ArrayLike) -> FloatArray:
        """How far each block, shape (n,), or variable, (n, k), is from being optimal."""

    @abstractmethod
    def block_step(
        self, alpha_i: FloatArray, scores_i: FloatArray, sq_norm: float, y_i: int, C_i: float
    ) -> FloatArray:
        """The alpha_i (k,) that maximizes D, all other examples held fixed.

        Parameters
        ----------
        alpha_i, scores_i : ndarray of shape (k,)
            The present block, feasible, and W^T x_i with that block included in W.
        sq_norm : float
            A_i = ||x_i||^2 > 0.
        y_i, C_i : int, float
            Label and cost of the example.
        """

    @staticmethod
    @abstractmethod
    def loss_at_zero(n_classes: int) -> float:
        """Loss of one example whose scores are all 0, where all margins are 1."""

    # What is the same for all of them.

    def costs(self, n_examples: int) -> FloatArray:
        """C_i in float64, shape (n,)."""
        C = np.asarray(self.C, dtype=np.float64)
        if C.ndim == 1 and C.shape != (n_examples,):
            raise ValueError(f"C has {C.size} costs, but there are {n_examples} examples.")
        return np.broadcast_to(C, (n_examples,))

    def own(self, y: npt.ArrayLike) -> BoolArray:
        """[m = y_i], shape (n, k)."""
        mask: BoolArray = np.arange(self.n_classes) == np.asarray(y)[:, None]
        return mask

    def margin_rows(self, y: npt.ArrayLike) -> FloatArray:
        """Delta(y_i, m), shape (n, k); 0 where m = y_i."""
        return margin_rows(self.margins, y, self.n_classes)

    def losses_at_zero(self, y: npt.ArrayLike) -> FloatArray:
        """Unweighted loss per example whose scores are all 0, shape (n,)."""
        labels, k = np.asarray(y), self.n_classes
        if self.margins == EQUAL:
            return np.full(labels.size, self.loss_at_zero(k))
        classes, number = np.unique(labels, return_inverse=True)
        blocks = np.array_split(classes, 1 + classes.size * k // BLOCK_VALUES)
        found = [self.losses_from_scores(np.zeros((part.size, k)), part) for part in blocks]
        return np.concatenate(found)[number]

    def scores(self, W: npt.ArrayLike, X: Rows) -> FloatArray:
        """w_m . x_i, shape (n, k)."""
        return np.asarray(as_float64(X) @ np.asarray(W, dtype=np.float64))

    def weights(self, alpha: npt.ArrayLike, X: Rows, y: npt.ArrayLike) -> FloatArray:
        """W(alpha), shape (d, k)."""
        return np.asarray(as_float64(X).T @ self.coefficients(alpha, y))  # [W]

    def weights_change(self, delta_i: npt.ArrayLike, x_i: Rows, y_i: int) -> FloatArray:
        """Change of W, shape (d, k), when alpha_i moves by delta_i (k,).

        x_i is a row: an ndarray of shape (d,) or (1, d), or a CSR row of shape (1, d).
        """
        row = x_i if sp.issparse(x_i) else np.atleast_2d(x_i)
        return self.weights(np.atleast_2d(np.asarray(delta_i)), row, [y_i])  # W is linear in alpha

    def project_weights(self, W: npt.ArrayLike) -> FloatArray:
        """The nearest W (d, k) that the primal allows: W itself, but for Lee-Lin-Wahba."""
        return np.array(W, dtype=np.float64)

    def losses(self, W: npt.ArrayLike, X: Rows, y: npt.ArrayLike) -> FloatArray:
        """Unweighted loss per example, shape (n,)."""
        return self.losses_from_scores(self.scores(W, X), y)

    def primal(self, W: npt.ArrayLike, X: Rows, y: npt.ArrayLike) -> float:
        """P(W). W must be one that the primal allows (see `project_weights`)."""
        losses = self.losses(W, X, y)
        return half_square(W) + float(np.sum(self.costs(losses.size) * losses))  # [P]

    def dual(self, alpha: npt.ArrayLike, X: Rows, y: npt.ArrayLike) -> float:
        """D(alpha). A bound on the primal only for feasible alpha (see `repair`)."""
        linear = float(np.sum(self.dual_linear(alpha, y)))
        return linear - half_square(self.weights(alpha, X, y))  # [D]

    def gap(self, alpha: npt.ArrayLike, X: Rows, y: npt.ArrayLike) -> float:
        """P(W(alpha)) - D(alpha), at least 0 for feasible alpha but for rounding."""
        return self.primal(self.weights(alpha, X, y), X, y) - self.dual(alpha, X, y)  # [GAP]

    def primal_at_zero(self, n_examples: int) -> float:
        """P(0), the sum of C_i times the loss of a zero score vector, if all margins are 1."""
        return self.loss_at_zero(self.n_classes) * float(np.sum(self.costs(n_examples)))

    def fill_zero_rows(self, alpha: npt.ArrayLike, X: Rows, y: npt.ArrayLike) -> FloatArray:
        """A float64 copy of alpha where rows with x_i = 0 have their optimal duals.

        Such rows never move W, so no step visits them; left at 0 they would keep the gap open.
        """
        zero = squared_norms(X) == 0
        return np.where(zero[:, None], self.zero_row_alpha(y), np.asarray(alpha, dtype=np.float64))

    def example_step(
        self, i: int, alpha: npt.ArrayLike, W: npt.ArrayLike, X: Rows, y: npt.ArrayLike
    ) -> FloatArray:
        """New alpha_i (k,): the exact maximum of the dual over the block of example i.

        Parameters
        ----------
        i : int
            The example.
        alpha, W : ndarray of shape (n, k) and (d, k)
            A feasible alpha and W = weights(alpha, X, y); neither is changed.
        """
        labels, row = np.asarray(y), X[i : i + 1]
        sq_norm = float(squared_norms(row)[0])
        if sq_norm == 0:
            optimum: FloatArray = self.zero_row_alpha(labels)[i]
            return optimum
        alpha_i = np.array(np.asarray(alpha)[i], dtype=np.float64)
        C_i = float(self.costs(labels.size)[i])
        return self.block_step(alpha_i, self.scores(W, row)[0], sq_norm, int(labels[i]), C_i)


def half_square(W: npt.ArrayLike) -> float:
    """1/2 ||W||^2 in float64."""
    return 0.5 * float(np.sum(np.square(np.asarray(W, dtype=np.float64))))
