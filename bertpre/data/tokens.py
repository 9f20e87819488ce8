"""The token store: the corpus tokenised once, in shards of whole documents, memory-mapped.

A shard is five flat files: token ids, first-token-of-a-word bits, offsets of sentences into tokens
and of documents into sentences, and a hash of each document's text.
"""

import contextlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from bertpre.artefacts import write_json
from bertpre.errors import DataFormatError

Array = npt.NDArray[Any]

_MOST_UNKNOWN = 1000  # kept of each shard
_BLOCK = 1 << 20  # of what is read in order, so that memory is bounded


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
    """Writes tokenised documents as numbered shards, part by part, so memory does not grow.

    A shard's ``.json`` is written last, so what an interrupted run finished can be told from what
    it did not; `finished_shards` reads it back.

    Args:
        folder: where the shards go.
    """

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
        """Append documents to a shard; the one before it is finished then."""
        if shard != self._number:
            self._finish()
            self._start(shard)
        counts = self._counts
        bits = np.concatenate([self._bits, part.starts])
        whole = len(bits) // 8 * 8
        self._bits = bits[whole:]
        self._write("ids", part.ids)
        self._write("words", np.packbits(bits[:whole]))
        self._write("sentences", counts["tokens"] + np.cumsum(part.sentence_lengths), np.uint64)
        self._write("documents", counts["sentences"] + np.cumsum(part.document_lengths), np.uint64)
        self._write("hashes", part.hashes, np.uint64)
        counts["tokens"] += len(part.ids)
        counts["sentences"] += len(part.sentence_lengths)
        counts["documents"] += len(part.document_lengths)
        counts["text_bytes"] += part.text_bytes
        counts["empty_sentences"] += part.empty_sentences
        counts["empty_documents"] += part.empty_documents
        counts["id_bytes"] = part.ids.dtype.itemsize
        self._unknown.update(part.unknown)

    def _start(self, number: int) -> None:
        self._number = number
        self._bits = np.zeros(0, bool)
        self._counts: Counter[str] = Counter()
        self._unknown: Counter[str] = Counter()
        stem = self._folder / f"{number:05d}"
        self._open = {
            name: self._files.enter_context(Path(f"{stem}.{name}.bin").open("wb"))  # noqa: SIM115
            for name in ("ids", "words", "sentences", "documents", "hashes")
        }
        for name in ("sentences", "documents"):
            self._write(name, np.zeros(1), np.uint64)

    def _write(self, name: str, values: Array, dtype: type[np.uint64] | None = None) -> None:
        self._open[name].write((values if dtype is None else values.astype(dtype)).tobytes())

    def _finish(self) -> None:
        if self._number < 0:
            return
        self._write("words", np.packbits(self._bits))
        self._files.close()
        ranked = sorted(self._unknown.items(), key=lambda item: (-item[1], item[0]))
        names = ("tokens", "sentences", "documents", "text_bytes", "id_bytes")
        more = ("empty_sentences", "empty_documents")
        counts = {name: self._counts[name] for name in (*names, *more)}
        write_json(
            shard_counts(self._folder, self._number),
            {**counts, "unknown": dict(ranked[:_MOST_UNKNOWN])},
        )
        self._number = -1


def shard_counts(folder: Path, number: int) -> Path:
    """Return the file that says that a shard is whole, and holds its counts."""
    return folder / f"{number:05d}.json"


def finished_shards(folder: Path) -> list[dict[str, Any]]:
    """Return the counts of each whole shard, in order, up to the first that is missing."""
    counts: list[dict[str, Any]] = []
    while (path := shard_counts(folder, len(counts))).is_file():
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
        self.ids_bytes = sum(c["tokens"] * c["id_bytes"] for c in counts)
        self.text_bytes = _ends(counts, "text_bytes")[-1]
        self.empty_sentences = _ends(counts, "empty_sentences")[-1]
        self.empty_documents = _ends(counts, "empty_documents")[-1]
        self.unknown: Counter[str] = Counter()
        for c in counts:
            self.unknown.update(c["unknown"])

    def documents(self) -> Iterator[tuple[Array, Array]]:
        """Yield, shard by shard, where documents start and end, and the hashes of their text.

        The first is int64, (documents + 1,): numbers of sentences in the store.
        """
        for shard, end in zip(self._shards, self._sentence_ends, strict=True):
            first = end - shard.counts["sentences"]
            yield shard.documents.astype(np.int64) + first, shard.hashes

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
            first = self._sentence_ends[number] - shard.counts["sentences"]
            tokens = self._token_ends[number] - shard.counts["tokens"]
            offsets[here] = shard.sentences[sentences[here] - first].astype(np.int64) + tokens
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
            first = self._sentence_ends[number] - shard.counts["sentences"]
            start = self._token_ends[number] - shard.counts["tokens"]
            # Of the same type as what is searched, which numpy would copy as a whole otherwise.
            inside = (tokens[here] - start).astype(np.uint64)
            found[here] = np.searchsorted(shard.sentences, inside, side=side) + first
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
            base = self._token_ends[number] - shard.counts["tokens"]
            ids[here], words[here] = _read(shard, places[here] - base)
        return ids, words

    def id_blocks(self) -> Iterator[Array]:
        """Yield all token ids in order, in blocks that fit in memory."""
        for shard in self._shards:
            for start in range(0, len(shard.ids), _BLOCK):
                yield shard.ids[start : start + _BLOCK]


def id_dtype(vocab_size: int) -> type[np.uint16] | type[np.uint32]:
    """Return the narrowest type that holds every id of a vocabulary."""
    return np.uint16 if vocab_size <= 2**16 else np.uint32


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
    if count == 0:  # an empty file cannot be mapped
        return np.zeros(0, dtype)
    # A view without numpy's class for maps, whose every look-up costs a microsecond.
    return np.memmap(path, dtype=dtype, mode="r", shape=(count,)).view(np.ndarray)
