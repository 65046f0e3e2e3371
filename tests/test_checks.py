"""Arrays before compiled code reads them: every damage of a sparse matrix, every range."""

import re

import numpy as np
import pytest
import scipy.sparse as sp

from dask_mcsvm.checks import check_range, check_rows_range, check_sparse, positive_range

DENSE = np.array([[1.0, 0.0, 2.0], [0.0, 3.0, 0.0], [4.0, 0.0, 0.0], [0.0, 0.0, 5.0]])


def says(sentence):
    return pytest.raises(ValueError, match="^" + re.escape(sentence) + "$")


def damaged(kind, **arrays):
    """DENSE in a format of SciPy, some of whose arrays were exchanged behind its back."""
    X = sp.coo_array(DENSE).asformat(kind)
    for name, values in arrays.items():
        setattr(X, name, np.array(values))
    return X


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "bsr", "dia", "lil", "dok"])
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_whole_matrices_pass(kind, index):
    X = sp.coo_array(DENSE).asformat(kind)
    if hasattr(X, "indptr"):
        X.indices, X.indptr = X.indices.astype(index), X.indptr.astype(index)
    check_sparse(X)
    check_sparse(sp.csr_array((3, 2)).asformat(kind))
    check_sparse(DENSE)


def test_room_for_more_entries_and_unsorted_rows_are_no_damage():
    X = sp.csr_array(DENSE)
    X.data, X.indices = np.append(X.data, 7.0), np.append(X.indices, 99)
    X.indices[:2] = X.indices[1::-1].copy()
    check_sparse(X)


@pytest.mark.parametrize(
    ("X", "fault"),
    [
        (damaged("csr", indices=[0, 2, 1, 0, 3]), "indices must be integers from 0 to 2"),
        (damaged("csr", indices=[0, 2, -1, 0, 2]), "indices must be integers from 0 to 2"),
        (damaged("csr", indices=[0.0, 2, 1, 0, 2]), "indices must be integers from 0 to 2"),
        (damaged("csr", indptr=[0, 2, 1, 4, 5]), "indptr must begin at 0 and never decrease"),
        (damaged("csr", indptr=[-1, 2, 3, 4, 5]), "indptr must begin at 0 and never decrease"),
        (damaged("csr", indptr=[1, 2, 3, 4, 5]), "indptr must begin at 0 and never decrease"),
        (damaged("csr", indptr=[0, 2, 3, 4]), "indptr has shape (4,) and must have 5 integers"),
        (
            damaged("csr", indptr=[0, 2, 3, 4, 10**9]),
            "indptr ends at 1000000000, but only 5 entries are there",
        ),
        (damaged("csr", data=[1.0, 2.0]), "indptr ends at 5, but only 2 entries are there"),
        (damaged("csr", indices=[0, 2]), "indptr ends at 5, but only 2 entries are there"),
        (damaged("csc", indices=[0, 2, 1, 0, 4]), "indices must be integers from 0 to 3"),
        (damaged("csc", indptr=[0, 3, 2, 5]), "indptr must begin at 0 and never decrease"),
        (damaged("bsr", indices=[0, 2, 1, 0, 3]), "indices must be integers from 0 to 2"),
        (damaged("dia", offsets=[0]), "offsets must have one number per row of data"),
    ],
)
def test_a_damaged_matrix_is_named(X, fault):
    kind = X.format
    with says(
        f"X ({kind.upper()}) is damaged: {fault}; build it again, for example with "
        f"scipy.sparse.{kind}_array(dense)."
    ):
        check_sparse(X)


@pytest.mark.parametrize(("axis", "size"), [(0, 4), (1, 3)])
def test_coordinates_outside_are_named(axis, size):
    X = sp.coo_array(DENSE)
    X.coords[axis][0] = size
    with says(
        f"rows 2:6 (COO) is damaged: {('row', 'col')[axis]} must hold 5 numbers below {size}; "
        "build it again, for example with scipy.sparse.coo_array(dense)."
    ):
        check_sparse(X, "rows 2:6")


# -- ranges ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_usual_numbers_pass(dtype):
    check_range((1e-6, 1e6), 1e6, 1.0, dtype)
    check_range((1e-6, 1e6), 0.0, 0.0, dtype, are_zero=True)


@pytest.mark.parametrize(
    ("costs", "norm", "tau", "dtype", "sentence"),
    [
        ((1.0, 1e39), 1.0, 1.0, "float32", "C times the weight of a row is 1.0e+39, and float32 "
         "takes 7.9e-31 to 1.3e+30; change C or the weights (0 leaves a row out), or type "
         'dtype="float64".'),
        ((1e-46, 1.0), 1.0, 1.0, "float32", "C times the weight of a row is 1.0e-46, and float32 "
         "takes 7.9e-31 to 1.3e+30; change C or the weights (0 leaves a row out), or type "
         'dtype="float64".'),
        ((1.0, np.inf), 1.0, 1.0, "float64", "C times the weight of a row is inf, and float64 "
         "takes 3.9e-121 to 2.6e+120; change C or the weights (0 leaves a row out)."),
        ((1.0, np.nan), 1.0, 1.0, "float64", "C times the weight of a row is nan, and float64 "
         "takes 3.9e-121 to 2.6e+120; change C or the weights (0 leaves a row out)."),
        ((1.0, 1.0), 1.0, 1e200, "float64", "intercept_scaling is 1.0e+200, whose square is inf, "
         "and float64 takes 3.9e-121 to 2.6e+120; use a value nearer to 1, or "
         "fit_intercept=False."),
        ((1.0, 1.0), 1.0, 1e-200, "float32", "intercept_scaling is 1.0e-200, whose square is "
         "0.0e+00, and float32 takes 7.9e-31 to 1.3e+30; use a value nearer to 1, or "
         'fit_intercept=False, or type dtype="float64".'),
        ((1e20, 1e20), 1e10, 0.0, "float32", "C times the largest squared norm of a row is "
         "1.0e+40, and float32 takes 7.9e-31 to 1.3e+30; scale the columns of X with "
         'sklearn.preprocessing.StandardScaler, or change C, or type dtype="float64".'),
        ((1.0, 1.0), 1e-170, 0.0, "float64", "C times the largest squared norm of a row is "
         "0.0e+00, and float64 takes 3.9e-121 to 2.6e+120; scale the columns of X with "
         "sklearn.preprocessing.StandardScaler, or change C."),
    ],
)  # fmt: skip
def test_what_a_float_type_cannot_hold_is_named(costs, norm, tau, dtype, sentence):
    with says(sentence):
        check_range(costs, norm, tau, dtype)


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
def test_a_bound_on_the_norms_never_refuses_what_the_norms_allow(container):
    """40 values of 1e14 in one row would be too large, one each in 40 rows is not."""
    check_rows_range(container(1e14 * np.eye(40, dtype=np.float32)), (1.0, 10.0), 0.0)
    with pytest.raises(ValueError, match=r"^C times the largest squared norm of a row is 4.0e\+3"):
        check_rows_range(container(np.full((1, 40), 1e14, np.float32)), (1.0, 10.0), 0.0)


def test_weights_of_zero_are_no_small_weights():
    assert positive_range([0.0, 3.0, 0.5]) == (0.5, 3.0)
