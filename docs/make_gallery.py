"""The gallery of examples: runs each, draws a picture of what it did, and writes the page.

    python docs/make_gallery.py [NAME ...]

Without names it draws all. The page `examples.md` follows from the docstrings alone; a test
compares it.
"""

from __future__ import annotations

import io
import re
import runpy
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
EXAMPLES, PAGE = HERE.parent / "examples", HERE / "examples.md"
PICTURES = HERE / "images" / "examples"
HEAD = """# Examples

Each is a program of less than sixty lines that runs as it is, and is run by `pytest -m scripts`.
The pictures are of such runs (`python docs/make_gallery.py`).
"""
#: Titles that do not follow from names.
PROPER = {
    "choose_c": "Choose C",
    "larank_stream": "LaRank on a stream",
    "mlflow_run": "A run in MLflow",
    "nightly": "A nightly job",
    "nightly_on_cluster": "The nightly job on a cluster",
    "nightly_prefect": "The nightly job in Prefect",
    "to_onnx": "To ONNX",
}


def names() -> list[str]:
    return sorted(path.stem for path in EXAMPLES.glob("*.py"))


def title(name: str) -> str:
    found = name.replace("_", " ").capitalize()
    return PROPER.get(name, found)


def summary(name: str) -> str:
    """The first line of an example's docstring."""
    return (EXAMPLES / f"{name}.py").read_text("utf-8").split('"""')[1].strip().splitlines()[0]


def page() -> str:
    """The page of all examples: cards, then pictures and programs."""
    cards = "".join(
        f"\n   .. figure:: images/examples/{name}.png\n"
        f"      :target: #{title(name).lower().replace(' ', '-')}\n"
        f"      :alt: {title(name)}\n\n      **{title(name)}.** {summary(name)}\n"
        for name in names()
    )
    parts = "".join(
        f"\n## {title(name)}\n\n![{title(name)}](images/examples/{name}.png)\n\n"
        f"```{{literalinclude}} ../examples/{name}.py\n:language: python\n```\n"
        for name in names()
    )
    return f"{HEAD}\n```{{eval-rst}}\n.. container:: gallery\n{cards}```\n{parts}"


# Pictures ---------------------------------------------------------------------------------------


class Ran:
    """An example that was run: its names, what it printed, the record of every fit in it."""

    def __init__(self, name: str) -> None:
        from dask_mcsvm import LinearMCSVC

        self.histories: list[list[dict[str, Any]]] = []
        learn, text = LinearMCSVC._remember, io.StringIO()

        def remember(model: Any, *given: Any) -> None:
            learn(model, *given)
            self.histories.append(model.history_)

        LinearMCSVC._remember = remember  # type: ignore[method-assign]
        arguments, path = sys.argv, sys.path
        sys.argv, sys.path = [f"{name}.py"], [str(EXAMPLES), *path]
        try:
            with redirect_stdout(text):
                self.found = runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
        finally:
            LinearMCSVC._remember = learn  # type: ignore[method-assign]
            sys.argv, sys.path = arguments, path
        self.text = text.getvalue()

    def numbers(self, pattern: str) -> list[list[float]]:
        """Groups of a pattern in what was printed."""
        return [list(map(float, found.groups())) for found in re.finditer(pattern, self.text)]


def curve(axis: Any, history: list[dict[str, Any]], *how: Any, **style: Any) -> None:
    """Gap over epochs."""
    axis.plot([r["epoch"] for r in history], [r["gap"] for r in history], *how, **style)
    axis.set(yscale="log", xlabel="epochs", ylabel="relative gap")


def gaps(axis: Any, ran: Ran) -> None:
    """The default: of every fit."""
    for history in ran.histories:
        curve(axis, history)


def killed(axis: Any, ran: Ran) -> None:
    calm, struck = ran.histories
    curve(axis, calm, lw=6, alpha=0.3, label="undisturbed")
    curve(axis, struck, "k", lw=1, label="with a death")
    axis.axvline(2, color="tab:red", ls=":", label="a worker dies")
    axis.legend()


def on_cluster(axis: Any, ran: Ran) -> None:
    history = ran.histories[-1]  # of the same bytes
    curve(axis, history, "k")
    axis.axvspan(0, 10, color="tab:red", alpha=0.15, label="first call, killed")
    axis.axvspan(10, history[-1]["epoch"], color="tab:green", alpha=0.15, label="second call")
    axis.legend()


def retried(axis: Any, ran: Ran) -> None:
    curve(axis, ran.histories[-1], "k")
    axis.axvline(10, color="tab:green", ls=":", label="checkpoint")
    axis.axvline(12, color="tab:red", ls=":", label="error, and retry")
    axis.legend()


def calibration(axis: Any, ran: Ran) -> None:
    import numpy as np

    best = ran.found["probabilities"].max(axis=1)
    right = ran.found["svm"].predict(ran.found["X_test"]) == ran.found["y_test"]
    cuts = np.quantile(best, np.linspace(0, 1, 9))
    part = np.clip(np.searchsorted(cuts, best, side="right") - 1, 0, 7)
    axis.plot([0.3, 1], [0.3, 1], color="grey", lw=1)
    points = [(best[part == p].mean(), right[part == p].mean()) for p in range(8)]
    axis.plot(*zip(*points, strict=True), "o-")
    axis.set(xlabel="said", ylabel="share that was right")


def path_of_C(axis: Any, ran: Ran) -> None:
    found = ran.found["found"]
    axis.plot(found.Cs, found.scores, "o-")
    axis.axvline(found.best_.C, color="tab:green", ls=":", label=f"C = {found.best_.C:.2g}")
    axis.set(xscale="log", xlabel="C", ylabel="accuracy on rows held back")
    axis.legend()


def stream(axis: Any, ran: Ran) -> None:
    points = ran.numbers(r"(\d+) rows .*accuracy ([\d.]+)")
    axis.plot(*zip(*points, strict=True), "o-")
    axis.set(xlabel="rows of the stream", ylabel="accuracy on others")


def passes(axis: Any, ran: Ran) -> None:
    (history,) = ran.histories
    ends = [0.0, *(r["seconds"] for r in history)]
    for number in range(len(history)):
        axis.barh(-number, ends[number + 1] - ends[number], left=ends[number])
    told = [record["pass"] for record in history]
    axis.set(yticks=[-n for n in range(len(told))], yticklabels=told, xlabel="seconds")


def nights(axis: Any, ran: Ran) -> None:
    new = [score for (score,) in ran.numbers(r"new model: .*accuracy ([\d.]+)")]
    axis.bar(range(1, len(new) + 1), new, color=["tab:green", "tab:red"][: len(new)])
    axis.axhline(new[0], color="k", lw=1, ls=":")
    told = ["night 1: in place", "night 2: refused"]
    axis.set(xticks=[1, 2], xticklabels=told, ylabel="accuracy")


def open_cells(axis: Any, ran: Ran) -> None:
    import numpy as np

    found = ran.found
    sure = found["model"].predict_proba(found["adata"][found["test"]]).max(axis=1)
    order = np.argsort(-sure)
    right = np.asarray(found["right"])[order]
    share = np.arange(1, right.size + 1) / right.size
    axis.plot(100 * share[10:], (np.cumsum(right) / np.arange(1, right.size + 1))[10:])
    axis.set(xlabel="cells that get a label, %", ylabel="accuracy of these labels")


def agreement(axis: Any, ran: Ran) -> None:
    found = ran.found
    ours = found["model"].decision_function(found["X_test"])
    axis.plot(ours.ravel(), found["scores"].ravel(), ".", ms=2)
    axis.set(xlabel="scores here", ylabel="scores of ONNX")


def metrics(axis: Any, ran: Ran) -> None:
    (history,) = ran.histories
    for name in ("primal", "dual"):
        axis.plot([r["epoch"] for r in history], [r[name] for r in history], label=name)
    axis.set(xlabel="step", ylabel="metric", ylim=(0, 3 * history[-1]["primal"]))
    axis.legend()


DRAWN: dict[str, Callable[[Any, Ran], None]] = {
    "calibrated_probabilities": calibration,
    "choose_c": path_of_C,
    "killed_worker": killed,
    "larank_stream": stream,
    "larger_than_memory": passes,
    "mlflow_run": metrics,
    "nightly": nights,
    "nightly_on_cluster": on_cluster,
    "nightly_prefect": retried,
    "single_cells": open_cells,
    "to_onnx": agreement,
}


def draw(name: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axis = plt.subplots(figsize=(4.2, 2.8), layout="constrained")
    DRAWN.get(name, gaps)(axis, Ran(name))
    axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(PICTURES / f"{name}.png", dpi=110)
    plt.close(figure)
    print(f"docs/images/examples/{name}.png")


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
    PICTURES.mkdir(exist_ok=True, parents=True)
    for each in sys.argv[1:] or names():
        draw(each)
