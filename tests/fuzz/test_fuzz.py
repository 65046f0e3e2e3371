"""The fuzzers run, and what goes wrong in a case is counted, told and repeated."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.scripts

HERE = Path(__file__).parent

FAULTS = """
import os, sys, tempfile, time
sys.path.insert(0, {here!r})
import numpy as np
import sklearn.exceptions
from dask_mcsvm import LinearMCSVC, errors
from runner import check, main

def case(rng):
    tempfile.mkdtemp()
    match int(rng.integers(7)):
        case 0: os.abort()
        case 1: time.sleep(60)
        case 2: check(False, "two is three")
        case 3: {{}}["key"]
        case 4: LinearMCSVC(C=-1).fit([[1.0]], [0])
        case 5: np.zeros(3).reshape(2, 2)

main(case, __file__)
"""


def run(script, *options, **environment):
    command = [sys.executable, str(script), *map(str, options)]
    env = {**os.environ, **environment}
    return subprocess.run(command, capture_output=True, text=True, timeout=250, env=env)


def counts(done):
    return dict(re.findall(r"^([a-z][a-z ]+): (\d+)$", done.stdout, re.MULTILINE))


@pytest.mark.parametrize(
    ("name", "seed", "cases"), [("inputs", 0, 3), ("files", 33, 3), ("kills", 33, 2)]
)
def test_a_few_cases_of_each(name, seed, cases):
    done = run(HERE / f"fuzz_{name}.py", "--seed", seed, "--cases", cases)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith(f"seed {seed}\n")
    found = counts(done)
    assert found.pop(f"{name} tried") == str(cases)
    assert [found[k] for k in ("wrong results", "crashes", "hangs", "raw exceptions")] == ["0"] * 4


def test_what_goes_wrong_is_counted_and_repeated(tmp_path):
    script = tmp_path / "fuzz_faults.py"
    script.write_text(FAULTS.format(here=str(HERE)))
    (files := tmp_path / "files").mkdir()
    done = run(script, "--cases", 12, "--seed", 1, "--timeout", 5, TMPDIR=str(files))
    assert done.returncode == 1, done.stderr
    found = counts(done)
    assert found["inputs tried"] == "12"
    assert all(int(found[kind]) > 0 for kind in found), done.stdout
    assert "KeyError at fuzz_faults.py:case: 'key'" in done.stdout
    assert "ValueError at fuzz_faults.py:case: cannot reshape" in done.stdout
    (seed,) = re.findall(r"^wrong, --case (\d+): two is three$", done.stdout, re.MULTILINE)
    again = run(script, "--case", seed, TMPDIR=str(files))
    assert again.returncode == 1
    assert again.stderr.endswith("runner.Wrong: two is three\n")
    assert not any(files.iterdir())  # also of processes that crashed or were killed
