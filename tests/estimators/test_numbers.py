"""Numbers beyond the arithmetic and damaged sparse rows, wherever an estimator takes them in."""

import re
import warnings

import dask
import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_mcsvm import LaRankSVC, LinearMCSVC
from dask_mcsvm.formulations import FORMULATIONS
from dask_mcsvm.storage import write_dataset
from dask_mcsvm.training.loop import Loop, Run
from dask_mcsvm.training.runs.larank import relative

Y = np.arange(30) % 3
X = np.eye(3)[Y] + 0.3 * np.random.default_rng(0).normal(size=(30, 3))
TOO_COSTLY = (
    "C times the weight of a row is 1.0e+39, and float32 takes 7.9e-31 to 1.3e+30; change C or the "
    'weights (0 leaves a row out), or type dtype="float64".'
)
REFUSALS = "|".join(
    (
        "C times the weight of a row is ",
        "C times the largest squared norm of a row is ",
        "intercept_scaling is ",
        "X has a value of magnitude ",
        "kernel='(linear|poly)' overflows ",
        r"C=\S+ times the weights overflows float64; ",
    )
)


def says(sentence):
    return pytest.raises(ValueError, match="^" + re.escape(sentence) + "$")


def never(record):
    raise AssertionError(f"an epoch was run: {record}")


@pytest.fixture
def one_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


# -- refused before a kernel runs ------------------------------------------------------------------


def test_costs_beyond_float32_are_refused_in_memory(formulation):
    model = LinearMCSVC(formulation=formulation, C=1e39, dtype="float32", callbacks=[never])
    with says(TOO_COSTLY):
        model.fit(X, Y)
    with says(TOO_COSTLY.replace("1.0e+39", "1.5e+56")):
        model.set_params(C=1.5e36).fit(X, Y, sample_weight=10.0 ** np.linspace(-20, 20, 30))
    with says(TOO_COSTLY.replace("1.0e+39", "1.0e-50")):
        model.set_params(C=1.0).fit(X, Y, sample_weight=np.where(Y == 1, 1e-50, 1.0))
    with says(TOO_COSTLY):
        model.set_params(C=1.0, class_weight={2: 1e39}).fit(X, Y)


def test_the_last_c_of_a_path_is_refused_before_the_first_fit():
    model = LinearMCSVC(dtype="float32", callbacks=[never])
    with says(TOO_COSTLY):
        model.path(X, Y, [1.0, 1e39])


@pytest.mark.usefixtures("one_thread")
def test_costs_beyond_float32_are_refused_on_dask():
    rows, labels = da.from_array(X, chunks=(10, -1)), da.from_array(Y, chunks=10)
    model = LinearMCSVC(C=1e39, dtype="float32", callbacks=[never])
    with says(TOO_COSTLY):
        model.fit(rows, labels)
    with says(TOO_COSTLY):
        model.set_params(C=1.0).fit(rows, labels, sample_weight=np.where(Y == 0, 1e39, 1.0))
    with says(TOO_COSTLY):
        model.path(rows, labels, [1.0, 1e39])
    tiny = rows * 1e-170  # whose squares are zero
    with says(
        "C times the largest squared norm of a row is 0.0e+00, and float64 takes 3.9e-121 to "
        "2.6e+120; scale the columns of X with sklearn.preprocessing.StandardScaler, or change C."
    ):
        LinearMCSVC(fit_intercept=False, callbacks=[never]).fit(tiny, labels)


@pytest.mark.parametrize("formulation", ["one_vs_rest", "crammer_singer"])
def test_costs_beyond_float32_are_refused_out_of_core(formulation, tmp_path):
    """By early shrinking, and by block minimization."""
    weight = np.where(Y == 0, 1e39, 1.0)
    path = write_dataset(tmp_path / "set", X, Y, sample_weight=weight).path
    how = {"memory_limit": "1GB", "dtype": "float32", "callbacks": [never]}
    with says(TOO_COSTLY):
        LinearMCSVC(formulation=formulation, **how).fit(path)


def test_certify_refuses_what_fit_refuses():
    model = LinearMCSVC(fit_intercept=False, random_state=0).fit(X, Y)
    with pytest.raises(ValueError, match=r"^C times the largest squared norm of a row is \d.\de"):
        model.certify(1e70 * X, Y)


@pytest.mark.parametrize("kernel", ["linear", "rbf", lambda A, B: A @ B.T])
def test_larank_refuses_costs_beyond_float32(kernel):
    model = LaRankSVC(kernel=kernel, gamma=1.0, C=1e39, dtype="float32", random_state=0)
    with says(TOO_COSTLY):
        model.fit(X, Y)
    with says(TOO_COSTLY):
        model.partial_fit(X, Y, classes=[0, 1, 2])
    assert not hasattr(model, "classes_")


def test_larank_refuses_kernel_values_that_no_step_could_use():
    with says(
        "C times the largest squared norm of a row is 1.0e+140, and float64 takes 3.9e-121 to "
        "2.6e+120; scale the columns of X with sklearn.preprocessing.StandardScaler, or change C."
    ):
        LaRankSVC(kernel="precomputed").fit(1e140 * np.eye(30), Y)
    with says(
        "the kernel returned a value of 1.0e+200; values must be at most 1.3e+30: scale the "
        "columns of X, or bound the kernel."
    ):
        LaRankSVC(kernel=lambda A, B: np.full((len(A), len(B)), 1e200)).fit(X, Y)


# -- whatever the numbers are ----------------------------------------------------------------------


#: A combination in float32 is a kernel that no other test compiles.
COMBINATIONS = [
    *((name, solver, "float64") for name in FORMULATIONS for solver in ("sdm", "splitting")),
    ("crammer_singer", "sdm", "float32"),
    ("weston_watkins", "sdm", "float32"),
    ("lee_lin_wahba", "sdm", "float32"),
    ("lee_lin_wahba", "splitting", "float32"),
]


def is_refused(fit):
    """Whether one of the known sentences came; any other error goes on."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*stopped after max_epochs")
        try:
            fit()
        except ValueError as error:
            if re.match(REFUSALS, str(error)) is None:
                raise
            return True
    return False


@pytest.mark.parametrize(("name", "solver", "dtype"), COMBINATIONS)
@settings(max_examples=20)
@given(
    powers=st.tuples(*[st.integers(-1000, 1000)] * 4),
    reach=st.sampled_from([1.0, 0.1, 0.05]),
    has_intercept=st.booleans(),
)
def test_every_fit_is_refused_or_certified(name, solver, dtype, powers, reach, has_intercept):
    """C, rows, tau and a third of the weights are powers of two, from the smallest to the largest.

    ``reach`` makes those that can be solved as likely as those that cannot.
    """
    C, scale, tau, weight = (2.0 ** round(reach * power) for power in powers)
    model = LinearMCSVC(
        formulation=name, solver=solver, C=C, intercept_scaling=tau, max_epochs=3,
        fit_intercept=has_intercept, dtype=dtype, random_state=0,
    )  # fmt: skip
    weights = np.where(Y == 1, weight, 1.0)
    if is_refused(lambda: model.fit(scale * X, Y, sample_weight=weights)):
        return
    assert np.isfinite([model.primal_, model.dual_, model.gap_]).all()
    assert np.isfinite(model.coef_).all()
    assert model.gap_ >= -1e-12
    proof = model.certify(scale * X, Y, weights)
    assert proof.primal == pytest.approx(model.primal_, rel=1e-9)


@settings(max_examples=40)
@given(
    kernel=st.sampled_from(["linear", "rbf", "poly"]),
    powers=st.tuples(*[st.integers(-1000, 1000)] * 3),
    reach=st.sampled_from([1.0, 0.1, 0.05]),
)
def test_every_larank_fit_is_refused_or_certified(kernel, powers, reach):
    C, scale, weight = (2.0 ** round(reach * power) for power in powers)
    model = LaRankSVC(kernel=kernel, C=C, gamma=1.0, stop="gap", max_epochs=2, random_state=0)
    weights = np.where(Y == 1, weight, 1.0)
    if is_refused(lambda: model.fit(scale * X, Y, sample_weight=weights)):
        return
    assert np.isfinite([model.primal_, model.dual_, model.gap_]).all()
    assert np.isfinite(model.decision_function(scale * X)).all()


def test_an_objective_that_is_not_finite_is_never_done():
    def done(primal, dual):
        run = Run()
        run.absolute = 1.0  # stop="gap" without tol, at C = 1
        loop = Loop(run, relative, 0.0, 1, None)
        loop.history = [{"primal": primal, "gap": relative(primal, dual), "certified": True}]
        return loop._reached_tol() == "gap"

    assert done(1.0, 0.5)
    assert not done(3.0, 1.0)
    assert not done(np.inf, 1.0)
    assert not done(1.0, np.inf)
    assert not done(np.nan, 1.0)


# -- the intercept, and the columns of Lee-Lin-Wahba -----------------------------------------------


@pytest.mark.parametrize("solver", ["sdm", "splitting"])
@pytest.mark.parametrize("scaling", [0.1, "radius"])
def test_a_float32_intercept_is_rounded_once(scaling, solver):
    """Model and certificate are of the same numbers, in memory and on Dask."""
    model = LinearMCSVC(
        dtype="float32", intercept_scaling=scaling, solver=solver, random_state=0
    ).fit(X, Y)
    assert model.certify(X, Y).primal == pytest.approx(model.primal_, rel=1e-13)
    rows, coef = X.astype(np.float32).astype(float), model.coef_.astype(float)
    scores = rows @ coef.T + model.intercept_
    tau = np.float32(np.linalg.norm(rows, axis=1).max() if scaling == "radius" else scaling)
    gone = scores - scores[np.arange(Y.size), Y][:, None] + 1
    gone[np.arange(Y.size), Y] = 0
    square = np.square(coef).sum() + np.square(model.intercept_ / float(tau)).sum()
    assert model.primal_ == pytest.approx(0.5 * square + gone.max(axis=1).sum(), rel=1e-12)
    lazy = model.decision_function(da.from_array(X, chunks=(10, -1)))
    with dask.config.set(scheduler="synchronous"):
        assert np.array_equal(lazy.compute(), model.decision_function(X))


@pytest.mark.parametrize("solver", ["sdm", "splitting"])
def test_a_float32_dual_never_exceeds_its_primal(solver):
    """The columns of Lee-Lin-Wahba sum to zero in the primal, and as float32 they need not."""
    rows = np.eye(3)[Y] + 0.3 * np.random.default_rng(1).normal(size=(30, 3))
    model = LinearMCSVC(
        formulation="llw", solver=solver, C=0.1, dtype="float32", tol=0, max_epochs=60,
        random_state=0,
    ).fit(rows, Y)  # fmt: skip
    assert model.primal_ - model.dual_ == pytest.approx(0.0, abs=1e-10)
    assert model.gap_ >= -1e-12
    assert model.certify(rows, Y).primal == pytest.approx(model.primal_, rel=1e-13)


# -- damaged sparse rows ---------------------------------------------------------------------------


def damaged(kind="csr", far=10**8):
    """Rows whose first index points far outside, as a segmentation fault likes it."""
    rows = sp.csr_array(X).asformat(kind)
    (rows.coords[1] if kind == "coo" else rows.indices)[0] = far
    return rows


def sentence(kind="csr", name="X"):
    size = {"csr": 2, "csc": 29}.get(kind)
    fault = "col must hold 90 numbers below 3"
    if size is not None:
        fault = f"indices must be integers from 0 to {size}"
    return (
        f"{name} ({kind.upper()}) is damaged: {fault}; build it again, for example with "
        f"scipy.sparse.{kind}_array(dense)."
    )


@pytest.mark.parametrize("kind", ["csr", "csc", "coo"])
@pytest.mark.parametrize("make", [LinearMCSVC, LaRankSVC])
def test_damaged_rows_are_refused_in_memory(make, kind):
    rows, weight = damaged(kind), np.where(Y == 1, 0.0, 1.0)
    model = make(random_state=0).fit(X, Y)
    with says(sentence(kind)):
        model.fit(rows, Y)
    with says(sentence(kind)):
        model.fit(rows, Y, sample_weight=weight)
    for use in (model.predict, model.decision_function, lambda Z: model.score(Z, Y)):
        with says(sentence(kind)):
            use(rows)


def test_damaged_rows_are_refused_by_the_other_methods(tmp_path):
    rows, model = damaged(), LinearMCSVC(random_state=0).fit(X, Y)
    with says(sentence()):
        model.predict_topk(rows, 2)
    with says(sentence()):
        model.certify(rows, Y)
    with says(sentence()):
        model.path(rows, Y, [1.0])
    with says(sentence()):
        LaRankSVC().partial_fit(rows, Y, classes=[0, 1, 2])
    with says(sentence("csc")):
        write_dataset(tmp_path / "set", damaged("csc"), Y)
    entries = sp.lil_array(X)
    entries.rows[0][0] = 10**8  # known to be damaged when it is CSR
    with says(sentence()):
        model.predict(entries)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("make", [LinearMCSVC, LaRankSVC])
def test_damaged_chunks_are_refused_on_dask(make):
    good = [sp.csr_array(X[i : i + 10]) for i in range(0, 30, 10)]
    bad = good[1].copy()
    bad.indices[0] = 10**8
    chunks = [
        da.from_delayed(dask.delayed(part), (10, 3), float, meta=sp.csr_array((0, 0)))
        for part in (good[0], bad, good[2])
    ]
    rows, labels = da.concatenate(chunks), da.from_array(Y, chunks=10)
    model = make(random_state=0).fit(X, Y)
    with says(sentence(name="the chunk of rows 10:20 of X")):
        model.fit(rows, labels)
    for lazy in (model.predict(rows), model.decision_function(rows)):
        with says(sentence(name="chunk 1 of X")):
            lazy.compute()
