"""Bad input: one sentence that says what was found, what is needed and what to type."""

import re

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import make_blobs

from dask_mcsvm import LinearMCSVC

X, Y = make_blobs(n_samples=30, n_features=3, centers=3, random_state=0)
ONES = np.ones(30)
NO_LABEL = (
    "y has no label in row {}; every row needs a label: drop the others with X[keep], y[keep]."
)


def changed(array, place, value):
    out = array.copy()
    out[place] = value
    return out


PARAMETERS = [
    ({"C": -1.0}, "C is -1.0; it must be a finite number above 0, for example C=1.0."),
    ({"C": 0}, "C is 0; it must be a finite number above 0, for example C=1.0."),
    ({"C": np.inf}, "C is inf; it must be a finite number above 0, for example C=1.0."),
    ({"C": True}, "C is True; it must be a finite number above 0, for example C=1.0."),
    ({"C": "big"}, "C is 'big'; it must be a finite number above 0, for example C=1.0."),
    ({"tol": -1e-3}, "tol is -0.001; it must be a finite number of at least 0, "
     "for example tol=1e-3."),
    ({"max_epochs": 0}, "max_epochs is 0; it must be an integer of at least 1, "
     "for example max_epochs=1000."),
    ({"max_epochs": 1.5}, "max_epochs is 1.5; it must be an integer of at least 1, "
     "for example max_epochs=1000."),
    ({"fit_intercept": "no"}, "fit_intercept is 'no'; it must be True or False, "
     "for example fit_intercept=True."),
    ({"intercept_scaling": "diameter"}, "intercept_scaling is 'diameter'; it must be a finite "
     'number above 0 or "radius", for example intercept_scaling=1.0.'),
    ({"intercept_scaling": 0}, "intercept_scaling is 0; it must be a finite number above 0, "
     "for example intercept_scaling=1.0."),
    ({"dtype": "float16"}, "dtype is 'float16'; it must be \"float32\", \"float64\" or None "
     '(None keeps the precision of X), for example dtype="float64".'),
    ({"n_jobs": 0}, "n_jobs is 0; it must be a positive integer, -1 for all cores, or None for "
     "one, for example n_jobs=-1."),
    ({"warm_start": 1}, "warm_start is 1; it must be True or False, for example warm_start=True."),
    ({"solver": "magic"}, "solver is 'magic'; it must be 'auto', 'sdm', 'splitting', 'shards', "
     "'rounds', 'averaging', 'classes', 'exchange' or 'early_shrink', for example solver='auto'."),
    ({"formulation": "svm"}, "formulation='svm' is not known; use 'crammer_singer' ('cs'), "
     "'weston_watkins' ('ww'), 'lee_lin_wahba' ('llw'), 'one_vs_rest' ('ovr')."),
    ({"solver_options": [1]}, "solver_options is [1]; it must be a dict of option to value, or "
     'None, for example solver_options={"schedule": "uniform"}.'),
    ({"callbacks": 3}, "callbacks is 3; it must be a tuple or list of functions of one record, "
     "for example callbacks=(print,)."),
    ({"verbose": -1}, "verbose is -1; it must be an integer of at least 0, "
     "for example verbose=1."),
    ({"random_state": "x"}, "random_state is 'x'; it must be None, an integer or a "
     "numpy.random.RandomState, for example random_state=0."),
    ({"class_weight": "even"}, "class_weight is 'even'; it must be None, \"balanced\" or a dict "
     'of class to weight, for example class_weight="balanced".'),
    ({"class_weight": {7: 1.0}}, "class_weight has key(s) that are no class of y (7); the classes "
     "are 0, 1, 2: remove the key, or name the class in fit(..., classes=...)."),
    ({"class_weight": {1: -2.0}}, "class_weight[1] is -2.0; it must be a finite number of at "
     "least 0, for example class_weight={1: 2.0}."),
]  # fmt: skip


@pytest.mark.parametrize(("parameters", "message"), PARAMETERS)
def test_a_parameter_out_of_range_is_refused_in_fit(parameters, message):
    estimator = LinearMCSVC(**parameters)
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        estimator.fit(X, Y)


def test_an_unknown_solver_option_is_refused_with_the_list_of_known_ones():
    estimator = LinearMCSVC(solver_options={"shrinkage": True}, random_state=0)
    with pytest.raises(ValueError, match="shrinkage") as raised:
        estimator.fit(X, Y)
    assert all(option in str(raised.value) for option in ("schedule", "cooling", "stop"))


def test_an_unknown_parameter_is_refused():
    with pytest.raises(TypeError, match="unexpected keyword argument 'penalty'"):
        LinearMCSVC(penalty="l1")


FITS = [
    (changed(X, (0, 0), np.nan), Y, {}, "Input X contains NaN; fill the gaps with "
     "sklearn.impute.SimpleImputer, or drop those rows."),
    (changed(X, (0, 0), np.inf), Y, {}, "Input X contains infinity or a value too large for "
     "dtype('float64'); drop those rows with X[numpy.isfinite(X).all(axis=1)], or clip them."),
    (changed(X, (0, 0), -1e200), Y, {}, "X has a value of magnitude 1.0e+200, whose square "
     "overflows float64; scale the columns with sklearn.preprocessing.MaxAbsScaler."),
    (X[:, 0], Y, {}, "Expected 2D array, got 1D array instead; Reshape your data with "
     "X.reshape(-1, 1) if it has one feature, or X.reshape(1, -1) if it is one row."),
    (X[:, :, None], Y, {}, "Found array with dim 3, while dim <= 2 is required by LinearMCSVC; "
     "make each sample one row with X.reshape(len(X), -1)."),
    (X[:0], Y[:0], {}, "Found array with 0 sample(s) (shape=(0, 3)) while a minimum of 1 is "
     "required by LinearMCSVC; pass X of shape (n_samples, n_features) and as many labels."),
    (X[:, :0], Y, {}, "Found array with 0 feature(s) (shape=(30, 0)) while a minimum of 1 is "
     "required by LinearMCSVC; pass X of shape (n_samples, n_features) with at least one column."),
    (X, Y[:-1], {}, "Found input variables with inconsistent numbers of samples: [30, 29]; "
     "pass one label per row, len(y) == X.shape[0]."),
    (X + 1j, Y, {}, "Complex data not supported; "
     "pass numpy.hstack([Z.real, Z.imag]) in place of the complex Z."),
    (np.full((30, 3), "a", object), Y, {}, "could not convert string to float: 'a'; X must be "
     "numeric: encode text columns with sklearn.preprocessing.OneHotEncoder."),
    ([[10**400, 1], [0, 1]], [0, 1], {}, "X has a value that is no number of float64 (int too "
     "large to convert to float); X must be numeric: drop or scale the column that has it."),
    (X.astype("M8[D]"), Y, {}, "X has dtype datetime64[D]; X must be numeric: type "
     "X.astype(float)."),
    (sp.coo_array(X[None]), Y, {}, "X has 3 dimensions; Expected 2D array of shape (n_samples, "
     "n_features)."),
    (np.full((30, 3), "a"), Y, {}, "dtype='numeric' is not compatible with arrays of "
     "bytes/strings; type X.astype(float), or encode text columns with "
     "sklearn.preprocessing.OneHotEncoder."),
    (X, None, {}, "This LinearMCSVC estimator requires y to be passed, but the target y is None; "
     "type fit(X, y)."),
    (X, np.zeros(30), {}, "y has rows of 1 class (0.0); a classifier needs rows of at least two "
     "classes: add rows of another class."),
    (X, X[:, 0], {}, "Unknown label type: continuous; classes must be integers or strings: for "
     "real-valued targets use sklearn.svm.LinearSVR."),
    (X, Y.astype(object), {}, "Unknown label type: unknown; classes must be integers or strings: "
     "type y.astype(str)."),
    (X, np.array(["a", 1, *"b" * 28], object), {}, "'<' not supported between instances of 'int' "
     "and 'str'; labels must be of one kind: type y.astype(str)."),
    (X, changed(Y.astype(float), 4, np.nan), {}, NO_LABEL.format(4)),
    (X, changed(Y.astype(object), 3, None), {}, NO_LABEL.format(3)),
    (X, [*"ab" * 14, "a", np.nan], {}, NO_LABEL.format(29)),
    (X, [0, 1, None, *Y[3:]], {}, NO_LABEL.format(2)),
    (X, np.c_[Y, Y], {}, "y should be a 1d array, got an array of shape (30, 2) instead; for "
     "several labels per row use sklearn.multiclass.OneVsRestClassifier(LinearMCSVC())."),
    (X, Y, {"classes": [0, 1]}, "y has 1 label(s) that are not in classes (2); "
     "add them to classes, or drop their rows."),
    (X, Y, {"sample_weight": -ONES}, "sample_weight has a negative value (-1); weights must be at "
     "least 0: use 0 to leave a row out."),
    (X, Y, {"sample_weight": 0 * ONES}, "sample_weight is zero for every row; at least two "
     "classes need weight."),
    (X, Y, {"sample_weight": 1.0 * (Y == 2)}, "y has rows of positive weight of 1 class (2); a "
     "classifier needs rows of positive weight of at least two classes: add rows of another "
     "class."),
    (X, Y, {"sample_weight": ONES[:-1]}, "sample_weight has shape (29,); it must have one weight "
     "per row of X, shape (30,)."),
    (X, Y, {"sample_weight": changed(ONES, 3, np.nan)}, "Input sample_weight contains NaN; "
     "weights must be finite and at least 0: use 0 to leave a row out."),
]  # fmt: skip


@pytest.mark.parametrize(("rows", "labels", "more", "message"), FITS)
def test_bad_data_is_refused(rows, labels, more, message):
    with pytest.raises((ValueError, TypeError), match=f"^{re.escape(message)}$"):
        LinearMCSVC(random_state=0).fit(rows, labels, **more)


def test_objects_that_are_no_numbers_are_refused():
    rows = X.astype(object)
    rows[0, 0] = {"a": 1}
    message = "float() argument must be a string or a real number, not 'dict'; X must be numeric: "
    with pytest.raises(TypeError, match=re.escape(message)):
        LinearMCSVC(random_state=0).fit(rows, Y)


def test_float32_overflow_is_found_before_the_cast():
    rows = changed(X, (0, 0), 1e39)
    message = "X has a value of magnitude 1.0e+39, whose square overflows float32; scale"
    with pytest.raises(ValueError, match=re.escape(message)):
        LinearMCSVC(dtype="float32", random_state=0).fit(rows, Y)


def test_a_csr_that_points_outside_is_refused():
    rows = sp.csr_array(X)
    rows.indices[0] = 3
    message = (
        "X (CSR) is damaged: indices must be integers from 0 to 2; build it again, for example "
        "with scipy.sparse.csr_array(dense)."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        LinearMCSVC(random_state=0).fit(rows, Y)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda m: m.predict(X[:, :2]), "X has 2 features, but LinearMCSVC is expecting 3 "
         "features as input; pass the columns that fit saw, in the same order."),
        (lambda m: m.predict(X[0]), "Expected 2D array, got 1D array instead; Reshape your data "
         "with X.reshape(-1, 1) if it has one feature, or X.reshape(1, -1) if it is one row."),
        (lambda m: m.decision_function(changed(X, (0, 0), np.nan)), "Input X contains NaN; fill "
         "the gaps with sklearn.impute.SimpleImputer, or drop those rows."),
        (lambda m: m.predict_topk(X, 4), "n is 4, but there are 3 classes; "
         "type n=3 to rank them all."),
        (lambda m: m.predict_topk(X, 0), "n is 0; it must be an integer of at least 1, "
         "for example n=1."),
    ],
)  # fmt: skip
def test_bad_questions_to_a_fitted_model_are_refused(ask, message):
    model = LinearMCSVC(C=0.01, random_state=0).fit(X, Y)
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        ask(model)


def test_explain_without_y_needs_a_fit():
    message = "explain needs y to count the classes; type explain(X, y)."
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        LinearMCSVC(random_state=0).explain(X)


def test_explain_of_early_shrinking_needs_labels_also_after_a_fit():
    model = LinearMCSVC(C=0.01, formulation="ovr", solver="early_shrink", random_state=0).fit(X, Y)
    assert model.explain(X, Y) == str(model.plan_)
    message = "explain needs y to count the classes; type explain(X, y)."
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        model.explain(X)


@pytest.mark.parametrize(
    ("arguments", "parameters"),
    [
        ((changed(X[:, :2], (0, 0), np.nan), Y), {}),
        ((X[:, :2], Y), {"C": -1}),
        ((X[:, :2], Y), {"solver_options": {"no such": 1}}),
        ((X[:, :2], Y, 0 * ONES), {}),
        ((X[:, :2], Y), {"callbacks": (lambda record: 1 / 0,)}),
    ],
)
def test_a_failed_fit_leaves_the_model_as_it_was(arguments, parameters):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    model = LinearMCSVC(C=0.01, random_state=0).fit(frame, Y)
    before = vars(model).copy()
    model.set_params(**parameters)
    before |= parameters
    with pytest.raises((ValueError, ZeroDivisionError)):
        model.fit(*arguments)
    assert vars(model) == before
    assert list(model.feature_names_in_) == ["a", "b", "c"]
