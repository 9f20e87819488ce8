"""Sentences given as tokens: their pieces, in windows if need be, and a label for each token."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bertpre.finetuning.batches import (
    EncodedTexts,
    Encoder,
    Ids,
    batches_by_length,
    window_starts,
)
from bertpre.finetuning.running import MOST_TOKENS, Placement, Run
from bertpre.finetuning.tables import Rows
from bertpre.model.crf import AllowedTags, LinearChainCrf, viterbi
from bertpre.model.flat import FlatTokens
from bertpre.training.device import autocast

_PROGRESS_ROWS = 500

Scores = npt.NDArray[np.float32]


class SentenceBatch(NamedTuple):
    """Sentences for training: all their windows, and where their tokens start.

    Attributes:
        pieces: N pieces of the windows.
        firsts: (W,) int64, the place among the N pieces of the first one of each token.
        lengths: (B,) int64, the tokens of each sentence.
    """

    pieces: FlatTokens
    firsts: Tensor
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
            (W,), the places in the concatenation of all sequences of these sentences.
        """
        sequences, firsts = self.sequences(rows)
        counts = self.token_counts(rows)
        tokens = _ranges(self.first_token_of_row[rows], counts)
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
        return SentenceBatch(
            pieces=self.batch(sequences, device, hidden),
            firsts=torch.from_numpy(self.first_pieces(rows)).to(device),
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
    places = tokens[:, None] - starts  # (T, K)
    before, after = places.copy(), room - 1 - places
    is_inside = (before >= 0) & (after >= 0)
    before[:, 0], after[:, -1] = room, room
    distances = np.where(is_inside, np.minimum(before, after), -1)
    chosen = distances.argmax(axis=1)
    return chosen, np.asarray(places[np.arange(len(tokens)), chosen])


def _pieces(encoder: Encoder, tokens: Sequence[str]) -> list[Ids]:
    """Return the pieces of each token; one without any, such as a space, is one [UNK]."""
    if not tokens:
        return []
    found = encoder.tokenizer.encode_all(tokens)
    unknown = np.array([encoder.tokenizer.unk_id], dtype=np.int64)
    parts = np.split(found.ids.astype(np.int64), np.cumsum(found.lengths)[:-1])
    return [part if len(part) else unknown for part in parts]


def run_tagger(run: Run, rows: Rows | None = None, *, placement: Placement) -> Scores:
    """Run a tagger without dropout.

    Args:
        run: the model and its sentences.
        rows: which sentences; default: all.
        placement: where to run.

    Returns:
        Logits (W, C) float32 of the tokens of these sentences, in order.
    """
    model, texts = run
    assert isinstance(texts, EncodedSentences)
    model.eval()
    wanted = np.arange(len(texts)) if rows is None else rows
    sequences, _ = texts.sequences(wanted)
    lengths = texts.lengths[sequences]
    starts = np.cumsum(lengths) - lengths
    logits = np.empty((lengths.sum(), model.classifier.out_features), dtype=np.float32)
    with torch.inference_mode():
        for group in batches_by_length(lengths, most_tokens=MOST_TOKENS):
            with autocast(*placement):
                found = model(texts.batch(sequences[group], placement.device))
            logits[_ranges(starts[group], lengths[group])] = found.float().cpu().numpy()
    return np.asarray(logits[texts.first_pieces(wanted)])


def crf_marginals(
    crf: LinearChainCrf, logits: Scores, lengths: Ids, allowed: AllowedTags | None
) -> Scores:
    """Return the probability of each tag of each token, (W, C), over all sequences.

    Args:
        crf: on any device.
        logits: (W, C), those of the tokens of all sentences.
        lengths: (sentences,), tokens of each.
        allowed: the tags that may follow each other; None: all.
    """

    def compute(scores: Tensor, lengths: Tensor) -> Tensor:
        return crf.marginals(scores, lengths, allowed)

    return _by_sentence(compute, logits, lengths, crf.transitions.device).astype(np.float32)


def decode(
    scores: Scores, lengths: Ids, *, crf: LinearChainCrf | None, allowed: AllowedTags | None
) -> Ids:
    """Choose the best allowed sequence of tags of each sentence.

    Args:
        scores: (W, C), a CRF's emissions or log probabilities of all tokens.
        lengths: (sentences,), tokens of each.
        crf: whose transitions are added, if given.
        allowed: the tags that may follow each other; None: all.

    Returns:
        (W,) int64.
    """
    best: Ids = scores.argmax(axis=1)
    open_rows = np.flatnonzero(lengths)
    if crf is None:
        if allowed is None:
            return best
        # Where the best tag of each token makes an allowed sequence, it is the best one.
        open_rows = open_rows[~_are_allowed(best, lengths, allowed)[open_rows]]
    if len(open_rows) == 0:
        return best

    def compute(scores: Tensor, lengths: Tensor) -> Tensor:
        return viterbi(scores, lengths, transitions=crf, allowed=allowed)

    tokens = _ranges((np.cumsum(lengths) - lengths)[open_rows], lengths[open_rows])
    device = torch.device("cpu") if crf is None else crf.transitions.device
    best[tokens] = _by_sentence(compute, scores[tokens], lengths[open_rows], device)
    return best


def _are_allowed(tags: Ids, lengths: Ids, allowed: AllowedTags) -> npt.NDArray[np.bool_]:
    """Return whether the tags (W,) of each sentence are an allowed sequence; an empty one is."""
    start, between, end = (part.cpu().numpy() for part in allowed)
    is_bad = np.zeros(len(tags), dtype=bool)
    ends = np.cumsum(lengths)[lengths > 0] - 1
    starts = ends - lengths[lengths > 0] + 1
    is_bad[1:] = ~between[tags[:-1], tags[1:]]
    is_bad[starts] = ~start[tags[starts]]
    is_bad[ends] |= ~end[tags[ends]]
    row_of = np.repeat(np.arange(len(lengths)), lengths)
    return np.asarray(np.bincount(row_of, weights=is_bad, minlength=len(lengths)) == 0)


def _by_sentence(
    compute: Callable[[Tensor, Tensor], Tensor],
    scores: Scores,
    lengths: Ids,
    device: torch.device,
) -> npt.NDArray[np.generic]:
    """Apply a function of padded sentences (B, T, C) and lengths (B,) to the tokens (W, C)."""
    starts = np.cumsum(lengths) - lengths
    parts: list[npt.NDArray[np.generic]] = []
    places: list[Ids] = []
    with torch.inference_mode():
        for group in batches_by_length(lengths, most_tokens=MOST_TOKENS):
            tokens = _ranges(starts[group], lengths[group])
            flat = torch.from_numpy(scores[tokens]).to(device)
            found = compute(pad(flat, lengths[group]), torch.from_numpy(lengths[group]).to(device))
            keep = np.arange(found.shape[1]) < lengths[group][:, None]
            parts.append(found.cpu().numpy()[keep])
            places.append(tokens)
    result = np.concatenate(parts)
    ordered = np.empty_like(result)
    ordered[np.concatenate(places)] = result
    return ordered


def pad(flat: Tensor, lengths: Ids) -> Tensor:
    """Lay tokens (W, C) out as sentences (B, T, C), with zeros after their ends."""
    sentences = torch.split(flat, lengths.tolist())
    return torch.nn.utils.rnn.pad_sequence(list(sentences), batch_first=True)


def _ranges(starts: Ids, lengths: Ids) -> Ids:
    """Concatenate the ranges of these starts and lengths."""
    shifts = starts - (np.cumsum(lengths) - lengths)
    return np.asarray(np.arange(lengths.sum()) + np.repeat(shifts, lengths))
