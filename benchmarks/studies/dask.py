"""Fits on Dask beside one thread in memory: debfiles, text sets, 52 million generated nonzeros.

All to a gap of 1e-2; workers are processes and read their chunks themselves, while a clock runs.
Last come equal epochs of an equal plan of two lanes, on one and on two workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from harness import Case, Result, Table, number, ratio

from .intercept import MB, debfiles
from .threads import name_of

ROWS = (450_000, 1_800_000, 6_500_000)
#: Workers and threads of each.
CLUSTERS = {"one worker": (1, 1), "two workers": (2, 1), "one worker of two threads": (1, 2)}
EPOCHS = 4
GENERATED = {"name": "generated", "n": 400_000, "d": 100_000, "k": 20, "words": 160, "parts": 8}


def sets(quick: bool) -> list[dict[str, object]]:
    if quick:
        return [debfiles(450_000, quick)]
    text = [{"name": "news20_bydate"}, {"name": "onet_titles"}]
    return [*(debfiles(rows, quick) for rows in ROWS), *text, GENERATED]


def cases(quick: bool) -> Iterator[Case]:
    for data in sets(quick):
        for formulation in ("cs", "ww"):
            params = {"formulation": formulation, "tol": 1e-2}
            yield Case(data, "memory", params)
            for workers, threads in CLUSTERS.values():
                yield Case(data, "dask", params, {"workers": workers, "threads": threads})
    for workers in (1, 2):
        equal = {"tol": 0, "max_epochs": EPOCHS, "solver_options": {"lanes": 2, "slices": 4}}
        data = debfiles(450_000, quick) if quick else GENERATED
        yield Case(data, "dask", equal, {"workers": workers, "threads": 1})


def tables(results: Sequence[Result]) -> dict[str, Table | str]:
    equal = [r for r in results if not r.case.params["tol"]]
    to_gap = [r for r in results if r.case.params["tol"]]
    local = {name_of(r): r for r in to_gap if r.case.method == "memory"}
    seconds = [
        [
            f"{name_of(r)}, {place(r)}", number(r), ratio(local.get(name_of(r)), r),
            number(r, "epochs"), number(r, "gap"), number(r, "cpu_seconds"),
            number(r, "sent_bytes", MB), number(r, "tasks"), number(r, "peak_bytes", MB),
        ]
        for r in to_gap
    ]  # fmt: skip
    heads = (
        "set, where", "seconds", "times as fast as memory", "epochs", "gap", "CPU s", "MB sent",
        "tasks", "peak MB of a worker",
    )  # fmt: skip
    lanes = ("workers, two lanes", "seconds of the epochs", "epochs", "MB sent")
    rows = [
        [place(r), number(r, "epoch_seconds"), number(r, "epochs"), number(r, "sent_bytes", MB)]
        for r in equal
    ]
    return {
        "seconds": Table(heads, seconds),
        "tasks": task_table("set, where", to_gap, lambda r: f"{name_of(r)}, {place(r)}"),
        "lanes": Table(lanes, rows),
    }


def task_table(head: str, results: Sequence[Result], name: Callable[[Result], str]) -> Table:
    """Seconds inside tasks of all workers, by kind: those of at least a hundredth of all."""
    rows = [
        [name(r), kind, f"{spent:.2f}"]
        for r in results
        for kind, spent in sorted((r["task_seconds"] or {}).items(), key=lambda item: -item[1])
        if spent >= 0.01 * sum(r["task_seconds"].values())
    ]
    return Table((head, "kind of task", "seconds"), rows)


def place(result: Result) -> str:
    options = result.case.options
    sizes = options.get("workers"), options.get("threads")
    return next((name for name, given in CLUSTERS.items() if given == sizes), "memory")
