"""Sequences without words (DNA, proteins) cut to overlapping pieces of a fixed length."""

from collections.abc import Iterator

from tokenizers import normalizers

from bertpre.config.token_mode import Kmer


def cut_sequence(sequence: str, kmer: Kmer) -> Iterator[str]:
    """Cut one sequence; the last piece reaches its end and may be shorter than the others.

    So nothing is dropped, and a sequence that is cut already, into words of K, stays as it is.
    """
    last = max(0, len(sequence) - kmer.length)
    # The first start from which a piece reaches the end is the last that is needed.
    for start in range(0, last + kmer.stride, kmer.stride):
        yield sequence[start : start + kmer.length]


def cut_text(
    text: str, kmer: Kmer, normalizer: normalizers.Normalizer, *, lowercase: bool
) -> Iterator[str]:
    """Normalise a text and cut each of its sequences.

    Args:
        text: sequences between white space, of any length.
        kmer: how to cut.
        normalizer: the tokenizer's.
        lowercase: whether this normalizer lowercases.
    """
    for chunk in text.split():
        # The library takes some 50 bytes a character, too much for a chromosome in one line; on
        # plain letters it does nothing but lowercase.
        if chunk.isascii() and chunk.isprintable():
            yield from cut_sequence(chunk.lower() if lowercase else chunk, kmer)
            continue
        for sequence in normalizer.normalize_str(chunk).split():
            yield from cut_sequence(sequence, kmer)
