"""What LaRankSVC refuses besides its parameters, each time in one sentence."""

import re

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp

from dask_mcsvm import LaRankSVC

ALL = [0, 1, 2]
ONE_PER_LABEL = "it must be a list of all labels: type classes=numpy.unique(y)."


def rbf():
    return LaRankSVC(gamma=0.5, random_state=0)


def says(message):
    return pytest.raises(ValueError, match=f"^{re.escape(message)}$")


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        ("abc", f"classes has shape (); {ONE_PER_LABEL}"),
        ([[0, 1], [2, 3]], f"classes has shape (2, 2); {ONE_PER_LABEL}"),
        ([[0], [1, 2]], f"classes has lists of several lengths; {ONE_PER_LABEL}"),
        ([0, 1, 2, np.nan], "classes has NaN or infinity; type classes=numpy.unique(y)."),
        ([], "y has 3 label(s) that are not in classes (0, 1, 2); add them to classes, or drop "
         "their rows."),
    ],
)  # fmt: skip
def test_classes_that_are_no_list_of_labels(blobs, classes, message):
    X, y = blobs()
    with says(message):
        rbf().partial_fit(X, y, classes=classes)
    begun = rbf().partial_fit(X, y, classes=ALL)
    if message.startswith("classes"):
        with says(message):
            begun.partial_fit(X, y, classes=classes)


def test_rows_without_weight(blobs):
    X, y = blobs()
    of_zero = (X[y == 0], y[y == 0])
    with says(
        'class_weight is zero for every row, and gamma="scale" is computed from rows of positive '
        "weight; begin with rows of another class, or type a number for gamma."
    ):
        LaRankSVC(class_weight={0: 0.0}).partial_fit(*of_zero, classes=ALL)
    with says("sample_weight is zero for every row; at least two classes need weight."):
        rbf().partial_fit(X, y, classes=ALL, sample_weight=np.zeros(y.size))
    model = LaRankSVC(gamma=0.5, class_weight={0: 0.0}, random_state=0)
    assert model.partial_fit(*of_zero, classes=ALL).n_support_ == 0
    assert model.partial_fit(X, y).n_support_ > 0
    linear = LaRankSVC(kernel="linear", class_weight={0: 0.0}).partial_fit(*of_zero, classes=ALL)
    assert linear.n_support_ == 0


def test_a_stream_of_one_class_knows_nothing_else(blobs):
    X, _ = blobs()
    model = rbf().partial_fit(X, np.zeros(90, int), classes=[0])
    assert (model.predict(X) == 0).all()


def test_empty_chunks(blobs):
    X, y = blobs()
    model = rbf().partial_fit(X, y, classes=ALL)
    before = model._run
    with says(
        "Found array with 0 sample(s) (shape=(0, 5)) while a minimum of 1 is required by "
        "LaRankSVC; pass X of shape (n_samples, n_features) and as many labels."
    ):
        model.partial_fit(X[:0], y[:0])
    assert model._run is before


NUMBERS = "it must return numbers of shape (64, 64): type kernel=lambda X, Z: X @ Z.T to compare."


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (lambda X, Z: [[1], [1, 2]], "the kernel returned a list that is no array for rows of "
         f"shape (64, 5) and (64, 5); {NUMBERS}"),
        (lambda X, Z: None, "the kernel returned shape () and dtype object for rows of shape "
         f"(64, 5) and (64, 5); {NUMBERS}"),
        (lambda X, Z: 1e200 * (X.astype(float) @ Z.T), "the kernel returned NaN or infinity; it "
         "must be finite for all rows: scale the columns of X, or bound the kernel."),
    ],
)  # fmt: skip
def test_kernels_that_return_something_else(blobs, kernel, message):
    X, y = blobs(dtype=np.float32)
    with says(message):
        LaRankSVC(kernel=kernel, random_state=0).fit(X, y)


def test_a_precomputed_kernel_has_a_column_for_each_training_row(blobs):
    X, y = blobs()
    model = LaRankSVC(kernel="precomputed", random_state=0).fit(X @ X.T, y)
    with says(
        "X has 80 features, but LaRankSVC is expecting 90 features as input; pass the columns "
        "that fit saw, in the same order."
    ):
        model.predict(X @ X[:80].T)


@pytest.mark.parametrize("csr", [False, True], ids=["dense", "csr"])
@pytest.mark.parametrize("kernel", ["linear", "poly"])
def test_scores_that_overflow_are_no_labels(blobs, kernel, csr):
    X, y = blobs(dtype=np.float32)
    model = LaRankSVC(kernel=kernel, degree=9, random_state=0).fit(X, y)
    far = X.astype(np.float64) * (1e300 if kernel == "linear" else 1e12)
    with says(
        f"the scores of a row of X overflow (kernel={kernel!r}); its values must be of the size "
        "of those that fit saw: scale them alike."
    ):
        model.predict(sp.csr_array(far) if csr else far)


@pytest.mark.parametrize("layout", ["memory", "chunks", "sparse chunks"])
@pytest.mark.parametrize(("dtype", "size"), [("float32", 1e150), ("float64", 1e200)])
def test_rows_too_large_to_square(blobs, layout, dtype, size):
    X, y = blobs()
    X[60, 2] = -size
    if layout != "memory":
        X, y = da.from_array(X, chunks=(30, -1)), da.from_array(y, chunks=30)
    if layout == "sparse chunks":
        X = X.map_blocks(sp.csr_matrix, dtype=X.dtype, meta=sp.csr_matrix((0, 0)))
    sentence = (
        f"X has a value of magnitude {size:.1e}, whose square overflows {dtype}; scale the columns "
        "with sklearn.preprocessing.MaxAbsScaler."
    )
    if layout != "memory" and dtype == "float64":  # what no arithmetic can square is named by row
        sentence = (
            "X contains NaN, infinity or a value too large to square in row 60 (the chunk of rows "
            "60:90); fill the gaps, or drop those rows."
        )
    with says(sentence):
        LaRankSVC(gamma=0.5, dtype=dtype, random_state=0).fit(X, y)


def test_numbers_beyond_all_floats(blobs):
    X, y = blobs()
    with says(
        "C=1e+308 times the weights overflows float64; lower C, or divide sample_weight and "
        "class_weight by their mean."
    ):
        LaRankSVC(C=1e308, random_state=0).fit(X, y)
    with says(
        'gamma is "scale", and X has a variance of 1.2e-311, whose inverse overflows float64; '
        "scale the columns with sklearn.preprocessing.StandardScaler, or type a number for gamma."
    ):
        LaRankSVC().fit(1e-155 * X, y)
    with says(
        "kernel='poly' overflows float32 on a row of X; scale the columns with "
        "sklearn.preprocessing.MaxAbsScaler, or lower gamma."
    ):
        LaRankSVC(kernel="poly", degree=90, gamma=9.0).fit(X.astype(np.float32), y)
    huge = 10**400
    for name, needed in {
        "C": "a finite number above 0, for example C=1.0.",
        "coef0": "a finite number, for example coef0=1.0.",
        "degree": "an integer from 1 to 1000, for example degree=3.",
    }.items():
        with says(f"{name} is {huge}; it must be {needed}"):
            LaRankSVC(**{name: huge}).fit(X, y)
    plain = rbf().fit(X, y)
    for harmless in ({"cache_size": 1e305}, {"max_support": huge}):
        assert rbf().set_params(**harmless).fit(X, y).dual_ == plain.dual_


def test_chunks_of_columns_are_joined(blobs):
    X, y = blobs()
    whole, cut = (rbf().fit(da.from_array(X, chunks=(40, d)), y) for d in (5, 2))
    np.testing.assert_array_equal(whole.dual_coef_.toarray(), cut.dual_coef_.toarray())
