"""Rows laid out for visits: one record a row, on one line of the cache, whatever the float type."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_mcsvm.solvers.kernels.dual_variables import SparseAlpha, empty_alpha
from dask_mcsvm.solvers.kernels.rows import as_rows, square_norms
from dask_mcsvm.solvers.sdm.sweeps import Data
from dask_mcsvm.solvers.sdm.table import LINE, PLACES, Table, record_type

float_types = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def lay(n, dtype, *, sparse, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.random((n, 3)).astype(dtype)
    y, C = rng.integers(0, 4, n).astype(np.int32), rng.random(n).astype(dtype)
    data = Data(as_rows(X), y, C, square_norms(as_rows(X), n, 1.0), X.dtype.type(1))
    alpha = empty_alpha(n, 4, X.dtype, sparse=sparse)
    if sparse:
        alpha.start[:], alpha.room[:] = 2 * np.arange(n), 2
        alpha.size[:], alpha.used[0] = rng.integers(0, 3, n), 2 * n
    preference, seen = rng.random(n), rng.random((n, 2))
    table = Table.lay(data, alpha, preference, seen, np.zeros(1))
    return table, data, alpha, preference, seen


@float_types
def test_a_record_is_one_line_of_the_cache(dtype):
    kind = record_type(np.dtype(dtype))
    assert kind.itemsize == LINE
    for name in ("square", "seen", "preference", "C", "y", "start", "size", "room"):
        form, offset = kind.fields[name][:2]
        assert offset % form.base.itemsize == 0
    table = lay(5, dtype, sparse=True)[0]
    fields = (table.data.y, table.data.C, table.data.square, table.preference, table.seen)
    assert {array.strides[0] for array in fields} == {LINE}
    lines = {array.ctypes.data // LINE for array in (*fields, *table.alpha[:3])}
    assert len(lines) == 1


@given(n=st.integers(0, 9), sparse=st.booleans(), wide=st.booleans(), seed=st.integers(0, 99))
def test_a_table_holds_what_was_laid_there_and_is_a_copy(n, sparse, wide, seed):
    dtype = np.float64 if wide else np.float32
    table, data, alpha, preference, seen = lay(n, dtype, sparse=sparse, seed=seed)
    for name in ("y", "C", "square"):
        field = getattr(table.data, name)
        np.testing.assert_array_equal(field, getattr(data, name))
        assert field.dtype == getattr(data, name).dtype
        assert not field.flags.writeable
    np.testing.assert_array_equal(table.preference, preference)
    np.testing.assert_array_equal(table.seen, seen)
    if not sparse:
        assert table.variables is alpha
        return
    for name in PLACES:
        np.testing.assert_array_equal(getattr(table.variables, name), getattr(alpha, name))
        assert getattr(table.variables, name).flags.c_contiguous
        getattr(table.alpha, name)[:] += 1
        assert not np.array_equal(getattr(table.alpha, name), getattr(alpha, name)) or n == 0
    assert isinstance(table.variables, SparseAlpha)
    assert table.alpha.values is alpha.values
