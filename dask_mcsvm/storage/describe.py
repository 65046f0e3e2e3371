"""What is stored at a path: datasets, models and checkpoints told apart without reading arrays."""

from __future__ import annotations

import os
from typing import Any

from dask_mcsvm.errors import DatasetFormatError

from ._arrays import read_store_marker
from ._format import DATASET, MODEL, check_sizes, state_of
from ._place import Place, as_place
from ._replace import read_current
from .checkpoint import POINTER, Checkpoint
from .dataset import open_dataset


def kind_of(path: str | os.PathLike[str]) -> str | None:
    """ "dataset", "model" or "checkpoint", whole or not; None for anything else, or nothing.

    Examples
    --------
    >>> kind_of("/no/such/path") is None
    True
    """
    place = as_place(path)
    for kind in (DATASET, MODEL):
        if state_of(place, kind) is not None:
            return kind.name
    try:
        place.read_bytes(POINTER)
    except OSError:
        return None
    return "checkpoint"


def describe(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What a dataset, model or checkpoint holds, as JSON values.

    Every chunk is checked to be there with its size, by a listing; none is read.

    Parameters
    ----------
    path : str or path-like
        Local path or fsspec URL.

    Returns
    -------
    dict
        "kind" and "bytes", and what that kind has: a dataset its shape, classes and fingerprint,
        a model the shapes of its arrays and its meta, a checkpoint its generation and meta.

    Raises
    ------
    FileNotFoundError
        Nothing is there.
    ValueError
        It is something else, of another version, never finished, or incomplete.
    """
    place = as_place(path)
    kind = kind_of(path)
    match kind:
        case "dataset":
            found = _dataset(path)
        case "model":
            found = _model(place)
        case "checkpoint":
            found = _checkpoint(path)
        case _ if not place.exists():
            raise FileNotFoundError(f"{place.shown}: there is nothing here; check the path.")
        case _:
            raise DatasetFormatError(
                f"{place.shown}: not a dataset, model or checkpoint written by dask_mcsvm; "
                "check the path."
            )
    return {"kind": kind, "path": place.shown, "bytes": sum(place.sizes().values()), **found}


def _dataset(path: str | os.PathLike[str]) -> dict[str, Any]:
    dataset = open_dataset(path)
    return {
        "rows": dataset.shape[0],
        "features": dataset.shape[1],
        "classes": dataset.n_classes,
        "nonzeros": dataset.nnz,
        "sparse": dataset.is_sparse,
        "dtype": dataset.dtype.name,
        "weights": dataset.has_weights,
        "blocks": dataset.n_blocks,
        "largest_row_norm": dataset.max_row_norm,
        "fingerprint": dataset.fingerprint,
    }


def _model(place: Place) -> dict[str, Any]:
    marker = read_current(place, MODEL, _model_marker)
    arrays = {
        name: {"shape": form["shape"], "stored": form["stored"]}
        for name, form in marker["arrays"].items()
    }
    return {"created_by": marker.get("created_by"), "arrays": arrays, **marker["meta"]}


def _model_marker(place: Place) -> dict[str, Any]:
    marker = read_store_marker(place, MODEL)
    check_sizes(place, MODEL, marker["chunks"])
    return marker


def _checkpoint(path: str | os.PathLike[str]) -> dict[str, Any]:
    checkpoint = Checkpoint(path)
    state = checkpoint.read()
    meta = {} if state is None else state[1]
    return {
        "generation": checkpoint.generation,
        "blocks": len(checkpoint.block_names),
        "meta": meta,
    }
