"""The token store: the corpus tokenised once, in shards of whole documents, memory-mapped.

A shard is five flat files: token ids, first-token-of-a-word bits, offsets of sentences into tokens
and of documents into sentences, and a hash of each document's text. Its ``.json`` is written last,
so a shard without one is unfinished.
"""

import contextlib
import itertools
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple

import numpy as np

from bertpre.artefacts import write_json
from bertpre.data.random64 import Array
from bertpre.errors import DataFormatError

_BLOCK = 1 << 20  # elements that are read at once, so that memory is bounded
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
        unknown: counts of characters (tokens, for whole-token vocabularies) without an entry.
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


class ShardCounts(NamedTuple):
    """Counts of a finished shard, from its ``.json``; see `TokenizedDocuments`."""

    tokens: int
    sentences: int
    documents: int
    id_bytes: int  # of one token id
    text_bytes: int
    empty_sentences: int
    empty_documents: int
    unknown: dict[str, int]


class ShardWriter:
    """Write tokenised documents to numbered shards in a folder, part by part to save memory."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._number = -1
        self._files = contextlib.ExitStack()
        self._bits = np.zeros(0, bool)  # of tokens that do not fill a byte yet

    def __enter__(self) -> "ShardWriter":
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is None:
            self._finish()
        self._files.close()

    def add(self, part: TokenizedDocuments, *, shard: int = 0) -> None:
        """Append documents to a shard; a new number finishes the one before."""
        if shard != self._number:
            self._finish()
            self._start(shard)
        bits = np.concatenate([self._bits, part.starts])
        whole = len(bits) // 8 * 8
        self._bits = bits[whole:]
        self._open["ids"].write(part.ids.tobytes())
        self._open["words"].write(np.packbits(bits[:whole]).tobytes())
        sentences = self._counts["tokens"] + np.cumsum(part.sentence_lengths)
        self._open["sentences"].write(sentences.astype(np.uint64).tobytes())
        documents = self._counts["sentences"] + np.cumsum(part.document_lengths)
        self._open["documents"].write(documents.astype(np.uint64).tobytes())
        self._open["hashes"].write(part.hashes.tobytes())
        self._id_bytes = part.ids.dtype.itemsize
        self._unknown.update(part.unknown)
        self._counts.update(
            tokens=len(part.ids),
            sentences=len(part.sentence_lengths),
            documents=len(part.document_lengths),
            text_bytes=part.text_bytes,
            empty_sentences=part.empty_sentences,
            empty_documents=part.empty_documents,
        )

    def _start(self, number: int) -> None:
        self._number = number
        self._bits = np.zeros(0, bool)
        self._counts: Counter[str] = Counter()
        self._unknown: Counter[str] = Counter()
        stem = self._folder / f"{number:05d}"
        self._open: dict[str, BinaryIO] = {
            name: self._files.enter_context(Path(f"{stem}.{name}.bin").open("wb"))  # noqa: SIM115
            for name in ("ids", "words", "sentences", "documents", "hashes")
        }
        for name in ("sentences", "documents"):
            self._open[name].write(np.zeros(1, np.uint64).tobytes())

    def _finish(self) -> None:
        if self._number < 0:
            return
        self._open["words"].write(np.packbits(self._bits).tobytes())
        self._files.close()
        unknown = dict(most_frequent(self._unknown, _MOST_UNKNOWN))
        counts = ShardCounts(**self._counts, id_bytes=self._id_bytes, unknown=unknown)
        write_json(shard_counts(self._folder, self._number), counts._asdict())
        self._number = -1


def most_frequent(counts: Counter[str], most: int) -> list[tuple[str, int]]:
    """Return the most frequent items, in alphabetical order where counts are equal."""
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:most]


def shard_counts(folder: Path, number: int) -> Path:
    """Return the path of a shard's counts, which exist once the shard is finished."""
    return folder / f"{number:05d}.json"


def finished_shards(folder: Path) -> list[ShardCounts]:
    """Return the counts of each finished shard, in order, up to the first missing one."""
    paths = (shard_counts(folder, number) for number in itertools.count())
    found = itertools.takewhile(Path.is_file, paths)
    return [ShardCounts(**json.loads(path.read_text())) for path in found]


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
    """All shards as one sequence of tokens, divided into sentences and documents.

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
        self._token_ends = np.cumsum([c.tokens for c in counts])
        self._sentence_ends = np.cumsum([c.sentences for c in counts])
        ends = zip(counts, self._token_ends.tolist(), self._sentence_ends.tolist(), strict=True)
        self._shards = [
            _Shard(folder / f"{number:05d}", c, tokens - c.tokens, sentences - c.sentences)
            for number, (c, tokens, sentences) in enumerate(ends)
        ]
        self.num_tokens = int(self._token_ends[-1])
        self.num_sentences = int(self._sentence_ends[-1])
        self.num_documents = sum(c.documents for c in counts)
        self.ids_bytes = sum(c.tokens * c.id_bytes for c in counts)
        self.text_bytes = sum(c.text_bytes for c in counts)
        self.empty_sentences = sum(c.empty_sentences for c in counts)
        self.empty_documents = sum(c.empty_documents for c in counts)
        self.unknown = sum((Counter(c.unknown) for c in counts), Counter[str]())

    def documents(self) -> Iterator[tuple[Array, Array]]:
        """Yield for each shard the first sentence of each document and the end, and the hashes."""
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
            tokens: int64, (n,): places in the store, which may be past its end.
            side: as of `numpy.searchsorted`.
        """
        found = np.full(len(tokens), self.num_sentences + 1, np.int64)
        for number, here in _groups(np.searchsorted(self._token_ends, tokens, side=side)):
            if number == len(self._shards):
                continue
            shard = self._shards[number]
            # The same type as the searched array, or numpy would copy all of it.
            inside = (tokens[here] - shard.first_token).astype(np.uint64)
            found[here] = np.searchsorted(shard.sentences, inside, side) + shard.first_sentence
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
        shifts = np.repeat(starts - ends + lengths, lengths)
        places = np.arange(len(shifts)) + shifts
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
    # A plain view, as each look-up in a memmap costs a microsecond more.
    return np.memmap(path, dtype=dtype, mode="r", shape=(count,)).view(np.ndarray)
