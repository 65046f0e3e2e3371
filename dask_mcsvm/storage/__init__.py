"""The disk: datasets, models and checkpoints in Zarr and JSON, never pickle."""

from ._format import check_alike, restoring
from ._json import decode_classes, encode_classes
from .checkpoint import Checkpoint, read_block, write_block
from .dataset import Dataset, of_tasks, open_dataset
from .dataset_write import write_dataset
from .describe import describe, kind_of
from .elements import Elements, element_name, listed, open_elements
from .libsvm import convert_libsvm
from .model import (
    absolute_path,
    load_model,
    load_with_parts,
    read_part,
    remove_parts,
    save_model,
    write_part,
)
from .scratch import Scratch

__all__ = [
    "Checkpoint",
    "Dataset",
    "Elements",
    "Scratch",
    "absolute_path",
    "check_alike",
    "convert_libsvm",
    "decode_classes",
    "describe",
    "element_name",
    "encode_classes",
    "kind_of",
    "listed",
    "load_model",
    "load_with_parts",
    "of_tasks",
    "open_dataset",
    "open_elements",
    "read_block",
    "read_part",
    "remove_parts",
    "restoring",
    "save_model",
    "write_block",
    "write_dataset",
    "write_part",
]
