"""``dask mcsvm convert``: other people's formats to a dataset."""

import glob
import os
import sys
from typing import Any

import click

from dask_mcsvm.cli._console import Console, Refused, common, refuse_existing

FORMATS = {
    ".svm": "svmlight",
    ".svmlight": "svmlight",
    ".libsvm": "svmlight",
    ".txt": "svmlight",
    ".npz": "npz",
    ".npy": "npy",
    ".csv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".h5ad": "h5ad",
    ".zarr": "zarr",
}
PACKED = (".gz", ".bz2", ".xz", ".zst")
TEXT_BLOCK = "16MB"  # of csv parsed by one task


@click.command()
@click.argument("sources", nargs=-1, required=True, type=click.Path())
@click.argument("output", type=click.Path())
@click.option(
    "--format",
    "form",
    type=click.Choice(["auto", *dict.fromkeys(FORMATS.values())]),
    default="auto",
    help="By default what the name of SOURCE ends in.",
)
@click.option(
    "--label", help="csv, parquet: the column of the labels; h5ad, zarr: such as obs/cell_type."
)
@click.option("--layer", help="h5ad, zarr: the layer that holds the rows, if not X.")
@click.option("--text-labels", is_flag=True, default=None, help="csv: keep 007 from becoming 7.")
@click.option("--labels", type=click.Path(), help="npy, npz: a .npy file with the labels.")
@click.option("--n-features", type=int, help="svmlight: number of features [the largest index].")
@click.option(
    "--zero-based/--one-based", default=None, help="svmlight: first index [0 if it occurs]."
)
@click.option("--dtype", type=click.Choice(["float32", "float64"]), help="Of the values stored.")
@click.option("--block-rows", type=int, help="Rows of a block, the unit of reading.")
@click.option("--overwrite", is_flag=True, help="Replace a dataset there is.")
@common
def convert(
    sources: tuple[str, ...],
    output: str,
    form: str,
    overwrite: bool,
    as_json: bool,
    quiet: bool,
    **given: Any,
) -> None:
    """Convert SOURCES to the dataset OUTPUT.

    Several files, or a pattern such as 'part-*.svm.gz', are converted as if they were one.
    svmlight text and csv (also .gz, .bz2, .xz, .zst), parquet, and files of AnnData (.h5ad, .zarr)
    are streamed and may be larger than memory, and so is the X of an npy file; npz is read whole.
    An npz file holds X and y, or a matrix saved by scipy.sparse.save_npz; labels may also come from
    --labels. svmlight text may also come from a pipe.
    """
    console = Console(as_json, quiet)
    with console.speaking():
        refuse_existing(output, "dataset", overwrite)
        files = found_files(sources)
        form = format_of_all(files, form)
        read = READERS[form]
        for file in (*(files if form != "svmlight" else ()), given["labels"]):
            refuse_pipe(file)
        try:
            dataset = read(files, output, given, progress_of(console), overwrite)
        except TypeError as error:  # labels or values of a kind that can not be stored
            raise ValueError(str(error)) from error
        finally:
            end_line(console)
    n, d = dataset.shape
    document = {
        "data": output,
        "rows": n,
        "features": d,
        "classes": dataset.n_classes,
        "nonzeros": dataset.nnz,
        "sparse": dataset.is_sparse,
        "dtype": dataset.dtype.name,
        "fingerprint": dataset.fingerprint,
    }
    text = f"{output}: {n:,} rows, {d:,} features, {dataset.n_classes:,} classes"
    console.summary(document, text)


def format_of(source: str, form: str) -> str:
    """The format asked for, or the one that the name ends in."""
    if form != "auto":
        return form
    name = source.lower().rstrip("/")
    for packed in PACKED:
        name = name.removesuffix(packed)
    ending = os.path.splitext(name)[1]
    if ending not in FORMATS:
        raise Refused(
            f"{source}: its name does not tell the format; pass --format svmlight, npz, npy, csv, "
            "parquet, h5ad or zarr."
        )
    return FORMATS[ending]


def found_files(sources: tuple[str, ...]) -> list[str]:
    """The files that were named, those of a pattern in the order of their names."""
    files = []
    for source in sources:
        is_pattern = any(sign in source for sign in "*?[")
        if "://" in source or os.path.exists(source) or not is_pattern:
            files.append(source)
        elif found := sorted(glob.glob(source)):
            files += found
        else:
            raise FileNotFoundError(f"{source}: no file has such a name; check the pattern.")
    for file in files:
        if "://" not in file and not os.path.exists(file):
            raise FileNotFoundError(f"{file}: there is no such file; check the path.")
    return files


def format_of_all(files: list[str], form: str) -> str:
    """The one format of all files."""
    forms = {file: format_of(file, form) for file in files}
    first = forms[files[0]]
    for file, other in forms.items():
        if other != first:
            raise Refused(
                f"{files[0]} is {first} and {file} is {other}; convert files of one format at a "
                "time."
            )
    return first


def refuse_several(files: list[str], form: str) -> str:
    """The one file of a format that is read so."""
    if len(files) > 1:
        raise Refused(f"{form} files are converted one at a time; pass one, not {len(files)}.")
    return files[0]


def refuse_pipe(path: str | None) -> None:
    """Refuse what is neither file nor folder, where it would be read twice or mapped."""
    if path is None or not os.path.exists(path) or os.path.isfile(path) or os.path.isdir(path):
        return
    raise Refused(f"{path} is a pipe or a device; only svmlight text can come from a pipe.")


# Readers ----------------------------------------------------------------------------------------


def from_svmlight(files: list[str], output: str, given: Any, progress: Any, overwrite: bool) -> Any:
    """svmlight text, in one pass."""
    from dask_mcsvm.storage import convert_libsvm

    refuse_options(given, "svmlight", allowed=("n_features", "zero_based", "dtype"))
    zero_based = given["zero_based"]
    return convert_libsvm(
        files,
        output,
        n_features=given["n_features"],
        zero_based="auto" if zero_based is None else zero_based,
        dtype=given["dtype"] or "float32",
        block_rows=given["block_rows"],
        overwrite=overwrite,
        progress=progress,
    )


def from_npy(files: list[str], output: str, given: Any, progress: Any, overwrite: bool) -> Any:
    """X and its labels in two npy files; X is mapped, not read."""
    import numpy as np

    source = refuse_several(files, "npy")
    refuse_options(given, "npy", allowed=("labels", "dtype"))
    if given["labels"] is None:
        raise Refused(f"{source}: holds rows only; pass --labels FILE.npy with their labels.")
    X = np.load(source, mmap_mode="r", allow_pickle=False)
    return write(output, X, read_labels(given["labels"]), given, progress, overwrite)


def from_npz(files: list[str], output: str, given: Any, progress: Any, overwrite: bool) -> Any:
    """X and y, or the parts of a CSR matrix, in one npz file."""
    import numpy as np
    import scipy.sparse as sp

    source = refuse_several(files, "npz")
    refuse_options(given, "npz", allowed=("labels", "dtype"))
    with np.load(source, allow_pickle=False) as archive:
        names = set(archive.files)
        if "X" in names:
            X = archive["X"]
        elif {"data", "indices", "indptr", "shape"} <= names:
            X = sp.csr_matrix(
                (archive["data"], archive["indices"], archive["indptr"]), tuple(archive["shape"])
            )
        else:
            raise Refused(
                f"{source}: holds {', '.join(sorted(names)) or 'nothing'}; an array X is needed, "
                "or data, indices, indptr and shape."
            )
        if given["labels"] is None and "y" not in names:
            raise Refused(f"{source}: holds no y; pass --labels FILE.npy with the labels.")
        y = archive["y"] if given["labels"] is None else read_labels(given["labels"])
    return write(output, X, y, given, progress, overwrite)


def from_csv(files: list[str], output: str, given: Any, progress: Any, overwrite: bool) -> Any:
    """csv files, a block of text at a time."""
    frames = dataframes()
    refuse_options(given, "csv", allowed=("label", "text_labels", "dtype"))
    label = given["label"]
    source, endings = shown(files), {os.path.splitext(file)[1].lower() for file in files}
    ways = {ending if ending in PACKED else "" for ending in endings}
    if len(ways) > 1:
        raise Refused(f"{source}: some are packed and some are not, or in another way; make them "
                      "alike.")  # fmt: skip
    options = {"blocksize": TEXT_BLOCK if ways == {""} else None}
    guess = frames.read_csv(files, **options)
    # Types are guessed from the first lines: a column of integers may hold fractions later.
    types = {c: "float64" for c in guess.columns if c != label and _is_number(guess[c])}
    if given["text_labels"]:
        types[label] = "str"
    frame = frames.read_csv(files, dtype=types, **options)
    try:
        return write_frame(source, frame, output, given, progress, overwrite)
    except ValueError as error:
        if "Mismatched dtypes" not in str(error):
            raise
        raise ValueError(
            f"{source}: a column holds numbers first and something else later; if it is the label "
            f"column {label!r}, pass --text-labels."
        ) from error


def from_parquet(files: list[str], output: str, given: Any, progress: Any, overwrite: bool) -> Any:
    """Parquet files, or a folder of them, a row group at a time."""
    frames = dataframes()
    refuse_options(given, "parquet", allowed=("label", "dtype"))
    frame = frames.read_parquet(files if len(files) > 1 else files[0])
    return write_frame(shown(files), frame, output, given, progress, overwrite)


def from_cells(files: list[str], output: str, given: Any, progress: Any, overwrite: bool) -> Any:
    """Files of AnnData, a block of rows at a time; the names of genes go along."""
    import numpy as np
    from dask.array import core as da

    refuse_options(given, "files of AnnData", allowed=("label", "layer", "dtype"))
    rows: list[Any] = []
    labels: list[Any] = []
    names: Any = None
    for file in files:
        X, y, genes = cells_of(file, given)
        if rows and not np.array_equal(genes, names):
            raise Refused(
                f"{file} has other features than {files[0]}, or the same in another order; make "
                "them alike with anndata.concat before you convert them."
            )
        names = genes
        rows.append(X)
        labels.append(y)
    X, y = da.concatenate(rows), np.concatenate(labels)
    return write(output, X, y, given, progress, overwrite, feature_names=names)


def cells_of(file: str, given: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Lazy rows, labels and the names of the columns of one file of AnnData."""
    from dask_mcsvm.checks import missing_label
    from dask_mcsvm.data.containers import NamedRows, rows_in
    from dask_mcsvm.storage import kind_of, open_elements

    if kind_of(file) is not None:
        raise Refused(f"{file} is a {kind_of(file)} written by dask_mcsvm, and no file of AnnData.")
    elements = open_elements(file)
    if elements is None:
        raise Refused(f"{file}: is no Zarr group; check the path.")
    label = given["label"]
    if label is None:
        raise Refused(f"{file}: no column of labels is named; pass --label, as in obs/cell_type.")
    y = elements.column(label)
    if (row := missing_label(y)) is not None:
        raise Refused(f"{file}: {label} has no label in row {row}; drop such rows first.")
    X = rows_in(elements, given["layer"])
    return (X.rows, y, X.columns) if isinstance(X, NamedRows) else (X, y, None)


READERS = {
    "svmlight": from_svmlight,
    "npy": from_npy,
    "npz": from_npz,
    "csv": from_csv,
    "parquet": from_parquet,
    "h5ad": from_cells,
    "zarr": from_cells,
}


def shown(files: list[str]) -> str:
    """Files in a message."""
    return files[0] if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"


def refuse_options(given: dict[str, Any], form: str, allowed: tuple[str, ...]) -> None:
    """Refuse an option that would do nothing."""
    for name, value in given.items():
        if value is not None and name not in (*allowed, "block_rows"):
            raise Refused(f"--{name.replace('_', '-')} says nothing about {form}; leave it out.")


def read_labels(path: str) -> Any:
    import numpy as np

    return np.load(path, allow_pickle=False)


# Frames -----------------------------------------------------------------------------------------


def dataframes() -> Any:
    """dask.dataframe, which needs pandas and pyarrow."""
    try:
        import dask.dataframe
    except ImportError:
        raise ImportError(
            "csv and parquet are read with pandas and pyarrow; type: pip install pandas pyarrow"
        ) from None
    return dask.dataframe


def write_frame(
    source: str, frame: Any, output: str, given: dict[str, Any], progress: Any, overwrite: bool
) -> Any:
    """Write a Dask frame with a column of labels as a dataset, a partition at a time."""
    import numpy as np
    from dask.array import core as da
    from dask.delayed import delayed

    label, found = given["label"], [str(column) for column in frame.columns]
    if label not in found:
        some = found if len(found) <= 7 else [*found[:3], "...", *found[-3:]]
        problem = "no label column is named" if label is None else f"has no column {label!r}"
        raise Refused(f"{source}: {problem}; pass --label with one of {', '.join(some)}.")
    text = [c for c in found if c != label and not _is_number(frame[c])]
    if text:
        raise Refused(
            f"{source}: the column {text[0]!r} does not hold numbers; encode it (for example with "
            "pandas.get_dummies), or leave it out of the file."
        )
    dtype = np.dtype(given["dtype"] or "float32")
    names = [column for column in found if column != label]
    blocks = frame.to_delayed()
    rows, labels = delayed(_numbers, pure=True), delayed(_labels, pure=True)
    X = [da.from_delayed(rows(b, names, dtype), (np.nan, len(names)), dtype) for b in blocks]
    y = [da.from_delayed(labels(b, label), (np.nan,), object) for b in blocks]
    stacked = da.concatenate(X, allow_unknown_chunksizes=True)
    return write(
        output,
        stacked,
        da.concatenate(y, allow_unknown_chunksizes=True),
        {**given, "dtype": None},
        progress,
        overwrite,
    )


def _is_number(column: Any) -> bool:
    return getattr(column.dtype, "kind", "O") in "biuf"


def _numbers(frame: Any, names: list[str], dtype: Any) -> Any:
    empty = frame[names].isna().any()
    if empty.any():
        raise ValueError(
            f"the column {empty.idxmax()!r} has empty cells; fill them, or drop their rows first."
        )
    return frame[names].to_numpy(dtype=dtype)


def _labels(frame: Any, label: str) -> Any:
    column = frame[label]
    if column.isna().any():
        raise ValueError(f"the label column {label!r} has empty cells; drop their rows first.")
    return column.to_numpy() if _is_number(column) else column.to_numpy(dtype=object)


def write(
    output: str,
    X: Any,
    y: Any,
    given: dict[str, Any],
    progress: Any,
    overwrite: bool,
    feature_names: Any = None,
) -> Any:
    """Write rows and labels, in another dtype if one was asked for."""
    from dask_mcsvm.storage import write_dataset

    if given["dtype"] is not None and X.dtype != given["dtype"]:
        X = _cast(X, given["dtype"])
    return write_dataset(
        output,
        X,
        y,
        feature_names=feature_names,
        block_rows=given["block_rows"],
        overwrite=overwrite,
        progress=progress,
    )


def _cast(X: Any, dtype: str) -> Any:
    import numpy as np

    if not isinstance(X, np.memmap):
        return X.astype(dtype)
    from dask.array import core as da

    return da.from_array(X, chunks=("auto", -1)).astype(dtype)  # a mapped X may exceed memory


# Progress ---------------------------------------------------------------------------------------


def progress_of(console: Console) -> Any:
    """A live line with the share done, on terminals."""
    if console.quiet or not sys.stderr.isatty():
        return None
    from dask_mcsvm.progress import bar

    def progress(rows: int, done: int, total: int) -> None:
        sys.stderr.write(f"\r{bar(done / max(1, total), blocks=False)}  {rows:,} rows\x1b[K")
        sys.stderr.flush()

    return progress


def end_line(console: Console) -> None:
    """Clear the live line."""
    if not console.quiet and sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
