"""Sentences given as tokens: their pieces, in windows if need be, and a label for each token."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from bertpre.finetuning.batches import (
    EncodedTexts,
    Encoder,
    Ids,
    window_starts,
)
from bertpre.model.flat import FlatTokens, Wanted

_PROGRESS_ROWS = 500


class SentenceBatch(NamedTuple):
    """Sentences for training: all their windows, and where their tokens start.

    Attributes:
        pieces: N pieces of the windows.
        firsts: the W pieces that tokens begin with, in the windows that their labels come from.
        lengths: (B,) int64, the tokens of each sentence.
    """

    pieces: FlatTokens
    firsts: Wanted
    lengths: Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class EncodedSentences(EncodedTexts):
    """Sentences as sequences of pieces; long ones in overlapping windows.

    A token's label comes from its first piece, in the window where that is farthest from an edge.

    Args:
        first_token_of_row: (rows + 1,) int64: the first token of each sentence, and their number.
        token_sequences: (tokens,) int64: the sequence that each token's label comes from.
        token_places: (tokens,) int64: the position of its first piece there.
    """

    first_token_of_row: Ids
    token_sequences: Ids
    token_places: Ids

    def token_counts(self, rows: Ids) -> Ids:
        """Return the number of tokens of some sentences."""
        return self.first_token_of_row[rows + 1] - self.first_token_of_row[rows]

    def first_pieces(self, rows: Ids) -> Ids:
        """Return where each token of some sentences starts.

        Returns:
            (W,), the places in the concatenation of all sequences of these sentences, ascending.
        """
        sequences, firsts = self.sequences(rows)
        counts = self.token_counts(rows)
        tokens = ranges(self.first_token_of_row[rows], counts)
        # The place in ``sequences`` of the one that each token's label comes from.
        moved = self.token_sequences[tokens] - np.repeat(self.first_of_row[rows] - firsts, counts)
        lengths = self.lengths[sequences]
        starts = np.cumsum(lengths) - lengths
        return np.asarray(starts[moved] + self.token_places[tokens])

    def draw_batch(
        self,
        rows: Ids,
        key: int,
        device: torch.device,
        hide: Callable[[Ids, Ids], Ids] | None = None,
    ) -> SentenceBatch:
        """Build a training batch of whole sentences, in which nothing is drawn."""
        sequences, firsts = self.sequences(rows)
        counts = np.diff(firsts, append=len(sequences))
        row_of = np.repeat(np.arange(len(rows)), counts)
        # A token is hidden in all windows or in none.
        hidden = None if hide is None else lambda ids, places: hide(ids, row_of[places])
        pieces, places = self.batch(sequences, device, hidden), self.first_pieces(rows)
        ends = np.cumsum(self.lengths[sequences])
        most = int(np.diff(np.searchsorted(places, ends), prepend=0).max())
        return SentenceBatch(
            pieces=pieces,
            firsts=Wanted.at(torch.from_numpy(places).to(device), pieces, most=most),
            lengths=torch.from_numpy(self.token_counts(rows)).to(device),
        )


def encode_sentences(
    encoder: Encoder,
    sentences: Iterable[Sequence[str]],
    *,
    on_rows: Callable[[int], None] = lambda rows: None,
) -> EncodedSentences:
    """Encode sentences whose tokens are given; each token has at least one piece."""
    tokenizer, room = encoder.tokenizer, encoder.max_seq_length - 2
    numbers: dict[str, int] = {}
    rows = [
        np.array([numbers.setdefault(token, len(numbers)) for token in sentence], dtype=np.int64)
        for sentence in sentences
    ]
    pieces_of = _pieces(encoder, list(numbers))
    cls, sep = [tokenizer.cls_id], [tokenizer.sep_id]
    sequences: list[Ids] = []
    first_of_row, token_sequences, token_places = [0], [], []
    num_unknown = num_pieces = 0
    for done, row in enumerate(rows, start=1):
        pieces = [pieces_of[number] for number in row]
        ids = np.concatenate(pieces) if pieces else np.zeros(0, dtype=np.int64)
        lengths = np.array([len(part) for part in pieces], dtype=np.int64)
        starts = np.array(window_starts(len(ids), room, encoder.window_overlap))
        chosen, places = choose_windows(np.cumsum(lengths) - lengths, starts, room)
        token_sequences.append(len(sequences) + chosen)
        token_places.append(places + 1)  # after [CLS]
        sequences += [np.concatenate([cls, ids[start:][:room], sep]) for start in starts]
        first_of_row.append(len(sequences))
        num_unknown += int((ids == tokenizer.unk_id).sum())
        num_pieces += len(ids)
        if done % _PROGRESS_ROWS == 0:
            on_rows(done)
    lengths = np.array([len(sequence) for sequence in sequences], dtype=np.int64)
    return EncodedSentences(
        input_ids=np.concatenate(sequences).astype(np.int32),
        starts=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        second_starts=lengths,
        first_of_row=np.array(first_of_row, dtype=np.int64),
        num_truncated=0,
        num_empty=0,
        num_unknown=num_unknown,
        num_tokens=num_pieces,
        first_token_of_row=np.cumsum([0, *map(len, rows)]),
        token_sequences=np.concatenate(token_sequences),
        token_places=np.concatenate(token_places),
    )


def choose_windows(tokens: Ids, starts: Ids, room: int) -> tuple[Ids, Ids]:
    """Choose for each token the window where its first piece is farthest from an edge.

    The start of the first window and the end of the last are no edges: nothing is missing there.

    Args:
        tokens: (T,), the first piece of each token in its sentence.
        starts: (K,), the first piece of each window.
        room: pieces per window.

    Returns:
        The number of the window, and the position in it, (T,) each.
    """
    if len(starts) == 1:
        return np.zeros(len(tokens), dtype=np.int64), tokens
    # The windows with the nearest middle, and those at the ends, which have one edge only.
    nearest = np.searchsorted(starts + (room - 1) / 2, tokens)
    last = len(starts) - 1
    ends = np.zeros_like(tokens), np.full_like(tokens, last)
    middle = np.clip(nearest - 1, 0, last), np.minimum(nearest, last)
    windows = np.stack([ends[0], *middle, ends[1]], axis=1)  # (T, 4)
    places = tokens[:, None] - starts[windows]
    before = np.where(windows == 0, room, places)
    after = np.where(windows == last, room, room - 1 - places)
    is_inside = (places >= 0) & (places < room)
    best = np.where(is_inside, np.minimum(before, after), -1).argmax(axis=1)[:, None]
    chosen, place = (np.take_along_axis(part, best, axis=1)[:, 0] for part in (windows, places))
    return chosen, place


def _pieces(encoder: Encoder, tokens: Sequence[str]) -> list[Ids]:
    """Return the pieces of each token; one without any, such as a space, is one [UNK]."""
    if not tokens:
        return []
    found = encoder.tokenizer.encode_all(tokens)
    unknown = np.array([encoder.tokenizer.unk_id], dtype=np.int64)
    parts = np.split(found.ids.astype(np.int64), np.cumsum(found.lengths)[:-1])
    return [part if len(part) else unknown for part in parts]


def ranges(starts: Ids, lengths: Ids) -> Ids:
    """Concatenate the ranges of these starts and lengths."""
    shifts = starts - (np.cumsum(lengths) - lengths)
    return np.asarray(np.arange(lengths.sum()) + np.repeat(shifts, lengths))
