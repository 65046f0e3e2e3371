"""Rows and weights that a lane changes in place."""

import numpy as np
import pytest
from dask.local import get_sync
from graphs.runs import Toy

from dask_mcsvm.formulations import FORMULATIONS
from dask_mcsvm.solvers.kernels.dual_variables import alpha_to_dense
from dask_mcsvm.solvers.sdm.at_work import RowsAtWork, WeightsAtWork
from dask_mcsvm.solvers.sdm.intercept import SoftIntercept
from dask_mcsvm.solvers.sdm.shard import start_shard

N, TAU = 60, 1.0


class OneLane:
    """All rows of a toy, visited as one of two lanes would."""

    def __init__(self, k, formulation):
        toy = Toy(k=k, csr=k > 6, chunks=(N,), tau=TAU)
        rows = toy.rows()
        (block,) = get_sync(rows.graph, list(rows.keys))
        self.data, self.k, self.formulation = block.data(TAU), k, formulation
        self.block = RowsAtWork(start_shard(self.data, k, formulation), self.data, k)
        self.W = 0.1 * np.random.default_rng(1).normal(size=(toy.d + 1, k))
        self.weights = WeightsAtWork(self.W)

    def visit(self, order):
        intercept = SoftIntercept(1.0, self.k, lanes=2)
        return self.block.visit(order, self.weights, self.formulation, intercept, 10)

    @property
    def alpha(self):
        return alpha_to_dense(self.block.table.alpha, N, self.k).copy()


@pytest.mark.parametrize("formulation", list(FORMULATIONS))
@pytest.mark.parametrize("k", [6, 70], ids=["few", "many"])
def test_variables_move_as_far_as_weights_do(formulation, k):
    lane = OneLane(k, formulation)
    order = np.arange(N)[::-1].copy()
    lane.visit(order[:30])
    before = lane.alpha
    _, fresh = lane.visit(np.concatenate([order[15:45], order[20:25]]))  # some of them twice
    assert fresh == 15
    solved = lane.alpha
    assert not np.array_equal(before, solved)
    np.testing.assert_array_equal(lane.weights.W, lane.W)  # as all lanes have it
    lane.block.settle(0.25)
    np.testing.assert_allclose(lane.alpha, before + 0.25 * (solved - before), atol=1e-12)
    lane.visit(order)
    solved = lane.alpha
    lane.block.settle(1.0)
    np.testing.assert_array_equal(lane.alpha, solved)


def test_a_lane_alone_saves_no_variables():
    lane = OneLane(6, "crammer_singer")
    lane.block.visit(
        np.arange(N), lane.weights, lane.formulation, SoftIntercept(1.0, 6), 10
    )
    assert lane.block.saved is None
    solved = lane.alpha
    lane.block.settle(1.0)
    np.testing.assert_array_equal(lane.alpha, solved)
