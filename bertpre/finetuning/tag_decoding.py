"""From the pieces of sentences to the tags of their tokens, by one tagger or several together."""

from collections.abc import Callable, Sequence
from typing import cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bertpre.finetuning.batches import Ids, batches_by_length
from bertpre.finetuning.outputs import Outputs, TaggedSentence, as_rows
from bertpre.finetuning.running import MOST_TOKENS, Placement, Run
from bertpre.finetuning.scores import SMALLEST_PROBABILITY
from bertpre.finetuning.tables import Rows
from bertpre.finetuning.words import EncodedSentences, ranges
from bertpre.model.crf import AllowedTags, LinearChainCrf, viterbi
from bertpre.model.flat import Wanted
from bertpre.model.heads import BertForTokenClassification
from bertpre.training.device import autocast

Scores = npt.NDArray[np.float32]


def predict_tags(
    runs: Sequence[Run],
    rows: Rows | None = None,
    *,
    allowed: AllowedTags | None,
    placement: Placement,
) -> Outputs:
    """Tag sentences; of several models, the probabilities are averaged before decoding.

    Args:
        runs: each model with its own encoding of the sentences.
        rows: which sentences; default: all.
        allowed: the tags that may follow each other; None: all.
        placement: where the models are.

    Returns:
        (rows,) `TaggedSentence`.
    """
    texts = runs[0].texts
    assert isinstance(texts, EncodedSentences)
    lengths = texts.token_counts(np.arange(len(texts)) if rows is None else rows)
    found: list[npt.NDArray[np.float32]] = []
    for run in runs:
        logits = run_tagger(run, rows, placement=placement)
        crf = cast(BertForTokenClassification, run.model).crf
        found.append(
            _softmax(logits) if crf is None else crf_marginals(crf, logits, lengths, allowed)
        )
    if len(runs) == 1 and crf is not None:
        probabilities = found[0]
        decided = decode(logits, lengths, crf=crf, allowed=allowed)
    else:
        probabilities = np.asarray(np.mean(found, axis=0, dtype=np.float64), dtype=np.float32)
        chances = np.log(np.maximum(probabilities, SMALLEST_PROBABILITY))
        decided = decode(chances, lengths, crf=None, allowed=allowed)
    ends = np.cumsum(lengths)[:-1]
    parts = zip(np.split(decided, ends), np.split(probabilities, ends), strict=True)
    return as_rows([TaggedSentence(*part) for part in parts])


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
    assert isinstance(model, BertForTokenClassification)
    assert isinstance(texts, EncodedSentences)
    model.eval()
    wanted = np.arange(len(texts)) if rows is None else rows
    sequences, _ = texts.sequences(wanted)
    lengths = texts.lengths[sequences]
    starts = np.cumsum(lengths) - lengths
    firsts = texts.first_pieces(wanted)  # (W,)
    first_tokens = np.searchsorted(firsts, starts)  # of each sequence
    counts = np.diff(first_tokens, append=len(firsts))
    logits = np.empty((len(firsts), model.classifier.out_features), dtype=np.float32)
    with torch.inference_mode():
        for group in batches_by_length(lengths, most_tokens=MOST_TOKENS):
            tokens = ranges(first_tokens[group], counts[group])
            if len(tokens) == 0:  # empty sentences
                continue
            batch = texts.batch(sequences[group], placement.device)
            moved = np.cumsum(lengths[group]) - lengths[group] - starts[group]
            places = torch.from_numpy(firsts[tokens] + np.repeat(moved, counts[group]))
            most = int(counts[group].max())
            with autocast(*placement):
                found = model(batch, Wanted.at(places.to(placement.device), batch, most=most))
            logits[tokens] = found.float().cpu().numpy()
    return logits


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

    filled = lengths[lengths > 0]
    if len(filled) == 0:
        return logits
    return _by_sentence(compute, logits, filled, crf.transitions.device).astype(np.float32)


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

    tokens = ranges((np.cumsum(lengths) - lengths)[open_rows], lengths[open_rows])
    device = _device_of(crf, allowed)
    best[tokens] = _by_sentence(compute, scores[tokens], lengths[open_rows], device)
    return best


def _device_of(crf: LinearChainCrf | None, allowed: AllowedTags | None) -> torch.device:
    if crf is not None:
        return crf.transitions.device
    return torch.device("cpu") if allowed is None else allowed.start.device


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
    """Apply a function of padded sentences (B, T, C) and lengths (B,) to the tokens (W, C).

    There is a sentence, and none is empty.
    """
    starts = np.cumsum(lengths) - lengths
    parts: list[npt.NDArray[np.generic]] = []
    places: list[Ids] = []
    with torch.inference_mode():
        for group in batches_by_length(lengths, most_tokens=MOST_TOKENS):
            tokens = ranges(starts[group], lengths[group])
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


def _softmax(logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))
