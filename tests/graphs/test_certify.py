"""The primal by row block and class group: that of the formulations, and no task with all of W."""

from types import SimpleNamespace

import numpy as np
import pytest
from dask.local import get_sync
from dask.task_spec import DataNode
from dask.utils import key_split
from graphs.runs import GROUPS, Toy

from dask_mcsvm.formulations import FORMULATIONS
from dask_mcsvm.graphs.certify import primal

PARTS = ("own", "losses", "sum", "square")


@pytest.mark.parametrize("name", list(FORMULATIONS))
@pytest.mark.parametrize(("csr", "dtype"), [(False, "float64"), (True, "float32")])
@pytest.mark.parametrize("groups", [GROUPS, ((0, 1, 2, 3, 4, 5),)], ids=["three", "one"])
def test_it_is_the_primal_of_the_formulation(name, csr, dtype, groups):
    toy = Toy(csr=csr, dtype=dtype, zero_rows=1)
    W = np.random.default_rng(0).normal(size=(toy.d + 1, toy.k))
    W = FORMULATIONS[name](toy.k, toy.C).project_weights(W).astype(dtype)
    rows, parts, nodes = toy.rows(), [], {}
    for g, group in enumerate(groups):
        columns = SimpleNamespace(W=np.ascontiguousarray(W[:, group]))
        nodes["W", g] = DataNode(("W", g), columns)
        parts.append((np.array(group), ("W", g)))
    graph, key = primal(rows.keys, parts, formulation=name, tau=toy.tau, name="c", epoch=3, run="t")
    expected = FORMULATIONS[name](toy.k, toy.C).primal(W, toy.Z, toy.y)
    assert get_sync(rows.graph | nodes | graph, key) == pytest.approx(expected, rel=1e-13)
    for key, task in graph.items():
        assert len(task.dependencies & set(nodes)) <= 1
        assert key_split(key) in ("c-primal", *(f"c-primal-{what}" for what in PARTS))


def test_a_set_without_rows_costs_what_w_costs():
    toy = Toy(n=0, chunks=(0,))
    columns = SimpleNamespace(W=np.ones((toy.d + 1, 6)))
    rows = toy.rows()
    graph, key = primal(
        rows.keys, [(np.arange(6), "W")], formulation="weston_watkins", tau=1.0, name="c", epoch=3,
        run="t",
    )  # fmt: skip
    found = get_sync(rows.graph | graph | {"W": DataNode("W", columns)}, key)
    assert found == 0.5 * 6 * (toy.d + 1)
