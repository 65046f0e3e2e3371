"""The command line as a user meets it: real processes, entry point included."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from dask_mcsvm import LinearMCSVC
from dask_mcsvm.cli._demo import FORMULATIONS, SAME_IN_PYTHON, _digits

DASK = [sys.executable, "-m", "dask"]
SCRIPT = [str(Path(sys.executable).with_name("dask"))]


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=280)


@pytest.fixture(scope="module")
def demo() -> subprocess.CompletedProcess[str]:
    return run(*SCRIPT, "mcsvm", "demo")


def rows(text: str) -> dict[str, list[float]]:
    """The table of the demo: formulation -> epochs, seconds, relative gap, accuracy."""
    lines = [line.split() for line in text.splitlines()]
    return {row[0]: [float(x) for x in row[1:]] for row in lines if row and row[0] in FORMULATIONS}


def test_demo_succeeds_and_warns_of_nothing(demo: subprocess.CompletedProcess[str]) -> None:
    assert (demo.returncode, demo.stderr) == (0, "")


def test_demo_certifies_every_formulation(demo: subprocess.CompletedProcess[str]) -> None:
    table = rows(demo.stdout)
    assert tuple(table) == FORMULATIONS
    for formulation, (epochs, seconds, gap, accuracy) in table.items():
        assert epochs >= 1
        assert seconds < 60
        assert 0 <= gap <= 1e-3
        # The optimum of Lee-Lin-Wahba is no better on 64 features, whatever C: the demo says so.
        assert accuracy > (0.65 if formulation == "lee_lin_wahba" else 0.94)


def test_demo_prints_python_that_does_the_same(
    demo: subprocess.CompletedProcess[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert demo.stdout.rstrip().endswith(SAME_IN_PYTHON)
    code = [line.strip() for line in SAME_IN_PYTHON.splitlines()]
    assert len(code) == 3
    data = dict(zip(["X_train", "X_test", "y_train", "y_test"], _digits(), strict=True))
    exec("\n".join(code), data)
    gap, accuracy = map(float, capsys.readouterr().out.split())
    _, _, demo_gap, demo_accuracy = rows(demo.stdout)["crammer_singer"]
    assert gap == pytest.approx(demo_gap, rel=0.06)  # the table shows two digits
    assert accuracy == pytest.approx(demo_accuracy, abs=6e-4)


def test_demo_names_every_formulation_there_is() -> None:
    X, _, y, _ = _digits()
    with pytest.raises(ValueError, match="formulation") as refusal:
        LinearMCSVC(formulation="none").fit(X, y)
    assert all(name in str(refusal.value) for name in FORMULATIONS)


@pytest.mark.parametrize("dask", [DASK, SCRIPT], ids=["module", "script"])
def test_help_lists_the_demo(dask: list[str]) -> None:
    done = run(*dask, "mcsvm", "--help")
    assert done.returncode == 0
    assert re.search(r"^  demo +Train the four formulations", done.stdout, re.MULTILINE)


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
