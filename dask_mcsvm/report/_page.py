"""The report as one HTML file: no script, no font, no picture from elsewhere."""

import base64
import html
from collections.abc import Sequence
from typing import Any

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

CSS = """
:root { --ink:#1c2733; --muted:#64707d; --rule:#e3e8ed; --blue:#1f6fb5; --orange:#b8481a;
  --wash:#f6f8fa; --good:#23724f; }
* { box-sizing:border-box }
body { margin:0; background:var(--wash); color:var(--ink); line-height:1.5;
  font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue","DejaVu Sans",sans-serif;
  -webkit-text-size-adjust:100% }
main { max-width:1120px; margin:0 auto; padding:40px 24px 64px }
header p { max-width:68ch; margin:.4em 0 0 }
h1 { font-size:27px; line-height:1.2; letter-spacing:-.015em; margin:0 }
h2 { font-size:18px; letter-spacing:-.01em; margin:44px 0 14px }
.kicker { color:var(--muted); font-size:13px; margin:0 0 6px }
.tiles { display:grid; grid-template-columns:repeat(auto-fit,minmax(150px,1fr)); gap:12px;
  margin-top:26px }
.tile,.card { background:#fff; border:1px solid var(--rule); border-radius:10px; min-width:0 }
.tile { padding:14px 16px }
.tile b { display:block; font-size:23px; line-height:1.25; letter-spacing:-.02em;
  font-weight:650; font-variant-numeric:tabular-nums }
.tile span { color:var(--muted); font-size:13px }
.good b { color:var(--good) } .bad b { color:var(--orange) }
.cards { display:grid; gap:16px; align-items:stretch;
  grid-template-columns:repeat(auto-fill,minmax(min(440px,100%),1fr)) }
.card input { position:absolute; opacity:0 }
.card label { display:inline-block; font-size:12.5px; color:var(--muted); cursor:pointer;
  padding:1px 10px; border:1px solid var(--rule); border-radius:6px; margin:0 4px 8px 0 }
.card input:checked + label { color:var(--ink); background:var(--wash); font-weight:600 }
.card input:focus-visible + label { outline:2px solid var(--blue) }
.card .seconds { display:none }
.by-seconds:checked ~ .seconds { display:block }
.by-seconds:checked ~ .epoch { display:none }
.card { padding:16px 18px; margin:0 }
.card h3 { margin:0; font-size:15px }
.card p { margin:2px 0 10px; color:var(--muted); font-size:13px }
.card img { display:block; width:100%; height:auto }
.full { grid-column:1/-1 }
.wide { overflow-x:auto }
table { border-collapse:collapse; width:100%; font-size:14px; font-variant-numeric:tabular-nums }
th { text-align:left; font-weight:600; color:var(--muted); font-size:12.5px }
th,td { padding:6px 14px 6px 0; border-bottom:1px solid var(--rule); vertical-align:top }
tr:last-child td { border-bottom:0 }
.n { text-align:right; white-space:nowrap }
.name { max-width:230px; overflow:hidden; text-overflow:ellipsis; white-space:nowrap }
.full .name { max-width:330px }
.bar { min-width:90px; width:30% }
.bar i { display:block; height:9px; margin-top:7px; border-radius:3px; background:var(--blue) }
.bar i.zero { width:2px!important; background:var(--orange) }
.facts td:first-child { color:var(--muted); width:11em; white-space:nowrap }
.facts td { overflow-wrap:anywhere }
.more { color:var(--muted); font-size:13px; margin:10px 0 0 }
footer { color:var(--muted); font-size:13px; margin-top:40px }
@media (max-width:560px) { main { padding:24px 14px 40px } h1 { font-size:22px }
  .tile b { font-size:19px } .name,.full .name { max-width:29vw } .bar { min-width:48px }
  th,td { padding-right:8px } .full .bar { display:none } .facts td:first-child { width:8em } }
@media print { body { background:#fff } .card,.tile { break-inside:avoid } }
"""


def page(run: Run, panels: list[tuple[Any, dict[str, bytes]]]) -> str:
    """The whole document."""
    title = f"{run.formulation}, {run.k:,} classes"
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)} - dask-mcsvm report</title>",
        '<link rel="icon" href="data:,">',  # else a browser asks the server for one
        f"<style>{CSS}</style></head><body><main>",
        _header(run),
        _tiles(run),
    ]
    cards: dict[str, list[str]] = {"run": [], "cluster": [], "classes": [], "settings": []}
    for panel, pictures in panels:
        cards[panel.section].append(_card(panel, pictures))
    if run.scores is not None:
        cards["classes"] += [_worst(run.scores), _confused(run.scores, run.reasons)]
    cards["settings"] += [_parameters(run), _origin(run)]
    if run.notes:
        cards["settings"].append(_notes(run))
    for section, inner in cards.items():
        if inner:
            parts += [f"<h2>{SECTIONS[section]}</h2>", '<div class="cards">', *inner, "</div>"]
    parts += ["<footer>Written by dask-mcsvm. This file needs no other.</footer>"]
    return "\n".join([*parts, "</main></body></html>", ""])


def _header(run: Run) -> str:
    rows = "" if run.n is None else f"{run.n:,} rows, "
    if run.converged:
        verdict = (
            "The fit proved its quality: no weights have an objective lower than this model's by "
            f"more than {_share(run.gap)}, and {_share(run.tol)} was asked for."
        )
    elif np.isfinite(run.gap):
        verdict = (
            f"The fit ended ({escape(run.stop)}) before the proof was as good as asked for: the "
            f"objective may be {_share(run.gap)} above the lowest, and {_share(run.tol)} was asked "
            "for. More epochs, scaled rows or a smaller C help."
        )
    elif not run.wants_proof:
        verdict = (
            "It learned online and was not asked for a proof; with stop='gap' it goes on until "
            "there is one."
        )
    else:
        verdict = "The fit made no certificate, so nothing is known about the distance to the best."
    return (
        f'<header><p class="kicker">dask-mcsvm training report</p>'
        f"<h1>{escape(run.formulation)} model of {run.k:,} classes</h1>"
        f"<p>{rows}{run.d:,} features, solver {escape(run.solver)}. {verdict}</p></header>"
    )


def _tiles(run: Run) -> str:
    proof = "good" if run.converged else "bad"
    tiles = [(f"{run.gap:.1e}", f"relative gap, tol {run.tol:.2g}", proof)]
    tiles = [
        *(tiles if run.wants_proof else []),
        (f"{run.epochs:,}", "epochs", ""),
        (_seconds(run.seconds), "of training", ""),
    ]
    if run.scores is not None:
        tiles += [
            (
                f"{run.scores.accuracy:.1%}",
                f"accuracy on {run.scores.n:,} {run.scores.rows_are}",
                "",
            ),
            (f"{run.scores.macro_f1:.3f}", "macro F1", ""),
        ]
    if run.cost is not None:
        tiles.append((f"{run.cost:.3g}", "expected cost of a label", ""))
    tiles.append((*run.size, ""))
    inner = "".join(
        f'<div class="tile {kind}"><b>{escape(value)}</b><span>{escape(label)}</span></div>'
        for value, label, kind in tiles
    )
    return f'<div class="tiles">{inner}</div>'


def _card(panel: Any, pictures: dict[str, bytes]) -> str:
    """One drawing, or one along each axis with a switch, which needs no script."""
    title, says = escape(panel.title), escape(panel.says)
    name = "".join(c for c in panel.title.lower() if c.isalpha())
    switch = images = ""
    for along, picture in pictures.items():
        data = base64.b64encode(picture).decode()
        kind = f' class="{along}"' if len(pictures) > 1 else ""
        images += f'<img{kind} alt="{title}. {says}" src="data:image/svg+xml;base64,{data}">'
        if kind:
            on = "" if switch else " checked"
            switch += (
                f'<input type="radio" name="{name}" id="{name}-{along}" class="by-{along}"{on}>'
                f'<label for="{name}-{along}">{AXES[along]}</label>'
            )
    return f'<section class="card"><h3>{title}</h3><p>{says}</p>{switch}{images}</section>'


#: What a switch says.
AXES = {"epoch": "by epochs", "seconds": "by time"}


def _worst(scores: Scores) -> str:
    """F1 by class, worst first, as bars of CSS: names in any script stay text."""
    f1 = scores.f1
    # Of equals first the class with most rows: it costs most.
    order = np.lexsort((-scores.support, f1))[: int(scores.seen.sum())].tolist()  # nan comes last
    rows = "".join(
        f"<tr>{_name(scores.labels[place])}"
        f'<td class="n">{scores.support[place]:,}</td><td class="n">{f1[place]:.3f}</td>'
        f'<td class="bar"><i{_width(f1[place])}></i></td></tr>'
        for place in order[:MOST_ROWS]
    )
    head = '<tr><th>class</th><th class="n">rows</th><th class="n">F1</th><th></th></tr>'
    unseen = len(scores.labels) - len(order)
    left = [f"{len(order) - MOST_ROWS:,} more are not listed."] if len(order) > MOST_ROWS else []
    left += [f"{unseen:,} classes have no rows here and were never predicted."] if unseen else []
    says = f"F1 on the {'training' if scores.of_training else 'scored'} rows, worst first."
    return _table("Weakest classes", says, head + rows, left)


def _confused(scores: Scores, reasons: Sequence[tuple[str, str]]) -> str:
    """The most frequent mistakes, and which features speak for either class."""
    most = scores.mistakes[0][2] if scores.mistakes else 1
    support = dict(zip(scores.labels, scores.support.tolist(), strict=True))
    rows = "".join(
        f'<tr>{_name(true)}{_name(guess)}<td class="n">{rows:,}</td>'
        f'<td class="n">{rows / support[true]:.0%}</td>'
        f'<td class="bar"><i{_width(rows / most)}></i></td>{_name(first)}{_name(second)}</tr>'
        for (true, guess, rows), (first, second) in zip(scores.mistakes, reasons, strict=False)
    )
    head = (
        '<tr><th>true class</th><th>taken for</th><th class="n">rows</th>'
        '<th class="n">of class</th><th></th>'
        "<th>speaks for the true class</th><th>for the other</th></tr>"
    )
    left = []
    if len(scores.mistakes) > len(reasons):
        left = [f"{len(scores.mistakes) - len(reasons):,} other pairs are confused less often."]
    if not scores.mistakes:
        return _table("Most confused classes", "No row was taken for another class.", "", [])
    title, says = "Most confused classes", "The most frequent mistakes."
    return _table(title, says, head + rows, left, kind="full")


def _table(title: str, says: str, rows: str, notes: list[str], kind: str = "") -> str:
    more = f'<p class="more">{" ".join(map(escape, notes))}</p>' if notes else ""
    return (
        f'<section class="card {kind}"><h3>{title}</h3><p>{says}</p>'
        f'<div class="wide"><table>{rows}</table></div>{more}</section>'
    )


def _parameters(run: Run) -> str:
    return _facts("Parameters", "As given to the estimator.", run.parameters)


def _origin(run: Run) -> str:
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


def _notes(run: Run) -> str:
    """In a table of their own: a note named "primal" is not the primal."""
    facts = dict(list(run.notes.items())[:MOST_NOTES])
    left = len(run.notes) - len(facts)
    more = f"{left:,} more are not listed." if left else ""
    return _facts("Notes", "As kept with the model.", facts, more)


def _facts(title: str, says: str, facts: dict[str, Any], more: str = "") -> str:
    rows = "".join(
        f"<tr><td>{escape(_cut(str(name)))}</td><td>{escape(_cut(_text(value)))}</td></tr>"
        for name, value in facts.items()
    )
    table = f'<div class="wide"><table class="facts">{rows}</table></div>'
    rest = f'<p class="more">{more}</p>' if more else ""
    return f'<section class="card"><h3>{title}</h3><p>{says}</p>{table}{rest}</section>'


def _name(label: Any) -> str:
    text = escape(_cut(printable(label)))
    return f'<td class="name" title="{text}">{text}</td>'


def _width(share: float) -> str:
    return f' style="width:{100 * share:.1f}%"' if share > 0 else ' class="zero"'


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


def _cut(text: str) -> str:
    if len(text) <= MOST_CHARACTERS:
        return text
    return f"{text[:MOST_CHARACTERS]}... ({len(text):,} characters)"


def escape(text: str) -> str:
    """Text for HTML, without characters that a page can not hold or a reader would obey."""
    return html.escape(printable(text, keep="\n\t"))
