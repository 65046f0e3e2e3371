"""Killed and interrupted at random moments: files are whole or absent, a resumed fit is the same.

    python tests/fuzz/fuzz_kills.py --seconds 600 --seed 0
    python tests/fuzz/fuzz_kills.py --case SEED

Each case forks: the first child works until a signal ends it, the second one looks at what it
left. The process that forks has imported everything and run nothing, so that it has no threads.
"""

import json
import os
import pickle
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path

import dask
import dask.array as da
import numpy as np
import scipy.sparse as sp
from runner import Watch, Wrong, check, is_refusal, main

from dask_mcsvm import LaRankSVC, LinearMCSVC
from dask_mcsvm.storage import convert_libsvm, kind_of, open_dataset, write_dataset

Rng = np.random.Generator
TURNS = 1000  # more than a child lives to see
LONGEST = 120.0  # seconds that a child may work, or do nothing, before it ends


def rows(seed: int = 0, n: int = 400):
    rng = np.random.default_rng(seed)
    y = rng.integers(4, size=n)
    X = rng.normal(size=(4, 10))[y] + 1.5 * rng.normal(size=(n, 10))
    return X, y


# What is done, again and again, until the signal comes ------------------------------------------


def save(folder: Path) -> None:
    models = [LinearMCSVC(random_state=0).fit(*rows(seed)) for seed in (0, 1)]
    ready()
    for turn in range(TURNS):
        models[turn % 2].save(folder / "model", overwrite=True)


def check_save(folder: Path) -> None:
    if kind_of(folder / "model") is None and not (folder / "model").exists():
        return
    found = LinearMCSVC.load(folder / "model").coef_
    models = [LinearMCSVC(random_state=0).fit(*rows(seed)).coef_ for seed in (0, 1)]
    check(any(np.array_equal(found, coef) for coef in models), "a model that nobody saved")


def write(folder: Path) -> None:
    sets = [rows(seed) for seed in (0, 1)]
    ready()
    for turn in range(TURNS):
        X, y = sets[turn % 2]
        X = da.from_array(X, chunks=(90, -1)) if turn % 3 == 2 else sp.csr_matrix(X)
        write_dataset(folder / "set", X, y, block_rows=64, overwrite=True)


def convert(folder: Path) -> None:
    X, y = rows()
    lines = [
        f"{label} " + " ".join(f"{i + 1}:{v!r}" for i, v in enumerate(row))
        for row, label in zip(X.tolist(), y.tolist(), strict=True)
    ]
    (folder / "text.svm").write_text("\n".join(lines))
    ready()
    for _ in range(TURNS):
        convert_libsvm(
            folder / "text.svm", folder / "set", block_bytes=5000, dtype="float64", overwrite=True
        )


def check_set(folder: Path) -> None:
    if not (folder / "set").exists():
        return
    dataset = open_dataset(folder / "set")
    dataset.validate()
    X = dataset.read_rows(0, dataset.shape[0])
    X = X.toarray() if sp.issparse(X) else X
    y = dataset.classes[dataset.read_labels()]
    same = [np.array_equal(X, A) and np.array_equal(y, b) for A, b in (rows(0), rows(1))]
    check(any(same), "a dataset that nobody wrote")


#: Costs of mistakes, standardized columns and probabilities at once.
ALL = {"margins": {(0, 1): 2.5}, "standardize": True, "probability": True}
FITS = {
    "blocks": {"memory_limit": "64MB"},
    "early": {"memory_limit": "64MB", "formulation": "ovr"},
    "shards": {"solver": "shards", "solver_options": {"lanes": 2}},
    "rounds": {"solver": "rounds", "formulation": "ww"},
    "averaging": {"solver": "averaging", "formulation": "llw"},
    "exchange": {"solver": "exchange", "formulation": "cs"},
    "blocks, all": {"memory_limit": "64MB", **ALL},
    "shards, all": {"solver": "shards", "solver_options": {"lanes": 2}, **ALL},
}


def fitted(folder: Path, kind: str, **more) -> LinearMCSVC:
    X, y = rows()
    model = LinearMCSVC(
        C=0.3, tol=1e-5, max_epochs=60, random_state=0, **FITS[kind], **more,
    )  # fmt: skip
    if "memory_limit" in FITS[kind]:
        model.set_params(scratch=folder / "scratch")
        if not (folder / "rows").exists():
            write_dataset(folder / "rows", sp.csr_matrix(X), y, block_rows=50)
        return model.fit(folder / "rows")
    return model.fit(da.from_array(X, chunks=(100, -1)), da.from_array(y, chunks=100))


def fit(kind: str) -> Callable[[Path], None]:
    def run(folder: Path) -> None:
        if "memory_limit" in FITS[kind]:
            write_dataset(folder / "rows", sp.csr_matrix(rows()[0]), rows()[1], block_rows=50)
        ready()
        fitted(folder, kind, checkpoint=folder / "fit", resume=True)

    return run


def check_fit(kind: str) -> Callable[[Path], None]:
    def run(folder: Path) -> None:
        resumed = fitted(folder, kind, checkpoint=folder / "fit", resume=True)
        known = WHOLE / f"{kind}.npy"
        if not known.exists():
            with tempfile.TemporaryDirectory() as other:
                coef = fitted(Path(other), kind).coef_
            np.save(known.with_suffix(".part.npy"), coef)
            known.with_suffix(".part.npy").replace(known)
        check(np.array_equal(resumed.coef_, np.load(known)), "a resumed fit gives another model")

    return run


def stream(folder: Path) -> None:
    """partial_fit until Ctrl-C; then the model must be as before the call, or as after it."""
    X, y = rows(n=300)
    model = LaRankSVC(kernel="rbf", C=10.0, random_state=0)
    model.partial_fit(X[:20], y[:20], classes=np.arange(4))
    again = pickle.loads(pickle.dumps(model))
    ready()
    done = 0
    try:
        for _ in range(TURNS):
            model.partial_fit(X, y)
            done += 1
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        found, states = model.decision_function(X), []
        for _ in range(done):
            again.partial_fit(X, y)
        for _ in range(2):
            states.append(again.decision_function(X))
            again.partial_fit(X, y)
        fine = any(np.array_equal(found, state) for state in states)
        (folder / "verdict").write_text("fine" if fine else "half-changed")


def check_stream(folder: Path) -> None:
    verdict = folder / "verdict"
    if verdict.exists():
        check(verdict.read_text() == "fine", "partial_fit left a half-changed model")


JOBS: dict[str, tuple[Callable[[Path], None], Callable[[Path], None]]] = {
    "save": (save, check_save),
    "write_dataset": (write, check_set),
    "convert_libsvm": (convert, check_set),
    "partial_fit": (stream, check_stream),
    **{f"fit by {kind}": (fit(kind), check_fit(kind)) for kind in FITS},
}


# Forking ----------------------------------------------------------------------------------------

READY, READY_TO = os.pipe()
WHOLE = Path(tempfile.gettempdir())  # results of fits that were not interrupted; see `prepare`


def ready() -> None:
    """The parent may send its signal from now on."""
    os.write(READY_TO, b".")


def wait_until_ready(seconds: float) -> None:
    """Wait for the child; one that failed before will be found out by its status."""
    if select.select([READY], [], [], seconds)[0]:
        os.read(READY, 1)


def drain() -> None:
    """Forget what children said."""
    while select.select([READY], [], [], 0)[0]:
        os.read(READY, 100)


def forked(job: Callable[[Path], None], folder: Path) -> int:
    """Process id of a child that does the job and ends; its errors go to a file."""
    child = os.fork()
    if child:
        return child
    signal.signal(signal.SIGINT, signal.default_int_handler)
    status = 0
    try:
        with warnings.catch_warnings(), dask.config.set(scheduler="threads", num_workers=2):
            warnings.simplefilter("ignore")
            job(folder)
    except KeyboardInterrupt:
        status = 130
    except BaseException as error:
        kind = "wrong" if isinstance(error, Wrong) else "refused" if is_refusal(error) else "raw"
        text = [kind, f"{type(error).__name__}: {error}", traceback.format_exc()]
        (folder / "error.json").write_text(json.dumps(text))
        ready()
        status = 1
    finally:
        sys.stdout.flush()
        os._exit(status)


def ended(child: int, seconds: float) -> int | None:
    """Status of a child that ends in time; None, and it is killed, if it does not."""
    watch = Watch(child, seconds)
    while not watch.is_hanging(0.01):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def verdict(name: str, folder: Path, status: int | None, allowed: tuple[int, ...]) -> None:
    """Raise what is wrong with the end of a child."""
    error = folder / "error.json"
    if error.exists():
        kind, text, where = json.loads(error.read_text())
        error.unlink()
        sys.stderr.write(where)
        raise Wrong(f"{name}: {kind}: {text}")
    check(status is not None, f"{name} did not end within {LONGEST:g} s of work")
    check(status in allowed, f"{name} ended with {status}")


def case(rng: Rng) -> None:
    name = str(rng.choice(list(JOBS)))
    job, look = JOBS[name]
    prepare(name)
    sent = signal.SIGINT if name == "partial_fit" or rng.random() < 0.3 else signal.SIGKILL
    with tempfile.TemporaryDirectory() as where:
        folder = Path(where)
        for _ in range(int(rng.integers(1, 4)) if name.startswith("fit") else 1):
            child = forked(job, folder)
            wait_until_ready(LONGEST)
            time.sleep(float(rng.exponential(0.3)))
            os.kill(child, sent)
            status = ended(child, LONGEST)
            verdict(f"{name}, sent {sent.name},", folder, status, (0, 130, -int(sent)))
            if (folder / "rows").exists() and name.startswith("fit"):
                shutil.rmtree(folder / "rows")
        status = ended(forked(look, folder), LONGEST)
        drain()
        verdict(f"looking at what {name} left", folder, status, (0,))


@cache
def prepare(name: str) -> None:
    """Compile what a job runs, in children, so that signals find it at work."""
    job, look = JOBS[name]
    with tempfile.TemporaryDirectory() as where:
        child = forked(job, Path(where))
        wait_until_ready(1200)
        if not name.startswith("fit"):
            os.kill(child, signal.SIGINT)
        verdict(name, Path(where), ended(child, 1200), (0, 130))
        verdict(name, Path(where), ended(forked(look, Path(where)), 1200), (0,))
        drain()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as whole:
        WHOLE = Path(whole)
        main(case, __file__, cases="kills", timeout=600.0)
