"""Tables and figures of the four papers that the package is made from, beside their numbers.

`docs/papers.md` shows them. Seconds are CPU seconds of one thread unless they say otherwise.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from pathlib import Path

from harness import Case, Result, Table

from . import _alber, _alrajeh, _bordes, _keerthi


def cases(quick: bool) -> Generator[Case, Result | None, None]:
    """Each once, also where two figures show it."""
    seen = set()
    for case in all_cases(quick):
        if case.key not in seen:
            seen.add(case.key)
            yield case


def all_cases(quick: bool) -> Iterator[Case]:
    yield from _alber.cases(quick)
    yield from _bordes.cases(quick)
    yield from _alrajeh.cases(quick)
    yield from _keerthi.cases(quick)
    yield from _keerthi.split_cases(quick)
    yield from _alber.dask_cases(quick)


def tables(results: Sequence[Result]) -> dict[str, Table | str]:
    return {
        **_keerthi.tables(results), **_alber.tables(results), **_bordes.tables(results),
        **_alrajeh.tables(results),
    }  # fmt: skip


def pictures(results: Sequence[Result], folder: Path) -> None:
    for part in (_keerthi, _alber, _bordes, _alrajeh):
        part.pictures(results, folder)
