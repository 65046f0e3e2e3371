"""Which features speak for a label against its rival."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dask_mcsvm.data.validation import is_lazy
from dask_mcsvm.formulations import FORMULATIONS


class Reason(NamedTuple):
    """A feature, its value in the row, and what it adds to the margin."""

    feature: str
    value: float
    weight: float  # of the label less that of the rival
    adds: float  # value times weight


@dataclass(frozen=True)
class Explanation:
    """Why a row has its label and not the next best one.

    Attributes
    ----------
    label, rival : object
        The predicted class and the second best.
    margin : float
        By how much the score of the label exceeds that of the rival: the sum of what all features
        add, and of `intercept`.
    intercept : float
    reasons : tuple of Reason
        Those that add or take away most, largest first.
    """

    label: Any
    rival: Any
    margin: float
    intercept: float
    reasons: tuple[Reason, ...]

    def __repr__(self) -> str:
        lines: list[tuple[str, ...]] = [("feature", "value", "weight", "adds")]
        lines += [(r.feature, *(f"{v:+.4g}" for v in r[1:])) for r in self.reasons]
        lines.append(("intercept", "", "", f"{self.intercept:+.4g}"))
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        rows = [
            "  ".join([first.ljust(widths[0]), *(map(str.rjust, rest, widths[1:]))]).rstrip()
            for first, *rest in lines
        ]
        return "\n".join([f"{self.label!r} before {self.rival!r} by {self.margin:.4g}", *rows])


def explained(model: Any, row: Any, names: Any, top: int) -> Explanation:
    """The explanation of one checked row (1, d)."""
    scores = model.decision_function(row)[0]
    if model.classes_.size == 2:
        label, rival = (1, 0) if scores > 0 else (0, 1)
    else:
        label, rival = np.argsort(-scores, kind="stable")[:2].tolist()
    weights, intercept = difference(model, label, rival)
    values = np.asarray(row.toarray() if sp.issparse(row) else row, np.float64)[0]
    adds = values * weights
    order = np.argsort(-np.abs(adds), kind="stable")[:top]
    reasons = tuple(
        Reason(str(names[j]), float(values[j]), float(weights[j]), float(adds[j]))
        for j in order.tolist()
        if adds[j] != 0
    )
    margin = float(adds.sum() + intercept)
    classes = model.classes_
    return Explanation(_item(classes[label]), _item(classes[rival]), margin, intercept, reasons)


def told_apart(model: Any, pairs: Sequence[tuple[Any, Any]], top: int) -> list[tuple[str, str]]:
    """For pairs of labels, the features that speak most for the first, and for the second.

    Empty texts for labels that are none of the model's, for weights that stay in files, and for
    models without weights.
    """
    if not hasattr(model, "_trained"):  # a LaRankSVC
        return [("", "")] * len(pairs)
    names = feature_names(model, None)
    place = {label: m for m, label in enumerate(model.classes_.tolist())}
    found = []
    for one, other in pairs:
        if is_lazy(model.coef_) or not {one, other} <= set(place):
            found.append(("", ""))
            continue
        weights, _ = difference(model, place[one], place[other])
        sides = (np.argsort(-side, kind="stable")[:top] for side in (weights, -weights))
        texts = (
            ", ".join(str(names[j]) for j in side.tolist() if sign * weights[j] > 0)
            for side, sign in zip(sides, (1, -1), strict=True)
        )
        found.append((next(texts), next(texts)))
    return found


def difference(model: Any, label: int, rival: int) -> tuple[npt.NDArray[np.float64], float]:
    """Weights (d,) and intercept of a class less those of another, in float64."""
    independent = FORMULATIONS[model._trained.formulation].classes_are_independent
    if model.classes_.size == 2 and independent:  # the second score decides by itself
        sign = 1.0 if label == 1 else -1.0
        return sign * _weights(model, 1), float(sign * model.intercept_[1])
    intercept = float(model.intercept_[label] - model.intercept_[rival])
    return _weights(model, label) - _weights(model, rival), intercept


def feature_names(model: Any, names: Any) -> Any:
    """Names (d,): those given, those of the fit, or numbers."""
    d = model.n_features_in_
    if names is None:
        found = getattr(model, "feature_names_in_", None)
        return [f"feature {j}" for j in range(d)] if found is None else found
    if len(names) != d:
        raise ValueError(
            f"names has {len(names)} names, and the model has {d} features; pass one for each."
        )
    return names


def _weights(model: Any, m: int) -> npt.NDArray[np.float64]:
    row = model.coef_[[m]]
    return np.asarray(row.toarray() if sp.issparse(row) else row, np.float64).ravel()


def _item(label: Any) -> Any:
    return label.item() if isinstance(label, np.generic) else label
