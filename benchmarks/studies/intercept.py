"""What an intercept costs on millions of real rows: Crammer-Singer on debfiles to a gap of 1e-2."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness import Case, Result, Table, number, ratio

ROWS = (450_000, 1_800_000, 6_500_000)
#: None: no intercept.
TAUS = (None, 1.0, 10.0, 100.0)
MB = 1e6


def debfiles(rows: int, quick: bool) -> dict[str, object]:
    """The first rows of debfiles by sections; to try a study a thousandth of that, generated."""
    if quick:
        return {"name": "generated", "n": rows // 1000, "d": 400, "k": 6, "words": 12, "parts": 3}
    return {"name": "debfiles", "rows": rows, "labels": "section"}


def cases(quick: bool) -> Iterator[Case]:
    for rows in ROWS:
        for tau in TAUS:
            params = {"fit_intercept": False} if tau is None else {"intercept_scaling": tau}
            yield Case(debfiles(rows, quick), "memory", {"tol": 1e-2} | params, {"test": True})


def tables(results: Sequence[Result]) -> dict[str, Table | str]:
    heads = (
        "rows, intercept", "epochs", "of none", "seconds", "of none", "seconds an epoch", "gap",
        "peak MB beyond rows", "accuracy",
    )  # fmt: skip
    plain = {r["n"]: r for r in results if not r.case.params.get("fit_intercept", True)}
    return {"cost": Table(heads, [row(r, plain.get(r["n"])) for r in results])}


def row(result: Result, none: Result | None) -> list[str]:
    tau = result.case.params.get("intercept_scaling")
    rows = result.case.data.get("rows", result.case.data.get("n"))
    name = "none" if tau is None else f"tau = {tau:g}"
    if result["epochs"] is None:
        return [f"{rows:,}, {name}", *["-"] * 2, number(result), *["-"] * 5]
    return [
        f"{rows:,}, {name}", number(result, "epochs"), ratio(result, none, "epochs"),
        number(result), ratio(result, none), f"{result['seconds'] / result['epochs']:.2f}",
        number(result, "gap"), number(result, "peak_bytes", MB), f"{result['accuracy']:.2%}",
    ]  # fmt: skip
