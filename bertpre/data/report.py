"""What make-data found and made: counts for the manifest."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bertpre.config.schema import MakeData
from bertpre.corpus.report import CorpusReport, quantiles
from bertpre.data.examples import Records, example_lengths, map_records, read_examples
from bertpre.data.index import DrawnIndex, IdCounts
from bertpre.data.masking import MaskSpec, example_keys, mask_examples, mask_spec
from bertpre.data.split import SplitDocuments
from bertpre.data.tokens import TokenStore, most_frequent
from bertpre.tokenizer.tokenizer import Tokenizer

_MASKS_SAMPLED = 1000  # examples
_MOST_FREQUENT_SHOWN = 10
_RECORDS_AT_ONCE = 1 << 17


@dataclass(frozen=True, kw_only=True, slots=True)
class MaskSample:
    """Statistics of the masks of evenly spaced training examples; shares are of 1.

    Attributes:
        examples: in the sample.
        predicted: of all tokens, special ones included.
        masked, random, kept: of the predicted tokens; "kept" includes equal random ones.
        run_length: mean number of adjacent predicted tokens.
    """

    examples: int
    predicted: float
    masked: float
    random: float
    kept: float
    run_length: float


@dataclass(frozen=True, kw_only=True, slots=True)
class DataReport:
    """What make-data found and made; kept in the manifest. Counts unless named otherwise.

    Attributes:
        corpus: what was read, and what was skipped.
        documents, sentences, tokens: in the token store.
        empty_sentences, empty_documents: those without a token, which are not in it.
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
    index: Path,
    store: TokenStore,
    *,
    corpus: CorpusReport,
    splits: tuple[SplitDocuments, SplitDocuments],
    counts: IdCounts,
    drawn: DrawnIndex,
    tokenizer: Tokenizer,
    config: MakeData,
    seed: int,
) -> DataReport:
    """Count what is in the token store and the index, block by block.

    Args:
        index: the folder of the index, which has at least one training example.
        store: the tokenised corpus.
        corpus: what was read.
        splits: training and held-out documents.
        counts: of each id.
        drawn: what was written to the index.
        tokenizer: of the tokens.
        config: how the examples were made.
        seed: decides the masks of the sample.
    """
    training, held_out = splits
    records, passes = map_records(index / "examples.bin"), len(drawn.pass_ends)
    lengths, num_of_label_1, walked = _measure(records, with_random=config.objective == "mlm-nsp")
    sentences: Counter[int] = Counter()
    for sentence_lengths in store.sentence_length_blocks():
        _count(sentences, sentence_lengths)
    by_length = np.array(sorted(lengths.items()))
    tokens_per_epoch = int(by_length.prod(axis=1).sum())
    spec = mask_spec(config)
    num_tokens = passes * int(counts.in_training.sum())
    used, unused = walked / num_tokens, drawn.unused / num_tokens
    share_of_label_1 = num_of_label_1 / len(records)
    return DataReport(
        corpus=corpus,
        documents=store.num_documents,
        sentences=store.num_sentences,
        tokens=store.num_tokens,
        empty_sentences=store.empty_sentences,
        empty_documents=store.empty_documents,
        one_sentence_documents=sum(
            int((np.diff(starts) == 1).sum()) for starts, _ in store.documents()
        ),
        unknown_share=int(counts.everywhere[tokenizer.unk_id]) / store.num_tokens,
        unknown_most_frequent=most_unknown(store),
        pieces_per_word=store.num_tokens / store.count_words(),
        sentence_length_quantiles=quantiles(sentences),
        training_documents=len(training),
        held_out_documents=len(held_out),
        training_examples=len(records),
        held_out_examples=drawn.num_held_out,
        passes=passes,
        random_next_share=share_of_label_1 if config.objective == "mlm-nsp" else None,
        swapped_share=share_of_label_1 if config.objective == "mlm-sop" else None,
        mean_length=tokens_per_epoch / len(records),
        longest=max(lengths),
        length_quantiles=quantiles(lengths),
        tokens_per_epoch=tokens_per_epoch,
        predictions_per_epoch=int(spec.num_predictions(by_length[:, 0]) @ by_length[:, 1]),
        full_length_examples=lengths[config.max_seq_length],
        used_share=used,
        truncated_share=max(0.0, 1 - used - unused),
        unused_share=unused,
        mask_sample=_sample_masks(records, store, tokenizer, spec=spec, seed=seed),
        text_bytes=store.text_bytes,
        tokens_bytes=_disk_bytes(store.folder),
        index_bytes=_disk_bytes(index),
    )


def most_unknown(store: TokenStore) -> tuple[tuple[str, int], ...]:
    """Return the most frequent characters or tokens without an entry, with their counts."""
    return tuple(most_frequent(store.unknown, _MOST_FREQUENT_SHOWN))


def _measure(records: Records, *, with_random: bool) -> tuple[Counter[int], int, int]:
    """Count lengths, labels 1, and the tokens that the passes used from the text."""
    lengths: Counter[int] = Counter()
    walked = num_of_label_1 = 0
    for start in range(0, len(records), _RECORDS_AT_ONCE):
        block = records[start : start + _RECORDS_AT_ONCE]
        _count(lengths, example_lengths(block))
        is_of_label_1 = block["label"] == 1
        num_of_label_1 += int(is_of_label_1.sum())
        # A and a true B walk through the text once a pass; a random B is read in addition.
        walked += int(block["a_length"].sum(dtype=np.int64))
        walked += int(block["b_length"][~(is_of_label_1 & with_random)].sum(dtype=np.int64))
    return lengths, num_of_label_1, walked


def _sample_masks(
    records: Records, store: TokenStore, tokenizer: Tokenizer, *, spec: MaskSpec, seed: int
) -> MaskSample:
    """Draw the masks of evenly spaced examples of an index, as in epoch 0."""
    places = np.linspace(0, len(records) - 1, min(len(records), _MASKS_SAMPLED))
    numbers = np.unique(places.astype(np.int64))
    examples = read_examples(records[numbers], store, tokenizer, with_nsp=False)
    keys = example_keys(seed, np.zeros_like(numbers), numbers)
    masked = mask_examples(examples, keys=keys, spec=spec, tokenizer=tokenizer)
    now = masked.input_ids[masked.predicted]
    num_predicted = len(now)
    is_mask, is_same = now == tokenizer.mask_id, now == masked.mlm_labels
    # Runs end with their example, as [CLS] and [SEP] are not predicted.
    runs = 1 + int((np.diff(masked.predicted) > 1).sum())
    return MaskSample(
        examples=len(numbers),
        predicted=num_predicted / len(masked.input_ids),
        masked=float(is_mask.mean()),
        random=float((~is_mask & ~is_same).mean()),
        kept=float(is_same.mean()),
        run_length=num_predicted / runs,
    )


def _count(counts: Counter[int], values: npt.NDArray[np.int64]) -> None:
    found, times = np.unique(values, return_counts=True)
    counts.update(dict(zip(found.tolist(), times.tolist(), strict=True)))


def _disk_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.bin"))
