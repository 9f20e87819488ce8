"""Cut many texts into chunks that repeat, such as words, so that each is encoded only once."""

import logging
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bertpre.errors import ConfigError
from bertpre.tokenizer.word_table import LONGEST_HASHED, Words, find_words

Array = npt.NDArray[Any]
Splitter = Callable[[str], Iterable[str]]

# Han characters that every Unicode version knows: BERT makes each a word of its own, so they can
# be cut out before the library sees them.
FIRST_HAN, LAST_HAN = "一", "龥"
_HAN = re.compile(f"[{FIRST_HAN}-{LAST_HAN}]")

_PYTHON_SPACES = "".join(char for char in map(chr, range(0x3001)) if char.isspace())
# A foreign tokenizer may glue what other white space separates, so it gets that to decide.
_FOREIGN_SPACES = " \t\n\r"
_SPACES_BEYOND_ASCII = re.compile(f"[{''.join(char for char in _PYTHON_SPACES if char > '~')}]")
_FOREIGN_CHUNKS = re.compile(f"[^{_FOREIGN_SPACES}]+")
_MOST_HASHED_BYTES = 1 << 21  # the arrays take 40 times as much


class Chunks(NamedTuple):
    """Texts cut into chunks, all of them in one row.

    Attributes:
        strings: the chunks that are no single Han character.
        han: uint32, (chunks,): the code point of each single Han character, 0 elsewhere; None
            where there is none.
        counts: int64, (texts,): chunks of each text.
    """

    strings: list[str]
    han: Array | None
    counts: Array


class HashedChunks(NamedTuple):
    """Texts cut at white space and punctuation, as words in a row of bytes.

    Attributes:
        data: the texts in UTF-8, with a space before, between and after them.
        words: of all texts.
        counts: int64, (texts,): words of each text.
    """

    data: bytes
    words: Words
    counts: Array


class Cutter:
    """Cuts text so that the pieces of the chunks, in order, are those of the whole text.

    Args:
        split: cuts one text in a way of its own; None: at white space, as BERT does.
        cuts_han: whether Han characters are chunks of their own.
        all_spaces: whether all that Python calls white space separates words.
        parts: cuts a chunk of printable ASCII further, into what is encoded on its own.
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
        self._cuts_han = cuts_han
        self._all_spaces = all_spaces
        self._parts = parts
        spaces = _PYTHON_SPACES if all_spaces else _FOREIGN_SPACES
        self._is_space = np.zeros(0x3002, bool)
        self._is_space[[ord(char) for char in spaces]] = True
        self._is_space_byte = self._is_space[:256].copy()
        self._is_space_byte[128:] = False  # in UTF-8 these are parts of a character

    @property
    def cuts_han(self) -> bool:
        """Whether each Han character is a chunk of its own."""
        return self._cuts_han

    def cut(self, texts: Sequence[str]) -> Chunks:
        """Cut texts, of any length, into chunks."""
        split = self._split
        if split is None:
            joined = "\n".join(texts)
            if self._cuts_han and not joined.isascii() and _HAN.search(joined):
                return self._cut_at_han(texts, joined)
            split = str.split if self._all_spaces else _FOREIGN_CHUNKS.findall
        chunks = [list(split(text)) for text in texts]
        counts = np.fromiter(map(len, chunks), np.int64, len(chunks))
        return Chunks(list(chain.from_iterable(chunks)), None, counts)

    def cut_to_words(self, texts: Sequence[str]) -> HashedChunks | None:
        """Cut texts at white space and punctuation, the fast way; None where it cannot be."""
        if self._split is not None:
            return None
        joined = "\n".join(texts)
        is_ascii = joined.isascii()
        if not is_ascii:
            if self._cuts_han and _HAN.search(joined):
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
        """Cut a chunk into parts that repeat more often still; mostly it is the only part."""
        if self._parts is None or not (chunk.isascii() and chunk.isprintable()):
            return [chunk]
        if len(chunk) <= LONGEST_HASHED and chunk.isalnum():
            return [chunk]
        return self._parts.findall(chunk)

    def _cut_at_han(self, texts: Sequence[str], joined: str) -> Chunks:
        points, is_han = find_han(joined)
        is_space = self._is_space[np.minimum(points, len(self._is_space) - 1)]
        # Between texts stands a newline, which ends a chunk whatever else is white space.
        is_inside = ~is_han & ~is_space
        starts = is_inside.copy()
        starts[1:] &= ~is_inside[:-1]
        is_chunk = is_han | starts
        han = np.where(is_han, points, 0)[is_chunk]
        # The other chunks again as one text, with a space before each but the first.
        places = np.cumsum(is_inside)[starts] - 1
        spaced = np.insert(points[is_inside], places[1:], ord(" "))
        rest = spaced.tobytes().decode("utf-32-le", "surrogatepass")
        strings = rest.split(" ") if rest else []
        ends = np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)) + 1)
        counts = np.diff(np.searchsorted(np.flatnonzero(is_chunk), ends), prepend=0)
        return Chunks(strings, han, counts)


def find_han(text: str) -> tuple[Array, Array]:
    """Return the code points of a text, uint32, and which are Han characters that BERT cuts out."""
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    return points, (points >= ord(FIRST_HAN)) & (points <= ord(LAST_HAN))


def find_inside_words(texts: Sequence[str], segment: Callable[[str], list[str]]) -> Array:
    """Tell the Han characters that continue a word from those that begin one.

    Args:
        texts: any texts.
        segment: cuts a text into words; one after another they are the text again.

    Returns:
        bool, (Han characters of all texts,).
    """
    joined = "\n".join(texts)
    words = list(chain.from_iterable([*segment(text), "\n"] for text in texts))
    assert "".join(words) == joined + "\n"
    _, is_han = find_han(joined)
    follows = np.zeros(len(joined), bool)
    follows[1:] = is_han[1:] & is_han[:-1]
    ends = np.cumsum(np.fromiter(map(len, words), np.int64, len(words)))
    follows[ends[ends < len(joined)]] = False
    found: Array = follows[is_han]
    return found


# Cuts a text into words; one after another they are the text again.
Segmenter = Callable[[str], list[str]]


def load_segmenter(name: str) -> Segmenter | None:
    """Load a segmenter; "none" is none.

    Raises:
        ConfigError: its package is missing.
    """
    if name == "none":
        return None
    try:
        import jieba
    except ImportError as error:
        raise ConfigError(
            "make_data.word_segmenter jieba: the package jieba is not installed",
            "pip install 'bertpre[zh]'",
        ) from error
    jieba.setLogLevel(logging.WARNING)  # or it tells on stderr how long its dictionary took
    words: Segmenter = jieba.lcut
    return words
