"""The estimate of the gap against the certificate, at every certificate of the other studies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from harness import Case, Result, Table

from .dask import place
from .threads import name_of

READS = ("intercept", "threads", "dask", "groups")
#: Estimates are judged from this gap down.
LARGEST = 0.1


class Look(NamedTuple):
    """A record of a history, see `harness.methods.HISTORY`."""

    epoch: float
    seconds: float
    estimate: float | None
    gap: float
    certified: bool
    certify_seconds: float


def cases(quick: bool) -> Iterator[Case]:
    """None of its own."""
    del quick
    yield from ()


def tables(results: Sequence[Result]) -> dict[str, Table | str]:
    fits = {result.case.key: result for result in results if result["history"]}
    heads = (
        "fit", "certificates", "above tol", "share of the time", "estimate / certificate: least",
        "largest",
    )  # fmt: skip
    looks = ("fit", "epoch", "estimate", "certificate", "ratio")
    return {
        "fits": Table(heads, [fit_row(result) for result in fits.values()]),
        "looks": Table(looks, [row for result in fits.values() for row in look_rows(result)]),
    }


def certified(result: Result) -> list[Look]:
    """Records with a certificate; the estimate is missing where visits see too little."""
    return [look for record in result["history"] if (look := Look(*record)).certified]


def ratios(result: Result) -> list[float]:
    return [
        look.estimate / look.gap
        for look in certified(result)
        if look.estimate is not None and look.gap and look.gap <= LARGEST
    ]


def fit_row(result: Result) -> list[str]:
    looks, found, tol = certified(result), ratios(result), result.case.params.get("tol", 1e-3)
    share = sum(look.certify_seconds for look in looks) / result["seconds"]
    ends = [f"{end(found):.2f}" if found else "-" for end in (min, max)]
    above = sum(look.gap > tol for look in looks)
    return [label(result), str(len(looks)), str(above), f"{share:.0%}", *ends]


def look_rows(result: Result) -> list[list[str]]:
    return [
        [
            label(result), f"{look.epoch:.1f}", f"{look.estimate:.1e}", f"{look.gap:.1e}",
            f"{look.estimate / look.gap:.2f}",
        ]
        for look in certified(result) if look.estimate is not None and look.gap
    ]  # fmt: skip


def label(result: Result) -> str:
    """Set, formulation, and all that tells this fit from others."""
    params = {k: v for k, v in result.case.params.items() if k not in ("formulation", "tol")}
    told = [name_of(result), place(result), *(f"{k}={v}" for k, v in params.items())]
    return ", ".join(told) + f", repeat {result.case.repeat + 1}" * bool(result.case.repeat)
