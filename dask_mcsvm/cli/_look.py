"""``dask mcsvm info`` and ``dask mcsvm report``."""

from typing import Any

import click

from dask_mcsvm.cli._console import Console, columns, common
from dask_mcsvm.cli._predict import load, open_rows, score_dataset
from dask_mcsvm.progress import printable


@click.command()
@click.argument("path", type=click.Path())
@common
def info(path: str, as_json: bool, quiet: bool) -> None:
    """What the dataset, model or checkpoint at PATH holds."""
    console = Console(as_json, quiet)
    with console.speaking():
        from dask_mcsvm.storage import describe

        found = describe(path)
    if found["kind"] == "model" and "classes" in found:
        found["classes"] = len(found["classes"]["values"])
    console.result(found, columns(facts(found)))


def facts(found: dict[str, Any], prefix: str = "") -> list[tuple[str, ...]]:
    """Name and value of all that is set and fits a line; histories are counted, not printed."""
    lines: list[tuple[str, ...]] = []
    for name, value in found.items():
        if value is None:
            continue
        if isinstance(value, dict) and value and prefix.count(".") < 1:
            lines += facts(value, f"{prefix}{name}.")
        elif name == "bytes":
            lines.append((f"{prefix}{name}", f"{value:,}"))
        elif isinstance(value, list) and len(value) > 6:
            lines.append((f"{prefix}{name}", f"{len(value)} entries"))
        elif isinstance(value, float):
            lines.append((f"{prefix}{name}", f"{value:.6g}"))
        else:
            lines.append((f"{prefix}{name}", printable(value)))
    return [(printable(name), value) for name, value in lines]


@click.command()
@click.argument("model", type=click.Path())
@click.argument("output", type=click.Path())
@click.option("--data", type=click.Path(), help="Dataset to score the model on.")
@click.option("--overwrite", is_flag=True, help="Replace a file there is.")
@common
def report(
    model: str, output: str, data: str | None, overwrite: bool, as_json: bool, quiet: bool
) -> None:
    """Write the report of MODEL to OUTPUT, an .html or .png file."""
    console = Console(as_json, quiet)
    with console.speaking():
        from dask_mcsvm.report import check_target, write_report

        check_target(output, overwrite=overwrite)
        estimator = load(model)
        scores = None if data is None else score_dataset(estimator, open_rows(data))
        write_report(estimator, output, scores=scores, overwrite=overwrite)
    console.summary({"model": model, "data": data, "report": output}, f"report  {output}")
