"""Early shrinking out of core: the optimum, whatever memory and threads there are."""

import math
import re
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from reference import solve
from training.out_of_core_runs import LITTLE, rows_and_labels, source_of

from dask_mcsvm.formulations import FORMULATIONS
from dask_mcsvm.storage import write_dataset
from dask_mcsvm.training import (
    ArraySource,
    DatasetSource,
    train_early_shrink,
)
from dask_mcsvm.training.runs import budget as budget_module
from dask_mcsvm.training.runs.active_rows import ActiveStore, by_class, join
from dask_mcsvm.training.table import BY_CHUNKS, solver_at

KINDS = [(False, "float64"), (True, "float32")]
every_kind = pytest.mark.parametrize(("csr", "dtype"), KINDS, ids=["dense-64", "csr-32"])


@pytest.fixture
def little_memory(monkeypatch):
    """Let a limit as small as the problems here be accepted."""
    monkeypatch.setattr(budget_module, "FIXED", 0)
    return LITTLE


def with_constant(X, tau):
    X = X.toarray() if sp.issparse(X) else X
    return np.hstack([np.float64(X), np.full((X.shape[0], 1), tau)])


@every_kind
@pytest.mark.parametrize("limited", [False, True], ids=["one-load", "many-loads"])
def test_it_reaches_the_optimum_of_the_reference(csr, dtype, limited, little_memory, tmp_path):
    weight = np.random.default_rng(1).choice([0.5, 1.0, 2.0], 600)
    source = source_of(csr=csr, dtype=dtype, weight=weight, block_rows=50)
    tol = 1e-5 if dtype == "float64" else 1e-4
    fit = train_early_shrink(
        source, C=0.1, tau=1.5, tol=tol, scratch=tmp_path,
        memory_limit=little_memory if limited else None,
    )  # fmt: skip
    loads = max(record["loads"] for record in fit.history)
    assert loads > 1 if limited else loads == 1
    Z = with_constant(source.X, 1.5)
    W, objective = solve("one_vs_rest", Z, source.y, 0.1 * weight, 3)
    assert fit.converged
    assert fit.stop == "gap"
    assert 0 <= fit.gap <= tol
    np.testing.assert_allclose(fit.primal, objective, rtol=2 * tol)
    np.testing.assert_allclose(fit.W, W, atol=20 * math.sqrt(tol) * np.abs(W).max())
    svm = FORMULATIONS["one_vs_rest"](3, 0.1 * weight)
    np.testing.assert_allclose(fit.primal, svm.primal(fit.W, Z, source.y), rtol=1e-12)
    assert list(tmp_path.iterdir()) == []


def test_two_classes_and_a_class_without_rows():
    X, y = rows_and_labels(k=2)
    fit = train_early_shrink(ArraySource(X, y, np.ones(600), 3, 100), C=0.1, tol=1e-6)
    _, objective = solve("one_vs_rest", with_constant(X, 1.0), y, np.full(600, 0.1), 3)
    np.testing.assert_allclose(fit.primal, objective, rtol=2e-6)
    # Nobody is of class 2: the constant alone says so.
    np.testing.assert_allclose(fit.W[:, 0], -fit.W[:, 1], atol=1e-2)


def test_a_row_of_weight_zero_is_no_row():
    X, y = rows_and_labels()
    weight = np.ones(600)
    weight[::3] = 0.0
    kept = weight > 0
    with_them = train_early_shrink(ArraySource(X, y, weight, 3, 100), C=0.1, tol=1e-7)
    without = train_early_shrink(
        ArraySource(X[kept], y[kept], weight[kept], 3, 100), C=0.1, tol=1e-7
    )
    np.testing.assert_allclose(with_them.primal, without.primal, rtol=1e-6)


def test_rows_without_features_cost_a_constant_and_the_gap_closes():
    X, y = rows_and_labels()
    X[:40] = 0.0
    fit = train_early_shrink(ArraySource(X, y, np.ones(600), 3, 100), C=0.1, tau=0.0, tol=1e-6)
    assert fit.gap <= 1e-6
    _, objective = solve("one_vs_rest", X[40:], y[40:], np.full(560, 0.1), 3)
    np.testing.assert_allclose(fit.primal, objective + 40 * 3 * 0.1, rtol=2e-6)
    np.testing.assert_array_equal(fit.W[-1], 0.0)


def test_blocks_sorted_by_class_and_an_empty_active_set():
    X, y = rows_and_labels()
    order = np.argsort(y, kind="stable")
    fit = train_early_shrink(ArraySource(X[order], y[order], np.ones(600), 3, 60), C=0.1, tol=1e-6)
    assert fit.gap <= 1e-6
    far = np.repeat(np.eye(3) * 10, 50, axis=0)  # separable at once: nobody stays free for long
    labels = np.repeat(np.arange(3), 50).astype(np.int32)
    assert train_early_shrink(ArraySource(far, labels, np.ones(150), 3, 50), tol=1e-6).gap <= 1e-6


def test_threads_change_nothing(little_memory):
    fits = [
        train_early_shrink(
            source_of(), C=0.1, seed=3, n_jobs=n, memory_limit=2 * little_memory, tol=1e-2
        )
        for n in (1, 2)
    ]
    assert fits[0].W.tobytes() == fits[1].W.tobytes()
    assert fits[0].gap == fits[1].gap
    other = train_early_shrink(source_of(), C=0.1, seed=4)
    assert other.W.tobytes() != fits[0].W.tobytes()


def test_a_dataset_on_disk_gives_what_its_rows_in_memory_give(tmp_path):
    X, y = rows_and_labels(csr=True, dtype="float32")
    weight = np.random.default_rng(2).random(600)
    labels = np.array(["a", "b", "c"])[y]
    dataset = write_dataset(tmp_path / "set", X, labels, sample_weight=weight, block_rows=100)
    factors = np.array([1.0, 2.0, 0.5])
    on_disk = DatasetSource(dataset, class_factors=factors)
    in_memory = ArraySource(X, y, weight * factors[y], 3, 100)
    np.testing.assert_array_equal(on_disk.entries(), in_memory.entries())
    fits = [train_early_shrink(source, C=0.1) for source in (on_disk, in_memory)]
    assert fits[0].W.tobytes() == fits[1].W.tobytes()
    assert fits[0].primal == fits[1].primal


def test_integers_become_float32_and_float64_stays(tmp_path):
    X, y = np.arange(60).reshape(20, 3) % 7, np.arange(20) % 2
    whole = write_dataset(tmp_path / "whole", X.astype(np.int16), y)
    wide = write_dataset(tmp_path / "wide", X.astype(np.float64), y)
    assert DatasetSource(whole).read(0).X.dtype == np.float32
    assert DatasetSource(wide).read(0).X.dtype == np.float64
    assert DatasetSource(wide, np.dtype("float32")).read(0).X.dtype == np.float32


def test_the_radius_is_the_largest_norm(tmp_path):
    X, y = rows_and_labels(csr=True)
    dataset = write_dataset(tmp_path / "set", X, y, block_rows=100)
    largest = np.sqrt(X.power(2).sum(axis=1)).max()
    sources = [DatasetSource(dataset), ArraySource(X, y, np.ones(600), 3, 100)]
    for source in sources:
        np.testing.assert_allclose(source.radius(), largest)
    named = train_early_shrink(sources[0], C=0.1, tau="radius")
    given = train_early_shrink(sources[0], C=0.1, tau=dataset.max_row_norm)
    assert named.W.tobytes() == given.W.tobytes()


def test_without_a_certificate_it_is_the_method_of_the_paper(tmp_path):
    source = source_of(n=2000)
    options = {"certify": False, "inner_passes": 5}
    fit = train_early_shrink(source, C=0.1, options=options, scratch=tmp_path)
    assert math.isnan(fit.gap)
    assert math.isnan(fit.primal)
    assert fit.stop == "dual"
    assert fit.converged
    kinds = [record["pass"] for record in fit.history]
    assert kinds == ["stream"] + ["active"] * (len(kinds) - 1)
    *_, before, last = (record["dual"] for record in fit.history)
    assert (last - before) / last <= 0.01
    best = train_early_shrink(source, C=0.1, tol=1e-5)
    assert 0.8 * best.dual < fit.dual < best.dual
    active = [record["active"] for record in fit.history]
    assert active == sorted(active, reverse=True)
    assert 0 < fit.dual_density < 1


def test_the_history_says_what_each_pass_did():
    fit = train_early_shrink(source_of(), C=0.1, tol=1e-4)
    first, last = fit.history[0], fit.history[-1]
    assert first["pass"] == "stream"
    assert first["epoch"] == 1.0
    assert last["certified"]
    assert last["gap"] == fit.gap
    assert fit.n_iter == math.ceil(last["epoch"])
    for record in fit.history:
        assert 0 <= record["active"] <= 1
        assert 0 <= record["active_rows"] <= 1
        assert record["rows_per_second"] > 0
        assert record["certified"] == (record["pass"] == "certify") == math.isfinite(record["gap"])
    duals = [record["dual"] for record in fit.history]
    assert all(b >= a - 1e-9 * abs(a) for a, b in pairwise(duals))


def test_it_ends_certified_at_max_epochs_and_when_called_back():
    short = train_early_shrink(source_of(), C=10.0, tol=1e-12, max_epochs=3)
    assert (short.stop, short.converged) == ("max_epochs", False)
    assert short.history[-1]["certified"]
    asked = train_early_shrink(source_of(), C=0.1, on_epoch=lambda record: True)
    assert asked.stop == "callback"
    assert [(record["pass"], record["certified"]) for record in asked.history] == [("stream", True)]


def test_tol_zero_runs_to_max_epochs():
    fit = train_early_shrink(source_of(n=200), C=0.1, tol=0.0, max_epochs=40)
    assert fit.stop == "max_epochs"
    assert fit.n_iter >= 40


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"cooling": True},
            "solver_options has 'cooling', which solver='early_shrink' does not know; "
            "use 'certify', 'inner_passes'.",
        ),
        ({"certify": 1}, "solver_options['certify'] is 1; use one of True, False."),
        (
            {"inner_passes": 0},
            "solver_options['inner_passes'] is 0; use an integer of 1 or more, or None.",
        ),
    ],
)
def test_unknown_options_are_refused(options, sentence):
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        solver_at("early_shrink", BY_CHUNKS).chosen(options)


# -- the active store ------------------------------------------------------------------------------


class Memory(dict):
    """A scratch folder without a folder."""

    def write(self, name, arrays):
        self[name] = {key: values.copy() for key, values in arrays.items()}

    def read(self, name):
        return dict(self[name])

    write_note, read_note = write, read


@pytest.mark.parametrize("csr", [False, True])
def test_rows_leave_the_store_when_no_class_holds_them_and_variables_never(csr):
    X, y = rows_and_labels(n=40, csr=csr)
    C, rng = np.ones(40), np.random.default_rng(0)
    store = ActiveStore(Memory(), 2, 8, X.dtype, csr)
    held = [rng.permutation(20)[:12].astype(np.int32) for _ in range(6)]
    rest = [np.setdiff1d(np.arange(20), ids).astype(np.int32)[:3] for ids in held]
    for b in range(2):
        rows = slice(20 * b, 20 * b + 20)
        lists = [
            by_class((ids, ids + 1.0) for ids in part[3 * b : 3 * b + 3]) for part in (held, rest)
        ]
        store.put(b, X[rows], y[rows], C[rows], *lists)
    load = store.open([1, 0], tau=1.0)
    assert load.lists.ids.size == store.variables.sum() == 72
    load.awake[:] = load.lists.ids % 4 == 0
    load.lists.alpha[:] += 0.5
    store.close(load)
    kept = store.open([0, 1], tau=1.0)
    assert kept.lists.ids.size == load.awake.sum()
    assert store.rows.sum() < 40  # those that nobody holds were left out ...
    for b in range(2):
        piece = store.piece(b)
        for m in range(3):  # ... but each variable is still there, once, with its value
            ids, alpha = piece.held.of(m)
            left, values = piece.rest.of(m)
            found = dict(zip(piece.places[ids].tolist(), alpha.tolist(), strict=True))
            found |= dict(zip(left.tolist(), values.tolist(), strict=True))
            expected = {i: i + 1.5 for i in held[3 * b + m].tolist()}
            expected |= {i: i + 1.0 for i in rest[3 * b + m].tolist()}
            assert found == expected
        rows = kept.block.rows
        mine = slice(kept.bases[b], kept.bases[b + 1])
        dense = rows[mine] if not csr else sp.csr_array(rows, shape=(store.rows.sum(), 8))[mine]
        original = X[20 * b + piece.places]
        assert (abs(dense - original)).max() == 0


def test_joined_lists_keep_their_order_within_a_class():
    one = by_class([(np.array([3, 1]), np.array([0.3, 0.1])), (np.array([2]), np.array([0.2]))])
    two = by_class([(np.array([7]), np.array([0.7])), (np.array([5]), np.array([0.5]))])
    both = join([one, two])
    np.testing.assert_array_equal(both.indptr, [0, 3, 5])
    np.testing.assert_array_equal(both.ids, [3, 1, 7, 2, 5])
    np.testing.assert_array_equal(both.alpha, [0.3, 0.1, 0.7, 0.2, 0.5])


def test_pieces_are_loaded_as_many_at_a_time_as_fit():
    store = ActiveStore(Memory(), 4, 10, np.dtype("float32"), False)
    store.rows[:], store.entries[:], store.variables[:] = [10, 0, 10, 10], [100, 0, 100, 100], 0
    size = int(store.nbytes()[0])
    order = np.array([3, 1, 0, 2])
    assert store.loads(math.inf, order) == [[3, 0, 2]]
    assert store.loads(2 * size, order) == [[3, 0], [2]]
    assert store.loads(1, order) == [[3], [0], [2]]  # a piece is never cut
