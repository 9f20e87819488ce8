"""Turn lines into sentences: unchanged, split by language, or cut into windows of tokens."""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from bertpre.config.fields import Kmer

# Text is split in blocks, as the library takes quadratic time.
_BLOCK_CHARACTERS = 2000

# A word or a Han character: the unit of windows.
WORD_OR_HAN = re.compile(r"[一-龥]|[^\s一-龥]+")


class Record(NamedTuple):
    """A line or sentence, never blank."""

    text: str
    source: str
    line: int  # from 1
    starts_document: bool


def cut_sentences(
    records: Iterable[Record], how: str, *, language: str, kmer: Kmer | None = None
) -> Iterator[Record]:
    """Turn lines of documents into sentences.

    Args:
        records: non-blank lines.
        how: ``line``: unchanged; ``split``: split each line into sentences; ``window:N``: join and
            cut the lines of a document into windows of N tokens.
        language: language code for ``split``, such as ``en`` or ``zh``.
        kmer: how sequences are cut into tokens; without it, words are tokens.
    """
    if how == "line":
        yield from records
    elif how == "split":
        for record in records:
            starts = record.starts_document
            for sentence in split_sentences(record.text, language):
                yield record._replace(text=sentence, starts_document=starts)
                starts = False
    else:
        width = int(how.removeprefix("window:"))
        if kmer is not None:
            records = _cut_sequences(records, width, kmer)
        yield from _windows(records, width, kmer)


def split_sentences(text: str, language: str) -> Iterator[str]:
    """Split a text of any length into non-blank sentences, stripped of white space."""
    import sentencex

    rest, start, size = "", 0, _BLOCK_CHARACTERS
    while start < len(text):
        block = rest + text[start : start + size]
        start += size
        sentences = sentencex.segment(language, block)
        # The last one may continue in the next block. Blocks grow with it, so that a long text
        # without sentence ends does not take quadratic time.
        rest = sentences.pop() if start < len(text) and sentences else ""
        size = max(_BLOCK_CHARACTERS, len(rest))
        yield from filter(None, (sentence.strip() for sentence in sentences))
    if rest.strip():
        yield rest.strip()


def _cut_sequences(records: Iterable[Record], width: int, kmer: Kmer) -> Iterator[Record]:
    """Cut sequences longer than a window without changing their k-mers."""
    step = width * kmer.stride
    for record in records:
        parts = []
        for sequence in record.text.split():
            # As in cut_sequence, the first piece that reaches the end is the last one.
            last = max(0, len(sequence) - kmer.length)
            for start in range(0, last + kmer.stride, step):
                parts.append(sequence[start : start + step - kmer.stride + kmer.length])
        yield record._replace(text=" ".join(parts))


def _count_tokens(word: str, kmer: Kmer | None) -> int:
    if kmer is None:
        return 1
    return 1 + -(-max(0, len(word) - kmer.length) // kmer.stride)


def _windows(records: Iterable[Record], width: int, kmer: Kmer | None) -> Iterator[Record]:
    parts: list[str] = []  # of the window, one per line
    count, starts = 0, True
    first = Record("", "", 0, True)  # the line where the window starts
    for record in records:
        if record.starts_document:
            if parts:
                yield first._replace(text=" ".join(parts), starts_document=starts)
            parts, count, starts = [], 0, True
        begin = end = 0  # of the window's part of this line
        for token in WORD_OR_HAN.finditer(record.text):
            tokens = _count_tokens(token[0], kmer)
            if count and count + tokens > width:  # do not split the k-mers of a sequence
                if end > begin:
                    parts.append(record.text[begin:end])
                yield first._replace(text=" ".join(parts), starts_document=starts)
                parts, count, starts, begin = [], 0, False, end
            if count == 0:
                first = record
            if begin == end:
                begin = token.start()
            end = token.end()
            count += tokens
        if end > begin:
            parts.append(record.text[begin:end])
    if parts:
        yield first._replace(text=" ".join(parts), starts_document=starts)


def cut_sequence(sequence: str, kmer: Kmer) -> Iterator[str]:
    """Cut a sequence into k-mers; the last one reaches the end and may be shorter."""
    last = max(0, len(sequence) - kmer.length)
    for start in range(0, last + kmer.stride, kmer.stride):
        yield sequence[start : start + kmer.length]
