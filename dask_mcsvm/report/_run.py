"""What a report shows, as plain values: nothing here draws."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dask_mcsvm.data.validation import is_lazy
from dask_mcsvm.estimators.explain import told_apart
from dask_mcsvm.estimators.files import model_versions, stored_parameters
from dask_mcsvm.formulations import FORMULATIONS
from dask_mcsvm.report.scores import Scores

FloatArray = npt.NDArray[np.float64]

CURVES = ("epoch", "seconds", "primal", "dual", "gap", "active", "support")
# Pairs of classes for which a report says what tells them apart, and by how many features each.
MOST_PAIRS, FEATURES = 12, 3
# What a fit on Dask adds to its records: numbers of that epoch.
TRAFFIC = {"tasks": "Tasks", "bytes": "Bytes moved"}


@dataclass(frozen=True, eq=False)
class Run:
    """A finished fit.

    Attributes
    ----------
    curves : dict of str to ndarray of shape (records,)
        epoch, seconds, primal, dual, gap, active, support; nan where not measured.
    certified : ndarray of shape (records,), bool
    magnitudes : ndarray
        |w| of the weights that are not zero (LaRank: |coefficients| of support patterns); none
        of a model that stays in files.
    task_seconds : dict of str to ndarray of shape (records,)
        Per kind of task; empty for a fit in memory.
    traffic : dict of str to ndarray of shape (records,)
        Tasks, bytes moved; empty for a fit in memory.
    n_groups : int
        Class groups that met in rounds; 0 if there were none.
    cost : float, optional
        What a label costs on average, of rows scored by a model with `margins`.
    reasons : list of (str, str)
        For the most frequent mistakes: features that speak for the true class, and for the other.
    """

    formulation: str
    solver: str
    n: int | None
    d: int
    k: int
    gap: float
    tol: float
    primal: float
    dual: float
    epochs: int
    stop: str
    size: tuple[str, str]
    dual_density: float
    curves: dict[str, FloatArray]
    certified: npt.NDArray[np.bool_]
    magnitudes: npt.NDArray[Any]
    task_seconds: dict[str, FloatArray]
    traffic: dict[str, FloatArray]
    n_groups: int
    parameters: dict[str, Any]
    versions: dict[str, str]
    notes: dict[str, Any]
    scores: Scores | None
    reasons: list[tuple[str, str]]
    cost: float | None = None

    @property
    def seconds(self) -> float:
        """Of the whole fit, as far as its history says."""
        return float(self.curves["seconds"][-1]) if len(self.certified) else 0.0

    @property
    def converged(self) -> bool:
        """Whether the certificate is as good as was asked for."""
        return self.gap <= self.tol

    @property
    def has_gap(self) -> bool:
        """Whether there is a certificate."""
        return bool(np.isfinite(self.gap))

    @property
    def wants_proof(self) -> bool:
        """Whether the fit was to end with a gap: LaRank usually is not."""
        return bool(np.isfinite(self.tol))


def run_of(model: Any, scores: Scores | None) -> Run:
    """Everything a report shows of a fitted model."""
    versions = model_versions(model)  # refuses one that is not fitted
    if hasattr(model, "n_support_") and hasattr(model, "kernel_evaluations_"):
        own = _of_larank(model)
    elif hasattr(model, "coef_") and hasattr(model, "_trained"):
        own = _of_linear(model)
    else:
        raise ValueError(
            f"a report shows the fit of a LinearMCSVC or a LaRankSVC, not of a "
            f"{type(model).__name__}; history_ has what there is."
        )
    history = model.history_
    kinds = sorted({kind for record in history for kind in record.get("task_seconds", {})})
    mistakes = [] if scores is None else scores.mistakes
    return Run(
        **own,
        d=int(model.n_features_in_),
        k=int(model.classes_.size),
        gap=float(model.gap_),
        primal=float(model.primal_),
        dual=float(model.dual_),
        epochs=int(model.n_iter_),
        stop=str(model.stop_),
        curves={name: _column(history, name) for name in CURVES},
        certified=np.array([bool(r.get("certified")) for r in history], bool),
        task_seconds={
            kind: _column([r.get("task_seconds", {}) for r in history], kind) for kind in kinds
        },
        traffic={
            label: _column(history, name)
            for name, label in TRAFFIC.items()
            if any(name in record for record in history)
        },
        parameters=stored_parameters(model),
        versions=versions,
        notes=_notes(getattr(model, "notes_", {})),
        scores=scores,
        cost=None if scores is None else scores.expected_cost(model),
        reasons=told_apart(model, [pair[:2] for pair in mistakes[:MOST_PAIRS]], FEATURES),
    )


def _of_linear(model: Any) -> dict[str, Any]:
    """What only a LinearMCSVC has."""
    coef = np.empty(0) if is_lazy(model.coef_) else model.coef_  # not from files for a figure
    stored = coef.data if sp.issparse(coef) else np.asarray(coef).ravel(order="K")
    groups = getattr(model.plan_, "groups", ()) if model.solver_ == "rounds" else ()
    return {
        "formulation": FORMULATIONS[model._trained.formulation].title,
        "solver": model.solver_,
        "n": getattr(model.plan_, "n", None),
        "tol": float(model.tol),
        "size": (f"{model.density_:.1%}", "of the weights are not zero"),
        "dual_density": float(model.dual_density_),
        "magnitudes": np.abs(stored[stored != 0]),
        "n_groups": len(groups),
    }


def _of_larank(model: Any) -> dict[str, Any]:
    """What only a LaRankSVC has."""
    by_gap, tol = model.stop == "gap", model.tol
    if by_gap and tol is None:  # the paper's rule, as a relative gap
        tol = model.C / model.primal_
    coefficients = np.abs(model.dual_coef_.data)
    kernel = model.kernel if isinstance(model.kernel, str) else "own"
    return {
        "formulation": f"LaRank ({kernel} kernel)",
        "solver": "larank",
        "n": None,
        "tol": float(tol) if by_gap else np.nan,
        "size": (f"{model.n_support_:,}", "support patterns"),
        "dual_density": np.nan,
        "magnitudes": coefficients[coefficients > 0],
        "n_groups": 0,
    }


def _notes(given: Any) -> dict[str, Any]:
    """Notes by name; whoever set them to something else has one note."""
    if isinstance(given, Mapping):
        return {str(name): value for name, value in given.items()}
    return {} if given is None else {"notes_": given}


def _column(records: list[dict[str, Any]], name: str) -> FloatArray:
    values = [record.get(name) for record in records]
    return np.array([np.nan if value is None else value for value in values], np.float64)
