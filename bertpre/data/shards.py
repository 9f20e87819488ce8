"""Shards of whole documents on disk, written part by part, and told apart when they are whole.

A shard is five flat files: token ids, first-token-of-a-word bits, offsets of sentences into tokens
and of documents into sentences, and a hash of each document's text. Its ``.json`` comes last.
"""

import contextlib
import json
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bertpre.artefacts import write_json
from bertpre.data.random64 import Array

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


class ShardCounts(NamedTuple):
    """What is in a whole shard, as its ``.json`` says; see `TokenizedDocuments`."""

    tokens: int
    sentences: int
    documents: int
    id_bytes: int  # of one token id
    text_bytes: int
    empty_sentences: int
    empty_documents: int
    unknown: dict[str, int]


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
        bits = np.concatenate([self._bits, part.starts])
        whole = len(bits) // 8 * 8
        self._bits = bits[whole:]
        self._write("ids", part.ids)
        self._write("words", np.packbits(bits[:whole]))
        self._write_offsets("sentences", self._counts["tokens"] + np.cumsum(part.sentence_lengths))
        documents = self._counts["sentences"] + np.cumsum(part.document_lengths)
        self._write_offsets("documents", documents)
        self._write("hashes", part.hashes)
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
        self._open = {
            name: self._files.enter_context(Path(f"{stem}.{name}.bin").open("wb"))  # noqa: SIM115
            for name in ("ids", "words", "sentences", "documents", "hashes")
        }
        for name in ("sentences", "documents"):
            self._write_offsets(name, np.zeros(1))

    def _write(self, name: str, values: Array) -> None:
        self._open[name].write(values.tobytes())

    def _write_offsets(self, name: str, values: Array) -> None:
        self._write(name, values.astype(np.uint64))

    def _finish(self) -> None:
        if self._number < 0:
            return
        self._write("words", np.packbits(self._bits))
        self._files.close()
        unknown = dict(most_frequent(self._unknown, _MOST_UNKNOWN))
        counts = ShardCounts(**self._counts, id_bytes=self._id_bytes, unknown=unknown)
        write_json(shard_counts(self._folder, self._number), counts._asdict())
        self._number = -1


def most_frequent(counts: Counter[str], most: int) -> list[tuple[str, int]]:
    """Return what was counted most often, in alphabetical order where the counts are equal."""
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:most]


def shard_counts(folder: Path, number: int) -> Path:
    """Return the file that says that a shard is whole, and holds its counts."""
    return folder / f"{number:05d}.json"


def finished_shards(folder: Path) -> list[ShardCounts]:
    """Return the counts of each whole shard, in order, up to the first that is missing."""
    counts: list[ShardCounts] = []
    while (path := shard_counts(folder, len(counts))).is_file():
        counts.append(ShardCounts(**json.loads(path.read_text())))
    return counts
