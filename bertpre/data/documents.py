"""The documents of one split: which sentences of the store each has, and a hash of its text."""

import tempfile
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from bertpre.data.random64 import U64, below, hash64

Array = npt.NDArray[Any]

_MOST_DRAWS = 10
# As much as is drawn at once: arrays over it take some 20 MB.
_BLOCK_DOCUMENTS = 1 << 16
_BLOCK_SENTENCES = 1 << 18


class Sentences(Protocol):
    """What drawing examples needs of the token store."""

    def token_offsets(self, sentences: Array) -> Array:
        """Return where sentences start in the store."""

    def sentences_at(self, tokens: Array, *, side: Literal["left", "right"]) -> Array:
        """Return how many sentences start before tokens ("left"), or not after them ("right")."""


class SplitDocuments:
    """The documents of one split (training or held out).

    Args:
        store: the token store.
        first, last: int64, (documents,): each has the sentences first to last - 1.
        hashes: uint64, (documents,): equal for documents of equal text.
    """

    def __init__(self, store: Sentences, *, first: Array, last: Array, hashes: Array) -> None:
        self.store = store
        self.first, self.last, self.hashes = first, last, hashes

    def __len__(self) -> int:
        return len(self.first)

    @cached_property
    def num_distinct(self) -> int:
        """Documents of different text; counted up to two, which is what random pairs need."""
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
            sentences = np.cumsum(self.last[here] - self.first[here])
            count = max(1, int(np.searchsorted(sentences, _BLOCK_SENTENCES, side="right")))
            yield np.arange(start, start + count)
            start += count

    def token_spans(self, documents: Array) -> tuple[Array, Array]:
        """Return where documents start in the store, and where they end, int64."""
        store = self.store
        return (
            store.token_offsets(self.first[documents]),
            store.token_offsets(self.last[documents]),
        )

    def draw_others(self, documents: Array, keys: U64) -> Array:
        """Draw for each document one of another text.

        The reference draws ten times and then takes the same document, calling it random. We go
        on to the next one that differs, so that no pair is mislabelled.

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
        """The last document of each run of equal ones, the whole taken as a circle."""
        return np.flatnonzero(self.hashes != np.roll(self.hashes, -1))


def keep_on_disk(blocks: Iterable[Array], dtype: type[np.int64] | type[np.uint64]) -> Array:
    """Put arrays together in a nameless file and map it, so that they take no private memory."""
    with tempfile.TemporaryFile() as file:
        for block in blocks:
            file.write(block.astype(dtype).tobytes())
        if file.tell() == 0:
            return np.zeros(0, dtype)
        file.flush()
        return np.memmap(file, dtype=dtype, mode="r").view(np.ndarray)
