"""Watching a fit: a line of text, a live line for a terminal, events on a cluster.

Everything here is a callback of an estimator: it is called with the record of every epoch. A
callback that has a `close` method is closed when the fit ends, however it ends; one that has a
`note` method is called with a line of text every ten seconds of an epoch that takes longer; one
that has an `announce` method is told when kernels are compiled before the first epoch.
"""

import html
import io
import logging
import math
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TextIO

Record = dict[str, Any]
Listener = Callable[[str], object]

logger = logging.getLogger("dask_mcsvm")

TOPIC = "dask-mcsvm"
BAR_WIDTH = 18
# Drawn at most this often, in seconds of the fit: a terminal over a network is slow.
EVERY_SECONDS = 0.1
# The same of a log file, which keeps every line; and of how far a long pass is.
LINE_SECONDS = 10.0

_listeners: ContextVar[Sequence[Listener]] = ContextVar("listeners", default=())


@contextmanager
def listening(listeners: Sequence[Listener]) -> Iterator[None]:
    """Let these hear what a `Meter` has to say, in this thread or task."""
    token = _listeners.set(listeners)
    try:
        yield
    finally:
        _listeners.reset(token)


class Meter:
    """Says every ten seconds how far a pass over many rows is: to listeners, and to the log.

    Parameters
    ----------
    total : int
        Units of the whole pass.
    unit : str
        What they are.
    """

    def __init__(self, total: int, unit: str = "rows") -> None:
        self.total, self.unit, self.done = total, unit, 0.0
        self._said = time.perf_counter()
        self._first: tuple[float, float] | None = None

    def add(self, done: float) -> None:
        """So many units more are done."""
        self.done += done
        now = time.perf_counter()
        # The pace is that after the first call, before which kernels may have been compiled.
        begun, before = self._first = self._first or (now, self.done)
        if now - self._said < LINE_SECONDS:
            return
        self._said, more = now, self.done - before
        text = f"{self.done:,.0f} of {self.total:,} {self.unit}"
        if more > 0:
            left = duration((self.total - self.done) * (now - begun) / more)
            text += f", about {left} left in this pass"
        logger.info("  %s", text)
        for listener in _listeners.get():
            listener(text)


# Control characters (a terminal obeys them), separators of lines, marks that turn the direction of
# text around, and halves of characters, which no file can hold.
_NOT_PRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]"
)


def printable(text: object, keep: str = "") -> str:
    """A name from data as text for a terminal, log or page; what these would obey is spelled out.

    Examples
    --------
    >>> print(printable("ham\x1b[31m\\nspam"))
    ham\\x1b[31m\\nspam
    """
    return _NOT_PRINTABLE.sub(
        lambda found: found[0] if found[0] in keep else repr(found[0])[1:-1], str(text)
    )


def line_of(record: Record) -> str:
    """One epoch in words; what was not measured in it is left out.

    Examples
    --------
    >>> line_of({"epoch": 3, "seconds": 0.41, "gap": 0.027, "active": 0.5})
    'epoch 3  0.41 s  gap 2.7e-02  active 50%'
    """
    formats = {
        "primal": "primal {:.6g}",
        "dual": "dual {:.6g}",
        "gap": "gap {:.1e}",
        "active": "active {:.0%}",
        "accuracy": "accuracy {:.3f}",
    }
    # A schedule may cut an epoch short or run over it: 3, but also 3.27.
    parts = [f"epoch {round(record['epoch'], 2):g}", f"{record['seconds']:.2f} s"]
    for name, text in formats.items():
        value = record.get(name)
        if value is not None and math.isfinite(value):
            parts.append(text.format(value))
    return "  ".join(parts)


class LiveLine:
    """One line on a terminal or in a notebook, drawn over and over; elsewhere a line every ten
    seconds.

    Parameters
    ----------
    tol : float, optional
        The `tol` of the fit: with it the line has a bar and an estimate of the time left.
    stream : text file, optional
        By default `sys.stderr` as it is when the fit begins.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from dask_mcsvm import LinearMCSVC
    >>> from dask_mcsvm.progress import LiveLine
    >>> X, y = load_iris(return_X_y=True)
    >>> model = LinearMCSVC(tol=1e-3, callbacks=(LiveLine(tol=1e-3),), random_state=0).fit(X, y)
    """

    def __init__(self, tol: float | None = None, stream: TextIO | None = None) -> None:
        self.tol = tol
        self.stream = stream
        self._drawn: float | None = None
        self._last: Record | None = None
        self._pace = Pace(tol)
        self._cell: Cell | None = None

    def __call__(self, record: Record) -> None:
        self._pace.add(record)
        stream = self._where()
        if not stream.isatty():
            # From the first epoch on: before it kernels may have been compiled, once.
            self._drawn = record["seconds"] if self._drawn is None else self._drawn
            if record["seconds"] - self._drawn >= LINE_SECONDS:
                self._drawn = record["seconds"]
                stream.write(f"{self._text(stream, record)}\n")
                stream.flush()
            return
        self._last = record
        if self._drawn is None or record["seconds"] - self._drawn >= EVERY_SECONDS:
            self._draw(stream, record)

    def note(self, text: str) -> None:
        """Show how far a long epoch is."""
        stream = self._where()
        stream.write(_over(text) if stream.isatty() else f"{text}\n")
        stream.flush()

    def announce(self, text: str) -> None:
        """Show what goes on before the first epoch, where the first epoch takes its place."""
        stream = self._where()
        if stream.isatty():
            stream.write(_over(text))
            stream.flush()

    def close(self) -> None:
        """Show the last epoch and end the line; the next call begins another fit."""
        stream = self._where()
        if self._last is not None:
            self._draw(stream, self._last)
            stream.write("\n")
            stream.flush()
        self._drawn, self._last, self._pace = None, None, Pace(self.tol)
        self._cell = None

    def _where(self) -> TextIO:
        """The stream given, a cell's output in a notebook, or stderr."""
        if self.stream is not None:
            return self.stream
        if self._cell is None and in_notebook():
            self._cell = Cell()
        return sys.stderr if self._cell is None else self._cell

    def __getstate__(self) -> dict[str, Any]:
        """Without the cell, which belongs to one notebook."""
        return {**self.__dict__, "_cell": None}

    def _draw(self, stream: TextIO, record: Record) -> None:
        stream.write(_over(self._text(stream, record)))
        stream.flush()
        self._drawn = record["seconds"]

    def _text(self, stream: TextIO, record: Record) -> str:
        text = line_of({name: record.get(name) for name in SHOWN})
        share = self._pace.share
        if share is not None:
            text = f"{bar(share, _can_write_blocks(stream))}  {text}"
            left = self._pace.seconds_left
            if left is not None and share < 1:
                text += f"  about {duration(left)} left"
        return text


SHOWN = ("epoch", "seconds", "gap", "active", "accuracy")


class TqdmBar:
    """The same as a bar of tqdm: a widget in a notebook with ipywidgets, else text.

    Parameters
    ----------
    tol : float
        The `tol` of the fit: the bar is full when the gap is as small.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from dask_mcsvm import LinearMCSVC
    >>> from dask_mcsvm.progress import TqdmBar
    >>> X, y = load_iris(return_X_y=True)
    >>> model = LinearMCSVC(tol=1e-3, callbacks=(TqdmBar(tol=1e-3),), random_state=0).fit(X, y)
    """

    _install = "tqdm"

    def __init__(self, tol: float) -> None:
        self.tol = tol
        self._pace, self._bar = Pace(tol), None

    def __call__(self, record: Record) -> None:
        self._pace.add(record)
        self._show(self._pace.share or 0.0, line_of({name: record.get(name) for name in SHOWN}))

    def note(self, text: str) -> None:
        """Show how far a long epoch is."""
        self._show(self._pace.share or 0.0, text)

    announce = note

    def close(self) -> None:
        """End the bar; the next call begins another fit."""
        if self._bar is not None:
            self._end()
        self._pace, self._bar = Pace(self.tol), None

    def __getstate__(self) -> dict[str, Any]:
        """Without the bar, which belongs to one terminal or notebook."""
        return {**self.__dict__, "_bar": None}

    def _show(self, share: float, text: str) -> None:
        if self._bar is None:
            try:
                self._bar = self._begin()
            except ImportError:
                raise ImportError(
                    f"{type(self).__name__} draws with {self._install}; type: pip install "
                    f"{self._install}, or use LiveLine."
                ) from None
        self._move(share, text)

    def _begin(self) -> Any:
        from tqdm.auto import tqdm

        return tqdm(total=100, bar_format="{percentage:3.0f}%|{bar}| {desc}")

    def _move(self, share: float, text: str) -> None:
        bar: Any = self._bar
        bar.n = round(100 * share)
        bar.set_description_str(text)

    def _end(self) -> None:
        bar: Any = self._bar
        bar.close()


class RichBar(TqdmBar):
    """The same as a bar of rich.

    Parameters
    ----------
    tol : float
        The `tol` of the fit: the bar is full when the gap is as small.
    """

    _install = "rich"

    def _begin(self) -> Any:
        from rich.progress import BarColumn, Progress, TextColumn

        shown = Progress(BarColumn(BAR_WIDTH), TextColumn("{task.description}", markup=False))
        shown.add_task("", total=1.0)
        shown.start()
        return shown

    def _move(self, share: float, text: str) -> None:
        shown: Any = self._bar
        shown.update(shown.task_ids[0], completed=share, description=text)

    def _end(self) -> None:
        shown: Any = self._bar
        shown.stop()


def in_notebook() -> bool:
    """Whether this is the kernel of a notebook, which has output cells and no terminal."""
    found = sys.modules.get("IPython")  # a kernel has imported it; nobody else needs it
    shell = None if found is None else found.get_ipython()
    return hasattr(shell, "kernel")


class Cell(io.StringIO):
    """One output of a notebook's cell as a terminal of one line."""

    encoding = "utf-8"

    def __init__(self) -> None:
        super().__init__()
        from IPython.display import display

        self._show: Callable[..., Any] = display
        self._shown: Any = None

    def isatty(self) -> bool:
        """It can be drawn over."""
        return True

    def write(self, text: str) -> int:
        """Put this text where the last one was."""
        line = text.removeprefix("\r").removesuffix("\x1b[K")
        if line.strip():
            page = f"<pre style='margin:0'>{html.escape(line)}</pre>"
            bundle = {"text/plain": line, "text/html": page}
            if self._shown is None:
                self._shown = self._show(bundle, raw=True, display_id=True)
            else:
                self._shown.update(bundle, raw=True)
        return len(text)


class Pace:
    """How far a fit is, judged by the logarithm of its gap, which falls about evenly.

    Examples
    --------
    >>> pace = Pace(tol=1e-3)
    >>> for seconds, gap in [(1.0, 1.0), (2.0, 0.1)]:
    ...     pace.add({"seconds": seconds, "gap": gap})
    >>> round(pace.share, 2), round(pace.seconds_left, 1)
    (0.33, 2.0)
    """

    def __init__(self, tol: float | None) -> None:
        self._tol = tol
        self._first: tuple[float, float] | None = None
        self._now = 0.0
        self.share: float | None = None

    def add(self, record: Record) -> None:
        """Take note of an epoch."""
        gap, self._now = record.get("gap"), record["seconds"]
        if not self._tol or gap is None or not 0 < gap < math.inf:
            return
        if self._first is None:
            self._first = (self._now, gap)
        begun = self._first[1]
        whole = math.log(begun / self._tol) if begun > self._tol else 0.0
        share = math.log(begun / gap) / whole if whole > 0 else 1.0
        # The estimate of a gap may rise again; the bar does not.
        self.share = max(self.share or 0.0, min(1.0, max(0.0, share)))

    @property
    def seconds_left(self) -> float | None:
        """At the pace so far; None while that is a guess."""
        if self._first is None or not self.share or self.share < 0.05:
            return None
        return (self._now - self._first[0]) * (1 - self.share) / self.share


class ClusterEvents:
    """Send every record to the scheduler, where `Client.subscribe_topic` sees it.

    Parameters
    ----------
    topic : str
        Name of the topic.

    Examples
    --------
    A dashboard or another process follows a fit by::

        client.subscribe_topic("dask-mcsvm", lambda event: print(event[1]["gap"]))
    """

    def __init__(self, topic: str = TOPIC) -> None:
        self.topic = topic

    def __call__(self, record: Record) -> None:
        from distributed import get_client

        try:
            client = get_client()
        except ValueError:
            raise RuntimeError(
                "ClusterEvents found no Dask client to send events to; "
                "type client = distributed.Client(...) before the fit."
            ) from None
        client.log_event(self.topic, dict(record))


def bar(share: float, blocks: bool) -> str:
    """A bar of `BAR_WIDTH` cells, `share` of it full.

    Examples
    --------
    >>> bar(0.5, blocks=False)
    '[#########---------]'
    """
    full = round(share * BAR_WIDTH)
    if blocks:
        return "█" * full + "░" * (BAR_WIDTH - full)
    return f"[{'#' * full}{'-' * (BAR_WIDTH - full)}]"


def duration(seconds: float) -> str:
    """A time as one would say it.

    Examples
    --------
    >>> [duration(s) for s in (0.4, 12.3, 100, 7300)]
    ['1 s', '12 s', '1 min 40 s', '2 h 01 min']
    """
    whole = max(1, round(seconds))
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def _over(text: str) -> str:
    """Back to the first column, the text, and what was longer before is cleared."""
    return f"\r{text[: shutil.get_terminal_size().columns - 1]}\x1b[K"


def _can_write_blocks(stream: TextIO) -> bool:
    try:
        "█░".encode(getattr(stream, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
