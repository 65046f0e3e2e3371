"""The parameters of LinearMCSVC as options of a command: one table, one row each."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from dask_mcsvm.cli._console import Refused
from dask_mcsvm.progress import printable

Command = TypeVar("Command", bound=Callable[..., Any])

FORMULATIONS = ("crammer_singer", "weston_watkins", "lee_lin_wahba", "one_vs_rest")
SHORT = ("cs", "ww", "llw", "ovr")


@dataclass(frozen=True)
class Flag:
    """A parameter, the kind of its value, and its help; an absent option keeps the default."""

    parameter: str
    kind: Any
    help: str
    repeated: bool = False

    @property
    def option(self) -> str:
        return "--" + self.parameter.replace("_", "-")


# `callbacks` is a Python object, and `warm_start` is about a second fit: neither is here.
FLAGS = (
    Flag("formulation", click.Choice([*FORMULATIONS, *SHORT]), "The loss [crammer_singer]."),
    Flag("solver", str, "Solver [auto]."),
    Flag("C", float, "Cost of a unit of loss; large values fit the rows [1.0]."),
    Flag("tol", float, "Relative duality gap to reach [1e-3]."),
    Flag("max_epochs", int, "Epochs at most [1000]."),
    Flag("fit_intercept", bool, "Whether to learn an intercept [yes]."),
    Flag("intercept_scaling", str, "Value of the constant feature, or radius [1.0]."),
    Flag("standardize", click.Choice(["yes", "scale"]), "Columns of mean 0, variance 1; or of 1."),
    Flag("class_weight", str, "balanced, or LABEL=WEIGHT, any number of times.", repeated=True),
    Flag("dtype", click.Choice(["float32", "float64"]), "Arithmetic [that of the rows]."),
    Flag("n_jobs", int, "Threads, -1 for all cores [1]."),
    Flag("checkpoint", click.Path(), "With --scheduler: folder that holds the state of the fit."),
    Flag("resume", bool, "Go on from the checkpoint [no]."),
    Flag("scratch", click.Path(), "With --scheduler: folder for state, seen by all workers."),
    Flag("memory_limit", str, "Memory to use, such as 2GB."),
    Flag("solver_options", str, "NAME=VALUE, any number of times.", repeated=True),
    Flag("verbose", int, "1: a line per epoch on stderr [0]."),
    Flag("random_state", int, "Seed of the order of visits; the same seed, the same bytes."),
)


def estimator_options(*, without: tuple[str, ...] = ()) -> Callable[[Command], Command]:
    """Add an option for every row of the table."""

    def add(command: Command) -> Command:
        for flag in reversed(FLAGS):
            if flag.parameter not in without:
                command = _option(flag)(command)
        return command

    return add


def _option(flag: Flag) -> Callable[[Command], Command]:
    if flag.kind is bool:
        both = f"{flag.option}/--no-{flag.option[2:]}"
        return click.option(both, flag.parameter, default=None, help=flag.help)
    return click.option(
        flag.option, flag.parameter, type=flag.kind, multiple=flag.repeated, help=flag.help
    )


def parameters(given: dict[str, Any], classes: Any) -> dict[str, Any]:
    """Parameters of the estimator from the options given.

    Parameters
    ----------
    given : dict
        Values by parameter as click read them; None and () were not given.
    classes : ndarray of shape (k,)
        Labels, so that ``--class-weight 3=2`` finds the integer 3.
    """
    chosen = {name: value for name, value in given.items() if value is not None and value != ()}
    if "intercept_scaling" in chosen:
        chosen["intercept_scaling"] = _number_or_word(chosen["intercept_scaling"])
    if chosen.get("standardize") == "yes":
        chosen["standardize"] = True
    if "class_weight" in chosen:
        chosen["class_weight"] = _class_weight(chosen["class_weight"], classes)
    if "solver_options" in chosen:
        pairs = [_pair("--solver-options", text) for text in chosen["solver_options"]]
        chosen["solver_options"] = {name: _json_or_word(value) for name, value in pairs}
    return chosen


def _class_weight(given: tuple[str, ...], classes: Any) -> Any:
    if given == ("balanced",):
        return "balanced"
    by_text = {str(label): label for label in classes.tolist()}
    weights = {}
    for label, weight in (_pair("--class-weight", text) for text in given):
        if label not in by_text:
            some = ", ".join(map(printable, list(by_text)[:5]))
            raise Refused(
                f"--class-weight names {label!r}, which is no class of the data; the classes are "
                f"{some}{', ...' if len(by_text) > 5 else ''}."
            )
        weights[by_text[label]] = _number_or_word(weight)
    return weights


def _pair(option: str, text: str) -> tuple[str, str]:
    # From the right: a label may hold an equals sign, a number does not.
    name, sign, value = text.rpartition("=")
    if not sign or not name:
        raise Refused(f"{option} is {text!r}; it must be NAME=VALUE.")
    return name, value


def _number_or_word(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text  # the estimator says what it needs


def _json_or_word(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
