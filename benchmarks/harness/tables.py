"""Tables of a study, as Markdown, and the places in README and docs that show them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from .case import DONE, FAILED, OVER, Result

ROOT = Path(__file__).parents[2]
PLACE = re.compile(r"<!-- study:(\w+):(\w+) -->\n(.*?)<!-- /study -->", re.DOTALL)


class Table(NamedTuple):
    """Heads and rows of cells; the first column is words, the others are numbers."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]


def best(results: Iterable[Result], by: str = "seconds") -> list[Result]:
    """The fastest of each case that was repeated, of those that arrived if any did."""
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(replace(result.case, repeat=0).key, []).append(result)
    return [min(group, key=lambda r: (r.status != DONE, r[by] or 0.0)) for group in groups.values()]


def number(result: Result | None, name: str = "seconds", unit: float = 1.0) -> str:
    """A cell: three digits; ">" before a time or a count at which a case gave up."""
    if result is None:
        return "-"
    if result.status == FAILED:
        return "failed"
    value = result[name]
    is_open = result.status == OVER and name in ("seconds", "cpu_seconds", "epochs")
    if value is None:
        return f"> {result.limit:g}" if is_open and name != "epochs" else "-"
    if name == "gap":
        return f"{value:.1e}"
    return "> " * is_open + digits(value / unit)


def digits(value: float) -> str:
    """Three digits, never an exponent."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{float(f'{value:.3g}'):g}"


def ratio(one: Result | None, other: Result | None, name: str = "seconds") -> str:
    """How many times as large the first is; nothing where one of them gave up."""
    if one is None or other is None or not one.status == other.status == DONE:
        return "-"
    return f"{one[name] / other[name]:.2f}"


def markdown(study: str, table: Table | str, results: Sequence[Result]) -> str:
    """A table, or a sentence of a study, and below it the command and the machine."""
    if isinstance(table, str):
        return table + "\n"
    if not table.rows:
        return f"Not measured yet: `python benchmarks/run.py {study}`.\n"
    lines = [table.heads, *table.rows]
    widths = [max(3, *map(len, column)) for column in zip(*lines, strict=True)]
    rule = [":" + "-" * (widths[0] - 1), *("-" * (width - 1) + ":" for width in widths[1:])]
    text = []
    for first, *rest in [table.heads, rule, *table.rows]:
        cells = [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
        text.append("| " + " | ".join([first.ljust(widths[0]), *cells]) + " |")
    return "\n".join(text) + f"\n\n{_source(study, results)}\n"


def _source(study: str, results: Sequence[Result]) -> str:
    told = [result.environment for result in results]
    cpus = sorted({f"{cores_of(env)} of {env['cpu']}" for env in told})
    commits = sorted({str(env["commit"]) for env in told})
    days = sorted({env["date"][:10] for env in told})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    return (
        f"`python benchmarks/run.py {study}`, {'; '.join(cpus)}, {when}, "
        f"commit {', '.join(commits)}."
    )


def cores_of(env: dict[str, Any]) -> str:
    """How many cores a measurement had."""
    return f"{env['usable_cores']} core{'s' * (env['usable_cores'] != 1)}"


def pages() -> list[Path]:
    """Where tables may stand."""
    docs = ROOT / "docs"
    return [ROOT / "README.md", *sorted(docs.glob("*.md")), *sorted(docs.glob("decisions/*.md"))]


def write_places(study: str, texts: Mapping[str, str], page: Path) -> list[str]:
    """Put the tables of a study where a page has places for them; the names of those written."""
    old, written = page.read_text("utf-8"), []

    def fill(place: re.Match[str]) -> str:
        if place[1] != study:
            return place[0]
        written.append(place[2])
        return f"<!-- study:{study}:{place[2]} -->\n{texts[place[2]]}<!-- /study -->"

    new = PLACE.sub(fill, old)
    if new != old:
        page.write_text(new, "utf-8")
    return written
