"""Encoding of texts and pairs, with the treatment of long texts, and flat batches."""

import itertools
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from bertpre.data.pairs import share_room
from bertpre.data.random64 import below, hash64
from bertpre.finetuning.outputs import Targets
from bertpre.finetuning.tables import LabelledTable
from bertpre.finetuning.task import Task
from bertpre.model.flat import FlatTokens
from bertpre.tokenizer.tokenizer import Tokenizer

LongTexts = Literal["head", "tail", "head-tail", "windows"]

log = logging.getLogger(__name__)

_PROGRESS_ROWS = 500
_ROWS_AT_ONCE = 256
_UNKNOWN_WARNED = 0.05

Ids = npt.NDArray[np.int64]


def warn_of_unknown(num_unknown: int, num_tokens: int) -> None:
    """Warn if many tokens are unknown, as with text unlike that of the vocabulary."""
    if num_unknown > _UNKNOWN_WARNED * num_tokens:
        log.warning(
            "%.1f %% of the tokens are [UNK], which tell the model nothing: is the vocabulary from "
            "text of the same kind and casing?",
            100 * num_unknown / num_tokens,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class EncodedTexts:
    """Rows as concatenated sequences ``[CLS] text [SEP]`` or ``[CLS] a [SEP] b [SEP]``.

    A row is one sequence, or several if its text is read in windows.

    Args:
        input_ids: (N,) int32.
        starts: (sequences + 1,) int64: the start of each sequence, and N.
        second_starts: (sequences,) int64: the number of tokens in segment 0.
        first_of_row: (rows + 1,) int64: the first sequence of each row, and their number.
        num_truncated: rows with tokens cut off.
        num_empty: rows without tokens besides [CLS] and [SEP].
        num_unknown: [UNK] tokens among the ``num_tokens`` of the texts before truncation.
    """

    input_ids: npt.NDArray[np.int32]
    starts: Ids
    second_starts: Ids
    first_of_row: Ids
    num_truncated: int
    num_empty: int
    num_unknown: int
    num_tokens: int

    def __len__(self) -> int:
        return len(self.first_of_row) - 1

    @property
    def lengths(self) -> Ids:
        """Tokens per sequence, (sequences,) int64."""
        return np.diff(self.starts)

    @property
    def num_windowed(self) -> int:
        """Rows with several sequences."""
        return int((np.diff(self.first_of_row) > 1).sum())

    def sequences(self, rows: Ids) -> tuple[Ids, Ids]:
        """Return all sequences of some rows, and the position of each row's first one."""
        counts = self.first_of_row[rows + 1] - self.first_of_row[rows]
        firsts = np.concatenate([[0], np.cumsum(counts)[:-1]])
        numbers = np.arange(counts.sum()) - np.repeat(firsts, counts)
        return np.repeat(self.first_of_row[rows], counts) + numbers, firsts

    def draw(self, rows: Ids, key: int) -> Ids:
        """Draw one sequence per row; the key decides which."""
        counts = self.first_of_row[rows + 1] - self.first_of_row[rows]
        return self.first_of_row[rows] + below(hash64(key, rows), counts)

    def draw_batch(
        self,
        rows: Ids,
        key: int,
        device: torch.device,
        hide: Callable[[Ids, Ids], Ids] | None = None,
    ) -> Any:
        """Build a training batch of some rows, each as one sequence that the key decides.

        ``hide`` as in `batch`; it gets the position of each token's row in ``rows``.
        """
        return self.batch(self.draw(rows, key), device, hide)

    def batch(
        self,
        sequences: Ids,
        device: torch.device,
        hide: Callable[[Ids, Ids], Ids] | None = None,
    ) -> FlatTokens:
        """Build a batch of sequences, in the order given.

        Args:
            sequences: their numbers.
            device: where the batch goes.
            hide: replaces token ids; called with all ids and each one's position in ``sequences``.
        """
        lengths = self.starts[sequences + 1] - self.starts[sequences]
        ends = np.cumsum(lengths)
        # The position of each token in its sequence, and in the table.
        positions = np.arange(lengths.sum()) - np.repeat(ends - lengths, lengths)
        places = positions + np.repeat(self.starts[sequences], lengths)
        segments = positions >= np.repeat(self.second_starts[sequences], lengths)
        cu_seqlens = np.concatenate([[0], ends]).astype(np.int32)
        ids = self.input_ids[places].astype(np.int64)
        if hide is not None:
            ids = hide(ids, np.repeat(np.arange(len(sequences)), lengths))
        return FlatTokens(
            input_ids=torch.from_numpy(ids).to(device),
            token_type_ids=torch.from_numpy(segments.astype(np.int64)).to(device),
            position_ids=torch.from_numpy(positions).to(device),
            cu_seqlens=torch.from_numpy(cu_seqlens).to(device),
            max_length=int(lengths.max()),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class EncodedTable:
    """Labelled rows ready for the model: tokens, and training targets."""

    texts: EncodedTexts
    targets: Targets

    def counts(self) -> dict[str, int]:
        """Count rows and tokens, for the manifest."""
        return {
            "rows": len(self.texts),
            "tokens": len(self.texts.input_ids),
            "truncated_rows": self.texts.num_truncated,
            "windowed_rows": self.texts.num_windowed,
            "empty_rows": self.texts.num_empty,
            "unknown_tokens": self.texts.num_unknown,
            "text_tokens": self.texts.num_tokens,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Encoder:
    """Encodes rows as sequences of limited length.

    Args:
        tokenizer: the checkpoint's.
        max_seq_length: most tokens in a sequence, [CLS] and [SEP] included.
        long_texts: which part of a longer text is read.
        window_overlap: share of a window that the next one repeats, in [0, 1).
    """

    tokenizer: Tokenizer
    max_seq_length: int
    long_texts: LongTexts = "head"
    window_overlap: float = 0.25

    @property
    def identity(self) -> tuple[str, int, str, float]:
        """Equal for encoders that give equal tokens."""
        return (
            self.tokenizer.fingerprint,
            self.max_seq_length,
            self.long_texts,
            self.window_overlap,
        )

    def table(
        self, table: LabelledTable, task: Task, *, on_rows: Callable[[int], None]
    ) -> EncodedTable:
        """Encode a labelled table; ``on_rows`` is called with the number of rows done."""
        texts, targets = task.encode_table(self, table, on_rows=on_rows)
        return EncodedTable(texts=texts, targets=targets)

    def texts(
        self,
        texts: Iterable[str],
        pairs: Iterable[str] | None = None,
        *,
        on_rows: Callable[[int], None] = lambda rows: None,
    ) -> EncodedTexts:
        """Encode texts or pairs of texts; the iterables are read once."""
        cls, sep = [self.tokenizer.cls_id], [self.tokenizer.sep_id]
        pieces: list[Ids] = []
        second_starts: list[int] = []
        first_of_row = [0]
        num_truncated = num_empty = num_unknown = num_tokens = 0
        sides = [self._encode_all(texts)] + ([] if pairs is None else [self._encode_all(pairs)])
        for done, (ids, *others) in enumerate(zip(*sides, strict=True), start=1):
            other = others[0] if others else None
            num_empty += len(ids) == 0 and (other is None or len(other) == 0)
            for side in (ids,) if other is None else (ids, other):
                num_unknown += int((side == self.tokenizer.unk_id).sum())
                num_tokens += len(side)
            if other is not None:
                shares = share_room(len(ids), len(other), self.max_seq_length - 3)
                room, other_room = map(int, shares)
                num_truncated += len(ids) > room or len(other) > other_room
                parts = [self._cut(ids, room)]
                tail = [self._cut(other, other_room), sep]
            else:
                room, tail = self.max_seq_length - 2, []
                if self.long_texts == "windows":
                    parts = cut_windows(ids, room, self.window_overlap)
                else:
                    num_truncated += len(ids) > room
                    parts = [self._cut(ids, room)]
            for part in parts:
                pieces.append(np.concatenate([cls, part, sep, *tail]))
                second_starts.append(len(part) + 2)
            first_of_row.append(len(pieces))
            if done % _PROGRESS_ROWS == 0:
                on_rows(done)
        lengths = [len(piece) for piece in pieces]
        return EncodedTexts(
            input_ids=np.concatenate(pieces).astype(np.int32),
            starts=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
            second_starts=np.array(second_starts, dtype=np.int64),
            first_of_row=np.array(first_of_row, dtype=np.int64),
            num_truncated=num_truncated,
            num_empty=num_empty,
            num_unknown=num_unknown,
            num_tokens=num_tokens,
        )

    def _encode_all(self, texts: Iterable[str]) -> Iterator[Ids]:
        """Encode texts in blocks, seven times as fast as one by one."""
        rest = iter(texts)
        while block := list(itertools.islice(rest, _ROWS_AT_ONCE)):
            found = self.tokenizer.encode_all(block)
            yield from np.split(found.ids.astype(np.int64), np.cumsum(found.lengths)[:-1])

    def _cut(self, ids: Ids, room: int) -> Ids:
        if len(ids) <= room:
            return ids
        # Source: Sun et al. 2019, "How to Fine-Tune BERT for Text Classification?", section 5.3.1:
        # 128 tokens of the head and 382 of the tail did best.
        head = {"tail": 0, "head-tail": room // 4}.get(self.long_texts, room)
        return np.concatenate([ids[:head], ids[len(ids) - (room - head) :]])


def cut_windows(ids: Ids, room: int, overlap: float) -> list[Ids]:
    """Cut a text into evenly spaced windows of ``room`` tokens that cover it.

    Args:
        ids: (T,); a text that fits is a single window.
        room: tokens per window, ≥ 1.
        overlap: least share of a window that the next one repeats, in [0, 1).
    """
    return [ids[start:][:room] for start in window_starts(len(ids), room, overlap)]


def window_starts(length: int, room: int, overlap: float) -> list[int]:
    """Return where the windows of `cut_windows` start in a text of that many tokens."""
    rest = length - room
    if rest <= 0:
        return [0]
    stride = max(1, int(room * (1 - overlap)))
    num_steps = -(-rest // stride)
    return [rest * step // num_steps for step in range(num_steps + 1)]


def batches_by_length(lengths: Ids, *, most_tokens: int) -> Iterator[Ids]:
    """Yield row numbers in groups of similar length, longest first, so memory peaks at the start.

    Args:
        lengths: tokens of each row.
        most_tokens: most tokens in a group when padded to its longest row; a longer row is alone.
    """
    order = np.argsort(-lengths, kind="stable")
    first = 0
    while first < len(order):
        count = max(1, most_tokens // int(lengths[order[first]]))
        yield order[first : first + count]
        first += count
