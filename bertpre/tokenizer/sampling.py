"""Count the words of a corpus, or of a sample of documents if it is large."""

import hashlib
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from bertpre.config.fields import Kmer
from bertpre.config.schema import BuildVocab
from bertpre.corpus.documents import Corpus
from bertpre.corpus.report import CorpusReport
from bertpre.errors import CorpusError
from bertpre.tokenizer.normalizing import Rules
from bertpre.tokenizer.word_counts import SortedCounts, WordCounts

_STANDARD_INPUT = "-"
_HASHES = 2**64
# Share of the progress for a pass that only measures the size; counting takes most of the time.
_SIZING_SHARE = 0.1


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """The part of the corpus in which words were counted.

    Attributes:
        share: the probability of drawing a document; 1 without sampling.
        documents: number of documents drawn.
        bytes: size of their text.
        corpus_bytes: size of all text.
    """

    share: float = 1.0
    documents: int = 0
    bytes: int = 0
    corpus_bytes: int = 0


class Counted(NamedTuple):
    """The report and the words of a corpus."""

    corpus: CorpusReport
    totals: WordCounts
    words: SortedCounts
    sample: Sample


def count_words(
    inputs: Sequence[str | Path],
    config: BuildVocab,
    rules: Rules,
    *,
    seed: int,
    on_progress: Callable[[float], None],
) -> Counted:
    """Count words in one pass, or in two if the corpus is larger than ``config.sample_bytes``.

    Sampling depends only on the seed and the text of each document. Standard input is counted
    completely, as it cannot be read twice.

    Args:
        inputs: files and folders with text.
        config: the stage's options.
        rules: how text is processed.
        seed: the seed of the sample.
        on_progress: called with the share of work done.

    Raises:
        CorpusError: the input cannot be read or has no words, or no document was drawn.
    """
    can_sample = _STANDARD_INPUT not in map(str, inputs)
    totals = WordCounts(rules, most_words=config.vocab_size)
    num_bytes = disk_bytes = 0

    def tell(done: int, total: int | None) -> None:
        nonlocal disk_bytes
        disk_bytes = total or 0
        share = _SIZING_SHARE if can_sample and disk_bytes > config.sample_bytes else 1
        on_progress(share * done / (total or done or 1))

    corpus = Corpus(inputs, config.text, kmer=rules.kmer, on_progress=tell)
    for sentence in itertools.chain.from_iterable(corpus.documents()):
        num_bytes += len(sentence.encode())
        # Skip counting if the files already show that the corpus will be sampled.
        if not can_sample or max(num_bytes, disk_bytes) <= config.sample_bytes:
            totals.add(sentence)
    sample = Sample(documents=corpus.report.documents, bytes=num_bytes, corpus_bytes=num_bytes)
    if can_sample and max(num_bytes, disk_bytes) > config.sample_bytes:
        totals = WordCounts(rules, most_words=config.vocab_size)
        sample = _count_sample(
            totals, sample, inputs, config, kmer=rules.kmer, seed=seed, on_progress=on_progress
        )
    words = totals.finish()
    if not words:
        raise CorpusError(
            f"no words in the input: normalising removes all of its {corpus.report.characters:,} "
            "characters, such as control characters",
            "check the files, and --format and --text-column",
        )
    return Counted(corpus.report, totals, words, sample)


def _count_sample(
    totals: WordCounts,
    whole: Sample,
    inputs: Sequence[str | Path],
    config: BuildVocab,
    *,
    kmer: Kmer | None,
    seed: int,
    on_progress: Callable[[float], None],
) -> Sample:
    """Read the text again, and count the words of a random sample of documents."""
    share = min(1.0, config.sample_bytes / whole.bytes)
    num_documents = num_bytes = 0

    def tell(done: int, total: int | None) -> None:
        on_progress(_SIZING_SHARE + (1 - _SIZING_SHARE) * done / (total or done or 1))

    corpus = Corpus(inputs, config.text, kmer=kmer, on_progress=tell, is_quiet=True)
    for document in corpus.documents():
        if not _is_drawn("\n".join(document), seed=seed, share=share):
            continue
        num_documents += 1
        for sentence in document:
            num_bytes += len(sentence.encode())
            totals.add(sentence)
    if num_documents == 0:
        raise CorpusError(
            f"no document was drawn: a sample of {config.sample_bytes:,} bytes is too small for "
            f"{whole.documents:,} documents of {whole.bytes:,} bytes",
            "raise --sample-bytes, or use smaller documents, such as --document line",
        )
    return Sample(
        share=share, documents=num_documents, bytes=num_bytes, corpus_bytes=whole.corpus_bytes
    )


def _is_drawn(text: str, *, seed: int, share: float) -> bool:
    digest = hashlib.blake2b(text.encode(), digest_size=8, key=b"sample %d" % seed).digest()
    return int.from_bytes(digest, "little") < share * _HASHES
