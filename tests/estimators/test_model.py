"""A fitted model: prediction, certificate, storage."""

import pickle
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
import scipy.sparse as sp

from dask_mcsvm import LinearMCSVC
from dask_mcsvm.errors import CertificateError
from dask_mcsvm.estimators._predict import BLOCK_BYTES, top_places

# Prediction -------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 5])
def test_predictions_agree_with_the_scores(blobs, formulation, n_classes):
    X, y = blobs(n_classes)
    model = LinearMCSVC(formulation=formulation, tol=0.3, random_state=0).fit(X, y)
    scores = model.decision_function(X)
    best = (scores > 0).astype(int) if n_classes == 2 else scores.argmax(axis=1)
    np.testing.assert_array_equal(model.predict(X), best)
    ranked = model.predict_topk(X, n_classes)
    np.testing.assert_array_equal(ranked[:, 0], best)
    np.testing.assert_array_equal(np.sort(ranked, axis=1), np.tile(model.classes_, (len(X), 1)))
    np.testing.assert_array_equal(model.predict_topk(X, 1)[:, 0], best)
    if n_classes > 2:
        ordered = np.take_along_axis(scores, ranked, axis=1)
        assert np.all(np.diff(ordered, axis=1) <= 0)


def test_ties_go_to_the_first_class():
    scores = np.array([[0.0, 0.0, 0.0, 0.0], [1.0, 2.0, 2.0, 2.0], [3.0, 1.0, 2.0, 1.0]])
    for top in (1, 2, 3, 4):
        expected = np.argsort(-scores, axis=1, kind="stable")[:, :top]
        np.testing.assert_array_equal(top_places(scores, top), expected)


def test_blocks_of_rows_give_the_same_scores(blobs):
    X, y = blobs()
    model = LinearMCSVC(random_state=0).fit(X, y)
    many = np.tile(X, (BLOCK_BYTES // (3 * 8 * len(X)) + 2, 1))  # more than one block of scores
    np.testing.assert_allclose(
        model.decision_function(many)[-len(X) :], model.decision_function(X), rtol=1e-12
    )
    np.testing.assert_array_equal(model.predict(many)[-len(X) :], model.predict(X))


def test_a_sparsified_model_predicts_the_same(blobs, formulation):
    X, y = blobs()
    model = LinearMCSVC(formulation=formulation, random_state=0).fit(X, y)
    scores, coef = model.decision_function(X), model.coef_.copy()
    assert sp.issparse(model.sparsify().coef_)
    for rows in (X, sp.csr_array(X)):
        np.testing.assert_allclose(model.decision_function(rows), scores, rtol=1e-12, atol=1e-14)
    model.densify()
    np.testing.assert_array_equal(model.coef_, coef)
    assert model.coef_.T.flags.c_contiguous
    np.testing.assert_allclose(model.decision_function(sp.csr_array(X)), scores, atol=1e-14)


def test_a_pickled_model_predicts_the_same(blobs, formulation):
    X, y = blobs()
    model = LinearMCSVC(formulation=formulation, random_state=0, warm_start=True).fit(X, y)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.decision_function(X), model.decision_function(X))
    assert again.certify(X, y) == model.certify(X, y)
    assert again.fit(X, y).gap_ <= again.tol  # the dual variables travel too


# The certificate --------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_certify_proves_what_the_fit_said(blobs, formulation, dtype):
    X, y = blobs()
    weights = np.arange(y.size) % 3
    model = LinearMCSVC(
        formulation=formulation, dtype=dtype, class_weight="balanced", random_state=0
    )
    model.fit(X, y, sample_weight=weights)
    order = np.random.default_rng(0).permutation(y.size)
    proof = model.set_params(C=77.0).certify(X[order], y[order], weights[order])
    assert proof.dual == model.dual_
    assert proof.primal == pytest.approx(model.primal_, rel=1e-5 if dtype == "float32" else 1e-9)
    assert proof.relative_gap == pytest.approx(model.gap_, rel=1e-2, abs=1e-6)
    assert proof.gap == pytest.approx(proof.primal - proof.dual)
    assert model.sparsify().certify(X, y, weights).primal == pytest.approx(proof.primal, rel=1e-9)
    with pytest.raises(FrozenInstanceError):
        proof.gap = 0.0


def test_an_edited_model_has_a_larger_gap(blobs, formulation):
    X, y = blobs()
    model = LinearMCSVC(formulation=formulation, random_state=0).fit(X, y)
    before = model.certify(X, y)
    model.coef_ = 0.5 * model.coef_
    after = model.certify(X, y)
    assert after.dual == before.dual
    assert after.gap > before.gap


def test_certify_refuses_rows_that_are_not_those_of_the_fit(blobs):
    X, y = blobs()
    model = LinearMCSVC(fit_intercept=False, random_state=0).fit(X, y)
    with pytest.raises(CertificateError, match=r"^X has 89 rows, but the fit had 90; the cert"):
        model.certify(X[1:], y[1:])
    with pytest.raises(CertificateError, match=r"^y or sample_weight are not those of the fit; "):
        model.certify(X, np.roll(np.sort(y), 3) % 2)
    with pytest.raises(CertificateError, match=r"^y or sample_weight are not those of the fit; "):
        model.certify(X, y, np.full(90, 2.0))
    with pytest.raises(CertificateError, match=r"^the primal .* are not the training rows; pass"):
        model.certify(5 * X, y)  # much easier: every margin is met
    with pytest.raises(ValueError, match=r"^X has 4 features, but LinearMCSVC is expecting 5 fea"):
        model.certify(X[:, 1:], y)
    with pytest.raises(ValueError, match=r"^y has 1 label\(s\) that are not in classes \(7\);"):
        model.certify(X, np.where(y == 2, 7, y))
    model.intercept_ = np.ones(3)
    with pytest.raises(CertificateError, match=r"^intercept_ is not zero, but the fit had fit_in"):
        model.certify(X, y)


def test_lee_lin_wahba_has_no_certificate_outside_its_domain(blobs):
    X, y = blobs()
    model = LinearMCSVC(formulation="llw", random_state=0).fit(X, y)
    model.coef_ = model.coef_ - 1.0  # all scores down: less loss, but the sum is not zero
    with pytest.raises(CertificateError, match="those of lee_lin_wahba must sum to zero: subtract"):
        model.certify(X, y)
