"""Costs of mistakes: what users write down, and what fits make of it."""

import re

import dask
import dask.array as da
import numpy as np
import pytest
import reference
import scipy.sparse as sp

from dask_mcsvm import LaRankSVC, LinearMCSVC
from dask_mcsvm.errors import CheckpointError
from dask_mcsvm.estimators._margins import read_margins
from dask_mcsvm.formulations.margins import EQUAL, margin_rows
from dask_mcsvm.report import Tally
from dask_mcsvm.storage import write_dataset

CLASSES = np.array(["ant", "bee", "cat"])
TREE = {"ant": "insect", "bee": "insect", "insect": "animal", "cat": "animal"}
TABLE = 1.0 - np.eye(3)


def rows_of(given, classes=CLASSES):
    return margin_rows(read_margins(given, classes), np.arange(classes.size), classes.size)


def changed(place, value):
    table = TABLE.copy()
    table[place] = value
    return table


class TestReading:
    def test_none_is_one_for_all(self):
        assert read_margins(None, CLASSES) == read_margins({}, CLASSES[:0]) == EQUAL

    def test_a_table_in_any_form(self):
        np.testing.assert_array_equal(rows_of(changed((2, 0), 4).tolist()), changed((2, 0), 4))

    def test_pairs_are_true_then_predicted(self):
        given = {("cat", "ant"): 4, ("bee", "cat"): np.float32(0.5), ("ant", "ant"): 0}
        np.testing.assert_array_equal(rows_of(given), [[0, 1, 1], [1, 0, 0.5], [4, 1, 0]])

    def test_a_tree_by_the_longest_path(self):
        np.testing.assert_allclose(rows_of(TREE) * 3, [[0, 2, 3], [2, 0, 3], [3, 3, 0]])

    def test_classes_may_be_numbers_and_inner_nodes(self):
        tree = {3: 1, 1: "root", 2: "root"}
        np.testing.assert_allclose(
            rows_of(tree, np.array([1, 2, 3])) * 3, [[0, 2, 1], [2, 0, 3], [1, 3, 0]]
        )

    def test_a_root_may_have_the_parent_none(self):
        np.testing.assert_array_equal(rows_of(TREE | {"animal": None}), rows_of(TREE))


MATRIX = (
    "and there are 3 classes; use a matrix of shape (3, 3) with rows and columns in the order of "
    "numpy.unique(y), a dict of pairs, or a dict that is a tree."
)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (np.ones((2, 3)), f"margins has shape (2, 3), {MATRIX}"),
        (2.0, f"margins has shape (), {MATRIX}"),
        ("tree", f"margins is str, {MATRIX}"),
        (
            changed((0, 2), -1),
            "margins[0, 2] is -1, for 'ant' taken for 'cat'; it must be a finite number from 0 to "
            "1e+06.",
        ),
        (
            changed((1, 0), np.nan),
            "margins[1, 0] is nan, for 'bee' taken for 'ant'; it must be a finite number from 0 to "
            "1e+06.",
        ),
        (
            np.ones((3, 3)),
            "margins[0, 0] is 1, and a right label ('ant') costs nothing; type "
            "numpy.fill_diagonal(margins, 0).",
        ),
        (
            {("ant", "bee"): 2.0, "cat": "animal"},
            "margins has the key 'cat' among pairs; each must be (true, predicted), such as "
            "('ant', 'bee').",
        ),
        (
            {("ant", "dog"): 2.0},
            "margins has the pair ('ant', 'dog'), and y has no class 'dog'; it has 'ant', 'bee', "
            "'cat'.",
        ),
        (
            {("ant", "bee"): float("inf")},
            "margins[('ant', 'bee')] is inf; it must be a finite number from 0 to 1e+06.",
        ),
        (
            {("ant", "bee"): "far"},
            "margins[('ant', 'bee')] is 'far'; it must be a finite number from 0 to 1e+06.",
        ),
        (
            {("ant", "ant"): 2.0},
            "margins[('ant', 'ant')] is 2.0, and a right label costs nothing; leave it out.",
        ),
        (
            {"ant": "insect", "cat": "insect"},
            "margins is a tree without the class 'bee'; give it a parent, such as {'bee': 'root'}.",
        ),
        (
            TREE | {"dog": "animal"},
            "margins is a tree with the leaf 'dog', which is no class of y; leave it out, or pass "
            "classes=[...] to fit with all of them.",
        ),
        (
            TREE | {"animal": "insect"},
            "margins is a tree where 'insect' is among its own ancestors; a tree has no cycle.",
        ),
        (
            {"ant": "insect", "bee": "insect", "cat": "mammal"},
            "margins is a tree with 2 roots, 'insect', 'mammal'; give them one parent.",
        ),
        (
            {"ant": ["insect"], "bee": "insect", "cat": "insect"},
            "margins has the parent ['insect']; a tree is a dict of each name to that of its one "
            "parent.",
        ),
    ],
)
def test_bad_margins_are_refused(given, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        read_margins(given, CLASSES)
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        read_margins(given, CLASSES.astype(object))  # as pandas and lists have them


# -- fits ------------------------------------------------------------------------------------------

K = 4
NAMES = np.array(["ant", "bee", "cat", "dog"])
ANIMALS = TREE | {"cat": "mammal", "dog": "mammal", "mammal": "animal"}
COSTS = np.array([[0, 0.5, 3, 1], [2, 0, 1, 1], [0, 1.5, 0, 0.25], [1, 1, 4, 0]])
ALL = {"table": COSTS, "tree": ANIMALS, "pairs": {("ant", "cat"): 3.0, ("cat", "ant"): 0.0}}
LONG = {"cs": "crammer_singer", "ww": "weston_watkins"}


def rows(dtype="float64", csr=False):
    """Overlapping clusters with rows without features, labels as text, and unequal weights."""
    rng = np.random.default_rng(0)
    y = np.arange(60) % K
    X = (rng.normal(size=(K, 6))[y] + rng.normal(size=(60, 6))).astype(dtype)
    X[[5, 18]] = 0
    return sp.csr_array(X) if csr else X, NAMES[y], rng.uniform(0.5, 2.0, size=60)


def optimum(name, given, C):
    """What the interior-point method says about the same problem."""
    X, y, weights = rows()
    codes = np.searchsorted(NAMES, y)
    constant = np.hstack([X, np.ones((60, 1))])
    costs = margin_rows(read_margins(given, NAMES), np.arange(K), K)
    return reference.solve(LONG[name], constant, codes, C * weights, K, costs)[1]


def model(name, kind, **others):
    settings = {"C": 0.3, "tol": 1e-6, "max_epochs": 5000, "random_state": 0} | others
    return LinearMCSVC(formulation=name, margins=ALL[kind], **settings)


def assert_optimal(fitted, objective, tol):
    assert fitted.gap_ <= tol
    slack = 1e-9 * objective
    assert fitted.dual_ <= objective + slack
    assert objective - slack <= fitted.primal_ <= objective * (1 + 2 * tol)


# Dense and CSR rows, both float types and all kinds of margins, in few pairs: each kind is one more
# sweep to compile for each loss. `tests/solvers/test_margins.py` looks at what differs in a kernel.
@pytest.mark.parametrize(
    ("name", "solver", "kind", "csr", "dtype"),
    [
        ("cs", "sdm", "table", False, "float64"),
        ("ww", "sdm", "tree", True, "float64"),
        ("cs", "splitting", "pairs", False, "float64"),
        ("ww", "splitting", "tree", False, "float32"),
    ],
)
def test_fits_in_memory_reach_the_reference(name, solver, kind, csr, dtype):
    X, y, weights = rows(dtype, csr)
    tol = 1e-6 if dtype == "float64" else 1e-4
    fitted = model(name, kind, solver=solver, tol=tol).fit(X, y, sample_weight=weights)
    objective = optimum(name, ALL[kind], 0.3)
    assert_optimal(fitted, objective, tol if dtype == "float64" else 2 * tol)
    assert fitted.certify(X, y, weights).primal == pytest.approx(fitted.primal_, rel=1e-6)


@pytest.mark.parametrize(
    ("name", "solver", "kind", "options"),
    [
        ("cs", "shards", "table", {"lanes": 2}),
        ("ww", "rounds", "tree", {"groups": 2}),
        ("cs", "exchange", "tree", {"groups": 2}),
        ("cs", "exchange", "table", {"groups": 3, "slices": 2}),
        ("cs", "splitting", "tree", {"lanes": 2}),
    ],
)
def test_fits_on_dask_reach_the_reference(name, solver, kind, options):
    X, y, weights = rows(csr=name == "ww")
    lazy = da.from_array(X, chunks=(20, -1), asarray=False), y, da.from_array(weights, chunks=20)
    fitted = model(name, kind, solver=solver, solver_options=options, tol=1e-5)
    with dask.config.set(scheduler="sync"):
        fitted.fit(lazy[0], lazy[1], sample_weight=lazy[2])
        again = fitted.certify(lazy[0], lazy[1], lazy[2])
    assert_optimal(fitted, optimum(name, ALL[kind], 0.3), 1e-5)
    assert again.primal == pytest.approx(fitted.primal_, rel=1e-9)
    assert fitted.certify(X, y, weights).primal == pytest.approx(fitted.primal_, rel=1e-9)


def test_fits_out_of_core_reach_the_reference(tmp_path):
    X, y, weights = rows(csr=True)
    path = str(tmp_path / "rows.zarr")
    write_dataset(path, X, y, sample_weight=weights, block_rows=20)
    fitted = model("ww", "tree", memory_limit="2GB", tol=1e-5).fit(path)
    assert_optimal(fitted, optimum("ww", ANIMALS, 0.3), 1e-5)


def test_a_tree_is_the_table_of_its_paths():
    X, y, _ = rows()
    table = margin_rows(read_margins(ANIMALS, NAMES), np.arange(K), K)
    settings = {"solver": "splitting", "tol": 1e-3}
    one, other = (model("cs", kind, **settings) for kind in ("tree", "table"))
    other.margins = table
    assert one.fit(X, y).coef_.tobytes() == other.fit(X, y).coef_.tobytes()


def test_margins_of_one_are_none():
    X, y, _ = rows()
    plain = LinearMCSVC(C=0.3, tol=1e-6, random_state=0).fit(X, y)
    ones = model("cs", "table")
    ones.margins = 1.0 - np.eye(K)
    ones.fit(X, y)
    assert ones.primal_ == pytest.approx(plain.primal_, rel=2e-6)
    np.testing.assert_array_equal(ones.predict(X), plain.predict(X))


def test_costly_mistakes_are_made_less_often():
    X, y, _ = rows()
    plain = LinearMCSVC(C=0.3, random_state=0).fit(X, y)
    dear = LinearMCSVC(C=0.3, solver="splitting", margins={("bee", "ant"): 8.0}).fit(X, y)
    taken = [np.count_nonzero((m.predict(X) == "ant") & (y == "bee")) for m in (plain, dear)]
    assert taken[1] < taken[0]


def test_rows_of_one_class_may_cost_nothing():
    X, y, _ = rows()
    free = model("ww", "table", solver="splitting")
    free.margins = np.zeros((K, K))
    free.fit(X, y)
    assert (free.primal_, free.dual_, free.gap_) == (0.0, 0.0, 0.0)


def test_the_next_fit_starts_from_the_last():
    X, y, _ = rows()
    fitted = model("cs", "table", warm_start=True).fit(X, y)
    first = fitted.n_iter_
    assert fitted.fit(X, y).n_iter_ < first
    fitted.margins = 1.5 * COSTS
    assert fitted.fit(X, y).gap_ <= 1e-6


@pytest.mark.parametrize("kind", ALL)
def test_a_saved_model_keeps_its_margins(kind, tmp_path):
    X, y, weights = rows()
    path = str(tmp_path / "model.zarr")
    fitted = model("cs", kind, solver="splitting", tol=1e-3).fit(X, y, weights)
    fitted.save(path)
    again = LinearMCSVC.load(path)
    np.testing.assert_equal(again.margins, ALL[kind])
    assert again.certify(X, y, weights) == fitted.certify(X, y, weights)


def test_a_checkpoint_is_of_its_margins(tmp_path):
    X, y, _ = rows()
    lazy, path = da.from_array(X, chunks=(20, -1)), str(tmp_path / "checkpoint")
    settings = {"solver": "splitting", "checkpoint": path, "tol": 1e-3}
    with dask.config.set(scheduler="sync"):
        whole = model("cs", "table", **settings).fit(lazy, y)
        resumed = model("cs", "table", resume=True, **settings).fit(lazy, y)
        assert resumed.coef_.tobytes() == whole.coef_.tobytes()
        message = (
            "the checkpoint was written with other margins; pass the same parameters, or another "
            "checkpoint path."
        )
        with pytest.raises(CheckpointError, match=f"^{re.escape(message)}$"):
            model("cs", "tree", resume=True, **settings).fit(lazy, y)


@pytest.mark.parametrize("name", ["lee_lin_wahba", "one_vs_rest"])
def test_other_formulations_refuse_margins(name):
    X, y, _ = rows()
    message = (
        f"margins are between two classes, which formulation={name!r} does not compare; use "
        "formulation='crammer_singer' or 'weston_watkins', or leave margins out."
    )
    for way in (LinearMCSVC.fit, LinearMCSVC.explain):
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            way(LinearMCSVC(formulation=name, margins=ANIMALS), X, y)


def test_explain_reads_the_margins():
    X, y, _ = rows()
    with pytest.raises(ValueError, match=r"^margins has shape \(3, 3\), and there are 4 classes;"):
        LinearMCSVC(margins=TABLE).explain(X, y)


def test_a_report_shows_the_expected_cost(tmp_path):
    X, y, _ = rows()
    fitted = model("cs", "table", solver="splitting", tol=1e-3).fit(X, y)
    codes, guesses = (np.searchsorted(NAMES, labels) for labels in (y, fitted.predict(X)))
    scores = Tally(fitted.classes_)
    scores.add(y, fitted.predict(X))
    assert scores.scores().expected_cost(fitted) == pytest.approx(COSTS[codes, guesses].mean())
    fitted.margins = None  # of a next fit
    assert scores.scores().expected_cost(fitted) is not None
    plain = LinearMCSVC(random_state=0).fit(X, y)
    assert scores.scores().expected_cost(plain) is None


# -- LaRank ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kernel", "kind"), [("linear", "table"), ("callable", "tree")])
def test_larank_reaches_the_reference(kernel, kind, tmp_path):
    X, y, _ = rows()
    X = np.hstack([X, np.ones((60, 1))])
    X[7] = 0.0
    codes = np.searchsorted(NAMES, y)
    costs = margin_rows(read_margins(ALL[kind], NAMES), np.arange(K), K)
    objective = reference.solve("crammer_singer", X, codes, np.full(60, 0.3), K, costs)[1]
    how = "linear" if kernel == "linear" else products
    fitted = LaRankSVC(
        kernel=how, C=0.3, margins=ALL[kind], stop="gap", tol=1e-6, dtype="float64", random_state=0
    ).fit(X, y)
    assert_optimal(fitted, objective, 1e-6)
    if kernel == "linear":
        fitted.save(tmp_path / "model.zarr")
        again = LaRankSVC.load(tmp_path / "model.zarr")
        np.testing.assert_equal(again.margins, ALL[kind])
        more = [m.partial_fit(X[:30], y[:30]).dual_ for m in (fitted, again)]
        assert more[0] == more[1]


def products(A, B):
    return A @ B.T
