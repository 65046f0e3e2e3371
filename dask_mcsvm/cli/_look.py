"""``dask mcsvm info`` and ``dask mcsvm report``."""

import math
from collections.abc import Iterator
from typing import Any

import click

from dask_mcsvm.cli._console import Console, columns, common
from dask_mcsvm.cli._predict import load, open_rows, score_dataset
from dask_mcsvm.progress import line_of, printable


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
    tell = {"dataset": dataset_facts, "model": model_facts, "checkpoint": checkpoint_facts}
    facts = [(name, printable(value)) for name, value in tell[found["kind"]](found)]
    console.result(found, columns([("path", printable(found["path"])), *facts]))


Facts = Iterator[tuple[str, str]]


def dataset_facts(found: dict[str, Any]) -> Facts:
    """What a dataset holds, in words."""
    n, d = found["rows"], found["features"]
    share = found["nonzeros"] / (n * d)
    stored = f"sparse, {found['nonzeros']:,} stored ({share:.2%})" if found["sparse"] else "dense"
    yield "holds", f"a dataset of {n:,} rows, {d:,} features, {found['classes']:,} classes"
    yield "values", f"{found['dtype']}, {stored}"
    yield "weights", "one per row" if found["weights"] else "none"
    yield "blocks", f"{found['blocks']:,}"
    yield "size", size(found["bytes"])
    yield "longest row", f"norm {found['largest_row_norm']:.4g}"
    yield "fingerprint", found["fingerprint"]


def model_facts(found: dict[str, Any]) -> Facts:
    """What a model is, how good it is proved to be, and what it was trained with."""
    fitted = found.get("fitted", found)  # LaRankSVC has its results beside the rest
    given, plan, run = (found.get(name, {}) for name in ("parameters", "plan", "run"))
    k, d = found.get("classes"), fitted.get("n_features_in_")
    yield "holds", f"a {found.get('estimator')} of {grouped(k)} classes, {grouped(d)} features"
    if "kernel" in given:
        support = found["arrays"].get("ids", {}).get("shape", ["?"])[0]
        yield "kernel", f"{given['kernel']}, {support} support patterns"
    else:
        yield "formulation", str(found.get("trained", {}).get("formulation"))
    yield from quality(fitted, given.get("tol"))
    if "solver" in plan:
        solver = fitted.get("solver_", plan["solver"])
        yield "solver", f"{solver}: {plan.get('reason')}" if solver == plan["solver"] else solver
    rows = plan.get("n", found.get("n_seen"))
    if rows is not None:
        yield "trained on", f"{grouped(rows)} rows, {run.get('dtype', plan.get('dtype'))}"
    chosen = {n: v for n, v in given.items() if v not in (None, [], {}) and n not in TOLD}
    yield "parameters", ", ".join(f"{name}={value}" for name, value in sorted(chosen.items()))
    for name, value in (found.get("notes") or {}).items():
        yield name, str(value)
    versions = found.get("versions", {})
    newest = ", ".join(
        f"{name} {versions[name]}" for name in ("python", "numpy") if name in versions
    )
    yield "written by", f"{found.get('created_by')}{f', {newest}' if newest else ''}"
    yield "size", size(found["bytes"])


#: Parameters that a fact of their own tells, or that say nothing of the model.
TOLD = ("formulation", "kernel", "callbacks", "verbose", "resume", "warm_start")


def quality(fitted: dict[str, Any], tol: float | None) -> Facts:
    """Gap and objectives of a fit, as far as it has them."""
    gap, primal, dual = (fitted.get(name) for name in ("gap_", "primal_", "dual_"))
    n = fitted.get("n_iter_")
    epochs = f"after {n} epoch{'s' * (n != 1)}, stopped by {fitted.get('stop_')}"
    if not all(isinstance(x, float) and math.isfinite(x) for x in (gap, primal, dual)):
        yield "relative gap", f"not computed; {epochs}"
    else:
        assert gap is not None  # a number, as was just seen
        met = "" if tol is None else f", {'within' if gap <= tol else 'above'} tol={tol:g}"
        yield "relative gap", f"{gap:.2e}{met}; {epochs}"
        yield "objective", f"{primal:.6g}, at least {dual:.6g}"


def checkpoint_facts(found: dict[str, Any]) -> Facts:
    """How far the fit in a checkpoint is."""
    meta = found["meta"]
    plan, identity = meta.get("plan", {}), meta.get("identity", {})
    epoch = meta.get("epoch", meta.get("epochs"))
    yield "holds", "the state of a fit" + ("" if epoch is None else f" after {epoch:g} epochs")
    form = identity.get("formulation", plan.get("formulation"))
    if plan:
        yield "problem", f"{form}, {grouped(plan.get('n'))} rows, {grouped(plan.get('d'))} features"
        yield "solver", str(meta.get("solver", plan.get("solver")))
    if meta.get("history"):
        yield "last epoch", line_of(meta["history"][-1])
    yield "written", f"{found['generation']:,} times"
    yield "size", size(found["bytes"])


def grouped(count: object) -> str:
    """A number with commas; anything else (of a file that was tampered with) as it is."""
    return f"{count:,}" if isinstance(count, int) else str(count)


def size(n_bytes: float) -> str:
    """Bytes as one would say it.

    Examples
    --------
    >>> size(105_379)
    '105 kB'
    """
    for unit in ("bytes", "kB", "MB", "GB"):
        if n_bytes < 1000:
            return f"{n_bytes:.3g} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:.3g} TB"


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
