"""The parameters of the estimators as options: one table, one row each."""

from dataclasses import dataclass
from typing import Any

import click

FORMULATIONS = ("crammer_singer", "weston_watkins", "lee_lin_wahba", "one_vs_rest")
SHORT = ("cs", "ww", "llw", "ovr")


#: By what ``--estimator`` calls it: the class, and what its options are refused without.
ESTIMATORS = {"linear": "LinearMCSVC", "larank": "LaRankSVC"}
LINEAR, LARANK, BOTH = ("linear",), ("larank",), tuple(ESTIMATORS)


@dataclass(frozen=True)
class Flag:
    """A parameter, the kind of its value, and its help; an absent option keeps the default."""

    parameter: str
    kind: Any
    help: str
    repeated: bool = False
    of: tuple[str, ...] = LINEAR

    @property
    def option(self) -> str:
        return "--" + self.parameter.replace("_", "-")


# `callbacks` is a Python object, `warm_start` is about a second fit, and datasets, which is what
# commands train on, have no `layer`: `convert` asks for it. None of them is here.
FLAGS = (
    Flag("formulation", click.Choice([*FORMULATIONS, *SHORT]), "The loss [crammer_singer]."),
    Flag("solver", str, "Solver [auto]."),
    Flag("C", float, "Cost of a unit of loss; large values fit the rows [1.0].", of=BOTH),
    Flag("tol", float, "Relative duality gap to reach [1e-3].", of=BOTH),
    Flag("max_epochs", int, "Epochs at most [1000].", of=BOTH),
    Flag("fit_intercept", bool, "Whether to learn an intercept [yes]."),
    Flag("intercept_scaling", str, "Value of the constant feature, or radius [1.0]."),
    Flag("standardize", click.Choice(["yes", "scale"]), "Columns of mean 0, variance 1; or of 1."),
    Flag(
        "class_weight", str, "balanced, or LABEL=WEIGHT, any number of times.",
        repeated=True, of=BOTH,
    ),
    Flag(
        "margins", click.Path(exists=True, dir_okay=False),
        "JSON file of what mistakes cost: a matrix, {true: {predicted: cost}}, or a tree "
        "{child: parent}.",
        of=BOTH,
    ),
    Flag("probability", bool, "Whether the model can tell probabilities [no]."),
    Flag("dtype", click.Choice(["float32", "float64"]), "Arithmetic [that of the rows].", of=BOTH),
    Flag("n_jobs", int, "Threads, -1 for all cores [1]."),
    Flag("checkpoint", click.Path(), "Folder that holds the state of the fit.", of=BOTH),
    Flag("resume", bool, "Go on from the checkpoint [no].", of=BOTH),
    Flag("scratch", click.Path(), "Folder for state, seen by all workers."),
    Flag("memory_limit", str, "Memory to use, such as 2GB: rows are read from DATA as needed."),
    Flag("solver_options", str, "NAME=VALUE, any number of times.", repeated=True),
    Flag("kernel", click.Choice(["linear", "rbf", "poly", "sigmoid"]), "Kernel [rbf].", of=LARANK),
    Flag("gamma", str, "Of the kernel: a number, scale or auto [scale].", of=LARANK),
    Flag("degree", int, "Of the kernel poly [3].", of=LARANK),
    Flag("coef0", float, "Of the kernels poly and sigmoid [0.0].", of=LARANK),
    Flag("shuffle", bool, "Whether to visit rows in random order [yes].", of=LARANK),
    Flag("stop", click.Choice(["epochs", "gap"]), "When to end: epochs are 1 [epochs].", of=LARANK),
    Flag("cache_size", float, "Megabytes of kernel values kept [500].", of=LARANK),
    Flag(
        "schedule", click.Choice(["cost", "time", "fixed"]), "What chooses the next step [cost].",
        of=LARANK,
    ),
    Flag("max_support", int, "Support patterns kept at most [all].", of=LARANK),
    Flag("verbose", int, "1: a line per epoch on stderr [0].", of=BOTH),
    Flag(
        "random_state", int, "Seed of the order of visits; the same seed, the same bytes.", of=BOTH
    ),
)  # fmt: skip
