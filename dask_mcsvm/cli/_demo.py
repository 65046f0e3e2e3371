"""``dask mcsvm demo``: texts on disk and a small cluster, digits in memory, all certified."""

from dataclasses import dataclass
from typing import Any

import click


@dataclass(frozen=True)
class Case:
    """One line of the table."""

    formulation: str
    solver: str
    C: float


# Weston-Watkins pays for every rival, so that it needs a smaller C for the same model.
CASES = (
    Case("crammer_singer", "shards", 1.0),
    Case("weston_watkins", "rounds", 0.3),
    Case("one_vs_rest", "shards", 1.0),
)
ROWS, TEST_ROWS, FEATURES, CLASSES, WORDS = 6_000, 2_000, 4_000, 40, 25
TOL = 1e-2
#: Of the digits that scikit-learn brings: what of them is tested on, and C.
DIGITS_TESTED, DIGITS_C = 450, 0.1
HEAD = f"{'formulation':16}{'solver':10}{'epochs':>8}{'seconds':>9}{'gap':>10}{'accuracy':>10}"

WHAT_IT_MEANS = """\
The gap is a proof: no weights have an objective lower by more than this share. So the accuracies
compare formulations, not solvers."""

SAME_IN_PYTHON = f"""\
    from dask_mcsvm import LinearMCSVC
    model = LinearMCSVC(formulation="{CASES[0].formulation}", tol={TOL}, random_state=0)
    print(model.fit("{{train}}").gap_, model.score("{{test}}"))"""


@click.command()
@click.option(
    "--out", type=click.Path(), help="Folder to write to [a new one for temporary files]."
)
@click.option("--workers", default=2, show_default=True, help="Worker processes.")
def demo(out: str | None, workers: int) -> None:
    """Train on a small Dask cluster: data on disk, live progress, a model and a report."""
    import os
    import tempfile

    from dask_mcsvm.cli._console import Console
    from dask_mcsvm.cli._place import note_dashboard, own_cluster
    from dask_mcsvm.storage import open_dataset

    console = Console()
    with console.speaking():
        folder = tempfile.mkdtemp(prefix="mcsvm-demo-") if out is None else out
        os.makedirs(folder, exist_ok=True)
        train, test = (os.path.join(folder, name) for name in ("train.zarr", "test.zarr"))
        write_data(train, test)
        size = open_dataset(train)
        click.echo(
            f"Texts made up for this: {ROWS:,} rows of {FEATURES:,} features in {CLASSES} classes, "
            f"{size.n_blocks} chunks in {train}"
        )
        click.echo(f"Trained by {workers} worker processes, to a relative gap of {TOL:g}.")
        click.echo("Seconds of a first run include compiling; what is compiled is kept.\n")
        with own_cluster(workers) as client:
            note_dashboard(console, client)
            click.echo(HEAD)
            models = [train_one(case, (train,), (test,), console) for case in CASES]
        train_digits(console)
        click.echo(f"\n{WHAT_IT_MEANS}\n")
        keep(models[0], folder, test)
        code = SAME_IN_PYTHON.format(train=train, test=test)
        click.echo(f"\nThe same in Python:\n\n{code}")


def train_digits(console: Any) -> None:
    """All formulations on real rows in memory, where they differ."""
    from sklearn.datasets import load_digits

    from dask_mcsvm.formulations import FORMULATIONS

    X, y = load_digits(return_X_y=True)
    parts = slice(DIGITS_TESTED, None), slice(DIGITS_TESTED)
    train, test = ((X[part] / 16, y[part]) for part in parts)
    click.echo(
        f"\nHandwritten digits, which scikit-learn brings: {train[1].size:,} rows of {X.shape[1]} "
        "pixels in 10 classes, in memory.\n"
    )
    click.echo(HEAD)
    for formulation in FORMULATIONS:
        train_one(Case(formulation, "auto", DIGITS_C), train, test, console)


def train_one(case: Case, train: Any, test: Any, console: Any) -> Any:
    """Fit one formulation to what `fit` takes, and print its line."""
    import time

    from dask_mcsvm import LinearMCSVC

    model = LinearMCSVC(
        formulation=case.formulation, solver=case.solver, C=case.C, tol=TOL, random_state=0,
        callbacks=console.callbacks(TOL),
    )  # fmt: skip
    start = time.perf_counter()
    model.fit(*train)
    seconds = time.perf_counter() - start
    click.echo(
        f"{case.formulation:16}{model.solver_:10}{model.n_iter_:8d}{seconds:9.2f}"
        f"{model.gap_:10.1e}{model.score(*test):10.3f}"
    )
    return model


def keep(model: Any, folder: str, test: str) -> None:
    """Save the model, and a report of its fit if there is something to draw it with."""
    import os
    from importlib.util import find_spec

    from dask_mcsvm.storage import open_dataset

    path = os.path.join(folder, "model.zarr")
    model.save(path, overwrite=True)
    click.echo(f"Model   {path}")
    if find_spec("matplotlib") is None:
        click.echo("Report  needs matplotlib: pip install 'dask-mcsvm[report]'")
        return
    from dask_mcsvm.report import write_report

    rows = open_dataset(test)
    page = os.path.join(folder, "report.html")
    write_report(
        model, page, rows.read_rows(0, rows.shape[0]), rows.classes[rows.read_labels()],
        overwrite=True,
    )  # fmt: skip
    click.echo(f"Report  {page}")


def write_data(train: str, test: str) -> None:
    """Rows like short texts: each class has words of its own, most words are everybody's."""
    import numpy as np

    from dask_mcsvm.storage import write_dataset

    rng = np.random.default_rng(0)
    names = np.array([f"topic {c:02d}" for c in range(CLASSES)])
    common = 1.0 / np.arange(1, FEATURES + 1)
    topics = rng.permuted(np.tile(common, (CLASSES, 1)), axis=1)
    chances = 0.6 * common / common.sum() + 0.4 * topics / topics.sum(axis=1, keepdims=True)
    for path, n in ((train, ROWS), (test, TEST_ROWS)):
        y = rng.integers(CLASSES, size=n)
        rows = text_rows(rng, chances, y)
        write_dataset(path, rows, names[y], classes=names, block_rows=-(-n // 8), overwrite=True)


def text_rows(rng: Any, chances: Any, y: Any) -> Any:
    """Words drawn for each row, weighed by how rare they are, rows of unit length."""
    import numpy as np
    import scipy.sparse as sp

    words = np.concatenate([rng.choice(FEATURES, WORDS, p=chances[c]) for c in y])
    rows = np.repeat(np.arange(y.size), WORDS)
    counts = sp.csr_array((np.ones(words.size), (rows, words)), shape=(y.size, FEATURES))
    rarity = np.log(y.size / (1.0 + np.bincount(counts.indices, minlength=FEATURES)))
    counts.data *= np.maximum(rarity, 0.1)[counts.indices]
    norms = np.sqrt(counts.multiply(counts).sum(axis=1))
    return sp.csr_array(sp.diags_array(1.0 / norms) @ counts).astype(np.float32)
