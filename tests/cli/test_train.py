"""``dask mcsvm fit`` and ``path``: the same models as in Python, and what they say."""

import inspect
import json
import re
import uuid
from pathlib import Path

import dask
import numpy as np
import pytest
from cli.conftest import rows

import dask_mcsvm
from dask_mcsvm import LaRankSVC, LinearMCSVC
from dask_mcsvm.cli._console import Refused
from dask_mcsvm.cli._flags import ESTIMATORS, FLAGS, FORMULATIONS
from dask_mcsvm.cli._options import parameters
from dask_mcsvm.formulations import FORMULATIONS as ALL_FORMULATIONS
from dask_mcsvm.storage import open_dataset, write_dataset


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_parameter_has_an_option_or_a_reason(name):
    parameters = set(inspect.signature(getattr(dask_mcsvm, ESTIMATORS[name])).parameters)
    options = {flag.parameter for flag in FLAGS if name in flag.of}
    assert options == parameters - {"callbacks", "layer", "warm_start"}
    assert set(FORMULATIONS) == set(ALL_FORMULATIONS)


def test_fit_saves_what_python_would(run, data):
    (X, y), _ = data
    given = ["--formulation", "ww", "--C", 0.3, "--tol", "1e-2", "--random-state", 0, "--n-jobs", 1]
    given += [
        "--max-epochs",
        500,
        "--intercept-scaling",
        2,
        "--dtype",
        "float64",
        "--solver",
        "sdm",
    ]
    given += ["--class-weight", "a=2", "--class-weight", "b=0.5"]
    given += ["--solver-options", "schedule=shrink", "--solver-options", "cooling=false"]
    done = run("fit", "train.zarr", "--model", "m.zarr", *given, "--json")
    assert (done.code, done.err) == (0, "")
    model = LinearMCSVC.load("m.zarr")
    ours = LinearMCSVC(
        formulation="ww", C=0.3, tol=1e-2, random_state=0, n_jobs=1, max_epochs=500, solver="sdm",
        intercept_scaling=2.0, dtype="float64", class_weight={"a": 2.0, "b": 0.5},
        solver_options={"schedule": "shrink", "cooling": False},
    ).fit(X, y)  # fmt: skip
    assert model.get_params() == ours.get_params()
    assert model.coef_.tobytes() == ours.coef_.tobytes()
    assert done.json["gap"] == model.gap_ <= 1e-2
    assert done.json["converged"] is True
    assert (done.json["classes"], done.json["features"]) == (4, 6)
    fingerprint = open_dataset("train.zarr").fingerprint
    assert model.notes_ == {"data": "train.zarr", "data fingerprint": fingerprint}


def test_fit_takes_the_weights_of_the_dataset(run, data):
    (X, y), _ = data
    weight = np.arange(len(y)) % 3 + 1.0
    write_dataset("weighted.zarr", X, y, sample_weight=weight, classes=list("abcdz"))
    assert run("fit", "weighted.zarr", "--model", "m.zarr", "--random-state", 0).code == 0
    ours = LinearMCSVC(random_state=0).fit(X, y, sample_weight=weight, classes=list("abcdz"))
    assert LinearMCSVC.load("m.zarr").coef_.tobytes() == ours.coef_.tobytes()


def test_fit_says_what_it_did_and_quiet_says_nothing(run, data):
    done = run("fit", "train.zarr", "--model", "m.zarr", "--report", "r.html")
    first, *files = done.out.splitlines()
    assert first.startswith("crammer_singer, C=1: relative gap ")
    assert files == ["model   m.zarr", "report  r.html"]
    assert Path("r.html").stat().st_size > 10_000
    done = run("fit", "train.zarr", "--model", "m.zarr", "--overwrite", "--quiet")
    assert (done.code, done.out, done.err) == (0, "", "")


def test_a_fit_that_did_not_converge_is_saved_and_ends_with_3(run, data):
    done = run("fit", "train.zarr", "--model", "m.zarr", "--max-epochs", 1, "--tol", 1e-4, "--json")
    assert done.code == 3
    assert done.json["converged"] is False
    assert done.err.startswith(
        "Warning: LinearMCSVC stopped after --max-epochs 1 with relative gap "
    )
    assert "raise --max-epochs or --tol" in done.err
    assert LinearMCSVC.load("m.zarr").gap_ == done.json["gap"]


def test_an_existing_model_is_replaced_only_if_asked(run, refuses, data):
    assert run("fit", "train.zarr", "--model", "m.zarr").code == 0
    sentence = "m.zarr exists; pass --overwrite to replace it."
    assert refuses("fit", "train.zarr", "--model", "m.zarr") == sentence
    assert refuses("path", "train.zarr", "--model", "m.zarr", "--Cs", "1") == sentence
    assert run("fit", "train.zarr", "--model", "m.zarr", "--C", 0.1, "--overwrite").code == 0
    assert LinearMCSVC.load("m.zarr").C == 0.1
    other = "train.zarr exists and is not a model written by dask_mcsvm; remove it or choose "
    assert refuses("fit", "train.zarr", "--model", "train.zarr", "--overwrite") == (
        f"{other}another path."
    )
    Path("r.html").write_text("old")
    given = ("fit", "train.zarr", "--model", "n.zarr", "--report", "r.html")
    assert refuses(*given) == "r.html exists; pass --overwrite to replace it."


def test_a_model_behind_a_url_is_not_replaced_either(run, refuses, data):
    url = f"memory://{uuid.uuid4().hex}/m.zarr"
    assert run("fit", "train.zarr", "--model", url).code == 0
    sentence = f"{url} exists; pass --overwrite to replace it."
    assert refuses("fit", "train.zarr", "--model", url, "--C", 0.1) == sentence
    assert LinearMCSVC.load(url).C == 1.0
    assert run("fit", "train.zarr", "--model", url, "--C", 0.1, "--overwrite").code == 0
    assert LinearMCSVC.load(url).C == 0.1


def test_bad_input_is_one_sentence(refuses, data):
    Path("text.svm").write_text("1 1:1\n")
    cases = {
        ("no.zarr",): "no.zarr: there is no dataset here; check the path, or make one with dask "
        "mcsvm convert.",
        ("text.svm",): "text.svm: not a dataset (it holds no zarr.json); make one with dask mcsvm "
        "convert.",
        ("train.zarr", "--C", -1): "--C is -1.0; it must be a finite number above 0, for example "
        "--C 1.0.",
        ("train.zarr", "--solver", "magic"): "--solver is 'magic'; it must be 'auto', 'sdm', "
        "'splitting', 'shards', 'rounds', 'averaging', 'classes', 'exchange' or 'early_shrink', "
        "for example --solver auto.",
        ("train.zarr", "--intercept-scaling", "big"): "--intercept-scaling is 'big'; it must be a "
        'finite number above 0 or "radius", for example --intercept-scaling 1.0.',
        ("train.zarr", "--class-weight", "z=2"): "--class-weight names 'z', which is no class of "
        "the data; the classes are a, b, c, d.",
        ("train.zarr", "--class-weight", "a"): "--class-weight is 'a'; it must be NAME=VALUE.",
        ("train.zarr", "--solver-options", "turbo=1"): "--solver-options has 'turbo', which "
        "--solver auto does not know; use 'schedule', 'cooling', 'stop', 'weights'.",
        ("train.zarr", "--memory-limit", "1GB", "--solver", "sdm"): "--solver sdm works on rows in "
        "memory, but DATA is read chunk by chunk; use --solver auto, or leave out --scheduler, "
        "--memory-limit, --checkpoint and --scratch.",
        (
            "train.zarr",
            "--memory-limit",
            "0",
        ): "--memory-limit is '0'; it must be a number of bytes "
        "above 0 or a text, for example --memory-limit 2GB.",
        ("train.zarr", "--resume"): "--resume needs --checkpoint folder, the one to go on from.",
        (
            "train.zarr",
            "--solver",
            "rounds",
        ): "--solver rounds solves weston_watkins, not crammer_singer; use "
        "--formulation weston_watkins, or --solver auto.",
        (
            "train.zarr",
            "--gamma",
            "1",
        ): "--gamma is for --estimator larank, and this is linear; leave "
        "it out, or pass --estimator larank.",
        ("train.zarr", "--estimator", "larank", "--solver", "sdm"): "--solver is for --estimator "
        "linear, and this is larank; leave it out, or pass --estimator linear.",
        (
            "train.zarr",
            "--workers",
            "2",
        ): "--workers is for --scheduler processes; add it, or leave --workers out.",
        ("train.zarr", "--report", "r.pdf"): "r.pdf: a report ends in .html or .png; type r.html.",
    }
    for (source, *options), sentence in cases.items():
        assert refuses("fit", source, "--model", "m.zarr", *options) == sentence


def test_usage_errors_end_with_2(run):
    done = run("fit", "train.zarr")
    assert done.code == 2
    assert "Missing option '--model'" in done.err
    assert run("fit", "train.zarr", "--model", "m", "--formulation", "cx").code == 2


def test_ctrl_c_is_said_and_nothing_is_written(run, data, monkeypatch):
    def interrupted(*_args, **_kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(LinearMCSVC, "fit", interrupted)
    done = run("fit", "train.zarr", "--model", "m.zarr")
    assert (done.code, done.out) == (130, "")
    assert done.err == "Stopped by Ctrl-C; nothing was written.\n"
    assert not Path("m.zarr").exists()


def test_ctrl_c_after_the_last_epoch_says_what_there_is(run, data, monkeypatch):
    def interrupted(*_args, **_kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(LinearMCSVC, "save", interrupted)
        done = run("fit", "train.zarr", "--model", "m.zarr", "--checkpoint", "state")
        assert (done.code, done.out) == (130, "")
        assert done.err == (
            "Stopped by Ctrl-C; no model was written, but state holds the fit: type the same "
            "command with --resume.\n"
        )
    monkeypatch.setattr("dask_mcsvm.report.write_report", interrupted)
    done = run("fit", "train.zarr", "--model", "m.zarr", "--report", "r.html")
    assert (done.code, done.out) == (130, "")
    assert done.err == "Stopped by Ctrl-C; the model m.zarr is written, its report is not.\n"
    assert LinearMCSVC.load("m.zarr").gap_ <= 1e-3


def test_larank_is_trained_as_in_python(run, data):
    (X, y), _ = data
    given = ["--estimator", "larank", "--kernel", "rbf", "--gamma", 0.5, "--C", 3, "--stop", "gap"]
    done = run("fit", "train.zarr", "--model", "l.zarr", *given, "--random-state", 0, "--json")
    assert (done.code, done.err) == (0, "")
    ours = LaRankSVC(kernel="rbf", gamma=0.5, C=3.0, stop="gap", random_state=0).fit(X, y)
    model = LaRankSVC.load("l.zarr")
    assert model.get_params() == ours.get_params()
    assert model.dual_coef_.toarray().tobytes() == ours.dual_coef_.toarray().tobytes()
    assert done.json["support"] == ours.n_support_
    assert done.json["converged"] is True
    again = ["--overwrite", "--random-state", 0]
    text = run("fit", "train.zarr", "--model", "l.zarr", *again, *given).out
    assert re.match(r"larank, rbf, C=3: \d+ support patterns, relative gap \S+ after", text)
    lines = run("predict", "l.zarr", "test.zarr", "--scores", "--top", 4).out.splitlines()
    assert [line.split("\t")[0] for line in lines] == ours.predict(rows(1)[0]).tolist()


def test_early_shrinking_from_the_shell_is_that_of_the_dataset(run, data):
    given = ["--formulation", "ovr", "--solver", "early_shrink", "--random-state", 0]
    assert run("fit", "train.zarr", "--model", "m.zarr", *given).code == 0
    ours = LinearMCSVC(formulation="ovr", solver="early_shrink", random_state=0).fit("train.zarr")
    assert LinearMCSVC.load("m.zarr").coef_.tobytes() == ours.coef_.tobytes()


def test_a_full_disk_is_an_error_of_its_own(run, data, monkeypatch):
    def full(*_args, **_kwargs):
        raise OSError(28, "No space left on device", "m.zarr")

    monkeypatch.setattr(LinearMCSVC, "save", full)
    done = run("fit", "train.zarr", "--model", "m.zarr")
    assert (done.code, done.err) == (1, "Error: m.zarr: No space left on device.\n")


@pytest.mark.parametrize("validation", ["0.25", "test.zarr"])
def test_path_saves_the_best_c(run, data, validation):
    (X, y), held_out = data
    given = ("--Cs", "1,0.01,0.1", "--validation", validation, "--random-state", 0)
    done = run("path", "train.zarr", "--model", "m.zarr", *given, "--json")
    assert (done.code, done.err) == (0, "")
    found = LinearMCSVC(random_state=0).path(
        X, y, [0.01, 0.1, 1.0], validation=0.25 if validation == "0.25" else held_out
    )
    assert [step["C"] for step in done.json["path"]] == [0.01, 0.1, 1.0]
    assert [step["accuracy"] for step in done.json["path"]] == found.scores.tolist()
    model = LinearMCSVC.load("m.zarr")
    assert done.json["best_C"] == model.C == found.best_.C
    assert model.coef_.tobytes() == found.best_.coef_.tobytes()
    assert model.notes_["validation accuracy"] == found.scores.max()


@pytest.mark.parametrize("validation", ["0.25", "test.zarr"])
def test_path_on_a_scheduler_is_that_of_the_dataset(run, data, validation):
    given = ("--Cs", "0.01,0.1", "--validation", validation, "--random-state", 0, "--json")
    done = run("path", "train.zarr", "--model", "m.zarr", "--scheduler", "threads", *given)
    assert (done.code, done.err) == (0, "")
    held_out = 0.25 if validation == "0.25" else (open_dataset("test.zarr"), None)
    with dask.config.set(scheduler="threads"):
        ours = LinearMCSVC(random_state=0).path(
            "train.zarr", None, [0.01, 0.1], validation=held_out
        )
    assert [step["accuracy"] for step in done.json["path"]] == ours.scores.tolist()
    assert LinearMCSVC.load("m.zarr").coef_.tobytes() == ours.best_.coef_.tobytes()


def test_path_by_early_shrinking_wants_rows_to_score_on(refuses, data):
    given = ("--Cs", "0.1", "--solver", "early_shrink", "--formulation", "ovr")
    assert refuses("path", "train.zarr", "--model", "m.zarr", *given) == (
        "--solver early_shrink reads DATA as it stands and holds back no share of it; pass "
        "--validation DATASET."
    )


def test_path_trains_the_chosen_c_again_on_all_rows(run, data):
    (X, y), _ = data
    given = ("--Cs", "0.01,0.1", "--random-state", 0, "--refit")
    done = run("path", "train.zarr", "--model", "m.zarr", *given)
    header, *steps = done.out.split("\n\n")[0].splitlines()
    assert header.split() == ["C", "epochs", "rel.", "gap", "accuracy"]
    assert [line.split()[0] for line in steps] == ["0.01", "0.1"]
    model = LinearMCSVC.load("m.zarr")
    assert model.coef_.tobytes() == LinearMCSVC(C=model.C, random_state=0).fit(X, y).coef_.tobytes()


def test_path_refuses_bad_lists(refuses, data):
    given = ("path", "train.zarr", "--model", "m.zarr", "--Cs")
    assert refuses(*given, "1,x") == "--Cs is '1,x'; it must be numbers with commas: 0.01,0.1,1."
    assert refuses(*given, "1", "--validation", "no.zarr") == (
        "no.zarr: there is no dataset here; check the path, or make one with dask mcsvm convert."
    )


@pytest.mark.parametrize(
    ("given", "needed"),
    [
        ([[0, 2], [1, 0]], [[0, 2], [1, 0]]),
        ({"3": {"7": 4.0}}, {(3, 7): 4.0}),
        ({"3": "odd", "7": "odd", "odd": "all"}, {3: "odd", 7: "odd", "odd": "all"}),
    ],
)
def test_margins_are_a_json_file_of_names(given, needed, tmp_path):
    path = tmp_path / "costs.json"
    path.write_text(json.dumps(given))
    assert parameters({"margins": str(path)}, np.array([3, 7])) == {"margins": needed}


def test_margins_that_are_no_json_are_refused(tmp_path):
    path = tmp_path / "costs.json"
    path.write_text("a: b")
    message = f"--margins: {path} is no JSON (Expecting value: line 1 column 1 (char 0))."
    with pytest.raises(Refused, match=f"^{re.escape(message)}$"):
        parameters({"margins": str(path)}, np.array([3, 7]))
    path.write_text('{"3": {"7": 1}, "7": "odd"}')
    with pytest.raises(Refused, match=r"is half a tree, half \{true: \{predicted: cost\}\}\.$"):
        parameters({"margins": str(path)}, np.array([3, 7]))
