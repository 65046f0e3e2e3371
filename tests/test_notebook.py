"""A notebook as a user has it: executed by a kernel of its own, its outputs looked at."""

import json
import subprocess
import sys

import pytest

CELLS = (
    """
from sklearn.datasets import load_iris
from dask_mcsvm import LinearMCSVC
from dask_mcsvm.progress import LiveLine
from dask_mcsvm.report import write_report
X, y = load_iris(return_X_y=True)
model = LinearMCSVC(random_state=0, callbacks=(LiveLine(tol=1e-3),))
model.fit(X, y)
""",
    "model.explain(X, y)",
    "model.plan_",
    "model.path(X, y, [0.1, 1.0], validation=0.3)",
    "write_report(model, 'iris.html')",
)
EXECUTE = """
import json, sys, nbformat
from nbclient import NotebookClient
book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in json.load(sys.stdin)])
NotebookClient(book, timeout=200).execute()
print(json.dumps([cell.outputs for cell in book.cells]))
"""


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    done = subprocess.run(
        [sys.executable, "-c", EXECUTE], input=json.dumps(CELLS), capture_output=True, text=True,
        cwd=tmp_path_factory.mktemp("notebook"), timeout=280, check=True,
    )  # fmt: skip
    return json.loads(done.stdout)


def test_a_fit_has_one_updating_display_and_shows_its_gap(outputs):
    progress, model, *more = outputs[0]
    assert (progress["output_type"], more) == ("display_data", [])
    assert "epoch " in progress["data"]["text/plain"]  # the last epoch, over all before it
    assert "\r" not in progress["data"]["text/plain"]
    assert "relative gap" in model["data"]["text/html"]
    assert "(within tol=0.001)" in model["data"]["text/html"]


def test_a_plan_is_shown_once(outputs):
    (explained,) = outputs[1]
    assert explained["output_type"] == "stream"
    (plan,) = outputs[2]
    assert plan["data"]["text/plain"] == explained["text"].strip()


def test_a_path_is_a_table(outputs):
    (table,) = [output for output in outputs[3] if output["output_type"] == "execute_result"]
    assert table["data"]["text/html"].startswith("<table")
    assert table["data"]["text/plain"].count("\n") == 2


def test_a_report_shows_itself(outputs):
    (report,) = outputs[4]
    assert "srcdoc=" in report["data"]["text/html"]
