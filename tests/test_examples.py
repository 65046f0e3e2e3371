"""Every example runs, says something and warns of nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


@pytest.mark.scripts
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(example, tmp_path):
    command = [sys.executable, "-W", "error", str(example)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=250)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout
    if example.stem.startswith("larank"):
        assert "support patterns" in done.stdout
    assert list(tmp_path.iterdir()) == []  # it cleans up after itself


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_short_and_says_how_to_run_it(example):
    text = example.read_text("utf-8")
    assert len(text.splitlines()) < 60
    assert f"python examples/{example.name}" in text


@pytest.mark.scripts
def test_the_nightly_job_takes_paths(tmp_path):
    from sklearn.datasets import load_iris

    from dask_mcsvm import LinearMCSVC
    from dask_mcsvm.storage import write_dataset

    X, y = load_iris(return_X_y=True)
    for name, part in (("train", slice(0, None, 2)), ("validation", slice(1, None, 2))):
        write_dataset(tmp_path / f"{name}.zarr", X[part], y[part])
    paths = [str(tmp_path / f"{name}.zarr") for name in ("train", "validation", "model")]
    (script,) = (path for path in EXAMPLES if path.stem == "nightly")
    for night in ("the new model is in place\n",) * 2:  # no worse is good enough
        command = [sys.executable, str(script), *paths]
        done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=True)
        assert done.stdout.endswith(night)
    assert LinearMCSVC.load(paths[2]).notes_["data"] == paths[0]
