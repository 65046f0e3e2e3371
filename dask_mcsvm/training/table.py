"""The table of solvers: for each its place, formulations, options, and what makes its run.

What `fit` accepts and refuses, and the guide's table of options, follow from it.
Dask and Numba are imported by the solvers that are made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dask_mcsvm.formulations import FORMULATIONS

#: Where a solver runs: on rows in memory; chunk by chunk in this process; as tasks.
IN_MEMORY, BY_CHUNKS, ON_DASK = "in memory", "chunk by chunk, in this process", "on Dask"
SCHEDULES: tuple[str, ...] = ("adaptive", "shrink", "uniform")
STOPS: tuple[str, ...] = ("gap", "violation")


@dataclass(frozen=True)
class Option:
    """An entry of `solver_options`: one of some values, the default first, or a whole number.

    The default of a number is None where the plan decides; ``takes_none`` says whether None may be
    given, too. ``meaning`` is for the guide.
    """

    meaning: str
    values: tuple[Any, ...] = ()
    default: int | None = None
    takes_none: bool = False

    def check(self, name: str, value: object) -> Any:
        """The value, if it is one that the option takes."""
        is_whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
        if not self.values and ((is_whole and value >= 1) or (value is None and self.takes_none)):  # type: ignore[operator]
            return value if value is None else int(value)  # type: ignore[call-overload]
        # 1 equals True, and is not what was meant.
        if any(value == known and type(value) is type(known) for known in self.values):
            return value
        needed = "an integer of 1 or more" + ", or None" * self.takes_none
        if self.values:
            needed = f"one of {', '.join(map(repr, self.values))}"
        raise ValueError(f"solver_options[{name!r}] is {value!r}; use {needed}.")


@dataclass(frozen=True)
class Solver:
    """A row of the table."""

    name: str
    place: str
    #: In memory the class of the state, by chunks the function that trains; on Dask a function of
    #: plan, rows, seed and run id, which returns the object that builds the graphs.
    make: Callable[..., Any]
    options: Mapping[str, Option] = field(default_factory=dict)
    formulations: tuple[str, ...] = tuple(FORMULATIONS)

    def chosen(self, options: Mapping[str, Any] | None, asked: str | None = None) -> dict[str, Any]:
        """The options with defaults filled in; unknown names and values are refused.

        ``asked`` is the solver's name as the user gave it.
        """
        found = {
            name: option.values[0] if option.values else option.default
            for name, option in self.options.items()
        }
        for name, value in dict(options or {}).items():
            if name not in self.options:
                use = ", ".join(map(repr, self.options))
                by_limit = self.place == BY_CHUNKS and ON_DASK in places_of(self.name)
                where = " within a memory_limit" if by_limit else ""
                raise ValueError(
                    f"solver_options has {name!r}, which solver={asked or self.name!r}{where} does "
                    f"not know; {f'use {use}' if use else 'leave it out'}."
                )
            found[name] = self.options[name].check(name, value)
        return found


def _sdm() -> Any:
    from dask_mcsvm.solvers.sdm.run import SequentialDual

    return SequentialDual


def _splitting() -> Any:
    from dask_mcsvm.solvers.splitting import Splitting

    return Splitting


def _early_shrink() -> Any:
    from dask_mcsvm.training.runs.early_shrink import train_early_shrink

    return train_early_shrink


def _blocks() -> Any:
    from dask_mcsvm.training.runs.block_minimization import train_block_minimization

    return train_block_minimization


def _shards(plan: Any, rows: Any, seed: int, run: str) -> Any:
    from dask_mcsvm.graphs.regroup import join_chunks
    from dask_mcsvm.graphs.shards import Shards

    rows = join_chunks(rows, plan.blocks, run)
    return Shards(rows, plan.formulation, plan.lanes, plan.slices, seed, plan.rho, run)


def _rounds(plan: Any, rows: Any, seed: int, run: str) -> Any:
    from dask_mcsvm.graphs.rounds import Rounds

    return Rounds(
        rows, plan.groups, (seed,), run, slices=plan.slices, passes=plan.passes, rho=plan.rho
    )


def _averaging(plan: Any, rows: Any, seed: int, run: str) -> Any:
    from dask_mcsvm.graphs.independent_groups import Averaging

    return Averaging(rows, plan.groups, (seed,), run, slices=plan.slices, passes=plan.passes)


def _classes(plan: Any, rows: Any, seed: int, run: str) -> Any:
    from dask_mcsvm.graphs.independent_groups import Classes

    return Classes(rows, plan.groups, (seed,), run, passes=plan.passes)


def _exchange(plan: Any, rows: Any, seed: int, run: str) -> Any:
    from dask_mcsvm.graphs.exchange import Exchange
    from dask_mcsvm.graphs.regroup import join_chunks

    rows = join_chunks(rows, plan.blocks, run)
    return Exchange(
        rows, plan.groups, (seed,), run, slices=plan.slices, passes=plan.passes, rho=plan.rho
    )


def _chunked_splitting(plan: Any, rows: Any, seed: int, run: str) -> Any:
    from dask_mcsvm.graphs.splitting import ChunkedSplitting

    del seed  # nothing is drawn
    return ChunkedSplitting(rows, plan.formulation, plan.lanes, plan.passes, plan.square, run)


def _of_groups(solver: str) -> tuple[str, ...]:
    return tuple(name for name, form in FORMULATIONS.items() if form.group_solver == solver)


SAVE_EVERY = 10
#: Half of the passes over the disk that one takes, for about the same work (news20_bydate in two
#: blocks: 9 passes and 19 epochs; 19 and 20 with one).
INNER_PASSES = 2
LANES = Option("blocks of rows that are solved side by side")
SLICES = Option("steps of an epoch")
GROUPS = Option("groups of classes")
PASSES = Option("passes over the rows of a visit")
SAVING = Option("epochs between two saves", default=SAVE_EVERY)
OF_GROUPS = {"groups": GROUPS, "slices": SLICES, "passes": PASSES, "save_every": SAVING}
SDM = {
    "schedule": Option(
        "rows by what their last visits gained; all rows, then those that still violate, as in "
        "LIBLINEAR; all rows",
        (None, *SCHEDULES),
    ),
    "cooling": Option(
        "whether `shrink` begins with a coarse threshold, or takes 1e-3 from the start",
        (True, False),
    ),
    "stop": Option("what ends a fit; a violation is the largest one of an epoch", STOPS),
    "weights": Option(
        "W as an array, or for sparse rows and thousands of classes as lists beside dense rows",
        (None, "dense", "hybrid"),
    ),
}

TABLE: tuple[Solver, ...] = (
    Solver("sdm", IN_MEMORY, _sdm, SDM),
    Solver("splitting", IN_MEMORY, _splitting),
    Solver(
        "shards",
        ON_DASK,
        _shards,
        {"lanes": LANES, "slices": SLICES, "save_every": SAVING},
    ),
    Solver("rounds", ON_DASK, _rounds, OF_GROUPS, _of_groups("rounds")),
    Solver("averaging", ON_DASK, _averaging, OF_GROUPS, _of_groups("averaging")),
    Solver(
        "classes",
        ON_DASK,
        _classes,
        {"groups": GROUPS, "passes": PASSES, "save_every": SAVING},
        _of_groups("classes"),
    ),
    Solver("exchange", ON_DASK, _exchange, OF_GROUPS, _of_groups("exchange")),
    Solver(
        "splitting",
        ON_DASK,
        _chunked_splitting,
        {"lanes": LANES, "passes": Option("passes in one graph"), "save_every": SAVING},
    ),
    Solver(
        "shards",
        BY_CHUNKS,
        _blocks,
        {
            "inner_passes": Option(
                "passes over a block while it is in memory", default=INNER_PASSES
            ),
            "lanes": Option("more than 1 are tasks of Dask", default=1),
        },
    ),
    Solver(
        "early_shrink",
        BY_CHUNKS,
        _early_shrink,
        {
            "certify": Option("`False` is the method as published, without a gap", (True, False)),
            "inner_passes": Option(
                "passes over active rows while they are in memory; `None` is 20 if they all are, "
                "else 10",
                takes_none=True,
            ),
        },
        tuple(name for name, form in FORMULATIONS.items() if form.classes_are_independent),
    ),
)
SOLVERS: tuple[str, ...] = tuple(dict.fromkeys(row.name for row in TABLE))
#: Solvers by class groups, each of one formulation.
BY_GROUPS: tuple[str, ...] = tuple(row.name for row in TABLE if "groups" in row.options)
#: Out of core, for independent classes.
EARLY_SHRINK = "early_shrink"


def places_of(solver: str) -> tuple[str, ...]:
    """Where a solver of this name runs."""
    return tuple(row.place for row in TABLE if row.name == solver)


def solver_at(name: str, place: str, formulation: str | None = None) -> Solver:
    """The row of a solver; an error if it does not solve the formulation."""
    (row,) = (row for row in TABLE if (row.name, row.place) == (name, place))
    if formulation is not None and formulation not in row.formulations:
        able = " or ".join(row.formulations)
        raise ValueError(
            f"solver={name!r} solves {able}, not {formulation}; use "
            f"formulation={row.formulations[0]!r}, or solver='auto'."
        )
    return row
