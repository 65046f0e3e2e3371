"""Three ways to write margins down, and parts of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_mcsvm.formulations.margins import (
    EQUAL,
    cut,
    make_pairs,
    make_table,
    make_tree,
    margin_rows,
    to_arrays,
    toy_margins,
)

#: A root (0) with the nodes 1 and 2; classes are 3, 4 below 1, the node 2 itself and 5 below it.
PARENT = [-1, 0, 0, 1, 1, 2]
NODES = [5, 3, 2, 4]
PATHS = np.array([[0, 4, 1, 4], [4, 0, 3, 2], [1, 3, 0, 3], [4, 2, 3, 0]])


def all_rows(margins, k):
    return margin_rows(margins, np.arange(k), k)


def path_by_path(parent, a, b):
    """Edges between two nodes, counted on the way up from each."""

    def up(node):
        chain = [node]
        while parent[chain[-1]] >= 0:
            chain.append(parent[chain[-1]])
        return chain

    ups = up(b)
    return next(i + ups.index(node) for i, node in enumerate(up(a)) if node in ups)


class TestMargins:
    def test_equal_margins_are_one(self):
        np.testing.assert_array_equal(all_rows(EQUAL, 3), 1.0 - np.eye(3))
        assert cut(EQUAL, [0], [1]) == EQUAL
        assert to_arrays(EQUAL) == {}

    def test_pairs(self):
        rows = all_rows(make_pairs({(2, 0): 5.0, (0, 1): 0.0, (0, 2): 3.0}, 3), 3)
        np.testing.assert_array_equal(rows, [[0, 0, 3], [1, 0, 1], [5, 1, 0]])

    def test_a_tree_by_hand(self):
        np.testing.assert_array_equal(all_rows(make_tree(PARENT, NODES), 4), PATHS / 4)

    def test_the_longest_path_is_one_between_classes(self):
        tree = make_tree([-1, 0, 1, 2], [2, 3])  # the root is two edges away, and no class
        np.testing.assert_array_equal(all_rows(tree, 2), 1.0 - np.eye(2))

    @given(st.integers(0, 2**32 - 1), st.integers(2, 12))
    def test_a_tree_is_the_table_of_its_paths(self, seed, nodes):
        rng = np.random.default_rng(seed)
        numbers = rng.permutation(nodes)  # parents may have larger numbers than their children
        parent = np.full(nodes, -1)
        for j in range(1, nodes):
            parent[numbers[j]] = numbers[rng.integers(j)]
        classes = rng.permutation(nodes)[: rng.integers(2, nodes + 1)]
        paths = np.array([[path_by_path(parent, a, b) for b in classes] for a in classes])
        rows = all_rows(make_tree(parent, classes), classes.size)
        np.testing.assert_allclose(rows, paths / paths.max(), rtol=1e-14)

    def test_arrays_of_a_kind(self):
        assert set(to_arrays(make_table(np.zeros((2, 2))))) == {"table_excess"}
        assert set(to_arrays(make_pairs({(0, 1): 2.0}, 2))) == {
            "pairs_start", "pairs_rivals", "pairs_excess",
        }  # fmt: skip


@pytest.mark.parametrize(
    "margins",
    [EQUAL, make_table(PATHS), make_pairs({(0, 2): 1.0}, 3), make_tree(PARENT, NODES)],
)
def test_toys_are_ones_of_a_kind(margins):
    toy = toy_margins(type(margins), 4)
    assert type(toy) is type(margins)
    np.testing.assert_array_equal(all_rows(toy, 4), 1.0 - np.eye(4))


@pytest.mark.parametrize("kind", ["table", "pairs", "tree"])
def test_a_cut_is_a_part(kind):
    """Some rows and some columns, in a new order, by the rule that kernels use for each kind."""
    tree = make_tree(PARENT, NODES)
    values = all_rows(tree, 4)
    everything = {(y, m): values[y, m] for y in range(4) for m in range(4) if y != m}
    margins = {"table": make_table(values), "pairs": make_pairs(everything, 4), "tree": tree}[kind]
    part = cut(margins, [3, 0, 1], [3, 0, 1])
    np.testing.assert_array_equal(all_rows(part, 3), values[np.ix_([3, 0, 1], [3, 0, 1])])
