"""``dask mcsvm predict`` and ``dask mcsvm score``: block by block, in bounded memory."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, Any

import click

from dask_mcsvm.cli._console import Console, Refused, columns, common
from dask_mcsvm.cli._place import check_place, place_options, running_on
from dask_mcsvm.progress import printable

MODEL = click.argument("model", type=click.Path())
DATA = click.argument("data", type=click.Path())


@click.command()
@MODEL
@DATA
@click.option("--output", "-o", default="-", help="Text file, a line per row; - is stdout.")
@click.option("--top", default=1, show_default=True, help="Best classes per row, tab between them.")
@click.option("--scores", is_flag=True, help="Write each class with its score, tab between them.")
@click.option(
    "--probabilities",
    is_flag=True,
    help="Write each class with its probability, of a model fitted with --probability.",
)
@place_options
@click.option("--overwrite", is_flag=True, help="Replace a file there is.")
@common
def predict(
    model: str,
    data: str,
    output: str,
    top: int,
    scores: bool,
    probabilities: bool,
    scheduler: str | None,
    workers: int | None,
    overwrite: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Predict the class of every row of the dataset DATA.

    One line per row: a tab or newline in the name of a class is written as \\t or \\n. A score is
    what the class with the largest is predicted by; of two classes it is how far one is ahead.
    """
    console = Console(as_json, quiet)
    if as_json and output == "-":
        raise Refused("--json and the predictions both want stdout; pass --output FILE.")
    if scores and probabilities:
        raise Refused("--scores and --probabilities are two answers; pass one of them.")
    with console.speaking():
        if output != "-":
            check_output(output, overwrite)
        check_place(scheduler, workers)
        estimator, dataset = load(model), open_rows(data)
        check_top(top, estimator)
        rows = 0
        ask, make = estimator.predict, label_lines
        if scores or probabilities or top > 1:
            valued = scores or probabilities
            ask = (
                probabilities_of(estimator, model) if probabilities else estimator.decision_function
            )
            make = partial(ranked_lines, classes=estimator.classes_, top=top, valued=valued)
        with running_on(console, scheduler, workers), written(output) as file:
            for lines in found_blocks(ask, dataset, scheduler, make):
                file.writelines(line + "\n" for line in lines)
                rows += len(lines)
    if output != "-":
        document = {"model": model, "data": data, "rows": rows, "top": top, "output": output}
        console.summary(document, f"{rows:,} predictions in {output}")


@click.command()
@MODEL
@DATA
@click.option("--confused", default=10, show_default=True, help="Most frequent mistakes to list.")
@place_options
@common
def score(
    model: str,
    data: str,
    confused: int,
    scheduler: str | None,
    workers: int | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Accuracy, F1 and the most confused classes on the dataset DATA."""
    console = Console(as_json, quiet)
    with console.speaking():
        check_place(scheduler, workers)
        estimator, dataset = load(model), open_rows(data)
        with running_on(console, scheduler, workers):
            scores = score_dataset(estimator, dataset, scheduler)
    document = {"model": model, "data": data, **scores.as_dict(confused)}
    lines = columns(
        [
            (scores.rows_are, f"{scores.n:,}"),
            ("accuracy", f"{scores.accuracy:.4f}"),
            ("micro F1", f"{scores.accuracy:.4f}"),
            ("macro F1", f"{scores.macro_f1:.4f}"),
        ],
        right=(1,),
    )
    mistakes = [(printable(t), printable(p), f"{n:,}") for t, p, n in scores.mistakes[:confused]]
    if mistakes:
        lines += "\n\n" + columns([("true", "predicted", "rows"), *mistakes], right=(2,))
    console.result(document, lines)


def check_output(output: str, overwrite: bool) -> None:
    """Refuse a file that could not be written, or is not to be replaced."""
    target = Path(output)
    if target.exists() and not target.is_file():
        raise Refused(
            f"{output} is no file that could be replaced; leave --output out and redirect stdout."
        )
    if target.exists() and not overwrite:
        raise Refused(f"{output} exists; pass --overwrite to replace it.")


def check_top(top: int, estimator: Any) -> None:
    """Refuse a number of classes that the model can not rank."""
    k = estimator.classes_.size
    if not 1 <= top <= k:
        raise Refused(f"--top is {top}, and the model ranks {k} classes; pass 1 to {k}.")


def probabilities_of(estimator: Any, path: str) -> Any:
    """What to ask a model for probabilities, or a refusal of one that has none."""
    if hasattr(estimator, "temperature_"):
        return estimator.predict_proba
    if hasattr(estimator, "plan_"):
        raise Refused(f"{path} has no probabilities; fit it again with --probability.")
    raise Refused(f"{path} is a model of LaRankSVC, which has no probabilities; pass --scores.")


def load(path: str) -> Any:
    """The model at `path`, by the estimator that its file names."""
    import dask_mcsvm
    from dask_mcsvm.storage import describe, kind_of

    name = describe(path).get("estimator") if kind_of(path) == "model" else None
    # What names no estimator is refused by this one, in words.
    kind = name if isinstance(name, str) and name in dask_mcsvm.__all__ else "LinearMCSVC"
    return getattr(dask_mcsvm, kind).load(path)


def open_rows(path: str) -> Any:
    """The dataset at `path`."""
    from dask_mcsvm.storage import open_dataset

    return open_dataset(path)


#: Blocks that are worked on at a time with --scheduler: enough for many workers, and what they
#: answer fits the memory of the command.
WINDOW = 64
#: What a block's ranking holds at a time.
SCORES = 2**22


def found_blocks(
    ask: Callable[[Any], Any], dataset: Any, scheduler: str | None, make: Callable[[Any], Any]
) -> Iterator[Any]:
    """What `make` makes of an estimator's answer to each block of a dataset, in order.

    With a scheduler both are tasks: `ask`, a method of the estimator, is lazy for a dataset.
    """
    from dask_mcsvm.data.containers import with_names

    if scheduler is None:
        for b in range(dataset.n_blocks):
            slices = row_slices(dataset.read_block(b), dataset.n_classes)
            named = (with_names(rows, dataset.feature_names) for rows in slices)
            yield from map(make, map(ask, named))
        return
    from dask.base import compute
    from dask.delayed import delayed

    tasks = [delayed(make)(found) for found in ask(dataset).to_delayed().ravel()]
    for start in range(0, len(tasks), WINDOW):
        yield from compute(*tasks[start : start + WINDOW])


def row_slices(X: Any, k: int) -> Iterator[Any]:
    """Rows of a block, as many at a time as make a few million scores."""
    step = max(1, SCORES // k)
    for start in range(0, X.shape[0], step):
        yield X[start : start + step]


def label_lines(found: Any) -> list[str]:
    """The class of each row, as text."""
    return [printable(label) for label in found.tolist()]


def ranked_lines(found: Any, *, classes: Any, top: int, valued: bool) -> list[str]:
    """The best classes of each row, best first and of equals in their order.

    From scores or probabilities, which stand behind their classes if they are `valued`.
    """
    import numpy as np

    found = found if found.ndim == 2 else np.column_stack([-found, found])
    places = np.argsort(-found, axis=1, kind="stable")[:, :top]
    names = [[printable(label) for label in row] for row in classes[places].tolist()]
    if valued:
        values = np.take_along_axis(found, places, axis=1).tolist()
        names = [
            [text for name, value in zip(row, of, strict=True) for text in (name, f"{value:.6g}")]
            for row, of in zip(names, values, strict=True)
        ]
    return ["\t".join(row) for row in names]


def score_dataset(estimator: Any, dataset: Any, scheduler: str | None = None) -> Any:
    """Scores of a model on all rows of a dataset."""
    import numpy as np

    from dask_mcsvm.report import Tally

    tally, truth = Tally(estimator.classes_), dataset.classes[dataset.read_labels()]
    start = 0
    for found in found_blocks(estimator.predict, dataset, scheduler, np.asarray):
        tally.add(truth[start : start + len(found)], found)
        start += len(found)
    known = getattr(estimator, "notes_", None)
    seen = isinstance(known, dict) and known.get("data fingerprint") == dataset.fingerprint
    return replace(tally.scores(), of_training=seen)


@contextmanager
def written(output: str) -> Iterator[IO[str]]:
    """A text file that appears under its name when it is whole, or stdout."""
    if output == "-":
        yield sys.stdout
        return
    target = Path(output)
    partial = target.with_name(f".{target.name}.partial")
    try:
        with partial.open("w", encoding="utf-8") as file:
            yield file
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
