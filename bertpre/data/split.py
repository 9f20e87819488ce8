"""The held-out split: which documents, or tails of documents, are kept for evaluation."""

import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Literal, Protocol

import numpy as np

from bertpre.data.random64 import U64, Array, below, derive, hash64
from bertpre.data.tokens import TokenStore

_MOST_DRAWS = 10
# Drawn at once; the arrays for this many take some 20 MB.
_BLOCK_DOCUMENTS = 1 << 16
_BLOCK_SENTENCES = 1 << 18


class Sentences(Protocol):
    """The methods of the token store that drawing examples needs."""

    def token_offsets(self, sentences: Array) -> Array:
        """Return where sentences start in the store."""

    def sentences_at(self, tokens: Array, *, side: Literal["left", "right"]) -> Array:
        """Return how many sentences start before tokens ("left"), or not after them ("right")."""


class SplitDocuments:
    """The documents of one split (training or held out).

    Args:
        store: the token store.
        first, end: int64, (documents,): each has the sentences first to end - 1.
        hashes: uint64, (documents,): equal for documents of equal text.
    """

    def __init__(self, store: Sentences, *, first: Array, end: Array, hashes: Array) -> None:
        self.store = store
        self.first, self.end, self.hashes = first, end, hashes

    def __len__(self) -> int:
        return len(self.first)

    @cached_property
    def num_distinct(self) -> int:
        """Number of different documents, counted up to the two that random pairs need."""
        if len(self) == 0:
            return 0
        blocks = range(0, len(self), _BLOCK_DOCUMENTS)
        differs = any(
            (self.hashes[start : start + _BLOCK_DOCUMENTS] != self.hashes[0]).any()
            for start in blocks
        )
        return 1 + differs

    def blocks(self) -> Iterator[Array]:
        """Yield the numbers of all documents in order, in blocks that fit in memory."""
        start = 0
        while start < len(self):
            here = slice(start, start + _BLOCK_DOCUMENTS)
            sentences = np.cumsum(self.end[here] - self.first[here])
            count = max(1, int(np.searchsorted(sentences, _BLOCK_SENTENCES, side="right")))
            yield np.arange(start, start + count)
            start += count

    def token_spans(self, documents: Array) -> tuple[Array, Array]:
        """Return where documents start in the store, and where they end, int64."""
        store = self.store
        return (
            store.token_offsets(self.first[documents]),
            store.token_offsets(self.end[documents]),
        )

    def draw_others(self, documents: Array, keys: U64) -> Array:
        """Draw for each document another one with a different text.

        After ten draws the reference uses the same document and still labels the pair random.
        Here the next document that differs is used, so that no label is wrong.

        Args:
            documents: int64, (n,): their numbers.
            keys: uint64, (n,): what the draws derive from.
        """
        drawn = np.zeros(len(documents), np.int64)
        todo = np.arange(len(documents))
        for draw in range(_MOST_DRAWS):
            drawn[todo] = below(hash64(draw, keys[todo]), len(self))
            todo = todo[self.hashes[drawn[todo]] == self.hashes[documents[todo]]]
            if not todo.size:
                return drawn
        ends = self._run_ends
        place = np.searchsorted(ends, drawn[todo]) % len(ends)
        drawn[todo] = (ends[place] + 1) % len(self)
        return drawn

    @cached_property
    def _run_ends(self) -> Array:
        """The last document of each run of equal ones; the first follows the last."""
        return np.flatnonzero(self.hashes != np.roll(self.hashes, -1))


def _keep_on_disk(blocks: Iterable[Array], dtype: type[np.int64] | type[np.uint64]) -> Array:
    """Concatenate arrays in a temporary file and map it, to save memory."""
    with tempfile.TemporaryFile() as file:
        for block in blocks:
            file.write(block.astype(dtype).tobytes())
        if file.tell() == 0:
            return np.zeros(0, dtype)
        file.flush()
        return np.memmap(file, dtype=dtype, mode="r").view(np.ndarray)


FEWEST_DOCUMENTS = 20  # with fewer, whole documents are too coarse to hold out a share

# Takes first sentences, ends and hashes of documents; returns first sentences and ends of their
# chosen part, and which documents are chosen.
_Choice = Callable[[Array, Array, U64], tuple[Array, Array, Array]]


def split_documents(
    store: TokenStore, *, fraction: float, seed: int
) -> tuple[SplitDocuments, SplitDocuments]:
    """Divide the corpus into training and held-out documents.

    A document is held out by a hash of the seed and its text, so that equal documents stay on one
    side and a corpus that grows keeps its split. With few documents the last sentences of each are
    held out instead.

    Args:
        store: the tokenised corpus.
        fraction: share to hold out; 0 holds out nothing.
        seed: the experiment's seed.

    Returns:
        Training and held-out documents; the latter may be empty.
    """
    key = derive(seed, "held-out")
    threshold = np.uint64(0) if fraction == 0 else _hash_threshold(store, fraction, key)
    if threshold is not None:
        return (
            _choose(store, lambda first, end, h: (first, end, hash64(key, h) >= threshold)),
            _choose(store, lambda first, end, h: (first, end, hash64(key, h) < threshold)),
        )

    def cut(first: Array, end: Array) -> Array:
        sizes = end - first
        # Two sentences stay, or the document would have no next sentence to teach.
        wanted = np.maximum(1, np.rint(fraction * sizes)).astype(np.int64)
        return end - np.clip(wanted, 0, np.maximum(sizes - 2, 0))

    return (
        _choose(store, lambda first, end, _: (first, cut(first, end), first >= 0)),
        _choose(store, lambda first, end, _: (cut(first, end), end, cut(first, end) < end)),
    )


def _hash_threshold(store: TokenStore, fraction: float, key: int) -> np.uint64 | None:
    """Return the hash below which documents are held out; None if there are too few of them."""
    smallest = np.zeros(0, np.uint64)
    for _, hashes in store.documents():
        smallest = np.unique(np.concatenate([smallest, hash64(key, hashes)]))[:FEWEST_DOCUMENTS]
    if len(smallest) < FEWEST_DOCUMENTS:
        return None
    # At least two distinct documents, as a random next sentence needs another document.
    return np.uint64(max(int(fraction * 2**64), int(smallest[1]) + 1))


def _choose(store: TokenStore, choice: _Choice) -> SplitDocuments:
    def column(number: int) -> Iterator[Array]:
        for bounds, hashes in store.documents():
            first, end, is_chosen = choice(bounds[:-1], bounds[1:], hashes)
            yield (first, end, hashes)[number][is_chosen]

    return SplitDocuments(
        store,
        first=_keep_on_disk(column(0), np.int64),
        end=_keep_on_disk(column(1), np.int64),
        hashes=_keep_on_disk(column(2), np.uint64),
    )
