"""Rows of the study of papers: scaled as a paper has them, and split."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from harness.case import Case
from harness.data import Places, load
from sklearn.metrics import f1_score

Split = tuple[Any, np.ndarray, Any, np.ndarray]


def rows_of(case: Case, places: Places) -> Split:
    """X, y, X_test, y_test, scaled as ``case.options["scale"]`` says."""
    data = load(case.data, places, test=True)
    assert data.test is not None
    X, X_test = scaled(case.options.get("scale", "none"), data.X, data.test[0])
    return X, data.y, X_test, data.test[1]


def scaled(how: str, X: Any, X_test: Any) -> tuple[Any, Any]:
    """Columns to [0, 1] or to mean 0 and deviation 1, rows to length 1, or times a number."""
    if how == "columns":
        low, high = X.min(axis=0), X.max(axis=0)
        width = np.where(high > low, high - low, np.float32(1))
        return (X - low) / width, (X_test - low) / width
    if how == "deviation":
        mean, width = X.mean(axis=0), X.std(axis=0)
        width[width == 0] = 1
        return (X - mean) / width, (X_test - mean) / width
    if how == "length":
        return unit(X), unit(X_test)
    if how != "none":
        factor = np.float32(float(how))
        return X * factor, X_test * factor
    return X, X_test


def unit(X: Any) -> Any:
    if sp.issparse(X):
        length = np.sqrt(np.asarray(X.multiply(X).sum(axis=1))).ravel()
        return sp.csr_array(sp.diags_array(1 / np.maximum(length, 1e-12)) @ X).astype(X.dtype)
    length = np.sqrt((X * X).sum(axis=1, keepdims=True))
    return X / np.maximum(length, np.float32(1e-12))


def compare(y: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    """Error, and macro F1; micro F1 is 1 - error, as each row has one label."""
    macro = f1_score(y, predicted, average="macro", zero_division=0)
    return {"error": float(np.mean(y != predicted)), "macro_f1": float(macro)}


def rare_f1(y: np.ndarray, predicted: np.ndarray, y_train: np.ndarray) -> float | None:
    """Mean F1 of the classes of at most ten training rows that have test rows."""
    sizes = np.bincount(y_train, minlength=int(max(y.max(), y_train.max())) + 1)
    rare = np.intersect1d(np.flatnonzero((sizes > 0) & (sizes <= 10)), np.unique(y))
    if not rare.size:
        return None
    found = f1_score(y, predicted, labels=rare, average="macro", zero_division=0)
    return float(found)
