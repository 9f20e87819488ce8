"""What make-data found and made: counts for the manifest."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bertpre.config.load import config_to_dict
from bertpre.config.schema import MakeData
from bertpre.corpus.report import QUANTILES, CorpusReport
from bertpre.data.dataset import mask_spec_of
from bertpre.data.records import Records
from bertpre.data.samples import MaskSample, sample_masks
from bertpre.data.split import SplitDocuments
from bertpre.data.tokens import TokenStore
from bertpre.tokenizer.tokenizer import Tokenizer

_MOST_FREQUENT_SHOWN = 10
_RECORDS_AT_ONCE = 1 << 17


@dataclass(frozen=True, kw_only=True, slots=True)
class DataReport:
    """What make-data found and made; kept in the manifest. Counts unless named otherwise.

    Attributes:
        corpus: what was read, and what of it had to be skipped.
        documents, sentences, tokens: in the token store.
        empty_sentences, empty_documents: had no token left, and are not in it.
        one_sentence_documents: among ``documents``.
        unknown_share: share of ``tokens`` that are [UNK].
        unknown_most_frequent: characters (or whole tokens) behind them, with their counts.
        pieces_per_word: tokens over words, mean.
        sentence_length_quantiles: tokens, at 5, 25, 50, 75, 95 and 99 %.
        training_documents, held_out_documents: the split; tails count as documents.
        training_examples, held_out_examples: in the index, all passes together.
        passes: over the training documents.
        random_next_share, swapped_share: share of training pairs with label 1; None where the
            objective has no such label.
        mean_length, longest: tokens of a training example, special ones included.
        length_quantiles: of training examples, at 5, 25, 50, 75, 95 and 99 %.
        tokens_per_epoch: in all training examples, special tokens included.
        predictions_per_epoch: tokens predicted in an epoch.
        full_length_examples: training examples as long as an example can be.
        used_share: share of the training tokens that are in an example of a pass, as A or as the
            true B, mean over the passes; a random B uses text again.
        truncated_share: share that a pass cuts off to fit.
        unused_share: share that can be in no example. The three add up to 1.
        mask_sample: masks as drawn.
        text_bytes: of the corpus, in UTF-8.
        tokens_bytes, index_bytes: on disk.
    """

    corpus: CorpusReport
    documents: int
    sentences: int
    tokens: int
    empty_sentences: int
    empty_documents: int
    one_sentence_documents: int
    unknown_share: float
    unknown_most_frequent: tuple[tuple[str, int], ...]
    pieces_per_word: float
    sentence_length_quantiles: tuple[int, ...]
    training_documents: int
    held_out_documents: int
    training_examples: int
    held_out_examples: int
    passes: int
    random_next_share: float | None
    swapped_share: float | None
    mean_length: float
    longest: int
    length_quantiles: tuple[int, ...]
    tokens_per_epoch: int
    predictions_per_epoch: int
    full_length_examples: int
    used_share: float
    truncated_share: float
    unused_share: float
    mask_sample: MaskSample
    text_bytes: int
    tokens_bytes: int
    index_bytes: int


def describe_data(
    corpus: CorpusReport,
    store: TokenStore,
    records: Records,
    *,
    splits: tuple[SplitDocuments, SplitDocuments],
    unigrams: npt.NDArray[np.int64],
    unknown: int,
    unused: int,
    tokenizer: Tokenizer,
    passes: int,
    held_out_examples: int,
    config: MakeData,
    seed: int,
    disk_bytes: Mapping[str, int],
) -> DataReport:
    """Count what is in the token store and the index, block by block.

    Args:
        corpus: what was read.
        store: the tokenised corpus.
        records: the training examples of all passes, at least one.
        splits: training and held-out documents.
        unigrams: occurrences of each id in the training documents.
        unknown: tokens that are [UNK], held-out ones included.
        unused: training tokens that could be in no example, all passes together.
        tokenizer: of the tokens.
        passes: how often the training documents were gone through.
        held_out_examples: how many of them there are.
        config: how the examples were made.
        seed: decides the masks of the sample.
        disk_bytes: of "tokens" and of the "index".
    """
    training, held_out = splits
    lengths: Counter[int] = Counter()
    walked = num_of_label_1 = 0
    for start in range(0, len(records), _RECORDS_AT_ONCE):
        block = records[start : start + _RECORDS_AT_ONCE]
        a_length, b_length = block["a_length"].astype(np.int64), block["b_length"].astype(np.int64)
        _count(lengths, a_length + b_length + 2 + (b_length > 0))
        is_of_label_1 = block["label"] == 1
        num_of_label_1 += int(is_of_label_1.sum())
        # A and a true B walk through the text once a pass; a random B is read in addition.
        is_random = is_of_label_1 if config.objective == "mlm-nsp" else np.zeros(len(block), bool)
        walked += int(a_length.sum() + b_length[~is_random].sum())
    sentences: Counter[int] = Counter()
    for sentence_lengths in store.sentence_length_blocks():
        _count(sentences, sentence_lengths)
    one_sentence = sum(int((np.diff(starts) == 1).sum()) for starts, _ in store.documents())
    spec = mask_spec_of(config_to_dict(config))
    by_length = np.array(sorted(lengths.items()))
    predictions = int((spec.num_predictions(by_length[:, 0]) * by_length[:, 1]).sum())
    num_training_tokens = int(unigrams.sum())
    used, no_example = (count / (passes * num_training_tokens) for count in (walked, unused))
    return DataReport(
        corpus=corpus,
        documents=store.num_documents,
        sentences=store.num_sentences,
        tokens=store.num_tokens,
        empty_sentences=store.empty_sentences,
        empty_documents=store.empty_documents,
        one_sentence_documents=one_sentence,
        unknown_share=unknown / store.num_tokens,
        unknown_most_frequent=most_unknown(store),
        pieces_per_word=store.num_tokens / store.count_words(),
        sentence_length_quantiles=_quantiles(sentences),
        training_documents=len(training),
        held_out_documents=len(held_out),
        training_examples=len(records),
        held_out_examples=held_out_examples,
        passes=passes,
        random_next_share=(
            num_of_label_1 / len(records) if config.objective == "mlm-nsp" else None
        ),
        swapped_share=num_of_label_1 / len(records) if config.objective == "mlm-sop" else None,
        mean_length=sum(length * count for length, count in lengths.items()) / len(records),
        longest=max(lengths),
        length_quantiles=_quantiles(lengths),
        tokens_per_epoch=sum(length * count for length, count in lengths.items()),
        predictions_per_epoch=predictions,
        full_length_examples=lengths[config.max_seq_length],
        used_share=used,
        truncated_share=max(0.0, 1 - used - no_example),
        unused_share=no_example,
        mask_sample=sample_masks(records, store, tokenizer, spec=spec, seed=seed),
        text_bytes=store.text_bytes,
        tokens_bytes=disk_bytes["tokens"],
        index_bytes=disk_bytes["index"],
    )


def most_unknown(store: TokenStore) -> tuple[tuple[str, int], ...]:
    """Return the characters or tokens that most often have no entry, with their counts."""
    ranked = sorted(store.unknown.items(), key=lambda item: (-item[1], item[0]))
    return tuple(ranked[:_MOST_FREQUENT_SHOWN])


def _count(counts: Counter[int], values: npt.NDArray[np.int64]) -> None:
    found, times = np.unique(values, return_counts=True)
    counts.update(dict(zip(found.tolist(), times.tolist(), strict=True)))


def _quantiles(counts: Counter[int]) -> tuple[int, ...]:
    values, times = zip(*sorted(counts.items()), strict=True)
    # The smallest value that has at least that share of all at or below it.
    places = np.searchsorted(np.cumsum(times), np.array(QUANTILES) * sum(times), side="left")
    return tuple(values[min(place, len(values) - 1)] for place in places)
