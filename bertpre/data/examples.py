"""Examples: records that say where segments A and B are in the token store, and their tokens.

An index holds one record per example; the tokens are read when a batch is made.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bertpre.data.random64 import Array
from bertpre.data.tokens import TokenStore
from bertpre.tokenizer.tokenizer import Tokenizer

# One example. Lengths do not count [CLS] and [SEP]; b_length 0 means a single segment.
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
        unused: tokens of the documents that fit in no example.
        number: of the pass, from 0.
    """

    records: Records
    unused: int = 0
    number: int = 0


class Examples(NamedTuple):
    """Examples before masking, one after another: N tokens in B examples.

    Attributes:
        input_ids, token_type_ids, position_ids: int64, (N,).
        lengths: int64, (B,).
        maskable: bool, (N,): False for [CLS] and [SEP].
        word_starts: bool, (N,): whether a token begins a word.
        nsp_labels: int64, (B,): 0 = B follows A, 1 = random (or 0 = in order, 1 = swapped); None
            without such pairs.
    """

    input_ids: Array
    token_type_ids: Array
    position_ids: Array
    lengths: Array
    maskable: Array
    word_starts: Array
    nsp_labels: Array | None


def make_records(
    a_start: Array, b_start: Array, a_length: Array, b_length: Array, label: Array | int
) -> Records:
    """Build an array of `RECORD` from its columns."""
    records = np.empty(len(a_start), RECORD)
    columns = (a_start, b_start, a_length, b_length, label)
    for name, column in zip(RECORD.names or (), columns, strict=True):
        records[name] = column
    return records


def sort_by_document(records: Sequence[Records], documents: Sequence[Array]) -> Records:
    """Sort records that were drawn step by step by their documents."""
    if not records:
        return np.zeros(0, RECORD)
    return np.concatenate(records)[np.argsort(np.concatenate(documents), kind="stable")]


def map_records(path: Path) -> Records:
    """Map a file of records into memory, (examples,) of `RECORD`."""
    # An empty file cannot be mapped.
    if path.stat().st_size == 0:
        return np.zeros(0, RECORD)
    return np.memmap(path, dtype=RECORD, mode="r").view(np.ndarray)


def example_lengths(records: Records) -> Array:
    """Return the tokens of each example, special ones included, int64, (B,)."""
    lengths: Array = records["a_length"].astype(np.int64) + records["b_length"] + 2
    return lengths + (records["b_length"] > 0)


def read_examples(
    records: Records, store: TokenStore, tokenizer: Tokenizer, *, with_nsp: bool
) -> Examples:
    """Read examples from the token store: [CLS] A [SEP] B [SEP], or [CLS] A [SEP].

    Args:
        records: (B,) of `RECORD`.
        store: holds their tokens.
        tokenizer: supplies [CLS] and [SEP].
        with_nsp: whether the records have labels.
    """
    a_length = records["a_length"].astype(np.int64)
    lengths = example_lengths(records)
    ends = np.cumsum(lengths)
    starts = ends - lengths
    # Read A, B, A, B, ... at once, and put the tokens between the special ones.
    runs = np.stack([a_length, records["b_length"].astype(np.int64)], axis=1).ravel()
    sources = np.stack([records["a_start"], records["b_start"]], axis=1).ravel()
    text, words = store.gather(sources.astype(np.int64), runs)
    total = int(ends[-1])
    maskable = np.ones(total, bool)
    first_sep = starts + 1 + a_length
    maskable[starts] = maskable[first_sep] = maskable[ends - 1] = False
    ids = np.full(total, tokenizer.sep_id, np.int64)
    ids[starts] = tokenizer.cls_id
    ids[maskable] = text
    word_starts = np.ones(total, bool)
    word_starts[maskable] = words
    position_ids = np.arange(total) - np.repeat(starts, lengths)
    token_type_ids = (position_ids > np.repeat(a_length + 1, lengths)).astype(np.int64)
    labels = records["label"].astype(np.int64) if with_nsp else None
    return Examples(ids, token_type_ids, position_ids, lengths, maskable, word_starts, labels)
