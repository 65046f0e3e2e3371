"""A model larger than a process may hold: W in files, a part of the classes at a time."""

import os
import pickle
import re
from copy import copy
from functools import cache

import dask
import numpy as np
import pytest
import scipy.sparse as sp
from dask.sizeof import sizeof
from distributed import SchedulerPlugin
from training.sets import lazy, small_set, svm

from dask_mcsvm import LinearMCSVC
from dask_mcsvm.graphs.model_files import file_widths
from dask_mcsvm.report._run import run_of
from dask_mcsvm.storage import read_part, write_part
from dask_mcsvm.training.runner import LocalRunner

BY_GROUPS = ("rounds", "averaging", "classes", "exchange")
X, Y = small_set(k=9)
LIMIT = 500  # bytes; W has 936


@pytest.fixture(autouse=True)
def one_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """The same fit twice, each pair made once: W in memory, W in files, and their folder."""

    @cache
    def make(solver, fit_intercept=True):
        folder = tmp_path_factory.mktemp(solver)
        given = {"fit_intercept": fit_intercept, "max_epochs": 3}
        given["solver_options"] = {"groups": 4, "save_every": 2}
        # A limit also says whether exchange joins chunks; one chunk is a block with or without.
        rows = lazy(X, Y.size) if solver == "exchange" else lazy(X)
        here = svm(solver, **given).fit(rows, Y)
        there = svm(solver, memory_limit=LIMIT, scratch=folder, **given).fit(rows, Y)
        return here, there, folder

    return lambda *which: (*map(copy, make(*which)[:2]), make(*which)[2])


@pytest.mark.parametrize("solver", BY_GROUPS)
def test_files_hold_the_model_of_a_fit_in_memory(solver, pair):
    here, there, folder = pair(solver)
    assert there.coef_.chunks == ((3, 2, 2, 2), (12,))
    assert there.coef_.compute().tobytes() == np.ascontiguousarray(here.coef_).tobytes()
    for name in ("intercept_", "primal_", "dual_", "gap_", "density_", "n_iter_"):
        np.testing.assert_array_equal(getattr(there, name), getattr(here, name))
    # Only the model is left.
    assert re.fullmatch(r"weights-[0-9a-f]{12}", " ".join(os.listdir(folder)))


@pytest.mark.parametrize("rows", [X, sp.csr_array(X), lazy(X)], ids=["dense", "csr", "lazy"])
def test_answers_are_those_of_a_model_in_memory(rows, pair):
    here, there, _ = pair("rounds")
    np.testing.assert_array_equal(there.predict(rows), here.predict(X))
    np.testing.assert_array_equal(there.predict_topk(rows, 3), here.predict_topk(X, 3))
    scores = there.decision_function(rows)
    assert isinstance(scores, np.ndarray) == (not dask.is_dask_collection(rows))
    np.testing.assert_allclose(scores, here.decision_function(X), rtol=1e-12, atol=1e-12)
    assert there.score(rows, Y) == here.score(X, Y)


@pytest.mark.parametrize("solver", BY_GROUPS)
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_certificates_look_at_one_part_at_a_time(solver, fit_intercept, pair):
    here, there, _ = pair(solver, fit_intercept)
    found, expected = there.certify(X, Y), here.certify(X, Y)
    assert found.primal == pytest.approx(expected.primal, rel=1e-12)
    assert found.primal == pytest.approx(there.primal_, rel=1e-12)
    there.coef_ = there.coef_ * 0.5  # lazily; the sums of Lee-Lin-Wahba stay zero
    assert there.certify(X, Y).primal > found.primal


def test_a_saved_model_is_read_from_its_own_files(pair, tmp_path):
    _, there, _ = pair("classes")
    there.save(tmp_path / "model.zarr")
    again = LinearMCSVC.load(tmp_path / "model.zarr")
    assert again.coef_.chunks == there.coef_.chunks
    assert again.coef_.compute().tobytes() == there.coef_.compute().tobytes()
    assert again.certify(X, Y) == there.certify(X, Y)
    again.save(tmp_path / "model.zarr", overwrite=True)  # over the files it reads
    np.testing.assert_array_equal(again.predict(X), there.predict(X))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(again)).predict(X), there.predict(X))
    assert run_of(again, None).magnitudes.size == 0


def test_a_checkpoint_is_a_place_for_the_model_too(tmp_path):
    path = tmp_path / "fit"
    given = {"memory_limit": LIMIT, "checkpoint": path, "solver_options": {"groups": 4}}
    given["max_epochs"] = 1
    first = svm("classes", **given).fit(lazy(X), Y)
    second = svm("classes", resume=True, **given).fit(lazy(X), Y)
    assert first.coef_.name != second.coef_.name
    np.testing.assert_array_equal(first.coef_, second.coef_)


def test_a_model_without_a_folder_is_refused_before_the_fit():
    sentence = (
        "W takes 936 bytes, more than the 500 that may be held at once (memory_limit), and stays "
        'in files; pass scratch="/a/folder/all/workers/see" to keep them in, or memory_limit=936 '
        "to have coef_ in memory."
    )
    epochs = []
    model = svm("rounds", memory_limit=LIMIT, callbacks=(epochs.append,))
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        model.fit(lazy(X), Y)
    assert epochs == []
    enough = svm("rounds", memory_limit=936, max_epochs=1).fit(lazy(X), Y)
    assert isinstance(enough.coef_, np.ndarray)


@pytest.mark.parametrize("what", ["sparsify", "to_linear_svc"])
def test_what_needs_all_of_it_says_so(what, pair):
    _, there, _ = pair("classes")
    sentence = (
        f"{what} needs coef_ in memory, and it is a Dask array of 864 bytes in files; if that "
        "fits, type model.coef_ = model.coef_.compute() first."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        getattr(there, what)()
    there.coef_ = there.coef_.compute()
    getattr(there, what)()


def test_auto_cuts_a_model_above_the_limit(tmp_path):
    model = svm("auto", formulation="ovr", memory_limit=LIMIT, scratch=tmp_path, solver_options={})
    assert model.explain(lazy(X), Y).startswith("solver       classes: W of ")


@pytest.mark.parametrize(("formulation", "instead"), [("ww", "rounds"), ("cs", "exchange")])
def test_shards_refuse_a_model_that_no_worker_can_hold(formulation, instead, monkeypatch):
    epochs = []
    model = svm("shards", formulation=formulation, callbacks=(epochs.append,))
    monkeypatch.setattr(LocalRunner, "memory_of_each", property(lambda self: 2 * 936 - 1))
    sides = {LIMIT: "memory_limit=500", None: "half of the 1,871 bytes of a worker"}
    for limit, whose in sides.items():
        model.set_params(memory_limit=limit)
        sentence = (
            f"W takes 936 bytes, more than {whose}, and solver='shards' holds all of it; type "
            f"solver={instead!r}, which cuts W by classes."
        )
        with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
            model.fit(lazy(X), Y)
    assert epochs == []
    monkeypatch.setattr(LocalRunner, "memory_of_each", property(lambda self: 2 * 936))
    model.set_params(memory_limit=936, max_epochs=1).fit(lazy(X), Y)


def test_a_part_is_written_once(tmp_path):
    write_part(str(tmp_path), 3, np.eye(2))
    write_part(str(tmp_path), 3, np.zeros((2, 2)))  # another run of the task, which would agree
    np.testing.assert_array_equal(read_part(str(tmp_path), 3), np.eye(2))
    assert os.listdir(tmp_path / "parts") == ["3"]
    assert file_widths(3, 3) == [1, 1, 1]


# -- worker processes ------------------------------------------------------------------------------


class LargestResult(SchedulerPlugin):
    """Bytes of the largest value that any task left on a worker."""

    name = "largest-result"
    largest = 0

    def transition(self, key, start, finish, *args, nbytes=0, **kwargs):
        if finish == "memory":
            self.largest = max(self.largest, nbytes or 0)


def wide_set(n=250, d=20_000, k=250):
    """Rows of few nonzeros: W takes 40 MB, a group in eight 5 MB."""
    rng = np.random.default_rng(0)
    columns = rng.integers(d, size=(n, 20), dtype=np.int32)
    rows = sp.csr_array((rng.random(n * 20), columns.ravel(), np.arange(0, n * 20 + 1, 20)), (n, d))
    rows.sum_duplicates()
    return rows, np.arange(n) % k


@pytest.mark.parametrize("solver", ["rounds", "classes", "exchange"])
def test_no_process_sees_all_of_a_model_of_40_mb(solver, two_processes, tmp_path, monkeypatch):
    rows, y = wide_set()
    chunks = dask.array.from_array(rows, chunks=(125, -1), asarray=False)
    options = {"groups": 8, "slices": 1} if solver == "rounds" else {"groups": 8}
    given = {"max_epochs": 1, "solver_options": options}
    here = svm(solver, **given).fit(chunks, y)
    W_bytes = here.coef_.nbytes + here.intercept_.nbytes

    gathered, gather = [], two_processes.gather

    def spied(futures, *args, **kwargs):
        values = gather(futures, *args, **kwargs)
        gathered.append(sizeof(values))
        return values

    monkeypatch.setattr(two_processes, "gather", spied)
    watch = LargestResult()
    scheduler = two_processes.cluster.scheduler
    scheduler.add_plugin(watch)
    with dask.config.set(scheduler=two_processes):
        model = svm(solver, memory_limit="16MB", scratch=tmp_path, **given).fit(chunks, y)
        labels = model.predict(chunks).compute()
    scheduler.remove_plugin(watch.name)
    assert W_bytes > 40_000_000
    assert 0 < watch.largest < 16_000_000
    assert 0 < sum(gathered) < 1_000_000  # of all epochs together
    np.testing.assert_array_equal(labels, here.predict(rows))
    for part in (0, 7):
        expected = here.coef_[sum(model.coef_.chunks[0][:part]) :][: model.coef_.chunks[0][part]]
        np.testing.assert_array_equal(model.coef_.blocks[part], expected)
