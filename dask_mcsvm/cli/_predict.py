"""``dask mcsvm predict`` and ``dask mcsvm score``: block by block, in bounded memory."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import click

from dask_mcsvm.cli._console import Console, Refused, columns, common
from dask_mcsvm.progress import printable

MODEL = click.argument("model", type=click.Path())
DATA = click.argument("data", type=click.Path())


@click.command()
@MODEL
@DATA
@click.option("--output", "-o", default="-", help="Text file, a line per row; - is stdout.")
@click.option("--top", default=1, show_default=True, help="Best classes per row, tab between them.")
@click.option("--overwrite", is_flag=True, help="Replace a file there is.")
@common
def predict(
    model: str, data: str, output: str, top: int, overwrite: bool, as_json: bool, quiet: bool
) -> None:
    """Predict the class of every row of the dataset DATA.

    One line per row: a tab or newline in the name of a class is written as \\t or \\n.
    """
    console = Console(as_json, quiet)
    if as_json and output == "-":
        raise Refused("--json and the predictions both want stdout; pass --output FILE.")
    with console.speaking():
        if output != "-":
            check_output(output, overwrite)
        estimator, dataset = load(model), open_rows(data)
        check_top(top, estimator)
        rows = 0
        with written(output) as file:
            for _, X in blocks(dataset):
                best = estimator.predict(X)[:, None] if top == 1 else estimator.predict_topk(X, top)
                file.writelines("\t".join(map(printable, row)) + "\n" for row in best.tolist())
                rows += len(best)
    if output != "-":
        document = {"model": model, "data": data, "rows": rows, "top": top, "output": output}
        console.summary(document, f"{rows:,} predictions in {output}")


@click.command()
@MODEL
@DATA
@click.option("--confused", default=10, show_default=True, help="Most frequent mistakes to list.")
@common
def score(model: str, data: str, confused: int, as_json: bool, quiet: bool) -> None:
    """Accuracy, F1 and the most confused classes on the dataset DATA."""
    console = Console(as_json, quiet)
    with console.speaking():
        scores = score_dataset(load(model), open_rows(data))
    document = {"model": model, "data": data, **scores.as_dict(confused)}
    lines = columns(
        [
            ("rows", f"{scores.n:,}"),
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
    k = estimator.classes_.size if hasattr(estimator, "predict_topk") else 1
    if not 1 <= top <= k:
        raise Refused(f"--top is {top}, and the model ranks {k} classes; pass 1 to {k}.")


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


def blocks(dataset: Any) -> Iterator[tuple[int, Any]]:
    """Number and rows of each block of a dataset."""
    for b in range(dataset.n_blocks):
        yield b, dataset.read_block(b)


def score_dataset(estimator: Any, dataset: Any) -> Any:
    """Scores of a model on all rows of a dataset."""
    from dask_mcsvm.report import Tally

    tally = Tally(estimator.classes_)
    for b, X in blocks(dataset):
        tally.add(dataset.classes[dataset.read_block_labels(b)], estimator.predict(X))
    return tally.scores()


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
