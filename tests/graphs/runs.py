"""A small problem and the class-group solvers, run epoch by epoch without a loop around them."""

import re
from dataclasses import dataclass, field
from typing import Any

import dask
import numpy as np
import scipy.sparse as sp
from dask.local import get_sync

from dask_mcsvm.data.rows import row_blocks
from dask_mcsvm.formulations import FORMULATIONS
from dask_mcsvm.graphs.exchange import Exchange
from dask_mcsvm.graphs.independent_groups import Averaging, Classes
from dask_mcsvm.graphs.rounds import Rounds
from dask_mcsvm.solvers.kernels.dual_variables import alpha_to_dense

GROUPS = ((0, 3), (1, 5), (2, 4))
#: Where classes of a group have to follow each other.
IN_ORDER = ((0, 1), (2, 3), (4, 5))
NAMES = {
    Rounds: "weston_watkins",
    Averaging: "lee_lin_wahba",
    Classes: "one_vs_rest",
    Exchange: "crammer_singer",
}


def round_of(key):
    """The round or step that the name of a task ends with."""
    return int(re.fullmatch(r".*-e\d+-r(\d+)", key[0])[1])


def kinds_of(graph):
    """Names of the tasks, but for the round or step."""
    return {re.sub(r"(-e\d+)-r\d+$", r"\1", key[0]) for key in graph}


@dataclass
class Toy:
    """Rows of overlapping clusters, in chunks; sorted by class, as sets on disk often are."""

    n: int = 60
    d: int = 20
    k: int = 6
    chunks: tuple[int, ...] = (25, 0, 35)
    csr: bool = False
    dtype: str = "float64"
    tau: float = 1.0
    zero_rows: int = 0
    C: Any = field(init=False)
    X: Any = field(init=False)
    y: Any = field(init=False)

    def __post_init__(self):
        rng = np.random.default_rng(0)
        self.y = np.sort(rng.integers(self.k, size=self.n))
        X = rng.normal(size=(self.k, self.d))[self.y] + rng.normal(size=(self.n, self.d))
        self.X = (X * (rng.random(X.shape) < 0.5)).astype(self.dtype)
        self.X[: self.zero_rows] = 0
        self.C = 0.25 * rng.choice([0.5, 1.0, 2.0], self.n)

    @property
    def Z(self):
        """Rows as the formulations see them."""
        return np.hstack([self.X.astype(float), np.full((self.n, 1), self.tau)])

    def rows(self, run="t"):
        ends = np.cumsum(self.chunks)[:-1]
        X = [sp.csr_array(x) if self.csr else x for x in np.split(self.X, ends)]
        pieces = X, np.split(self.y, ends), np.split(self.C, ends)
        return row_blocks(
            *([dask.delayed(piece) for piece in part] for part in pieces), sizes=self.chunks,
            n_features=self.d, n_classes=self.k, dtype=self.dtype, tau=self.tau, run=run,
        )  # fmt: skip

    def solver(self, kind, *, groups=None, run="t", **options):
        groups = groups or (IN_ORDER if kind is Exchange else GROUPS)
        return kind(self.rows(run), groups, (3,), run, **options)


class Run:
    """Values of a solver's state, moved on stage by stage."""

    def __init__(self, toy, kind, *, get=get_sync, **options):
        self.toy, self.get = toy, get
        self.solver = toy.solver(kind, **options)
        self.name = NAMES[kind]
        self.data = self.computed(self.solver.data, self.solver.held)
        self.values, self.state, self.report = {}, {}, None
        self.advance(self.solver.start())

    def computed(self, graph, keys):
        return dict(zip(keys, self.get(graph, list(keys)), strict=True))

    def advance(self, stage):
        keys = [*stage.state.values(), stage.report]
        done = self.computed(self.data | self.values | stage.graph, keys)
        self.report = done.pop(stage.report)
        self.state, self.values = stage.state, done
        return self.report

    def epoch(self, number):
        return self.advance(self.solver.epoch(self.state, number))

    def certify(self, number):
        return self.advance(self.solver.certify(self.state, number))

    def block(self, name):
        return self.values[self.state[name]]

    @property
    def svm(self):
        return FORMULATIONS[self.name](self.toy.k, self.toy.C)

    @property
    def alpha(self):
        """(n, k) in the order of the rows."""
        alpha = np.full((self.toy.n, self.toy.k), np.nan)
        groups = self.solver.groups
        for name in self.state:
            kind, *numbers = name.split("-")
            first, *others = map(int, numbers or ["0"])
            block = self.block(name)
            if isinstance(self.solver, Exchange):
                if kind == "duals":
                    ids = self.data[self.solver.held[first]].ids
                    alpha[ids] = alpha_to_dense(block.alpha, ids.size, self.toy.k)
            elif not isinstance(self.solver, Rounds):
                if kind == "duals":
                    ids = self.data[self.solver.held[others[0]]].ids
                    alpha[np.ix_(ids, groups[first])] = block.alpha
            elif kind == "weights":
                for step, lists in enumerate(block.own):
                    self.put(alpha, first, first, step, lists)
            elif first != others[0]:
                self.put(alpha, first, others[0], others[1], block.ab)
                self.put(alpha, others[0], first, others[1], block.ba)
        return alpha

    def put(self, alpha, own, other, step, lists):
        """The variables of a block of rows for the classes of a group."""
        blocks, classes = self.solver.blocks[own], self.solver.groups[other]
        if step < len(blocks):
            ids = self.data[blocks[step]].ids
            dense = np.zeros((ids.size, len(classes)))
            dense[lists.rows(), lists.classes] = lists.values
            alpha[np.ix_(ids, classes)] = dense

    @property
    def W(self):
        W = np.empty((self.toy.d + 1, self.toy.k))
        for classes, name in self.solver.weights(self.state):
            W[:, classes] = self.block(name).W
        return W

    @property
    def dual(self):
        return self.svm.dual(self.alpha, self.toy.Z, self.toy.y)

    def bytes(self):
        return {
            (name, part): array.tobytes()
            for name in self.state
            for part, array in self.block(name).arrays().items()
        }
