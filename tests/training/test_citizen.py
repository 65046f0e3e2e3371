"""A fit as one among other users of a cluster: spans, annotations, dask.config, delayed fits."""

import contextlib
import logging

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster, SchedulerPlugin
from training.sets import lazy_set, small_set, svm, weights

from dask_mcsvm import LaRankSVC, LinearMCSVC
from dask_mcsvm.storage import Checkpoint
from dask_mcsvm.training.defaults import FILE


def alone(work):
    """What it gives without a cluster: the same bytes."""
    with dask.config.set(scheduler="synchronous"):
        return work()


# -- the graph of an epoch -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("solver", "barrier"),
    [
        ("shards", "cs-combine-e3-r2"),
        ("rounds", "ww-round-e3-r2"),
        ("averaging", "llw-average-e3-r7"),
        ("classes", "ovr-visit-e3-r2"),
        ("exchange", "cs-decide-e3-b1"),
        ("splitting", "cs-advance-e3-r0"),
    ],
)
def test_the_graph_of_an_epoch_is_there_to_look_at(solver, barrier):
    with dask.config.set(scheduler="synchronous"):
        in_groups = {"solver_options": {"groups": 4, "slices": 2}}
        options = in_groups if solver in ("rounds", "exchange") else {}
        drawn = svm(solver, **options).epoch_graph(*lazy_set(), epoch=3)
    graph = dict(drawn.__dask_graph__())
    assert barrier in {key[0] for key in graph}
    # Rows and state are in it by name, so that it is whole.
    assert {key for task in graph.values() for key in task.dependencies} <= set(graph)
    with pytest.raises(ValueError, match="is a name without a value: epoch_graph is to look at"):
        drawn.compute(scheduler="synchronous")


def test_rows_in_memory_have_no_graph(tmp_path):
    with pytest.raises(ValueError) as error:  # noqa: PT011, the whole sentence follows
        LinearMCSVC().epoch_graph(*small_set())
    assert str(error.value) == (
        "an epoch is a graph of tasks only on Dask, and this fit would run in this process; pass "
        "dask.array.from_array(X, chunks=(10_000, -1)), without a memory_limit if X is a dataset."
    )


# -- spans, and what dask.annotate says ------------------------------------------------------------


class Annotated(SchedulerPlugin):
    """What the scheduler knows of the tasks of a fit."""

    name = "annotated"

    def start(self, scheduler):
        self.scheduler, self.seen = scheduler, {}

    def transition(self, key, start, finish, *args, **kwargs):
        task = self.scheduler.tasks.get(key)
        if task is not None and isinstance(key, tuple):
            self.seen[key[0]] = (
                task.annotations.get("retries"), task.annotations.get("priority"),
                dict(task.resource_restrictions or {}),
            )  # fmt: skip


def test_a_fit_is_a_span_and_takes_annotations_along():
    plugin = Annotated()
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0",
                     resources={"rows": 1}) as cluster,
        Client(cluster) as client,
    ):  # fmt: skip
        cluster.scheduler.add_plugin(plugin)
        plugin.start(cluster.scheduler)
        with dask.annotate(retries=3, priority=5, resources={"rows": 1}):
            model = svm(max_epochs=2).fit(*lazy_set())
        LaRankSVC(kernel="linear", random_state=0).fit(*lazy_set())
        svm(max_epochs=1).path(*lazy_set(), [0.5, 1.0])
        spans = cluster.scheduler.extensions["spans"].spans_search_by_name
        assert {name for name in spans if name != ("default",)} == {
            ("LinearMCSVC.fit",), ("LaRankSVC.fit",), ("LinearMCSVC.path",),
            *(("LinearMCSVC.path", "LinearMCSVC.fit", f"C={C}") for C in ("0.5", "1")),
            ("LinearMCSVC.path", "LinearMCSVC.fit"),
        }  # fmt: skip
        assert client.status == "running"
    for name in ("cs-solve-e1-r0", "cs-start-lane", "rows"):  # also tasks with a place of their own
        assert plugin.seen[name] is not None
    assert weights(model) == weights(alone(lambda: svm(max_epochs=2).fit(*lazy_set())))


# -- dask.config -----------------------------------------------------------------------------------


def test_the_file_of_defaults_sets_nothing():
    (found,) = dask.config.collect_yaml([FILE])
    assert found == {
        "mcsvm": {"scratch": None, "memory-limit": None, "save-every": None, "lanes": None}
    }


def test_an_argument_comes_before_the_config_and_that_before_the_default(tmp_path):
    site = {
        "mcsvm.scratch": str(tmp_path), "mcsvm.memory-limit": "1GB", "mcsvm.save-every": 2,
        "mcsvm.lanes": 2,
    }  # fmt: skip
    fit = LinearMCSVC(solver="shards", tol=0, max_epochs=3, random_state=0)
    with dask.config.set(site, scheduler="synchronous"):
        model = fit.set_params(checkpoint=tmp_path / "fit").fit(*lazy_set())
        given = {"lanes": 1, "save_every": 5}
        own = LinearMCSVC(
            solver="shards", tol=0, max_epochs=1, memory_limit="2GB", solver_options=given
        ).fit(*lazy_set())
        rounds = svm("rounds", max_epochs=1, solver_options=None).fit(*lazy_set())
    plan = model.plan_
    assert (plan.lanes, plan.save_every, plan.memory_limit) == (2, 2, 10**9)
    assert plan.configured == ("scratch", "memory_limit", "lanes", "save_every")
    assert str(plan).splitlines()[-2:] == [
        f"scratch      {tmp_path}",
        "dask.config  mcsvm.scratch, mcsvm.memory-limit, mcsvm.lanes, mcsvm.save-every",
    ]
    with Checkpoint(str(tmp_path / "fit")) as store:
        _, saved = store.read()
    assert saved["plan"]["configured"] == list(plan.configured)
    assert (saved["plan"]["scratch"], saved["plan"]["memory_limit"]) == (str(tmp_path), 10**9)
    assert (own.plan_.lanes, own.plan_.save_every, own.plan_.memory_limit) == (1, 5, 2 * 10**9)
    assert own.plan_.configured == ("scratch",)
    assert rounds.plan_.configured == ("scratch", "memory_limit", "save_every")  # it has no lanes
    default = alone(lambda: LinearMCSVC(solver="shards", tol=0, max_epochs=1).fit(*lazy_set()))
    assert (default.plan_.lanes, default.plan_.save_every, default.plan_.configured) == (1, 10, ())
    # Where it was written from is no part of what it is.
    again = fit.set_params(resume=True, max_epochs=4, solver_options={"lanes": 2})
    assert alone(lambda: again.fit(*lazy_set())).n_iter_ == 4


@pytest.mark.parametrize(
    ("site", "message"),
    [
        ({"mcsvm.lanes": 0},
         "mcsvm.lanes of dask.config is 0; it must be an integer of 1 or more."),
        ({"mcsvm.save-every": "x"},
         "mcsvm.save-every of dask.config is 'x'; it must be an integer of 1 or more."),
        ({"mcsvm.memory-limit": "much"},
         "mcsvm.memory-limit of dask.config is 'much'; it must be a number of bytes above 0, or a "
         'text such as "2GB".'),
        ({"mcsvm.scratch": 3},
         'mcsvm.scratch of dask.config is 3; it must be a path, such as "/scratch".'),
    ],
)  # fmt: skip
def test_what_is_wrong_in_the_config_is_named(site, message):
    with dask.config.set(site), pytest.raises(ValueError) as error:  # noqa: PT011
        svm().fit(*lazy_set())
    assert str(error.value) == message
    with dask.config.set(site):  # nobody asks for rows in memory
        LinearMCSVC(max_epochs=1, tol=0).fit(*small_set())


# -- a fit that is computed later ------------------------------------------------------------------


@pytest.mark.parametrize("make", [svm, lambda: LaRankSVC(kernel="linear", random_state=0)])
def test_a_delayed_fit_is_a_fitted_clone(make, two_threads):
    X, y = lazy_set()
    model = make()
    with dask.config.set({"mcsvm.save-every": 3}):
        later = model.fit_delayed(X, y)
    model.set_params(C=7.0)  # too late
    fitted = two_threads.compute(later).result(timeout=250)
    assert fitted.C == 1.0
    assert not hasattr(model, "classes_")
    expected = alone(lambda: make().fit(X, y))
    np.testing.assert_array_equal(fitted.coef_, expected.coef_)


def test_delayed_fits_are_told_what_the_client_has_configured(two_threads):
    X, y = lazy_set()
    with dask.config.set({"mcsvm.save-every": 3}):
        later = LinearMCSVC(max_epochs=1, tol=0).fit_delayed(X, y)
    assert two_threads.compute(later).result(timeout=250).plan_.save_every == 3


def test_several_delayed_fits_of_rows_in_memory():
    X, y = small_set()
    fits = [LinearMCSVC(C=C, random_state=0).fit_delayed(X, y) for C in (0.1, 1.0)]
    for C, model in zip((0.1, 1.0), dask.compute(*fits), strict=True):
        assert weights(model) == weights(LinearMCSVC(C=C, random_state=0).fit(X, y))


def test_a_delayed_fit_waits_for_what_is_delayed():
    X, y = small_set()
    model = LinearMCSVC(max_epochs=2, tol=0, random_state=0)
    rows, labels = dask.delayed(lambda: (X, y), nout=2)()
    expected = weights(model.fit(X, y))
    assert weights(model.fit_delayed(rows, labels).compute()) == expected
    later = model.fit_delayed(X, labels, classes=dask.delayed([0, 1, 2, 3]))
    assert weights(later.compute()) == expected


# -- clusters that grow and shrink -----------------------------------------------------------------


def test_an_adaptive_cluster_raises_no_alarm(caplog, recwarn):
    """It begins without a worker, grows to two, and is left with none."""
    X, y = lazy_set()
    with (
        LocalCluster(n_workers=0, threads_per_worker=1, processes=False, dashboard_address=":0")
        as cluster,
        Client(cluster) as client,
        caplog.at_level(logging.WARNING),
    ):  # fmt: skip
        cluster.adapt(minimum=0, maximum=2, interval="100 ms", wait_count=2)
        model = svm().fit(X, y)
        assert model.predict(X).compute().shape == (160,)
        with contextlib.suppress(TimeoutError):
            client.wait_for_workers(3, timeout=1)  # an idle second
        assert weights(svm().fit(X, y)) == weights(model)
    # Other fits of this process may have set the loggers of Dask to INFO.
    told = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert told == []
    assert [str(w.message) for w in recwarn] == []
    assert weights(model) == weights(alone(lambda: svm().fit(X, y)))


def test_predictions_are_low_level_graphs():
    X, y = lazy_set()
    model = alone(lambda: svm(max_epochs=1).fit(X, y))
    found = model.predict(X)
    assert len(found.__dask_graph__().layers) == 1
    assert isinstance(found, da.Array)
