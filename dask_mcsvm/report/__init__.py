"""The report of a run: how it converged, what it cost, which classes it confuses."""

import base64
import html
import os
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dask_mcsvm.report._page import page
from dask_mcsvm.report._run import run_of
from dask_mcsvm.report.scores import Scores, Tally

__all__ = ["Report", "Scores", "Tally", "write_report"]

KINDS = (".html", ".png")


def write_report(
    model: Any,
    path: str | os.PathLike[str],
    X: Any = None,
    y: Any = None,
    *,
    scores: Scores | None = None,
    overwrite: bool = False,
) -> "Report":
    """Write the report of a fitted model: one HTML file that needs no other, or a PNG.

    Objectives and gap over time and epochs, the active share, the weights, parameters and
    versions; with rows to score also F1 per class and the classes that are confused most; where
    the history of a distributed fit has them, time per kind of task, bytes moved and the rounds.

    Parameters
    ----------
    model : LinearMCSVC
        Fitted, or loaded.
    path : str or path-like
        A local file; its ending, .html or .png, says what is written.
    X, y : array-like of shape (n, d) and (n,), optional
        Rows to score, best ones that the model has not seen.
    scores : Scores, optional
        Instead of X and y: what a `Tally` of predictions made elsewhere found.
    overwrite : bool
        Replace a file at `path`, once the new one is whole.

    Returns
    -------
    Report
        Where it is; a notebook shows the report itself.

    Raises
    ------
    ImportError
        matplotlib is missing; the message says what to type.
    FileExistsError
        `path` exists and `overwrite` is False.

    Examples
    --------
    >>> import tempfile
    >>> from sklearn.datasets import load_iris
    >>> from dask_mcsvm import LinearMCSVC
    >>> from dask_mcsvm.report import write_report
    >>> X, y = load_iris(return_X_y=True)
    >>> model = LinearMCSVC(random_state=0).fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     report = write_report(model, f"{folder}/iris.html", X, y)
    """
    target = Path(path)
    check_target(target, overwrite=overwrite)
    if (X is None) != (y is None):
        raise ValueError("X and y belong together; pass both, or neither.")
    if X is not None:
        tally = Tally(model.classes_)
        tally.add(y, model.predict(X))
        scores = tally.scores()
    run = run_of(model, scores)
    draw = _drawing()
    if target.suffix == ".html":
        content = page(run, draw.drawn_panels(run)).encode()
    else:
        content = draw.overview(run)
    _replace(target, content)
    return Report(target)


@dataclass(frozen=True)
class Report:
    """A report that was written.

    Attributes
    ----------
    path : Path
    """

    path: Path

    def _repr_html_(self) -> str:
        """The page or the picture, as a notebook shows it."""
        content = self.path.read_bytes()
        if self.path.suffix == ".png":
            picture, name = base64.b64encode(content).decode(), html.escape(str(self.path))
            return f'<img alt="{name}" src="data:image/png;base64,{picture}">'
        page = html.escape(content.decode(), quote=True)  # a frame keeps styles apart
        return f'<iframe style="width:100%;height:760px;border:0" srcdoc="{page}"></iframe>'


def check_target(path: str | os.PathLike[str], *, overwrite: bool) -> None:
    """Refuse a path that no report can be written to, before anything is computed."""
    target = Path(path)
    if target.suffix not in KINDS:
        raise ValueError(
            f"{target}: a report ends in .html or .png; type {target.with_suffix('.html')}."
        )
    if target.exists() and not overwrite:
        raise FileExistsError(f"{target} exists; pass overwrite=True to replace it.")
    if not target.parent.is_dir():
        raise FileNotFoundError(
            f"{target}: there is no folder {target.parent}; make it first, or check the path."
        )
    _drawing()


def _drawing() -> Any:
    """The module that draws, which needs matplotlib."""
    try:
        from dask_mcsvm.report import _figures as figures
    except ModuleNotFoundError as error:
        if error.name != "matplotlib":
            raise
        raise ImportError(
            "matplotlib is not installed, and reports are drawn with it; "
            "type: pip install 'dask-mcsvm[report]'"
        ) from None
    return figures


def _replace(target: Path, content: bytes) -> None:
    """Readers see the old file or the new one, never a part."""
    partial = target.with_name(f".{target.name}.{uuid.uuid4().hex}.partial")
    try:
        partial.write_bytes(content)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
