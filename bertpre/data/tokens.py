"""The token store: the corpus tokenised once, in shards of whole documents, memory-mapped."""

import itertools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np

from bertpre.data.random64 import Array
from bertpre.data.shards import ShardCounts, finished_shards
from bertpre.errors import DataFormatError

_BLOCK = 1 << 20  # of what is read in order, so that memory is bounded


class _Shard:
    """The files of a shard, mapped, and where it starts in the store."""

    def __init__(self, stem: Path, counts: ShardCounts, first_token: int, first_sentence: int):
        self.first_token, self.first_sentence = first_token, first_sentence
        self.ids = _map(stem, "ids", f"<u{counts.id_bytes}", counts.tokens)
        self.words = _map(stem, "words", "u1", (counts.tokens + 7) // 8)
        self.sentences = _map(stem, "sentences", "<u8", counts.sentences + 1)
        self.documents = _map(stem, "documents", "<u8", counts.documents + 1)
        self.hashes = _map(stem, "hashes", "<u8", counts.documents)


class TokenStore:
    """All shards as one long row of tokens, cut into sentences and documents.

    Args:
        folder: a data folder's ``tokens``.

    Raises:
        DataFormatError: a file is missing or has another size than its shard's counts say.
    """

    def __init__(self, folder: Path) -> None:
        counts = finished_shards(folder)
        if not counts:
            raise DataFormatError(f"{folder}: holds no finished shard", "rerun make-data")
        self.folder = folder
        self._token_ends = list(itertools.accumulate(c.tokens for c in counts))
        self._sentence_ends = list(itertools.accumulate(c.sentences for c in counts))
        self._shards = [
            _Shard(folder / f"{number:05d}", c, tokens - c.tokens, sentences - c.sentences)
            for number, (c, tokens, sentences) in enumerate(
                zip(counts, self._token_ends, self._sentence_ends, strict=True)
            )
        ]
        self.num_tokens = self._token_ends[-1]
        self.num_sentences = self._sentence_ends[-1]
        self.num_documents = sum(c.documents for c in counts)
        self.ids_bytes = sum(c.tokens * c.id_bytes for c in counts)
        self.text_bytes = sum(c.text_bytes for c in counts)
        self.empty_sentences = sum(c.empty_sentences for c in counts)
        self.empty_documents = sum(c.empty_documents for c in counts)
        self.unknown: Counter[str] = Counter()
        for c in counts:
            self.unknown.update(c.unknown)

    def documents(self) -> Iterator[tuple[Array, Array]]:
        """Yield, shard by shard, where documents start and end, and the hashes of their text.

        The first is int64, (documents + 1,): numbers of sentences in the store.
        """
        for shard in self._shards:
            yield shard.documents.astype(np.int64) + shard.first_sentence, shard.hashes

    def sentence_length_blocks(self) -> Iterator[Array]:
        """Yield the tokens of each sentence in order, in blocks that fit in memory."""
        for shard in self._shards:
            for start in range(0, len(shard.sentences) - 1, _BLOCK):
                yield np.diff(shard.sentences[start : start + _BLOCK + 1].astype(np.int64))

    def count_words(self) -> int:
        """Count the tokens that begin a word."""
        # The last byte is padded with zeros.
        return sum(
            int(np.unpackbits(shard.words[start : start + _BLOCK]).sum(dtype=np.int64))
            for shard in self._shards
            for start in range(0, len(shard.words), _BLOCK)
        )

    def token_offsets(self, sentences: Array) -> Array:
        """Return where sentences start in the store.

        Args:
            sentences: int64, (n,): numbers of sentences; the number after the last is allowed.
        """
        offsets = np.empty(len(sentences), np.int64)
        last = np.minimum(sentences, self.num_sentences - 1)
        for number, here in _groups(np.searchsorted(self._sentence_ends, last, side="right")):
            shard = self._shards[number]
            inside = shard.sentences[sentences[here] - shard.first_sentence]
            offsets[here] = inside.astype(np.int64) + shard.first_token
        return offsets

    def sentences_at(self, tokens: Array, *, side: Literal["left", "right"]) -> Array:
        """Return how many sentences start before tokens ("left"), or not after them ("right").

        Args:
            tokens: int64, (n,): places in the store, which may lie behind its end.
            side: as of `numpy.searchsorted`.
        """
        found = np.full(len(tokens), self.num_sentences + 1, np.int64)
        numbers = np.searchsorted(self._token_ends, tokens, side=side)
        for number, here in _groups(numbers):
            if number == len(self._shards):
                continue
            shard = self._shards[number]
            # Of the same type as what is searched, which numpy would copy as a whole otherwise.
            inside = (tokens[here] - shard.first_token).astype(np.uint64)
            before = np.searchsorted(shard.sentences, inside, side=side)
            found[here] = before + shard.first_sentence
        return found

    def gather(self, starts: Array, lengths: Array) -> tuple[Array, Array]:
        """Read runs of tokens, one after another.

        Args:
            starts: first token of each run in the store, int64, (runs,).
            lengths: tokens of each run, int64, (runs,).

        Returns:
            Token ids, int64, (sum of lengths,), and whether each begins a word, bool.
        """
        ends = np.cumsum(lengths)
        places = np.arange(ends[-1] if len(ends) else 0) + np.repeat(
            starts - ends + lengths, lengths
        )
        if len(self._shards) == 1:
            return _read(self._shards[0], places)
        ids, words = np.empty(len(places), np.int64), np.empty(len(places), bool)
        for number, here in _groups(np.searchsorted(self._token_ends, places, side="right")):
            shard = self._shards[number]
            ids[here], words[here] = _read(shard, places[here] - shard.first_token)
        return ids, words

    def id_blocks(self) -> Iterator[Array]:
        """Yield all token ids in order, in blocks that fit in memory."""
        for shard in self._shards:
            for start in range(0, len(shard.ids), _BLOCK):
                yield shard.ids[start : start + _BLOCK]


def _read(shard: _Shard, places: Array) -> tuple[Array, Array]:
    bits = shard.words[places >> 3] >> (7 - (places & 7)).astype(np.uint8)
    return shard.ids[places].astype(np.int64), (bits & 1).astype(bool)


def _groups(numbers: Array) -> Iterator[tuple[int, Array | slice]]:
    """Yield each value with the places that have it."""
    if len(numbers) == 0:
        return
    if (numbers == numbers[0]).all():
        yield int(numbers[0]), slice(None)
        return
    order = np.argsort(numbers, kind="stable")
    borders = np.flatnonzero(np.diff(numbers[order])) + 1
    for places in np.split(order, borders):
        yield int(numbers[places[0]]), places


def _map(stem: Path, name: str, dtype: str, count: int) -> Array:
    path = Path(f"{stem}.{name}.bin")
    expected = count * np.dtype(dtype).itemsize
    found = path.stat().st_size if path.is_file() else 0
    if found != expected:
        raise DataFormatError(
            f"{path}: expected {expected:,} bytes, found {found:,}", "rerun make-data"
        )
    if count == 0:  # an empty file cannot be mapped
        return np.zeros(0, dtype)
    # A view without numpy's class for maps, whose every look-up costs a microsecond.
    return np.memmap(path, dtype=dtype, mode="r", shape=(count,)).view(np.ndarray)
