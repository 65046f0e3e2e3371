"""Tables of the docs that follow from the code, written between their marks in the guide:

    python docs/make_tables.py

`tests/training/test_table.py` compares them, and tries what they say.
"""

from __future__ import annotations

import re
from pathlib import Path

from dask_mcsvm.formulations import FORMULATIONS
from dask_mcsvm.training.table import BY_CHUNKS, EARLY_SHRINK, IN_MEMORY, ON_DASK, TABLE, Solver

GUIDE = Path(__file__).parent / "guide.md"
PLACE = re.compile(r"(<!-- table:(\w+) -->\n).*?(<!-- /table -->)", re.DOTALL)
#: Kinds of X, as the guide calls them.
INPUTS = {
    "memory": "array, SciPy sparse, frame; AnnData or `DataArray` of these",
    "lazy": "Dask array or frame, Zarr array; AnnData or `DataArray` of these; a file of AnnData",
    "dataset": "dataset, or its path",
    "limited": "the same with `memory_limit`",
}


def takes(kind: str, row: Solver) -> bool:
    """Whether rows of a kind are trained on in the place of a row of the table of solvers."""
    if row.name == EARLY_SHRINK:
        return kind != "lazy"
    if kind == "memory":
        return row.place == IN_MEMORY
    if kind == "limited" and row.name == "shards":
        return row.place == BY_CHUNKS
    return row.place == ON_DASK


def solvers_of(kind: str, place: str, formulation: str) -> list[str]:
    """The names that `solver=` may have, of those that run in a place."""
    rows = [row for row in TABLE if row.place == place and takes(kind, row)]
    return [row.name for row in rows if formulation in row.formulations]


def inputs_table() -> str:
    """What X, where it is trained on, which formulation: which solvers."""
    head = ["X", "runs", *(f"`{name}`" for name in FORMULATIONS)]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for kind, shown in INPUTS.items():
        for place in (IN_MEMORY, ON_DASK, BY_CHUNKS):
            cells = [
                ", ".join(f'`"{name}"`' for name in solvers_of(kind, place, form))
                for form in FORMULATIONS
            ]
            if any(cells):
                lines.append("| " + " | ".join([shown, place, *cells]) + " |")
                shown = ""
    return "\n".join(lines) + "\n"


TABLES = {"inputs": inputs_table}


def filled(text: str) -> str:
    """A page with its tables as the code has them."""
    return PLACE.sub(lambda place: place[1] + TABLES[place[2]]() + place[3], text)


if __name__ == "__main__":
    GUIDE.write_text(filled(GUIDE.read_text("utf-8")), "utf-8")
