"""Scores agree with scikit-learn's, however the rows are cut."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import confusion_matrix, f1_score

from dask_mcsvm.report import Tally

labels = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=40)


@given(labels, st.integers(1, 40))
def test_f1_is_that_of_scikit_learn(pairs, cut):
    y, predicted = np.array(pairs).T
    tally = Tally(np.arange(4))  # 4 and 5 are labels that the model has never heard of
    for start in range(0, len(y), cut):
        tally.add(y[start : start + cut], predicted[start : start + cut])
    scores = tally.scores()
    present = np.union1d(y, predicted)
    f1 = dict(zip(scores.labels, scores.f1, strict=True))
    expected = f1_score(y, predicted, labels=present, average=None, zero_division=0)
    np.testing.assert_allclose([f1[label] for label in present], expected)
    assert scores.macro_f1 == pytest.approx(f1_score(y, predicted, average="macro"))
    assert scores.accuracy == pytest.approx(f1_score(y, predicted, average="micro"))
    table = confusion_matrix(y, predicted, labels=range(6))
    np.fill_diagonal(table, 0)
    assert {(a, b): n for a, b, n in scores.mistakes} == {
        (a, b): table[a, b] for a, b in np.argwhere(table).tolist()
    }
    assert [n for *_, n in scores.mistakes] == sorted((table[table > 0]).tolist(), reverse=True)


def test_classes_without_rows_do_not_count():
    tally = Tally(np.array(["a", "b", "c"]))
    tally.add(["a", "b"], ["a", "a"])
    scores = tally.scores()
    assert scores.seen.tolist() == [True, True, False]
    assert np.isnan(scores.f1[2])
    assert scores.macro_f1 == pytest.approx(1 / 3)
    assert scores.as_dict() == {
        "rows": 2,
        "training_rows": False,
        "accuracy": 0.5,
        "micro_f1": 0.5,
        "macro_f1": pytest.approx(1 / 3),
        "confused": [{"true": "b", "predicted": "a", "rows": 1}],
    }


def test_bad_input_is_refused():
    tally = Tally(np.arange(2))
    with pytest.raises(ValueError, match=r"^there are no rows to score; pass at least one\.$"):
        tally.scores()
    text = r"^y has shape \(2,\), the predictions \(3,\); pass one label per row\.$"
    with pytest.raises(ValueError, match=text):
        tally.add([0, 1], [0, 1, 1])
