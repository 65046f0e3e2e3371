"""Quality of predictions per class, counted block by block: no (k, k) table for many classes."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dask_mcsvm.formulations.margins import EQUAL, margin_rows


@dataclass(frozen=True, eq=False)
class Scores:
    """How well labels were predicted.

    Attributes
    ----------
    labels : list of length m
        The model's classes, then labels that it does not know.
    support, predicted, hits : ndarray of shape (m,), int64
        Rows of each label, rows predicted as it, and rows of it that were predicted right.
    mistakes : list of (true label, predicted label, rows)
        Every kind of mistake, the most frequent first.
    """

    labels: list[Any]
    support: npt.NDArray[np.int64]
    predicted: npt.NDArray[np.int64]
    hits: npt.NDArray[np.int64]
    mistakes: list[tuple[Any, Any, int]]
    #: Whether these are the rows that the model was trained on, as their fingerprint tells.
    of_training: bool = False

    @property
    def rows_are(self) -> str:
        """What to call the rows: accuracy on those that the model has seen is flattering."""
        return "training rows" if self.of_training else "rows"

    @property
    def n(self) -> int:
        """Rows scored."""
        return int(self.support.sum())

    @property
    def accuracy(self) -> float:
        """Share of rows predicted right; with one label per row this is also the micro F1."""
        return float(self.hits.sum() / self.n)

    @property
    def seen(self) -> npt.NDArray[np.bool_]:
        """Labels that some row has or was given; F1 is not defined for the others."""
        return np.asarray(self.support + self.predicted > 0)

    @property
    def f1(self) -> npt.NDArray[np.float64]:
        """F1 of each label, shape (m,); nan where it is not `seen`."""
        rows = self.support + self.predicted
        undefined = np.full(rows.shape, np.nan)
        return np.asarray(np.divide(2.0 * self.hits, rows, out=undefined, where=rows > 0))

    @property
    def macro_f1(self) -> float:
        """Mean F1 of the labels that are `seen`, as `sklearn.metrics.f1_score` has it."""
        return float(self.f1[self.seen].mean())

    def expected_cost(self, model: Any) -> float | None:
        """What a label costs on average by the margins of a fitted model; None without them.

        A row whose label the model does not know costs 1.
        """
        margins = getattr(getattr(model, "_trained", None), "margins", EQUAL)
        if margins == EQUAL:
            return None
        classes = model.classes_.tolist()
        places = {label: place for place, label in enumerate(classes)}
        total = 0.0
        for true, guess, rows in self.mistakes:
            if true in places:
                costs = margin_rows(margins, [places[true]], len(classes))[0]
                total += rows * float(costs[places[guess]])
            else:
                total += rows
        return total / self.n

    def as_dict(self, n_mistakes: int = 10) -> dict[str, Any]:
        """The figures as JSON values, with the most frequent mistakes."""
        return {
            "rows": self.n,
            "training_rows": self.of_training,
            "accuracy": self.accuracy,
            "micro_f1": self.accuracy,
            "macro_f1": self.macro_f1,
            "confused": [
                {"true": _plain(true), "predicted": _plain(guess), "rows": rows}
                for true, guess, rows in self.mistakes[:n_mistakes]
            ],
        }


class Tally:
    """Counts labels and predictions block by block.

    Parameters
    ----------
    classes : ndarray of shape (k,)
        Of the model.

    Examples
    --------
    >>> tally = Tally(np.array(["a", "b", "c"]))
    >>> tally.add(np.array(["a", "a", "b"]), np.array(["a", "b", "b"]))
    >>> scores = tally.scores()
    >>> round(scores.accuracy, 2), round(scores.macro_f1, 2), scores.mistakes
    (0.67, 0.67, [('a', 'b', 1)])
    """

    def __init__(self, classes: npt.NDArray[Any]) -> None:
        self._places = {label: place for place, label in enumerate(classes.tolist())}
        self._pairs: Counter[tuple[int, int]] = Counter()

    def add(self, y: Any, predicted: Any) -> None:
        """Count rows by their labels and what was predicted, both of shape (n,)."""
        y, predicted = np.asarray(y), np.asarray(predicted)
        if y.shape != predicted.shape:
            raise ValueError(
                f"y has shape {y.shape}, the predictions {predicted.shape}; pass one label per row."
            )
        codes = np.stack([self._codes(y), self._codes(predicted)])
        pairs, counts = np.unique(codes, axis=1, return_counts=True)
        for (true, guess), rows in zip(pairs.T.tolist(), counts.tolist(), strict=True):
            self._pairs[true, guess] += rows

    def scores(self) -> Scores:
        """What all rows so far amount to."""
        if not self._pairs:
            raise ValueError("there are no rows to score; pass at least one.")
        labels = list(self._places)
        support, predicted, hits = np.zeros((3, len(labels)), np.int64)
        for (true, guess), rows in self._pairs.items():
            support[true] += rows
            predicted[guess] += rows
            hits[true] += rows * (true == guess)
        wrong = [(-n, true, guess) for (true, guess), n in self._pairs.items() if true != guess]
        mistakes = [(labels[true], labels[guess], -n) for n, true, guess in sorted(wrong)]
        return Scores(labels, support, predicted, hits, mistakes)

    def _codes(self, y: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        present, places = np.unique(y, return_inverse=True)
        codes = [self._places.setdefault(label, len(self._places)) for label in present.tolist()]
        return np.array(codes, np.int64)[places]


def _plain(label: Any) -> Any:
    return label if isinstance(label, str | bool | int | float) else str(label)
