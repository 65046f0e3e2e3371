"""Benchmarks run at toy size, so that they cannot rot; no time they measure is judged here."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import dask_mcsvm

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
PACKAGE = Path(dask_mcsvm.__file__).parents[1]
pytestmark = pytest.mark.scripts

TITLES = ("Crammer-Singer to", "Two threads", "Weston-Watkins against", "Peak memory")


def run(*arguments: str, path: Path = PACKAGE) -> subprocess.CompletedProcess[str]:
    """The script as a user starts it, on the package that the tests see."""
    environment = {k: v for k, v in os.environ.items() if k != "DASK_MCSVM_DATA"}
    environment["PYTHONPATH"] = os.pathsep.join([str(path), str(PACKAGE)])
    command = [sys.executable, "-W", "error", str(BENCHMARKS / "bench_local.py"), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280)


def tables(text: str) -> dict[str, list[list[str]]]:
    """Title -> rows of cells, headers first."""
    found = {}
    for block in text.split("\n\n"):
        title, *lines = block.strip().splitlines()
        if title.startswith(TITLES):
            found[title] = [line.split() for line in lines]
    return found


def test_both_sides_reach_the_same_objective_and_all_is_written(tmp_path: Path) -> None:
    done = run("--size", "tiny", "--repeats", "1", "--json", str(tmp_path / "new" / "out.json"))
    assert done.returncode == 0, done.stderr
    has_liblinear = find_spec("liblinear") is not None
    assert ("pip install 'liblinear-official" in done.stdout) == (not has_liblinear)

    printed = tables(done.stdout)
    assert len(printed) == len(TITLES)
    objective, *others = printed.values()
    assert " ".join(objective[0]) == "dataset n d k epsilon LIBLINEAR ours ratio epochs gap"
    assert len(objective) == 1 + (6 if has_liblinear else 2)  # two sets, three epsilons
    assert all([row[0] for row in rows[1:]] == ["zipf12", "zipf80"] for rows in others)

    report = json.loads((tmp_path / "new" / "out.json").read_text("utf-8"))
    assert report["environment"]["cpu"]
    assert report["environment"]["versions"]["dask-mcsvm"] == dask_mcsvm.__version__
    assert report["arguments"]["repeats"] == 1
    for result in report["datasets"]:
        check_result(result, has_liblinear)


def check_result(result: dict[str, Any], has_liblinear: bool) -> None:
    assert set(result["to_gap"]) == {"cs_1", "cs_2", "ww_1"}
    for case in result["to_gap"].values():
        assert case["by_cpu"]["reached"]
        assert 0 <= case["by_wall"]["gap"] <= 1e-3
    assert set(result["peak"]) == ({"liblinear", "ours"} if has_liblinear else {"ours"})
    # The kernel counts pages in batches: a fit as small as this may even seem to free some.
    assert all(abs(peak["bytes"]) < 2**27 for peak in result["peak"].values())
    for row in result.get("targets", []):
        assert row["ours"]["reached"]
        assert row["ours"]["primal"] <= row["liblinear"]["primal"]
        assert row["liblinear"]["primal"] >= result["optimum"]["dual"]
        assert 0 < row["ours"]["cpu"] <= row["ours"]["fit_cpu"]
    gaps = [row["target_gap"] for row in result.get("targets", [])]
    assert gaps == sorted(gaps, reverse=True)  # a smaller epsilon is a harder target


def test_without_liblinear_it_says_what_to_install_and_measures_us(tmp_path: Path) -> None:
    (tmp_path / "liblinear.py").write_text("raise ImportError('not here')", "utf-8")
    done = run("--size", "tiny", "--repeats", "1", "--datasets", "zipf12", path=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "type: pip install 'liblinear-official>=2.47'" in done.stdout
    objective, *_, memory = tables(done.stdout).values()
    name, *_, goal, tol, theirs, ours, ratio, _, gap = objective[1]
    assert (name, goal, tol, theirs, ratio) == ("zipf12", "gap", "0.001", "-", "-")
    assert float(ours) > 0
    assert float(gap) <= 1e-3
    assert memory[1][3] == "-"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script as a module, without a folder of data from the user's environment."""
    monkeypatch.delenv("DASK_MCSVM_DATA", raising=False)
    monkeypatch.syspath_prepend(BENCHMARKS)
    import bench_local

    return bench_local


def test_sets_of_very_many_classes_are_trained_to_a_coarse_gap_only(
    bench: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "HUGE_CLASSES", 50)
    monkeypatch.setattr(bench, "peaks", lambda *_, against: {"ours": {"bytes": 2**20}})
    assert bench.main(["--size", "tiny", "--repeats", "1", "--datasets", "zipf80"]) == 0
    printed = tables(capsys.readouterr().out)
    objective, _, weston_watkins, memory = printed.values()
    assert objective[1][4:7] == ["gap", "0.01", "-"]
    assert len(weston_watkins) == 1  # headers
    assert memory[1][3:] == ["-", "1.0", "-"]


def test_a_run_that_does_not_arrive_is_marked(
    bench: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "peaks", lambda *_, against: {"ours": {"bytes": 2**20}})
    arguments = ["--size", "tiny", "--repeats", "1", "--datasets", "zipf12", "--patience", "0"]
    assert bench.main(arguments) == 0
    _, threads, *_ = tables(capsys.readouterr().out).values()
    assert [cell[0] for cell in threads[1][3:6]] == [">", ">", "-"]


def test_another_side_is_given_up_on(bench: Any) -> None:
    def forever() -> dict[str, Any]:
        while True:
            pass

    assert bench.within(0.0, forever) is None
    assert bench.within(10.0, lambda: {"cpu": 1.0}) == {"cpu": 1.0}


def test_a_set_that_liblinear_gave_up_on_is_marked(bench: Any) -> None:
    result = {"name": "hard", "n": 5, "d": 4, "k": 3, "patience": 12.0,
              "targets": [{"epsilon": 0.1, "liblinear": None}]}  # fmt: skip
    assert bench.objective_rows(result) == [
        ["hard", "5", "4", "3", "0.1", ">12", "-", "-", "-", "-"]
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two sets in the format of the docstring of _data.py; label 1 does not occur."""
    dense, y = np.arange(12, dtype=np.uint8).reshape(4, 3) % 5, np.array([2, 0, 2, 3])
    X = sp.csr_array(dense.astype(np.float32))
    np.savez_compressed(
        tmp_path / "words.npz", X_train_data=X.data, X_train_indices=X.indices,
        X_train_indptr=X.indptr.astype(np.int64), X_train_shape=X.shape, y_train=y, name="words",
    )  # fmt: skip
    np.savez_compressed(tmp_path / "pixels.npz", X_train=dense, y_train=y, name="pixels")
    return tmp_path


def test_a_folder_is_read_sparse_and_dense(bench: Any, folder: Path) -> None:
    words, pixels = (bench.load_dataset(name, folder, "full") for name in ("words", "pixels"))
    assert (words.k, words.is_sparse, pixels.is_sparse) == (3, True, False)
    assert words.X.dtype == pixels.X.dtype == np.float32
    np.testing.assert_array_equal(words.X.toarray(), pixels.X)
    np.testing.assert_array_equal(words.y, [1, 0, 1, 2])


def test_dense_sets_of_a_folder_are_run_when_asked_for(bench: Any, folder: Path) -> None:
    def chosen(*arguments: str) -> list[str]:
        datasets: list[str] = bench.parse(["--data-dir", str(folder), *arguments]).datasets
        return datasets

    assert chosen() == ["words"]
    assert chosen("--dense") == ["pixels", "words"]
    assert chosen("--datasets", "pixels") == ["pixels"]


def test_an_unknown_set_is_refused_before_anything_runs(
    bench: Any, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        bench.main(["--data-dir", str(folder), "--datasets", "words,none"])
    expected = f"there is no dataset 'none'; {folder}: pixels, words\n"
    assert capsys.readouterr().err.endswith(expected)


def test_generated_rows_look_like_text(bench: Any) -> None:
    data = bench.load_dataset("zipf80", None, "tiny")
    assert (data.X.shape, data.k, np.unique(data.y).size) == ((400, 600), 80, 80)
    np.testing.assert_allclose(np.sqrt(data.X.power(2).sum(axis=1)), 1, rtol=1e-5)
    per_word = np.sort(np.bincount(data.X.indices, minlength=600))[::-1]
    assert per_word[:30].sum() > 0.3 * data.nnz  # few words are common, most are rare
    again = bench.load_dataset("zipf80", None, "tiny")
    assert data.X.data.tobytes() == again.X.data.tobytes()


def test_the_larank_tables_stand_beside_the_papers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    import bench_larank

    out = tmp_path / "out.json"
    arguments = ["--datasets", "usps", "--seeds", "2", "--stream", "5000", "--json", str(out)]
    assert bench_larank.main([*arguments, "--plot", str(tmp_path / "figures")]) == 0
    report = json.loads(out.read_text("utf-8"))
    rows = report["results"]["usps"]
    assert {"LaRankx1", "LaRankGap", "paper: LaRankx1", "MCSVM", "MIRA", "only new"} <= set(rows)
    assert rows["LaRankGap"]["dual"] >= rows["LaRankx1"]["dual"] * 0.99
    assert all(row["error"] < 30 for row in rows.values())
    assert len(rows["LaRankx1"]["errors"]) == 2
    assert report["stream"][0]["support"] <= 500
    names = {path.name for path in (tmp_path / "figures").iterdir()}
    assert names == {"figure1-usps.png", "figure2-usps.png"}
    assert "paper: LaRankGap" in capsys.readouterr().out


@pytest.mark.skipif(find_spec("liblinear") is None, reason="needs liblinear-official")
def test_dense_sets_are_solved_by_all_sides_and_by_any_number_of_chunks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.delenv("DASK_MCSVM_DATA", raising=False)
    monkeypatch.syspath_prepend(BENCHMARKS)
    import bench_dense

    out = tmp_path / "out.json"
    few = ["--size", "tiny", "--scales", "unit", "--C", "0.1", "--eps", "0.1", "--json", str(out)]
    assert bench_dense.main(few) == 0
    (problem,) = json.loads(out.read_text("utf-8"))["problems"]
    assert problem["splitting"]["reached"]
    (theirs,), (same,) = problem["liblinear"], problem["sklearn"]
    assert same["primal"] == pytest.approx(theirs["primal"], rel=0.05)
    assert problem["splitting"]["to"][0] is not None
    assert "clusters" in capsys.readouterr().out

    monkeypatch.setattr(bench_dense, "by_workers", lambda size: iter(()))  # seconds of processes
    assert bench_dense.main(["--dask", "--size", "tiny", "--json", str(out)]) == 0
    runs = json.loads(out.read_text("utf-8"))["dask"]
    assert [run["chunks"] for run in runs] == [1, 2, 8, 64]
    assert len({run["epochs"] for run in runs}) == 1
