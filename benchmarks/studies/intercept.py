"""What an intercept costs on millions of real rows: Crammer-Singer on debfiles to a gap of 1e-2.

In memory, and on Dask with one worker, where only epochs are compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness import Case, Result, Table, number, ratio

ROWS = (450_000, 1_800_000, 6_500_000)
#: None: no intercept.
TAUS = (None, 1.0, 10.0, 100.0)
#: Of fits on Dask: rows, and intercepts as above.
ON_DASK = tuple((rows, tau) for rows in ROWS[:2] for tau in TAUS[:2])
MB = 1e6


def debfiles(rows: int, quick: bool) -> dict[str, object]:
    """The first rows of debfiles by sections; to try a study a thousandth of that, generated."""
    if quick:
        return {"name": "generated", "n": rows // 1000, "d": 400, "k": 6, "words": 12, "parts": 3}
    return {"name": "debfiles", "rows": rows, "labels": "section"}


def cases(quick: bool) -> Iterator[Case]:
    for rows in ROWS:
        for tau in TAUS:
            yield Case(debfiles(rows, quick), "memory", params_of(tau), {"test": True})
    for rows, tau in ON_DASK[: 2 if quick else None]:
        yield Case(debfiles(rows, quick), "dask", params_of(tau), {"workers": 1, "threads": 1})


def params_of(tau: float | None) -> dict[str, object]:
    intercept = {"fit_intercept": False} if tau is None else {"intercept_scaling": tau}
    return {"tol": 1e-2} | intercept


def tables(results: Sequence[Result]) -> dict[str, Table | str]:
    heads = (
        "rows, intercept", "epochs", "of none", "seconds", "of none", "seconds an epoch", "gap",
        "peak MB beyond rows", "accuracy",
    )  # fmt: skip
    plain = {
        (r["n"], r.case.method): r for r in results if not r.case.params.get("fit_intercept", True)
    }
    pairs = [(r, plain.get((r["n"], r.case.method))) for r in results]
    on_dask = [
        [name_of(r), number(r, "epochs"), ratio(r, none, "epochs"), number(r, "gap")]
        for r, none in pairs
        if r.case.method == "dask"
    ]
    return {
        "cost": Table(heads, [row(r, none) for r, none in pairs if r.case.method == "memory"]),
        "dask": Table((*heads[:3], "gap"), on_dask),
    }


def name_of(result: Result) -> str:
    tau = result.case.params.get("intercept_scaling")
    rows = result.case.data.get("rows", result.case.data.get("n"))
    return f"{rows:,}, none" if tau is None else f"{rows:,}, tau = {tau:g}"


def row(result: Result, none: Result | None) -> list[str]:
    name = name_of(result)
    if result["epochs"] is None:
        return [name, *["-"] * 2, number(result), *["-"] * 5]
    return [
        name, number(result, "epochs"), ratio(result, none, "epochs"),
        number(result), ratio(result, none), f"{result['seconds'] / result['epochs']:.2f}",
        number(result, "gap"), number(result, "peak_bytes", MB), f"{result['accuracy']:.2%}",
    ]  # fmt: skip
