"""Kernels compile also where nothing can be written, and whole although Ctrl-C comes."""

import ctypes
import errno
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from numba.core import event

import dask_mcsvm
from dask_mcsvm.solvers.kernels import cache_folder
from dask_mcsvm.solvers.kernels.jit import APART, apart, kernel
from dask_mcsvm.solvers.larank import Kernel, LaRank
from dask_mcsvm.solvers.larank.certify import exact_weights
from dask_mcsvm.solvers.sdm.sweeps import make_scratch

PROGRAM = """
import sys
import tempfile
tempfile.tempdir = sys.argv[1]
import numpy as np
from dask_mcsvm.solvers.kernels import jit, certify
from dask_mcsvm.solvers.sdm import run  # many kernels, each without a place

@jit.kernel
def double(x):
    return 2 * x

print(double(21), run.__file__)
"""
SAID = (
    "Compiled code can be stored neither beside the package nor in the user's cache folder, so {}; "
    "set NUMBA_CACHE_DIR to a folder that can be written.\n"
)


@pytest.fixture
def package(tmp_path):
    """A copy of the package in folders that can only be read."""
    inner = tmp_path / "site"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(dask_mcsvm.__file__).parent, inner / "dask_mcsvm", ignore=ignored)
    (inner / "program.py").write_text(PROGRAM)
    folders = [p for p in [inner, *inner.rglob("*")] if p.is_dir()]
    for folder in folders:
        folder.chmod(0o555)
    yield inner
    for folder in folders:
        folder.chmod(0o755)


def obey_permissions():
    """Root writes everywhere; without CAP_DAC_OVERRIDE only where the owner may."""
    if os.getuid() == 0:
        assert ctypes.CDLL(None).prctl(24, 1, 0, 0, 0) == 0  # PR_CAPBSET_DROP, then exec


def run(package, temporary):
    """The program, by a user without a home or cache; what it said on stderr."""
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    env = {**kept, "PYTHONPATH": str(package), "PYTHONDONTWRITEBYTECODE": "1", "HOME": str(package)}
    command = [sys.executable, str(package / "program.py"), str(temporary)]
    done = subprocess.run(
        command, env=env, cwd=package, capture_output=True, text=True, timeout=120,
        preexec_fn=obey_permissions,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"42 {package}/dask_mcsvm/solvers/sdm/run.py\n"
    return done.stderr


def test_without_any_place_to_write_kernels_are_not_cached(package):
    told = run(package, package)
    assert told == SAID.format("every process compiles it anew, which takes up to a minute")


def test_where_no_file_can_be_written_at_all_there_is_no_cache(monkeypatch):
    def none_found():  # what tempfile raises in a container whose every folder is read-only
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", none_found)
    assert cache_folder.spare_cache_folder() is None


def test_a_temporary_folder_takes_the_cache(package):
    temporary = package.parent / "temporary"
    temporary.mkdir()
    temporary.chmod(0o777)
    told = run(package, temporary)
    (user,) = temporary.iterdir()
    assert user.stat().st_mode & 0o077 == 0
    (folder,) = user.iterdir()
    assert told == SAID.format(f"it is kept in {folder}")
    assert list(folder.rglob("*double*.nbi"))
    assert run(package, temporary) == told

    user.chmod(0o777)  # anybody could put code there
    assert run(package, temporary) == SAID.format(
        "every process compiles it anew, which takes up to a minute"
    )


def test_a_change_of_any_kernel_is_another_cache(tmp_path, monkeypatch):
    copied = tmp_path / "solvers"
    shutil.copytree(Path(cache_folder.__file__).parents[1], copied)
    monkeypatch.setattr(cache_folder, "__file__", str(copied / "kernels" / "cache_folder.py"))
    stamps = {cache_folder._stamp()}
    for name in ("kernels/steps.py", "larank/steps.py", "splitting/prox.py"):
        (copied / name).write_text((copied / name).read_text() + "#")
        stamps.add(cache_folder._stamp())
    assert len(stamps) == 4


@kernel
def where_two_arrays_are(size):
    one, two = apart(size, np.float32), apart(size, np.float64)
    return one.ctypes.data, two.ctypes.data


def test_working_space_is_far_from_all_else():
    """Where small arrays lie next to each other, sums would be rounded otherwise."""
    options = {"n_classes": 3, "n_features": 2, "is_sparse": False, "seed": 0}
    run = LaRank(dtype=np.dtype(np.float32), kernel=Kernel("linear"), **options)
    stream = (run.tally.g, run.tally.delta, run.model.s, exact_weights(run).s)
    arrays = (*make_scratch(3, np.dtype(np.float32)), *stream)
    places = sorted(array.ctypes.data for array in arrays)
    assert min(np.diff(places)) >= 4 * APART
    assert abs(np.subtract(*where_two_arrays_are(3))) >= 4 * APART
    for array in arrays:  # the allocator's own blocks before and behind it belong to the array
        base = array.base
        assert array.ctypes.data - base.ctypes.data >= 4 * APART
        assert base.nbytes - array.nbytes >= 8 * APART


class Interrupting(event.Listener):
    """Ctrl-C, some times, when the compiler begins."""

    def __init__(self, times):
        self.times = times

    def on_start(self, event):
        while self.times:
            self.times -= 1
            signal.raise_signal(signal.SIGINT)

    def on_end(self, event):
        pass


@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_waits_for_a_kernel_that_is_compiled_and_a_second_one_does_not(times):
    """llvmlite would free a string twice and abort, or the interrupt be lost in a callback."""

    @kernel
    def triple(x):
        return 3 * x

    handler = signal.getsignal(signal.SIGINT)
    listening = event.install_listener("numba:compiler_lock", Interrupting(times))
    with listening, pytest.raises(KeyboardInterrupt):
        triple(14)
    assert len(triple.signatures) == (1 if times == 1 else 0)
    assert signal.getsignal(signal.SIGINT) is handler
    assert triple(14) == 42  # and no interrupt is left
