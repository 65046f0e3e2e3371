"""Costs of mistakes: what users write down, and what fits make of it."""

import re

import numpy as np
import pytest

from dask_mcsvm.estimators._margins import read_margins
from dask_mcsvm.formulations.margins import EQUAL, margin_rows

CLASSES = np.array(["ant", "bee", "cat"])
TREE = {"ant": "insect", "bee": "insect", "insect": "animal", "cat": "animal"}
TABLE = 1.0 - np.eye(3)


def rows_of(given, classes=CLASSES):
    return margin_rows(read_margins(given, classes), np.arange(classes.size), classes.size)


def changed(place, value):
    table = TABLE.copy()
    table[place] = value
    return table


class TestReading:
    def test_none_is_one_for_all(self):
        assert read_margins(None, CLASSES) == read_margins({}, CLASSES[:0]) == EQUAL

    def test_a_table_in_any_form(self):
        np.testing.assert_array_equal(rows_of(changed((2, 0), 4).tolist()), changed((2, 0), 4))

    def test_pairs_are_true_then_predicted(self):
        given = {("cat", "ant"): 4, ("bee", "cat"): np.float32(0.5), ("ant", "ant"): 0}
        np.testing.assert_array_equal(rows_of(given), [[0, 1, 1], [1, 0, 0.5], [4, 1, 0]])

    def test_a_tree_by_the_longest_path(self):
        np.testing.assert_array_equal(rows_of(TREE) * 3, [[0, 2, 3], [2, 0, 3], [3, 3, 0]])

    def test_classes_may_be_numbers_and_inner_nodes(self):
        tree = {3: 1, 1: "root", 2: "root"}
        np.testing.assert_array_equal(
            rows_of(tree, np.array([1, 2, 3])) * 3, [[0, 2, 1], [2, 0, 3], [1, 3, 0]]
        )

    def test_a_root_may_have_the_parent_none(self):
        np.testing.assert_array_equal(rows_of(TREE | {"animal": None}), rows_of(TREE))


MATRIX = (
    "and there are 3 classes; use a matrix of shape (3, 3) with rows and columns in the order of "
    "numpy.unique(y), a dict of pairs, or a dict that is a tree."
)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (np.ones((2, 3)), f"margins has shape (2, 3), {MATRIX}"),
        (2.0, f"margins has shape (), {MATRIX}"),
        ("tree", f"margins is str, {MATRIX}"),
        (
            changed((0, 2), -1),
            "margins[0, 2] is -1, for 'ant' taken for 'cat'; it must be a finite number from 0 to "
            "1e+06.",
        ),
        (
            changed((1, 0), np.nan),
            "margins[1, 0] is nan, for 'bee' taken for 'ant'; it must be a finite number from 0 to "
            "1e+06.",
        ),
        (
            np.ones((3, 3)),
            "margins[0, 0] is 1, and a right label ('ant') costs nothing; type "
            "numpy.fill_diagonal(margins, 0).",
        ),
        (
            {("ant", "bee"): 2.0, "cat": "animal"},
            "margins has the key 'cat' among pairs; each must be (true, predicted), such as "
            "('ant', 'bee').",
        ),
        (
            {("ant", "dog"): 2.0},
            "margins has the pair ('ant', 'dog'), and y has no class 'dog'; it has 'ant', 'bee', "
            "'cat'.",
        ),
        (
            {("ant", "bee"): float("inf")},
            "margins[('ant', 'bee')] is inf; it must be a finite number from 0 to 1e+06.",
        ),
        (
            {("ant", "bee"): "far"},
            "margins[('ant', 'bee')] is 'far'; it must be a finite number from 0 to 1e+06.",
        ),
        (
            {("ant", "ant"): 2.0},
            "margins[('ant', 'ant')] is 2.0, and a right label costs nothing; leave it out.",
        ),
        (
            {"ant": "insect", "cat": "insect"},
            "margins is a tree without the class 'bee'; give it a parent, such as "
            "{'bee': 'root'}.",
        ),
        (
            TREE | {"dog": "animal"},
            "margins is a tree with the leaf 'dog', which is no class of y; leave it out, or pass "
            "classes=[...] to fit with all of them.",
        ),
        (
            TREE | {"animal": "insect"},
            "margins is a tree where 'insect' is among its own ancestors; a tree has no cycle.",
        ),
        (
            {"ant": "insect", "bee": "insect", "cat": "mammal"},
            "margins is a tree with 2 roots, 'insect', 'mammal'; give them one parent.",
        ),
        (
            {"ant": ["insect"], "bee": "insect", "cat": "insect"},
            "margins has the parent ['insect']; a tree is a dict of each name to that of its one "
            "parent.",
        ),
    ],
)
def test_bad_margins_are_refused(given, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        read_margins(given, CLASSES)
