"""A fitted model as a file, and as a fitted scikit-learn estimator."""

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, fields
from importlib.metadata import version
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.svm import LinearSVC
from sklearn.utils.validation import check_is_fitted

from dask_mcsvm import __version__
from dask_mcsvm.data.validation import is_lazy
from dask_mcsvm.errors import ModelFormatError
from dask_mcsvm.estimators._certificate import Trained
from dask_mcsvm.estimators._file_checks import (
    check_classes,
    check_columns,
    check_fitted,
    check_names,
    check_parts,
    check_trained,
    check_versions,
    check_weights,
)
from dask_mcsvm.estimators._margins import (
    given_margins,
    margin_arrays,
    plain_margins,
    stored_margins,
)
from dask_mcsvm.estimators._model import refuse_files
from dask_mcsvm.formulations import FORMULATIONS, Standardization
from dask_mcsvm.storage import (
    absolute_path,
    decode_classes,
    encode_classes,
    load_with_parts,
    save_model,
)
from dask_mcsvm.training import PassPlan, Plan
from dask_mcsvm.training.dask_plan import DaskPlan

KIND = "LinearMCSVC"
# Objects of the session that saved, not of the model.
NOT_STORED = ("callbacks",)
# Fitted attributes that are JSON values as they are.
PLAIN = (
    "primal_", "dual_", "gap_", "n_iter_", "history_", "stop_", "density_", "dual_density_",
    "solver_", "n_features_in_",
)  # fmt: skip
# The same of those that not every model has.
MAYBE = ("temperature_",)
LIBRARIES = ("numpy", "scipy", "scikit-learn", "numba", "dask", "zarr")


class ModelFile:
    """`save`, `load` and `to_linear_svc` of LinearMCSVC."""

    margins: Any
    coef_: Any
    intercept_: npt.NDArray[Any]
    classes_: npt.NDArray[Any]
    plan_: Any
    notes_: dict[str, Any]
    _trained: Trained
    _versions: dict[str, str]

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        overwrite: bool = False,
        notes: Mapping[str, Any] | None = None,
    ) -> None:
        """Save the fitted model as a folder of Zarr arrays and JSON, never pickle.

        It holds the weights (as CSR where that is smaller), classes, parameters, gap, objectives,
        history and the versions of the libraries. It does not hold callbacks, a `RandomState`
        object, or the dual variables of ``warm_start=True``.

        Parameters
        ----------
        path : str or path-like
            Local path or fsspec URL. A local model appears under its name when it is whole.
        overwrite : bool
            Replace a model at `path`, once the new one is whole.
        notes : mapping, optional
            JSON values to keep with the model, such as where its data came from; `load` gives
            them back in `notes_`. By default those it was loaded with.

        Raises
        ------
        FileExistsError
            `path` exists and `overwrite` is False, or is not a model.

        Examples
        --------
        >>> import tempfile
        >>> from sklearn.datasets import load_iris
        >>> from dask_mcsvm import LinearMCSVC
        >>> X, y = load_iris(return_X_y=True)
        >>> model = LinearMCSVC(random_state=0).fit(X, y)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save(f"{folder}/iris.zarr", notes={"rows": "all 150"})
        ...     again = LinearMCSVC.load(f"{folder}/iris.zarr")
        >>> again.gap_ == model.gap_, (again.predict(X) == model.predict(X)).all(), again.notes_
        (True, np.True_, {'rows': 'all 150'})
        """
        check_is_fitted(self)
        trained = self._trained
        arrays = {"intercept": self.intercept_, "class_totals": trained.totals}
        arrays |= margin_arrays(trained.margins, self.margins)
        if trained.columns is not None:
            arrays |= {"mean": trained.columns.mean, "scale": trained.columns.scale}
        parts: Any = ()
        widths = None
        if is_lazy(self.coef_):  # one part after another: together they may not fit
            coef = self.coef_.rechunk({1: -1})
            widths = list(coef.chunks[0])
            parts = (coef.blocks[p].T.compute() for p in range(len(widths)))
        else:
            # (d, k), the layout of a fit: its rows are sparse where a feature serves few classes.
            arrays["W"] = self.coef_.T.tocsr() if sp.issparse(self.coef_) else self.coef_.T
        meta = {
            "estimator": KIND,
            "versions": versions(),
            "parameters": stored_parameters(self),
            "classes": encode_classes(self.classes_),
            "fitted": {n: getattr(self, n) for n in (*PLAIN, *MAYBE) if hasattr(self, n)},
            "feature_names": _names(getattr(self, "feature_names_in_", None)),
            "plan": asdict(self.plan_) if self.plan_ else {},
            "trained": {
                "formulation": trained.formulation,
                "C": trained.C,
                "tau": trained.tau,
                "class_weight": _stored(trained.class_weight),
                "dtype": trained.dtype.name,
                "n_given": trained.n_given,
                "square": trained.square,
                "centred": None if trained.columns is None else trained.columns.centred,
            },
            "notes": dict(getattr(self, "notes_", {}) if notes is None else notes),
        }
        if widths is not None:
            meta["parts"] = {"classes": widths, "dtype": self.coef_.dtype.name}
        save_model(path, arrays, meta, parts=parts, overwrite=overwrite)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Load a model that `save` wrote; nothing in the file is executed.

        Parameters
        ----------
        path : str or path-like
            Local path or fsspec URL.

        Returns
        -------
        LinearMCSVC
            Fitted: it predicts, certifies and exports as the one that was saved. Where that had
            its `coef_` in files, this one reads those at `path`.

        Raises
        ------
        FileNotFoundError
            Nothing is there.
        ModelFormatError
            Not a model of this class, of another version, never finished, or damaged.
        """
        arrays, meta, stamps = load_with_parts(path)
        found = meta.get("estimator")
        if found != KIND:
            found = found if isinstance(found, str) else None
            raise ModelFormatError(
                f"{os.fspath(path)}: holds a {found or 'model of another kind'}, not a {KIND}; "
                f"load it with {f'{found}.load' if found else 'dask_mcsvm.storage.load_model'}."
            )
        model = cls()
        try:
            _set_parameters(model, meta["parameters"], arrays, path)
            if "parts" in meta:
                arrays["W"] = _weights_in_parts(path, meta, stamps)
            vars(model).update(_fitted(arrays, meta))
        except ModelFormatError:
            raise
        except (AttributeError, LookupError, OverflowError, TypeError, ValueError) as error:
            raise ModelFormatError(
                f"{os.fspath(path)}: its parts do not make a {KIND} ({error}); save it again with "
                "save(..., overwrite=True)."
            ) from error
        return model

    def to_linear_svc(self) -> LinearSVC:
        """This model as a fitted `sklearn.svm.LinearSVC`, for tools that know only that.

        Returns
        -------
        LinearSVC
            With the same predictions and the same `decision_function`. Two classes become one
            row: ``coef_`` of shape (1, d), as scikit-learn has it. Its parameters are those of
            the same problem where LinearSVC has it (Crammer-Singer and one-vs-rest); for the
            other two formulations a new `fit` of the export would solve one-vs-rest.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dask_mcsvm import LinearMCSVC
        >>> X, y = load_iris(return_X_y=True)
        >>> model = LinearMCSVC(random_state=0).fit(X, y)
        >>> (model.to_linear_svc().predict(X) == model.predict(X)).all()
        np.True_
        """
        check_is_fitted(self)
        refuse_files(self.coef_, "to_linear_svc")
        trained = self._trained
        form = FORMULATIONS[trained.formulation]
        svc = LinearSVC(
            loss="hinge",
            C=trained.C,
            multi_class=form.linear_svc,
            fit_intercept=trained.tau > 0,
            intercept_scaling=trained.tau or 1.0,
            class_weight=trained.class_weight,
        )
        coef, intercept = self.coef_, self.intercept_
        if self.classes_.size == 2:
            if form.classes_are_independent:
                coef, intercept = coef[1:], intercept[1:]
            else:
                coef, intercept = coef[1:] - coef[:1], intercept[1:] - intercept[:1]
        svc.coef_ = coef.copy() if sp.issparse(coef) else np.array(coef, order="C")
        svc.intercept_ = intercept.copy()
        svc.classes_ = self.classes_
        for name in ("n_iter_", "n_features_in_", "feature_names_in_"):
            if hasattr(self, name):
                setattr(svc, name, getattr(self, name))
        return svc


def versions() -> dict[str, str]:
    """Versions of Python and of the libraries that a model depends on."""
    ours = {"dask-mcsvm": __version__, "python": platform.python_version()}
    return ours | {name: version(name) for name in LIBRARIES}


def model_versions(model: Any) -> dict[str, str]:
    """The versions a model was made with: those of its file, or of now for one just fitted."""
    check_is_fitted(model)
    return dict(getattr(model, "_versions", None) or versions())


def stored_parameters(model: Any) -> dict[str, Any]:
    """The parameters of an estimator as JSON values, those of the session left out."""
    given = model.get_params(deep=False)
    if isinstance(given["random_state"], np.random.RandomState):
        given["random_state"] = None
    if given["dtype"] is not None:
        given["dtype"] = np.dtype(given["dtype"]).name
    stored = {name: _stored(value) for name, value in given.items() if name not in NOT_STORED}
    return stored | {"margins": plain_margins(given["margins"])}


def _stored(value: Any) -> Any:
    """A parameter as JSON: paths as text, dicts as pairs, since their keys may be any label."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return {"pairs": [[_item(key), _item(item)] for key, item in value.items()]}
    return value


def _loaded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: item for key, item in value["pairs"]}
    return value


def _item(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _names(names: Any) -> list[str] | None:
    return None if names is None else [str(name) for name in names]


def _set_parameters(
    model: Any,
    stored: Mapping[str, Any],
    arrays: Mapping[str, Any],
    path: str | os.PathLike[str],
) -> None:
    strangers = sorted(set(stored) - set(model.get_params(deep=False)))
    if strangers:
        raise ModelFormatError(
            f"{os.fspath(path)}: has the parameter {strangers[0]!r}, which this release does not "
            "know; load it with the release that saved it, or a later one."
        )
    given = {name: _loaded(value) for name, value in stored.items() if name != "margins"}
    model.set_params(**given, margins=given_margins(stored.get("margins"), arrays))


def _fitted(arrays: Mapping[str, Any], meta: Mapping[str, Any]) -> dict[str, Any]:
    """The fitted attributes, checked to belong together."""
    W, intercept, totals = (arrays[name] for name in ("W", "intercept", "class_totals"))
    classes, plain, trained = decode_classes(meta["classes"]), meta["fitted"], meta["trained"]
    check_classes(classes)
    check_fitted(plain)
    check_weights(W, intercept, totals, plain["n_features_in_"], classes.size)
    check_names(meta["feature_names"], plain["n_features_in_"])
    check_trained(trained)
    columns = _columns(arrays, trained.get("centred"), plain["n_features_in_"])
    check_versions(meta["versions"])
    attributes: dict[str, Any] = {name: plain[name] for name in PLAIN}
    attributes |= {name: plain[name] for name in MAYBE if name in plain}
    if meta["feature_names"] is not None:
        attributes["feature_names_in_"] = np.array(meta["feature_names"], dtype=object)
    if columns is not None:
        attributes |= {"mean_": columns.mean, "scale_": columns.scale}
    return attributes | {
        "coef_": sp.csr_array(W.T) if sp.issparse(W) else W.T,
        "intercept_": intercept,
        "classes_": classes,
        "plan_": _plan(meta["plan"]),
        "notes_": dict(meta["notes"]),
        "_versions": meta["versions"],
        "_trained": Trained(
            **{
                **{name: value for name, value in trained.items() if name != "centred"},
                "columns": columns,
                "class_weight": _loaded(trained["class_weight"]),
                "dtype": np.dtype(trained["dtype"]),
                "totals": totals,
                "margins": stored_margins(arrays, classes.size),
            }
        ),
    }


def _columns(arrays: Mapping[str, Any], centred: Any, d: int) -> Standardization | None:
    """Mean and scale of the columns; files of 0.1 and of rows as they come have none."""
    if centred is None:
        return None
    check_columns(arrays["mean"], arrays["scale"], centred, d)
    return Standardization(arrays["mean"], arrays["scale"], centred)


def _weights_in_parts(
    path: str | os.PathLike[str], meta: Mapping[str, Any], stamps: Sequence[int]
) -> Any:
    """W (d, k) as a Dask array that reads the parts of a model file."""
    from dask_mcsvm.graphs.model_files import read_weights  # imports Dask

    d, parts = meta["fitted"]["n_features_in_"], meta["parts"]
    check_parts(parts, stamps, d, decode_classes(meta["classes"]).size)
    dtype = np.dtype(parts["dtype"])
    return read_weights(absolute_path(path), parts["classes"], d, dtype, stamps)


def _plan(stored: dict[str, Any]) -> Any:
    """The plan, or None if another release planned otherwise: that run is over anyway."""
    if not isinstance(stored.get("solver", ""), str):
        raise ValueError(f"solver is {stored['solver']!r:.60}")
    names = set(stored)
    for kind in (Plan, PassPlan, DaskPlan):
        known = {field.name for field in fields(kind)}
        needed = {field.name for field in fields(kind) if field.default is MISSING}
        if needed <= names <= known:
            return kind(**{name: _frozen(value) for name, value in stored.items()})
    return None


def _frozen(value: Any) -> Any:
    """JSON's lists as the tuples that a plan is made of."""
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
