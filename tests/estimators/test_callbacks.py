"""What estimators tell callbacks, their own and scikit-learn's, and what these may do."""

import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris

from dask_mcsvm import LaRankSVC, LinearMCSVC


class Ended:
    """What scikit-learn calls a callback of fits."""

    def __init__(self, stop_after=None):
        self.stop_after, self.epochs, self.scores, self.open = stop_after, 0, [], False

    def setup(self, estimator, context):
        self.open = True

    def teardown(self, estimator, context):
        self.open = False

    def on_fit_task_begin(self, estimator, context):
        pass

    def on_fit_task_end(self, estimator, context, *, X=None, y=None, fitted_estimator=None):
        if fitted_estimator is not None:
            self.scores.append(fitted_estimator.score(X, y))
        elif context.task_name == "epoch":
            self.epochs += 1
        return self.epochs == self.stop_after


@pytest.mark.parametrize("estimator", [LinearMCSVC(solver="sdm"), LaRankSVC(max_epochs=3)])
def test_scikit_learns_callbacks_hear_of_epochs_and_of_the_end(estimator):
    pytest.importorskip("sklearn.callback", reason="scikit-learn has callbacks from 1.9 on")
    X, y = load_iris(return_X_y=True)
    ended = Ended()
    model = clone(estimator).set_params(random_state=0).set_callbacks(ended).fit(X, y)
    assert (ended.epochs, ended.open) == (len(model.history_), False)
    assert ended.scores == [model.score(X, y)]
    stopped = clone(estimator).set_callbacks(Ended(stop_after=2)).fit(X, y)
    assert (stopped.stop_, len(stopped.history_)) == ("callback", 2)


@pytest.mark.parametrize("make", [LinearMCSVC, LaRankSVC])
def test_a_callback_that_raises_ends_the_fit_and_leaves_the_model_as_it_was(make):
    X, y = load_iris(return_X_y=True)

    def lost(record):
        raise ConnectionError("the tracker is away")

    model = make(random_state=0).fit(X, y)
    before = model.decision_function(X)
    with pytest.raises(ConnectionError, match=r"^the tracker is away$"):
        model.set_params(C=9.0, callbacks=(lost,)).fit(X, y)
    assert (model.decision_function(X) == before).all()
