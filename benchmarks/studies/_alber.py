"""Alber et al. (2017): tables 1, 3, 4, 5 and figures 2 and 3.

The LSHTC sets could not be had: O*NET titles, the NAICS index and WordNet's hypernyms stand in
their places, and for LSHTC-small as many rows of the NAICS index. C is a power of 10.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from harness import Case, Result, Table, number
from harness.data import Places
from harness.measure import Watch

import numpy as np  # isort: skip, after what sets the folder of compiled code

from dask_mcsvm import LinearMCSVC

from ._keerthi import LONG as THREE
from ._keerthi import draw
from ._sets import compare, rare_f1, rows_of
from .threads import QUICK

Found = dict[str, Any]
LONG = THREE | {"llw": "lee_lin_wahba"}
#: Sets of table 1 that there are, their scales, and the paper's errors and densities in %, D-LLW
#: and D-WW, by log C.
SMALL = {
    "glass": ("none", ((66.67, 100.0), (61.90, 100.0), (33.33, 100.0)),
              ((38.10, 100.0), (19.05, 100.0), (19.05, 100.0))),
    "iris": ("length", ((13.33, 100.0), (26.67, 100.0), (26.67, 100.0)),
             ((6.67, 100.0), (13.33, 100.0), (13.33, 100.0))),
    "letter": ("deviation", ((87.04, 100.0), (87.24, 100.0), (61.91, 100.0)),
               ((28.25, 100.0), (29.04, 100.0), (28.92, 100.0))),
    "news20_bydate": ("length", ((29.23, 97.24), (22.97, 97.24), (16.15, 97.17)),
                      ((15.32, 51.16), (14.80, 44.74), (15.98, 45.97))),
    "satimage": ("deviation", ((26.75, 100.0), (26.80, 100.0), (26.90, 100.0)),
                 ((15.80, 100.0), (15.47, 100.0), (15.96, 100.0))),
    "usps": ("none", ((31.84, 100.0), (30.09, 100.0), (28.00, 100.0)),
             ((8.17, 100.0), (9.37, 100.0), (10.51, 100.0))),
}  # fmt: skip
LOGS = (-1, 0, 1)
MANY = {
    "LSHTC-small": {"name": "naics_index", "rows": 4463},
    "naics_index": {"name": "naics_index"},
    "onet_titles": {"name": "onet_titles"},
    "wordnet_hyper": {"name": "wordnet_hyper"},
}
MANY_LOGS = (-3, -2, -1, 0, 1)
#: Tables 3 and 4 of the paper, LSHTC-small: error, density, macro F1, by log C.
PAPER = {
    "ovr": ((93.00, 92.74, 0.61), (85.36, 81.54, 2.70), (74.54, 46.76, 8.72),
            (64.37, 38.20, 16.42), (57.75, 38.63, 25.09)),
    "cs": ((59.74, 11.11, 22.08), (59.74, 11.13, 22.08), (59.74, 11.12, 22.08),
           (55.49, 11.76, 26.70), (54.57, 11.69, 28.73)),
    "ww": ((72.82, 69.73, 10.73), (65.34, 16.44, 16.15), (57.59, 6.06, 24.71),
           (54.57, 5.74, 28.75), (54.41, 5.73, 29.15)),
    "llw": ((93.00, 92.74, 0.61),) * 5,
}  # fmt: skip
LARGE_LOGS = (2, 3, 4)
#: Table 5 of the paper: error, macro F1, density of W, density of alpha.
LARGE = {2: (87.73, 2.08, 92.74, 99.88), 3: (66.74, 15.07, 92.74, 99.87),
         4: (59.31, 24.58, 92.74, 99.90)}  # fmt: skip
SOLVERS = {"ww": "rounds", "llw": "averaging", "ovr": "classes"}


def cases(quick: bool) -> Iterator[Case]:
    for name, (scale, *_) in SMALL.items():
        data = QUICK["few classes"] if quick else {"name": name}
        for formulation in ("llw", "ww"):
            yield path(data, formulation, LOGS, 1e-3, scale="none" if quick else scale)
        if quick:
            return
    for name, data in MANY.items():
        for formulation in ("cs", "ovr", "ww", "llw"):
            if name != "wordnet_hyper" or formulation != "llw":  # 2.6 GB of variables
                tol = 1e-2 if name == "wordnet_hyper" else 1e-3
                yield path(data, formulation, MANY_LOGS, tol)
    yield path(MANY["LSHTC-small"], "llw", LARGE_LOGS, 1e-2)


def dask_cases(quick: bool) -> Iterator[Case]:
    """Figure 2: ten epochs on one worker and on two; a quiet machine is needed."""
    data = QUICK["few classes"] if quick else MANY["LSHTC-small"]
    for formulation, solver in SOLVERS.items():
        for workers in (1, 2):
            params = {
                "formulation": LONG[formulation], "solver": solver, "tol": 0, "max_epochs": 10,
                "fit_intercept": False,
            }  # fmt: skip
            options = {"workers": workers, "threads": 1, "chunks": 2}
            yield Case(data, "dask", params, options)


def path(
    data: Found, formulation: str, logs: Sequence[int], tol: float, scale: str = "none"
) -> Case:
    params = {"formulation": formulation, "logs": list(logs), "tol": tol}
    return Case(data, "_alber:fits", params, {"scale": scale})


def fits(case: Case, places: Places, limit: float) -> Found:
    """A fit for each C, each from the start; CPU seconds, and what the test rows say."""
    X, y, X_test, y_test = rows_of(case, places)
    given, rows = case.params, []
    with Watch(10 * limit) as watch:
        for log in given["logs"]:
            seconds = limit / len(given["logs"])
            model = LinearMCSVC(
                formulation=LONG[given["formulation"]], C=10.0**log, tol=given["tol"],
                fit_intercept=False, random_state=0, max_epochs=10**6,
                callbacks=(lambda record, most=seconds: record["seconds"] > most,),
            )  # fmt: skip
            if not rows:
                model.set_params(max_epochs=1).fit(X, y).set_params(max_epochs=10**6)
            begun = time.process_time()
            model.fit(X, y)
            spent = time.process_time() - begun
            predicted = model.predict(X_test)
            rows.append({
                "log": log, "seconds": spent, "gap": model.gap_, "epochs": model.n_iter_,
                "stopped": model.stop_ == "callback", "density": model.density_,
                "dual_density": model.dual_density_, "rare_f1": rare_f1(y_test, predicted, y),
                **compare(y_test, predicted),
            })  # fmt: skip
    return watch.found | {"rows": rows, "n": int(y.size), "k": int(np.unique(y).size)}


# -- what is shown ---------------------------------------------------------------------------------


def of(results: Sequence[Result], data: Found, formulation: str, logs: Sequence[int]) -> Found:
    """By log C, what the fits of a formulation found."""
    for r in results:
        if r.case.data != data or r.case.method != "_alber:fits" or not r["rows"]:
            continue
        given = r.case.params
        if given["formulation"] == formulation and given["logs"] == list(logs):
            return {row["log"]: row for row in r["rows"]}
    return {}


def cell(row: Found | None, name: str) -> str:
    if row is None or row.get(name) is None:
        return "-"
    mark = "> " if row["stopped"] and name == "seconds" else ""
    return mark + (f"{row[name]:.3g}" if name == "seconds" else f"{100 * row[name]:.2f}")


def gap(row: Found | None) -> str:
    return "-" if row is None else f"{row['gap']:.0e}" + " !" * row["stopped"]


def tables(results: Sequence[Result]) -> dict[str, Table]:
    return {
        "alber_small": small(results), "alber_large_c": large(results),
        "alber_many": many(results), "alber_paper": paper(results),
        "alber_workers": workers(results), "formulations": formulations(results),
    }  # fmt: skip


def small(results: Sequence[Result]) -> Table:
    """Table 1."""
    heads = ("set, log C", "LLW: error", "paper", "density", "paper", "gap", "WW: error", "paper",
             "density", "paper", "gap")  # fmt: skip
    rows = []
    for name, (_, *papers) in SMALL.items():
        found = [of(results, {"name": name}, f, LOGS) for f in ("llw", "ww")]
        for place, log in enumerate(LOGS):
            cells = []
            for one, theirs in zip(found, papers, strict=True):
                row = one.get(log)
                error, density = theirs[place]
                cells += [cell(row, "error"), f"{error:.2f}", cell(row, "density"),
                          f"{density:.2f}", gap(row)]  # fmt: skip
            if any(found):
                rows.append([f"{name}, {log}", *cells])
    return Table(heads, rows)


def many(results: Sequence[Result]) -> Table:
    """Tables 3 and 4 and figure 3: ours."""
    heads = ("set, log C, formulation", "error", "macro F1", "F1 of rare", "density",
             "CPU seconds", "gap")  # fmt: skip
    rows = []
    for name, data in MANY.items():
        for log in MANY_LOGS:
            for formulation in LONG:
                row = of(results, data, formulation, MANY_LOGS).get(log)
                names = ("error", "macro_f1", "rare_f1", "density", "seconds")
                if row is not None:
                    cells = [cell(row, column) for column in names]
                    rows.append([f"{name}, {log}, {formulation.upper()}", *cells, gap(row)])
    return Table(heads, rows)


def paper(results: Sequence[Result]) -> Table:
    """Ours on rows like LSHTC-small beside the paper's of LSHTC-small itself."""
    heads = ("log C", *(f"{f.upper()}: {what}" for f in PAPER
                        for what in ("error", "paper", "density", "paper")))  # fmt: skip
    rows = []
    found = {f: of(results, MANY["LSHTC-small"], f, MANY_LOGS) for f in PAPER}
    for place, log in enumerate(MANY_LOGS):
        cells = []
        for formulation, theirs in PAPER.items():
            row = found[formulation].get(log)
            cells += [cell(row, "error"), f"{theirs[place][0]:.2f}", cell(row, "density"),
                      f"{theirs[place][1]:.2f}"]  # fmt: skip
        if any(found.values()):
            rows.append([str(log), *cells])
    return Table(heads, rows)


def large(results: Sequence[Result]) -> Table:
    """Table 5."""
    heads = ("log C", "error", "paper", "macro F1", "paper", "density of W", "paper",
             "density of alpha", "paper", "gap", "CPU seconds")  # fmt: skip
    found, rows = of(results, MANY["LSHTC-small"], "llw", LARGE_LOGS), []
    for log, theirs in LARGE.items():
        row = found.get(log)
        cells = []
        names = ("error", "macro_f1", "density", "dual_density")
        for name, their in zip(names, theirs, strict=True):
            cells += [cell(row, name), f"{their:.2f}"]
        if row is not None:
            rows.append([str(log), *cells, gap(row), cell(row, "seconds")])
    return Table(heads, rows)


def workers(results: Sequence[Result]) -> Table:
    """Figure 2."""
    heads = ("formulation, solver", "one worker: s", "two workers: s", "times as fast")
    found = {
        (r.case.params["solver"], r.case.options["workers"]): r
        for r in results if r.case.method == "dask" and r["seconds"]
    }  # fmt: skip
    rows = []
    for formulation, solver in SOLVERS.items():
        one, two = found.get((solver, 1)), found.get((solver, 2))
        if one is not None and two is not None:
            times = f"{one['seconds'] / two['seconds']:.2f}"
            label = f"{formulation.upper()}, {solver}"
            rows.append([label, number(one), number(two), times])
    return Table(heads, rows)


def formulations(results: Sequence[Result]) -> Table:
    """At the best C of each formulation: what docs/formulations.md rests on."""
    heads = ("set, formulation", "classes", "best log C", "accuracy", "macro F1", "F1 of rare",
             "density", "CPU seconds")  # fmt: skip
    rows = []
    for r in results:
        if r.case.method == "_alber:fits" and r["rows"] and r.case.params["logs"][0] == -3:
            best = min(r["rows"], key=lambda row: row["error"])
            name = next(n for n, data in MANY.items() if data == r.case.data)
            name = "naics_index, 4,463 rows" if name == "LSHTC-small" else name
            rows.append([
                f"{name}, {r.case.params['formulation'].upper()}", number(r, "k"),
                str(best["log"]), f"{1 - best['error']:.2%}",
                *(cell(best, column) for column in ("macro_f1", "rare_f1", "density", "seconds")),
            ])  # fmt: skip
    return Table(heads, rows)


def pictures(results: Sequence[Result], folder: Path) -> None:
    """Figure 3, and error and density over C."""
    panels = []
    for name, data in MANY.items():
        for column, label, factor in (
            ("seconds", "CPU seconds", 1.0), ("error", "error, %", 100.0),
            ("density", "density, %", 100.0),
        ):  # fmt: skip
            lines = []
            for formulation in LONG:
                found = of(results, data, formulation, MANY_LOGS)
                if found:
                    up = [factor * row[column] for row in found.values()]
                    lines.append((formulation.upper(), [10.0**log for log in found], up))
            if lines:
                panels.append((name, lines, label))
    if panels:
        draw(folder / "papers-many-classes.png", panels, 3, "C")
