"""Cache the pieces of chunks: number the chunks, and store the pieces in arrays by number.

Since words repeat, looking up numbers and pieces for all words at once is several times faster than
encoding the text.
"""

from array import array
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bertpre.tokenizer.chunks import FIRST_HAN, LAST_HAN, LONGEST_HASHED, Cutter, HashedChunks

Array = npt.NDArray[Any]

# The cache is emptied before it exceeds about 50 MB; a long chunk counts as several.
_MOST_CHUNKS = 200_000
_CHARACTERS_PER_CHUNK = 32
NOT_FOUND = -1
_SLOT_BITS = 20  # about five slots per chunk of a full cache
_EMPTY = np.uint64(0)


class Pieces(NamedTuple):
    """The concatenated ids of several items, and the number of ids of each."""

    ids: Array  # int32, (sum of lengths,)
    lengths: Array  # int32, (items,)


class NumberedChunks(NamedTuple):
    """The chunks of several texts by number."""

    numbers: Array  # int32, (chunks,)
    counts: Array  # int64, (texts,)
    is_han: Array | None  # bool, (chunks,): single Han characters; None if there are none


class _ChunkNumbers(dict[str, int]):
    """Assigns consecutive numbers to chunks, and lists the new ones."""

    def __init__(self) -> None:
        super().__init__()
        self.new: list[str] = []

    def __missing__(self, chunk: str) -> int:
        number = self[chunk] = len(self)
        self.new.append(chunk)
        return number

    def of(self, chunks: Sequence[str]) -> Array:
        return np.fromiter(map(self.__getitem__, chunks), np.int32, len(chunks))

    def take_new(self) -> list[str]:
        new, self.new = self.new, []
        return new


class WordTable:
    """A hash table from hashes of words to numbers, with open addressing."""

    def __init__(self) -> None:
        self._hashes = np.zeros(1 << _SLOT_BITS, np.uint64)
        self._numbers = np.zeros(1 << _SLOT_BITS, np.int32)

    def find(self, hashes: Array) -> Array:
        """Return the number of each hash, int32; `NOT_FOUND` if unknown."""
        slots = _slots(hashes)
        there = self._hashes[slots]
        numbers = np.where(there == hashes, self._numbers[slots], np.int32(NOT_FOUND))
        todo = np.flatnonzero((there != hashes) & (there != _EMPTY))
        slots = slots[todo]
        while todo.size:
            slots = _next(slots)
            there = self._hashes[slots]
            is_it = there == hashes[todo]
            numbers[todo[is_it]] = self._numbers[slots[is_it]]
            going = ~is_it & (there != _EMPTY)
            todo, slots = todo[going], slots[going]
        return numbers

    def add(self, hashes: Array, numbers: Array) -> None:
        """Add distinct hashes that are not in the table."""
        slots = _slots(hashes)
        while hashes.size:
            free = np.flatnonzero(self._hashes[slots] == _EMPTY)
            self._hashes[slots[free]] = hashes[free]
            # If several hashes compete for a slot, one of them gets it.
            done = self._hashes[slots] == hashes
            self._numbers[slots[done]] = numbers[done]
            hashes, numbers, slots = hashes[~done], numbers[~done], _next(slots[~done])


def _slots(hashes: Array) -> Array:
    return (hashes >> np.uint64(64 - _SLOT_BITS)).astype(np.int64)


def _next(slots: Array) -> Array:
    return (slots + 1) & ((1 << _SLOT_BITS) - 1)


class PieceCache:
    """Numbers chunks and stores their pieces.

    Args:
        cutter: splits text into chunks.
        encode: returns the pieces of new chunks.
    """

    def __init__(self, cutter: Cutter, encode: Callable[[list[str]], Pieces]) -> None:
        self._cutter = cutter
        self._encode = encode
        self._forget()

    def __len__(self) -> int:
        return len(self._numbers)

    def number(self, texts: Sequence[str]) -> NumberedChunks:
        """Split texts into numbered chunks; the numbers are valid until the next call."""
        if len(self._numbers) + self._characters // _CHARACTERS_PER_CHUNK > _MOST_CHUNKS:
            self._forget()
        hashed = self._cutter.cut_to_words(texts)
        if hashed is not None:
            numbers, counts, is_han = self._number_words(hashed), hashed.counts, None
        else:
            strings, han, counts = self._cutter.cut(texts)
            numbers, is_han = self._numbers.of(strings), None
            if han is not None:
                is_han = han > 0
                together = np.empty(len(han), np.int32)
                together[~is_han] = numbers
                together[is_han] = self._number_han(han[is_han] - np.uint32(ord(FIRST_HAN)))
                numbers = together
        if self._numbers.new:
            self._learn(self._numbers.take_new())
        return NumberedChunks(numbers, counts, is_han)

    def pieces(self, numbers: Array) -> Pieces:
        """Return the pieces of chunks, given their numbers."""
        starts = np.frombuffer(self._starts, np.int32)
        pool = np.frombuffer(self._pool, np.int32)
        sizes = np.frombuffer(self._sizes, np.int32)[numbers]
        if len(numbers) and sizes.max() == sizes.min() == 1:
            return Pieces(pool[starts[numbers]], sizes)
        ends = np.cumsum(sizes, dtype=np.int32)
        total = int(ends[-1]) if len(ends) else 0
        places = np.repeat(starts[numbers] - ends + sizes, sizes)
        places += np.arange(total, dtype=np.int32)
        return Pieces(pool[places], sizes)

    def chunks_with(self, piece: int, numbers: Array) -> list[tuple[str, int]]:
        """Return the chunks that contain a piece, with their counts in ``numbers``."""
        found = self.pieces(np.arange(len(self)))
        owners = np.repeat(np.arange(len(self)), found.lengths)
        holds = np.zeros(len(self), bool)
        holds[owners[found.ids == piece]] = True
        counts = np.bincount(numbers[holds[numbers]], minlength=len(self))
        chunks = list(self._numbers)
        return [(chunks[number], int(counts[number])) for number in np.flatnonzero(counts)]

    def _forget(self) -> None:
        self._numbers = _ChunkNumbers()
        self._han = np.full(ord(LAST_HAN) - ord(FIRST_HAN) + 1, NOT_FOUND, np.int32)
        self._table = WordTable()
        self._characters = 0
        self._pool, self._starts, self._sizes = array("i"), array("i"), array("i")

    def _number_words(self, chunks: HashedChunks) -> Array:
        data, (starts, ends, hashes), _ = chunks

        def strings(places: Array) -> list[str]:
            spans = zip(starts[places].tolist(), ends[places].tolist(), strict=True)
            return [data[start:end].decode("utf-8", "surrogatepass") for start, end in spans]

        numbers = self._table.find(hashes)
        is_long = ends - starts > LONGEST_HASHED
        numbers[is_long] = self._numbers.of(strings(np.flatnonzero(is_long)))
        missing = np.flatnonzero((numbers == NOT_FOUND) & ~is_long)
        if missing.size:
            new, first, which = np.unique(hashes[missing], return_index=True, return_inverse=True)
            found = self._numbers.of(strings(missing[first]))
            self._table.add(new, found)
            numbers[missing] = found[which]
        return numbers

    def _number_han(self, places: Array) -> Array:
        numbers = self._han[places]
        new = np.unique(places[numbers == NOT_FOUND])
        if len(new):
            self._han[new] = self._numbers.of([chr(ord(FIRST_HAN) + int(i)) for i in new])
            numbers = self._han[places]
        return numbers

    def _learn(self, chunks: list[str]) -> None:
        """Store the pieces of new chunks, numbered in this order after the last known one."""
        parts = [self._cutter.cut_further(chunk) for chunk in chunks]
        is_whole = np.array([len(part) == 1 for part in parts])
        first = self._make_room(chunks)
        whole = [chunk for chunk, alone in zip(chunks, is_whole, strict=True) if alone]
        self._fill(first + np.flatnonzero(is_whole), self._encode(whole))
        if is_whole.all():
            return
        cut = [part for part, alone in zip(parts, is_whole, strict=True) if not alone]
        flat = [string for part in cut for string in part]
        numbers = self._numbers.of(flat)
        if new := self._numbers.take_new():
            self._fill(self._make_room(new) + np.arange(len(new)), self._encode(new))
        found = self.pieces(numbers)
        sizes = np.array([len(part) for part in cut])
        lengths = np.add.reduceat(found.lengths, np.cumsum(sizes) - sizes)
        self._fill(first + np.flatnonzero(~is_whole), Pieces(found.ids, lengths))

    def _make_room(self, chunks: list[str]) -> int:
        """Extend the tables for new chunks, and return the first number."""
        first = len(self._starts)
        self._characters += sum(map(len, chunks))
        self._starts.extend([0] * len(chunks))
        self._sizes.extend([0] * len(chunks))
        return first

    def _fill(self, numbers: Array, found: Pieces) -> None:
        """Store the pieces of the chunks with these numbers."""
        lengths = found.lengths.astype(np.int32)
        np.frombuffer(self._starts, np.int32)[numbers] = (
            len(self._pool) + np.cumsum(lengths) - lengths
        )
        np.frombuffer(self._sizes, np.int32)[numbers] = lengths
        self._pool.frombytes(found.ids.astype(np.int32).tobytes())
