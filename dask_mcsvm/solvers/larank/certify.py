"""The duality gap of a LaRank run, example by example.

With ξ_i = max_m g_i(y_i) − g_i(m), the loss of example i, and ‖W‖² = Σ β_im (1 − Δ_im − g_i(m)),

    P − D = Σ_i C_i ξ_i − Σ_im β_im g_i(m)                                                  [LR-GAP]

so that an example which is no support pattern adds C_i ξ_i, and needs its scores only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dask_mcsvm.formulations import CrammerSinger
from dask_mcsvm.solvers.kernels.jit import apart, by_type, kernel
from dask_mcsvm.solvers.kernels.margins import dual_excess, excess_of
from dask_mcsvm.solvers.kernels.rows import row_update

from .cache import fetch, remember
from .models import LinearModel, class_score, is_kernel, look_new, look_old
from .state import DUAL, PATTERNS, slot_row


def refresh(model, patterns, store, p, tally):
    """Gradients of pattern p from the coefficients; False if its kernel row is wanted first."""


@by_type(refresh)
def _refresh(model, patterns, store, p, tally):
    if not is_kernel(model):
        return lambda model, patterns, store, p, tally: True

    def from_row(model, patterns, store, p, tally):
        r = fetch(model, p, tally.counts)
        if r < 0:
            return False
        for t in range(patterns.held[p]):
            m = patterns.classes[p, t]
            own = (1.0 if t == 0 else 0.0) - excess_of(model.margins, patterns.label[p], m)
            model.grad[m, model.place[p, t]] = own - class_score(model, m, model.values[r])
        return True

    return from_row


@kernel
def balance(patterns, n_patterns):
    """Set every own coefficient to minus the sum of the others, so that beta is feasible."""
    for p in range(n_patterns):
        total = 0.0
        for t in range(1, patterns.held[p]):
            total -= patterns.beta[p, t]
        patterns.beta[p, 0] = min(total, patterns.cost[p])


@kernel
def copy_weights(model, patterns, n_patterns):
    """Coefficients into the lists by class."""
    for p in range(n_patterns):
        for t in range(patterns.held[p]):
            model.weight[patterns.classes[p, t], model.place[p, t]] = patterns.beta[p, t]


@kernel
def weights_of(patterns, n_patterns, store, W, tau):
    """Add Σ_p β_p x_p to W, in its precision."""
    for p in range(n_patterns):
        q = patterns.held[p]
        row_update(store, slot_row(store, p), W, tau, patterns.classes[p], patterns.beta[p], q)


@kernel
def refresh_from(model, patterns, store, start, tally):
    """Refresh slots from `start` on; returns where it stopped: P, or a slot without its row."""
    for p in range(start, tally.counts[PATTERNS]):
        if not refresh(model, patterns, store, p, tally):
            return p
    return tally.counts[PATTERNS]


@kernel
def loss_of(g, own):
    """ξ of an example of class `own`.

    Steps take gradients that nearly agree for equal. A certificate must not: C may be 1e12 times
    the objective, and then so small a difference of the wrong sign would be a gap below zero.
    """
    return g[own] - g.min()


@kernel
def examine_from(model, patterns, store, start, shares, tally):
    """shares[p] = C ξ, Σ β g and -Σ β Δ of patterns from `start` on.

    Returns where it stopped: P, or a slot without its kernel row.
    """
    for p in range(start, tally.counts[PATTERNS]):
        r = fetch(model, p, tally.counts)
        if r < 0:
            return p
        look_old(model, patterns, store, p, r, 0, tally)
        g = tally.g
        shares[p, 0] = patterns.cost[p] * loss_of(g, patterns.label[p])
        shares[p, 1] = 0.0
        for t in range(patterns.held[p]):
            shares[p, 1] += patterns.beta[p, t] * g[patterns.classes[p, t]]
        classes, beta = patterns.classes[p], patterns.beta[p]
        more = dual_excess(model.margins, patterns.label[p], classes, beta, patterns.held[p])
        shares[p, 2] = beta[0] + more
    return tally.counts[PATTERNS]


@kernel
def losses(model, block, tally):
    """C ξ of the examples of a block that are no patterns, into block.seen."""
    for t in range(block.order.size):
        i = block.order[t]
        if block.slot_of[i] < 0:
            look_new(model, block, t, 0, tally)
            block.seen[i] = block.C[i] * loss_of(tally.g, block.y[i])
            remember(model, i, tally.counts)


@dataclass(frozen=True)
class PatternPart:
    """What the support patterns tell of primal and dual.

    Attributes
    ----------
    half_square : float
        ½‖W‖².
    linear : float
        -Σ_im Δ(y_i, m) β_im, the linear part of the dual.
    slack : float
        Σ C_i ξ_i over the patterns.
    """

    half_square: float
    linear: float
    slack: float

    def bounds(self, losses: float, common: float) -> tuple[float, float]:
        """Primal and dual, given the losses of other examples and what both have in common."""
        primal = self.half_square + self.slack + losses + common
        return float(primal), float(self.linear - self.half_square + common)


def settled_cost(run, examples) -> float:
    """What rows with K(x, x) = 0 cost: no model changes their loss, so primal and dual have it in
    common [CS-Z]."""
    empty = examples.square == 0.0
    losses = CrammerSinger(run.k, 1.0, run.margins).losses_at_zero(examples.y[empty])
    return float((examples.C[empty] * losses).sum())


def pattern_part(run, examples) -> PatternPart:
    """Gradients (or W) made anew from the coefficients, and what follows from them, in float64."""
    P = run.n_patterns
    balance(run.patterns, P)
    model, shares = run.model, np.zeros((P, 3))
    if isinstance(model, LinearModel):
        model = exact_weights(run)
        run.model.W[:] = model.W
    else:
        copy_weights(model, run.patterns, P)
        run.for_all_patterns(refresh_from, examples)
    run.for_all_patterns(examine_from, examples, shares, model=model)
    slack, product, linear = shares.sum(axis=0)
    run.tally.sums[DUAL] = linear - 0.5 * (linear - product)
    return PatternPart(0.5 * (linear - product), linear, slack)


def exact_weights(run) -> LinearModel:
    """W of the coefficients in float64."""
    W = np.zeros(run.model.W.shape)
    weights_of(run.patterns, run.n_patterns, run.store, W, 0.0)
    return LinearModel(W, apart(run.k, W.dtype), run.model.margins)


def other_losses(run, examples, block_rows: int) -> float:
    """Σ C_i ξ_i over the examples that are no patterns, computed now."""
    others = np.flatnonzero((examples.slot_of < 0) & (examples.square != 0.0))
    model = exact_weights(run) if isinstance(run.model, LinearModel) else run.model
    for start in range(0, others.size, block_rows):
        block = run.block(examples, others[start : start + block_rows])
        losses(model, block, run.tally)
    return seen_losses(examples)


def seen_losses(examples) -> float:
    """The same sum as last seen by `process`: an estimate, since the model has moved on."""
    others = (examples.slot_of < 0) & (examples.square != 0.0)
    return float(examples.seen[others].sum())
