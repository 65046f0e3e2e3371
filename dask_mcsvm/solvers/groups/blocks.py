"""Blocks of state of the class-group solvers, and how they travel between processes.

W and alpha are dense where they are worked on; between processes only their nonzeros travel while
most are zero.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from dask_mcsvm.formulations import Tally
from dask_mcsvm.solvers.row_block import RowBlock

from .sparse_duals import Lists, lists_from, prefixed

Array: TypeAlias = npt.NDArray[Any]
#: The classes of a group, ascending.
Classes: TypeAlias = npt.NDArray[np.intp]


class Packed(NamedTuple):
    """An array on its way to another process, without its zeros: a bit each and the rest."""

    shape: tuple[int, ...]
    nonzero: npt.NDArray[np.uint8]
    values: Array


def packed(array: Array) -> Array | Packed:
    """What to send: the array itself, or where at least half of it is zero the nonzeros."""
    if not array.flags.c_contiguous:
        return array
    # Bits, not values: -0.0 has to arrive as -0.0 for the same bytes on every scheduler.
    nonzero = array.view(f"u{array.dtype.itemsize}") != 0
    if 2 * np.count_nonzero(nonzero) > array.size:
        return array
    return Packed(array.shape, np.packbits(nonzero), array[nonzero])


def unpacked(sent: Array | Packed) -> Array:
    """What `packed` was given."""
    if not isinstance(sent, Packed):
        return sent
    size = math.prod(sent.shape)
    array: Array = np.zeros(size, sent.values.dtype)
    array[np.unpackbits(sent.nonzero, count=size).view(np.bool_)] = sent.values
    return array.reshape(sent.shape)


class GroupWeights(NamedTuple):
    """The columns of W of one group, and what the visits counted for it did in this epoch."""

    W: Array  # (d + 1, classes of the group)
    tally: Tally

    def arrays(self) -> dict[str, Array]:
        """W, and the tally as one array."""
        return {"W": self.W, "tally": np.array(self.tally, np.float64)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> GroupWeights:
        """The block that `arrays` came from."""
        return cls(arrays["W"], tally_from(arrays["tally"]))

    def __reduce__(self) -> tuple[Any, ...]:
        return unpacked_weights, (packed(self.W), self.tally)


class Side(NamedTuple):
    """Variables of some rows for the classes of one group."""

    alpha: Array  # (rows, classes)
    rest: npt.NDArray[np.uint8]  # (rows, classes) visits since the variable moved

    def copy(self) -> Side:
        """For a task to work on."""
        return Side(self.alpha.copy(), self.rest.copy())

    def arrays(self) -> dict[str, Array]:
        """alpha and rest."""
        return self._asdict()

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> Side:
        """The block that `arrays` came from."""
        return cls(arrays["alpha"], arrays["rest"])

    def __reduce__(self) -> tuple[Any, ...]:
        return unpacked_side, (packed(self.alpha), self.rest)


class RoundWeights(NamedTuple):
    """What travels with a group from round to round.

    The last row of W is the intercept that scores use. ``bias`` is the one that alpha puts there;
    the two differ while groups trade it (docs/math.md, [TRADE]).
    """

    W: Array  # (d + 1, classes of the group)
    tally: Tally
    bias: npt.NDArray[np.float64]  # (classes,)
    own: tuple[Lists, ...]  # of each block of the group's rows, for the group's own classes

    def arrays(self) -> dict[str, Array]:
        """W, bias, the tally as one array, and the lists."""
        found = {"W": self.W, "tally": np.array(self.tally, np.float64), "bias": self.bias}
        return found | prefixed({f"own_{s}": lists for s, lists in enumerate(self.own)})

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> RoundWeights:
        """The block that `arrays` came from."""
        steps = sum(name.endswith("_size") for name in arrays)
        return cls(
            arrays["W"],
            tally_from(arrays["tally"]),
            arrays["bias"],
            tuple(lists_from(arrays, f"own_{s}") for s in range(steps)),
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return unpacked_round, (packed(self.W), *self[1:])


class PairDuals(NamedTuple):
    """What two groups share: rows of a for the classes of b, rows of b for those of a."""

    ab: Lists
    ba: Lists
    preference_a: npt.NDArray[np.float32]  # (rows,) how often a row deserves a visit with b
    preference_b: npt.NDArray[np.float32]
    average: npt.NDArray[np.float64]  # (1,) running mean of the gain of a visit

    def arrays(self) -> dict[str, Array]:
        """Lists and all."""
        found = {name: getattr(self, name) for name in self._fields[2:]}
        return found | prefixed({"ab": self.ab, "ba": self.ba})

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> PairDuals:
        """The block that `arrays` came from."""
        return cls(
            lists_from(arrays, "ab"),
            lists_from(arrays, "ba"),
            *(arrays[name] for name in cls._fields[2:]),
        )


def tally_from(array: Array) -> Tally:
    """A tally that was kept as an array."""
    gain, violation, work, gap, active = array.tolist()
    return Tally(gain, violation, int(work), gap, active)


def unpacked_round(sent: Array | Packed, *others: Any) -> RoundWeights:
    """`RoundWeights` as they arrive."""
    return RoundWeights(unpacked(sent), *others)


def unpacked_weights(sent: Array | Packed, tally: Tally) -> GroupWeights:
    """`GroupWeights` as they arrive."""
    return GroupWeights(unpacked(sent), tally)


def unpacked_side(sent: Array | Packed, rest: npt.NDArray[np.uint8]) -> Side:
    """`Side` as it arrives."""
    return Side(unpacked(sent), rest)


def placed(block: RowBlock, classes: Classes) -> RowBlock:
    """A block whose y is the place among `classes`, ascending; -1 where the class is not there."""
    found = np.minimum(np.searchsorted(classes, block.y), classes.size - 1)
    return block._replace(y=np.where(classes[found] == block.y, found, -1).astype(np.int32))


def take(block: RowBlock, rows: npt.NDArray[np.intp]) -> RowBlock:
    """Some rows of a block, copied."""
    ids, X, y, C, square = block
    return RowBlock(ids[rows], X[rows], y[rows], C[rows], square[rows])
