"""Writing datasets from arrays in memory and from Dask arrays."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from dask import config, threaded
from dask.array import core as da
from dask.base import compute, get_scheduler
from dask.delayed import delayed
from dask.system import CPU_COUNT

from ._blocks import SetAside, encode_labels, label_block, row_block, set_aside, weight_segment
from ._format import DATASET, Array, begin, state_of
from ._json import fixed_width
from ._place import Place, as_place
from ._replace import replacing
from ._write import ChunkTask, Contents, Progress, Written, assemble, run_here, write_task
from .dataset import Dataset, of_tasks, open_dataset


def write_dataset(
    path: str | os.PathLike[str],
    X: Any,
    y: Any,
    *,
    sample_weight: Any = None,
    classes: npt.ArrayLike | None = None,
    feature_names: Sequence[str] | None = None,
    block_rows: int | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Dataset:
    """Write rows and labels as a dataset.

    Dask arrays are written by tasks on the ambient scheduler: each block is computed once and set
    aside in a scratch folder of the dataset, then every chunk is written whole by one task. The
    client sees counts and distinct labels only. `path` must be one that all workers share, with
    room for the data twice while it is written.

    Parameters
    ----------
    path : str or path-like
        Local path or fsspec URL. A local dataset appears under its name when it is whole.
    X : array-like or sparse matrix of shape (n, d), or dask.array.Array of either
        Integers, float32 and float64 keep their dtype; a Dask array must be cut along rows only,
        its chunk sizes may be unknown.
    y : array-like or dask.array.Array of shape (n,)
        Labels: strings, integers, floats or bools.
    sample_weight : array-like or dask.array.Array of shape (n,), optional
        Stored as float64.
    classes : array-like, optional
        All labels, also those without a row. By default those found in `y`.
    feature_names : sequence of str, optional
        Names of the columns; a model that is fitted to the dataset has them.
    block_rows : int, optional
        Rows of a block, the unit of reading. By default about 2 million nonzeros, or 8 MB of
        dense rows.
    overwrite : bool
        Replace a dataset at `path`, once the new one is whole.
    progress : callable, optional
        Called as ``progress(rows, values_written, values_total)``.

    Returns
    -------
    Dataset

    Raises
    ------
    FileExistsError
        `path` exists and `overwrite` is False, or is not a dataset.
    ValueError, TypeError
        X, y or sample_weight do not fit together or hold what can't be stored.

    Examples
    --------
    >>> import tempfile
    >>> import scipy.sparse
    >>> from dask_mcsvm.storage import write_dataset
    >>> folder = tempfile.TemporaryDirectory()
    >>> X = scipy.sparse.random(1000, 50, density=0.1, format="csr", random_state=0)
    >>> dataset = write_dataset(f"{folder.name}/train.zarr", X, X.indptr[1:] % 3)
    >>> dataset.shape, dataset.nnz, dataset.classes
    ((1000, 50), 5000, array([0, 1, 2], dtype=int32))
    >>> X_lazy, y_lazy = dataset.to_dask()
    >>> folder.cleanup()
    """
    X, y, sample_weight = map(of_tasks, (X, y, sample_weight))
    target = as_place(path)
    listed = None if classes is None else np.unique(fixed_width(np.asarray(classes)))
    is_ours = partial(state_of, kind=DATASET)
    with replacing(target, "dataset", overwrite=overwrite, is_ours=is_ours) as place:
        begin(place, DATASET)
        if isinstance(X, da.Array):
            contents, run = _stream(place, X, y, sample_weight, listed), _run_dask
        else:
            contents, run = _from_memory(X, y, sample_weight, listed), run_here
        if feature_names is not None:
            contents = replace(contents, names=tuple(map(str, feature_names)))
        assemble(place, contents, block_rows=block_rows, run=run, progress=progress)
    return open_dataset(path)


def _from_memory(X: Any, y: Any, weight: Any, classes: Array | None) -> Contents:
    y, weight = compute(y, weight)  # small beside an X that is in memory
    known, codes = encode_labels([label_block(y)], classes)
    weights = None if weight is None else [weight_segment(weight)]
    return Contents([row_block(X)], codes, weights, known)


def _stream(place: Place, X: da.Array, y: Any, weight: Any, classes: Array | None) -> Contents:
    """Set the blocks of Dask arrays aside; labels and weights in memory stay there."""
    if X.ndim == 2 and X.numblocks[1] > 1:
        widths = ", ".join(map(str, X.chunks[1]))
        raise ValueError(
            f"X is split along features (chunks {widths}); rows must stay whole. "
            "Use X.rechunk({1: -1})."
        )
    rows = X.to_delayed().ravel()
    columns = [_lazy_column("y", y, X), _lazy_column("sample_weight", weight, X)]
    put = delayed(set_aside, pure=False)
    tasks = [
        put(place.path, i, block, *cells)
        for i, (block, *cells) in enumerate(zip(rows, *columns, strict=True))
    ]
    blocks: Sequence[SetAside] = _compute_all(tasks)
    labels = [b.y for b in blocks if b.y is not None] or [label_block(y)]
    known, codes = encode_labels(labels, classes)
    weights = [b.weight for b in blocks if b.weight is not None]
    if weight is not None and not weights:
        weights = [weight_segment(weight)]
    return Contents([b.x for b in blocks], codes, weights or None, known)


def _lazy_column(name: str, column: Any, X: da.Array) -> Sequence[Any]:
    """The blocks of a Dask column cut like X; Nones for one that is in memory or not given."""
    if not isinstance(column, da.Array):
        return [None] * X.numblocks[0]
    if column.ndim != 1:
        raise ValueError(f"{name} has {column.ndim} dimensions; shape (n,) is needed.")
    unknown = np.isnan([*column.chunks[0], *X.chunks[0]]).any()
    if not unknown and column.chunks[0] != X.chunks[0]:
        if column.shape[0] != X.shape[0]:
            raise ValueError(
                f"{name} has {column.shape[0]} rows, X has {X.shape[0]}; "
                "one per row of X is needed."
            )
        column = column.rechunk((X.chunks[0],))
    if column.numblocks[0] != X.numblocks[0]:
        raise ValueError(
            f"{name} has {column.numblocks[0]} chunks, X has {X.numblocks[0]}, and their sizes are "
            f"unknown; call compute_chunk_sizes() on both."
        )
    blocks: Sequence[Any] = column.to_delayed().ravel()
    return blocks


def _run_dask(tasks: Sequence[ChunkTask]) -> Iterator[Written]:
    """Run tasks on the ambient scheduler; a partial, so that Dask does not look into the task."""
    return iter(_compute_all([delayed(partial(write_task, task))() for task in tasks]))


def _compute_all(tasks: Sequence[Any]) -> Sequence[Any]:
    """Compute tasks that write; when one fails, wait for those that run before raising.

    Dask's threads go on after an error and would write into the folder that the caller removes, so
    they are ours here and end first. Worker processes can't be waited for: what they still write is
    under a hidden name, and the next writer of the dataset removes it.
    """
    if get_scheduler(collections=tasks) is not threaded.get:
        return list(compute(*tasks))
    threads = config.get("num_workers", None) or CPU_COUNT
    with ThreadPoolExecutor(threads) as pool, config.set(pool=pool):
        return list(compute(*tasks))
