"""The table of solvers: one row for each solver and place, from which all else follows."""

from pathlib import Path

import pytest

from dask_mcsvm.formulations import FORMULATIONS
from dask_mcsvm.training.table import BY_GROUPS, IN_MEMORY, TABLE, places_of, solver_at

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
