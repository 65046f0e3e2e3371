"""Every command of the guide and of the README runs, in the order of the page."""

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner
from sklearn.datasets import dump_svmlight_file, load_digits

from dask_mcsvm import LinearMCSVC
from dask_mcsvm.cli import mcsvm
from dask_mcsvm.storage import write_dataset

ROOT = Path(__file__).parents[1]
GUIDE = ROOT / "docs" / "guide.md"
FENCED = re.compile(r"^```(python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PREFIX = ["dask", "mcsvm"]


def shell_section() -> str:
    return GUIDE.read_text("utf-8").split("\n## From the shell\n")[1]


def test_the_commands_of_the_guide_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    X, y = load_digits(return_X_y=True)
    X = X / 16
    data = {"X_train": X[:1300], "y_train": y[:1300], "X_test": X[1300:], "y_test": y[1300:]}
    commands = 0
    for kind, block in FENCED.findall(shell_section()):
        if kind == "python":
            exec(block, data)
            continue
        commands += run_commands(block)
    assert commands >= 8


def run_commands(block: str) -> int:
    """Run a block of `dask mcsvm` commands; how many they were."""
    lines = block.splitlines()
    for line in lines:
        words = shlex.split(line)
        assert words[:2] == PREFIX
        done = CliRunner().invoke(mcsvm, words[2:])
        assert done.exit_code == 0, f"{line}\n{done.output}"
    return len(lines)


def test_the_commands_of_the_readme_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that install, and the demo, are run by CI and tests/cli/test_demo.py."""
    monkeypatch.chdir(tmp_path)
    X, y = load_digits(return_X_y=True)
    dump_svmlight_file(X[:1300] / 16, y[:1300], "train.svm", zero_based=False)
    write_dataset("test.zarr", X[1300:] / 16, y[1300:])
    text = (ROOT / "README.md").read_text("utf-8")
    blocks = [block for _, block in FENCED.findall(text) if block.startswith("dask mcsvm ")]
    assert sum(map(run_commands, blocks)) == 3
    assert Path("run.html").stat().st_size > 10_000


def test_no_command_stands_outside_that_section() -> None:
    before = GUIDE.read_text("utf-8").split("\n## From the shell\n")[0]
    assert "dask mcsvm " not in before


def test_the_commands_of_the_example_larger_than_memory_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    X, y = load_digits(return_X_y=True)
    dump_svmlight_file(X / 16, y, "train.svm", zero_based=False)
    text = (ROOT / "examples" / "larger_than_memory.py").read_text("utf-8")
    commands = re.findall(r"`(dask mcsvm [^`]+)`", text)
    assert run_commands("\n".join(" ".join(command.split()) for command in commands)) == 2
    assert LinearMCSVC.load("model.zarr").solver_ == "early_shrink"
