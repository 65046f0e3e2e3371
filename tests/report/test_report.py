"""Reports: whole in one file, with every figure that the run has something to show for."""

import base64
import html
import json
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from dask_mcsvm import LaRankSVC, LinearMCSVC
from dask_mcsvm.report import Tally, write_report

RUN = ["Objectives", "Relative gap", "Active examples", "Size of the weights"]


@pytest.fixture(autouse=True)
def in_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


class Page(HTMLParser):
    """Text, pictures and addresses of a page, and whether its tags are balanced."""

    VOID = {"meta", "link", "img", "input"}  # noqa: RUF012

    def __init__(self, text):
        super().__init__()
        self.text, self.pictures, self.addresses, self.open = "", {}, [], []
        self.tags = set()
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.tags.add(tag)
        self.addresses += [given[name] for name in ("src", "href") if name in given]
        if tag == "img":
            kind, data = given["src"].split(",", 1)
            assert kind == "data:image/svg+xml;base64"
            self.pictures[given["alt"].split(".")[0]] = base64.b64decode(data)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def read(path):
    return Page(path.read_text("utf-8"))


def test_the_page_holds_everything_itself(iris, in_folder):
    X, y, model = iris
    write_report(model, "r.html", X, y)
    page = read(in_folder / "r.html")
    assert list(page.pictures) == [*RUN, "F1 per class"]
    for picture in page.pictures.values():
        drawing = ET.fromstring(picture)
        assert drawing.tag.endswith("svg")
        assert len(list(drawing.iter())) > 50  # something was drawn
        fetched = [value for node in drawing.iter() for name, value in node.attrib.items()
                   if name.endswith(("href", "src"))]  # fmt: skip
        assert all(address.startswith("#") for address in fetched)
    assert all(address.startswith("data:") for address in page.addresses)
    assert not page.tags & {"script", "iframe", "object"}
    text = (in_folder / "r.html").read_text("utf-8")
    for name in ("objectives", "relativegap"):  # each once, with a switch
        assert text.count(f'name="{name}"') == 2
    assert "url(" not in (in_folder / "r.html").read_text("utf-8")
    for fact in ("versicolor", "macro F1", "crammer_singer", f"{model.gap_:.1e}", "scikit-learn"):
        assert fact in page.text


#: Tells, in the title of the page, how large every picture is drawn, and whether the page is wider
#: than its window. The report itself has no script; this one is added by the test.
SIZES = """<script>addEventListener("load", () => {
  const drawn = [...document.images].map(
    i => [i.alt.split(".")[0], i.naturalWidth, i.clientHeight]).filter(i => i[2]);
  document.title = JSON.stringify([drawn, document.documentElement.scrollWidth - innerWidth]);
})</script>"""


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Debian's chromium")
def test_a_browser_draws_every_picture(iris, in_folder):
    X, y, model = iris
    write_report(model, "r.html", X, y)
    text = (in_folder / "r.html").read_text("utf-8")
    (in_folder / "probe.html").write_text(text + SIZES, "utf-8")
    done = subprocess.run(
        ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1100,1200",
         f"--user-data-dir={in_folder / 'profile'}", "--virtual-time-budget=5000", "--dump-dom",
         (in_folder / "probe.html").as_uri()],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    titles = re.findall(r"<title>(.*?)</title>", done.stdout)
    drawn, too_wide = json.loads(html.unescape(titles[-1]))
    assert [name for name, *_ in drawn] == [*RUN, "F1 per class"]
    assert all(width > 100 and height > 50 for _, width, height in drawn)
    assert too_wide <= 0


def test_a_column_that_a_phone_hides_is_hidden_with_its_head(iris, in_folder):
    X, y, model = iris
    write_report(model, "r.html", X, y)
    (table,) = re.findall(
        r"Most confused.*?<table>(.*?)</table>", (in_folder / "r.html").read_text("utf-8"), re.S
    )
    head, *rows = (re.findall(r"<t[hd]( class=.bar.)?", row) for row in table.split("</tr>")[:-1])
    assert any(head)
    assert all(row == head for row in rows)


def test_without_rows_there_is_no_word_of_classes(iris, in_folder):
    _, _, model = iris
    write_report(model, "r.html")
    page = read(in_folder / "r.html")
    assert list(page.pictures) == RUN
    assert "F1" not in page.text


def test_a_loaded_model_has_the_same_report_byte_for_byte_but_for_its_notes(iris, in_folder):
    X, y, model = iris
    write_report(model, "r.html", X, y)
    model.save("m.zarr")
    write_report(LinearMCSVC.load("m.zarr"), "again.html", X, y)
    assert (in_folder / "r.html").read_bytes() == (in_folder / "again.html").read_bytes()
    noted = LinearMCSVC.load("m.zarr")
    noted.notes_ = {"data fingerprint": "0badc0de"}
    write_report(noted, "noted.html")
    assert "0badc0de" in read(in_folder / "noted.html").text


def test_a_distributed_run_shows_its_tasks_traffic_and_rounds(iris, in_folder):
    X, y, model = iris
    model = clone(model).fit(X, y)
    for record in model.history_:
        record |= {"task_seconds": {"visit": 1.0, "certify": 0.5}, "tasks": 40, "bytes": 10**6}
    model.plan_ = SimpleNamespace(groups=((0, 2), (1,), (3, 4)), n=150)
    for solver in ("rounds", "averaging"):
        model.solver_ = solver
        write_report(model, "r.html", overwrite=True)
        shown = list(read(in_folder / "r.html").pictures)
        rounds = ["Rounds"] if solver == "rounds" else []
        assert shown == [*RUN, "Time per kind of task", "Tasks and traffic", *rounds]


@pytest.mark.parametrize("n_classes", [2, 300])
def test_names_of_any_length_and_script_stay_text(in_folder, n_classes):
    rng = np.random.default_rng(0)
    y = np.arange(2 * n_classes) % n_classes
    X = np.eye(n_classes)[y] + 0.1 * rng.standard_normal((2 * n_classes, n_classes))
    names = np.array([f"<b>{c:03d}</b> & $x_{c}$ 名前 {'long ' * 30}" for c in range(n_classes)])
    # 300 classes keep alpha as lists: of CSR rows, as in tests of solvers.
    rows = sp.csr_array(X) if n_classes > 2 else X
    model = LinearMCSVC(tol=0.1, random_state=0).fit(rows, names[y])
    for name in ("r.html", "r.png"):
        write_report(model, name, X[::-1], names[y])  # most labels are wrong
    page = read(in_folder / "r.html")
    assert "</b> & $x_" in page.text
    assert " 名前 long long" in page.text
    listed = len(re.findall(r"<b>\d", page.text))
    assert listed <= 3 * 12  # tables stay short, whatever k
    assert (in_folder / "r.png").stat().st_size < 2e6


@pytest.mark.parametrize("epochs", [1, 3])
def test_a_run_that_did_not_converge_says_so(iris, in_folder, epochs):
    X, y, model = iris
    short = clone(model).set_params(max_epochs=epochs, tol=0).fit(X, y)
    write_report(short.set_params(tol=1e-9), "r.html")
    page = read(in_folder / "r.html")
    assert "The fit ended (max_epochs) before the proof was as good as asked for" in page.text
    assert list(page.pictures) == RUN


@pytest.mark.parametrize("stop", ["epochs", "gap"])
def test_an_online_fit_has_a_report_too(in_folder, iris, stop):
    X, y, _ = iris
    write_report(LaRankSVC(stop=stop, random_state=0).fit(X, y), "r.html", X, y)
    page = read(in_folder / "r.html")
    first = ["Objectives", "Relative gap"] if stop == "gap" else ["Dual objective"]
    rest = ["Support patterns", "Size of the weights", "F1 per class"]
    assert list(page.pictures) == [*first, *rest]
    proof = "The fit proved its quality" if stop == "gap" else "was not asked for a proof"
    assert proof in page.text


def test_training_rows_are_called_so(in_folder, iris):
    X, y, model = iris
    tally = Tally(model.classes_)
    tally.add(y, model.predict(X))
    for of_training, words in ((True, "accuracy on 150 training rows"), (False, "on 150 rows")):
        scores = replace(tally.scores(), of_training=of_training)
        write_report(model, "r.html", scores=scores, overwrite=True)
        assert words in read(in_folder / "r.html").text


def test_kinds_of_tasks_that_take_next_to_no_time_are_one_bar(in_folder, iris):
    X, y, model = iris
    model = clone(model).fit(X, y)
    few = {f"cs-small-{i}": 1e-4 for i in range(3)}
    for record in model.history_:
        record |= {"task_seconds": {"cs-solve": 1.0, **few}}
    write_report(model, "r.html")
    drawing = read(in_folder / "r.html").pictures["Time per kind of task"].decode()
    assert "<!-- 3 others -->" in drawing
    assert "cs-small" not in drawing


def test_weights_that_are_all_zero_have_no_histogram(in_folder):
    model = LinearMCSVC(fit_intercept=False).fit(np.zeros((4, 2)), [0, 1, 0, 1])
    write_report(model, "r.html")
    assert "Size of the weights" not in read(in_folder / "r.html").pictures


def test_a_picture_is_a_png(iris, in_folder):
    X, y, model = iris
    write_report(model, "r.png", X, y)
    content = (in_folder / "r.png").read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = (int.from_bytes(content[at : at + 4], "big") for at in (16, 20))
    assert width > 2000
    assert height > 800


def test_bad_targets_are_refused_and_nothing_is_written(iris, in_folder):
    X, y, model = iris
    with pytest.raises(ValueError, match=r"^r\.pdf: a report ends in .* type r\.html\.$"):
        write_report(model, "r.pdf")
    with pytest.raises(FileNotFoundError, match=r"^no/r\.html: there is no folder no; make it "):
        write_report(model, "no/r.html")
    with pytest.raises(ValueError, match=r"^X and y belong together; pass both, or neither\.$"):
        write_report(model, "r.html", X)
    with pytest.raises(NotFittedError):
        write_report(LinearMCSVC(), "r.html")
    with pytest.raises(ValueError, match=r"^a report shows the fit of a LinearMCSVC or a "):
        write_report(model.to_linear_svc(), "r.html")
    assert list(in_folder.iterdir()) == []
    (in_folder / "r.html").write_text("old")
    with pytest.raises(FileExistsError, match=r"^r\.html exists; pass overwrite=True to replace "):
        write_report(model, "r.html")
    assert (in_folder / "r.html").read_text() == "old"
    write_report(model, "r.html", X, y, overwrite=True)
    assert [path.name for path in in_folder.iterdir()] == ["r.html"]


def test_without_matplotlib_it_says_what_to_type():
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from dask_mcsvm.report import write_report\n"
        "try: write_report(None, 'r.html')\n"
        "except ImportError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == (
        "matplotlib is not installed, and reports are drawn with it; "
        "type: pip install 'dask-mcsvm[report]'\n"
    )


def test_notes_can_not_break_the_report(iris, in_folder):
    X, y, fitted = iris
    model = clone(fitted).fit(X, y)
    model.notes_ = {
        "<script>alert(1)</script>": "</table><b>&", "primal": "none", 3: {"pairs": 7},
        "pairs": {"pairs": [[1, 2, 3]]}, "half": "\ud800", "long": "x" * 10**6,
        "bell": "\x07\x1b[2J", "object": object, **{f"note {i}": i for i in range(60)},
    }  # fmt: skip
    write_report(model, "r.html")
    text = (in_folder / "r.html").read_text(encoding="utf-8")
    page = Page(text)  # its tags are balanced
    assert "script" not in page.tags
    assert f"primal{model.primal_:.9g}" in page.text.replace("\n", "")
    assert "primalnone" in page.text
    assert "half\\ud800" in page.text
    assert f"long{'x' * 1000}... (1,000,000 characters)" in page.text
    assert "bell\\x07\\x1b[2J" in page.text
    assert "18 more are not listed." in page.text
    assert "\x1b" not in text
    for notes in (None, ["a list"], "<text>"):
        model.notes_ = notes
        write_report(model, "r.html", overwrite=True)
        Page((in_folder / "r.html").read_text(encoding="utf-8"))


def test_names_of_classes_are_shown_and_not_obeyed(iris, in_folder):
    X, y, _ = iris
    names = np.array(["a\x1b[31m", "b\nc\x9b2J", "<d>\u202e"])[np.unique(y, return_inverse=True)[1]]
    model = LinearMCSVC(C=1e-4, random_state=0).fit(X, names)
    write_report(model, "r.html", X, names)
    text = (in_folder / "r.html").read_text(encoding="utf-8")
    assert not set("\x1b\x9b\u202e") & set(text)
    for shown in ("a\\x1b[31m", "b\\nc\\x9b2J", "<d>\\u202e"):
        assert shown in Page(text).text
