"""Split texts into chunks that repeat, such as words, so that each is encoded only once.

The fast way finds words in the bytes of all texts at once and identifies them by 64-bit hashes,
without a Python object per word. Among a million words, the probability of a collision is one in
forty million.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Splitter = Callable[[str], Iterable[str]]

# Han characters in every Unicode version: each is a word in BERT, so they can be split off early.
FIRST_HAN, LAST_HAN = "一", "龥"
HAN = re.compile(f"[{FIRST_HAN}-{LAST_HAN}]")

_PYTHON_SPACES = "".join(char for char in map(chr, range(0x3001)) if char.isspace())
# Tokenizers from elsewhere may not split at other white space.
_BERT_SPACES = " \t\n\r"
_SPACES_BEYOND_ASCII = re.compile(f"[{''.join(char for char in _PYTHON_SPACES if char > '~')}]")
_BERT_CHUNKS = re.compile(f"[^{_BERT_SPACES}]+")
_MOST_HASHED_BYTES = 1 << 21  # the arrays take 40 times as much memory
LONGEST_HASHED = 64  # bytes; longer words go to a dictionary
_BASE = 0x9E3779B97F4A7C15  # any odd number, which has an inverse modulo 2**64
_MIX = np.uint64(0xD6E8FEB86659FD93)
_FEWEST_POWERS = 1 << 20  # so that blocks of similar size share them
# In BERT, printable ASCII other than letters and digits is punctuation.
_IS_PUNCTUATION = np.zeros(256, bool)
_IS_PUNCTUATION[[byte for byte in range(33, 127) if not chr(byte).isalnum()]] = True
# Combining marks are not ASCII; control characters are removed, so a mark may join across them.
_MAY_JOIN = np.zeros(256, bool)
_MAY_JOIN[[*range(32), *range(127, 256)]] = True


class Chunks(NamedTuple):
    """The chunks of several texts in one sequence.

    Attributes:
        strings: the chunks except single Han characters.
        han: uint32, (chunks,): code points of single Han characters, 0 elsewhere; None if there
            are none.
        counts: int64, (texts,): number of chunks of each text.
    """

    strings: list[str]
    han: Array | None
    counts: Array


class Words(NamedTuple):
    """Positions of words in a byte string.

    Attributes:
        starts, ends: int64, (words,).
        hashes: uint64, (words,), never 0; undefined for words over `LONGEST_HASHED`.
    """

    starts: Array
    ends: Array
    hashes: Array


class HashedChunks(NamedTuple):
    """Texts split at white space and punctuation, as words in a byte string.

    Attributes:
        data: the texts in UTF-8, with newlines before, between and after them.
        words: the words of all texts.
        counts: int64, (texts,): number of words of each text.
    """

    data: bytes
    words: Words
    counts: Array


class Cutter:
    """Splits text so that encoding the chunks one by one equals encoding the whole text.

    Args:
        split: splits a text in a special way; None: at white space, as in BERT.
        cuts_han: whether each Han character is a chunk.
        all_spaces: whether all white space known to Python separates words.
        parts: matches the parts of a chunk of printable ASCII that can be encoded on their own.
    """

    def __init__(
        self,
        *,
        split: Splitter | None = None,
        cuts_han: bool = False,
        all_spaces: bool = True,
        parts: re.Pattern[str] | None = None,
    ) -> None:
        self._split = split
        self.cuts_han = cuts_han
        self._all_spaces = all_spaces
        self._parts = parts
        spaces = _PYTHON_SPACES if all_spaces else _BERT_SPACES
        self._is_space = np.zeros(0x3002, bool)
        self._is_space[[ord(char) for char in spaces]] = True
        self._is_space_byte = self._is_space[:256].copy()
        self._is_space_byte[128:] = False  # in UTF-8, these are parts of characters

    def cut(self, texts: Sequence[str]) -> Chunks:
        """Split texts of any length into chunks."""
        split = self._split
        if split is None:
            joined = "\n".join(texts)
            if self.cuts_han and not joined.isascii() and HAN.search(joined):
                return self._cut_at_han(texts, joined)
            split = str.split if self._all_spaces else _BERT_CHUNKS.findall
        chunks = [list(split(text)) for text in texts]
        counts = np.fromiter(map(len, chunks), np.int64, len(chunks))
        return Chunks(list(chain.from_iterable(chunks)), None, counts)

    def cut_to_words(self, texts: Sequence[str]) -> HashedChunks | None:
        """Split texts at white space and punctuation the fast way, or return None if it cannot."""
        if self._split is not None:
            return None
        joined = "\n".join(texts)
        is_ascii = joined.isascii()
        if not is_ascii:
            if self.cuts_han and HAN.search(joined):
                return None
            if self._all_spaces and _SPACES_BEYOND_ASCII.search(joined):
                texts = [_SPACES_BEYOND_ASCII.sub(" ", text) for text in texts]
        encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
        data = b"\n".join([b"", *encoded, b""])
        if len(data) > _MOST_HASHED_BYTES:
            return None
        words = find_words(np.frombuffer(data, np.uint8), self._is_space_byte)
        ends = np.cumsum(np.fromiter(map(len, encoded), np.int64, len(texts)) + 1)
        counts = np.diff(np.searchsorted(words.starts, ends), prepend=0)
        return HashedChunks(data, words, counts)

    def cut_further(self, chunk: str) -> list[str]:
        """Split a chunk into parts that repeat more often; usually there is one part."""
        if self._parts is None or not (chunk.isascii() and chunk.isprintable()):
            return [chunk]
        if len(chunk) <= LONGEST_HASHED and chunk.isalnum():
            return [chunk]
        return self._parts.findall(chunk)

    def _cut_at_han(self, texts: Sequence[str], joined: str) -> Chunks:
        points, is_han = find_han(joined)
        is_space = self._is_space[np.minimum(points, len(self._is_space) - 1)]
        # The newlines between texts always end a chunk.
        is_inside = ~is_han & ~is_space
        starts = is_inside.copy()
        starts[1:] &= ~is_inside[:-1]
        is_chunk = is_han | starts
        han = np.where(is_han, points, 0)[is_chunk]
        # Join the other chunks to one text, separated by spaces.
        places = np.cumsum(is_inside)[starts] - 1
        spaced = np.insert(points[is_inside], places[1:], ord(" "))
        rest = spaced.tobytes().decode("utf-32-le", "surrogatepass")
        strings = rest.split(" ") if rest else []
        ends = np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)) + 1)
        counts = np.diff(np.searchsorted(np.flatnonzero(is_chunk), ends), prepend=0)
        return Chunks(strings, han, counts)


def find_han(text: str) -> tuple[Array, Array]:
    """Return the code points of a text, uint32, and a mask of the Han characters."""
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    return points, (points >= ord(FIRST_HAN)) & (points <= ord(LAST_HAN))


def find_words(data: Array, is_space: Array) -> Words:
    """Find words in UTF-8 bytes and hash them; each ASCII punctuation mark is a word.

    There is no border before a non-ASCII byte, which may start a combining mark that belongs to the
    previous character, nor before punctuation followed by one. The same goes for control
    characters.

    Args:
        data: uint8, (n,), starting and ending with a space.
        is_space: bool, (256,): which bytes separate words.
    """
    inside = ~is_space[data]
    is_punctuation = _IS_PUNCTUATION[data]
    may_join = _MAY_JOIN[data] & inside
    borders = is_punctuation.copy()
    borders[:-1] &= ~may_join[1:]
    borders[1:] |= is_punctuation[:-1]
    borders &= ~may_join
    borders[1:] |= ~inside[:-1]  # after a space
    starts = np.flatnonzero(borders & inside)
    ends = np.flatnonzero((borders[1:] | ~inside[1:]) & inside[:-1]) + 1
    # A word is a number in this base: the difference of two prefix sums, shifted to position 0.
    powers, inverse_powers = _powers(max(_FEWEST_POWERS, 1 << len(data).bit_length()))
    sums = np.multiply(data, powers[: len(data)], dtype=np.uint64)
    np.cumsum(sums, out=sums)
    hashes = (sums[ends - 1] - sums[starts - 1]) * inverse_powers[starts]
    hashes ^= hashes >> np.uint64(32)
    hashes *= _MIX
    hashes ^= hashes >> np.uint64(29)
    return Words(starts, ends, np.maximum(hashes, np.uint64(1)))


@lru_cache(maxsize=1)
def _powers(count: int) -> tuple[Array, Array]:
    """Return the powers 0 to count - 1 of the base and of its inverse."""
    inverse = pow(_BASE, -1, 1 << 64)
    powers = [np.full(count, base, np.uint64) for base in (_BASE, inverse)]
    for row in powers:
        row[0] = 1
        np.cumprod(row, out=row)
    return powers[0], powers[1]
