"""``dask mcsvm predict``, ``score``, ``info`` and ``report``."""

import os
import re
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import f1_score

from dask_mcsvm import LinearMCSVC
from dask_mcsvm.storage import Checkpoint, write_dataset


@pytest.fixture
def model(data):
    """m.zarr, trained on train.zarr."""
    (X, y), _ = data
    model = LinearMCSVC(C=0.1, random_state=0).fit(X, y)
    model.save("m.zarr")
    return model


def test_predict_writes_a_label_per_row(run, refuses, data, model):
    _, (X, _) = data
    assert run("predict", "m.zarr", "test.zarr").out.split() == model.predict(X).tolist()
    done = run("predict", "m.zarr", "test.zarr", "-o", "p.txt", "--top", 2, "--json")
    assert done.json == {
        "model": "m.zarr", "data": "test.zarr", "rows": 120, "top": 2, "output": "p.txt",
    }  # fmt: skip
    written = [line.split("\t") for line in Path("p.txt").read_text().splitlines()]
    assert written == model.predict_topk(X, 2).tolist()
    given = ("predict", "m.zarr", "test.zarr", "-o", "p.txt")
    assert refuses(*given) == "p.txt exists; pass --overwrite to replace it."
    assert run(*given, "--overwrite").out == "120 predictions in p.txt\n"
    assert refuses("predict", "m.zarr", "test.zarr", "--top", 5) == (
        "--top is 5, and the model ranks 4 classes; pass 1 to 4."
    )
    sentence = "--json and the predictions both want stdout; pass --output FILE."
    assert refuses("predict", "m.zarr", "test.zarr", "--json") == sentence


def test_predict_writes_scores(run, data, model):
    _, (X, _) = data
    rows = [
        line.split("\t")
        for line in run("predict", "m.zarr", "test.zarr", "--scores", "--top", 2).out.splitlines()
    ]
    best = model.predict_topk(X, 2)
    assert [row[::2] for row in rows] == best.tolist()
    scores = np.take_along_axis(model.decision_function(X), np.searchsorted(list("abcd"), best), 1)
    np.testing.assert_allclose(np.array([row[1::2] for row in rows], float), scores, rtol=1e-5)


def test_scores_of_two_classes_are_how_far_one_is_ahead(run, data):
    (X, y), _ = data
    write_dataset("two.zarr", X, np.where(y == "a", "no", "yes"))
    assert run("fit", "two.zarr", "-m", "m.zarr", "--formulation", "ovr", "--quiet").code == 0
    model = LinearMCSVC.load("m.zarr")
    lines = run("predict", "m.zarr", "two.zarr", "--scores").out.splitlines()
    assert [line.split("\t")[0] for line in lines] == model.predict(X).tolist()
    ahead = np.array([float(line.split("\t")[1]) for line in lines])
    np.testing.assert_allclose(ahead, np.abs(model.decision_function(X)), rtol=1e-5)


@pytest.mark.parametrize("k", [2, 4])
def test_predict_writes_probabilities(k, run, data):
    (X, y), (Z, _) = data
    some = y < "e" if k == 4 else y < "c"
    write_dataset("some.zarr", X[some], y[some])
    write_dataset("new.zarr", Z, np.full(len(Z), "a"))
    given = ("fit", "some.zarr", "-m", "sure.zarr", "--probability", "--quiet")
    assert run(*given).code == 0
    asked = ("predict", "sure.zarr", "new.zarr", "--probabilities")
    rows = [line.split("\t") for line in run(*asked, "--top", k).out.splitlines()]
    sure = LinearMCSVC.load("sure.zarr")
    best = sure.predict_topk(Z, k)
    assert [row[::2] for row in rows] == best.tolist()
    found = np.array([row[1::2] for row in rows], float)
    P = np.take_along_axis(sure.predict_proba(Z), np.searchsorted(sure.classes_, best), 1)
    np.testing.assert_allclose(found, P, rtol=1e-5)
    np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-5)
    assert run(*asked, "--scheduler", "threads").out == run(*asked).out


def test_probabilities_that_a_model_has_not_are_refused(run, refuses, data, model):
    asked = ("test.zarr", "--probabilities")
    assert refuses("predict", "m.zarr", *asked) == (
        "m.zarr has no probabilities; fit it again with --probability."
    )
    assert refuses("predict", "m.zarr", *asked, "--scores") == (
        "--scores and --probabilities are two answers; pass one of them."
    )
    assert run("fit", "train.zarr", "-m", "kernel.zarr", "--estimator", "larank").code == 0
    assert refuses("predict", "kernel.zarr", *asked) == (
        "kernel.zarr is a model of LaRankSVC, which has no probabilities; pass --scores."
    )


@pytest.mark.parametrize("options", [[], ["--scores", "--top", 3]], ids=["labels", "scores"])
def test_tasks_predict_what_the_command_does_itself(run, data, model, options):
    given = ("predict", "m.zarr", "test.zarr", *options)
    assert run(*given, "--scheduler", "threads").out == run(*given).out
    given = ("score", "m.zarr", "test.zarr", "--json")
    assert run(*given, "--scheduler", "threads").json == run(*given).json


def test_predictions_do_not_replace_a_pipe_or_a_device(refuses, data, model):
    os.mkfifo("pipe")
    for output in ("pipe", "."):
        given = ("predict", "m.zarr", "test.zarr", "-o", output, "--overwrite")
        assert refuses(*given) == (
            f"{output} is no file that could be replaced; leave --output out and redirect stdout."
        )


def test_names_of_classes_do_not_reach_the_terminal_as_they_are(run, refuses, data):
    (X, y), _ = data
    names = {"a": "a\x1b[31m", "b": "b\nb\tb", "c": "c\x9b2J", "d": "d\u202e"}
    odd = np.array([names[label] for label in y])
    write_dataset("odd.zarr", X, odd)
    assert run("fit", "odd.zarr", "-m", "m.zarr", "--C", 1e-3, "--quiet").code == 0
    shown = {"a\\x1b[31m", "b\\nb\\tb", "c\\x9b2J", "d\\u202e"}
    lines = run("predict", "m.zarr", "odd.zarr").out.splitlines()
    assert len(lines) == 120
    assert len(set(lines)) > 1
    assert set(lines) <= shown
    for command in (["score", "m.zarr", "odd.zarr"], ["info", "m.zarr"], ["info", "odd.zarr"]):
        for json in ([], ["--json"]):
            out = run(*command, *json).out
            assert not set("\x1b\x9b\u202e") & set(out)
    found = run("score", "m.zarr", "odd.zarr", "--json").json["confused"]
    assert {mistake["true"] for mistake in found} <= set(names.values())  # JSON is exact
    told = refuses("fit", "odd.zarr", "-m", "n.zarr", "--class-weight", "z\x1b[2J=2")
    assert told == (
        "--class-weight names 'z\\x1b[2J', which is no class of the data; the classes are "
        "a\\x1b[31m, b\\nb\\tb, c\\x9b2J, d\\u202e."
    )


def test_score_agrees_with_scikit_learn(run, data, model):
    _, (X, y) = data
    found = run("score", "m.zarr", "test.zarr", "--json", "--confused", 2).json
    predicted = model.predict(X)
    assert found["accuracy"] == found["micro_f1"] == model.score(X, y)
    assert found["macro_f1"] == pytest.approx(f1_score(y, predicted, average="macro"))
    assert len(found["confused"]) == 2
    worst = found["confused"][0]
    assert worst["rows"] == np.sum((y == worst["true"]) & (predicted == worst["predicted"]))
    text = run("score", "m.zarr", "test.zarr", "--quiet").out
    assert f"accuracy  {model.score(X, y):.4f}\n" in text
    assert f"{worst['true']}     {worst['predicted']}" in text


def test_rows_of_another_width_are_refused(refuses, data, model):
    (X, y), _ = data
    write_dataset("wide.zarr", np.hstack([X, X]), y)
    sentence = (
        "X has 12 features, but LinearMCSVC is expecting 6 features as input; pass the columns "
        "that fit saw, in the same order."
    )
    for command in ("score", "predict"):
        assert refuses(command, "m.zarr", "wide.zarr") == sentence
    assert refuses("report", "m.zarr", "r.html", "--data", "wide.zarr") == sentence


@pytest.mark.parametrize("command", ["score", "predict"])
def test_models_and_datasets_are_not_mixed_up(refuses, data, model, command):
    assert refuses(command, "train.zarr", "test.zarr") == (
        "train.zarr: found a dataset, needed a model; make one with dask mcsvm fit."
    )
    assert refuses(command, "m.zarr", "m.zarr") == (
        "m.zarr: found a model, needed a dataset; make one with dask mcsvm convert."
    )


def test_a_damaged_model_is_refused(refuses, data, model):
    chunk = Path("m.zarr/W/c/0/0")
    size = chunk.write_bytes(chunk.read_bytes()[:-1])
    assert refuses("score", "m.zarr", "test.zarr") == (
        f"m.zarr: chunk c/0/0 of W has {size} bytes, {size + 1} were written; fit it again with "
        "--overwrite."
    )


def test_info_of_each_kind(run, data, model):
    found = run("info", "train.zarr", "--json").json
    assert (found["kind"], found["rows"], found["classes"]) == ("dataset", 120, 4)
    assert (
        "holds        a dataset of 120 rows, 6 features, 4 classes\n"
        in run("info", "train.zarr").out
    )
    found = run("info", "m.zarr", "--json").json
    assert (found["kind"], found["classes"]) == ("model", 4)
    assert found["parameters"]["C"] == 0.1
    assert found["fitted"]["gap_"] == model.gap_
    assert len(found["fitted"]["history_"]) == len(model.history_)
    told = dict(
        re.split(" {2,}", line, maxsplit=1) for line in run("info", "m.zarr").out.splitlines()
    )
    assert told["holds"] == "a LinearMCSVC of 4 classes, 6 features"
    assert told["relative gap"] == (
        f"{model.gap_:.2e}, within tol=0.001; after {model.n_iter_} epochs, stopped by gap"
    )
    assert told["solver"] == f"sdm: {model.plan_.reason}"
    assert "C=0.1" in told["parameters"]
    assert "class_weight" not in told["parameters"]  # it was not set


def test_info_of_a_checkpoint(run, data):
    with Checkpoint("fit") as checkpoint:
        checkpoint.write({"W": np.ones(3)}, {"epoch": 7})
    found = run("info", "fit", "--json").json
    assert (found["kind"], found["generation"], found["meta"]) == ("checkpoint", 1, {"epoch": 7})
    assert "holds    the state of a fit after 7 epochs\n" in run("info", "fit").out


def test_info_of_anything_else(refuses):
    Path("x.txt").write_text("hello")
    assert refuses("info", "no") == "no: there is nothing here; check the path."
    assert refuses("info", "x.txt") == (
        "x.txt: not a dataset, model or checkpoint written by dask_mcsvm; check the path."
    )


def test_report_writes_html_and_png(run, refuses, data, model):
    done = run("report", "m.zarr", "r.html", "--data", "test.zarr")
    assert (done.code, done.out) == (0, "report  r.html\n")
    assert "Most confused classes" in Path("r.html").read_text()
    assert run("report", "m.zarr", "r.png", "--json").json["report"] == "r.png"
    assert refuses("report", "m.zarr", "r.png") == "r.png exists; pass --overwrite to replace it."
    assert run("report", "m.zarr", "r.png", "--overwrite", "--quiet").out == ""
