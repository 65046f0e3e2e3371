"""How estimators and what they return show themselves in a notebook or a shell."""

import html
import math
from typing import Any

STYLE = "border-collapse:collapse;margin-top:4px;font-size:90%"

CELL = "text-align:left;padding:2px 10px;"


class Shown:
    """An estimator whose HTML says how its fit ended, below scikit-learn's diagram."""

    def _repr_html_inner(self) -> str:
        return str(super()._repr_html_inner()) + fitted_table(self)  # type: ignore[misc]

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        """What a notebook shows."""
        bundle: dict[str, str] = super()._repr_mimebundle_(**kwargs)  # type: ignore[misc]
        if "text/html" in bundle:
            bundle["text/html"] += fitted_table(self)
        return bundle


def fitted_table(estimator: Any) -> str:
    """The end of a fit as a small table; nothing of an estimator that is not fitted."""
    rows = fitted_facts(estimator)
    return table([*zip(*rows, strict=True)]) if rows else ""


def fitted_facts(estimator: Any) -> list[tuple[str, str]]:
    """Name and value of what a fit ended with."""
    if not hasattr(estimator, "classes_"):
        return []
    gap, tol = estimator.gap_, estimator.tol
    if math.isfinite(gap):
        met = "" if tol is None else f" ({'within' if gap <= tol else 'above'} tol={tol:g})"
        found = f"{gap:.1e}{met}"
    else:
        found = "not computed"
    n = estimator.n_iter_
    facts = [
        ("relative gap", found),
        ("converged" if estimator.stop_ == "gap" else "stopped by", _ending(estimator.stop_, n)),
    ]
    if hasattr(estimator, "solver_"):
        facts.append(("solver", estimator.solver_))
    else:
        facts.append(("support patterns", f"{estimator.n_support_:,}"))
    k, d = estimator.classes_.size, estimator.n_features_in_
    return [*facts, ("model", f"{k:,} classes × {d:,} features")]


def _ending(stop: str, epochs: int) -> str:
    after = f"after {epochs} epoch{'s' * (epochs != 1)}"
    return after if stop == "gap" else f"{stop}, {after}"


def table(rows: list[tuple[Any, ...]], marked: int | None = None) -> str:
    """Rows as an HTML table, the first of them its head; `marked` is set in bold."""
    lines = []
    for place, row in enumerate(rows):
        tag, weight = ("th", "") if place == 0 else ("td", "")
        if place == marked:
            weight = "font-weight:bold;"
        cells = "".join(
            f"<{tag} style='{weight}{CELL}'>{html.escape(str(cell))}</{tag}>" for cell in row
        )
        lines.append(f"<tr>{cells}</tr>")
    return f"<table style='{STYLE}'>{''.join(lines)}</table>"


class Printed(str):
    """A text that was printed when it was made: a notebook that is given it shows nothing more."""

    __slots__ = ()

    def _ipython_display_(self) -> None:
        pass


def printed(plan: Any) -> Printed:
    """Print a plan, and return its text."""
    text = Printed(plan)
    print(text)
    return text
