"""Write a folder under a new name and let it take the target's name once it is whole."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

from ._format import Kind, saying_where
from ._owner import has_died, owned_name, owner_of
from ._place import Place

T = TypeVar("T")

MARKED_OBJECT = "zarr.json"  # of the root group: it carries the commit marker, so it moves last
# A reader begins again when what it read was replaced meanwhile. Writing takes longer than reading,
# so that one who never ends must be reading something else.
MOST_TRIES = 100
REPLACED = "replaced"


@contextmanager
def replacing(
    target: Place, what: str, *, overwrite: bool, is_ours: Callable[[Place], str | None]
) -> Iterator[Place]:
    """Yield a place to write; when the block ends without an error it becomes `target`.

    A local target is written under ``.<name>.writing-<owner>`` and renamed: a killed writer
    leaves nothing under the target's name, and the next writer removes what it left. Old and new
    trade names in one step where the system can (Linux); a reader uses `read_current`. Object
    stores can't rename: a new target is written in place (the marker, written last, makes it
    a `what`), an existing one is written under another name and moved, marker last.

    Parameters
    ----------
    is_ours : callable
        "finished" or "unfinished" for a `what` written by this package, None otherwise.

    Raises
    ------
    FileExistsError
        The target exists and `overwrite` is False, or it is not a `what` of this package.
    """
    if target.is_local:  # a link stays, what it points at is replaced
        target = Place(os.path.realpath(target.path), target.shown)
    _tidy(target)
    _refuse_existing(target, what, overwrite, is_ours)
    in_place = not target.is_local and not target.exists()
    place = target if in_place else target.sibling(_temporary_name(target, "writing"))
    place = Place(place.path, target.shown)
    try:
        with saying_where(target):
            yield place
        if not in_place:
            _take_name(place, target, what, overwrite)
    except BaseException:
        place.remove()
        raise


def _refuse_existing(
    target: Place, what: str, overwrite: bool, is_ours: Callable[[Place], str | None]
) -> None:
    if not target.exists() or target.is_empty_folder():
        return
    state = is_ours(target)
    if state is None:
        raise FileExistsError(
            f"{target.shown} exists and is not a {what} written by dask_mcsvm; "
            "remove it or choose another path."
        )
    if state == "unfinished" and not target.is_local:
        target.remove()  # what a killed writer left: object stores have no rename to hide it
    elif not overwrite:
        raise FileExistsError(_exists(target))


def _exists(target: Place) -> str:
    return f"{target.shown} exists; pass overwrite=True to replace it."


def _take_name(place: Place, target: Place, what: str, overwrite: bool) -> None:
    if not target.is_local:
        _move_objects(place, target)
        return
    if not target.exists() or target.is_empty_folder():
        try:
            os.rename(place.path, target.path)  # over an empty folder too; fails over a full one
        except OSError:
            if not target.exists():
                raise
            raise FileExistsError(_exists(target)) from None  # another writer was first
        return
    if not overwrite:
        raise FileExistsError(_exists(target))
    if _exchange(place.path, target.path):
        place.remove()
        return
    old = target.sibling(_temporary_name(target, REPLACED))
    os.rename(target.path, old.path)
    os.rename(place.path, target.path)
    old.remove()


def _exchange(one: str, other: str) -> bool:
    """Let two paths trade places in one step; False where the system or its files can't."""
    if not sys.platform.startswith("linux"):
        return False
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    try:
        renameat2 = ctypes.CDLL(None).renameat2
    except (AttributeError, OSError):  # another C library
        return False
    return bool(renameat2(here, os.fsencode(one), here, os.fsencode(other), exchange) == 0)


def read_current(place: Place, kind: Kind, read: Callable[[Place], T]) -> T:
    """What `read` finds at a place: the old version or the new one while it is being replaced.

    An error counts only if the marker was the same before and after: else another process has
    replaced what was read, and it is read anew.
    """
    for _ in range(MOST_TRIES):
        before = _marker_bytes(place)
        source = place if before is not None else _between_names(place) or place
        try:
            found = read(source)
        except (kind.error, FileNotFoundError):
            if _marker_bytes(place) == before:
                raise
        else:
            if _marker_bytes(place) == before:
                return found
    raise kind.error(
        f"{place.shown}: was replaced {MOST_TRIES} times while it was read; try again when it is "
        "written less often."
    )


def _marker_bytes(place: Place) -> bytes | None:
    try:
        return place.read_bytes(MARKED_OBJECT)
    except OSError:
        return None


def is_between_names(place: Place) -> bool:
    """Whether a place is empty because a writer is about to rename its new version."""
    return _between_names(place) is not None


def _between_names(place: Place) -> Place | None:
    """The old version, while the name is free between two renames."""
    if not place.is_local or place.exists():
        return None
    target = Place(os.path.realpath(place.path), place.shown)
    with suppress(OSError):
        for name in sorted(os.listdir(os.path.dirname(target.path))):
            if owner_of(name, f".{target.name}.{REPLACED}-") is not None:
                return Place(target.sibling(name).path, place.shown)
    return None


def _move_objects(place: Place, target: Place) -> None:
    target.remove_bytes(MARKED_OBJECT)  # from here on a reader sees no dataset, not a mixed one
    target.remove()
    keys = sorted(place.sizes(), key=lambda key: (key == MARKED_OBJECT, key))
    for key in keys:
        place.copy_object(key, target)
    place.remove()


def _temporary_name(target: Place, state: str) -> str:
    return owned_name(f".{target.name}.{state}-")


def _tidy(target: Place) -> None:
    """Remove what dead writers of this target left; put back a target caught between renames."""
    if not target.is_local:
        return
    folder = os.path.dirname(target.path)
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    for state in (REPLACED, "writing"):
        prefix = f".{target.name}.{state}-"
        for name in names:
            owner = owner_of(name, prefix)
            if owner is None or not has_died(owner):
                continue
            left = target.sibling(name)
            if state == REPLACED and not target.exists():
                os.rename(left.path, target.path)
            else:
                left.remove()
