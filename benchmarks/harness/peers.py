"""What people use instead, as they would type it; each is a function of C, rows and two threads.

Nothing of ours is imported here: some of it runs in environments without it.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from .measure import Watch  # isort: skip, before anything that imports numba

import numpy as np
import scipy.sparse as sp

from .case import Case
from .data import Places, load

Found = dict[str, Any]
THREADS = 2
#: Of the training rows, to choose C by.
HELD_OUT = 0.2


def peer(case: Case, places: Places, limit: float) -> Found:
    """Fit the peer that ``case.options["peer"]`` names, predict the test rows, and compare.

    With the option "validate" a fifth of the training rows is held out and takes the place of the
    test rows: that is how C is chosen, for all alike.
    """
    data = load(case.data, places, test=True)
    X, y, tested = data.X, data.y, data.test
    assert tested is not None
    X_test, y_test = tested
    X, X_test = narrow(X), narrow(X_test)
    if case.options.get("scale"):
        X, X_test = scaled(X, X_test)
    if case.options.get("validate"):
        held = np.random.default_rng(0).random(y.size) < HELD_OUT
        X, y, X_test, y_test = X[~held], y[~held], X[held], y[held]
    model = PEERS[case.options["peer"]](case.params.get("C", 1.0), y.size)
    model.warm_up(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with Watch(limit) as watch:
            model.fit(X, y)
    begun = time.perf_counter()
    top, more = case.options.get("top"), {}
    if top:
        found = model.top(X_test, top)
        predicted = found[:, 0]
        more["top_accuracy"] = float(np.mean((found == y_test[:, None]).any(axis=1)))
    else:
        predicted = model.predict(X_test)
    seconds = time.perf_counter() - begun
    return watch.found | compare(y_test, predicted) | {
        "predict_seconds": seconds, "n": int(y.size), "d": int(X.shape[1]), "k": data.k,
        "version": version(model.package),
    } | more  # fmt: skip


def narrow(X: Any) -> Any:
    """CSR with the 32-bit indices that scikit-learn's solvers insist on."""
    if not sp.issparse(X):
        return X
    indices, indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
    return sp.csr_matrix((X.data, indices, indptr), shape=X.shape)


def compare(y: np.ndarray, predicted: np.ndarray) -> Found:
    from sklearn.metrics import accuracy_score, f1_score

    macro = f1_score(y, predicted, average="macro", zero_division=0)
    return {"accuracy": float(accuracy_score(y, predicted)), "macro_f1": float(macro)}


def scaled(X: Any, X_test: Any) -> tuple[Any, Any]:
    """Columns of mean 0 and deviation 1, as a user of dense rows would have them."""
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(X)
    return scaler.transform(X).astype(np.float32), scaler.transform(X_test).astype(np.float32)


class Sklearn:
    """Anything with fit and predict of scikit-learn; ours is compiled before a clock starts."""

    def __init__(self, model: Any, package: str = "scikit-learn", compiles: bool = False) -> None:
        self.model, self.package, self.compiles = model, package, compiles

    def warm_up(self, X: Any, y: np.ndarray) -> None:
        if self.compiles:
            from sklearn.base import clone

            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                clone(self.model).set_params(max_epochs=1).fit(X, y)

    def fit(self, X: Any, y: np.ndarray) -> None:
        self.model.fit(X, y)

    def predict(self, X: Any) -> np.ndarray:
        found: np.ndarray = self.model.predict(X)
        return found


class Multicore:
    """liblinear-multicore: one-vs-rest, squared hinge, solved in the dual by two threads."""

    package = "liblinear-multicore"

    def __init__(self, C: float, solver: int) -> None:
        self.arguments = f"-s {solver} -c {C:g} -B 1 -m {THREADS} -q"

    def warm_up(self, X: Any, y: np.ndarray) -> None:
        pass

    def fit(self, X: Any, y: np.ndarray) -> None:
        from liblinear.liblinearutil import train

        self.model = train(y.astype(np.float64), wide(X), self.arguments)

    def predict(self, X: Any) -> np.ndarray:
        from liblinear.liblinearutil import predict

        labels, *_ = predict([], wide(X), self.model, "-q")
        return np.asarray(labels).astype(np.int64)


class Liblinear(Multicore):
    """Its Crammer-Singer, of one thread."""

    def __init__(self, C: float) -> None:
        self.arguments = f"-s 4 -c {C:g} -B 1 -q"

    def top(self, X: Any, n: int) -> np.ndarray:
        """By its W as an array: its own predict goes row by row in Python."""
        k, d = self.model.nr_class, self.model.nr_feature
        W = np.ctypeslib.as_array(self.model.w, (d + 1, k))
        labels = np.array(self.model.get_labels())
        found, rows = np.empty((X.shape[0], n), labels.dtype), wide(X)
        for first in range(0, X.shape[0], 1000):
            scores = rows[first : first + 1000, :d] @ W[:d] + W[d]
            places = np.argsort(-scores, axis=1, kind="stable")[:, :n]
            found[first : first + 1000] = labels[places]
        return found


def wide(X: Any) -> Any:
    """LIBLINEAR's package knows csr_matrix and float64."""
    return sp.csr_matrix(X, dtype=np.float64) if sp.issparse(X) else X.astype(np.float64)


class Snap(Sklearn):
    """snapml wants its own types of rows and labels."""

    def fit(self, X: Any, y: np.ndarray) -> None:
        self.model.fit(self._rows(X), y.astype(np.float64))

    def predict(self, X: Any) -> np.ndarray:
        return np.asarray(self.model.predict(self._rows(X))).astype(np.int64)

    @staticmethod
    def _rows(X: Any) -> Any:
        return sp.csr_matrix(X, dtype=np.float32) if sp.issparse(X) else X


class Omikuji:
    """A tree of linear models (Parabel's layout), with its own defaults: it has no C to choose."""

    package = "omikuji"

    def warm_up(self, X: Any, y: np.ndarray) -> None:
        pass

    def fit(self, X: Any, y: np.ndarray) -> None:
        import tempfile
        from pathlib import Path

        import omikuji

        rows = sp.csr_matrix(X)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "train.txt")
            with path.open("w", encoding="utf-8") as file:
                file.write(f"{y.size} {rows.shape[1]} {int(y.max()) + 1}\n")
                for i, label in enumerate(y.tolist()):
                    own = slice(rows.indptr[i], rows.indptr[i + 1])
                    pairs = zip(rows.indices[own].tolist(), rows.data[own].tolist(), strict=True)
                    file.write(f"{label} " + " ".join(f"{j}:{v:.7g}" for j, v in pairs) + "\n")
            self.model = omikuji.Model.train_on_data(str(path), n_threads=THREADS)

    def predict(self, X: Any) -> np.ndarray:
        rows, found = sp.csr_matrix(X), []
        for i in range(rows.shape[0]):
            own = slice(rows.indptr[i], rows.indptr[i + 1])
            pairs = list(zip(rows.indices[own].tolist(), rows.data[own].tolist(), strict=True))
            best = self.model.predict(pairs, top_k=1)
            found.append(best[0][0] if best else -1)
        return np.array(found)


class Pecos:
    """XLinear of PECOS: a tree of linear models over clusters of classes, with its own defaults."""

    package = "libpecos"

    def warm_up(self, X: Any, y: np.ndarray) -> None:
        pass

    def fit(self, X: Any, y: np.ndarray) -> None:
        from pecos.xmc import Indexer, LabelEmbeddingFactory
        from pecos.xmc.xlinear.model import XLinearModel

        rows = sp.csr_matrix(X, dtype=np.float32)
        ones = np.ones(y.size, np.float32)
        Y = sp.csr_matrix((ones, y, np.arange(y.size + 1)), shape=(y.size, int(y.max()) + 1))
        centres = LabelEmbeddingFactory.create(Y, rows, method="pifa")
        clusters = Indexer.gen(centres, threads=THREADS)
        self.model = XLinearModel.train(rows, Y, C=clusters, threads=THREADS)

    def predict(self, X: Any) -> np.ndarray:
        return self.top(X, 1)[:, 0]

    def top(self, X: Any, n: int) -> np.ndarray:
        found = self.model.predict(sp.csr_matrix(X, dtype=np.float32), only_topk=n)
        best = np.full((found.shape[0], n), -1)
        for i in range(found.shape[0]):
            own = slice(found.indptr[i], found.indptr[i + 1])
            order = np.argsort(-found.data[own], kind="stable")
            best[i, : order.size] = found.indices[own][order]
        return best


class Napkin:
    """A probabilistic label tree of napkinXC, with its own defaults."""

    package = "napkinxc"

    def warm_up(self, X: Any, y: np.ndarray) -> None:
        pass

    def fit(self, X: Any, y: np.ndarray) -> None:
        import tempfile

        from napkinxc.models import PLT

        self.folder = tempfile.TemporaryDirectory()
        self.model = PLT(self.folder.name, threads=THREADS, verbose=False)
        self.model.fit(sp.csr_matrix(X), [[label] for label in y.tolist()])

    def predict(self, X: Any) -> np.ndarray:
        found = self.model.predict(sp.csr_matrix(X), top_k=1)
        return np.array([labels[0] if labels else -1 for labels in found])


class CellTypist:
    """CellTypist's training: columns standardized, a logistic regression for each class."""

    package = "celltypist"

    def __init__(self, C: float) -> None:
        self.C = C

    def warm_up(self, X: Any, y: np.ndarray) -> None:
        import celltypist  # with scanpy and all it needs: seconds, which are not of the training

        self.train = celltypist.train

    def fit(self, X: Any, y: np.ndarray) -> None:
        # It looks whether rows are log counts to 10,000 over all genes; these are some of them. One
        # job, as ours have one thread: more are processes, whose start and CPU time are not seen.
        self.model = self.train(
            sp.csr_matrix(X), labels=y.astype(str), genes=[f"g{j}" for j in range(X.shape[1])],
            C=self.C, n_jobs=1, check_expression=False,
        )  # fmt: skip

    def predict(self, X: Any) -> np.ndarray:
        rows = (X.toarray() - self.model.scaler.mean_) / self.model.scaler.scale_
        return np.asarray(self.model.classifier.predict(np.minimum(rows, 10))).astype(np.int64)


class VowpalWabbit:
    """Online one-against-all with a hinge loss, five passes, weights enough for all classes."""

    package = "vowpalwabbit"
    PASSES = 5

    def warm_up(self, X: Any, y: np.ndarray) -> None:
        pass

    def fit(self, X: Any, y: np.ndarray) -> None:
        import vowpalwabbit

        k = int(y.max()) + 1
        bits = min(28, int(np.ceil(np.log2(float(X.shape[1]) * k))) + 1)
        self.model = vowpalwabbit.Workspace(
            f"--oaa {k} --loss_function hinge -b {bits} --quiet --random_seed 1"
        )
        lines = list(self._lines(X, y))
        rng = np.random.default_rng(0)
        for _ in range(self.PASSES):
            for i in rng.permutation(len(lines)):
                self.model.learn(lines[i])

    def predict(self, X: Any) -> np.ndarray:
        return np.array([self.model.predict(line) - 1 for line in self._lines(X, None)])

    @staticmethod
    def _lines(X: Any, y: np.ndarray | None) -> Any:
        rows = sp.csr_matrix(X)
        for i in range(rows.shape[0]):
            own = slice(rows.indptr[i], rows.indptr[i + 1])
            pairs = zip(rows.indices[own].tolist(), rows.data[own].tolist(), strict=True)
            label = "" if y is None else int(y[i]) + 1
            yield f"{label} | " + " ".join(f"{j}:{v:.6g}" for j, v in pairs)


def ours(formulation: str, **how: Any) -> Callable[[float, int], Any]:
    def make(C: float, n: int) -> Any:
        from dask_mcsvm import LinearMCSVC

        model = LinearMCSVC(formulation=formulation, C=C, random_state=0, **how)
        return Sklearn(model, "dask-mcsvm", compiles=True)

    return make


def linear_svc(**kind: Any) -> Callable[[float, int], Any]:
    def make(C: float, n: int) -> Any:
        from sklearn.svm import LinearSVC

        return Sklearn(LinearSVC(C=C, random_state=0, **kind))

    return make


def sgd(C: float, n: int) -> Any:
    from sklearn.linear_model import SGDClassifier

    return Sklearn(SGDClassifier(alpha=1 / (C * n), n_jobs=THREADS, random_state=0))


def logistic(C: float, n: int) -> Any:
    from sklearn.linear_model import LogisticRegression

    return Sklearn(LogisticRegression(C=C, max_iter=1000))


def ridge(C: float, n: int) -> Any:
    from sklearn.linear_model import RidgeClassifier

    return Sklearn(RidgeClassifier(alpha=1 / C))


def snap(C: float, n: int) -> Any:
    from snapml import SupportVectorMachine

    return Snap(SupportVectorMachine(regularizer=1 / C, n_jobs=THREADS), "snapml")


PEERS: dict[str, Callable[[float, int], Any]] = {
    "Crammer-Singer": ours("crammer_singer"),
    "one-vs-rest": ours("one_vs_rest"),
    "Crammer-Singer, balanced": ours("crammer_singer", class_weight="balanced"),
    "Crammer-Singer, standardized": ours("crammer_singer", standardize=True),
    "LinearSVC": linear_svc(),
    "LinearSVC, hinge": linear_svc(loss="hinge"),
    "LinearSVC, crammer_singer": linear_svc(multi_class="crammer_singer"),
    "SGDClassifier": sgd,
    "LogisticRegression": logistic,
    "RidgeClassifier": ridge,
    "liblinear-multicore": lambda C, n: Multicore(C, 1),
    "LIBLINEAR -s 4": lambda C, n: Liblinear(C),
    "snapml": snap,
    "omikuji": lambda C, n: Omikuji(),
    "PECOS xlinear": lambda C, n: Pecos(),
    "napkinXC": lambda C, n: Napkin(),
    "vowpalwabbit": lambda C, n: VowpalWabbit(),
    "CellTypist": lambda C, n: CellTypist(C),
}
