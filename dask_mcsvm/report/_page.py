"""The report as one HTML file: no script, no font, no picture from elsewhere."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import jinja2
import numpy as np

from dask_mcsvm.progress import printable
from dask_mcsvm.report._run import Run
from dask_mcsvm.report.scores import Scores

# Rows of a table: what fits a glance. The rest is a line that says how many there are.
MOST_ROWS = 12
# Of notes, which people write themselves: so many, and of each so many characters.
MOST_NOTES, MOST_CHARACTERS = 50, 1000

SECTIONS = {
    "run": "How it converged, and to what",
    "cluster": "What it asked of the cluster",
    "classes": "Which classes it knows",
    "settings": "Settings",
}

#: What a switch says.
AXES = {"epoch": "by epochs", "seconds": "by time"}

#: How a cell is shown, and what of.
Cell = tuple[str, Any]


@dataclass(frozen=True)
class Drawing:
    """A card with a picture, or one along each axis."""

    title: str
    says: str
    name: str  # of its switch
    pictures: list[tuple[str, str]]  # axis, SVG in base64


@dataclass(frozen=True)
class Table:
    """A card with a table; a cell is a "name", a number "n", a "bar" or plain "text"."""

    title: str
    says: str
    rows: list[list[Cell]]
    head: list[tuple[str, str]] = field(default_factory=list)  # text, class
    more: list[str] = field(default_factory=list)
    kind: str = ""
    facts: bool = False


@dataclass
class Section:
    """A heading and its cards, those with pictures first."""

    title: str
    cards: list[Drawing] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)


def page(run: Run, panels: list[tuple[Any, dict[str, bytes]]]) -> str:
    """The whole document."""
    sections = {key: Section(title) for key, title in SECTIONS.items()}
    for panel, pictures in panels:
        sections[panel.section].cards.append(_drawing(panel, pictures))
    if run.scores is not None:
        sections["classes"].tables += [_worst(run.scores), _confused(run.scores, run.reasons)]
    sections["settings"].tables += [_parameters(run), _origin(run)]
    if run.notes:
        sections["settings"].tables.append(_notes(run))
    return _template().render(run=run, tiles=_tiles(run), sections=sections.values(), axes=AXES)


@cache
def _template() -> jinja2.Template:
    """The page, in which every value is escaped."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("dask_mcsvm.report", "."),
        autoescape=True,
        finalize=_shown,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
    )
    environment.filters |= {"share": _share, "cut": _cut, "one_line": printable}
    environment.globals["number"] = "{:,}".format
    return environment.get_template("page.html")


def _shown(value: Any) -> Any:
    """Text without characters that a page can not hold or a reader would obey."""
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return printable(value, keep="\n\t")
    return value


def _tiles(run: Run) -> list[tuple[str, str, str]]:
    """Value, label and kind of the large numbers."""
    proof = "good" if run.converged else "bad"
    tiles = [(f"{run.gap:.1e}", f"relative gap, tol {run.tol:.2g}", proof)]
    tiles = [
        *(tiles if run.wants_proof else []),
        (f"{run.epochs:,}", "epochs", ""),
        (_seconds(run.seconds), "of training", ""),
    ]
    if run.scores is not None:
        rows = f"{run.scores.n:,} {run.scores.rows_are}"
        tiles.append((f"{run.scores.accuracy:.1%}", f"accuracy on {rows}", ""))
        tiles.append((f"{run.scores.macro_f1:.3f}", "macro F1", ""))
    if run.cost is not None:
        tiles.append((f"{run.cost:.3g}", "expected cost of a label", ""))
    return [*tiles, (*run.size, "")]


def _drawing(panel: Any, pictures: dict[str, bytes]) -> Drawing:
    name = "".join(c for c in panel.title.lower() if c.isalpha())
    encoded = [(along, base64.b64encode(svg).decode()) for along, svg in pictures.items()]
    return Drawing(panel.title, panel.says, name, encoded)


def _worst(scores: Scores) -> Table:
    """F1 by class, worst first, as bars of CSS: names in any script stay text."""
    f1 = scores.f1
    # Of equals first the class with most rows: it costs most.
    order = np.lexsort((-scores.support, f1))[: int(scores.seen.sum())].tolist()  # nan comes last
    rows: list[list[Cell]] = [
        [
            ("name", scores.labels[place]),
            ("n", f"{scores.support[place]:,}"),
            ("n", f"{f1[place]:.3f}"),
            ("bar", float(f1[place])),
        ]
        for place in order[:MOST_ROWS]
    ]
    head = [("class", ""), ("rows", "n"), ("F1", "n"), ("", "")]
    unseen = len(scores.labels) - len(order)
    left = [f"{len(order) - MOST_ROWS:,} more are not listed."] if len(order) > MOST_ROWS else []
    left += [f"{unseen:,} classes have no rows here and were never predicted."] if unseen else []
    says = f"F1 on the {'training' if scores.of_training else 'scored'} rows, worst first."
    return Table("Weakest classes", says, rows, head, left)


def _confused(scores: Scores, reasons: Sequence[tuple[str, str]]) -> Table:
    """The most frequent mistakes, and which features speak for either class."""
    title = "Most confused classes"
    if not scores.mistakes:
        return Table(title, "No row was taken for another class.", [])
    most = scores.mistakes[0][2]
    support = dict(zip(scores.labels, scores.support.tolist(), strict=True))
    rows: list[list[Cell]] = [
        [
            ("name", true),
            ("name", guess),
            ("n", f"{rows:,}"),
            ("n", f"{rows / support[true]:.0%}"),
            ("bar", rows / most),
            ("name", first),
            ("name", second),
        ]
        for (true, guess, rows), (first, second) in zip(scores.mistakes, reasons, strict=False)
    ]
    head = [
        ("true class", ""), ("taken for", ""), ("rows", "n"), ("of class", "n"), ("", "bar"),
        ("speaks for the true class", ""), ("for the other", ""),
    ]  # fmt: skip
    count = len(scores.mistakes) - len(reasons)
    left = [f"{count:,} other pairs are confused less often."] if count > 0 else []
    return Table(title, "The most frequent mistakes.", rows, head, left, kind="full")


def _parameters(run: Run) -> Table:
    return _facts("Parameters", "As given to the estimator.", run.parameters)


def _origin(run: Run) -> Table:
    dense = {}
    if np.isfinite(run.dual_density):
        dense = {"dual variables": f"{run.dual_density:.1%} not zero"}
    facts: dict[str, Any] = {
        "primal": f"{run.primal:.9g}",
        "dual": f"{run.dual:.9g}",
        "ended by": run.stop,
        **dense,
        **run.versions,
    }
    return _facts("Result and origin", "Objectives in float64, and what computed them.", facts)


def _notes(run: Run) -> Table:
    """In a table of their own: a note named "primal" is not the primal."""
    facts = dict(list(run.notes.items())[:MOST_NOTES])
    left = len(run.notes) - len(facts)
    more = [f"{left:,} more are not listed."] if left else []
    return _facts("Notes", "As kept with the model.", facts, more)


def _facts(title: str, says: str, facts: dict[str, Any], more: Sequence[str] = ()) -> Table:
    rows: list[list[Cell]] = [
        [("text", str(name)), ("text", _text(value))] for name, value in facts.items()
    ]
    return Table(title, says, rows, more=list(more), facts=True)


def _share(value: float) -> str:
    """A share as people say it: 0.082 %."""
    return f"{100 * value:.2g} %"


def _seconds(value: float) -> str:
    if value < 60:
        return f"{value:.3g} s"
    minutes, seconds = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {seconds:02d} s"


def _text(value: Any) -> str:
    pairs = value["pairs"] if isinstance(value, dict) and set(value) == {"pairs"} else None
    if isinstance(pairs, list) and all(isinstance(p, list | tuple) and len(p) == 2 for p in pairs):
        return ", ".join(f"{key}: {item}" for key, item in pairs)
    return str(value)


def _cut(value: Any) -> str:
    text = str(value)
    if len(text) <= MOST_CHARACTERS:
        return text
    return f"{text[:MOST_CHARACTERS]}... ({len(text):,} characters)"
