"""What can go wrong out of core: kills, full disks, bad chunks, limits; each ends as promised."""

import json
import re
import signal
from pathlib import Path

import numpy as np
import pytest
from training.out_of_core_runs import LITTLE, fit_until, rows_and_labels, run_child, source_of

from dask_mcsvm.errors import CheckpointError, DatasetFormatError
from dask_mcsvm.storage import Scratch, open_dataset, write_dataset
from dask_mcsvm.storage._owner import owned_name
from dask_mcsvm.storage.scratch import PREFIX
from dask_mcsvm.training import DatasetSource, train_early_shrink
from dask_mcsvm.training.runs import budget as budget_module

SETTINGS = {"C": 0.1, "tol": 1e-2, "seed": 1}


@pytest.fixture
def dataset(tmp_path):
    X, y = rows_and_labels(n=2000, csr=True, dtype="float32")
    return write_dataset(tmp_path / "set.zarr", X, y, block_rows=500)


def contents(folder):
    return {path: path.read_bytes() for path in sorted(Path(folder).rglob("*")) if path.is_file()}


# -- killed ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "killed_after"), [(None, (1, 4)), (LITTLE, (2, 3))], ids=["one-load", "many-loads"]
)
def test_it_resumes_after_any_pass_to_the_same_bytes(limit, killed_after, tmp_path, monkeypatch):
    monkeypatch.setattr(budget_module, "FIXED", 0)
    settings = {**SETTINGS, "memory_limit": limit}
    source = source_of(n=300, block_rows=75)
    whole = train_early_shrink(source, **settings)
    loads = max(record["loads"] for record in whole.history)
    assert loads == 1 if limit is None else loads > 1
    assert len(whole.history) > max(killed_after)
    for passes in killed_after:
        path = tmp_path / str(passes)
        fit_until(source, passes, checkpoint=path, **settings)
        resumed = train_early_shrink(source, checkpoint=path, resume=True, **settings)
        assert resumed.W.tobytes() == whole.W.tobytes()
        assert resumed.gap == whole.gap
        assert [r["pass"] for r in resumed.history] == [r["pass"] for r in whole.history]
        assert resumed.n_iter == whole.n_iter


KILLED = """
from dask_mcsvm.storage import open_dataset
from dask_mcsvm.training import DatasetSource
source = DeadlySource(DatasetSource(open_dataset(values["set"])), values["reads"])
train_early_shrink(source, checkpoint=values["checkpoint"], scratch=values["scratch"],
                   **values["settings"])
"""


def test_after_a_kill_nothing_is_left_and_the_last_finished_pass_counts(dataset, tmp_path):
    scratch, checkpoint = tmp_path / "scratch", tmp_path / "checkpoint"
    # Four chunks: the seventh read is in the middle of the second pass over all of them.
    done = run_child(
        KILLED, set=dataset.path, reads=6, checkpoint=str(checkpoint), scratch=str(scratch),
        settings=SETTINGS,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL, done.stderr
    (left,) = scratch.iterdir()
    assert any(left.iterdir())
    alive = scratch / owned_name(PREFIX)  # another run's, and it still runs
    alive.mkdir()
    whole = train_early_shrink(DatasetSource(dataset), **SETTINGS)
    seen = []
    resumed = train_early_shrink(
        DatasetSource(dataset), checkpoint=checkpoint, resume=True, scratch=scratch,
        on_epoch=seen.append, **SETTINGS,
    )  # fmt: skip
    assert list(scratch.iterdir()) == [alive]
    assert seen[0]["pass"] == "certify"  # what was finished before is not done again
    assert resumed.W.tobytes() == whole.W.tobytes()
    assert len(resumed.history) == len(whole.history)


def test_a_finished_fit_resumed_is_finished_and_a_smaller_tol_goes_on(tmp_path):
    settings = {**SETTINGS, "checkpoint": tmp_path / "fit"}
    whole = train_early_shrink(source_of(), **settings)
    again = train_early_shrink(source_of(), resume=True, **settings)
    assert again.W.tobytes() == whole.W.tobytes()
    assert len(again.history) == len(whole.history)
    better = train_early_shrink(source_of(), resume=True, **{**settings, "tol": 1e-3})
    assert better.gap <= 1e-3
    assert better.history[: len(whole.history)][-1]["gap"] == whole.gap


def test_resume_without_a_checkpoint_starts_afresh(tmp_path):
    fit = train_early_shrink(source_of(), checkpoint=tmp_path / "new", resume=True, **SETTINGS)
    assert fit.W.tobytes() == train_early_shrink(source_of(), **SETTINGS).W.tobytes()


@pytest.mark.parametrize("change", [{"C": 0.2}, {"tau": 2.0}, {"options": {"certify": False}}])
def test_a_checkpoint_of_another_fit_is_refused(change, tmp_path):
    fit_until(source_of(), 2, checkpoint=tmp_path / "fit", **SETTINGS)
    before = contents(tmp_path)
    sentence = (
        f"{tmp_path / 'fit'}: this checkpoint is of a fit on other rows or with other parameters; "
        "give those of that fit, or start afresh with resume=False."
    )
    with pytest.raises(CheckpointError, match=re.escape(sentence)):
        train_early_shrink(
            source_of(), checkpoint=tmp_path / "fit", resume=True, **{**SETTINGS, **change}
        )
    with pytest.raises(CheckpointError, match="of a fit on other rows"):
        train_early_shrink(source_of(seed=9), checkpoint=tmp_path / "fit", resume=True, **SETTINGS)
    assert contents(tmp_path) == before


# -- the scratch folder ----------------------------------------------------------------------------


def test_it_is_removed_when_the_fit_fails(tmp_path):
    with pytest.raises(ZeroDivisionError):
        train_early_shrink(source_of(), scratch=tmp_path, on_epoch=lambda record: 1 / 0)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("parent", ["a-file/inside", "/proc/inside"])
def test_one_that_can_not_be_written_is_named(parent, tmp_path):
    (tmp_path / "a-file").write_text("")
    parent = tmp_path / parent
    with pytest.raises(OSError, match=re.escape(f"scratch folder {parent} can not be written (")):
        train_early_shrink(source_of(), scratch=parent)


FULL = """
import resource
from dask_mcsvm.storage import open_dataset
from dask_mcsvm.training import DatasetSource
source = DatasetSource(open_dataset(values["set"]))
train_early_shrink(source, **values["settings"])  # compiled, and its code is on disk
resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))
try:
    train_early_shrink(source, scratch=values["scratch"], **values["settings"])
except OSError as error:
    print(error.strerror)
"""


def test_a_full_disk_is_named_and_nothing_stays(dataset, tmp_path):
    before = contents(dataset.path)
    scratch = tmp_path / "scratch"
    done = run_child(FULL, set=dataset.path, scratch=str(scratch), settings=SETTINGS)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(
        rf"scratch folder {scratch} has no room for [\d.]+ MiB more \(File too large\); free some, "
        r"or name another folder with scratch='...'\n",
        done.stdout,
    ), done.stdout
    assert list(scratch.iterdir()) == []
    assert contents(dataset.path) == before


def test_records_and_notes_come_back_as_they_were(tmp_path):
    arrays = {
        "odd": np.arange(3, dtype=np.uint8),
        "wide": np.arange(6.0).reshape(2, 3),
        "none": np.empty((0, 4), np.float32),
    }
    with Scratch(tmp_path) as scratch:
        for write, read in [
            (scratch.write, scratch.read),
            (scratch.write_note, scratch.read_note),
        ]:
            for stretch in (1, 5):  # replaced by a longer one
                stored = {key: np.concatenate([a] * stretch) for key, a in arrays.items()}
                write("name", stored)
                found = read("name")
                assert list(found) == list(stored)
                for key, values in stored.items():
                    assert found[key].dtype == values.dtype
                    np.testing.assert_array_equal(found[key], values)
    assert list(tmp_path.iterdir()) == []


# -- rows and limits -------------------------------------------------------------------------------


def test_a_damaged_chunk_is_named_and_the_source_stays(dataset, tmp_path):
    chunk = max(Path(dataset.path, "X", "data", "c").iterdir(), key=lambda path: int(path.name))
    chunk.write_bytes(b"\x00" * chunk.stat().st_size)
    before = contents(dataset.path)
    scratch = tmp_path / "scratch"
    with pytest.raises(DatasetFormatError, match=r"chunk c/\d+ of X/data is damaged"):
        train_early_shrink(DatasetSource(open_dataset(dataset.path)), scratch=scratch, **SETTINGS)
    assert list(scratch.iterdir()) == []
    assert contents(dataset.path) == before


def test_a_limit_below_one_chunk_says_what_is_needed(dataset, tmp_path):
    source = DatasetSource(dataset)
    scratch = tmp_path / "scratch"
    with pytest.raises(ValueError, match="memory_limit is 1,000,000 bytes; one chunk") as error:
        train_early_shrink(source, memory_limit=1_000_000, scratch=scratch, **SETTINGS)
    (needed,) = re.findall(r"memory_limit=(\d+), or write the dataset again", str(error.value))
    assert not scratch.exists()
    train_early_shrink(source, memory_limit=int(needed), scratch=scratch, C=0.1, tol=0.3)


def test_rows_with_nan_are_refused(tmp_path):
    X = np.array([[1.0, np.nan], [0.0, 1.0]])
    dataset = write_dataset(tmp_path / "set", X, [0, 1])
    with pytest.raises(ValueError, match="X contains NaN or infinity; drop those rows and write"):
        DatasetSource(dataset)
    large = write_dataset(tmp_path / "large", np.array([[1e30], [1.0]], np.float32), [0, 1])
    with pytest.raises(ValueError, match="whose square overflows float32; scale the columns"):
        DatasetSource(large)


MEASURED = """
import ctypes, gc
from pathlib import Path
from dask_mcsvm.storage import open_dataset
from dask_mcsvm.training import DatasetSource

def resident(field):
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1]) * 1024

X, y = rows_and_labels(dtype="float32")
train_early_shrink(ArraySource(X, y, np.ones(600), 3, 100), C=0.01)
gc.collect()
ctypes.CDLL(None).malloc_trim(0)
Path("/proc/self/clear_refs").write_text("5")  # the peak is what is in use now
before = resident("VmRSS")
source = DatasetSource(open_dataset(values["set"]))
fit = train_early_shrink(source, C=0.01, tol=0.3, n_jobs=2, memory_limit=values["limit"])
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
    assert gap <= 0.3
    assert loads > 1
    assert peak <= limit
