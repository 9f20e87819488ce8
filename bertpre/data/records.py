"""Examples as an index: which stretches of the token store are segment A and B, and the label."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

# One example. Lengths are of tokens without [CLS] and [SEP]; b_length 0 means a single segment.
RECORD = np.dtype(
    [
        ("a_start", "<u8"),
        ("b_start", "<u8"),
        ("a_length", "<u2"),
        ("b_length", "<u2"),
        ("label", "u1"),
    ]
)
Records = npt.NDArray[np.void]

IS_NEXT, RANDOM_NEXT = 0, 1  # the labels of the reference
IN_ORDER, SWAPPED = 0, 1
NO_LABEL = 255


class Drawn(NamedTuple):
    """Examples of a block of documents.

    Attributes:
        records: of `RECORD`, in the order of the documents.
        unused: tokens of the documents that could be in no example.
    """

    records: Records
    unused: int = 0


def make_records(
    a_start: Array, b_start: Array, a_length: Array, b_length: Array, label: Array | int
) -> Records:
    """Put columns together to an array of `RECORD`."""
    records = np.empty(len(a_start), RECORD)
    columns = (a_start, b_start, a_length, b_length, label)
    for name, column in zip(RECORD.names or (), columns, strict=True):
        records[name] = column
    return records


def in_order(records: Sequence[Records], documents: Sequence[Array]) -> Records:
    """Put records that were drawn step by step into the order of their documents."""
    if not records:
        return np.zeros(0, RECORD)
    return np.concatenate(records)[np.argsort(np.concatenate(documents), kind="stable")]


def map_records(path: Path) -> Records:
    """Map a file of examples into memory, (examples,) of `RECORD`."""
    # An empty file cannot be mapped.
    if path.stat().st_size == 0:
        return np.zeros(0, RECORD)
    return np.memmap(path, dtype=RECORD, mode="r").view(np.ndarray)
