"""LaRank over chunks: pure tasks, the same bytes on every scheduler, lazy predictions."""

import copy

import dask
import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from distributed import Client, LocalCluster
from sklearn.base import clone
from sklearn.datasets import make_blobs

from dask_mcsvm import LaRankSVC
from dask_mcsvm.data.rows import make_block, row_blocks
from dask_mcsvm.errors import CheckpointError, ConvergenceWarning
from dask_mcsvm.graphs import larank as graphs
from dask_mcsvm.solvers.larank import Aim, Kernel
from dask_mcsvm.storage import write_dataset

X, Y = make_blobs(120, 4, centers=3, cluster_std=3.0, random_state=0)
X = X / np.abs(X).max()
PARAMETERS = {
    "n_classes": 3, "n_features": 4, "is_sparse": False, "dtype": X.dtype,
    "kernel": Kernel("rbf", 2.0), "seed": 0,
}  # fmt: skip
LAZY_X, LAZY_Y = da.from_array(X, chunks=(35, 4)), da.from_array(Y, chunks=35)


def lazy_csr():
    return LAZY_X.map_blocks(sp.csr_matrix, dtype=X.dtype, meta=sp.csr_matrix((0, 4)))


def test_epochs_that_run_out_before_the_gap_is_closed_are_a_warning():
    model = LaRankSVC(gamma=2.0, stop="gap", tol=1e-9, max_epochs=1, random_state=0)
    with pytest.warns(ConvergenceWarning, match=r"LaRankSVC stopped after max_epochs=1 with rel"):
        model.fit(LAZY_X, LAZY_Y)
    assert model.stop_ == "max_epochs"
    assert model.gap_ > 1e-9


def test_a_visit_leaves_the_model_it_was_given_alone():
    aim = Aim(by_gap=False, tol=0.0, absolute=0.0, total_cost=120.0)
    start = graphs.begin(PARAMETERS)
    half, rest = (
        make_block(
            X[part], Y[part], 1.0, first=part.start, stop=part.stop, n_classes=3, tau=0.0,
            dtype=X.dtype,
        )
        for part in (slice(0, 50), slice(50, 120))
    )  # fmt: skip
    once = graphs.visit(start, half, 0, (0, 0), aim)
    before = copy.deepcopy(once.run).export()
    results = [graphs.visit(once, rest, 50, (0, 1), None) for _ in range(2)]
    assert start.run.n_patterns == 0
    for name, value in once.run.export().items():
        np.testing.assert_array_equal(value, before[name])
    assert results[0].run.dual == results[1].run.dual > once.run.dual


def test_builders_compute_nothing():
    def refuse(block):
        raise AssertionError("computed")

    trap = LAZY_X.map_blocks(refuse, dtype=X.dtype, meta=np.empty((0, 4)))
    delayed = [list(part.to_delayed().ravel()) for part in (trap, LAZY_Y, LAZY_Y)]
    rows = row_blocks(
        *delayed, sizes=LAZY_X.chunks[0], n_features=4, n_classes=3, dtype=X.dtype, tau=0.0,
        run="r",
    )  # fmt: skip
    solver = graphs.Visits(rows, PARAMETERS, Aim(True, 0.1, 0.0, 1.0), True, "r")
    state = solver.start().state
    for window in solver.windows(0, 2):
        state = solver.visits(state, 0, window, ends=True).state
    assert len(solver.certify(state, 1).graph) == 4 + 2
    model = LaRankSVC(random_state=0).fit(X, Y)
    assert model.predict(trap).shape == (120,)
    assert model.decision_function(trap).shape == (120, 3)


def test_chunks_in_order_are_a_stream():
    settings = {"gamma": 2.0, "shuffle": False, "random_state": 0}
    stream = LaRankSVC(**settings)
    for start in range(0, 120, 35):
        part = slice(start, start + 35)
        stream.partial_fit(X[part], Y[part], classes=[0, 1, 2])
    chunked = LaRankSVC(**settings).fit(LAZY_X, LAZY_Y)
    assert chunked.decision_function(X).tobytes() == stream.decision_function(X).tobytes()
    np.testing.assert_array_equal(chunked.support_, stream.support_)


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("make", [lambda: LAZY_X, lazy_csr], ids=["dense", "csr"])
def test_chunks_reach_the_optimum_of_the_whole(kernel, make):
    settings = {"kernel": kernel, "stop": "gap", "tol": 1e-6, "random_state": 0}
    weights = np.arange(120) % 3
    whole = LaRankSVC(**settings).fit(X, Y, sample_weight=weights)
    lazy = make()
    chunked = LaRankSVC(**settings).fit(lazy, LAZY_Y, sample_weight=da.from_array(weights))
    assert chunked.gamma_ == pytest.approx(whole.gamma_, rel=1e-12)
    assert chunked.dual_ == pytest.approx(whole.dual_, rel=1e-5)


def test_predictions_are_lazy_and_those_of_memory():
    model = LaRankSVC(random_state=0).fit(X, np.array(["a", "b", "c"])[Y])
    for lazy in (LAZY_X, lazy_csr()):
        labels, scores = model.predict(lazy), model.decision_function(lazy)
        assert isinstance(labels, da.Array)
        assert labels.chunks == (LAZY_X.chunks[0],)
        np.testing.assert_array_equal(labels.compute(), model.predict(X))
        np.testing.assert_allclose(scores.compute(), model.decision_function(X), rtol=1e-12)
    two = LaRankSVC(random_state=0).fit(X[Y < 2], Y[Y < 2])
    np.testing.assert_array_equal(two.decision_function(LAZY_X).compute(), two.decision_function(X))


def test_every_scheduler_gives_the_same_bytes(tmp_path):
    model = LaRankSVC(random_state=0, max_epochs=2)
    found = []
    for scheduler in ("synchronous", "threads"):
        with dask.config.set(scheduler=scheduler):
            found.append(model.fit(LAZY_X, LAZY_Y).decision_function(X).tobytes())
    write_dataset(tmp_path / "set.zarr", X, Y, block_rows=35)
    cluster = LocalCluster(
        n_workers=2, processes=False, threads_per_worker=1, dashboard_address=":0"
    )
    with cluster, Client(cluster):
        found.append(model.fit(LAZY_X, LAZY_Y).decision_function(X).tobytes())
        found.append(model.fit(tmp_path / "set.zarr").decision_function(X).tobytes())
    assert len(set(found)) == 1


def test_bad_chunks_are_refused():
    bad = X.copy()
    bad[50, 0] = np.nan
    with pytest.raises(ValueError, match=r"X contains NaN, .* in row 50 \(the chunk of"):
        LaRankSVC().fit(da.from_array(bad, chunks=(35, 4)), LAZY_Y)
    with pytest.raises(ValueError, match=r"^X has 120 rows and y has 10; pass one per row\.$"):
        LaRankSVC().fit(LAZY_X, LAZY_Y[:10])
    with pytest.raises(ValueError, match="needs rows of positive weight of at least two classes"):
        LaRankSVC().fit(LAZY_X, 0 * LAZY_Y)
    weight = np.ones(120)
    weight[80] = -1
    with pytest.raises(ValueError, match=r"sample_weight holds -1\.0 in rows 70:105; weights"):
        LaRankSVC().fit(LAZY_X, LAZY_Y, sample_weight=da.from_array(weight, chunks=35))
    with pytest.raises(ValueError, match="needs the whole matrix in memory"):
        LaRankSVC(kernel="precomputed").fit(LAZY_X, LAZY_Y)


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
@pytest.mark.parametrize("layout", [np.asarray, sp.csr_matrix])
def test_a_fit_that_goes_on_from_a_checkpoint_gives_the_same_bytes(kernel, layout, tmp_path):
    rows = LAZY_X.map_blocks(layout, dtype=X.dtype, meta=layout(np.empty((0, 4))))
    model = LaRankSVC(kernel=kernel, gamma=2.0, stop="gap", tol=1e-3, random_state=0)
    whole = copy.deepcopy(model).fit(rows, LAZY_Y)
    path = tmp_path / "fit"
    stopped = model.set_params(checkpoint=path, callbacks=(lambda record: record["epoch"] == 2,))
    assert stopped.fit(rows, LAZY_Y).stop_ == "callback"
    resumed = model.set_params(resume=True, callbacks=()).fit(rows, LAZY_Y)
    assert resumed.n_iter_ == whole.n_iter_ > 2
    assert [r["dual"] for r in resumed.history_[2:]] == [r["dual"] for r in whole.history_[2:]]
    for name in ("data", "indices", "indptr"):
        values = (getattr(fit.dual_coef_, name) for fit in (resumed, whole))
        np.testing.assert_array_equal(*values)


def test_a_checkpoint_of_other_parameters_is_refused(tmp_path):
    model = LaRankSVC(gamma=2.0, checkpoint=tmp_path / "fit", random_state=0)
    model.fit(LAZY_X, LAZY_Y)
    model.set_params(resume=True)
    for other in ({"gamma": 1.0}, {"max_support": 9}, {"C": 2.0}, {"random_state": 1}):
        with pytest.raises(CheckpointError, match="the checkpoint was written"):
            clone(model).set_params(**other).fit(LAZY_X, LAZY_Y)
    with pytest.raises(CheckpointError, match="written for other data"):
        clone(model).fit(LAZY_X, 2 - LAZY_Y)
    with pytest.raises(ValueError, match="checkpoint is for fits on Dask arrays and datasets"):
        model.fit(X, Y)
    with pytest.raises(ValueError, match='resume=True needs checkpoint="folder"'):
        LaRankSVC(resume=True).fit(LAZY_X, LAZY_Y)
