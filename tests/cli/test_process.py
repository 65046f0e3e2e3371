"""The command as a process: the entry point, a terminal, Ctrl-C."""

import json
import os
import signal
import subprocess
import sys
from itertools import islice

import numpy as np
import pytest

from dask_mcsvm.storage import Checkpoint, write_dataset

DASK = [sys.executable, "-m", "dask", "mcsvm"]
LONG = ["--tol", "1e-300", "--max-epochs", "1000000000", "--verbose", "1"]


def test_from_rows_to_a_score(data):
    def run(*arguments):
        done = subprocess.run([*DASK, *arguments], capture_output=True, text=True, timeout=250)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    assert run("fit", "train.zarr", "--model", "m.zarr", "--quiet") == ""
    assert json.loads(run("score", "m.zarr", "test.zarr", "--json"))["rows"] == 120


def test_ctrl_c_in_the_middle_of_a_fit(data, in_folder):
    command = [*DASK, "fit", "train.zarr", "--model", "m.zarr", *LONG]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            assert any(line.startswith("epoch ") for line in process.stderr)  # it is at work
            process.send_signal(signal.SIGINT)
            *_, last = process.stderr
            assert last == "Stopped by Ctrl-C; nothing was written.\n"
            assert process.wait(60) == 130
        finally:
            process.kill()
    assert sorted(p.name for p in in_folder.iterdir()) == ["test.zarr", "train.zarr"]


@pytest.mark.parametrize("where", [["threads"], ["processes", "--workers", "2"]], ids=" ".join)
def test_ctrl_c_keeps_a_checkpoint_and_says_how_to_go_on(where, data):
    """A terminal sends Ctrl-C to all processes of the command, workers too."""
    command = [*DASK, "fit", "train.zarr", "--model", "m.zarr", "--scheduler", *where]
    command += ["--checkpoint", "state", *LONG]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            assert process.stderr is not None
            told = (line for line in process.stderr if line.startswith("epoch "))
            assert len(list(islice(told, 12))) == 12  # it was saved after ten
            os.killpg(process.pid, signal.SIGINT)
            *_, last = process.stderr
            assert process.wait(60) == 130
        finally:
            process.kill()
    found = Checkpoint("state").read()
    assert found is not None
    assert found[1]["epoch"] >= 10
    assert last == (
        f"Stopped by Ctrl-C; state holds the fit after {found[1]['epoch']} epochs: type the same "
        "command with --resume.\n"
    )
    command[command.index("--max-epochs") + 1] = "1"  # it has more behind it
    done = subprocess.run([*command, "--resume"], capture_output=True, text=True, timeout=250)
    assert "m.zarr" in done.stdout
    assert done.returncode == 3


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="this system has no pseudo-terminals")
def test_a_terminal_sees_a_live_line(data):
    master, terminal = os.openpty()
    command = [*DASK, "fit", "train.zarr", "--model", "m.zarr"]
    with subprocess.Popen(command, stderr=terminal, stdout=subprocess.DEVNULL) as process:
        os.close(terminal)
        seen = b""
        try:
            while chunk := os.read(master, 4096):
                seen += chunk
        except OSError:
            pass  # Linux says so when the other side has gone
        assert process.wait(250) == 0
    os.close(master)
    assert b"\r" in seen
    assert "█" in seen.decode()
    assert b"epoch " in seen


#: Starts the command and says how much memory it had at most, beyond what imports alone take.
WATCHED = """
import sys
from dask_mcsvm import LinearMCSVC
from dask_mcsvm.cli import mcsvm
import dask.array, distributed
from dask_mcsvm.training.runs import block_minimization, on_dask

def resident(kind):
    with open("/proc/self/status") as status:
        (line,) = (line for line in status if line.startswith(kind))
    return int(line.split()[1]) * 1024

def train(data, options):
    mcsvm(["fit", data, "--model", "m.zarr", "--overwrite", *options], standalone_mode=False)

train("train.zarr", sys.argv[1:])
before = resident("VmRSS")
train("large.zarr", sys.argv[1:])
print(resident("VmHWM") - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc/self/status")
@pytest.mark.parametrize("solver", ["early_shrink", "auto"])
def test_a_limit_of_memory_holds_for_the_whole_command(data, solver):
    """The dataset is trained on from its path: 4/5 of it never fit."""
    rng = np.random.default_rng(0)
    y = np.arange(200_000) % 3
    X = rng.normal(size=(y.size, 128)).astype(np.float32)
    X[np.arange(y.size), y] += 3
    write_dataset("large.zarr", X, y, block_rows=2_000)  # 102 MB of rows
    form = "ovr" if solver == "early_shrink" else "cs"
    options = ["--memory-limit", "30MB", "--solver", solver, "--formulation", form, "--quiet"]
    options += ["--max-epochs", "1", "--tol", "0.9", "--C", "1e-3"]
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, *options], capture_output=True, text=True, timeout=250
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) < 60e6
