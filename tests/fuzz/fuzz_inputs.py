"""Random estimators, parameters and inputs: accepted and right, or refused in one sentence.

    python tests/fuzz/fuzz_inputs.py --seconds 600 --seed 0
    python tests/fuzz/fuzz_inputs.py --case SEED

What is accepted is computed once more in dense float64 NumPy: scores, objective, certificate; and
the same rows dense, sparse and lazily must get the same labels. Labels that are called certain are
those of a fit that went on. Datasets and commands of the shell are tried as well.
"""

import json
import tempfile
from pathlib import Path

import dask
import dask.array as da
import numpy as np
from click.testing import CliRunner
from random_inputs import (
    KINDS,
    Rng,
    as_kind,
    as_seen,
    broken,
    labels,
    larank,
    linear,
    one,
    table,
    weights,
    with_answers,
)
from right import check_certain, check_larank, check_linear, check_proof
from runner import Wrong, check, is_refusal, main

from dask_mcsvm import LaRankSVC, LinearMCSVC
from dask_mcsvm.cli import mcsvm
from dask_mcsvm.progress import printable
from dask_mcsvm.storage import write_dataset


def refused(what: str, call, *arguments) -> None:
    """Call with something that must be refused."""
    try:
        call(*arguments)
    except BaseException as error:
        if not is_refusal(error):
            raise
        return
    raise Wrong(f"{what} was accepted")


def case_fit(rng: Rng) -> None:
    """A fit, and all that can be asked of the model; bad rows leave it as it is."""
    X, codes = table(rng)
    is_linear = rng.random() < 0.6
    model = linear(rng) if is_linear else larank(rng)
    y, label_kind, _ = labels(rng, codes)
    with_answers(rng, model, y)
    weight, kind = weights(rng, len(X)), one(rng, *KINDS)
    rows = as_kind(rng, X, kind)
    if not is_linear and rng.random() < 0.3:
        half = len(X) // 2 + 1
        classes = np.unique(np.asarray(y).ravel()) if label_kind in ("int", "text") else None
        part = None if weight is None else weight[:half]
        model.partial_fit(X[:half], np.asarray(y)[:half], classes, part)
        part = None if weight is None else weight[half:]
        model.partial_fit(X[half:], np.asarray(y)[half:], None, part)
    elif isinstance(y, da.Array) != isinstance(rows, da.Array):
        model.fit(rows, np.asarray(y), weight)
    else:
        model.fit(rows, y, weight)
    check(np.isfinite(X).all(), "rows with nan were accepted")
    if is_linear:
        known = np.unique(np.asarray(y).ravel(), return_inverse=True)[1]
        used = np.ones(len(X)) if weight is None else weight
        check_linear(rng, model, X, kind, known, used)
        if kind not in ("float32", "csr_array") and not hasattr(model, "feature_names_in_"):
            check_certain(rng, model, X, known, used)
            check_proof(rng, model, X, known, used)
    else:
        check_larank(rng, model, X)
    before = np.asarray(model.predict(X if not hasattr(model, "feature_names_in_") else rows))
    bad, what = broken(rng, X)
    if what == "overflow":
        return
    refused(f"predict of {what}", lambda Z: np.asarray(model.predict(Z)), bad)
    wide = np.hstack([X, X[:, :1]]) if rng.random() < 0.5 else X[:, :-1]
    if wide.shape[1]:
        lazy = one(rng, "dense", "csr", "dask", "dask csr")
        rows_wide = as_kind(rng, wide, lazy)
        refused(f"predict of {lazy} rows of another width", lambda Z: np.asarray(model.predict(Z)),
                rows_wide)  # fmt: skip
    after = np.asarray(model.predict(X if not hasattr(model, "feature_names_in_") else rows))
    check(np.array_equal(before, after), "the model changed by what it refused")


def case_broken(rng: Rng) -> None:
    """A fit on rows that must be refused."""
    X, codes = table(rng)
    bad, what = broken(rng, X)
    model = linear(rng) if rng.random() < 0.6 else larank(rng)
    with_answers(rng, model, codes)
    weight = one(rng, None, np.zeros(len(codes)), weights(rng, len(codes)))
    refused(f"fit of {what}", lambda: model.fit(bad, codes, weight))


def written(rng: Rng, folder: str):
    """A dataset of random rows: its path, rows, labels and weights."""
    X, codes = table(rng)
    y = one(rng, codes, np.array(["a", "b b", "ç", "d\x1b[31m", "e" * 50])[codes])
    kind = one(rng, "dense", "float32", "csr", "csr_array", "dask", "dask csr")
    weight = one(rng, None, None, rng.random(len(X)) + 0.5)
    path = Path(folder, "set")
    rows = int(rng.integers(1, len(X) + 3))
    chunks = {} if kind.startswith("dask") else {"block_rows": rows}
    write_dataset(path, as_kind(rng, X, kind), y, sample_weight=weight, **chunks)
    return path, as_seen(X, kind, float), y, weight


def case_dataset(rng: Rng) -> None:
    """A fit on a dataset, whole or with little memory, stopped and gone on with."""
    with tempfile.TemporaryDirectory() as folder:
        path, X, y, weight = written(rng, folder)
        is_linear = rng.random() < 0.5
        model = linear(rng) if is_linear else larank(rng)
        if is_linear:
            limit = one(rng, None, "64MB", "1GB", 1, "no size")
            model.set_params(
                solver=one(rng, "auto", "shards", "early_shrink", "rounds", "averaging"),
                memory_limit=limit,
            )
        with_answers(rng, model, y)
        seen = []

        def stop(record):
            seen.append(record)
            return len(seen) == 2

        cut = type(model)(**model.get_params()).set_params(
            checkpoint=Path(folder, "fit"), resume=True, callbacks=(stop,)
        )
        try:
            cut.fit(path)
        except BaseException as error:
            if not is_refusal(error):
                raise
        if rng.random() < 0.3:  # a checkpoint of other parameters is refused or gone on with
            cut.set_params(C=model.C * 2 if isinstance(model.C, float) else 1.0)
        model.fit(path)
        known = np.unique(y, return_inverse=True)[1]
        if is_linear and np.isfinite(model.gap_):
            used = np.ones(len(X)) if weight is None else weight
            check_linear(rng, model, X, "dense", known, used)
        elif not is_linear:
            check_larank(rng, model, X)
        score = np.mean(np.asarray(model.predict(path)) == y)
        if weight is None:
            check(abs(model.score(path) - score) < 1e-12, "score is not the share of right labels")
        same = bool(rng.random() < 0.5) and isinstance(model.max_epochs, int | None)
        if same and cut.C == model.C:
            again = cut.set_params(callbacks=()).fit(path)
            if is_linear:
                check(np.array_equal(again.coef_, model.coef_), "a resumed fit is another model")
            else:
                near = np.array_equal(again.dual_coef_.toarray(), model.dual_coef_.toarray())
                check(near, "a resumed LaRank fit is another model")


def case_shell(rng: Rng) -> None:
    """Commands end with a code and a sentence, and what they say is so."""
    with tempfile.TemporaryDirectory() as folder:
        path, *_ = written(rng, folder)
        model, out = Path(folder, "model"), Path(folder, "out")
        is_linear = rng.random() < 0.6
        options = ["--estimator", "linear" if is_linear else "larank"]
        for option, values in {
            "--C": ("1", "0.1", "0", "-1", "nan", "1e39", "x"),
            "--tol": ("1e-2", "1e-3", "-1", "nan"),
            "--max-epochs": ("5", "50", "0", "-2"),
            "--kernel": ("rbf", "linear", "poly", "x"),
            "--solver": ("auto", "sdm", "splitting", "shards", "x"),
            "--formulation": ("ww", "cs", "llw", "ovr", "x"),
            "--memory-limit": ("64MB", "1", "x"),
            "--scheduler": ("threads", "synchronous", "x"),
            "--checkpoint": (str(Path(folder, "fit")), str(path), "/dev/null"),
            "--random-state": ("0", "-1", "x"),
        }.items():
            if rng.random() < 0.25:
                options += [option, one(rng, *values[: one(rng, 1, 2, len(values))])]
        fitted = shell("fit", path, "--model", model, *options)
        check(fitted.exit_code in (0, 1, 2, 3), f"fit ended with {fitted.exit_code}")
        failed = fitted.exit_code in (1, 2)
        check(model.exists() != failed, "a model without success, or none")
        if failed:
            model = path if rng.random() < 0.5 else model
        for name in ("predict", "score", "info"):
            arguments = [model] if name == "info" else [model, path]
            more = ["--output", out] if name == "predict" else []
            asked = shell(name, *arguments, *more, *one(rng, [], ["--json"], ["--quiet"]))
            # `info` also tells what a dataset is.
            fails = failed and not (name == "info" and model.exists())
            fine = asked.exit_code in ((1, 2) if fails else (0,))
            check(fine, f"{name} ended with {asked.exit_code}: {asked.output[-200:]}")
            check("\x1b" not in asked.output, f"{name} writes a terminal's commands")
        if not failed:
            kind = LinearMCSVC if is_linear else LaRankSVC
            labels = [printable(v) for v in np.asarray(kind.load(model).predict(path)).tolist()]
            lines = out.read_text(encoding="utf-8").split("\n")[:-1]
            check(lines == labels, "predictions of the shell are not those of Python")


def shell(*arguments):
    """A command in this process; what escapes it is raised."""
    done = CliRunner().invoke(mcsvm, [str(argument) for argument in arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    check("Traceback" not in done.output, "a traceback is printed")
    if "--json" in arguments and done.exit_code == 0:
        json.loads(done.stdout)
    return done


def case(rng: Rng) -> None:
    with dask.config.set(scheduler="threads", num_workers=2):
        cases = [case_fit] * 5 + [case_broken] * 2 + [case_dataset] * 2 + [case_shell]
        one(rng, *cases)(rng)


if __name__ == "__main__":
    main(case, __file__)
