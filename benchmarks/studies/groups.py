"""Solvers by class groups on one and on two workers: onet_titles, four groups.

Rounds (Weston-Watkins), averaging (Lee-Lin-Wahba), classes (one-vs-rest) and exchange
(Crammer-Singer): the seconds of equal epochs, and those to a gap of 1e-2 beside shards, which cut
the rows instead. Exchange also trains the 10,735 classes of wordnet_hyper.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness import Case, Result, Table, number

from .dask import task_table
from .intercept import MB
from .threads import QUICK

SOLVERS = {"rounds": "ww", "averaging": "llw", "classes": "ovr", "exchange": "cs"}
GROUPS, EPOCHS, TOL = 4, 5, 1e-2
#: Its W takes 1.5 GB, which come to the client.
MANY = {"name": "wordnet_hyper"}
OF_MANY = {
    "formulation": "cs", "solver": "exchange", "solver_options": {"groups": GROUPS}, "tol": TOL,
    "memory_limit": "2GB",
}  # fmt: skip


def cases(quick: bool) -> Iterator[Case]:
    data = QUICK["many classes"] | {"parts": 2} if quick else {"name": "onet_titles"}
    for solver, formulation in SOLVERS.items():
        cut = {"formulation": formulation, "solver": solver, "solver_options": {"groups": GROUPS}}
        whole = {"formulation": formulation, "solver": "shards", "tol": TOL}
        for params in (cut | {"tol": 0, "max_epochs": EPOCHS}, cut | {"tol": TOL}, whole):
            for workers in (1, 2):
                yield Case(data, "dask", params, {"workers": workers, "threads": 1})
    if not quick:
        for workers in (1, 2):
            yield Case(MANY, "dask", OF_MANY, {"workers": workers, "threads": 1})


def tables(results: Sequence[Result]) -> dict[str, Table | str]:
    """Equal epochs, and time to the gap."""
    equal = [r for r in results if r.case.params["tol"] == 0]
    to_gap = [r for r in results if r.case.params["tol"]]
    heads = ("solver", "one worker, s", "two", "times as fast", "epochs: one", "two",
             "MB sent: one", "two")  # fmt: skip
    return {
        "epochs": Table(heads, pairs(equal, "epoch_seconds")),
        "gap": Table(heads, pairs(to_gap, "seconds")),
        "cs": Table(heads, pairs([r for r in to_gap if r.case.params["formulation"] == "cs"],
                                 "seconds")),
        "tasks": task_table(
            "solver, workers", equal, lambda r: f"{name_of(r)}, {r.case.options['workers']}"
        ),
    }


def pairs(results: Sequence[Result], clock: str) -> list[list[str]]:
    sides = {(str(r.case.params), r.case.options["workers"]): r for r in results}
    rows = []
    for (params, workers), one in sides.items():
        if workers == 1:
            two = sides.get((params, 2))
            both = bool(one[clock] and two and two[clock])
            speed = f"{one[clock] / two[clock]:.2f}" if both and two else "-"
            more = [number(r, *w) for w in (("epochs",), ("sent_bytes", MB)) for r in (one, two)]
            rows.append([name_of(one), number(one, clock), number(two, clock), speed, *more])
    return rows


def name_of(result: Result) -> str:
    params, data = result.case.params, result.case.data
    name = f"{params['formulation'].upper()} {params['solver']}"
    return f"{name}, {data['name']}" if data == MANY else name
