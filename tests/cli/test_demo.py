"""The command line as a user meets it: real processes, entry point included."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from dask_mcsvm import LinearMCSVC
from dask_mcsvm.cli._demo import CASES, TOL
from dask_mcsvm.formulations import FORMULATIONS

DASK = [sys.executable, "-m", "dask"]
SCRIPT = [str(Path(sys.executable).with_name("dask"))]


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=280)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def demo(folder: Path) -> subprocess.CompletedProcess[str]:
    return run(*SCRIPT, "mcsvm", "demo", "--out", str(folder))


def rows(text: str) -> dict[str, list[str]]:
    """A table of the demo: formulation -> solver, epochs, seconds, relative gap, accuracy."""
    lines = [line.split() for line in text.splitlines()]
    return {row[0]: row[1:] for row in lines if row and row[0] in FORMULATIONS and len(row) == 6}


def of_texts(demo: subprocess.CompletedProcess[str]) -> str:
    return demo.stdout.split("Handwritten digits")[0]


@pytest.mark.scripts
def test_demo_succeeds_and_warns_of_nothing(demo: subprocess.CompletedProcess[str]) -> None:
    dashboard, *lines = demo.stderr.splitlines()
    assert re.match(r"Dashboard http://127\.0\.0\.1:\d+/status", dashboard)
    # What takes longer than ten seconds says how far it is.
    lines = [line for line in lines if not re.search(r"epoch \S+  \S+ s", line)]
    assert (demo.returncode, lines) == (0, [])


@pytest.mark.scripts
def test_demo_certifies_every_model(demo: subprocess.CompletedProcess[str]) -> None:
    digits = demo.stdout.split("Handwritten digits")[1]
    table = rows(of_texts(demo))
    assert [(name, row[0]) for name, row in table.items()] == [
        (case.formulation, case.solver) for case in CASES
    ]
    for _, epochs, _, gap, accuracy in table.values():
        assert int(epochs) >= 1
        assert 0 <= float(gap) <= TOL
        assert float(accuracy) > 0.8
    table = rows(digits)
    assert list(table) == list(FORMULATIONS)
    assert all(0 <= float(gap) <= TOL for _, _, _, gap, _ in table.values())
    accuracies = {float(row[-1]) for row in table.values()}
    assert max(accuracies) > 0.9
    assert max(accuracies) - min(accuracies) > 0.1, "formulations differ"


@pytest.mark.scripts
def test_demo_leaves_a_model_and_a_report(
    demo: subprocess.CompletedProcess[str], folder: Path
) -> None:
    model = LinearMCSVC.load(folder / "model.zarr")
    assert model.score(str(folder / "test.zarr")) == pytest.approx(
        float(rows(of_texts(demo))["crammer_singer"][-1]), abs=6e-4
    )
    assert (folder / "report.html").read_text("utf-8").startswith("<!doctype html>")


@pytest.mark.scripts
def test_demo_prints_python_that_does_the_same(
    demo: subprocess.CompletedProcess[str], capsys: pytest.CaptureFixture[str]
) -> None:
    code = [line.strip() for line in demo.stdout.rstrip().splitlines()[-3:]]
    exec("\n".join(code), {})
    gap, accuracy = map(float, capsys.readouterr().out.split())
    *_, demo_gap, demo_accuracy = rows(of_texts(demo))["crammer_singer"]
    assert gap == pytest.approx(float(demo_gap), rel=0.06)  # the table shows two digits
    assert accuracy == pytest.approx(float(demo_accuracy), abs=6e-4)


@pytest.mark.parametrize("dask", [DASK, SCRIPT], ids=["module", "script"])
def test_help_lists_the_demo(dask: list[str]) -> None:
    done = run(*dask, "mcsvm", "--help")
    assert done.returncode == 0
    assert re.search(r"^  demo +Train on a small Dask cluster", done.stdout, re.MULTILINE)


def test_dask_itself_knows_the_group() -> None:
    assert "mcsvm" in run(*DASK, "--help").stdout


def test_help_compiles_nothing() -> None:
    """Every ``dask`` command imports dask_mcsvm.cli, so numba and scikit-learn must stay out."""
    code = (
        "import atexit, sys; from dask.cli import run_cli; sys.argv = ['dask', 'mcsvm', '--help'];"
        "atexit.register(lambda: print(*sys.modules)); run_cli()"
    )
    done = run(sys.executable, "-c", code)
    imported = set(done.stdout.splitlines()[-1].split())
    assert "dask_mcsvm.cli" in imported  # the listing is what we think it is
    assert not imported & {"numba", "sklearn", "zarr", "matplotlib"}


def test_an_unknown_command_is_refused() -> None:
    done = run(*DASK, "mcsvm", "dmeo")
    assert done.returncode == 2
    assert "No such command 'dmeo'" in done.stderr
