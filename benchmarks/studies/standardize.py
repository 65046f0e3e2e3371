"""What standardized columns change: sets whose columns differ in scale, and text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness import Case, Result, Table, number

from .threads import QUICK

#: Rows of a set, all if None; of the largest as many as a fit takes seconds for.
SETS = {
    "covtype": 40_000, "mnist": 20_000, "shuttle": None, "letter": None, "satimage": None,
    "usps": None, "vehicle": None, "news20_bydate": None, "reuters52": None,
}  # fmt: skip
KINDS: tuple[bool | str, ...] = (False, "scale", True)


def cases(quick: bool) -> Iterator[Case]:
    sets = list(QUICK.values()) if quick else [named(*item) for item in SETS.items()]
    for data in sets:
        for kind in KINDS:
            params = {"tol": 1e-2, "C": 0.1, "standardize": kind, "max_epochs": 100_000}
            yield Case(data, "memory", params, {"test": True})


def named(name: str, rows: int | None) -> dict[str, object]:
    return {"name": name} if rows is None else {"name": name, "rows": rows}


def tables(results: Sequence[Result]) -> dict[str, Table | str]:
    heads = ("set", "standardize", "solver", "seconds", "epochs", "gap", "peak MB", "accuracy")
    return {"columns": Table(heads, [row(result) for result in results])}


def row(result: Result) -> list[str]:
    kind, accuracy = result.case.params["standardize"], result["accuracy"]
    return [
        str(result.case.data["name"]), str(kind), str(result["solver"] or "-"), number(result),
        number(result, "epochs"), number(result, "gap"), number(result, "peak_bytes", 1e6),
        "-" if accuracy is None else f"{accuracy:.1%}",
    ]  # fmt: skip
