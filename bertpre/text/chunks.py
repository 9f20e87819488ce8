"""Cut many texts into chunks that repeat, such as words, so that each is encoded only once."""

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Splitter = Callable[[str], Iterable[str]]

# Han characters that every Unicode version knows: BERT makes each a word of its own, so they can
# be cut out before the library sees them.
FIRST_HAN, LAST_HAN = "一", "龥"
_HAN = re.compile(f"[{FIRST_HAN}-{LAST_HAN}]")

_PYTHON_SPACES = "".join(char for char in map(chr, range(0x3001)) if char.isspace())
# A foreign tokenizer may glue what other white space separates, so it gets that to decide.
_FOREIGN_SPACES = " \t\n\r"
_OTHER_SPACES = re.compile(f"[{''.join(c for c in _PYTHON_SPACES if c not in _FOREIGN_SPACES)}]")
_FOREIGN_CHUNKS = re.compile(f"[^{_FOREIGN_SPACES}]+")


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
            has_odd_spaces = not self._all_spaces and _OTHER_SPACES.search(joined) is not None
            split = _FOREIGN_CHUNKS.findall if has_odd_spaces else str.split
        chunks = [list(split(text)) for text in texts]
        counts = np.fromiter(map(len, chunks), np.int64, len(chunks))
        return Chunks(list(chain.from_iterable(chunks)), None, counts)

    def cut_further(self, chunk: str) -> list[str]:
        """Cut a chunk into parts that repeat more often still; mostly it is the only part."""
        if self._parts is None or not chunk.isascii() or not chunk.isprintable():
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
