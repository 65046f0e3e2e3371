"""Fits on Dask beside one thread in memory: debfiles, onet_titles, 52 million generated nonzeros.

All to a gap of 1e-2; workers are processes and read their chunks themselves, while a clock runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness import Case, Result, Table, number, ratio

from .intercept import MB, debfiles
from .threads import name_of

ROWS = (450_000, 1_800_000, 6_500_000)
#: Workers and threads of each.
CLUSTERS = {"one worker": (1, 1), "two workers": (2, 1), "one worker of two threads": (1, 2)}
GENERATED = {"name": "generated", "n": 400_000, "d": 100_000, "k": 20, "words": 160, "parts": 8}


def sets(quick: bool) -> list[dict[str, object]]:
    if quick:
        return [debfiles(450_000, quick)]
    return [debfiles(rows, quick) for rows in ROWS] + [{"name": "onet_titles"}, GENERATED]


def cases(quick: bool) -> Iterator[Case]:
    for data in sets(quick):
        for formulation in ("cs", "ww"):
            params = {"formulation": formulation, "tol": 1e-2}
            yield Case(data, "memory", params)
            for workers, threads in CLUSTERS.values():
                yield Case(data, "dask", params, {"workers": workers, "threads": threads})


def tables(results: Sequence[Result]) -> dict[str, Table | str]:
    local = {name_of(r): r for r in results if r.case.method == "memory"}
    seconds = [
        [
            f"{name_of(r)}, {place(r)}", number(r), ratio(local.get(name_of(r)), r),
            number(r, "epochs"), number(r, "gap"), number(r, "cpu_seconds"),
            number(r, "sent_bytes", MB), number(r, "tasks"), number(r, "peak_bytes", MB),
        ]
        for r in results
    ]  # fmt: skip
    heads = (
        "set, where", "seconds", "times as fast as memory", "epochs", "gap", "CPU s", "MB sent",
        "tasks", "peak MB of a worker",
    )  # fmt: skip
    return {"seconds": Table(heads, seconds), "tasks": task_table(results)}


def task_table(results: Sequence[Result]) -> Table:
    """Seconds inside tasks of all workers, by kind."""
    rows = [
        [f"{name_of(r)}, {place(r)}", kind, f"{spent:.2f}"]
        for r in results
        for kind, spent in sorted((r["task_seconds"] or {}).items(), key=lambda item: -item[1])
        if spent >= 0.01 * r["seconds"]
    ]
    return Table(("set, where", "kind of task", "seconds"), rows)


def place(result: Result) -> str:
    options = result.case.options
    sizes = options.get("workers"), options.get("threads")
    return next((name for name, given in CLUSTERS.items() if given == sizes), "memory")
