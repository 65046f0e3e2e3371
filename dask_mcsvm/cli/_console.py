"""How every command speaks: results on stdout, the rest on stderr, errors in one sentence."""

import json
import math
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TextIO, TypeVar

import click

from dask_mcsvm.cli._words import in_the_shell
from dask_mcsvm.progress import printable

FAILED, BAD_INPUT, NOT_CONVERGED, INTERRUPTED = 1, 2, 3, 130

Command = TypeVar("Command", bound=Callable[..., Any])


class Told(click.ClickException):
    """An error whose words may come from data."""

    def format_message(self) -> str:
        """As a terminal may show it."""
        return plain(self.message)


class Refused(Told):
    """Bad input: one sentence, and nothing was changed."""

    exit_code = BAD_INPUT


class Broken(Told):
    """Something failed that is not the user's input."""

    exit_code = FAILED


@dataclass
class Console:
    """What a command says, and where."""

    as_json: bool = False
    quiet: bool = False
    warned: list[str] = field(default_factory=list)
    #: What the command has written so far, in words that end "Stopped by Ctrl-C; ...".
    written: Callable[[], str] = lambda: "nothing was written."

    def note(self, text: str) -> None:
        """For people, on stderr."""
        if not self.quiet:
            click.echo(plain(text), err=True)

    def result(self, document: dict[str, Any], text: str) -> None:
        """What the command was called for, on stdout: one JSON document, or text."""
        if self.as_json:
            click.echo(strict_json(document))
        else:
            click.echo(plain(text))

    def summary(self, document: dict[str, Any], text: str) -> None:
        """As `result`, for commands whose result is a file: --quiet leaves the text out."""
        if self.as_json or not self.quiet:
            self.result(document, text)

    def callbacks(self, tol: float | None) -> tuple[Any, ...]:
        """Of a fit: the live line, which shows itself on terminals only."""
        from dask_mcsvm.progress import LiveLine

        return () if self.quiet else (LiveLine(tol),)

    @contextmanager
    def speaking(self) -> Iterator[None]:
        """Errors leave this block as one sentence with the right exit code, warnings as notes."""
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            # Of a socket or file that the interpreter closes: nothing that a user could do.
            warnings.simplefilter("ignore", ResourceWarning)
            warnings.showwarning = self._warn  # as it comes: some are about the hours ahead
            try:
                yield
            except (ValueError, ImportError) as error:
                raise Refused(in_the_shell(str(error))) from error
            except (FileNotFoundError, FileExistsError, IsADirectoryError) as error:
                raise Refused(_file_sentence(error)) from error
            except (BrokenPipeError, click.exceptions.Exit, click.exceptions.Abort):
                raise  # `| head` has seen enough, or click is told how to end
            except (OSError, MemoryError, RuntimeError) as error:
                raise Broken(_file_sentence(error)) from error
            except KeyboardInterrupt as stop:
                told = in_the_shell(str(stop)) or f"Stopped by Ctrl-C; {self.written()}"
                click.echo(plain(told), err=True)
                raise click.exceptions.Exit(INTERRUPTED) from None

    def _warn(
        self,
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        self.warned.append(category.__name__)
        if not issubclass(category, DeprecationWarning | PendingDeprecationWarning):
            self.note(f"Warning: {in_the_shell(str(message))}")


def common(command: Command) -> Command:
    """The options that every command has."""
    command = click.option("--quiet", is_flag=True, help="Say nothing but results and errors.")(
        command
    )
    return click.option(
        "--json", "as_json", is_flag=True, help="Print one JSON document on stdout."
    )(command)


def plain(text: str) -> str:
    """Text of several lines that a terminal only shows, whatever names it holds."""
    return printable(text, keep="\n\t")


def strict_json(document: dict[str, Any]) -> str:
    """One line of JSON, which stays the same document with what is not printable spelled out."""
    text = json.dumps(_strict(document), ensure_ascii=False)
    return "".join(c if printable(c) == c else f"\\u{ord(c):04x}" for c in text)


def refuse_existing(path: str, what: str, overwrite: bool) -> None:
    """Refuse an output that could not be written, before a long computation and not after it."""
    from dask_mcsvm.storage import kind_of

    found = kind_of(path)
    if found is None and ("://" in path or not os.path.lexists(path) or _is_empty_folder(path)):
        return
    if found != what:
        raise Refused(
            f"{path} exists and is not a {what} written by dask_mcsvm; remove it or choose another "
            "path."
        )
    if not overwrite:
        raise Refused(f"{path} exists; pass --overwrite to replace it.")


def _is_empty_folder(path: str) -> bool:
    return os.path.isdir(path) and not os.listdir(path)


def columns(rows: list[tuple[str, ...]], right: tuple[int, ...] = ()) -> str:
    """Rows as aligned columns, two spaces apart; columns in `right` are set flush right."""
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if place in right else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _file_sentence(error: BaseException) -> str:
    if isinstance(error, MemoryError):
        return "there is not enough memory; take a smaller part of the data, or more memory."
    if isinstance(error, FileNotFoundError) and error.filename is not None:
        return f"{error.filename}: there is no such file; check the path."
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}."
    return in_the_shell(str(error))


def _strict(value: Any) -> Any:
    """JSON has no nan: null instead."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(item) for item in value]
    return value.item() if hasattr(value, "item") else value
