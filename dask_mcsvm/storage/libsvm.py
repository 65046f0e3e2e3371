"""LIBSVM / svmlight text to a dataset: one pass over the text, in bounded memory."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import zlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import IO, Any, Literal, cast

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from ._blocks import LabelBlock, SetAside, encode_labels, set_aside, storable_dtype
from ._format import DATASET, Array, begin, state_of
from ._place import Place, as_place
from ._replace import replacing
from ._svmlight import DECIMAL, LineError, Lines, parse
from ._write import Contents, Progress, assemble
from .dataset import Dataset, open_dataset

PIECE_BYTES = 1 << 18  # of text parsed at once: the arrays of a piece stay in the cache
MAX_LINE_BYTES = 1 << 28  # a file without newlines would fill the memory


def convert_libsvm(
    source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    path: str | os.PathLike[str],
    *,
    n_features: int | None = None,
    zero_based: bool | Literal["auto"] = "auto",
    dtype: npt.DTypeLike = "float32",
    block_rows: int | None = None,
    block_bytes: int = 8 << 20,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Dataset:
    """Convert LIBSVM (svmlight) text to a dataset.

    The text is read once, in blocks; it takes some ten times `block_bytes` of memory, however long
    it is. Comments (``# ...``) and query ids (``qid:...``) are left out, empty lines too. Numbers
    are plain decimals as in ``7:-0.5e3``; what could be read in two ways is refused.

    Parameters
    ----------
    source : str or path-like, or several
        Text file, also .gz, .bz2, .xz or .zst; local path or fsspec URL. A pipe is read once, from
        the program that writes it. Several files are read in their order, as if they were one.
    path : str or path-like
        The dataset to write, see `write_dataset`.
    n_features : int, optional
        Number of features; by default up to the largest index found. Give it so that a test set
        gets the shape of its training set.
    zero_based : bool or "auto"
        Whether the first feature has index 0; "auto": if index 0 occurs anywhere.
    dtype : dtype
        Of the values stored; a value that it can not hold is refused.
    block_rows : int, optional
        Rows of a block, see `write_dataset`.
    block_bytes : int
        Text set aside at a time.
    overwrite : bool
        Replace a dataset at `path`, once the new one is whole.
    progress : callable, optional
        Called as ``progress(rows, bytes_done, bytes_total)`` with bytes of `source`.

    Returns
    -------
    Dataset
        Labels are integers if all are, else floats, else strings; so that ``7``, ``007`` and
        ``7.0`` are one class, and numbers that only more digits than those of float64 tell apart
        are strings.

    Raises
    ------
    ValueError
        A line can't be read, an index is out of range, a value is not finite, a line has several
        labels, or there are no rows; the message has the line number.
    FileExistsError
        `path` exists and `overwrite` is False, or is not a dataset.

    Examples
    --------
    >>> import pathlib
    >>> import tempfile
    >>> from dask_mcsvm.storage import convert_libsvm
    >>> folder = tempfile.TemporaryDirectory()
    >>> text = pathlib.Path(folder.name, "toy.svm")
    >>> _ = text.write_text("2 1:0.5 3:1\\n7 2:-1.5  # a comment\\n")
    >>> dataset = convert_libsvm(text, f"{folder.name}/toy.zarr")
    >>> dataset.classes, dataset.read_rows(0, 2).toarray()
    (array([2, 7]), array([[ 0.5,  0. ,  1. ],
           [ 0. , -1.5,  0. ]], dtype=float32))
    >>> folder.cleanup()
    """
    if zero_based not in (True, False, "auto"):
        raise ValueError(f"zero_based is {zero_based!r}; it must be True, False or 'auto'.")
    if n_features is not None and n_features < 1:
        raise ValueError(f"n_features is {n_features}; it must be at least 1, or None.")
    sources = [source] if isinstance(source, str | os.PathLike) else list(source)
    if not sources:
        raise ValueError("source is an empty list; pass at least one file.")
    first, *others = [
        _Text(as_place(name), zero_based, n_features, storable_dtype(dtype)) for name in sources
    ]
    is_ours = partial(state_of, kind=DATASET)
    with (
        first.place_opened() as opened,
        replacing(as_place(path), "dataset", overwrite=overwrite, is_ours=is_ours) as place,
    ):
        begin(place, DATASET)
        into = _Blocks(place, block_bytes, progress, sum(text.place.n_bytes() for text in others))
        into.add(first, *opened)
        for text in others:
            with text.place_opened() as opened:
                into.add(text, *opened)
        assemble(place, first.contents(into.blocks, into.lowest), block_rows=block_rows)
    return open_dataset(path)


@dataclass
class _Blocks:
    """Blocks of text set aside in the dataset at `place`, from one file after another."""

    place: Place
    block_bytes: int
    progress: Progress | None
    others: int  # bytes of the files that were not begun, and `before` of those that are done
    before: int = 0
    rows: int = 0
    lowest: int = 1
    blocks: list[SetAside] = field(default_factory=list)

    def add(self, text: _Text, file: IO[bytes], tell: Any, size: int) -> None:
        """The rows of one file."""
        total = self.before + size + self.others
        for X, labels in text.blocks(file, self.block_bytes):
            self.blocks.append(set_aside(self.place.path, len(self.blocks), X, labels))
            self.rows += X.shape[0]
            self.lowest = min(self.lowest, int(X.indices.min(initial=1)))
            if self.progress is not None:
                self.progress(self.rows, self.before + tell(), total)
        self.before += size
        self.others = max(0, self.others - size)


@dataclass(frozen=True)
class _Text:
    """The text and what is asked of it."""

    place: Place
    zero_based: bool | str
    n_features: int | None
    dtype: np.dtype[Any]

    @contextmanager
    def place_opened(self) -> Iterator[tuple[IO[bytes], Any, int]]:
        """The decompressed text, the position in the file as it is, and its size."""
        name = self.place.shown
        try:
            raw, total = self.place.open_file()
        except FileNotFoundError:
            raise FileNotFoundError(f"{name}: there is no such file; check the path.") from None
        with raw:
            try:
                yield _decompressed(self.place.name, raw), raw.tell, total
            except (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error) as error:
                raise _undecodable(name, error) from error
            except OSError as error:
                if type(error) is OSError and error.errno is None:  # what bz2 raises
                    raise _undecodable(name, error) from error
                raise
            except Exception as error:
                if type(error).__name__ == "ZstdError":  # of a library that may not be there
                    raise _undecodable(name, error) from error
                raise

    def blocks(self, file: IO[bytes], block_bytes: int) -> Iterator[tuple[Any, Array]]:
        """CSR rows and the bytes of their labels, about `block_bytes` of text at a time."""
        line, size, parts = 0, 0, list[Lines]()
        pieces = _pieces(file)
        while True:
            try:
                piece = next(pieces, b"")
                lines = parse(piece) if piece else None
            except LineError as error:
                raise self._wrong(line + error.line, str(error)) from None
            if lines is None:
                break
            self._check_indices(lines, line)
            parts.append(self._cast(lines, line))
            line += piece.count(b"\n")
            size += len(piece)
            if size >= block_bytes:
                yield self._joined(parts)
                size, parts = 0, []
        if parts:
            yield self._joined(parts)

    def contents(self, blocks: Sequence[SetAside], lowest: int) -> Contents:
        """What all blocks together make; `lowest` is the smallest index found, 1 at most."""
        rows = [block.x for block in blocks if block.x.rows]
        if not rows:
            raise ValueError(f"{self.place.shown}: holds no rows; is it the right file?")
        largest = max(block.features for block in rows) - 1
        from_zero = lowest == 0 if self.zero_based == "auto" else self.zero_based
        shift = 0 if from_zero else -1
        found = largest + 1 + shift
        if self.n_features is not None and found > self.n_features:
            raise ValueError(
                f"{self.place.shown}: index {largest} needs {found} features, n_features is "
                f"{self.n_features}; indices count from 0 here because index 0 occurs."
            )
        labels = _typed([block.y for block in blocks if block.y is not None])
        classes, codes = encode_labels(labels, None)
        n_features = self.n_features or max(1, found)
        x = [block.x for block in blocks]
        return Contents(x, codes, None, classes, n_features, self.dtype, shift)

    def _check_indices(self, lines: Lines, first_line: int) -> None:
        most = np.iinfo(np.int64).max
        if self.n_features is not None:
            most = self.n_features - (self.zero_based is True)
        least = 1 if self.zero_based is False else 0
        wrong = np.flatnonzero((lines.indices < least) | (lines.indices > most))
        if not len(wrong):
            return
        index = int(lines.indices[wrong[0]])
        if index < least:
            why = "index 0 in text that counts from 1; pass zero_based=True or 'auto'"
        else:
            why = f"index {index} is beyond n_features={self.n_features}; pass a larger n_features"
        raise self._wrong(first_line + _line_of(lines, wrong[0]), why)

    def _cast(self, lines: Lines, first_line: int) -> Lines:
        """The lines with values of the dtype asked for; one that it can not hold is refused."""
        with np.errstate(over="ignore", invalid="ignore"):
            data = lines.data.astype(self.dtype)
        whole = self.dtype.kind in "iu"
        fine = data == lines.data if whole else np.isfinite(data)
        if not fine.all():
            at = np.flatnonzero(~fine)[0]
            value, index = lines.data[at], lines.indices[at]
            if not np.isfinite(value):
                why = f"{index}:{value} is not a finite number; leave the pair or the line out"
            else:
                why = f"{index}:{value:g} does not fit {self.dtype}; pass dtype='float64'"
            raise self._wrong(first_line + _line_of(lines, at), why)
        return replace(lines, data=data)

    def _joined(self, parts: Sequence[Lines]) -> tuple[Any, Array]:
        counts = np.concatenate([np.diff(part.indptr) for part in parts])
        indptr = np.concatenate([[0], np.cumsum(counts)])
        indices = np.concatenate([part.indices for part in parts]).astype(np.int32)
        data = np.concatenate([part.data for part in parts])
        shape = (len(counts), int(indices.max(initial=0)) + 1)
        labels = np.concatenate([part.labels for part in parts])
        return sp.csr_matrix((data, indices, indptr), shape=shape), labels

    def _wrong(self, line: int, why: str) -> ValueError:
        return ValueError(f"{self.place.shown}, line {line + 1}: {why}.")


def _line_of(lines: Lines, entry: int) -> int:
    """The line that holds a pair, by its place among all of them."""
    row = int(np.searchsorted(lines.indptr, entry, side="right")) - 1
    return int(lines.lines[row])


def _undecodable(name: str, error: Exception) -> ValueError:
    return ValueError(f"{name}: can not be decompressed ({error}); fetch the file again.")


def _decompressed(name: str, raw: IO[bytes]) -> IO[bytes]:
    match os.path.splitext(name)[1].lower():
        case ".gz":
            return cast("IO[bytes]", gzip.GzipFile(fileobj=raw))
        case ".bz2":
            return cast("IO[bytes]", bz2.BZ2File(raw))
        case ".xz":
            return cast("IO[bytes]", lzma.LZMAFile(raw))
        case ".zst":
            return cast("IO[bytes]", _zstandard().ZstdDecompressor().stream_reader(raw))
        case _:
            return raw


def _zstandard() -> Any:
    try:
        import zstandard
    except ImportError:
        raise ImportError(
            ".zst files are read with zstandard; type: pip install 'dask-mcsvm[zst]'"
        ) from None
    return zstandard


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    """The text in pieces of whole lines, each ended by a newline."""
    rest, size = list[bytes](), 0
    data = file.read(PIECE_BYTES).removeprefix(b"\xef\xbb\xbf")  # some editors begin files so
    while data:
        cut = data.rfind(b"\n") + 1
        if cut:
            yield b"".join([*rest, data[:cut]])
            rest = []
        rest.append(data[cut:])
        size = len(rest[-1]) if cut else size + len(data)
        if size > MAX_LINE_BYTES:
            raise LineError(0, f"has more than {MAX_LINE_BYTES:,} bytes; pass svmlight text")
        data = file.read(PIECE_BYTES)
    if last := b"".join(rest):
        yield last + b"\n"


def _typed(blocks: Sequence[LabelBlock]) -> list[LabelBlock]:
    """Labels as integers if all of them are, else as floats, else as strings."""
    texts = sorted({label for block in blocks for label in block.labels.tolist()})
    typed = _integers(texts) or _floats(texts) or {text: text.decode() for text in texts}
    return [
        replace(block, labels=np.array([typed[text] for text in block.labels.tolist()]))
        for block in blocks
    ]


def _integers(texts: Sequence[bytes]) -> dict[bytes, int] | None:
    """What the labels are as int64; None if one is something else."""
    numbers = _decimals(texts)
    if not all(-(2**63) <= number < 2**63 and number % 1 == 0 for number in numbers.values()):
        return None
    return {text: int(number) for text, number in numbers.items()} or None


def _floats(texts: Sequence[bytes]) -> dict[bytes, float] | None:
    """What the labels are as float64; None if one is something else, or two become one."""
    numbers, spelled = _decimals(texts), defaultdict[float, set[Decimal]](set)
    for number in numbers.values():
        spelled[float(number)].add(number)
    if np.inf in spelled or -np.inf in spelled or any(len(same) > 1 for same in spelled.values()):
        return None
    return {text: float(number) for text, number in numbers.items()} or None


def _decimals(texts: Sequence[bytes]) -> dict[bytes, Decimal]:
    """The labels as exact numbers; none at all if one is something else."""
    if not all(map(DECIMAL.fullmatch, texts)):
        return {}
    try:
        return {text: Decimal(text.decode()) for text in texts}
    except InvalidOperation:  # an exponent of twenty digits
        return {}
