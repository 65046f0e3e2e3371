"""Names, the relative gap, and the labels that tie the code to docs/math.md."""

import doctest
import math
import re
from pathlib import Path

import numpy as np
import pytest

import dask_mcsvm.formulations as formulations
from dask_mcsvm.formulations import FORMULATIONS, SHORT_NAMES, formulation_name, relative_gap

MATH = Path(__file__).parents[2] / "docs" / "math.md"
SOURCES = sorted(Path(formulations.__file__).parent.glob("*.py"))
LABEL = re.compile(r"\[[A-Z]+(?:-[A-Z]+)*\]")


def test_long_and_short_names():
    assert list(SHORT_NAMES.values()) == list(FORMULATIONS)
    for short, long in SHORT_NAMES.items():
        assert formulation_name(short) == formulation_name(long) == long


@pytest.mark.parametrize("name", ["foo", "CS", "", None, ["cs"]])
def test_an_unknown_name_is_answered_with_the_known_ones(name):
    message = (
        f"formulation={name!r} is not known; use 'crammer_singer' ('cs'), "
        "'weston_watkins' ('ww'), 'lee_lin_wahba' ('llw'), 'one_vs_rest' ('ovr')."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        formulation_name(name)


@pytest.mark.parametrize("name", ["cs", "weston_watkins", "ovr"])
def test_relative_gap_is_in_units_of_the_primal(name):
    assert relative_gap(name, 10.0, 9.0, 1000.0) == 0.1
    assert relative_gap(name, 10.0, 10.5, 1000.0) == -0.05  # a bug must stay visible
    assert relative_gap(name, 0.0, 0.0, 0.0) == 0.0
    assert relative_gap(name, 0.0, -1.0, 0.0) == math.inf
    assert math.isnan(relative_gap(name, math.nan, 1.0, 1.0))


def test_relative_gap_of_lee_lin_wahba_is_in_units_of_what_can_be_gained():
    assert relative_gap("llw", 100.0, 99.0, 109.0) == 0.1
    assert relative_gap("lee_lin_wahba", 0.0, 0.0, 0.0) == 0.0
    assert relative_gap("llw", 0.0, -1.0, 0.0) == 1.0
    assert math.isnan(relative_gap("llw", math.nan, 1.0, 1.0))
    assert math.isnan(relative_gap("llw", 1.0, math.nan, 1.0))


def test_relative_gap_of_lee_lin_wahba_closes_where_the_best_w_is_zero():
    """P, D and P(0) then agree but for rounding, and rounding over rounding is no measure."""
    primal = 1000.0
    dual = primal * (1 - 10 * np.finfo(float).eps)
    assert dual < primal
    assert relative_gap("llw", primal, dual, primal) == 0.0
    assert relative_gap("llw", primal, primal * (1 - 1e-9), primal) == 1.0


def test_relative_gap_refuses_an_unknown_name():
    with pytest.raises(ValueError, match="formulation='foo' is not known"):
        relative_gap("foo", 1.0, 1.0, 1.0)


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_every_label_in_the_code_is_explained(source):
    assert set(LABEL.findall(source.read_text())) <= set(LABEL.findall(MATH.read_text()))


def test_the_example_in_the_docstring_runs():
    result = doctest.testmod(formulations)
    assert result.attempted > 0
    assert result.failed == 0
