"""Write a folder under a new name and let it take the target's name once it is whole."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ._owner import has_died, owned_name, owner_of
from ._place import Place

MARKED_OBJECT = "zarr.json"  # of the root group: it carries the commit marker, so it moves last


@contextmanager
def replacing(
    target: Place, what: str, *, overwrite: bool, is_ours: Callable[[Place], str | None]
) -> Iterator[Place]:
    """Yield a place to write; when the block ends without an error it becomes `target`.

    A local target is written under ``.<name>.writing-<owner>`` and renamed: a killed writer
    leaves nothing under the target's name, and the next writer removes what it left. Object
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
    old = target.sibling(_temporary_name(target, "replaced"))
    os.rename(target.path, old.path)
    os.rename(place.path, target.path)
    old.remove()


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
    for state in ("replaced", "writing"):
        prefix = f".{target.name}.{state}-"
        for name in names:
            owner = owner_of(name, prefix)
            if owner is None or not has_died(owner):
                continue
            left = target.sibling(name)
            if state == "replaced" and not target.exists():
                os.rename(left.path, target.path)
            else:
                left.remove()
