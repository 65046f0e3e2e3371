"""``dask mcsvm fit`` and ``dask mcsvm path``."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import click

from dask_mcsvm.cli._console import (
    NOT_CONVERGED,
    Console,
    Refused,
    columns,
    common,
    refuse_existing,
)
from dask_mcsvm.cli._options import estimator_options, parameters

DATA = click.argument("data", type=click.Path())
MODEL = click.option("--model", "-m", required=True, type=click.Path(), help="Model to write.")
REPORT = click.option("--report", type=click.Path(), help="Also write a report, .html or .png.")
SCHEDULER = click.option(
    "--scheduler",
    metavar="ADDRESS|threads|processes",
    help="Train chunk by chunk with Dask: on a cluster, or on threads or worker processes of this "
    "machine. Without it the dataset is read into memory.",
)
WORKERS = click.option("--workers", type=int, help="Worker processes to start [one per core].")
OVERWRITE = click.option("--overwrite", is_flag=True, help="Replace a model or report there is.")


@dataclass(frozen=True, eq=False)
class TrainingInput:
    """What `fit` is called with, and what the model's file says of it."""

    X: Any
    y: Any
    sample_weight: Any
    classes: Any
    notes: dict[str, Any]


def training_input(path: str, *, lazy: bool = False) -> TrainingInput:
    """The dataset at `path`, read into memory or, lazily, left where it is."""
    from dask_mcsvm.storage import open_dataset

    dataset = open_dataset(path)
    notes = {"data": path, "data fingerprint": dataset.fingerprint}
    if lazy:
        return TrainingInput(dataset, None, None, dataset.classes, notes)
    return TrainingInput(
        X=dataset.read_rows(0, dataset.shape[0]),
        y=dataset.classes[dataset.read_labels()],
        sample_weight=dataset.read_weights(),
        classes=dataset.classes,
        notes=notes,
    )


@contextmanager
def running_on(scheduler: str | None, workers: int | None) -> Iterator[None]:
    """What the options say about where tasks run, for as long as a fit takes."""
    if scheduler is None:
        yield
        return
    if scheduler == "threads":
        import dask

        with dask.config.set(scheduler="threads"):
            yield
        return
    from distributed import Client, LocalCluster

    try:
        if scheduler == "processes":
            place: Any = LocalCluster(
                n_workers=workers, threads_per_worker=1, dashboard_address=None
            )
        else:
            place = nullcontext(scheduler)
    except ValueError as error:
        raise Refused(f"--scheduler {scheduler}: {error}") from error
    with place as address:
        try:
            client = Client(address, timeout="10s")
        except (OSError, ValueError) as error:
            raise Refused(
                f"--scheduler {scheduler}: no scheduler answers there ({error}); start one with "
                "`dask scheduler`, or use threads or processes."
            ) from error
        with client:
            if scheduler == "processes":
                from dask_mcsvm.plugin import IgnoreInterrupts

                client.register_plugin(IgnoreInterrupts())
            yield


@click.command()
@DATA
@MODEL
@estimator_options()
@SCHEDULER
@WORKERS
@REPORT
@OVERWRITE
@common
def fit(
    data: str,
    model: str,
    scheduler: str | None,
    workers: int | None,
    report: str | None,
    overwrite: bool,
    as_json: bool,
    quiet: bool,
    **given: Any,
) -> None:
    """Train a model on the dataset DATA and save it.

    Ends with exit code 3 if the tolerance was not reached; the model is saved all the same, with
    the gap that it has.
    """
    console = Console(as_json, quiet)
    with console.speaking():
        check_outputs(model, report, overwrite)
        if workers is not None and scheduler != "processes":
            raise Refused("--workers is for --scheduler processes; add it, or leave --workers out.")
        rows = training_input(data, lazy=scheduler is not None)
        estimator = new_estimator(console, given, rows.classes)
        with running_on(scheduler, workers):
            estimator.fit(rows.X, rows.y, sample_weight=rows.sample_weight, classes=rows.classes)
        write_outputs(estimator, rows.notes, model, report, overwrite)
    document, text = told(estimator, model, report)
    console.summary(document, text)
    exit_if_not_converged(console)


@click.command()
@DATA
@MODEL
@click.option("--Cs", "Cs", required=True, help="Values of C, such as 0.01,0.1,1.")
@click.option(
    "--validation",
    default="0.2",
    show_default=True,
    help="Share of the rows to hold back for scoring, or another dataset.",
)
@click.option("--refit", is_flag=True, help="Train the chosen C again, on all rows of DATA.")
@estimator_options(without=("C", "checkpoint", "resume", "scratch"))
@REPORT
@OVERWRITE
@common
def path(
    data: str,
    model: str,
    Cs: str,
    validation: str,
    refit: bool,
    report: str | None,
    overwrite: bool,
    as_json: bool,
    quiet: bool,
    **given: Any,
) -> None:
    """Train a model for each of several C, and save the one that scores best.

    Each model starts from the one before, so that the series costs less than fits of their own.
    Of equal scores the smallest C wins.
    """
    console = Console(as_json, quiet)
    with console.speaking():
        check_outputs(model, report, overwrite)
        costs = read_costs(Cs)
        rows = training_input(data)
        estimator = new_estimator(console, given, rows.classes)
        held_out = read_validation(validation)
        found = estimator.path(
            rows.X, rows.y, costs, validation=held_out, sample_weight=rows.sample_weight
        )
        best = found.best_
        assert best is not None
        if refit and not isinstance(held_out, tuple):
            best = estimator.set_params(C=best.C)
            best.fit(rows.X, rows.y, sample_weight=rows.sample_weight, classes=rows.classes)
        scores = found.scores.tolist()
        rows.notes.update({"validation": validation, "validation accuracy": max(scores)})
        write_outputs(best, rows.notes, model, report, overwrite)
    steps = [
        {"C": C, "epochs": m.n_iter_, "gap": m.gap_, "accuracy": score}
        for C, m, score in zip(found.Cs, found.models, scores, strict=True)
    ]
    document, text = told(best, model, report)
    table = columns(
        [
            ("C", "epochs", "rel. gap", "accuracy"),
            *(
                (f"{s['C']:g}", str(s["epochs"]), f"{s['gap']:.1e}", f"{s['accuracy']:.4f}")
                for s in steps
            ),
        ],
        right=(0, 1, 2, 3),
    )
    console.summary({**document, "path": steps, "best_C": best.C}, f"{table}\n\n{text}")
    exit_if_not_converged(console)


def check_outputs(model: str, report: str | None, overwrite: bool) -> None:
    """Refuse what could not be written, before the training."""
    refuse_existing(model, "model", overwrite)
    if report is not None:
        from dask_mcsvm.report import check_target

        check_target(report, overwrite=overwrite)


def new_estimator(console: Console, given: dict[str, Any], classes: Any) -> Any:
    """The estimator that the options describe."""
    from dask_mcsvm import LinearMCSVC

    estimator = LinearMCSVC(**parameters(given, classes))
    if not estimator.verbose:
        estimator.set_params(callbacks=console.callbacks(estimator.tol))
    return estimator


def read_costs(text: str) -> list[float]:
    """Values of C from a list with commas."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise Refused(f"--Cs is {text!r}; it must be numbers with commas: 0.01,0.1,1.") from None


def read_validation(text: str) -> Any:
    """A share of the rows, or the rows and labels of another dataset."""
    try:
        return float(text)
    except ValueError:
        held_out = training_input(text)
        return held_out.X, held_out.y


def write_outputs(
    estimator: Any, notes: dict[str, Any], model: str, report: str | None, overwrite: bool
) -> None:
    """Save the model, and write its report."""
    estimator.notes_ = notes  # the file has them, and so has the report
    estimator.save(model, overwrite=overwrite)
    if report is not None:
        from dask_mcsvm.report import write_report

        write_report(estimator, report, overwrite=overwrite)


def told(estimator: Any, model: str, report: str | None) -> tuple[dict[str, Any], str]:
    """The fit as a document, and in words."""
    from dask_mcsvm.formulations import formulation_name

    history = estimator.history_
    seconds = history[-1]["seconds"] if history else 0.0
    document = {
        "model": model,
        "report": report,
        "formulation": formulation_name(estimator.formulation),
        "solver": estimator.solver_,
        "C": estimator.C,
        "tol": estimator.tol,
        "converged": bool(estimator.gap_ <= estimator.tol),
        "stop": estimator.stop_,
        "gap": estimator.gap_,
        "primal": estimator.primal_,
        "dual": estimator.dual_,
        "epochs": estimator.n_iter_,
        "seconds": seconds,
        "classes": int(estimator.classes_.size),
        "features": int(estimator.n_features_in_),
        "density": estimator.density_,
    }
    text = (
        f"{document['formulation']}, C={estimator.C:g}: relative gap {estimator.gap_:.1e} after "
        f"{estimator.n_iter_} epochs, {seconds:.1f} s\nmodel   {model}"
    )
    return document, text if report is None else f"{text}\nreport  {report}"


def exit_if_not_converged(console: Console) -> None:
    """Exit code 3 for a fit that ran out of epochs."""
    if "ConvergenceWarning" in console.warned:
        raise click.exceptions.Exit(NOT_CONVERGED)
