"""Every command of the guide runs, in the order of the page."""

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner
from sklearn.datasets import load_digits

from dask_mcsvm.cli import mcsvm

GUIDE = Path(__file__).parents[1] / "docs" / "guide.md"
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
        for line in block.splitlines():
            words = shlex.split(line)
            assert words[:2] == PREFIX
            done = CliRunner().invoke(mcsvm, words[2:])
            assert done.exit_code == 0, f"{line}\n{done.output}"
            commands += 1
    assert commands >= 8


def test_no_command_stands_outside_that_section() -> None:
    before = GUIDE.read_text("utf-8").split("\n## From the shell\n")[0]
    assert "dask mcsvm " not in before
