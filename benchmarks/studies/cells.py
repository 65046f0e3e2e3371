"""Cell types: our fits beside CellTypist's training, on log counts; C chosen alike for all.

The sets are made by benchmarks/make_cells.py. CellTypist runs in an environment of its own.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from harness import Case, Result, Table, number
from harness.case import DONE

from .peers import is_shown, percent
from .threads import QUICK

SETS = ("pbmc68k_reduced", "pbmc_like")
OURS = ("Crammer-Singer", "Crammer-Singer, balanced", "Crammer-Singer, standardized")
PEERS = (*OURS, "CellTypist")
OWN = {"CellTypist": "celltypist"}
#: Log counts are long rows, for which a small C is enough; CellTypist's own choice is 1.
C_VALUES = {"CellTypist": (1.0, 0.1, 0.01)} | dict.fromkeys(OURS, (0.001, 0.01, 0.1))

Cases = Generator[Case, Result | None, None]


def cases(quick: bool) -> Cases:
    sets = list(QUICK.values())[:1] if quick else [{"name": name} for name in SETS]
    for data in sets:
        for peer in OURS if quick else PEERS:
            yield from of_peer(data, peer)


def of_peer(data: dict[str, Any], peer: str) -> Cases:
    options = {"peer": peer} | ({"environment": OWN[peer]} if peer in OWN else {})
    chosen, best = C_VALUES[peer][0], -1.0
    for C in C_VALUES[peer]:
        result = yield Case(data, "peers:peer", {"C": C}, options | {"validate": True})
        if result is not None and result.status == DONE and result["macro_f1"] > best:
            chosen, best = C, result["macro_f1"]
    yield Case(data, "peers:peer", {"C": chosen}, options)


def tables(results: Sequence[Result]) -> dict[str, Table | str]:
    heads = (
        "set, method", "cells", "C", "seconds", "CPU seconds", "accuracy", "macro F1",
        "seconds to predict", "peak MB",
    )  # fmt: skip
    rows = [
        [
            f"{r.case.data['name']}, {r.case.options['peer']}", number(r, "n"),
            f"{r.case.params['C']:g}", number(r), number(r, "cpu_seconds"),
            percent(r, "accuracy"), percent(r, "macro_f1"), number(r, "predict_seconds"),
            number(r, "peak_bytes", 1e6),
        ]
        for r in results
        if is_shown(r)
    ]  # fmt: skip
    return {"all": Table(heads, rows)}
