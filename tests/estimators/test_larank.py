"""LaRankSVC: the optimum it reaches, streams, weights, storage, and what it refuses."""

import copy
import pickle
import re
from functools import partial

import clarabel
import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from reference import interior_point
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import polynomial_kernel, rbf_kernel, sigmoid_kernel

from dask_mcsvm import LaRankSVC, LinearMCSVC
from dask_mcsvm.errors import ModelFormatError


def rbf(X, Z, gamma=0.5):
    return np.exp(-gamma * ((X[:, None] - Z[None]) ** 2).sum(axis=2))


def same_bytes(a, b, X):
    return a.decision_function(X).tobytes() == b.decision_function(X).tobytes()


@pytest.fixture
def data(blobs):
    X, y = blobs()
    return 3 * X, y


# The optimum ------------------------------------------------------------------------------------


@pytest.mark.parametrize("csr", [False, True], ids=["dense", "csr"])
def test_a_linear_kernel_reaches_the_crammer_singer_optimum(data, csr):
    X, y = data
    rows = sp.csr_array(X) if csr else X
    exact = LinearMCSVC(C=0.1, fit_intercept=False, tol=1e-9, random_state=0).fit(X, y)
    model = LaRankSVC(kernel="linear", C=0.1, stop="gap", tol=1e-7, random_state=0).fit(rows, y)
    assert model.gap_ <= 1e-7
    assert model.stop_ == "gap"
    assert model.dual_ == pytest.approx(exact.dual_, rel=1e-6)
    np.testing.assert_allclose(model.coef_, exact.coef_, atol=1e-3)
    product = model.dual_coef_ @ model.support_vectors_
    dense = product.toarray() if csr else product
    np.testing.assert_allclose(model.coef_, dense, atol=1e-12)
    np.testing.assert_allclose(model.decision_function(rows), X @ model.coef_.T, atol=1e-12)


def kernel_optimum(K, y, C, k):
    """The dual (7) of the paper as a quadratic program: one variable per example and class."""
    n = y.size
    upper = np.where(np.arange(k) == y[:, None], C[:, None], 0.0)
    sums = sp.kron(sp.eye_array(n), np.ones((1, k)))
    own = (np.arange(k) == y[:, None]).astype(float)
    solution = interior_point(
        sp.triu(sp.kron(K + 1e-12 * np.eye(n), sp.eye_array(k))),
        -own.ravel(),
        sp.vstack([sums, sp.eye_array(n * k)]),
        [np.zeros(n), upper.ravel()],
        [clarabel.ZeroConeT(n), clarabel.NonnegativeConeT(n * k)],
    )
    return -solution.obj_val


def test_an_rbf_kernel_reaches_the_optimum_of_the_quadratic_program(blobs):
    X, y = blobs(3, 60)
    X = 3 * X
    weights = np.random.default_rng(0).choice([0.5, 1.0, 2.0], y.size)
    model = LaRankSVC(gamma=0.5, C=2.0, stop="gap", tol=1e-8, random_state=0)
    model.fit(X, y, sample_weight=weights)
    optimum = kernel_optimum(rbf(X, X), y, 2.0 * weights, 3)
    assert model.dual_ == pytest.approx(optimum, rel=1e-6)
    assert model.primal_ == pytest.approx(optimum, rel=1e-6)


def test_the_papers_rule_stops_at_a_gap_of_C(data):
    X, y = data
    model = LaRankSVC(gamma=0.5, C=5.0, stop="gap", random_state=0).fit(X, y)
    assert model.primal_ - model.dual_ <= 5.0
    assert model.history_[-1]["certified"]
    one = LaRankSVC(gamma=0.5, C=5.0, random_state=0).fit(X, y)
    assert (one.n_iter_, one.stop_) == (1, "epochs")
    assert np.isnan(one.gap_)
    assert one.dual_ <= model.primal_


def test_running_out_of_epochs_is_said(data):
    X, y = data
    model = LaRankSVC(gamma=0.5, stop="gap", tol=1e-9, max_epochs=1, random_state=0)
    with pytest.warns(ConvergenceWarning, match="LaRankSVC stopped after max_epochs=1"):
        model.fit(X, y)
    assert model.gap_ > 1e-9


# Weights, labels, kernels -----------------------------------------------------------------------


def test_a_weight_is_a_number_of_copies(data):
    X, y = data
    weights = np.arange(y.size) % 3
    settings = {"gamma": 0.5, "stop": "gap", "tol": 1e-9, "random_state": 0}
    weighted = LaRankSVC(**settings).fit(X, y, sample_weight=weights)
    copied = LaRankSVC(**settings).fit(np.repeat(X, weights, axis=0), np.repeat(y, weights))
    assert weighted.dual_ == pytest.approx(copied.dual_, rel=1e-8)
    assert weights[weighted.support_].min() > 0
    np.testing.assert_allclose(weighted.support_vectors_, X[weighted.support_])


def test_labels_may_be_words_and_classes_may_be_missing(data):
    X, y = data
    words = np.array(["ant", "bee", "cow"])
    all_words = ["ant", "bee", "cow", "dog"]
    model = LaRankSVC(gamma=0.5, random_state=0).fit(X, words[y], classes=all_words)
    plain = LaRankSVC(gamma=0.5, random_state=0).fit(X, y)
    np.testing.assert_array_equal(model.predict(X), words[plain.predict(X)])
    assert model.decision_function(X).shape == (y.size, 4)
    assert model.dual_coef_.shape == (4, model.n_support_)


def test_coefficients_of_a_pattern_sum_to_zero(data):
    X, y = data
    model = LaRankSVC(gamma=0.5, max_support=20, random_state=0).fit(X, y)
    np.testing.assert_allclose(model.dual_coef_.sum(axis=0), 0, atol=1e-14)
    assert model.n_support_ == 20
    assert model.dual_lost_ > 0


def test_two_classes_decide_by_one_number(blobs):
    X, y = blobs(2)
    model = LaRankSVC(gamma=0.5, random_state=0).fit(X, y)
    np.testing.assert_array_equal(model.predict(X), (model.decision_function(X) > 0).astype(int))


@pytest.mark.parametrize("kernel", [rbf, "precomputed"])
def test_kernels_from_outside_give_the_same_model(data, kernel):
    X, y = data
    settings = {"C": 2.0, "stop": "gap", "tol": 1e-8, "random_state": 0}
    inside = LaRankSVC(gamma=0.5, **settings).fit(X, y)
    rows = rbf(X, X) if kernel == "precomputed" else X
    outside = LaRankSVC(kernel=kernel, **settings).fit(rows, y)
    assert outside.dual_ == pytest.approx(inside.dual_, rel=1e-7)
    np.testing.assert_allclose(
        outside.decision_function(rows), inside.decision_function(X), atol=1e-3
    )


@pytest.mark.parametrize("csr", [False, True], ids=["dense", "csr"])
@pytest.mark.parametrize("kernel", [rbf, "precomputed"])
def test_one_pass_takes_the_same_steps_whoever_computes_the_kernel(blobs, kernel, csr):
    X, y = blobs(6, 400)
    inside = LaRankSVC(gamma=0.5, random_state=0).fit(sp.csr_array(X) if csr else X, y)
    rows = rbf(X, X) if kernel == "precomputed" else X
    outside = LaRankSVC(kernel=kernel, random_state=0).fit(rows, y)
    assert (outside.n_steps_, outside.n_arg_max_) == (inside.n_steps_, inside.n_arg_max_)
    np.testing.assert_array_equal(outside.support_, inside.support_)
    difference = outside.dual_coef_ - inside.dual_coef_
    np.testing.assert_allclose(difference.toarray(), 0, atol=1e-9)


def test_gamma_scale_is_that_of_scikit_learn(data):
    X, y = data
    for rows in (X, sp.csr_array(X)):
        model = LaRankSVC(random_state=0).fit(rows, y)
        assert model.gamma_ == pytest.approx(1 / (X.shape[1] * X.var()), rel=1e-9)


# Streams ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_partial_fit_on_chunks_is_fit_on_all(data, kernel):
    X, y = data
    settings = {"kernel": kernel, "gamma": 0.5, "shuffle": False, "random_state": 3}
    whole = LaRankSVC(**settings).fit(X, y)
    stream = LaRankSVC(**settings)
    for part in np.array_split(np.arange(y.size), [10, 11, 60]):
        stream.partial_fit(X[part], y[part], classes=[0, 1, 2])
    assert same_bytes(whole, stream, X)
    np.testing.assert_array_equal(whole.support_, stream.support_)
    assert whole.dual_ == stream.dual_


def test_a_stream_may_have_chunks_of_one_class_and_go_on_after_fit(data):
    X, y = data
    model = LaRankSVC(gamma="scale", random_state=0)
    model.partial_fit(X[y == 0], y[y == 0], classes=[0, 1, 2])
    gamma = model.gamma_
    model.partial_fit(10 * X[y > 0], y[y > 0])
    assert model.gamma_ == gamma
    fitted = LaRankSVC(gamma=0.5, random_state=0).fit(X, y)
    before = fitted.dual_
    assert fitted.partial_fit(sp.csr_array(X), y).dual_ > before


def test_the_same_seed_gives_the_same_bytes(data):
    X, y = data
    model = LaRankSVC(gamma=0.5, random_state=5)
    assert same_bytes(clone(model).fit(X, y), clone(model).fit(X, y), X)


# Storage ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("csr", [False, True], ids=["dense", "csr"])
@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_a_saved_model_predicts_and_learns_on(data, tmp_path, kernel, csr):
    X, y = data
    rows = sp.csr_array(X) if csr else X
    weights = {0: 2.0, 2: 0.5}
    model = LaRankSVC(kernel=kernel, gamma=0.5, class_weight=weights, shuffle=False, random_state=0)
    model.fit(rows, y)
    model.save(tmp_path / "model.zarr")
    again = LaRankSVC.load(tmp_path / "model.zarr")
    assert same_bytes(model, again, rows)
    assert again.get_params() == model.get_params()
    assert (again.dual_, again.n_iter_, again.stop_) == (model.dual_, 1, "epochs")
    np.testing.assert_array_equal(again.support_, model.support_)
    for one in (model, again):
        one.partial_fit(rows, y)
    assert same_bytes(model, again, rows)
    assert not [path for path in tmp_path.rglob("*") if path.suffix in (".pkl", ".pickle")]


def test_a_pickled_model_predicts_the_same(data):
    X, y = data
    model = LaRankSVC(gamma=0.5, random_state=0).fit(X, y)
    assert same_bytes(model, pickle.loads(pickle.dumps(model)), X)


def test_what_cannot_be_saved_or_loaded_is_said(data, tmp_path):
    from dask_mcsvm.storage import save_model

    X, y = data
    model = LaRankSVC(kernel=rbf, random_state=0).fit(X, y)
    with pytest.raises(TypeError, match="kernel is a function, and files hold no code"):
        model.save(tmp_path / "model.zarr")
    save_model(tmp_path / "other.zarr", {"W": X}, {"estimator": "LinearMCSVC"})
    with pytest.raises(ModelFormatError, match="holds a LinearMCSVC; load it with that class"):
        LaRankSVC.load(tmp_path / "other.zarr")


# Bad input --------------------------------------------------------------------------------------

PARAMETERS = [
    ({"gamma": 0}, "gamma is 0; it must be a finite number above 0, for example gamma=\"scale\"."),
    ({"gamma": "wide"}, 'gamma is \'wide\'; it must be a finite number above 0, "scale" or "auto", '
     'for example gamma="scale".'),
    ({"kernel": "cosine"}, "kernel is 'cosine'; it must be a function of two arrays of rows, or "
     "one of 'linear', 'rbf', 'poly', 'sigmoid', 'precomputed', for example kernel=\"rbf\"."),
    ({"degree": 1.5}, "degree is 1.5; it must be an integer of at least 1, for example degree=3."),
    ({"coef0": "x"}, "coef0 is 'x'; it must be a finite number, for example coef0=1.0."),
    ({"stop": "never"}, "stop is 'never'; it must be 'epochs' or 'gap', for example "
     "stop='epochs'."),
    ({"schedule": "x"}, "schedule is 'x'; it must be 'cost', 'time' or 'fixed', for example "
     "schedule='cost'."),
    ({"max_support": 1}, "max_support is 1; it must be an integer of at least 2, for example "
     "max_support=1000."),
    ({"cache_size": 0}, "cache_size is 0; it must be a finite number above 0, for example "
     "cache_size=500."),
]  # fmt: skip


@pytest.mark.parametrize(("parameters", "message"), PARAMETERS)
def test_a_parameter_out_of_range_is_refused_in_fit(data, parameters, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        LaRankSVC(**parameters).fit(*data)


def broken(function):
    """A kernel that works for a while."""
    calls = []

    def kernel(X, Z):
        calls.append(0)
        return rbf(X, Z) if len(calls) < 4 else function(X, Z)

    return kernel


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda X, Z: rbf(X, Z)[:, :1], "the kernel returned shape (6, 1)"),
        (lambda X, Z: rbf(X, Z) * np.nan, "the kernel returned NaN or infinity"),
    ],
)
def test_a_kernel_that_fails_half_way_leaves_the_model_as_it_was(data, function, message):
    X, y = data
    model = LaRankSVC(kernel=broken(function), shuffle=False, random_state=0)
    model.partial_fit(X[:20], y[:20], classes=[0, 1, 2])
    before = dict(vars(model)), copy.deepcopy(model._run.state)
    with pytest.raises(ValueError, match=re.escape(message)):
        model.partial_fit(X[20:], y[20:])
    assert vars(model) == before[0]
    assert all(np.array_equal(before[1][name], value) for name, value in model._run.state.items())


def test_bad_streams_are_refused_and_change_nothing(data):
    X, y = data
    model = LaRankSVC(gamma=0.5, random_state=0)
    with pytest.raises(ValueError, match="the first call of partial_fit needs all classes"):
        model.partial_fit(X, y)
    model.partial_fit(X, y, classes=[0, 1, 2])
    scores = model.decision_function(X)
    refused = [
        ((X, y + 1), {}, r"y has 1 label\(s\) that are not in classes \(3\)"),
        ((X[:, :2], y), {}, "X has 2 features, but LaRankSVC is expecting 5 features as input"),
        ((X, y), {"classes": [0, 1]}, "classes are not the 3 of the first call"),
        ((X, y), {"sample_weight": -np.ones(y.size)}, "sample_weight has a negative value"),
    ]
    for arguments, keywords, message in refused:
        with pytest.raises(ValueError, match=message):
            model.partial_fit(*arguments, **keywords)
    with pytest.raises(ValueError, match="kernel is now 'linear'; this model was begun with 'rbf'"):
        model.set_params(kernel="linear").partial_fit(X, y)
    with pytest.raises(ValueError, match="class_weight is 'balanced'; partial_fit does not see"):
        model.set_params(kernel="rbf", class_weight="balanced").partial_fit(X, y)
    np.testing.assert_array_equal(model.decision_function(X), scores)


def test_a_precomputed_kernel_must_be_square_and_is_not_for_streams(data):
    X, y = data
    with pytest.raises(ValueError, match=r"X has shape \(90, 5\); a precomputed kernel must be"):
        LaRankSVC(kernel="precomputed").fit(X, y)
    with pytest.raises(ValueError, match='kernel is "precomputed"; partial_fit needs rows'):
        LaRankSVC(kernel="precomputed").partial_fit(rbf(X, X), y, classes=[0, 1, 2])


def test_callbacks_see_epochs_and_may_stop(data):
    X, y = data
    seen = []
    model = LaRankSVC(
        gamma=0.5,
        stop="gap",
        tol=1e-9,
        random_state=0,
        callbacks=(lambda r: seen.append(r) or True,),
    ).fit(X, y)
    assert (len(seen), model.stop_, model.n_iter_) == (1, "callback", 1)
    assert model.gap_ > 0


@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize(("dtype", "far"), [("float32", 1e4), ("float64", 1e10)])
def test_rows_far_from_zero_keep_their_distances(layout, dtype, far):
    """By products alone such rows are some tens or hundreds away from where they are."""
    rng = np.random.default_rng(0)
    y = np.arange(40) % 3
    X = (far + y[:, None] + rng.normal(size=(40, 5))).astype(dtype)
    X[:, 4] *= rng.random(40) < 0.5
    rows = X if layout == "dense" else sp.csr_array(X)
    model = LaRankSVC(gamma=0.1, dtype=dtype, random_state=0).fit(rows, y)
    vectors = X[model.support_].astype(np.float64)
    apart = X.astype(np.float64)[:, None] - vectors
    expected = np.exp(-0.1 * np.square(apart).sum(axis=2)) @ model.dual_coef_.toarray().T
    np.testing.assert_allclose(model.decision_function(rows), expected, atol=1e-5)


@pytest.mark.parametrize("form", ["dense", "csr", "dask"])
@pytest.mark.parametrize("kernel", ["rbf", "poly", "sigmoid"])
def test_float32_rows_near_zero_keep_their_products(kernel, form):
    """gamma makes ordinary kernel values of products that are 0 in float32."""
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    X = ((y[:, None] + rng.normal(size=(60, 5))) * 1e-30).astype(np.float32)
    to_form = {"dense": np.asarray, "csr": sp.csr_array, "dask": partial(da.from_array, chunks=20)}
    rows = to_form[form](X)
    labels = da.from_array(y, chunks=20) if form == "dask" else y
    model = LaRankSVC(kernel=kernel, degree=2, dtype="float32", random_state=0).fit(rows, labels)
    functions = {"rbf": rbf_kernel, "poly": partial(polynomial_kernel, degree=2, coef0=0),
                 "sigmoid": partial(sigmoid_kernel, coef0=0)}  # fmt: skip
    wide, gamma = X.astype(np.float64) * 1e30, model.gamma_ * 1e-60
    values = functions[kernel](wide, wide[model.support_], gamma=gamma)
    expected = values @ model.dual_coef_.toarray().T
    assert np.abs(expected).max() > 0.5
    np.testing.assert_allclose(model.decision_function(rows), expected, atol=1e-4)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("seed", [23, 39, 45, 49])
def test_a_gap_is_not_below_zero_where_the_objective_is_tiny(seed):
    """A loss of -1e-14 would be a gap of -0.03, or an objective below zero."""
    rng = np.random.default_rng(seed)
    X, y = 2 * rng.normal(size=(4, 7)), np.arange(4) % 2
    model = LaRankSVC(
        kernel="poly", degree=50, gamma="auto", coef0=1.0, stop="gap", tol=0.01, max_epochs=3,
        random_state=0,
    ).fit(X, y)  # fmt: skip
    assert 0 < model.primal_ < 1e-6
    assert model.gap_ >= -1e-12
