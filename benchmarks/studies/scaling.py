"""More workers than this machine has: fits with many lanes or class groups, replayed on clusters.

See harness/simulation.py: epochs, work and bytes are those of the real fit; only the clock is made
up. The workers measured in the study of Dask (one and two) tell how near it comes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from harness import Case, Result, Table, number

from .intercept import debfiles
from .threads import name_of

LANES = (1, 2, 4, 8, 16, 32, 64)
WORKERS = (1, 2, 4, 8, 16, 32, 64)
ROWS = (450_000, 1_800_000)
GROUPS = (2, 4, 8, 16)


def cases(quick: bool) -> Iterator[Case]:
    method = "simulation:simulated"
    for rows in ROWS[: 1 if quick else 2]:
        for lanes in LANES[: 3 if quick else None]:
            how = {"lanes": lanes} if lanes > 1 else {"lanes": 1, "slices": 1}
            params = {"formulation": "cs", "solver": "shards", "tol": 1e-2, "solver_options": how}
            yield Case(debfiles(rows, quick), method, params, {"workers": list(WORKERS)})
    data = debfiles(450_000, quick) if quick else {"name": "naics_index"}
    for formulation, solver in (("ww", "rounds"), ("llw", "averaging"), ("ovr", "classes")):
        for groups in GROUPS[: 2 if quick else None]:
            params = {
                "formulation": formulation, "solver": solver, "tol": 0, "max_epochs": 3,
                "solver_options": {"groups": groups},
            }  # fmt: skip
            yield Case(data, method, params, {"workers": list(WORKERS[:5])})


def tables(results: Sequence[Result]) -> dict[str, Table | str]:
    lanes = [r for r in results if r.case.params["solver"] == "shards"]
    groups = [r for r in results if r.case.params["solver"] != "shards"]
    heads = ("set, lanes", "epochs", "gap", "s on one worker", *(f"on {w}" for w in WORKERS[1:]))
    rows = [
        [
            f"{name_of(r)}, {r.case.params['solver_options']['lanes']}", number(r, "epochs"),
            number(r, "gap"), *(seconds_on(r, w) for w in WORKERS),
        ]
        for r in lanes
    ]  # fmt: skip
    more = ("set, solver, groups", "epochs", "s on one worker", *(f"on {w}" for w in WORKERS[1:5]))
    by_groups = [
        [
            f"{name_of(r)}, {r.case.params['solver']}, "
            f"{r.case.params['solver_options']['groups']}",
            number(r, "epochs"), *(seconds_on(r, w) for w in WORKERS[:5]),
        ]
        for r in groups
    ]  # fmt: skip
    return {"lanes": Table(heads, rows), "groups": Table(more, by_groups)}


def seconds_on(result: Result, workers: int) -> str:
    found = (result["clusters"] or {}).get(str(workers))
    return "-" if found is None else f"{found['seconds']:.3g}"


def pictures(results: Sequence[Result], folder: Path) -> None:
    """Seconds over workers, a line for each number of lanes."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    lanes = [r for r in results if r.case.params["solver"] == "shards" and r["clusters"]]
    names = list(dict.fromkeys(name_of(r) for r in lanes))
    if not names:
        return
    figure, axes = plt.subplots(1, len(names), figsize=(5.5 * len(names), 4), squeeze=False)
    for axis, name in zip(axes.flat, names, strict=True):
        for r in lanes:
            if name_of(r) == name:
                seconds = {int(w): found["seconds"] for w, found in r["clusters"].items()}
                many = r.case.params["solver_options"]["lanes"]
                axis.plot(list(seconds), list(seconds.values()), "o-", label=f"{many} lanes")
        axis.set(
            title=name, xscale="log", yscale="log", xlabel="workers (replayed)",
            ylabel="seconds to a gap of 1e-2",
        )  # fmt: skip
        axis.set_xticks(WORKERS, [str(w) for w in WORKERS])
        axis.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(folder / "scaling.png", dpi=110)
    plt.close(figure)
