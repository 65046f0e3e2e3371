"""The active set on disk: rows that some class still works on, cut as the source is cut.

Three records per block of the source. ``rows`` are the rows that are active for any class, with
their labels and costs; ``held`` lists the active variables of each class among them; ``rest`` lists
the other variables that are not zero, so that the model stays W(alpha). A row is stored once,
however many classes hold it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp

if TYPE_CHECKING:
    from dask_mcsvm.solvers.early_shrink.visits import Block
    from dask_mcsvm.storage import Scratch

#: Rows are written anew when less than this share of those stored is still active.
STALE = 0.75
#: Bytes per row besides its features: label, cost, id, squared norm, and room to renumber.
ROW_BYTES = 32


class Lists(NamedTuple):
    """Variables by class: those of class m are ``ids[indptr[m]:indptr[m + 1]]``, with alpha."""

    indptr: np.ndarray  # (k + 1,) int64
    ids: np.ndarray  # (q,) int32, rows
    alpha: np.ndarray  # (q,)

    def of(self, m: int) -> tuple[np.ndarray, np.ndarray]:
        """Views of the rows and values of class m."""
        part = slice(self.indptr[m], self.indptr[m + 1])
        return self.ids[part], self.alpha[part]

    @property
    def classes(self) -> np.ndarray:
        """The class of each variable, (q,)."""
        return np.repeat(np.arange(self.indptr.size - 1), np.diff(self.indptr))

    def pick(self, chosen: np.ndarray) -> Lists:
        """The chosen variables (bool or positions in ascending order)."""
        counts = np.bincount(self.classes[chosen], minlength=self.indptr.size - 1)
        indptr = np.concatenate([[0], np.cumsum(counts)])
        return Lists(indptr, self.ids[chosen], self.alpha[chosen])


def join(parts: Sequence[Lists]) -> Lists:
    """Several lists as one; within a class in the order of the parts."""
    order = np.argsort(np.concatenate([part.classes for part in parts]), kind="stable")
    counts = np.sum([np.diff(part.indptr) for part in parts], axis=0, dtype=np.int64)
    return Lists(
        np.concatenate([[0], np.cumsum(counts)]),
        np.concatenate([part.ids for part in parts])[order],
        np.concatenate([part.alpha for part in parts])[order],
    )


def by_class(parts: Iterable[tuple[np.ndarray, np.ndarray]]) -> Lists:
    """Lists from (rows, alpha) of each class in turn."""
    ids, alpha = zip(*parts, strict=True)
    indptr = np.cumsum([0, *map(len, ids)])
    return Lists(indptr, np.concatenate(ids).astype(np.int32), np.concatenate(alpha))


class Piece(NamedTuple):
    """What is known of one block of the source: places of its active rows, and its variables."""

    places: np.ndarray  # (rows,) int32, ascending: rows of the block that are stored
    held: Lists  # ids count the rows stored
    rest: Lists  # ids count the rows of the block; alpha > 0


def as_arrays(piece: Piece) -> dict[str, np.ndarray]:
    """A piece as few arrays, for a checkpoint."""
    both = (piece.held, piece.rest)
    return {
        "places": piece.places,
        "indptr": np.stack([lists.indptr for lists in both]),
        "ids": np.concatenate([lists.ids for lists in both]),
        "alpha": np.concatenate([lists.alpha for lists in both]),
    }


def from_arrays(arrays: dict[str, np.ndarray]) -> Piece:
    """What `as_arrays` was given."""
    indptr, cut = arrays["indptr"], int(arrays["indptr"][0, -1])
    held = Lists(indptr[0], arrays["ids"][:cut], arrays["alpha"][:cut])
    return Piece(
        arrays["places"], held, Lists(indptr[1], arrays["ids"][cut:], arrays["alpha"][cut:])
    )


class Load:
    """Pieces in memory at the same time, as one block of rows."""

    def __init__(self, pieces: Sequence[int], block: Block, bases: np.ndarray, lists: Lists):
        self.pieces, self.block, self.bases, self.lists = pieces, block, bases, lists
        #: Which variables are still worked on.
        self.awake = np.ones(lists.ids.size, np.bool_)

    def variables(self, m: int) -> np.ndarray:
        """Positions of the variables of class m that are awake."""
        first, last = self.lists.indptr[m], self.lists.indptr[m + 1]
        positions: np.ndarray = first + np.flatnonzero(self.awake[first:last])
        return positions


class ActiveStore:
    """Pieces in a scratch folder, and how large each is."""

    def __init__(
        self, scratch: Scratch, n_blocks: int, d: int, dtype: np.dtype[Any], is_sparse: bool
    ) -> None:
        self.scratch, self.d, self.dtype, self.is_sparse = scratch, d, dtype, is_sparse
        self.rows = np.zeros(n_blocks, np.int64)
        self.entries = np.zeros(n_blocks, np.int64)
        self.variables = np.zeros(n_blocks, np.int64)

    # -- writing -----------------------------------------------------------------------------------

    def put(self, b: int, X: Any, y: np.ndarray, C: np.ndarray, held: Lists, rest: Lists) -> None:
        """Store a block anew; ids of ``held`` count the rows of X, which are those of the block."""
        used = np.zeros(y.size, np.bool_)
        used[held.ids] = True
        places = self.piece(b).places if self.rows[b] else np.empty(0, np.int32)
        if used[places].sum() < max(used.sum(), STALE * places.size):  # else what is stored will do
            places = np.flatnonzero(used).astype(np.int32)
            self.put_rows(b, X, y, C, places)
        stored = np.zeros(y.size, np.bool_)
        stored[places] = True
        self.put_variables(b, Piece(places, held._replace(ids=_numbers(stored)[held.ids]), rest))

    def put_rows(self, b: int, X: Any, y: np.ndarray, C: np.ndarray, chosen: np.ndarray) -> None:
        """Store the chosen rows of X."""
        record, part = {"y": y[chosen], "C": C[chosen]}, X[chosen]
        if self.is_sparse:
            record |= {"data": part.data, "indices": part.indices.astype(np.int32, copy=False)}
            record["indptr"] = part.indptr.astype(np.int64)
            self.entries[b] = part.data.size
        else:
            record["X"] = part
            self.entries[b] = part.size
        self.rows[b] = chosen.size
        self.scratch.write(f"rows-{b}", record)

    def put_variables(self, b: int, piece: Piece) -> None:
        """Store the variables of a block whose rows are stored."""
        self.variables[b] = piece.held.ids.size
        self.scratch.write_note(f"held-{b}", {"places": piece.places, **piece.held._asdict()})
        self.scratch.write_note(f"rest-{b}", piece.rest._asdict())

    # -- reading -----------------------------------------------------------------------------------

    def piece(self, b: int) -> Piece:
        """Places and variables of a block, without its rows."""
        held, rest = self.scratch.read_note(f"held-{b}"), self.scratch.read_note(f"rest-{b}")
        return Piece(held.pop("places"), Lists(**held), Lists(**rest))

    def nbytes(self) -> np.ndarray:
        """What each piece takes in memory, (n_blocks,)."""
        item = self.dtype.itemsize
        values = self.entries * (item + 4 if self.is_sparse else item)
        # A variable: its row, value, flag and place in a random order, and copies while at work.
        return values + ROW_BYTES * self.rows + 3 * (item + 8) * self.variables

    def loads(self, budget: float, order: np.ndarray) -> list[list[int]]:
        """Pieces in the given order, as many at a time as fit the budget."""
        sizes, groups, room = self.nbytes(), list[list[int]](), 0.0
        for b in order[self.rows[order] > 0].tolist():
            if not groups or sizes[b] > room:
                groups.append([])
                room = budget
            groups[-1].append(b)
            room -= sizes[b]
        return groups

    def open(self, pieces: Sequence[int], tau: float) -> Load:
        """Read pieces into memory."""
        from dask_mcsvm.solvers.early_shrink.visits import make_block

        pieces = sorted(pieces)
        bases = np.concatenate([[0], np.cumsum(self.rows[pieces])])
        n, size = int(bases[-1]), int(self.entries[pieces].sum())
        y, C = np.empty(n, np.int32), np.empty(n)
        X = _Rows(n, self.d, size, self.dtype, self.is_sparse)
        lists = []
        for b, first, last in zip(pieces, bases[:-1], bases[1:], strict=True):
            record = self.scratch.read(f"rows-{b}")
            y[first:last], C[first:last] = record["y"], record["C"]
            X.append(record, last - first)
            held = self.piece(b).held
            lists.append(held._replace(ids=held.ids + np.int32(first)))
        return Load(pieces, make_block(X.whole(), y, C, tau), bases, join(lists))

    def close(self, load: Load) -> None:
        """Write variables back; those that rest leave, and so do rows that no class holds."""
        piece_of = np.searchsorted(load.bases, load.lists.ids, side="right") - 1
        order = np.argsort(piece_of, kind="stable")
        cuts = np.searchsorted(piece_of[order], np.arange(len(load.pieces) + 1))
        for p, b in enumerate(load.pieces):
            first, last = load.bases[p], load.bases[p + 1]
            mine = load.lists.pick(order[cuts[p] : cuts[p + 1]])
            awake = load.awake[order[cuts[p] : cuts[p + 1]]]
            piece = self.piece(b)
            mine = mine._replace(ids=mine.ids - np.int32(first))
            held, left = mine.pick(awake), mine.pick(~awake & (mine.alpha > 0))
            rest = join([piece.rest, left._replace(ids=piece.places[left.ids])])
            used = np.zeros(last - first, np.bool_)
            used[held.ids] = True
            places = piece.places
            if used.sum() < STALE * used.size:
                X, chosen = _cut(load.block.rows, first, last, self.d), np.flatnonzero(used)
                self.put_rows(b, X, load.block.y[first:last], load.block.C[first:last], chosen)
                places, held = places[chosen], held._replace(ids=_numbers(used)[held.ids])
            self.put_variables(b, Piece(places, held, rest))


def _numbers(used: np.ndarray) -> np.ndarray:
    """The place of each used row among the used ones."""
    return np.cumsum(used, dtype=np.int32) - np.int32(1)


class _Rows:
    """Rows gathered piece by piece into arrays of the final size: never twice in memory."""

    def __init__(self, n: int, d: int, size: int, dtype: np.dtype[Any], is_sparse: bool) -> None:
        self.shape, self.is_sparse, self.n, self.used = (n, d), is_sparse, 0, 0
        if is_sparse:
            self.data, self.indices = np.empty(size, dtype), np.empty(size, np.int32)
            self.indptr = np.zeros(n + 1, np.int64)
        else:
            self.X = np.empty((n, d), dtype)

    def append(self, record: dict[str, np.ndarray], rows: int) -> None:
        if self.is_sparse:
            part = slice(self.used, self.used + record["data"].size)
            self.data[part], self.indices[part] = record["data"], record["indices"]
            self.indptr[self.n + 1 : self.n + rows + 1] = self.used + record["indptr"][1:]
            self.used = part.stop
        else:
            self.X[self.n : self.n + rows] = record["X"]
        self.n += rows

    def whole(self) -> Any:
        if not self.is_sparse:
            return self.X
        rows = sp.csr_array(self.shape, dtype=self.data.dtype)
        # Assigned, because the constructor would copy indptr to the type of indices.
        rows.data, rows.indices, rows.indptr = self.data, self.indices, self.indptr
        return rows


def _cut(rows: Any, first: int, last: int, d: int) -> Any:
    """Rows first:last of what kernels take as rows, as an array or CSR."""
    if isinstance(rows, np.ndarray):
        return rows[first:last]
    data, indices, indptr = rows
    low, high = indptr[first], indptr[last]
    parts = (data[low:high], indices[low:high], indptr[first : last + 1] - low)
    return sp.csr_array(parts, shape=(last - first, d))
