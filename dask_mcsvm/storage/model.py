"""Model files: weights in Zarr, everything else in JSON; loading one runs no code."""

from __future__ import annotations

import os
import uuid
import zlib
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from ._arrays import read_store, write_store
from ._format import MODEL, saying_where, state_of
from ._place import NotAFileError, Place, as_place
from ._replace import MARKED_OBJECT, read_current, replacing


def save_model(
    path: str | os.PathLike[str],
    arrays: Mapping[str, Any],
    meta: Mapping[str, Any],
    *,
    parts: Iterable[Any] = (),
    overwrite: bool = False,
) -> None:
    """Save named arrays and JSON values as a model.

    Parameters
    ----------
    path : str or path-like
        Local path or fsspec URL. A local model appears under its name when it is whole.
    arrays : mapping of str to ndarray or SciPy sparse matrix
        For example ``{"W": W}`` with W of shape (d, k), or (d + 1, k) with an intercept. A dense
        matrix is stored as CSR where that is smaller.
    meta : mapping
        Parameters, classes (`encode_classes`), gap, versions: strings, numbers (nan too), None,
        lists and dicts.
    parts : iterable of ndarray
        Columns of a W that is too large for one array; held one at a time, read by `read_part`.
    overwrite : bool
        Replace a model at `path`, once the new one is whole.

    Raises
    ------
    FileExistsError
        `path` exists and `overwrite` is False, or is not a model.
    TypeError
        An array or a value in `meta` can't be stored without pickle.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from dask_mcsvm.storage import load_model, save_model
    >>> folder = tempfile.TemporaryDirectory()
    >>> save_model(f"{folder.name}/m.zarr", {"W": np.eye(3)}, {"C": 1.0, "gap": float("nan")})
    >>> arrays, meta = load_model(f"{folder.name}/m.zarr")
    >>> arrays["W"][0], meta
    (array([1., 0., 0.]), {'C': 1.0, 'gap': nan})
    >>> folder.cleanup()
    """
    is_ours = partial(state_of, kind=MODEL)
    with replacing(as_place(path), "model", overwrite=overwrite, is_ours=is_ours) as place:
        for number, W in enumerate(parts):
            write_store(_part(place, number), MODEL, {"W": W}, {}, squeeze=True)
        write_store(place, MODEL, arrays, meta, squeeze=True)


def load_model(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Load what `save_model` saved; every chunk is checked against its checksum.

    While another process replaces a local model this is the old one or the new one.

    Parameters
    ----------
    path : str or path-like
        Local path or fsspec URL.

    Returns
    -------
    arrays : dict of str to ndarray or csr_array
        Dense where a dense array was saved, bit for bit.
    meta : dict
        Tuples come back as lists.

    Raises
    ------
    FileNotFoundError
        Nothing is there.
    ModelFormatError
        Not a model, of another version, never finished, or damaged.
    """
    return read_current(as_place(path), MODEL, _read_model)


def load_with_parts(
    path: str | os.PathLike[str],
) -> tuple[dict[str, Any], dict[str, Any], list[int]]:
    """As `load_model`, and the stamp of each part, by which `read_part` knows it again."""
    return read_current(as_place(path), MODEL, lambda place: (*_read_model(place), _stamps(place)))


def _read_model(place: Place) -> tuple[dict[str, Any], dict[str, Any]]:
    return read_store(place, MODEL)


def _stamps(place: Place) -> list[int]:
    parts = place.child("parts")
    names = {key.split("/", 1)[0] for key in parts.sizes()} if parts.exists() else set()
    return [_stamp(_part(place, number)) for number in range(len(names))]


def _stamp(part: Place) -> int:
    try:
        return zlib.crc32(part.read_bytes(MARKED_OBJECT))
    except (FileNotFoundError, NotADirectoryError, NotAFileError):
        raise MODEL.fault(part, "this part is missing") from None


def absolute_path(path: str | os.PathLike[str]) -> str:
    """A path or URL as workers have to be told it."""
    return as_place(path).path


def remove_parts(path: str) -> None:
    """Remove a folder of parts, and those in it."""
    as_place(path).remove()


def write_part(path: str, number: int, W: Any) -> None:
    """Write some columns of a W that is too large for one array; workers can, side by side.

    A part that is there already stays (a task may run twice, also on a worker believed dead).
    """
    place = _part(as_place(path), number)
    if state_of(place, kind=MODEL) == "finished":
        return
    if not place.is_local:  # no rename there: the marker, written last, makes it a part
        place.remove()
        write_store(place, MODEL, {"W": W}, {}, squeeze=True)
        return
    partial = place.sibling(f".{number}.{uuid.uuid4().hex}")
    try:
        with saying_where(place):
            write_store(partial, MODEL, {"W": W}, {}, squeeze=True)
        os.rename(partial.path, place.path)
    except OSError:
        if state_of(place, kind=MODEL) != "finished":  # no other run of this task was first
            raise
    finally:
        partial.remove()


def read_part(path: str, number: int, stamp: int | None = None) -> Any:
    """What `write_part`, or `save_model`, wrote; every chunk is checked against its checksum.

    With a `stamp` of `load_with_parts` it is that part, or an error.
    """
    part = _part(as_place(path), number)
    try:
        arrays, _ = read_store(part, MODEL)
    except (FileNotFoundError, MODEL.error):
        if stamp is not None and part.exists() and _stamp(part) != stamp:
            raise _replaced(path) from None
        raise
    if stamp is not None and _stamp(part) != stamp:
        raise _replaced(path)
    if "W" not in arrays or getattr(arrays["W"], "ndim", 0) != 2:
        raise MODEL.fault(part, "this part holds no W")
    return arrays["W"]


def _replaced(path: str) -> ValueError:
    return MODEL.error(
        f"{path}: the model was replaced after it was loaded; load it again with load."
    )


def _part(place: Place, number: int) -> Place:
    return place.child(f"parts/{number}")
