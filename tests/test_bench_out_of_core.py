"""The out-of-core benchmark at toy size; no time it measures is judged here."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import dask_mcsvm

pytestmark = pytest.mark.scripts

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "bench_out_of_core.py"
PACKAGE = Path(dask_mcsvm.__file__).parents[1]


def test_it_prints_the_tables_and_every_run_arrives(tmp_path: Path) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "DASK_MCSVM_DATA"}
    environment["PYTHONPATH"] = str(PACKAGE)
    report = tmp_path / "out.json"
    command = [sys.executable, "-W", "error", str(SCRIPT), "--size", "tiny", "--json", str(report)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    for title in (
        "Table 1. generated",
        "Table 2. Dual",
        "Table 3. Block",
        "Figure 1. Active",
        "Within a",
    ):
        assert title in done.stdout
    (result,) = json.loads(report.read_text("utf-8"))["sets"]
    assert result["ours"]["gap"] <= 1e-3
    assert result["ours"]["stop"] == "gap"
    assert result["blocks"]["reached"]
    for run in result["limited"].values():
        assert run["gap"] <= 1e-3
    assert result["paper"]["stop"] == "dual"
    assert 0 <= result["inactive"]["mismatch"] < 1
    assert result["ours"]["primal"] <= result["blocks"]["primal"] * (1 + 1e-3)
    if find_spec("liblinear") is not None:
        assert result["same"]["primal"] <= result["liblinear"]["primal"]
    kinds = [record["pass"] for record in result["ours"]["history"]]
    assert kinds[0] == "stream"
    assert kinds[-1] == "certify"
