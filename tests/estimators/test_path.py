"""A path over C: seeded, certified, scored."""

import re
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from dask_mcsvm import LinearMCSVC
from dask_mcsvm.estimators import PathResult

CS = [0.01, 0.1, 1.0, 10.0]


def test_each_model_is_that_of_its_own_fit(blobs, formulation):
    X, y = blobs()
    exact = LinearMCSVC(formulation=formulation, tol=1e-9, max_epochs=100_000, random_state=0)
    found = exact.path(X, y, CS[::-1])
    assert found.Cs == tuple(CS)
    for C, model in zip(CS, found.models, strict=True):
        alone = clone(exact).set_params(C=C).fit(X, y)
        assert model.C == C
        assert model.gap_ <= 1e-9
        assert model.primal_ == pytest.approx(alone.primal_, rel=1e-8)


def test_seeding_saves_epochs(blobs, formulation):
    X, y = blobs()
    model = LinearMCSVC(formulation=formulation, tol=1e-4, max_epochs=10_000, random_state=0)
    costs = np.geomspace(1.0, 2.0, 5)
    seeded = sum(m.n_iter_ for m in model.path(X, y, costs).models)
    cold = sum(clone(model).set_params(C=C).fit(X, y).n_iter_ for C in costs)
    assert seeded < cold


def test_the_estimator_stays_as_it_was(blobs):
    X, y = blobs()
    unfitted = LinearMCSVC(C=5.0, random_state=0)
    before = vars(unfitted).copy()
    unfitted.path(X, y, [0.1])
    assert vars(unfitted) == before


def test_without_validation_there_is_no_best(blobs):
    X, y = blobs()
    found = LinearMCSVC(random_state=0).path(X, y, [0.1, 1.0])
    assert isinstance(found, PathResult)
    assert found.scores is None
    assert found.best_index is None
    assert found.best_ is None
    assert [len(h) for h in found.histories] == [len(m.history_) for m in found.models]
    with pytest.raises(FrozenInstanceError):
        found.Cs = ()


@pytest.mark.parametrize("layout", [np.asarray, sp.csr_array])
def test_a_pair_of_validation_rows_picks_the_best(blobs, layout):
    X, y = blobs(n_samples=200)
    labels = np.array(["a", "b", "c"])[y]
    X = layout(X)
    found = LinearMCSVC(random_state=0).path(
        X[:100], labels[:100], CS, validation=(X[100:], labels[100:])
    )
    expected = [model.score(X[100:], labels[100:]) for model in found.models]
    assert found.scores.tolist() == expected
    assert found.best_index == int(np.argmax(expected))
    assert found.best_ is found.models[found.best_index]


@pytest.mark.parametrize("layout", [np.asarray, sp.csr_array])
def test_a_share_of_the_rows_is_held_back(blobs, layout):
    X, y = blobs(n_samples=200)
    model = LinearMCSVC(random_state=3)
    found = model.path(layout(X), y, CS, validation=0.25)
    assert all(m._trained.n_given == 150 for m in found.models)
    assert found.best_.score(X, y) > 0.7
    again = model.path(layout(X), y, CS, validation=0.25)
    assert again.scores.tolist() == found.scores.tolist()


def test_names_of_columns_are_kept_when_rows_are_held_back(blobs):
    pd = pytest.importorskip("pandas")
    X, y = blobs()
    frame = pd.DataFrame(X, columns=list("abcde"))
    found = LinearMCSVC(random_state=0).path(
        frame, y, [0.1, 1.0], validation=0.3
    )  # and no warning about names
    assert found.best_.feature_names_in_.tolist() == list("abcde")


def test_a_class_with_one_row_stays_among_those_to_learn_from(blobs):
    X, y = blobs()
    y[0] = 3
    for seed in range(5):
        found = LinearMCSVC(random_state=seed).path(X, y, [1.0], validation=0.5)
        assert found.best_._trained.totals[3] == 1.0


@pytest.mark.parametrize("validation", [None, 0.25])
def test_early_shrinking_fits_one_after_another(blobs, validation):
    """It keeps no dual variables that the next fit could start from."""
    X, y = blobs(n_samples=200)
    labels, weights = np.array(["a", "b", "c"])[y], np.arange(200) % 3
    model = LinearMCSVC(formulation="ovr", solver="early_shrink", random_state=0)
    found = model.path(X, labels, [1.0, 0.1], validation, weights)
    assert found.Cs == (0.1, 1.0)
    if validation is None:
        for C, fitted in zip(found.Cs, found.models, strict=True):
            alone = clone(model).set_params(C=C).fit(X, labels, weights)
            np.testing.assert_array_equal(fitted.coef_, alone.coef_)
            assert fitted.certify(X, labels, weights).relative_gap <= model.tol
    else:
        assert found.best_.score(X, labels) > 0.7
    with pytest.raises(ValueError, match=r"^checkpoint holds one fit, and a path is several; "):
        model.set_params(checkpoint="folder").path(X, labels, [1.0])


def test_weights_reach_every_model(blobs):
    X, y = blobs()
    weights = np.arange(y.size) % 3
    found = LinearMCSVC(random_state=0).path(X, y, [0.1, 1.0], sample_weight=weights)
    for model in found.models:
        assert model.certify(X, y, weights).relative_gap <= model.tol


@pytest.mark.parametrize(
    ("Cs", "validation", "message"),
    [
        ([], None, "Cs is []; it must be a list of numbers above 0, "
         "for example Cs=[0.01, 0.1, 1.0]."),
        (1.0, None, "Cs is 1.0; it must be a list of numbers above 0, "
         "for example Cs=[0.01, 0.1, 1.0]."),
        ([1.0, -1.0], None, "Cs is -1.0; it must be a finite number above 0, "
         "for example Cs=[0.01, 0.1, 1.0]."),
        ([1.0], "half", "validation is 'half'; it must be a finite number above 0, for example "
         "validation=0.2, or validation=(X_val, y_val)."),
        ([1.0], (1, 2, 3), "validation is '3 objects'; it must be a pair (X_val, y_val) or a share "
         "of the rows, for example validation=0.2."),
        ([1.0], 0.99, "validation=0.99 of 90 rows is 89; it must leave a row of each class to "
         "learn from and at least one to score on: between 1 and 87 rows."),
    ],
)  # fmt: skip
def test_bad_paths_are_refused(blobs, Cs, validation, message):
    X, y = blobs()
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        LinearMCSVC(random_state=0).path(X, y, Cs, validation=validation)
