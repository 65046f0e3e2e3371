"""Run a study, show its tables, or write them into README and docs.

    python benchmarks/run.py intercept --data-dir DATA --debfiles DIR
    python benchmarks/run.py intercept --show
    python benchmarks/run.py intercept --docs

Each case runs in a process of its own and is kept in benchmarks/results/NAME.jsonl as soon as it is
done: a run that was interrupted goes on where it stopped. --quick runs the study on generated rows
in a minute or two, into a file of its own.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from harness.case import FAILED, Case, Result, Results
from harness.child import main as child_main
from harness.child import measure
from harness.data import Places, UnknownDatasetError
from harness.measure import environment
from harness.tables import ROOT, markdown, pages, write_places

HERE = Path(__file__).parent


def main(arguments: list[str] | None = None) -> int:
    """The command; returns the exit status."""
    given = parse(arguments)
    if given.child:
        child_main(given.child)
        return 0
    if not (given.show or given.docs):
        status = run(given)
        show(given)
        return status
    show(given)
    if given.docs:
        write(given)
    return 0


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("study", nargs="?", choices=studies(), metavar="NAME", help=f"of {', '.join(studies())}")
    add("--data-dir", default=os.environ.get("DASK_MCSVM_DATA"), metavar="DIR",
        help="folder of .npz sets; default: $DASK_MCSVM_DATA")  # fmt: skip
    add("--debfiles", metavar="DIR", help="parts of debfiles; default: DATA/debfiles")
    add("--results", type=Path, default=HERE / "results", metavar="DIR")
    add("--quick", action="store_true", help="generated rows, a minute or two")
    add("--only", metavar="TEXT", help="only cases whose line of progress contains this")
    add("--limit", type=float, default=900.0, metavar="SECONDS", help="of one fit; default 900")
    add("--again", action="store_true", help="measure finished cases again")
    add("--same-commit", action="store_true", help="again, if measured at another commit")
    add("--show", action="store_true", help="print the tables of what there is, run nothing")
    add("--docs", action="store_true", help="also write them where README and docs have places")
    add("--child", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.study is None and given.child is None:
        parser.error(f"type the name of a study: {', '.join(studies())}")
    given.places = Places(given.data_dir, given.debfiles)
    return given


def studies() -> list[str]:
    return sorted(path.stem for path in (HERE / "studies").glob("[a-z]*.py"))


def run(given: argparse.Namespace) -> int:
    """Measure every case that is not finished."""
    study = import_module(f"studies.{given.study}")
    store = results_of(given.study, given)
    planned = collect(study, given.quick, lambda case: planned_check(case, given.places))
    commit = environment()["commit"] if given.same_commit else None
    done: list[Case] = []
    failed = 0

    def finish(case: Case) -> Result | None:
        nonlocal failed
        done.append(case)
        old = store.read().get(case.key)
        is_wanted = given.only is None or given.only in str(case)
        if not is_wanted or (old and old.is_final(given.limit, commit) and not given.again):
            return old
        print(f"[{len(done)}/{max(planned, len(done))}] {case}", file=sys.stderr, flush=True)
        result = measure(case, given.places, given.limit)
        seconds, error = result["seconds"], result["error"] or ""
        took = f" {seconds:.2f} s" if seconds is not None else ""
        print(f"    {result.status}{took} {error}", file=sys.stderr, flush=True)
        store.add(result)
        failed += result.status == FAILED
        return result

    collect(study, given.quick, finish)
    return 1 if failed else 0


def planned_check(case: Case, places: Places) -> None:
    """Refuse a study whose rows are not there before anything runs."""
    try:
        places.files(case.data["name"])
    except UnknownDatasetError as error:
        raise SystemExit(f"run.py: {error}") from None


def collect(study: Any, quick: bool, finish: Callable[[Case], Result | None]) -> int:
    """Drive the generator of cases with their results; how many cases there were."""
    cases, count = study.cases(quick), 0
    try:
        case = next(cases)
        while True:
            count += 1
            case = cases.send(finish(case))
    except StopIteration:
        return count


def results_of(name: str, given: argparse.Namespace) -> Results:
    return Results(given.results / f"{name}{'.quick' * given.quick}.jsonl")


def texts(name: str, given: argparse.Namespace) -> dict[str, str]:
    """The tables of a study as Markdown, by their names."""
    study = import_module(f"studies.{name}")
    found = stored(name, given)
    return {title: markdown(name, t, found) for title, t in study.tables(found).items()}


def stored(name: str, given: argparse.Namespace) -> list[Result]:
    """Results of the cases that the study has now, in their order, and of those it reads."""
    study, found = import_module(f"studies.{name}"), list[Result]()
    for other in getattr(study, "READS", ()):
        found += stored(other, given)
    kept = results_of(name, given).read()

    def known(case: Case) -> Result | None:
        result = kept.get(case.key)
        found.extend([result] if result else [])
        return result

    collect(study, given.quick, known)
    return found


def show(given: argparse.Namespace) -> None:
    for title, text in texts(given.study, given).items():
        print(f"{given.study}: {title}\n\n{text}", flush=True)


def write(given: argparse.Namespace) -> None:
    """Tables and pictures into README and docs."""
    made = texts(given.study, given)
    for page in pages():
        for name in write_places(given.study, made, page):
            print(f"{page.relative_to(ROOT)}: {name}")
    study = import_module(f"studies.{given.study}")
    if hasattr(study, "pictures"):
        study.pictures(stored(given.study, given), ROOT / "docs" / "images")


if __name__ == "__main__":
    sys.exit(main())
