"""Numbers of words, found by arrays instead of a dictionary: no Python object for each word.

Words are told by 64-bit hashes of their bytes. Two of a million words share one with a chance of
one in forty million; a word too long for that is left to a dictionary.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

LONGEST_HASHED = 64  # bytes
NOT_FOUND = -1
_BASE = 0x9E3779B97F4A7C15  # any odd number: it has an inverse among the numbers of 64 bits
_MIX = np.uint64(0xD6E8FEB86659FD93)
_FEWEST_POWERS = 1 << 20  # so that blocks of like size share them
_SLOT_BITS = 20  # some five slots for each entry of a full memo
_EMPTY = np.uint64(0)
# To BERT, printable ASCII that is neither letter nor digit is punctuation.
_IS_PUNCTUATION = np.zeros(256, bool)
_IS_PUNCTUATION[[byte for byte in range(33, 127) if not chr(byte).isalnum()]] = True
# Combining marks are beyond ASCII; control characters vanish, and let a mark reach what is before.
_MAY_JOIN = np.zeros(256, bool)
_MAY_JOIN[[*range(32), *range(127, 256)]] = True


class Words(NamedTuple):
    """Where words are in a row of bytes.

    Attributes:
        starts, ends: int64, (words,).
        hashes: uint64, (words,), never 0; without meaning for words over `LONGEST_HASHED`.
    """

    starts: Array
    ends: Array
    hashes: Array


def find_words(data: Array, is_space: Array) -> Words:
    """Find the words in bytes and hash each; ASCII punctuation is a word of its own.

    No border is put before a byte beyond ASCII, as a combining mark may belong to what it follows;
    nor before punctuation that one follows, as the two may be a letter or a sign together. Control
    characters are taken like such bytes.

    Args:
        data: uint8, (n,), UTF-8; the first and the last are spaces.
        is_space: bool, (256,): which bytes separate words.
    """
    inside = ~is_space[data]
    is_punctuation = _IS_PUNCTUATION[data]
    may_join = _MAY_JOIN[data] & inside
    borders = is_punctuation.copy()
    borders[:-1] &= ~may_join[1:]
    borders[1:] |= is_punctuation[:-1]
    borders &= ~may_join
    borders[1:] |= ~inside[:-1]  # what follows a space
    starts = np.flatnonzero(borders & inside)
    ends = np.flatnonzero((borders[1:] | ~inside[1:]) & inside[:-1]) + 1
    # A word is a number in the base; the sum up to its end, less that up to its start, moved to 0.
    powers, inverse_powers = _powers(max(_FEWEST_POWERS, 1 << len(data).bit_length()))
    sums = np.multiply(data, powers[: len(data)], dtype=np.uint64)
    np.cumsum(sums, out=sums)
    hashes = (sums[ends - 1] - sums[starts - 1]) * inverse_powers[starts]
    hashes ^= hashes >> np.uint64(32)
    hashes *= _MIX
    hashes ^= hashes >> np.uint64(29)
    return Words(starts, ends, np.maximum(hashes, np.uint64(1)))


class WordTable:
    """From hashes of words to their numbers, by open addressing."""

    def __init__(self) -> None:
        self._hashes = np.zeros(1 << _SLOT_BITS, np.uint64)
        self._numbers = np.zeros(1 << _SLOT_BITS, np.int32)

    def find(self, hashes: Array) -> Array:
        """Return the number of each hash, int32, or `NOT_FOUND`."""
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
        """Add hashes that are not there yet, each once."""
        slots = _slots(hashes)
        while hashes.size:
            free = np.flatnonzero(self._hashes[slots] == _EMPTY)
            self._hashes[slots[free]] = hashes[free]
            # Of several that want a slot, one has got it.
            done = self._hashes[slots] == hashes
            self._numbers[slots[done]] = numbers[done]
            hashes, numbers, slots = hashes[~done], numbers[~done], _next(slots[~done])


def _slots(hashes: Array) -> Array:
    return (hashes >> np.uint64(64 - _SLOT_BITS)).astype(np.int64)


def _next(slots: Array) -> Array:
    return (slots + 1) & ((1 << _SLOT_BITS) - 1)


@lru_cache(maxsize=1)
def _powers(count: int) -> tuple[Array, Array]:
    """Return the powers of the base, and those of its inverse, 0 to count - 1."""
    inverse = pow(_BASE, -1, 1 << 64)
    powers = [np.full(count, base, np.uint64) for base in (_BASE, inverse)]
    for row in powers:
        row[0] = 1
        np.cumprod(row, out=row)
    return powers[0], powers[1]
