"""What make-data found and made: counts for the manifest, and examples as people read them."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bertpre.data.dataset import PretrainingData
from bertpre.data.masking import MaskSpec
from bertpre.data.pairs import NO_LABEL, RANDOM_NEXT, Records, SplitDocuments
from bertpre.data.tokens import TokenStore
from bertpre.text.corpus_report import QUANTILES, CorpusReport

_MOST_FREQUENT_SHOWN = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class DataReport:
    """What make-data found and made; kept in the manifest. Counts unless named otherwise.

    Attributes:
        corpus: what was read, and what of it had to be skipped.
        documents, sentences, tokens: in the token store.
        empty_sentences, empty_documents: had no token left, and are not in it.
        one_sentence_documents: among ``documents``.
        unknown_share: share of training tokens that are [UNK].
        unknown_most_frequent: characters (or whole tokens) behind them, with their counts.
        pieces_per_word: tokens over words, mean.
        sentence_length_quantiles: tokens, at 5, 25, 50, 75, 95 and 99 %.
        training_documents, held_out_documents: the split; tails count as documents.
        training_examples, held_out_examples: in the index, all passes together.
        passes: over the training documents.
        random_next_share: share of training pairs with label 1; None without NSP.
        mean_length, longest: tokens of a training example, special ones included.
        tokens_per_epoch: in all training examples, special tokens included.
        predictions_per_epoch: tokens predicted in an epoch.
        full_length_examples: training examples as long as an example can be.
        truncated_share: share of the training tokens that a pass cuts off to fit.
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
    mean_length: float
    longest: int
    tokens_per_epoch: int
    predictions_per_epoch: int
    full_length_examples: int
    truncated_share: float


def describe_data(
    corpus: CorpusReport,
    store: TokenStore,
    records: Records,
    *,
    splits: tuple[SplitDocuments, SplitDocuments],
    unigrams: npt.NDArray[np.int64],
    unknown_id: int,
    passes: int,
    held_out_examples: int,
    max_seq_length: int,
    mask_spec: MaskSpec,
) -> DataReport:
    """Count what is in the token store and the index.

    Args:
        corpus: what was read.
        store: the tokenised corpus.
        records: the training examples of all passes.
        splits: training and held-out documents.
        unigrams: occurrences of each id in the training documents.
        unknown_id: the id of [UNK].
        passes: how often the training documents were gone through.
        held_out_examples: how many of them there are.
        max_seq_length: most tokens in an example.
        mask_spec: how masks will be drawn.
    """
    training, held_out = splits
    a_length = records["a_length"].astype(np.int64)
    b_length = records["b_length"].astype(np.int64)
    lengths = a_length + b_length + 2 + (b_length > 0)
    is_random = records["label"] == RANDOM_NEXT
    has_labels = bool((records["label"] != NO_LABEL).any())
    # A and a true B walk through the text once a pass; a random B is read in addition.
    walked = int(a_length.sum() + b_length[~is_random].sum())
    num_training_tokens = int(unigrams.sum())
    return DataReport(
        corpus=corpus,
        documents=store.num_documents,
        sentences=store.num_sentences,
        tokens=store.num_tokens,
        empty_sentences=store.empty_sentences,
        empty_documents=store.empty_documents,
        one_sentence_documents=int((np.diff(store.document_starts) == 1).sum()),
        unknown_share=float(unigrams[unknown_id] / num_training_tokens),
        unknown_most_frequent=most_unknown(store),
        pieces_per_word=store.num_tokens / store.count_words(),
        sentence_length_quantiles=tuple(
            np.quantile(store.sentence_lengths, QUANTILES, method="inverted_cdf").tolist()
        ),
        training_documents=len(training),
        held_out_documents=len(held_out),
        training_examples=len(records),
        held_out_examples=held_out_examples,
        passes=passes,
        random_next_share=float(is_random.mean()) if has_labels else None,
        mean_length=float(lengths.mean()),
        longest=int(lengths.max()),
        tokens_per_epoch=int(lengths.sum()),
        predictions_per_epoch=int(mask_spec.num_predictions(lengths).sum()),
        full_length_examples=int((lengths == max_seq_length).sum()),
        truncated_share=1 - walked / (passes * num_training_tokens),
    )


def most_unknown(store: TokenStore) -> tuple[tuple[str, int], ...]:
    """Return the characters or tokens that most often have no entry, with their counts."""
    ranked = sorted(store.unknown.items(), key=lambda item: (-item[1], item[0]))
    return tuple(ranked[:_MOST_FREQUENT_SHOWN])


def sample_examples(folder: str | Path, count: int) -> list[str]:
    """Decode the first examples of an epoch as people would read them, predictions marked.

    Returns:
        One string an example; a predicted token is shown as ``{seen→was}``.
    """
    data = PretrainingData(folder)
    epochs, numbers = data.order(0, min(count, len(data.records)), seed=data.seed)
    lines = []
    for epoch, number in zip(epochs, numbers, strict=True):
        examples = data.training_examples(
            np.array([number]), epochs=np.array([epoch]), seed=data.seed
        )
        tokens = [data.tokenizer.tokens[i] for i in examples.input_ids]
        for place, label in zip(examples.predicted, examples.mlm_labels, strict=True):
            tokens[place] = f"{{{tokens[place]}→{data.tokenizer.tokens[label]}}}"
        prefix = ""
        if examples.nsp_labels is not None:
            prefix = ["is next: ", "random: "][int(examples.nsp_labels[0])]
        lines.append(prefix + " ".join(tokens))
    return lines
