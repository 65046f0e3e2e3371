"""``dask mcsvm fit`` and ``dask mcsvm path``."""

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
from dask_mcsvm.cli._flags import BOTH, ESTIMATORS, LINEAR
from dask_mcsvm.cli._options import check_own, chosen_options, estimator_options, parameters
from dask_mcsvm.cli._place import check_place, place_options, running_on

DATA = click.argument("data", type=click.Path())
MODEL = click.option("--model", "-m", required=True, type=click.Path(), help="Model to write.")
REPORT = click.option("--report", type=click.Path(), help="Also write a report, .html or .png.")
ESTIMATOR = click.option(
    "--estimator",
    type=click.Choice(list(ESTIMATORS)),
    default="linear",
    show_default=True,
    help="linear: LinearMCSVC, to the optimum. larank: LaRankSVC, online, with kernels.",
)
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
    from dask_mcsvm.data.containers import with_names

    return TrainingInput(
        X=with_names(dataset.read_rows(0, dataset.shape[0]), dataset.feature_names),
        y=dataset.classes[dataset.read_labels()],
        sample_weight=dataset.read_weights(),
        classes=dataset.classes,
        notes=notes,
    )


#: Solvers that read rows chunk by chunk, and options that only make sense to one that does.
BY_CHUNKS = ("early_shrink", "shards", "rounds", "averaging", "classes", "exchange")
OF_CHUNKS = ("memory_limit", "checkpoint", "resume", "scratch")


def reads_chunks(scheduler: str | None, chosen: dict[str, Any]) -> bool:
    """Whether the dataset is trained on by its path, never read whole."""
    if scheduler is not None or chosen.get("solver") in BY_CHUNKS:
        return True
    return any(name in chosen for name in OF_CHUNKS)


@click.command()
@DATA
@MODEL
@ESTIMATOR
@estimator_options(of=BOTH)
@place_options
@REPORT
@OVERWRITE
@common
def fit(
    data: str,
    model: str,
    estimator: str,
    scheduler: str | None,
    workers: int | None,
    report: str | None,
    overwrite: bool,
    as_json: bool,
    quiet: bool,
    **given: Any,
) -> None:
    """Train a model on the dataset DATA and save it.

    DATA is read into memory, unless --scheduler, --memory-limit, --checkpoint, --scratch or a
    solver that works chunk by chunk says otherwise.

    Ends with exit code 3 if the tolerance was not reached; the model is saved all the same, with
    the gap that it has.
    """
    console = Console(as_json, quiet)
    outputs = Outputs(console, model, report, overwrite)
    with console.speaking():
        chosen = chosen_options(given)
        check_own(chosen, estimator)
        outputs.check()
        check_place(scheduler, workers)
        rows = training_input(data, lazy=reads_chunks(scheduler, chosen))
        svm = new_estimator(console, estimator, chosen, rows.classes)
        with running_on(console, scheduler, workers):
            outputs.checkpoint = chosen.get("checkpoint")
            svm.fit(rows.X, rows.y, sample_weight=rows.sample_weight, classes=rows.classes)
        outputs.write(svm, rows.notes)
    document, text = told(svm, model, report)
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
@estimator_options(of=LINEAR, without=("C", "checkpoint", "resume"))
@place_options
@REPORT
@OVERWRITE
@common
def path(
    data: str,
    model: str,
    Cs: str,
    validation: str,
    refit: bool,
    scheduler: str | None,
    workers: int | None,
    report: str | None,
    overwrite: bool,
    as_json: bool,
    quiet: bool,
    **given: Any,
) -> None:
    """Train a model for each of several C, and save the one that scores best.

    Each model starts from the one before, so that the series costs less than fits of their own.
    Of equal scores the smallest C wins. DATA is read as by `fit`.
    """
    console = Console(as_json, quiet)
    outputs = Outputs(console, model, report, overwrite)
    with console.speaking():
        outputs.check()
        check_place(scheduler, workers)
        costs, chosen = read_costs(Cs), chosen_options(given)
        lazy = reads_chunks(scheduler, chosen)
        rows = training_input(data, lazy=lazy)
        estimator = new_estimator(console, "linear", chosen, rows.classes)
        held_out = read_validation(validation, lazy)
        is_share = not isinstance(held_out, tuple)
        check_share(is_share, estimator)
        with running_on(console, scheduler, workers):
            found = estimator.path(
                rows.X, rows.y, costs, validation=held_out, sample_weight=rows.sample_weight
            )
            best = found.best_
            assert best is not None
            if refit and is_share:
                best = estimator.set_params(C=best.C)
                best.fit(rows.X, rows.y, sample_weight=rows.sample_weight, classes=rows.classes)
        scores = found.scores.tolist()
        rows.notes.update({"validation": validation, "validation accuracy": max(scores)})
        outputs.write(best, rows.notes)
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


@dataclass
class Outputs:
    """The files of a fit: a model, perhaps a report, perhaps the checkpoint of a fit under way."""

    console: Console
    model: str
    report: str | None
    overwrite: bool
    checkpoint: str | None = None
    model_is_written: bool = False

    def __post_init__(self) -> None:
        self.console.written = self.so_far

    def check(self) -> None:
        """Refuse what could not be written, before the training."""
        refuse_existing(self.model, "model", self.overwrite)
        if self.report is not None:
            from dask_mcsvm.report import check_target

            check_target(self.report, overwrite=self.overwrite)

    def write(self, estimator: Any, notes: dict[str, Any]) -> None:
        """Save the model, and write its report."""
        if hasattr(estimator, "plan_"):
            estimator.notes_ = notes  # the file has them, and so has the report
        estimator.save(self.model, overwrite=self.overwrite)
        self.model_is_written = True
        if self.report is not None:
            from dask_mcsvm.report import write_report

            write_report(estimator, self.report, overwrite=self.overwrite)

    def so_far(self) -> str:
        """What Ctrl-C leaves."""
        from dask_mcsvm.storage import kind_of

        if self.model_is_written:
            rest = "" if self.report is None else ", its report is not"
            return f"the model {self.model} is written{rest}."
        if self.checkpoint is not None and kind_of(self.checkpoint) == "checkpoint":
            return (
                f"no model was written, but {self.checkpoint} holds the fit: type the same command "
                "with --resume."
            )
        return "nothing was written."


def check_share(is_share: bool, estimator: Any) -> None:
    """Refuse to hold back a share of rows that are read as they stand."""
    if is_share and estimator.solver == "early_shrink":
        raise Refused(
            "--solver early_shrink reads DATA as it stands and holds back no share of it; pass "
            "--validation DATASET."
        )


def new_estimator(console: Console, name: str, chosen: dict[str, Any], classes: Any) -> Any:
    """The estimator that the options describe."""
    import dask_mcsvm

    estimator = getattr(dask_mcsvm, ESTIMATORS[name])(**parameters(chosen, classes))
    if not estimator.verbose:
        estimator.set_params(callbacks=console.callbacks(estimator.tol))
    return estimator


def read_costs(text: str) -> list[float]:
    """Values of C from a list with commas."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise Refused(f"--Cs is {text!r}; it must be numbers with commas: 0.01,0.1,1.") from None


def read_validation(text: str, lazy: bool) -> Any:
    """A share of the rows, or the rows and labels of another dataset."""
    try:
        return float(text)
    except ValueError:
        held_out = training_input(text, lazy=lazy)
        return held_out.X, held_out.y


def told(estimator: Any, model: str, report: str | None) -> tuple[dict[str, Any], str]:
    """The fit as a document, and in words."""
    history = estimator.history_
    seconds = history[-1]["seconds"] if history else 0.0
    own, first = linear_facts(estimator) if hasattr(estimator, "plan_") else larank_facts(estimator)
    document = {
        "model": model,
        "report": report,
        **own,
        "C": estimator.C,
        "tol": estimator.tol,
        "stop": estimator.stop_,
        "gap": estimator.gap_,
        "primal": estimator.primal_,
        "dual": estimator.dual_,
        "epochs": estimator.n_iter_,
        "seconds": seconds,
        "classes": int(estimator.classes_.size),
        "features": int(estimator.n_features_in_),
    }
    epochs = f"{estimator.n_iter_} epoch{'s' * (estimator.n_iter_ > 1)}"
    text = f"{first} after {epochs}, {seconds:.1f} s\nmodel   {model}"
    return document, text if report is None else f"{text}\nreport  {report}"


def linear_facts(estimator: Any) -> tuple[dict[str, Any], str]:
    """What a LinearMCSVC has that others have not, and the beginning of its line."""
    from dask_mcsvm.formulations import formulation_name

    name = formulation_name(estimator.formulation)
    own = {
        "formulation": name,
        "solver": estimator.solver_,
        "converged": bool(estimator.gap_ <= estimator.tol),
        "density": estimator.density_,
    }
    return own, f"{name}, C={estimator.C:g}: relative gap {estimator.gap_:.1e}"


def larank_facts(estimator: Any) -> tuple[dict[str, Any], str]:
    """The same of a LaRankSVC."""
    own = {
        "kernel": estimator.kernel,
        "gamma": estimator.gamma_,
        "support": int(estimator.n_support_),
        "converged": estimator.stop_ == "gap",
    }
    gap = f", relative gap {estimator.gap_:.1e}" if estimator.stop == "gap" else ""
    kept = f"{own['support']:,} support patterns"
    return own, f"larank, {estimator.kernel}, C={estimator.C:g}: {kept}{gap}"


def exit_if_not_converged(console: Console) -> None:
    """Exit code 3 for a fit that ran out of epochs."""
    if "ConvergenceWarning" in console.warned:
        raise click.exceptions.Exit(NOT_CONVERGED)
