"""The smallest model within a gap, and the features that speak for a label."""

import re
from pathlib import Path

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from training.sets import lazy, small_set, svm

from dask_mcsvm import LinearMCSVC
from dask_mcsvm.errors import CertificateError
from dask_mcsvm.formulations import FORMULATIONS
from dask_mcsvm.storage import write_dataset

TIED = "lee_lin_wahba"


def model_of(X, y, **parameters):
    return LinearMCSVC(**{"C": 0.3, "random_state": 0} | parameters).fit(X, y)


@pytest.mark.parametrize("formulation", [name for name in FORMULATIONS if name != TIED])
def test_a_pruned_model_is_smaller_certified_and_a_copy(formulation, tmp_path: Path):
    X, y = small_set(d=40)
    X[:, 20:] *= 0.05  # features that hardly matter
    X[:, -1] = 0.0
    model = model_of(X, y, formulation=formulation)
    before = model.coef_.copy()
    small = model.prune(sp.csr_array(X), y, max_gap=2e-2)
    np.testing.assert_array_equal(model.coef_, before)
    assert model.density_ == 39 / 40
    assert small.density_ < 0.9
    assert model.gap_ < small.gap_ <= 2e-2
    assert small.certify(X, y).relative_gap == pytest.approx(small.gap_)
    kept = small.coef_.toarray() if sp.issparse(small.coef_) else small.coef_
    np.testing.assert_array_equal(kept, np.where(kept == 0, 0, before))
    influence = np.square(before) * np.square(X).sum(axis=0)
    assert influence[kept != 0].min() > influence[kept == 0].max()
    smallest = model.prune(X, y, max_gap=0.5)
    assert sp.issparse(smallest.coef_)
    assert smallest.coef_.indices.dtype == np.int32
    assert smallest.density_ < small.density_
    smallest.save(tmp_path / "small.zarr")
    again = LinearMCSVC.load(tmp_path / "small.zarr")
    np.testing.assert_array_equal(again.predict(X), smallest.predict(X))
    assert (again.gap_, again.density_) == (smallest.gap_, smallest.density_)
    assert smallest.certain(X).dtype == bool  # its certificate is the one that it has


def test_on_dask_and_on_disk_the_model_is_the_same(tmp_path: Path):
    X, y = small_set()
    model = model_of(X, y)
    here = model.prune(X, y, max_gap=2e-2)
    write_dataset(tmp_path / "rows.zarr", X, y, block_rows=50)
    for rows in ((lazy(X), da.from_array(y, chunks=50)), (tmp_path / "rows.zarr",)):
        there = model.prune(*rows, max_gap=2e-2)
        np.testing.assert_array_equal(there.predict(X), here.predict(X))
        assert there.density_ == here.density_


def test_what_cannot_be_pruned_says_why(tmp_path: Path):
    X, y = small_set()
    model = model_of(X, y)
    for max_gap, sentence in (
        (0.0, "max_gap is 0.0; it must be a finite number above 0, for example max_gap=2e-3."),
        (
            1e-9,
            f"max_gap is 1e-09, and the gap of the model is {model.gap_:.2g} with all its weights; "
            "pass a larger max_gap, or fit with a smaller tol.",
        ),
    ):
        with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
            model.prune(X, y, max_gap=max_gap)
    with pytest.raises(CertificateError, match=r"^X has 100 rows, but the fit had 160; "):
        model.prune(X[:100], y[:100])
    gap = r"^the gap of the model is [0-9.]+ on these rows, and was [0-9.e-]+ on those of the fit: "
    with pytest.raises(CertificateError, match=gap + "X, y or sample_weight are not those, or "):
        model.prune(X, np.roll(y, 1))  # as many of each class
    with pytest.raises(ValueError, match=r"^prune needs the labels of the training rows; type "):
        model.prune(X)
    tied = (
        "the weights of lee_lin_wahba sum to zero over the classes, which zeros here and there "
        "would break; prune a model of another formulation."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(tied)}$"):
        model_of(X, y, formulation=TIED).prune(X, y)
    large = svm("rounds", memory_limit=300, scratch=str(tmp_path))
    large.fit(lazy(X), da.from_array(y, chunks=50))
    with pytest.raises(ValueError, match=r"^prune needs coef_ in memory, and it is a Dask array"):
        large.prune(X, y)


@pytest.mark.parametrize("k", [2, 4])
@pytest.mark.parametrize("formulation", list(FORMULATIONS))
def test_reasons_add_up_to_the_margin(formulation, k):
    X, y = small_set(k=k)
    model = model_of(X, y, formulation=formulation)
    scores = model.decision_function(X)
    for i in range(0, 160, 40):
        why = model.explain_prediction(X[i], top=12)
        assert why.label == model.predict(X[i : i + 1])[0]
        assert why.rival == model.predict_topk(X[i : i + 1], 2)[0, 1]
        margin = abs(scores[i]) if k == 2 else np.ptp(np.sort(scores[i])[-2:])
        assert why.margin == pytest.approx(margin)
        assert sum(reason.adds for reason in why.reasons) + why.intercept == pytest.approx(margin)
        sizes = [abs(reason.adds) for reason in why.reasons]
        assert sizes == sorted(sizes, reverse=True)
    assert model.sparsify().explain_prediction(sp.csr_array(X[i : i + 1]), top=12) == why


def test_an_explanation_is_a_table():
    X = np.array([[2.0, 0.0], [0.0, 1.0]])
    model = model_of(X, ["left", "right"], fit_intercept=False, C=10, tol=1e-8)
    assert repr(model.explain_prediction(X[0], ["west", "east"])) == (
        "'left' before 'right' by 1\n"
        "feature    value  weight  adds\n"
        "west          +2    +0.5    +1\n"
        "intercept                   +0"
    )
    for names, sentence in (
        (["west"], "names has 1 names, and the model has 2 features; pass one for each."),
        (
            None,
            "x has 2 rows, and one is explained at a time; type explain_prediction(X[:1]).",
        ),
    ):
        with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
            model.explain_prediction(X, names)
