"""Lazy predictions: the answers of one product, whatever the row chunks and parts of the model."""

import dask
import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp

from dask_mcsvm.graphs import predict as predict_module
from dask_mcsvm.graphs.predict import (
    Model,
    ModelPart,
    decision_function,
    predict,
    predict_topk,
)

CHUNKS = (7, 0, 13)
TAU = 2.0


def weights(k=6, d=5, dtype="float64", seed=0):
    """Small integers, so that products are exact and rows have ties."""
    return np.random.default_rng(seed).integers(-2, 3, size=(d + 1, k)).astype(dtype)


def rows(kind="dense", d=5, dtype="float64", chunks=CHUNKS):
    X = np.random.default_rng(1).integers(-1, 2, size=(sum(chunks), d)).astype(dtype)
    lazy = da.from_array(X, chunks=(chunks, (d,)))
    if kind != "dense":
        form = getattr(sp, kind)
        lazy = lazy.map_blocks(form, dtype=X.dtype, meta=form((0, d), dtype=X.dtype))
    return X, lazy


def cut(W, groups, formulation="weston_watkins", *, delayed=False):
    """A model of the given groups of classes."""
    parts = []
    for group in groups:
        columns = np.ascontiguousarray(W[:, group])
        parts.append(ModelPart(tuple(group), dask.delayed(columns) if delayed else columns))
    return Model(tuple(parts), TAU, W.dtype, formulation)


def expected_scores(X, W):
    return X.astype(W.dtype) @ W[:-1] + W.dtype.type(TAU) * W[-1]


every_cut = pytest.mark.parametrize(
    "groups",
    [[range(6)], [(0, 3), (1, 4, 5), (2,)], [(m,) for m in range(6)]],
    ids=["one", "three", "single-classes"],
)
every_kind = pytest.mark.parametrize("kind", ["dense", "csr_array", "csr_matrix"])


@every_cut
@every_kind
@pytest.mark.parametrize("delayed", [False, True])
def test_scores_predictions_and_topk_are_those_of_one_product(groups, kind, delayed):
    W, (X, lazy) = weights(), rows(kind)
    model, scores = cut(W, groups, delayed=delayed), expected_scores(X, W)
    names = np.array(["ape", "bee", "cat", "dog", "elk", "fox"])
    decision = decision_function(lazy, model)
    assert decision.chunks == (CHUNKS, (6,))
    np.testing.assert_array_equal(decision.compute(), scores)
    predicted = predict(lazy, model, names)
    assert predicted.dtype == names.dtype
    assert predicted.chunks == (CHUNKS,)
    np.testing.assert_array_equal(predicted.compute(), names[scores.argmax(axis=1)])
    best = predict_topk(lazy, model, names, 4)
    assert best.chunks == (CHUNKS, (4,))
    order = np.argsort(-scores, axis=1, kind="stable")[:, :4]  # ties by class
    np.testing.assert_array_equal(best.compute(), names[order])


def test_the_rows_do_have_ties():
    scores = expected_scores(rows()[0], weights())
    assert np.any(np.sum(scores == scores.max(axis=1, keepdims=True), axis=1) > 1)


@pytest.mark.parametrize("formulation", ["crammer_singer", "one_vs_rest"])
@pytest.mark.parametrize("groups", [[(0, 1)], [(0,), (1,)]])
def test_two_classes_have_one_number_per_row(formulation, groups):
    W, (X, lazy) = weights(2), rows()
    model, scores = cut(W, groups, formulation), expected_scores(X, W)
    one = scores[:, 1] if formulation == "one_vs_rest" else scores[:, 1] - scores[:, 0]
    decision = decision_function(lazy, model)
    assert decision.chunks == (CHUNKS,)
    np.testing.assert_array_equal(decision.compute(), one)
    classes = np.array([10, 20])
    np.testing.assert_array_equal(
        predict(lazy, model, classes).compute(), np.where(one > 0, 20, 10)
    )
    both = predict_topk(lazy, model, classes, 2).compute()
    np.testing.assert_array_equal(both[:, 0], np.where(one > 0, 20, 10))
    np.testing.assert_array_equal(both.sum(axis=1), 30)


def test_scores_have_the_dtype_of_the_model():
    W, (X, lazy) = weights(dtype="float32"), rows(dtype="int64")
    decision = decision_function(lazy, cut(W, [(0, 1, 2), (3, 4, 5)]))
    assert decision.dtype == np.float32
    computed = decision.compute()
    assert computed.dtype == np.float32
    np.testing.assert_array_equal(computed, expected_scores(X, W))


def test_row_blocks_larger_than_the_limit_are_scored_in_pieces(monkeypatch):
    monkeypatch.setattr(predict_module, "BLOCK_BYTES", 100)
    W, (X, lazy) = weights(), rows("csr_array")
    model, scores = cut(W, [(0, 1), (2, 3, 4, 5)]), expected_scores(X, W)
    answer = predict(lazy, model, np.arange(6)).compute(scheduler="sync")
    np.testing.assert_array_equal(answer, scores.argmax(axis=1))


def test_chunks_of_unknown_length():
    W, (X, lazy) = weights(), rows()
    some = lazy[da.from_array(X[:, 0] > 0, chunks=(CHUNKS,))]
    assert np.isnan(some.chunks[0]).all()
    model = cut(W, [(0, 1), (2, 3, 4, 5)])
    expected = expected_scores(X[X[:, 0] > 0], W)
    np.testing.assert_array_equal(decision_function(some, model).compute(), expected)
    answer = predict(some, model, np.arange(6)).compute()
    np.testing.assert_array_equal(answer, expected.argmax(axis=1))


def test_a_task_sees_one_row_block_and_one_part_and_nothing_runs_before_compute():
    touched = []
    _, lazy = rows()
    watched = lazy.map_blocks(
        lambda x: touched.append(1) or x, dtype=lazy.dtype, meta=np.empty((0, 0))
    )
    model = cut(weights(), [(0, 1), (2, 3), (4, 5)], delayed=True)
    answer = predict(watched, model, np.arange(6))
    assert touched == []
    graph = answer.__dask_graph__().layers[answer.name]
    looks = [task for key, task in graph.items() if key[0].startswith("predict-part-")]
    assert len(looks) == 3 * 3
    assert all(len(task.dependencies) == 2 for task in looks)


def test_equal_calls_have_equal_names_and_others_do_not():
    _, lazy = rows()
    model = cut(weights(), [range(6)])
    assert decision_function(lazy, model).name == decision_function(lazy, model).name
    other = cut(weights(seed=1), [range(6)])
    assert decision_function(lazy, model).name != decision_function(lazy, other).name
    tops = {predict_topk(lazy, model, np.arange(6), top).name for top in (1, 2, 3)}
    assert len(tops) == 3


def test_rows_split_along_features_are_refused():
    _, lazy = rows()
    message = r"X is split along features \(chunks \(\(3, 2\),\)\); rows must stay whole. Use X.rec"
    with pytest.raises(ValueError, match=message):
        decision_function(lazy.rechunk({1: 3}), cut(weights(), [range(6)]))


@pytest.mark.parametrize("top", [0, 7])
def test_more_classes_than_there_are_are_refused(top):
    _, lazy = rows()
    with pytest.raises(ValueError, match=f"top={top}; the model has 6 classes, use 1 to that many"):
        predict_topk(lazy, cut(weights(), [range(6)]), np.arange(6), top)


@pytest.mark.parametrize("groups", [[(0, 1), (1, 2)], [(0, 2)], [(1, 0), (2,)]])
def test_parts_must_hold_every_class_once(groups):
    with pytest.raises(ValueError, match="every class once, in ascending order"):
        cut(weights(3), groups)
