"""One thread against two, alternating, the better of two each: text sets and debfiles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness import Case, Result, Table, best, number, ratio

from .intercept import debfiles

SETS = (
    "news20_bydate", "reuters52", "trec50", "banking77", "clinc150", "naics_index", "onet_titles",
    "wordnet_hyper",
)  # fmt: skip
QUICK = {
    "few classes": {"name": "generated", "n": 300, "d": 500, "k": 12, "words": 20},
    "many classes": {"name": "generated", "n": 400, "d": 600, "k": 80, "words": 10},
}
FORMULATIONS = ("cs", "ww", "ovr")
DEBFILES_ROWS = (450_000, 6_500_000)


def problems(quick: bool) -> Iterator[tuple[dict[str, object], str, float]]:
    """Rows, formulation, gap."""
    for data in QUICK.values() if quick else ({"name": name} for name in SETS):
        for formulation in FORMULATIONS:
            yield data, formulation, 1e-3
    for rows in DEBFILES_ROWS:
        yield debfiles(rows, quick), "cs", 1e-2


def cases(quick: bool) -> Iterator[Case]:
    for data, formulation, tol in problems(quick):
        for repeat in range(2):
            for n_jobs in (1, 2):
                params = {"formulation": formulation, "tol": tol, "n_jobs": n_jobs}
                yield Case(data, "memory", params, {}, repeat)


def tables(results: Sequence[Result]) -> dict[str, Table | str]:
    heads = (
        "set", "classes", "one thread, s", "two", "times as fast", "epochs: one", "two",
        "CPU s: one", "two", "gap: one", "two",
    )  # fmt: skip
    rows, sides = [], {}
    for result in best(results):
        params = result.case.params
        sides[str(result.case.data), params["formulation"], params["n_jobs"]] = result
    for (data, formulation, n_jobs), one in sides.items():
        if n_jobs == 1:
            pair = one, sides.get((data, formulation, 2))
            times = [number(run, name) for name in ("epochs", "cpu_seconds", "gap") for run in pair]
            rows.append(
                [name_of(one), number(one, "k"), *map(number, pair), ratio(*pair), *times]
            )  # fmt: skip
    return {"speedup": Table(heads, rows)}


def name_of(result: Result) -> str:
    """Set, rows if not all of them, and formulation."""
    data = result.case.data
    rows = data.get("rows", data.get("n"))
    size = f" {rows:,}" if rows else ""
    return f"{data['name']}{size}, {result.case.params.get('formulation', 'cs').upper()}"
