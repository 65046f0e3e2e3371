"""Margins in kernels: each kind moves scores as the specification says."""

import numpy as np
import pytest

from dask_mcsvm.formulations.margins import (
    EQUAL,
    cut,
    make_pairs,
    make_table,
    make_tree,
    margin_rows,
)
from dask_mcsvm.solvers.kernels.jit import kernel
from dask_mcsvm.solvers.kernels.margins import (
    add_listed_margins,
    add_margins,
    dual_excess,
    for_kernels,
    move_scores,
    moved_by,
)

K = 5
#: Two groups below the root: classes 3 and 0, and class 4, an inner node, above 1 and 2.
TREE = make_tree([-1, 0, 0, 1, 1, 2, 2], [3, 5, 6, 4, 2])
PATHS = margin_rows(TREE, np.arange(K), K)
KINDS = {
    "equal": EQUAL,
    "table": make_table(PATHS),
    "pairs": make_pairs({(y, m): PATHS[y, m] for y in range(K) for m in range(K) if y != m}, K),
    "tree": TREE,
}


@kernel
def look(margins, y, s, classes, sc, a):
    """All three at once: one kernel to compile for each kind."""
    add_margins(margins, y, s)
    add_listed_margins(margins, y, classes, classes.size, sc)
    return dual_excess(margins, y, classes, a, classes.size)


@pytest.mark.parametrize("kind", KINDS)
def test_scores_move_by_the_excess(kind):
    margins = for_kernels(KINDS[kind])
    excess = margin_rows(KINDS[kind], np.arange(K), K) - 1.0 + np.eye(K)
    rng = np.random.default_rng(0)
    for y in range(K):
        classes = rng.permutation(K)[:3].astype(np.int32)
        start, a = rng.normal(size=K), rng.normal(size=3)
        s, sc = start.copy(), start[classes]
        found = look(margins, y, s, classes, sc, a)
        np.testing.assert_allclose(s, start + excess[y], rtol=1e-15)
        np.testing.assert_array_equal(sc, s[classes])
        assert found == pytest.approx(excess[y, classes] @ np.abs(a))


@pytest.mark.parametrize("kind", KINDS)
def test_a_cut_moves_the_scores_of_its_classes(kind):
    rows, columns = np.array([4, 0, 2]), np.array([2, 3, 4, 1])
    margins = for_kernels(cut(KINDS[kind], rows, columns))
    excess = margin_rows(KINDS[kind], np.arange(K), K) - 1.0 + np.eye(K)
    for place, y in enumerate(rows):
        s, nothing = np.zeros(4), np.empty(0)
        look(margins, place, s, np.empty(0, np.int32), nothing, nothing)
        np.testing.assert_array_equal(s, excess[y, columns])


def test_blocks_of_rows():
    y, B = np.array([3, 0, 3], np.int32), np.random.default_rng(1).normal(size=(3, K))
    S = np.zeros_like(B)
    move_scores(for_kernels(KINDS["tree"]), y, S)
    np.testing.assert_array_equal(S, (PATHS - 1.0 + np.eye(K))[y])
    assert moved_by(for_kernels(KINDS["tree"]), y, B) == pytest.approx(np.sum(S * B))
