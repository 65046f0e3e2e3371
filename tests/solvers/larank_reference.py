"""LaRank (Bordes et al. 2007, Algorithms 1 to 5) in plain NumPy: the specification of the solver.

The whole kernel matrix and a dense beta (n, k); gradients are computed afresh whenever they are
looked at. Slow and obviously right. It shares no code with the package, only two conventions that
decide which random path is taken: the generator (splitmix64), and what an operation costs.
"""

import numpy as np

NEW, OLD, OPTIMIZE = range(3)
MU = 0.05
ETA = 0.05
KAPPA = 1e-10
TIE = 1e-12  # a step leaves two gradients equal: rounding must not choose between them
REPEATS = 10  # OPTIMIZE steps that count as one operation
UNIT = 1e-9  # cost is in billions of numbers touched
VALUE_COST = 64  # ... and so much for a kernel value
MASK = 2**64 - 1


def first_largest(values):
    """The first place whose value is the largest or as good as."""
    return int(np.flatnonzero(values >= np.max(values) - TIE)[0])


class Generator:
    """splitmix64, in Python's integers."""

    def __init__(self, seed):
        self.state = seed & MASK

    def uniform(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return ((z ^ (z >> 31)) >> 11) * 2.0**-53


class ReferenceLaRank:
    """State of a run on n examples.

    Parameters
    ----------
    K : ndarray of shape (n, n)
        The kernel matrix.
    y : ndarray of shape (n,)
        Labels in 0..k-1.
    C : ndarray of shape (n,)
    k : int
    nonzeros : int or ndarray of shape (n,), or None
        Of each row: count costs as the solver does that keeps W. None is a kernel.
    """

    def __init__(self, K, y, C, k, *, nonzeros=None, schedule="cost", tau=1e-4, seed=0,
                 max_support=None):  # fmt: skip
        self.K, self.y, self.C, self.k = K, y, C, k
        self.linear, self.schedule, self.tau = nonzeros is not None, schedule, tau
        self.width = np.broadcast_to(nonzeros if self.linear else VALUE_COST, y.shape)
        self.max_support = max_support
        self.generator = Generator(seed)
        self.beta = np.zeros((y.size, k))
        self.patterns = []  # the order decides what "randomly pick" means
        self.ratio = np.ones(3)
        self.turn = 0
        self.dual_lost = 0.0
        self.arg_max = 0
        self.performed = [0, 0, 0]

    # -- what is maximized -------------------------------------------------------------------------

    def gradients(self, i):
        """g_i(m) of all classes, (k,). [LR-G]"""
        return (np.arange(self.k) == self.y[i]) - self.K[i] @ self.beta

    def dual(self):
        own = self.beta[np.arange(self.y.size), self.y]
        return own.sum() - 0.5 * np.sum(self.beta * (self.K @ self.beta))

    def primal(self):
        scores = self.K @ self.beta
        margins = scores + (np.arange(self.k) != self.y[:, None])
        own = scores[np.arange(self.y.size), self.y]
        return 0.5 * np.sum(self.beta * scores) + self.C @ (margins.max(axis=1) - own)

    def n_vectors(self, *classes):
        """Support vectors of these classes, of all if none is named."""
        columns = list(classes) or slice(None)
        return np.count_nonzero(self.beta[:, columns])

    # -- Algorithm 1 -------------------------------------------------------------------------------

    def smo_step(self, i, plus, minus, g):
        """Returns the rise of the dual and the cost."""
        difference = g[plus] - g[minus]
        if difference <= self.tau:
            return 0.0, 0.0
        limit = self.C[i] * (plus == self.y[i]) - self.beta[i, plus]
        step = min(difference / (2 * self.K[i, i]), limit)  # [LR-S]
        pair = [plus, minus]
        touched = 2 * self.width[i]
        if not self.linear:  # gradients of both classes, those of this pattern among them
            touched = self.n_vectors(*pair) + np.count_nonzero(self.beta[i, pair] == 0)
        self.beta[i, minus] -= step
        self.beta[i, plus] += step
        if step == limit:  # to the last bit, so that "returns to zero" can be seen
            self.beta[i, plus] = self.C[i] if plus == self.y[i] else 0.0
        if i not in self.patterns:
            self.patterns.append(i)
        if self.beta[i, self.y[i]] <= 0 or not np.any(np.delete(self.beta[i], self.y[i])):
            self.drop(i)
        return step * difference - step**2 * self.K[i, i], touched  # [LR-D]

    def drop(self, i):
        self.beta[i] = 0.0
        place = self.patterns.index(i)
        self.patterns[place] = self.patterns[-1]
        self.patterns.pop()

    # -- Algorithms 2, 3 and 4 ---------------------------------------------------------------------

    def process_new(self, i):
        self.arg_max += 1
        g = self.gradients(i)
        cost = self.width[i] * (self.k if self.linear else len(self.patterns))
        cost += self.k if self.linear else self.n_vectors()
        gain, touched = self.smo_step(i, self.y[i], first_largest(-g), g)
        return gain, cost + touched

    def process_old(self):
        self.arg_max += 1
        i = self.pick()
        g = self.gradients(i)
        cost = self.width[i] * self.k + self.k if self.linear else self.n_vectors()
        gain, touched = self.smo_step(i, self.feasible_best(i, g), first_largest(-g), g)
        return gain, cost + touched

    def optimize(self):
        i = self.pick()
        g = self.gradients(i)
        held = np.flatnonzero(self.beta[i])
        minus = int(held[first_largest(-g[held])])
        cost = held.size * (self.width[i] if self.linear else 1)
        gain, touched = self.smo_step(i, self.feasible_best(i, g), minus, g)
        return gain, cost + touched

    def pick(self):
        return self.patterns[int(self.generator.uniform() * len(self.patterns))]

    def feasible_best(self, i, g):
        """arg max of g_i over the classes whose beta can grow."""
        upper = self.C[i] * (np.arange(self.k) == self.y[i])
        can_grow = self.beta[i] < upper - KAPPA * self.C[i]
        return first_largest(np.where(can_grow, g, -np.inf))

    # -- Algorithm 5 -------------------------------------------------------------------------------

    def run(self, order):
        """One pass over `order`."""
        position = 0
        while position < len(order):
            operation = self.choose()
            if operation == NEW:
                i = order[position]
                gain, cost = (0.0, 1.0) if self.is_known(i) else self.process_new(i)
                position += 1
            elif operation == OLD:
                gain, cost = self.process_old()
            else:
                gain, cost = 0.0, 0.0
                for _ in range(REPEATS):
                    if self.patterns:
                        more, work = self.optimize()
                        gain, cost = gain + more, cost + work
            self.performed[operation] += 1
            self.ratio[operation] += MU * (gain / (cost * UNIT) - self.ratio[operation])
            while self.max_support is not None and len(self.patterns) > self.max_support:
                self.remove_cheapest()
        return self

    def is_known(self, i):
        """Nothing to process: a support pattern, or a row that no coefficient changes."""
        return i in self.patterns or self.K[i, i] <= 0

    def choose(self):
        if not self.patterns:
            return NEW
        if self.schedule == "fixed":
            self.turn = (self.turn + 1) % 3
            return [OPTIMIZE, NEW, OLD][self.turn]
        odds = ETA + (1 - 3 * ETA) * self.ratio / self.ratio.sum()
        u = self.generator.uniform()
        return NEW if u < odds[NEW] else OLD if u < odds[NEW] + odds[OLD] else OPTIMIZE

    def remove_cheapest(self):
        """Drop the pattern whose removal lowers the dual least."""
        lost = [self.loss_without(i) for i in self.patterns]
        cheapest = first_largest(-np.array(lost))
        self.dual_lost += lost[cheapest]
        self.drop(self.patterns[cheapest])

    def loss_without(self, i):
        b = self.beta[i]
        return b @ self.gradients(i) + 0.5 * self.K[i, i] * (b @ b)
