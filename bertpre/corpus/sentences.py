"""Lines to sentences: as they are, split by language, or cut into windows of tokens."""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from bertpre.config.fields import Kmer

# A block is split at a time: the library's cost grows with the square of the sentences in a text.
_BLOCK_CHARACTERS = 2000

# Text without spaces between words counts by its Han characters.
_TOKEN = re.compile(r"[一-龥]|[^\s一-龥]+")


class Record(NamedTuple):
    """One line or sentence of text, never blank."""

    text: str
    source: str
    line: int  # from 1
    starts_document: bool


def cut_sentences(
    records: Iterable[Record], how: str, *, language: str, kmer: Kmer | None = None
) -> Iterator[Record]:
    """Turn the lines of documents into their sentences.

    Args:
        records: lines that hold text.
        how: ``line``: a line is a sentence; ``split``: a line is split into its sentences;
            ``window:N``: each N tokens of a document, across its lines, are one.
        language: code of the language for ``split``, such as ``en`` or ``zh``.
        kmer: how sequences are cut to tokens; otherwise words are tokens.
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
    """Split a text into sentences, without the white space around them; none is blank.

    Args:
        text: of any length.
        language: code of a language.
    """
    import sentencex

    rest, start, size = "", 0, _BLOCK_CHARACTERS
    while start < len(text):
        block = rest + text[start : start + size]
        start += size
        sentences = sentencex.segment(language, block)
        # The last one may go on in the next block. Blocks grow with it, so that a text without
        # sentences is not looked at again and again.
        rest = sentences.pop() if start < len(text) and sentences else ""
        size = max(_BLOCK_CHARACTERS, len(rest))
        yield from filter(None, (sentence.strip() for sentence in sentences))
    if rest.strip():
        yield rest.strip()


def _cut_sequences(records: Iterable[Record], width: int, kmer: Kmer) -> Iterator[Record]:
    """Cut sequences of more tokens than a window holds, so that their k-mers stay what they are."""
    step = width * kmer.stride
    for record in records:
        parts = []
        for sequence in record.text.split():
            # As in cut_sequence, the last piece is the first that reaches the end.
            last = max(0, len(sequence) - kmer.length)
            for start in range(0, last + kmer.stride, step):
                parts.append(sequence[start : start + step - kmer.stride + kmer.length])
        yield record._replace(text=" ".join(parts))


def _count_tokens(word: str, kmer: Kmer | None) -> int:
    if kmer is None:
        return 1
    return 1 + -(-max(0, len(word) - kmer.length) // kmer.stride)


def _windows(records: Iterable[Record], width: int, kmer: Kmer | None) -> Iterator[Record]:
    parts: list[str] = []
    first: Record | None = None  # the line that the window starts in
    count = 0
    starts = True

    def window() -> Record:
        assert first is not None
        return first._replace(text=" ".join(parts), starts_document=starts)

    for record in records:
        if record.starts_document:
            if parts:
                yield window()
            parts, first, count, starts = [], None, 0, True
        begin = end = 0
        for token in _TOKEN.finditer(record.text):
            tokens = _count_tokens(token[0], kmer)
            if count and count + tokens > width:  # k-mers of one sequence stay together
                if end > begin:
                    parts.append(record.text[begin:end])
                yield window()
                parts, first, count, starts = [], None, 0, False
                begin = end
            if first is None:
                first = record
            if begin == end:
                begin = token.start()
            end = token.end()
            count += tokens
            if count >= width:
                parts.append(record.text[begin:end])
                yield window()
                parts, first, count, starts = [], None, 0, False
                begin = end
        if end > begin:
            parts.append(record.text[begin:end])
    if parts:
        yield window()


def cut_sequence(sequence: str, kmer: Kmer) -> Iterator[str]:
    """Cut one sequence; the last piece reaches its end and may be shorter than the others.

    So nothing is dropped, and a sequence that is cut already, into words of K, stays as it is.
    """
    last = max(0, len(sequence) - kmer.length)
    # The first start from which a piece reaches the end is the last that is needed.
    for start in range(0, last + kmer.stride, kmer.stride):
        yield sequence[start : start + kmer.length]
