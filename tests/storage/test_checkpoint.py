"""A checkpoint is whole or absent: generations, blocks by workers, kills, locks, damage."""

import json
import os
import re
import signal
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from dask_mcsvm.errors import CheckpointError
from dask_mcsvm.storage import Checkpoint, read_block, write_block
from dask_mcsvm.storage._place import Place

ROOT = Path(__file__).parents[2]
AGAIN = "remove it and fit again without resume."
HOST = os.uname().nodename


@pytest.fixture(autouse=True)
def in_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(params=["local", "url"])
def path(request):
    return "fit" if request.param == "local" else f"memory://{uuid.uuid4().hex}/fit"


def says(text, kind=CheckpointError):
    return pytest.raises(kind, match=f"^{re.escape(text)}$")


def commit_blocks(checkpoint, value, count=3):
    """A generation with blocks written by threads, as workers would."""
    generation = checkpoint.begin()
    with ThreadPoolExecutor(2) as pool:
        records = pool.map(
            lambda i: write_block(
                checkpoint.path, generation, f"W-{i}", {"W": np.full((4, 2), value + i)}
            ),
            range(count),
        )
    checkpoint.commit(generation, records, {"epoch": value}, {"rest": np.arange(5) + value})
    return generation


# Generations --------------------------------------------------------------------------------------


def test_nothing_committed_is_none(path):
    checkpoint = Checkpoint(path)
    assert checkpoint.read() is None
    assert checkpoint.generation is None
    assert checkpoint.block_names == []


def test_small_state(path):
    checkpoint = Checkpoint(path)
    for epoch in range(3):
        state = {"W": np.full((3, 2), float(epoch)), "seed": np.array([epoch], dtype=np.uint64)}
        assert checkpoint.write(state, {"epoch": epoch, "gap": float("nan")}) == epoch + 1
        arrays, meta = Checkpoint(path).read()
        assert meta["epoch"] == epoch
        assert np.isnan(meta["gap"])
        assert arrays["W"].tobytes() == state["W"].tobytes()
        assert arrays["seed"].dtype == np.uint64


def test_blocks_by_workers(path):
    checkpoint = Checkpoint(path)
    with checkpoint:
        for value in (10, 20):
            generation = commit_blocks(checkpoint, value)
            assert checkpoint.generation == generation
            assert sorted(checkpoint.block_names) == ["W-0", "W-1", "W-2"]
            for i in range(3):
                block = read_block(checkpoint.path, generation, f"W-{i}")
                assert (block["W"] == value + i).all()
    arrays, meta = Checkpoint(path).read()
    assert meta == {"epoch": 20}
    assert arrays["rest"].tolist() == [20, 21, 22, 23, 24]


def test_the_old_generation_is_removed():
    checkpoint = Checkpoint("fit")
    commit_blocks(checkpoint, 1)
    commit_blocks(checkpoint, 2)
    assert sorted(os.listdir("fit")) == ["checkpoint.json", "generation-000002", "lock.guard"]


def test_negative_zeros_and_sparse_blocks_are_kept(path):
    checkpoint = Checkpoint(path)
    generation = checkpoint.begin()
    alpha = sp.random(30, 8, density=0.1, format="csr", random_state=0)
    W = np.zeros((40, 3))
    W[0, 0] = -0.0
    record = checkpoint.write_block(checkpoint.path, generation, "b", {"alpha": alpha, "W": W})
    json.dumps(record)
    checkpoint.commit(generation, [record], {})
    block = checkpoint.read_block(checkpoint.path, generation, "b")
    assert (block["alpha"] != alpha).nnz == 0
    assert block["W"].tobytes() == W.tobytes()


def test_a_block_written_twice_stays_as_it_was(path):
    checkpoint = Checkpoint(path)
    generation = checkpoint.begin()
    first = write_block(checkpoint.path, generation, "W", {"W": np.ones(3)})
    again = write_block(checkpoint.path, generation, "W", {"W": np.zeros(3)})
    assert first == again
    checkpoint.commit(generation, [first], {})
    assert read_block(checkpoint.path, generation, "W")["W"].tolist() == [1, 1, 1]


def test_a_block_written_by_two_at_once():
    checkpoint = Checkpoint("fit")
    generation = checkpoint.begin()
    with ThreadPoolExecutor(4) as pool:
        records = list(
            pool.map(
                lambda _: write_block(checkpoint.path, generation, "W", {"W": np.ones(3)}), range(8)
            )
        )
    assert len({record["crc32"] for record in records}) == 1
    checkpoint.commit(generation, records[:1], {})
    assert os.listdir(Path(checkpoint.block_path(generation, "W")).parent) == ["W"]


def test_an_uncommitted_generation_is_absent_and_its_number_not_used_again(path):
    checkpoint = Checkpoint(path)
    checkpoint.write({"a": np.ones(2)}, {"epoch": 1})
    generation = checkpoint.begin()
    write_block(checkpoint.path, generation, "W", {"W": np.zeros(2)})
    assert Checkpoint(path).read()[1] == {"epoch": 1}
    following = Checkpoint(path).begin()
    assert following > generation
    with pytest.raises((CheckpointError, FileNotFoundError)):
        read_block(checkpoint.path, generation, "W")


def test_a_missing_block_can_not_be_committed(path):
    checkpoint = Checkpoint(path)
    checkpoint.write({}, {"epoch": 1})
    generation = checkpoint.begin()
    block = f"{path}/generation-{generation:06d}/blocks/W"
    with says(f"{block}: this block is missing; {AGAIN}"):
        checkpoint.commit(generation, [{"name": "W", "crc32": 1}], {"epoch": 2})
    assert checkpoint.read()[1] == {"epoch": 1}


def test_a_crash_before_the_pointer_flips_leaves_the_old_generation(monkeypatch):
    checkpoint = Checkpoint("fit")
    checkpoint.write({"a": np.ones(1)}, {"epoch": 1})
    write_bytes = Place.write_bytes

    def crash(place, key, data):
        if key == "checkpoint.json":
            raise KeyboardInterrupt
        write_bytes(place, key, data)

    with monkeypatch.context() as patch:
        patch.setattr(Place, "write_bytes", crash)
        with pytest.raises(KeyboardInterrupt):
            checkpoint.write({"a": np.ones(1)}, {"epoch": 2})
    assert Checkpoint("fit").read()[1] == {"epoch": 1}
    assert Checkpoint("fit").write({"a": np.ones(1)}, {"epoch": 3}) == 3
    assert Checkpoint("fit").read()[1] == {"epoch": 3}


WRITER = """
import sys, numpy as np
from dask_mcsvm.storage import Checkpoint
with Checkpoint(sys.argv[1]) as checkpoint:
    print("holding", flush=True)
    epoch = 0
    while True:
        epoch += 1
        checkpoint.write({"W": np.full((200, 50), epoch), "a": np.full(9, epoch)}, {"epoch": epoch})
"""


@contextmanager
def running(path):
    """A process that holds the lock of a checkpoint and writes; killed at the end."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, path],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        assert process.stdout.readline() == "holding\n"
        yield process
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()


def test_while_a_fit_writes_readers_see_whole_generations_and_a_second_fit_is_refused():
    seen = []
    with running("fit") as first:
        while len(seen) < 15:
            state = Checkpoint("fit").read()  # needs no lock
            if state is not None:
                arrays, meta = state
                assert (arrays["W"] == meta["epoch"]).all()
                assert (arrays["a"] == meta["epoch"]).all()
                seen.append(meta["epoch"])
        text = (
            f"fit: this checkpoint is in use by process {first.pid} on host {HOST}; choose another "
            "path, or if that process no longer runs remove fit/lock.json."
        )
        with says(text):
            Checkpoint("fit").acquire()
        with says(text):
            Checkpoint("fit").write({}, {})
    # It was killed, most likely in the middle of a write; its lock is a dead one's.
    assert seen == sorted(seen)
    arrays, meta = Checkpoint("fit").read()
    assert (arrays["W"] == meta["epoch"]).all()
    with Checkpoint("fit") as checkpoint:
        assert checkpoint.write({}, {"epoch": 0}) > meta["epoch"]
    assert sorted(os.listdir("fit"))[0] == "checkpoint.json"
    assert not os.path.exists("fit/lock.json")
    assert len(os.listdir("fit")) == 3


# The lock -----------------------------------------------------------------------------------------


def test_half_a_pointer_of_a_killed_writer_is_removed_by_the_next():
    Checkpoint("fit").write({}, {"epoch": 1})
    Path("fit/checkpoint.json.0123.partial").write_bytes(b"{")
    assert Checkpoint("fit").write({}, {"epoch": 2}) == 2
    assert sorted(os.listdir("fit")) == ["checkpoint.json", "generation-000002", "lock.guard"]


def test_of_many_who_want_a_dead_ones_lock_one_gets_it():
    Path("fit").mkdir()
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    lock = {"host": HOST, "pid": gone.pid, "started": "1", "token": "x"}
    Path("fit/lock.json").write_text(json.dumps(lock))

    def take(_):
        try:
            Checkpoint("fit").acquire()
        except CheckpointError:
            return 0
        return 1

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(take, range(16))) == 1


def test_a_later_process_with_the_same_pid_is_not_the_holder():
    Path("fit").mkdir()
    lock = {"host": HOST, "pid": os.getpid(), "started": "1", "token": "x"}
    Path("fit/lock.json").write_text(json.dumps(lock))
    with Checkpoint("fit"):
        pass


def test_a_lock_of_another_host_stays(path):
    checkpoint = Checkpoint(path)
    checkpoint.acquire()
    checkpoint.release()
    lock = {"host": "elsewhere", "pid": 1, "started": "1", "token": "x"}
    checkpoint._place.write_bytes("lock.json", json.dumps(lock).encode())
    with says(
        f"{path}: this checkpoint is in use by process 1 on host elsewhere; choose another path, "
        f"or if that process no longer runs remove {path}/lock.json."
    ):
        checkpoint.acquire()


def test_an_object_of_the_same_process_is_a_second_fit_too(path):
    with Checkpoint(path) as first:
        first.acquire()  # it has it already
        with pytest.raises(CheckpointError, match=f"in use by process {os.getpid()} "):
            Checkpoint(path).acquire()
    Checkpoint(path).acquire()


def test_an_unreadable_lock():
    Path("fit").mkdir()
    Path("fit/lock.json").write_text("")
    with says("fit: lock.json can not be read; if no fit uses this checkpoint remove it."):
        Checkpoint("fit").acquire()


# Damage -------------------------------------------------------------------------------------------


def test_a_folder_that_is_something_else():
    Path("fit").mkdir()
    Path("fit/thesis.tex").write_text("")
    with says("fit: exists and is not a checkpoint; choose another path."):
        Checkpoint("fit").acquire()
    Path("file").write_text("")
    with says("file: exists and is not a checkpoint; choose another path."):
        Checkpoint("file").acquire()
    with says("file: is a file, not a checkpoint; choose another path."):
        Checkpoint("file").read()


def test_damage_to_what_was_committed():
    checkpoint = Checkpoint("fit")
    commit_blocks(checkpoint, 1)
    generation = Path("fit/generation-000001")

    chunk = generation / "blocks/W-1/W/c/0/0"
    stored = chunk.read_bytes()
    chunk.write_bytes(stored[:-1] + bytes([stored[-1] ^ 1]))
    checkpoint.read()  # looks at sizes; the block's reader checks its bytes
    place = f"{Path('fit').absolute()}/generation-000001/blocks/W-1"
    with says(f"{place}: chunk c/0/0 of W is damaged (its checksum differs); {AGAIN}"):
        checkpoint.read_block(checkpoint.path, 1, "W-1")
    chunk.write_bytes(stored[:-1])
    size = len(stored)
    with says(
        f"fit/generation-000001/blocks/W-1: chunk c/0/0 of W has {size - 1} bytes, {size} were "
        f"written; {AGAIN}"
    ):
        checkpoint.read()
    (generation / "blocks/W-1/zarr.json").unlink()
    with says(f"fit/generation-000001/blocks/W-1: this block is missing; {AGAIN}"):
        checkpoint.read()

    commit_blocks(checkpoint, 2)
    generation = Path("fit/generation-000002")
    (generation / "rest/c/0").unlink()
    with says(f"fit/generation-000002: chunk c/0 of rest is missing; {AGAIN}"):
        checkpoint.read()
    (generation / "zarr.json").write_text("{}")
    with says(f"fit: generation 2 is damaged (its marker differs); {AGAIN}"):
        checkpoint.read()
    (generation / "zarr.json").unlink()
    with says(f"fit: generation 2 is missing; {AGAIN}"):
        checkpoint.read()


def test_damage_to_the_pointer():
    checkpoint = Checkpoint("fit")
    checkpoint.write({}, {})
    pointer = Path("fit/checkpoint.json")
    good = json.loads(pointer.read_text())
    pointer.write_text(json.dumps({**good, "format_version": 7}))
    with says(f"fit: format_version is 7, this release reads 2; {AGAIN}"):
        checkpoint.read()
    pointer.write_text("")
    with says(f"fit: checkpoint.json is damaged; {AGAIN}"):
        checkpoint.read()
