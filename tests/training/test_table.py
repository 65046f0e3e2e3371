"""The table of solvers: one row for each solver and place, from which all else follows."""

import sys
from contextlib import nullcontext
from pathlib import Path

import dask
import dask.array as da
import numpy as np
import pytest

from dask_mcsvm import LinearMCSVC
from dask_mcsvm.formulations import FORMULATIONS
from dask_mcsvm.storage import write_dataset
from dask_mcsvm.training.table import (
    BY_CHUNKS,
    BY_GROUPS,
    IN_MEMORY,
    ON_DASK,
    SOLVERS,
    TABLE,
    places_of,
    solver_at,
)

GUIDE = Path(__file__).parents[2] / "docs" / "guide.md"


def words(name, option):
    """An option as the guide has it."""
    kinds = ", ".join(f"`{value!r}`" for value in option.values if value is not None)
    kinds = kinds.replace("'", '"')
    if not kinds:
        kinds = "a number" if option.default is None else f"a number, {option.default} by default"
    return f"`{name}` ({kinds}): {option.meaning}"


def guide_rows():
    """The lines of the guide's table."""
    for row in TABLE:
        if row.options:
            able = "all" if len(row.formulations) == len(FORMULATIONS) else row.formulations[0]
            options = "; ".join(words(name, option) for name, option in row.options.items())
            yield f'| `"{row.name}"` {row.place} | {able} | {options} |'


def test_the_guide_has_every_option():
    assert "\n".join(guide_rows()) in GUIDE.read_text("utf-8")


@pytest.fixture
def make_tables(monkeypatch):
    """The script that writes tables into the guide."""
    monkeypatch.syspath_prepend(GUIDE.parent)
    yield __import__("make_tables")
    del sys.modules["make_tables"]


def test_the_guide_has_the_table_of_inputs(make_tables):
    text = GUIDE.read_text("utf-8")
    assert "<!-- table:inputs -->" in text
    assert make_tables.filled(text) == text, "type python docs/make_tables.py"


@pytest.mark.parametrize("kind", ["memory", "lazy", "dataset", "limited"])
def test_what_the_table_of_inputs_says_is_accepted_and_all_else_refused(
    kind, make_tables, tmp_path, capsys
):
    X, y = np.random.default_rng(0).random((30, 4)), np.arange(30) % 3
    given, how = {"memory": (X, y), "lazy": (da.from_array(X, (10, -1)), y)}.get(kind), {}
    if given is None:
        given = (write_dataset(tmp_path / "d.zarr", X, y),)
        how = {"memory_limit": "1GB"} if kind == "limited" else {}
    for form in FORMULATIONS:
        places = (IN_MEMORY, ON_DASK, BY_CHUNKS)
        able = {name for place in places for name in make_tables.solvers_of(kind, place, form)}
        for solver in SOLVERS:
            refused = pytest.raises(ValueError, match="solver=")
            outcome = nullcontext() if solver in able else refused
            with dask.config.set(scheduler="synchronous"), outcome:
                LinearMCSVC(formulation=form, solver=solver, **how).explain(*given)


def test_every_solver_has_one_row_per_place_and_every_group_solver_its_formulation():
    assert len({(row.name, row.place) for row in TABLE}) == len(TABLE)
    assert places_of("sdm") == (IN_MEMORY,)
    for form in FORMULATIONS.values():
        assert form.group_solver is None or form.group_solver in BY_GROUPS


@pytest.mark.parametrize(
    ("solver", "options", "sentence"),
    [
        ("sdm", {"cooling": 1}, r"solver_options\['cooling'\] is 1; use one of True, False\."),
        ("sdm", {"stop": "time"}, r"solver_options\['stop'\] is 'time'; use one of 'gap', 'viol"),
        ("splitting", {"rho": 1}, "has 'rho', which solver='splitting' does not know; leave it"),
    ],
)
def test_other_options_are_refused(solver, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        solver_at(solver, IN_MEMORY).chosen(options)
