"""Model files: weights in Zarr, everything else in JSON; loading one runs no code."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from ._arrays import read_store, write_store
from ._format import MODEL, state_of
from ._place import Place, as_place
from ._replace import replacing


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
    return read_store(as_place(path), MODEL)


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
        write_store(partial, MODEL, {"W": W}, {}, squeeze=True)
        os.rename(partial.path, place.path)
    except OSError:
        if state_of(place, kind=MODEL) != "finished":  # no other run of this task was first
            raise
    finally:
        partial.remove()


def read_part(path: str, number: int) -> Any:
    """What `write_part`, or `save_model`, wrote; every chunk is checked against its checksum."""
    return read_store(_part(as_place(path), number), MODEL)[0]["W"]


def _part(place: Place, number: int) -> Place:
    return place.child(f"parts/{number}")
