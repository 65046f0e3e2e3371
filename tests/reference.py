"""The four primals as quadratic programs, solved by an interior-point method (Clarabel).

Shares no code with the package: it is what the package is compared with. Every hinge has a
slack variable, every example its constraints written out one by one.
"""

import clarabel
import numpy as np
import scipy.sparse as sp

TOLERANCE = 1e-12


def solve(name, X, y, C, n_classes, margins=None):
    """The optimal W and objective of a small problem.

    Parameters
    ----------
    name : {"crammer_singer", "weston_watkins", "lee_lin_wahba", "one_vs_rest"}
    X : ndarray or CSR of shape (n, d)
    y : ndarray of shape (n,)
        Labels in 0..n_classes-1.
    C : ndarray of shape (n,)
        Cost per example.
    n_classes : int
    margins : ndarray of shape (n_classes, n_classes), optional
        What the hinge between a class and a rival begins with, in place of 1.

    Returns
    -------
    W : ndarray of shape (d, n_classes)
    objective : float
    """
    X = np.asarray(X.toarray() if sp.issparse(X) else X, dtype=np.float64)
    n_features = X.shape[1]
    n_weights = n_features * n_classes
    hinges = [hinge_rows(name, label, n_classes) for label in y]

    # A hinge "offset - t.(W^T x) <= slack" is a row of -t x^T over the weights, class by class.
    weight_part = sp.vstack([-sp.kron(h, x) for h, x in zip(hinges, X, strict=True)])
    slack_of_row, slack_cost = slacks(name, hinges, C)
    n_hinges, n_slacks = len(slack_of_row), len(slack_cost)
    slack_part = sp.coo_array(
        (-np.ones(n_hinges), (np.arange(n_hinges), slack_of_row)), shape=(n_hinges, n_slacks)
    )
    offsets = np.ones(n_hinges)
    if margins is not None:
        offsets = np.concatenate([np.delete(margins[label], label) for label in y])
    blocks = [
        [weight_part, slack_part],  # weights - slack <= -offset
        [sp.coo_array((n_slacks, n_weights)), -sp.eye_array(n_slacks)],  # -slack <= 0
    ]
    bounds = [-offsets, np.zeros(n_slacks)]
    cones = [clarabel.NonnegativeConeT(n_hinges + n_slacks)]
    if name == "lee_lin_wahba":  # the columns of W sum to zero
        total = sp.kron(np.ones((1, n_classes)), sp.eye_array(n_features))
        blocks.insert(0, [total, sp.coo_array((n_features, n_slacks))])
        bounds.insert(0, np.zeros(n_features))
        cones.insert(0, clarabel.ZeroConeT(n_features))

    quadratic = sp.block_diag([sp.eye_array(n_weights), sp.coo_array((n_slacks, n_slacks))])
    linear = np.concatenate([np.zeros(n_weights), slack_cost])
    solution = interior_point(quadratic, linear, sp.block_array(blocks), bounds, cones)
    W = np.array(solution.x[:n_weights]).reshape(n_classes, n_features).T
    return W, solution.obj_val


def hinge_rows(name, label, n_classes):
    """One row t per hinge of an example: the hinge is max(0, 1 - t.scores)."""
    eye = np.eye(n_classes)
    rivals = np.delete(eye, label, axis=0)
    if name in ("crammer_singer", "weston_watkins"):
        return eye[label] - rivals
    if name == "lee_lin_wahba":
        return -rivals
    if name == "one_vs_rest":
        return np.vstack([eye[label], -rivals])
    raise ValueError(name)


def slacks(name, hinges, C):
    """Index of each hinge's slack, and the cost of each slack.

    Crammer-Singer has one slack for all hinges of an example, the others one for each.
    """
    example_of_row = np.repeat(np.arange(len(hinges)), [len(h) for h in hinges])
    if name == "crammer_singer":
        return example_of_row, np.asarray(C)
    return np.arange(len(example_of_row)), np.asarray(C)[example_of_row]


def interior_point(quadratic, linear, constraints, bounds, cones):
    """min 1/2 z.Qz + q.z with constraints z + s = bounds, s in the cones."""
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = TOLERANCE
    solver = clarabel.DefaultSolver(
        sp.csc_matrix(quadratic),
        linear,
        sp.csc_matrix(constraints),
        np.concatenate(bounds),
        cones,
        settings,
    )
    solution = solver.solve()
    # "AlmostSolved" would mean that the tolerance was missed: no reference then.
    assert str(solution.status) == "Solved", solution.status
    return solution
