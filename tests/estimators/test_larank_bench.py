"""Training a LaRankSVC while it is interrupted, read by others, copied, or trained by others."""

import copy
import os
import pickle
import re
import signal
import threading
import time

import numpy as np
import pytest
from sklearn.base import clone

from dask_mcsvm import LaRankSVC
from dask_mcsvm.estimators._larank_bench import turn

BUSY = (
    "this LaRankSVC is being trained by another call of fit or partial_fit; wait until that "
    "returns, or train a copy made with copy.deepcopy."
)
CLASSES = [0, 1, 2]


def busy():
    return pytest.raises(RuntimeError, match=f"^{re.escape(BUSY)}$")


def bytes_of(model, X):
    """All that a model is, but for the use of its cache: a run that is made again has none yet."""
    state = model._run.state
    arrays = [state[name].tobytes() for name in sorted(set(state) - {"rows", "counts"})]
    numbers = (model.n_support_, model.dual_, model.n_steps_, model.n_arg_max_)
    return *arrays, *numbers, model.support_.tobytes(), model.decision_function(X).tobytes()


@pytest.fixture(params=["rbf", "linear"])
def stream(request, blobs):
    """A model that has seen 60 rows, and all rows."""
    X, y = blobs(3, 600)
    model = LaRankSVC(kernel=request.param, gamma=0.5, max_support=90, random_state=0)
    return model.partial_fit(X[:60], y[:60], classes=CLASSES), X, y


# Interrupts -------------------------------------------------------------------------------------


@pytest.fixture
def interrupt():
    """A function that makes the system send a signal, as Ctrl-C does, after so many seconds."""

    def raise_interrupt(_number, _frame):
        raise KeyboardInterrupt

    old = signal.signal(signal.SIGALRM, raise_interrupt)
    yield lambda seconds: signal.setitimer(signal.ITIMER_REAL, seconds)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, old)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="the system has no such timer")
def test_an_interrupt_at_any_moment_leaves_the_model_before_or_after(stream, interrupt):
    model, X, y = stream
    rows = (X[60:], y[60:])
    before = bytes_of(model, X)
    whole = copy.deepcopy(model)
    began = time.perf_counter()
    after = bytes_of(whole.partial_fit(*rows), X)
    duration = time.perf_counter() - began
    moments = np.random.default_rng(0).uniform(1e-5, 1.2, 60) * duration
    seen = set()
    for moment in moments:
        one = copy.deepcopy(model)
        try:
            interrupt(moment)
            one.partial_fit(*rows)
            interrupt(0)
        except KeyboardInterrupt:
            seen.add("interrupted")
        found = bytes_of(one, X)
        assert found in (before, after)
        if found == before:
            seen.add("before")
            assert bytes_of(one.partial_fit(*rows), X) == after  # and it goes on from there
    assert seen == {"interrupted", "before"}


def test_an_interrupted_stream_goes_on_as_if_nothing_had_been(stream, interrupt):
    model, X, y = stream
    whole = copy.deepcopy(model)
    chunks = [slice(start, start + 20) for start in range(60, 600, 20)]
    for chunk in chunks:
        whole.partial_fit(X[chunk], y[chunk])
    moments = np.random.default_rng(1).uniform(1e-5, 0.01, len(chunks))
    for chunk, moment in zip(chunks, moments, strict=True):
        before = model._run
        try:
            interrupt(moment)
            model.partial_fit(X[chunk], y[chunk])
            interrupt(0)
        except KeyboardInterrupt:
            if model._run is before:
                model.partial_fit(X[chunk], y[chunk])
    assert bytes_of(model, X) == bytes_of(whole, X)


# Threads ----------------------------------------------------------------------------------------


def test_a_second_call_is_refused_while_one_trains(blobs):
    X, y = blobs()
    refused = []

    def kernel(A, B):
        for method in (model.fit, model.partial_fit):
            if len(refused) < 2:
                with busy() as caught:
                    method(X, y)
                refused.append(caught.value)
        return A @ B.T

    model = LaRankSVC(kernel=kernel, random_state=0)
    plain = LaRankSVC(kernel=lambda A, B: A @ B.T, random_state=0).fit(X, y)
    assert bytes_of(plain, X) == bytes_of(model.fit(X, y), X)
    assert len(refused) == 2
    model.partial_fit(X, y)  # free again


def test_threads_that_train_one_model_take_turns_or_are_told(stream):
    model, X, y = stream
    barrier = threading.Barrier(3)
    learned, told, wrong = [], [], []

    def train():
        for start in range(60, 600, 20):
            barrier.wait()
            try:
                model.partial_fit(X[start : start + 20], y[start : start + 20])
                learned.append(20)
            except RuntimeError as error:
                (told if str(error) == BUSY else wrong).append(error)

    threads = [threading.Thread(target=train) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(learned) + len(told) == 3 * 27
    assert len(learned) >= 27
    assert model._run.state["n_seen"] == 60 + sum(learned)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.decision_function(X), model.decision_function(X))
    assert np.abs(model.dual_coef_.sum(axis=0)).max() < 1e-12


def test_who_predicts_or_saves_meanwhile_sees_one_whole_model(stream, tmp_path):
    model, X, y = stream
    states, seen, saved = {model.decision_function(X).tobytes()}, [], []
    done = threading.Event()

    def predict():
        while not done.is_set():
            seen.append(model.decision_function(X).tobytes())

    def save():
        while not done.is_set():
            saved.append(tmp_path / f"{len(saved)}.zarr")
            model.save(saved[-1])

    threads = [threading.Thread(target=predict), threading.Thread(target=save)]
    for thread in threads:
        thread.start()
    for start in range(60, 600, 30):
        model.partial_fit(X[start : start + 30], y[start : start + 30])
        states.add(model.decision_function(X).tobytes())
    done.set()
    for thread in threads:
        thread.join()
    assert seen
    assert set(seen) <= states
    for path in saved[:10]:
        assert LaRankSVC.load(path).decision_function(X).tobytes() in states


# Copies -----------------------------------------------------------------------------------------


def test_copies_of_a_model_in_training_are_free(stream):
    model, X, y = stream
    before = bytes_of(model, X)
    with turn(model):
        copies = [copy.copy(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
        with busy():
            model.partial_fit(X, y)
        for one in copies:
            one.partial_fit(X, y)
        assert clone(model).fit(X, y).n_support_ > 0
    assert len({bytes_of(one, X) for one in copies}) == 1
    assert bytes_of(model, X) == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system does not fork")
@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_forked_process_is_not_kept_from_training(stream):
    model, X, y = stream
    expected = bytes_of(copy.deepcopy(model).partial_fit(X, y), X)
    with turn(model):
        child = os.fork()
        if child == 0:
            same = False
            try:
                same = bytes_of(model.partial_fit(X, y), X) == expected
            finally:
                os._exit(0 if same else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
