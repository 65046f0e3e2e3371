"""Block minimization out of core: the optimum of every formulation, within a limit of memory."""

import json
import re
import signal
from pathlib import Path

import dask
import numpy as np
import pytest
from reference import solve
from sklearn.base import clone
from training.out_of_core_runs import KilledError, rows_and_labels, run_child, source_of

from dask_mcsvm import LinearMCSVC
from dask_mcsvm.errors import CheckpointError, DatasetFormatError
from dask_mcsvm.formulations import FORMULATIONS
from dask_mcsvm.storage import open_dataset, write_dataset
from dask_mcsvm.training import DatasetSource
from dask_mcsvm.training.runs import block_minimization
from dask_mcsvm.training.runs import budget as budget_module
from dask_mcsvm.training.runs.block_minimization import (
    train_block_minimization,
)
from dask_mcsvm.training.table import BY_CHUNKS, solver_at

#: With this much the problems here take several blocks, and variables go to disk.
LITTLE = 56_500


@pytest.fixture
def little_memory(monkeypatch):
    """Let a limit as small as the problems here be accepted."""
    monkeypatch.setattr(budget_module, "FIXED", 0)
    return LITTLE


@pytest.fixture
def dataset(tmp_path):
    X, y = rows_and_labels(n=400)
    return write_dataset(tmp_path / "set.zarr", X, np.array(["a", "b", "c"])[y], block_rows=50)


@pytest.mark.parametrize("formulation", list(FORMULATIONS))
def test_it_reaches_the_optimum_of_the_reference(formulation, little_memory, tmp_path):
    weight = np.random.default_rng(1).choice([0.0, 0.5, 1.0, 2.0], 300)
    source = source_of(n=300, weight=weight, block_rows=75)
    fits = [
        train_block_minimization(
            source, formulation=formulation, C=0.1, tau=1.5, tol=1e-4, scratch=tmp_path,
            memory_limit=limit,
        )
        for limit in (None, little_memory)
    ]  # fmt: skip
    assert [max(r["loads"] for r in fit.history) > 1 for fit in fits] == [False, True]
    used = weight > 0
    Z = np.hstack([source.X, np.full((300, 1), 1.5)])[used]
    _, objective = solve(formulation, Z, source.y[used], 0.1 * weight[used], 3)
    svm = FORMULATIONS[formulation](3, 0.1 * weight[used])
    for fit in fits:
        assert fit.stop == "gap"
        assert 0 <= fit.gap <= 1e-4
        np.testing.assert_allclose(fit.primal, objective, rtol=2e-4)
        np.testing.assert_allclose(fit.primal, svm.primal(fit.W, Z, source.y[used]), rtol=1e-9)
        assert 0 < fit.dual_density < 1
    assert list(tmp_path.iterdir()) == []


def test_the_columns_of_lee_lin_wahba_sum_to_zero_also_far_from_the_optimum():
    """Its primal is that of such columns, and float32 visits leave sums of another size."""
    source = source_of(n=300, block_rows=75, dtype="float32")
    fit = train_block_minimization(
        source, formulation="lee_lin_wahba", C=1e3, tau=1.0, tol=0, max_epochs=1
    )
    sums, sizes = fit.W.sum(axis=1, dtype=float), np.abs(fit.W).sum(axis=1, dtype=float)
    assert (np.abs(sums) <= np.finfo(np.float32).eps * sizes).all()


def test_a_dataset_gives_what_the_local_solver_gives(tmp_path, monkeypatch):
    monkeypatch.setattr(budget_module, "FIXED", 0)
    X, y = rows_and_labels(n=400, csr=True, dtype="float32")
    dataset = write_dataset(tmp_path / "set.zarr", X, y, block_rows=50)
    limited = LinearMCSVC(C=0.1, memory_limit=LITTLE, scratch=tmp_path / "s", random_state=0)
    limited.fit(dataset.path)
    local = LinearMCSVC(C=0.1, solver="sdm", random_state=0).fit(X, y)
    assert limited.gap_ <= 1e-3
    np.testing.assert_allclose(limited.primal_, local.primal_, rtol=2e-3)
    np.testing.assert_array_equal(limited.classes_, local.classes_)
    assert limited.solver_ == "shards"
    assert "blocks of chunks that fit in memory" in str(limited.plan_)
    assert limited.explain(dataset.path) == str(limited.plan_)
    ovr = LinearMCSVC(formulation="ovr", memory_limit=LITTLE)
    assert ovr.explain(dataset.path).startswith("solver       early_shrink: memory_limit given")
    np.testing.assert_allclose(limited.certify(X, y).relative_gap, limited.gap_, rtol=1e-6)
    limited.save(tmp_path / "model")
    assert LinearMCSVC.load(tmp_path / "model").plan_ == limited.plan_


@pytest.mark.parametrize("solver", ["auto", "shards"])
def test_a_client_changes_nothing(solver, dataset, two_threads):
    """The same call must not become a graph because somebody started a cluster."""
    model = LinearMCSVC(C=0.1, tol=1e-2, solver=solver, memory_limit="64MB", random_state=0)
    there = clone(model).fit(dataset.path)
    assert there.explain(dataset.path) == str(there.plan_)
    with dask.config.set(scheduler="threads"):
        here = clone(model).fit(dataset.path)
    assert there.plan_ == here.plan_
    assert there.coef_.tobytes() == here.coef_.tobytes()


def test_a_dataset_of_large_blocks_is_read_in_small_chunks(tmp_path, monkeypatch):
    """One chunk to a block is solved far beyond what the others make of it."""
    monkeypatch.setattr(budget_module, "FIXED", 0)
    X, y = rows_and_labels(n=900)
    order = np.argsort(y, kind="stable")  # as many sets lie on disk
    X, y = X[order], y[order]
    write_dataset(tmp_path / "large", X, y, block_rows=100)
    settings = {"C": 0.1, "tol": 1e-2, "memory_limit": LITTLE, "scratch": tmp_path / "s"}
    model = LinearMCSVC(**settings, random_state=0)
    large = model.fit(tmp_path / "large").n_iter_
    assert model.plan_.chunks == 9
    monkeypatch.setattr(block_minimization, "CHUNK_BYTES", 2000)
    small = model.fit(tmp_path / "large").n_iter_
    assert model.plan_.chunks > 60
    assert 4 * small < large


def test_chunks_of_a_cut_source_hold_the_same_rows(dataset):
    source = DatasetSource(dataset, class_factors=np.array([1.0, 2.0, 3.0]))
    cut = source.cut(np.full(8, 1000), 400)  # three pieces each
    assert cut.row_offsets[:4] == (0, 16, 33, 50)
    assert len(cut.row_offsets) == 25
    assert cut.entries().sum() == source.entries().sum()
    for part in range(3):
        whole = [np.concatenate([cut.read(3 * b + i)[part] for i in range(3)]) for b in range(8)]
        assert all(np.array_equal(a, source.read(b)[part]) for b, a in enumerate(whole))
    assert source.cut(np.full(8, 1000), 1000).row_offsets == source.row_offsets
    assert len(source.cut(np.full(8, 1000), 1).row_offsets) == 401  # a row at least
    assert cut.identity() != source.identity()  # variables of a checkpoint are kept by chunk


def stop_after(passes):
    """A callback that ends the process, as far as the disk can tell."""
    seen = []

    def on_epoch(record):
        seen.append(record)
        if len(seen) == passes:
            raise KilledError

    return on_epoch


@pytest.mark.parametrize("limit", [None, LITTLE], ids=["one-block", "many-blocks"])
def test_it_resumes_after_any_pass_to_the_same_bytes(limit, little_memory, tmp_path):
    source = source_of(n=150, block_rows=50)
    settings = {"formulation": "crammer_singer", "C": 0.1, "tol": 1e-2, "memory_limit": limit}
    whole = train_block_minimization(source, **settings)
    assert len(whole.history) > 2
    for passes in (1, 2):
        path = tmp_path / str(passes)
        with pytest.raises(KilledError):
            train_block_minimization(
                source, checkpoint=path, on_epoch=stop_after(passes), **settings
            )
        resumed = train_block_minimization(source, checkpoint=path, resume=True, **settings)
        assert resumed.W.tobytes() == whole.W.tobytes()
        assert (resumed.gap, resumed.n_iter) == (whole.gap, whole.n_iter)
        assert len(resumed.history) == len(whole.history)
    again = train_block_minimization(source, checkpoint=path, resume=True, **settings)
    assert again.W.tobytes() == whole.W.tobytes()
    with pytest.raises(CheckpointError, match="of a fit on other rows or with other parameters"):
        train_block_minimization(source, checkpoint=path, resume=True, **{**settings, "C": 0.2})


KILLED = """
from dask_mcsvm.training.runs import budget
from dask_mcsvm.training.runs.block_minimization import train_block_minimization
budget.FIXED = 0
train_block_minimization(
    DeadlySource(source_of(n=150, block_rows=50), values["reads"]), **values["settings"])
"""


def test_after_a_kill_nothing_is_left_and_the_last_finished_pass_counts(little_memory, tmp_path):
    scratch = tmp_path / "scratch"
    settings = {"formulation": "weston_watkins", "C": 0.1, "tol": 1e-2, "memory_limit": LITTLE}
    kept = {**settings, "checkpoint": str(tmp_path / "fit"), "scratch": str(scratch)}
    # Three chunks: read once to begin, once for a pass; the eighth read is in the second pass.
    done = run_child(KILLED, reads=7, settings=kept)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert [any(left.iterdir()) for left in scratch.iterdir()] == [True]
    source = source_of(n=150, block_rows=50)
    whole, seen = train_block_minimization(source, **settings), []
    resumed = train_block_minimization(source, resume=True, on_epoch=seen.append, **kept)
    assert list(scratch.iterdir()) == []
    assert len(seen) == len(whole.history) - 1  # what was finished before is not done again
    assert resumed.W.tobytes() == whole.W.tobytes()


def test_it_ends_certified_at_max_epochs_and_when_called_back():
    source = source_of(n=300, block_rows=50)
    short = train_block_minimization(source, formulation="crammer_singer", tol=0, max_epochs=3)
    assert (short.stop, len(short.history)) == ("max_epochs", 2)  # two inner passes each
    asked = train_block_minimization(
        source, formulation="crammer_singer", on_epoch=lambda record: True
    )
    assert asked.stop == "callback"
    assert [record["certified"] for record in asked.history] == [True]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"slices": 2},
            "solver_options has 'slices', which solver='shards' within a memory_limit does not "
            "know; use 'inner_passes', 'lanes'.",
        ),
        (
            {"inner_passes": 0},
            "solver_options['inner_passes'] is 0; use an integer of 1 or more.",
        ),
    ],
)
def test_unknown_options_are_refused(options, sentence, dataset):
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        solver_at("shards", BY_CHUNKS).chosen(options)
    with pytest.raises(ValueError, match=re.escape(sentence)):
        LinearMCSVC(memory_limit="1GB", solver_options=options).fit(dataset.path)


def test_what_can_not_be_done_is_said_before_anything_is_written(dataset, tmp_path):
    scratch = tmp_path / "scratch"
    source = DatasetSource(dataset)
    model = LinearMCSVC(memory_limit=100_000, scratch=scratch)
    with pytest.raises(ValueError, match="memory_limit is 100,000 bytes; one chunk") as error:
        model.fit(dataset.path)
    (needed,) = re.findall(r"memory_limit=(\d+), or write the dataset again", str(error.value))
    assert not scratch.exists()
    with pytest.raises(ValueError, match="classes differ from those of the dataset; leave classes"):
        model.fit(dataset.path, classes=["a", "b"])
    chunk = next(path for path in Path(dataset.path, "X", "c").rglob("*") if path.is_file())
    chunk.write_bytes(b"\x00" * chunk.stat().st_size)
    with pytest.raises(DatasetFormatError, match=r"chunk c/\d+/0 of X is damaged"):
        train_block_minimization(
            DatasetSource(open_dataset(dataset.path)), formulation="crammer_singer",
            memory_limit=int(needed), scratch=scratch,
        )  # fmt: skip
    assert list(scratch.iterdir()) == []
    assert source.shape == (400, 8)


MEASURED = """
import ctypes, gc
from pathlib import Path
from dask_mcsvm.storage import open_dataset
from dask_mcsvm.training import DatasetSource
from dask_mcsvm.training.runs.block_minimization import train_block_minimization

def resident(field):
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1]) * 1024

how = {"formulation": "crammer_singer", "C": 0.01, "tol": 0.3, "max_epochs": 2}
X, y = rows_and_labels(dtype="float32")
train_block_minimization(ArraySource(X, y, np.ones(600), 3, 100), **how)
gc.collect()
ctypes.CDLL(None).malloc_trim(0)
Path("/proc/self/clear_refs").write_text("5")  # the peak is what is in use now
before = resident("VmRSS")
source = DatasetSource(open_dataset(values["set"]))
fit = train_block_minimization(source, memory_limit=values["limit"], **how)
print(json.dumps([resident("VmHWM") - before, fit.gap, max(r["loads"] for r in fit.history)]))
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux's /proc")
def test_the_peak_of_resident_memory_stays_below_the_limit(tmp_path):
    limit = 32 << 20
    rng = np.random.default_rng(0)
    X = rng.random((95_000, 400), np.float32) - np.float32(0.5)
    y = (X[:, :3] + 0.3 * X[:, 3:6]).argmax(axis=1)
    dataset = write_dataset(tmp_path / "set.zarr", X, y, block_rows=1000)
    on_disk = sum(path.stat().st_size for path in Path(dataset.path).rglob("*") if path.is_file())
    assert on_disk >= 4 * limit
    done = run_child(MEASURED, set=dataset.path, limit=limit)
    assert done.returncode == 0, done.stderr
    peak, gap, loads = json.loads(done.stdout)
    assert gap < 1
    assert loads > 4
    assert peak <= limit
