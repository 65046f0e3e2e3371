"""Every example runs, says something and warns of nothing."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

#: What examples say in the end.
SAYS = {
    "larank_stream": "support patterns",
    "nightly": "the old model stays",
    "nightly_on_cluster": "same bytes: True",
}
#: Examples that need more than the tests do: what, and what they say in the end if it is there.
NEED = {
    "mlflow_run": ("mlflow", "artifacts: True"),
    "nightly_prefect": ("prefect", "place: True"),
    "to_onnx": ("skl2onnx", "same labels: True"),
}
EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


@pytest.mark.scripts
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(example, tmp_path):
    package, last = NEED.get(example.stem, (None, SAYS.get(example.stem, "")))
    is_there = package is None or find_spec(package) is not None
    strict = ["-W", "error"] if package is None else []  # libraries warn of themselves
    command = [sys.executable, *strict, str(example)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=250)
    assert done.returncode == 0, done.stderr
    assert not strict or done.stderr == ""
    assert (last if is_there else f"pip install {package}") in done.stdout.splitlines()[-1]
    if example.stem == "nightly_on_cluster":
        assert done.stdout.splitlines()[1:3] == [
            "the first call ended with -9", "goes on where it was"
        ]  # fmt: skip
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
