"""What a fit leaves for the next one to start from."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dask_mcsvm.data.validation import TrainingSet
from dask_mcsvm.training import Problem

AFRESH = "start afresh with sklearn.base.clone(estimator).fit(X, y)"


@dataclass(frozen=True, eq=False)
class KeptAlpha:
    """Dual variables, and the rows they belong to.

    Attributes
    ----------
    alpha : object
        As `train` returned it; it knows its C_i, and `train` scales it to others.
    y : ndarray of shape (n,)
        Class of each row that was trained on.
    kept : ndarray of shape (n_given,), bool, or None
        Which of the rows given those are; None for all.
    classes : ndarray of shape (k,)
    formulation : str
    solver : str
        That ended the fit; the next one need not try another first.
    """

    alpha: Any
    y: npt.NDArray[np.int32]
    kept: npt.NDArray[np.bool_] | None
    classes: npt.NDArray[Any]
    formulation: str
    solver: str

    def start_for(self, problem: Problem, data: TrainingSet) -> Any:
        """The alpha to start `problem` from.

        Raises
        ------
        ValueError
            If the variables belong to other rows, labels or classes, or to another formulation.
        """
        if problem.formulation != self.formulation:
            raise ValueError(
                f"formulation is now {problem.formulation!r}; warm_start=True continues a fit of "
                f"{self.formulation!r}: {AFRESH}."
            )
        if not np.array_equal(data.classes, self.classes):
            raise ValueError(
                f"y has {data.classes.size} classes that are not the {self.classes.size} of the "
                f"last fit; warm_start=True needs the same: name all in fit(..., classes=...), or "
                f"{AFRESH}."
            )
        n_before = self.y.size if self.kept is None else self.kept.size
        if data.n_given != n_before:
            raise ValueError(
                f"X has {data.n_given} rows; warm_start=True continues a fit on {n_before} and "
                f"needs the same rows: {AFRESH}."
            )
        same_rows = data.kept is self.kept or np.array_equal(
            np.True_ if data.kept is None else data.kept,
            np.True_ if self.kept is None else self.kept,
        )
        if not same_rows or not np.array_equal(data.y, self.y):
            raise ValueError(
                "y or the rows of weight 0 are not those of the last fit; warm_start=True needs "
                f"the same rows in the same order: {AFRESH}."
            )
        return self.alpha
