"""Names users type, and the number they stop on."""

import math

import numpy as np

from dask_mcsvm.formulations._base import Formulation
from dask_mcsvm.formulations.crammer_singer import CrammerSinger
from dask_mcsvm.formulations.lee_lin_wahba import LeeLinWahba
from dask_mcsvm.formulations.one_vs_rest import OneVsRest
from dask_mcsvm.formulations.weston_watkins import WestonWatkins

FORMULATIONS: dict[str, type[Formulation]] = {
    "crammer_singer": CrammerSinger,
    "weston_watkins": WestonWatkins,
    "lee_lin_wahba": LeeLinWahba,
    "one_vs_rest": OneVsRest,
}
SHORT_NAMES = {form.short_name: name for name, form in FORMULATIONS.items()}


def formulation_name(name: str) -> str:
    """The long name of a formulation, from its long or its short form.

    Raises
    ------
    ValueError
        If the name is neither; the message lists those accepted.
    """
    # Unhashable values (a list, say) must reach the message too, hence no dict lookup first.
    if isinstance(name, str):
        long_name = SHORT_NAMES.get(name, name)
        if long_name in FORMULATIONS:
            return long_name
    accepted = ", ".join(f"{long!r} ({short!r})" for short, long in SHORT_NAMES.items())
    raise ValueError(f"formulation={name!r} is not known; use {accepted}.")


def relative_gap(name: str, primal: float, dual: float, primal_at_zero: float) -> float:
    """The gap in units of the objective: what `tol` is compared with.

    [REL]      (P - D) / P for Crammer-Singer, Weston-Watkins, one-vs-rest
    [LLW-REL]  (P - D) / max(P(0) - D, 64 eps P) for Lee-Lin-Wahba; 0 where |P - D| <= 64 eps P

    Lee-Lin-Wahba's P is mostly a constant that no W can remove, so a gap small against P says
    little; P(0) - D is what training can gain. Where the best W is 0 nothing can be gained
    and P(0) - D is rounding like the gap itself: such a gap counts as closed.

    Parameters
    ----------
    name : str
        Long or short name of the formulation.
    primal, dual, primal_at_zero : float
        P(W), D(alpha) and P(0).

    Returns
    -------
    float
        nan if an objective is not finite, which no tolerance accepts; inf if there is a gap but
        nothing to compare it with.
    """
    gap, form = primal - dual, FORMULATIONS[formulation_name(name)]
    if not (math.isfinite(primal) and math.isfinite(dual)):  # inf / inf, or inf within rounding
        return math.nan
    if form.gap_by_gain:
        floor = 64 * np.finfo(np.float64).eps * abs(primal)
        if abs(gap) <= floor:
            return 0.0
        scale = max(primal_at_zero - dual, floor)  # [LLW-REL]
    else:
        scale = primal  # [REL]
    if scale == 0:
        return 0.0 if gap <= 0 else math.inf
    return float(gap / scale)
