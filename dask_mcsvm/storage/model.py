"""Model files: weights in Zarr, everything else in JSON; loading one runs no code."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from typing import Any

from ._arrays import read_store, write_store
from ._format import MODEL, state_of
from ._place import as_place
from ._replace import replacing


def save_model(
    path: str | os.PathLike[str],
    arrays: Mapping[str, Any],
    meta: Mapping[str, Any],
    *,
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
