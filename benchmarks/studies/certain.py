"""How many test labels are certain to be the exact optimum's, by the gap that a fit stopped at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness import Case, Result, Table, number

from .threads import QUICK

SETS = ("news20_bydate", "reuters52", "banking77", "naics_index")
TOLS = (1e-3, 1e-5, 1e-7)


def cases(quick: bool) -> Iterator[Case]:
    for data in QUICK.values() if quick else ({"name": name} for name in SETS):
        for tol in TOLS:
            yield Case(data, "memory", {"tol": tol, "dtype": "float64"}, {"test": True})


def tables(results: Sequence[Result]) -> dict[str, Table | str]:
    heads = ("set", "classes", "tol", "certain", "accuracy", "epochs", "seconds")
    return {"share": Table(heads, [row(result) for result in results])}


def row(result: Result) -> list[str]:
    shares = [f"{result[name]:.1%}" if result[name] is not None else "-" for name in SHARES]
    name, tol = str(result.case.data["name"]), f"{result.case.params['tol']:.0e}"
    return [name, number(result, "k"), tol, *shares, number(result, "epochs"), number(result)]


SHARES = ("certain", "accuracy")
