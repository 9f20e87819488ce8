"""Texts as token ids, and flat batches of them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from bertpre.finetuning.tasks import LabelledTable
from bertpre.model.flat import FlatTokens
from bertpre.text.tokenizer import Tokenizer

_PROGRESS_ROWS = 500


def flat_batch(rows: Sequence[npt.NDArray[np.int32]], device: torch.device) -> FlatTokens:
    """Put sequences of token ids one after another, all of segment 0.

    Args:
        rows: the ids of each sequence, none empty.
        device: where the batch goes.
    """
    lengths = np.array([len(row) for row in rows], dtype=np.int32)
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    positions = np.arange(starts[-1], dtype=np.int64) - np.repeat(starts[:-1], lengths)
    ids = torch.from_numpy(np.concatenate(rows).astype(np.int64))
    return FlatTokens(
        input_ids=ids.to(device),
        token_type_ids=torch.zeros(len(ids), dtype=torch.int64, device=device),
        position_ids=torch.from_numpy(positions).to(device),
        cu_seqlens=torch.from_numpy(starts).to(device),
        max_length=int(lengths.max()),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class EncodedTexts:
    """Texts as ``[CLS] text [SEP]``, one after another.

    Args:
        input_ids: (N,) int32.
        starts: (rows + 1,) int64: where each row starts, and N.
        num_truncated: rows that lost tokens at their end.
        num_empty: rows of which nothing is left between [CLS] and [SEP].
    """

    input_ids: npt.NDArray[np.int32]
    starts: npt.NDArray[np.int64]
    num_truncated: int
    num_empty: int

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Tokens of each row, (rows,) int64."""
        return np.diff(self.starts)

    def batch(self, rows: npt.NDArray[np.int64], device: torch.device) -> FlatTokens:
        """Put rows together, in the order asked for."""
        return flat_batch(
            [self.input_ids[self.starts[row] : self.starts[row + 1]] for row in rows], device
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class EncodedTable:
    """Labelled rows ready for the model.

    Args:
        texts: their tokens.
        targets: their classes, (rows,) int64.
    """

    texts: EncodedTexts
    targets: npt.NDArray[np.int64]

    def counts(self) -> dict[str, int]:
        """Say how many rows and tokens there are, and of how many rows tokens are missing."""
        return {
            "rows": len(self.texts),
            "tokens": len(self.texts.input_ids),
            "truncated_rows": self.texts.num_truncated,
            "empty_rows": self.texts.num_empty,
        }


def encode_table(
    tokenizer: Tokenizer,
    table: LabelledTable,
    classes: Sequence[str],
    *,
    max_seq_length: int,
    on_rows: Callable[[int], None],
) -> EncodedTable:
    """Tokenise the rows of a table; see `encode_texts`."""
    texts = encode_texts(tokenizer, table.texts, max_seq_length=max_seq_length, on_rows=on_rows)
    return EncodedTable(texts=texts, targets=table.targets(classes))


def encode_texts(
    tokenizer: Tokenizer,
    texts: Iterable[str],
    *,
    max_seq_length: int,
    on_rows: Callable[[int], None] | None = None,
) -> EncodedTexts:
    """Tokenise texts, cut at the end to fit.

    Args:
        tokenizer: the checkpoint's.
        texts: read once.
        max_seq_length: most tokens of a row, [CLS] and [SEP] included.
        on_rows: called now and then with the rows done.
    """
    most = max_seq_length - 2
    pieces: list[npt.NDArray[np.int32]] = []
    num_truncated = num_empty = 0
    for done, text in enumerate(texts, start=1):
        ids = tokenizer.encode(text).ids
        num_truncated += len(ids) > most
        num_empty += len(ids) == 0
        row = np.concatenate([[tokenizer.cls_id], ids[:most], [tokenizer.sep_id]])
        pieces.append(row.astype(np.int32))
        if on_rows is not None and done % _PROGRESS_ROWS == 0:
            on_rows(done)
    lengths = [len(piece) for piece in pieces]
    return EncodedTexts(
        input_ids=np.concatenate(pieces),
        starts=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        num_truncated=num_truncated,
        num_empty=num_empty,
    )


def batches_by_length(
    lengths: npt.NDArray[np.int64], *, most_tokens: int
) -> Iterator[npt.NDArray[np.int64]]:
    """Yield row numbers in groups of like length, longest first, so memory peaks at the start.

    Args:
        lengths: tokens of each row.
        most_tokens: most tokens of a group, counted as if all were as long as its longest; a
            longer row is alone.
    """
    order = np.argsort(-lengths, kind="stable")
    first = 0
    while first < len(order):
        count = max(1, most_tokens // int(lengths[order[first]]))
        yield order[first : first + count]
        first += count
