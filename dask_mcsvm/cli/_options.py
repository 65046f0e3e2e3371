"""The table of options, added to a command and read back."""

import json
from collections.abc import Callable
from typing import Any, TypeVar

import click

from dask_mcsvm.cli._console import Refused
from dask_mcsvm.cli._flags import FLAGS, Flag
from dask_mcsvm.progress import printable

Command = TypeVar("Command", bound=Callable[..., Any])


def estimator_options(
    *, of: tuple[str, ...], without: tuple[str, ...] = ()
) -> Callable[[Command], Command]:
    """Add an option for every row of the table that one of these estimators has."""

    def add(command: Command) -> Command:
        for flag in reversed(FLAGS):
            if flag.parameter not in without and set(flag.of) & set(of):
                command = _option(flag, of)(command)
        return command

    return add


def _option(flag: Flag, of: tuple[str, ...]) -> Callable[[Command], Command]:
    own = len(of) > 1 and len(flag.of) == 1
    text = f"{flag.of[0]}: {flag.help}" if own else flag.help
    if flag.kind is bool:
        both = f"{flag.option}/--no-{flag.option[2:]}"
        return click.option(both, flag.parameter, default=None, help=text)
    return click.option(
        flag.option, flag.parameter, type=flag.kind, multiple=flag.repeated, help=text
    )


def chosen_options(given: dict[str, Any]) -> dict[str, Any]:
    """Those that were typed; None and () were not."""
    return {name: value for name, value in given.items() if value is not None and value != ()}


def check_own(chosen: dict[str, Any], estimator: str) -> None:
    """Refuse options of another estimator by their names."""
    for flag in FLAGS:
        if flag.parameter in chosen and estimator not in flag.of:
            raise Refused(
                f"{flag.option} is for --estimator {flag.of[0]}, and this is {estimator}; leave it "
                f"out, or pass --estimator {flag.of[0]}."
            )


def parameters(chosen: dict[str, Any], classes: Any) -> dict[str, Any]:
    """Parameters of the estimator from the options chosen.

    Parameters
    ----------
    chosen : dict
        Values by parameter as click read them.
    classes : ndarray of shape (k,)
        Labels, so that ``--class-weight 3=2`` finds the integer 3.
    """
    chosen = dict(chosen)
    for name in ("intercept_scaling", "gamma"):
        if name in chosen:
            chosen[name] = _number_or_word(chosen[name])
    if chosen.get("standardize") == "yes":
        chosen["standardize"] = True
    if "class_weight" in chosen:
        chosen["class_weight"] = _class_weight(chosen["class_weight"], classes)
    if "margins" in chosen:
        chosen["margins"] = _margins(chosen["margins"], classes)
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


def _margins(path: str, classes: Any) -> Any:
    """The costs in a file; its names are text, and those of classes become labels."""
    try:
        with open(path, encoding="utf-8") as file:
            given = json.load(file)
    except ValueError as error:
        raise Refused(f"--margins: {path} is no JSON ({error}).") from None
    labels = {str(label): label for label in classes.tolist()}
    if not isinstance(given, dict):
        return given
    if any(isinstance(costs, dict) for costs in given.values()):
        if not all(isinstance(costs, dict) for costs in given.values()):
            raise Refused(f"--margins: {path} is half a tree, half {{true: {{predicted: cost}}}}.")
        return {
            (labels.get(true, true), labels.get(name, name)): cost
            for true, costs in given.items()
            for name, cost in costs.items()
        }
    return {
        labels.get(child, child): labels.get(parent, parent) if isinstance(parent, str) else parent
        for child, parent in given.items()
    }


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
