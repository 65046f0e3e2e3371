"""The harness of benchmarks; and what README and docs show of studies is what the results say."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import dask_mcsvm

ROOT = Path(__file__).parents[1]
BENCHMARKS = ROOT / "benchmarks"
STUDIES = sorted(path.stem for path in (BENCHMARKS / "studies").glob("[a-z]*.py"))
PACKAGE = Path(dask_mcsvm.__file__).parents[1]


@pytest.fixture(autouse=True)
def harness(monkeypatch: pytest.MonkeyPatch) -> None:
    """Importable as from a script of its folder, without the user's folder of data."""
    monkeypatch.delenv("DASK_MCSVM_DATA", raising=False)
    monkeypatch.syspath_prepend(BENCHMARKS)


# -- docs ------------------------------------------------------------------------------------------


def test_tables_in_readme_and_docs_are_those_of_the_results() -> None:
    import run
    from harness.tables import PLACE, pages

    given = SimpleNamespace(results=BENCHMARKS / "results", quick=False)
    shown = {
        (page.name, *place.groups())
        for page in pages()
        for place in PLACE.finditer(page.read_text("utf-8"))
    }
    assert {study for _, study, *_ in shown} <= set(run.studies())
    for page, study, name, text in shown:
        wanted = run.texts(study, given)[name]
        assert text == wanted, f"{page}: type python benchmarks/run.py {study} --docs"


@pytest.mark.parametrize("name", ["README.md", "docs/performance.md", "docs/formulations.md"])
def test_no_table_of_figures_is_typed_by_hand(name: str) -> None:
    import re

    from harness.tables import PLACE

    typed = PLACE.sub("", (ROOT / name).read_text("utf-8"))
    figures = [line for line in typed.splitlines() if re.match(r"\|.*\| *[\d.]+ *[|/%]", line)]
    assert figures == []


def test_tables_are_written_at_their_places_and_nowhere_else(tmp_path: Path) -> None:
    from harness.tables import write_places

    page = tmp_path / "page.md"
    other = "<!-- study:b:x -->\nold\n<!-- /study -->\n"
    page.write_text(f"above\n<!-- study:a:x -->\nold\n<!-- /study -->\nbetween\n{other}", "utf-8")
    assert write_places("a", {"x": "new\n", "y": "-\n"}, page) == ["x"]
    filled = "above\n<!-- study:a:x -->\nnew\n<!-- /study -->\nbetween\n"
    assert page.read_text("utf-8") == filled + other


@pytest.mark.parametrize("study", STUDIES)
def test_a_study_without_results_has_its_tables_and_says_what_to_type(
    study: str, tmp_path: Path
) -> None:
    import run

    texts = run.texts(study, SimpleNamespace(results=tmp_path, quick=False))
    assert texts
    assert set(texts.values()) == {f"Not measured yet: `python benchmarks/run.py {study}`.\n"}


# -- results ---------------------------------------------------------------------------------------


def result(**changed: Any) -> Any:
    from harness import Case, Result

    values = {
        "case": Case({"name": "words"}), "status": "done", "limit": 60.0, "found": {"seconds": 2.0},
        "checksum": "1", "environment": {"commit": "a"},
    }  # fmt: skip
    return Result(**values | changed)


def test_a_case_measured_again_takes_the_place_of_its_old_result(tmp_path: Path) -> None:
    from harness import Case, Results

    store = Results(tmp_path / "new" / "study.jsonl")
    other = result(case=Case({"name": "words"}, repeat=1))
    for one in (result(), other, result(found={"seconds": 1.0})):
        store.add(one)
    assert list(store.read().values()) == [result(found={"seconds": 1.0}), other]
    assert [path.name for path in store.path.parent.iterdir()] == ["study.jsonl"]


def test_what_is_finished_is_done_or_was_given_as_much_time() -> None:
    assert result().is_final(900.0, None)
    assert result().is_final(900.0, "a")
    assert not result().is_final(900.0, "b")
    stopped = result(status="over the limit")
    assert stopped.is_final(60.0, None)
    assert not stopped.is_final(61.0, None)
    assert not result(status="failed").is_final(1.0, None)


def test_cells_mark_who_gave_up_and_the_best_is_one_that_arrived() -> None:
    from harness import Case, best, number, ratio

    stopped = result(status="over the limit", found={"seconds": 0.5, "gap": 0.25})
    assert [number(stopped), number(stopped, "gap")] == ["> 0.5", "2.5e-01"]
    assert number(result(status="over the limit", found={})) == "> 60"
    assert number(result(status="failed", found={})) == "failed"
    assert [number(None), number(result(), "epochs")] == ["-", "-"]
    assert number(result(found={"seconds": 12345.6})) == "12,346"
    again = result(case=Case({"name": "words"}, repeat=1), found={"seconds": 1.5})
    assert best([stopped, result(), again]) == [again]
    assert ratio(result(), again) == "1.33"
    assert ratio(stopped, again) == "-"


# -- rows ------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A sparse set, a dense set, and debfiles of two parts, every fourth row of them to test."""
    rng = np.random.default_rng(0)
    for number in range(2):
        X = sp.random(8, 5, 0.5, "csr", np.float32, rng)
        (tmp_path / "debfiles").mkdir(exist_ok=True)
        np.savez(
            tmp_path / "debfiles" / f"part-00{number}.npz", data=X.data, indices=X.indices,
            indptr=X.indptr.astype(np.int64), shape=X.shape, y_section=np.arange(8) + 10 * number,
            y_package=np.zeros(8, int), test=np.arange(8) % 4 == 3,
        )  # fmt: skip
    split = {
        f"X_{which}_{part}": getattr(X, part)
        for which in ("train", "test") for part in ("data", "indices", "indptr", "shape")
    }  # fmt: skip
    y = {"y_train": np.arange(8), "y_test": np.arange(8)}
    np.savez_compressed(tmp_path / "words.npz", **split, **y)
    np.savez_compressed(tmp_path / "pixels.npz", X_train=X.toarray(), X_test=X.toarray(), **y)
    return tmp_path


SPECS = [
    {"name": "debfiles", "rows": 9, "labels": "section"},
    {"name": "words"},
    {"name": "words", "rows": 5},
    {"name": "generated", "n": 50, "d": 30, "k": 4, "words": 5, "parts": 3},
]


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_workers_read_the_rows_that_memory_holds(spec: dict[str, Any], folder: Path) -> None:
    from harness.data import Places, lazy, load

    data = load(spec, Places(str(folder)), test=True)
    X, y = lazy(spec, Places(str(folder)), 3)
    blocks = [block.compute(scheduler="synchronous") for block in X.to_delayed().ravel()]
    assert [block.shape[0] for block in blocks] == list(X.chunks[0])
    np.testing.assert_array_equal(sp.vstack(blocks).toarray(), data.X.toarray())
    np.testing.assert_array_equal(y.compute(scheduler="synchronous"), data.y)
    assert data.test is not None
    assert data.test[0].shape[1] == X.shape[1]


def test_debfiles_are_the_first_training_rows_in_the_order_of_the_parts(folder: Path) -> None:
    from harness.data import Places, UnknownDatasetError, load

    spec = {"name": "debfiles", "rows": 9, "labels": "section"}
    for places in (Places(str(folder)), Places(None, str(folder / "debfiles"))):
        data = load(spec, places, test=True)
        assert data.y.tolist() == [0, 1, 2, 4, 5, 6, 10, 11, 12]
        assert data.test[1].tolist() == [3, 7, 13, 17]
    with pytest.raises(UnknownDatasetError, match="has 12 training rows, not 13"):
        load(spec | {"rows": 13}, places)


def test_every_tenth_row_of_a_package_is_a_test_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from harness import data
    from harness.data import Places, checksum, load

    monkeypatch.setattr(data, "PACKAGE_ROWS", 9)
    rng = np.random.default_rng(0)
    for number in range(3):  # packages 0..3 have 4, 10, 15 and 31 rows of the first two parts
        y = np.repeat([0, 1, 2, 3], [2, 5, 8 - number, 15 + number])[rng.permutation(30)]
        X = sp.csr_array(np.arange(30.0)[:, None] + 100 * number + np.zeros((30, 2)))
        np.savez(
            tmp_path / f"part-00{number}.npz", data=X.data, indices=X.indices, indptr=X.indptr,
            shape=X.shape, y_section=y, y_package=y, test=y == 2,
        )  # fmt: skip
    places, spec = Places(None, str(tmp_path)), {"name": "debfiles by package", "parts": 2}
    found = load(spec, places, test=True)
    assert np.bincount(found.y).tolist() == [9, 14, 28]
    assert found.test is not None
    assert np.bincount(found.test[1]).tolist() == [1, 1, 3]
    both = sp.vstack([found.X, found.test[0]]).toarray()[:, 0]
    assert len(set(both)) == 56
    few = load(spec | {"classes": 2, "rows": 20}, places, test=True)
    assert (few.y.size, few.k, np.bincount(few.test[1]).tolist()) == (20, 2, [1, 3])
    assert checksum(spec, places) != checksum(spec | {"parts": 1}, places)


def test_generated_pages_are_as_they_are_said_to_be() -> None:
    from harness.data import Places, load

    spec = {"name": "generated pages", "n": 20_000, "d": 30_000, "k": 900, "test": 100}
    data, again = (load(spec, Places(), test=True) for _ in range(2))
    assert (data.X != again.X).nnz == 0
    assert data.test is not None
    assert (data.X.shape, data.test[0].shape, data.k) == ((20_000, 30_000), (100, 30_000), 900)
    assert 90 < data.nnz / 20_000 < 110
    assert data.X.indices.dtype == data.X.indptr.dtype == np.int32
    np.testing.assert_allclose(data.X.power(2).sum(axis=1), 1, rtol=1e-5)
    sizes = np.sort(np.bincount(data.y))[::-1]
    assert 1.6 < sizes[0] / sizes[1] < 2.4  # Zipf
    own = np.bincount(data.X[data.y == np.bincount(data.y).argmax()].indices, minlength=30_000)
    everywhere = np.bincount(data.X.indices, minlength=30_000)
    share = own / sizes[0]
    typical = np.flatnonzero((share > 0.7) & (everywhere < 0.5 * 20_000))
    assert 5 <= typical.size <= 10


def test_a_checksum_is_that_of_the_files_read(folder: Path) -> None:
    from harness.data import Places, checksum

    places, spec = Places(str(folder)), {"name": "debfiles", "labels": "section"}
    few, more = (checksum(spec | {"rows": rows}, places) for rows in (6, 7))
    assert few != more
    assert checksum(spec | {"rows": 5}, places) == few
    assert checksum({"name": "generated"}, places) == "generated"
    assert checksum({"name": "words"}, places) != checksum({"name": "pixels"}, places)


def test_missing_rows_are_named_before_anything_runs(folder: Path, tmp_path: Path) -> None:
    import run

    for given, sentence in (
        ([], "there is no part-*.npz in None; type --debfiles DIR"),
        (["--debfiles", str(folder)], f"there is no part-*.npz in {folder}; type --debfiles DIR"),
    ):
        with pytest.raises(SystemExit, match=f"run.py: {sentence}".replace("*", r"\*")):
            run.main(["intercept", "--results", str(tmp_path / "none"), *given])
    assert not (tmp_path / "none").exists()


# -- studies at toy size ---------------------------------------------------------------------------


def command(*arguments: str, results: Path) -> subprocess.CompletedProcess[str]:
    """run.py as a user starts it, on the package that the tests see."""
    line = [sys.executable, "-W", "error", str(BENCHMARKS / "run.py"), *arguments, "--quick"]
    return subprocess.run(
        [*line, "--results", str(results)], capture_output=True, text=True, timeout=280,
        env=environment(),
    )  # fmt: skip


def environment() -> dict[str, str]:
    import os

    return {**os.environ, "PYTHONPATH": str(PACKAGE)}


@pytest.mark.scripts
def test_a_study_runs_is_kept_and_is_not_run_again(tmp_path: Path) -> None:
    one = ("intercept", "--only", "450, 400, 6, 12, 3, memory, tol=0.01, intercept_scaling=1.0")
    first = command(*one, results=tmp_path)
    assert first.returncode == 0, first.stderr
    assert re.match(r"\[2/\d+\] generated, 450", first.stderr)
    (line,) = (tmp_path / "intercept.quick.jsonl").read_text("utf-8").splitlines()
    kept = json.loads(line)
    found = kept["found"]
    assert kept["status"] == "done"
    assert kept["environment"]["versions"]["dask-mcsvm"] == dask_mcsvm.__version__
    assert 0 <= found["gap"] <= 1e-2
    assert found["n"] == 450
    assert found["accuracy"] > 0.5
    assert 0 < found["macro_f1"] <= 1
    assert found["seconds"] > 0
    assert found["predict_seconds"] > 0
    assert found["objective"] * (1 - found["gap"]) == pytest.approx(found["dual"])
    assert len(found["history"][-1]) == 6
    assert "| 450, tau = 1    |" in first.stdout

    second = command(*one, results=tmp_path)
    assert "[2/" not in second.stderr
    assert second.stdout == first.stdout
    again = command(*one, "--again", "--limit", "0", results=tmp_path)
    assert "over the limit" in again.stderr
    assert again.returncode == 0
    assert " > 1 |" in again.stdout  # epochs


@pytest.mark.scripts
def test_a_fit_on_workers_says_what_was_sent_and_where_time_went(tmp_path: Path) -> None:
    one = ("dask", "--only", "dask, formulation=cs, tol=0.01, workers=2")
    done = command(*one, results=tmp_path)
    assert done.returncode == 0, done.stderr
    (line,) = (tmp_path / "dask.quick.jsonl").read_text("utf-8").splitlines()
    found = json.loads(line)["found"]
    assert found["gap"] <= 1e-2
    assert found["sent_bytes"] > 0
    assert found["task_seconds"]["cs-solve"] > 0
    assert found["tasks"] > found["epochs"]
    assert "cs-solve" in done.stdout
    shown = command("estimates", results=tmp_path)
    assert "generated 450, CS, two workers" in shown.stdout


TOY = "generated, 300, 500, 12, 20, "
PAPERS = [
    ("papers", TOY + "_keerthi:run, formulation=cs, C=1.0, scale=none, method=shrinking", "curve"),
    ("papers", TOY + "_keerthi:run, formulation=cs, C=1.0, scale=none, method=exp", "curve"),
    ("papers", TOY + "_alber:fits, formulation=ww", "rows"),
    ("papers", TOY + "_bordes:fit, C=1.0, gamma=0.5, scale=none, method=LaRankx1", "dual"),
    ("papers", TOY + "_bordes:fit, C=1.0, gamma=0.5, scale=none, method=MIRA", "kernels"),
    ("papers", TOY + "_alrajeh:fit, tau=1.0, scale=none, method=shrink", "mismatch"),
    ("objective", TOY + "objective:both, epsilon=0.1", "target"),
    ("peers", TOY + "peers:peer, C=1.0, peer=Crammer-Singer, validate=True", "accuracy"),
    ("extreme", "generated pages, 1500, 16000, 600, 200, extreme:fit, formulation=ww", "density"),
]


@pytest.mark.scripts
@pytest.mark.parametrize(("study", "only", "found"), PAPERS)
def test_cases_run_at_toy_size(study: str, only: str, found: str, tmp_path: Path) -> None:
    done = command(study, "--only", only, results=tmp_path)
    assert done.returncode == 0, done.stderr
    (line,) = (tmp_path / f"{study}.quick.jsonl").read_text("utf-8").splitlines()
    assert json.loads(line)["found"][found] is not None


@pytest.mark.scripts
def test_rows_on_disk_are_fitted_by_workers_that_live(tmp_path: Path) -> None:
    done = command("larger", results=tmp_path)
    assert done.returncode == 0, done.stderr
    (line,) = (tmp_path / "larger.quick.jsonl").read_text("utf-8").splitlines()
    kept = json.loads(line)
    assert (kept["status"], kept["found"]["lived"], kept["found"]["epochs"]) == ("done", True, 1)
    assert 0 < kept["found"]["worker_peak"] < kept["case"]["options"]["memory"]
    assert kept["found"]["disk_bytes"] > 0


def test_repeated_parts_are_as_many_rows_as_asked_for() -> None:
    from studies.larger import RECIPE, repeated

    X, y = repeated(RECIPE)
    assert X.shape == (RECIPE["n"], RECIPE["d"])
    assert y.shape == (RECIPE["n"],)
    few, labels = repeated({**RECIPE, "n": 100, "d": 50, "parts": 10, "words": 5})
    assert (few.shape, labels.shape) == ((100, 50), (100,))
    rows = sp.vstack([b.compute(scheduler="synchronous") for b in few.to_delayed().ravel()])
    assert (rows[80:] != rows[:20]).nnz == 0


@pytest.mark.scripts
def test_a_case_that_fails_is_told_and_run_again_next_time(tmp_path: Path) -> None:
    from harness.case import FAILED, Case
    from harness.child import measure
    from harness.data import Places

    data = {"name": "generated", "n": 50, "d": 30, "k": 4, "words": 5}
    wrong = measure(Case(data, "memory", {"no_such": 1}), Places(), 60.0)
    assert wrong.status == FAILED
    assert "no_such" in wrong["error"]
    assert not wrong.is_final(60.0, None)


@pytest.mark.scripts
def test_the_code_of_others_is_ended_at_its_limit() -> None:
    code = "from harness.measure import Watch\nwith Watch(0.3):\n    while True: pass"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=BENCHMARKS, env=environment(), timeout=60, check=False
    )
    assert done.returncode == -signal.SIGALRM


@pytest.fixture
def watched() -> dict[str, float]:
    from harness.measure import Watch

    with Watch(60.0) as watch:
        held = np.ones(2**23)  # 64 MiB, freed before the end
        del held
    return watch.found


def test_the_peak_is_what_was_held_meanwhile(watched: dict[str, float]) -> None:
    assert watched["peak_bytes"] == pytest.approx(2**26, rel=0.1)
    assert watched["seconds"] > 0
