"""Commands called in this process, and small data for them."""

import inspect
import json
from dataclasses import dataclass

import numpy as np
import pytest
from click.testing import CliRunner
from sklearn.datasets import make_blobs

from dask_mcsvm.cli import mcsvm
from dask_mcsvm.storage import write_dataset

# click 8.2 always keeps stdout and stderr apart, and took the option away.
APART = {"mix_stderr": False} if "mix_stderr" in inspect.signature(CliRunner).parameters else {}


@dataclass
class Done:
    """What a command left: exit code, stdout and stderr."""

    code: int
    out: str
    err: str

    @property
    def json(self):
        (line,) = self.out.splitlines()  # one document, and nothing else
        return json.loads(line, parse_constant=pytest.fail)


@pytest.fixture
def run():
    """Call ``dask mcsvm`` with arguments."""

    def call(*arguments):
        done = CliRunner(**APART).invoke(mcsvm, [str(argument) for argument in arguments])
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return Done(done.exit_code, done.stdout, done.stderr)

    return call


@pytest.fixture
def refuses(run, in_folder):
    """Call a command that must refuse: exit code 2, one sentence, nothing changed on disk."""

    def call(*arguments):
        before = snapshot(in_folder)
        done = run(*arguments)
        assert (done.code, done.out) == (2, "")
        assert snapshot(in_folder) == before
        (line,) = done.err.splitlines()
        return line.removeprefix("Error: ")

    return call


def snapshot(folder):
    return {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture(autouse=True)
def in_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def rows(part, n=120):
    """Overlapping clusters, in parts of n rows."""
    X, y = make_blobs(2 * n, 6, centers=4, cluster_std=6.0, random_state=7)
    here = slice(part * n, (part + 1) * n)
    return (X / np.abs(X).max()).astype(np.float32)[here], np.array(list("abcd"))[y][here]


@pytest.fixture
def data(in_folder):
    """The datasets train.zarr and test.zarr, in blocks of 32 rows."""
    for part, name in enumerate(["train.zarr", "test.zarr"]):
        write_dataset(name, *rows(part), block_rows=32)
    return rows(0), rows(1)
