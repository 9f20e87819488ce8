"""The token store: the corpus tokenised once, in shards of whole documents, memory-mapped.

A shard is five flat files: token ids, first-token-of-a-word bits, offsets of sentences into tokens
and of documents into sentences, and a hash of each document's text.
"""

import bisect
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bertpre.artefacts import write_json
from bertpre.errors import DataFormatError

Array = npt.NDArray[Any]

SHARD_TEXT_BYTES = 64 * 2**20
_MOST_UNKNOWN = 1000  # kept of each shard


class TokenizedDocuments(NamedTuple):
    """Consecutive documents as arrays; the unit that passes between processes.

    Attributes:
        ids: token ids of all sentences, uint16 or uint32.
        starts: whether a token begins a word, bool, as long as ``ids``.
        sentence_lengths: tokens of each sentence, int64, each at least 1.
        document_lengths: sentences of each document, int64, each at least 1.
        hashes: a hash of each document's text, uint64.
        text_bytes: size of the text in UTF-8.
        empty_sentences: sentences that had no token left, which are not in the arrays.
        empty_documents: documents that had no sentence left.
        unknown: characters (of whole-token vocabularies, tokens) that have no entry, counted.
    """

    ids: Array
    starts: Array
    sentence_lengths: Array
    document_lengths: Array
    hashes: Array
    text_bytes: int
    empty_sentences: int
    empty_documents: int
    unknown: Counter[str]


class ShardWriter:
    """Collects tokenised documents and writes them as numbered shards.

    A shard's ``.json`` is written last, so what an interrupted run finished can be told from what
    it did not; `finished_shards` reads it back.

    Args:
        folder: where the shards go.
        first: number of the first shard to write.
    """

    def __init__(self, folder: Path, *, first: int = 0) -> None:
        self._folder = folder
        self._number = first
        self._parts: list[TokenizedDocuments] = []
        self._text_bytes = 0

    def add(self, part: TokenizedDocuments) -> None:
        """Append documents; writes a shard when enough text has come together."""
        self._parts.append(part)
        self._text_bytes += part.text_bytes
        if self._text_bytes >= SHARD_TEXT_BYTES:
            self.close()

    def close(self) -> None:
        """Write the last, smaller shard."""
        if not self._parts:
            return
        ids, starts, sentences, documents, hashes = (
            np.concatenate([part[i] for part in self._parts]) for i in range(5)
        )
        stem = self._folder / f"{self._number:05d}"
        files = {
            "ids": ids,
            "words": np.packbits(starts.astype(bool)),
            "sentences": _offsets(sentences),
            "documents": _offsets(documents),
            "hashes": hashes.astype(np.uint64),
        }
        for name, values in files.items():
            values.tofile(f"{stem}.{name}.bin")
        counts = {
            "tokens": len(ids),
            "sentences": len(sentences),
            "documents": len(documents),
            "text_bytes": self._text_bytes,
            "empty_sentences": sum(part.empty_sentences for part in self._parts),
            "empty_documents": sum(part.empty_documents for part in self._parts),
            "id_bytes": ids.dtype.itemsize,
            "unknown": dict(most_frequent(self._parts, _MOST_UNKNOWN)),
        }
        write_json(Path(f"{stem}.json"), counts)
        self._number += 1
        self._parts, self._text_bytes = [], 0


def most_frequent(parts: Iterable[TokenizedDocuments], count: int) -> list[tuple[str, int]]:
    """Return the most frequent unknown characters of all parts, ties by code point."""
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part.unknown)
    return sorted(total.items(), key=lambda item: (-item[1], item[0]))[:count]


def finished_shards(folder: Path) -> list[dict[str, Any]]:
    """Return the counts of each whole shard, in order, up to the first that is missing."""
    counts: list[dict[str, Any]] = []
    while (path := folder / f"{len(counts):05d}.json").is_file():
        counts.append(json.loads(path.read_text()))
    return counts


class _Shard:
    def __init__(self, folder: Path, number: int, counts: dict[str, Any]) -> None:
        stem = folder / f"{number:05d}"
        self.counts = counts
        self.ids = _map(stem, "ids", f"<u{counts['id_bytes']}", counts["tokens"])
        self.words = _map(stem, "words", "u1", (counts["tokens"] + 7) // 8)
        self.sentences = _map(stem, "sentences", "<u8", counts["sentences"] + 1)
        self.documents = _map(stem, "documents", "<u8", counts["documents"] + 1)
        self.hashes = _map(stem, "hashes", "<u8", counts["documents"])


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
        self._shards = [_Shard(folder, number, c) for number, c in enumerate(counts)]
        self._token_ends = _ends(counts, "tokens")
        self._sentence_ends = _ends(counts, "sentences")
        self.num_tokens = self._token_ends[-1]
        self.num_sentences = self._sentence_ends[-1]
        self.num_documents = _ends(counts, "documents")[-1]
        self.empty_sentences = _ends(counts, "empty_sentences")[-1]
        self.empty_documents = _ends(counts, "empty_documents")[-1]
        self.unknown: Counter[str] = Counter()
        for c in counts:
            self.unknown.update(c["unknown"])

    @cached_property
    def document_hashes(self) -> npt.NDArray[np.uint64]:
        """The hash of each document's text, uint64, (documents,)."""
        return np.concatenate([shard.hashes for shard in self._shards])

    @cached_property
    def document_starts(self) -> npt.NDArray[np.int64]:
        """The first sentence of each document, and the number of sentences, (documents + 1,)."""
        parts = [
            shard.documents[:-1].astype(np.int64) + end - shard.counts["sentences"]
            for shard, end in zip(self._shards, self._sentence_ends, strict=True)
        ]
        return np.concatenate([*parts, np.array([self.num_sentences])])

    @cached_property
    def sentence_lengths(self) -> npt.NDArray[np.int64]:
        """Tokens of each sentence, (sentences,)."""
        return np.concatenate([np.diff(shard.sentences.astype(np.int64)) for shard in self._shards])

    def count_words(self) -> int:
        """Count the tokens that begin a word."""
        # The last byte is padded with zeros.
        return sum(
            int(np.unpackbits(block).sum(dtype=np.int64))
            for shard in self._shards
            for block in np.array_split(shard.words, len(shard.words) // (1 << 24) + 1)
        )

    def sentence_offsets(self, first: int, last: int) -> list[int]:
        """Return where sentences of one document start in the store, and where the last ends.

        Args:
            first: number of the first sentence.
            last: number after the last one; both in the same document.
        """
        number = bisect.bisect_right(self._sentence_ends, first)
        shard = self._shards[number]
        base = self._sentence_ends[number] - shard.counts["sentences"]
        tokens = self._token_ends[number] - shard.counts["tokens"]
        offsets: list[int] = shard.sentences[first - base : last - base + 1].tolist()
        return [offset + tokens for offset in offsets]

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
        numbers = np.searchsorted(self._token_ends, places, side="right")
        for number in np.unique(numbers):
            shard, here = self._shards[number], numbers == number
            base = self._token_ends[number] - shard.counts["tokens"]
            ids[here], words[here] = _read(shard, places[here] - base)
        return ids, words

    def id_blocks(self) -> Iterator[Array]:
        """Yield all token ids in order, in blocks that fit in memory."""
        for shard in self._shards:
            for start in range(0, len(shard.ids), 1 << 24):
                yield shard.ids[start : start + (1 << 24)]


def id_dtype(vocab_size: int) -> type[np.uint16] | type[np.uint32]:
    """Return the narrowest type that holds every id of a vocabulary."""
    return np.uint16 if vocab_size <= 2**16 else np.uint32


def _read(shard: _Shard, places: Array) -> tuple[Array, Array]:
    bits = shard.words[places >> 3] >> (7 - (places & 7)).astype(np.uint8)
    return shard.ids[places].astype(np.int64), (bits & 1).astype(bool)


def _offsets(lengths: Array) -> npt.NDArray[np.uint64]:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.uint64)


def _ends(counts: Sequence[dict[str, Any]], name: str) -> list[int]:
    ends = np.cumsum([c[name] for c in counts]).tolist()
    return [int(end) for end in ends]


def _map(stem: Path, name: str, dtype: str, count: int) -> Array:
    path = Path(f"{stem}.{name}.bin")
    expected = count * np.dtype(dtype).itemsize
    found = path.stat().st_size if path.is_file() else 0
    if found != expected:
        raise DataFormatError(
            f"{path}: expected {expected:,} bytes, found {found:,}", "rerun make-data"
        )
    return np.memmap(path, dtype=dtype, mode="r", shape=(count,))
