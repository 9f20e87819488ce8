"""From ids back to text that people read: where spaces are between the words of a vocabulary.

A tokenizer splits words from marks and Han characters from each other, and forgets where spaces
were. Most come back by how people write, the rest by what a set of texts shows.
"""

import functools
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bertpre.tokenizer.tokenizer import Tokenizer

_NONE_BEFORE = set(".,;:!?)]}%…’”»'-/।۔،؛؟")
_NONE_AFTER = set("([{‘“«„'-/$#@")
_OPENING, _CLOSING = '"<', '">'  # the same mark opens and closes, so we count
_LETTER, _DIGIT, _WIDE = "a", "0", "字"
_INITIAL = "A"  # a capital as a word, as in U.S.
_IN_NUMBERS = {".", ",", ":"}  # 5.7, 1,000, 3:1

Pair = tuple[str, str]


@dataclass(frozen=True)
class Spacing:
    """Rules for the spaces between words.

    Args:
        exceptions: pairs of kinds, of the last character of a word and of the first of the next,
            where the common rules are wrong; true: with a space.
    """

    exceptions: Mapping[Pair, bool] = field(default_factory=dict)

    @classmethod
    def default(cls) -> "Spacing":
        """Return the common rules of English and Chinese."""
        return cls()

    @classmethod
    def learn(cls, tokenizer: Tokenizer, texts: Iterable[str]) -> "Spacing":
        """Collect the pairs where most of the texts have it otherwise than the common rules."""
        spaced, glued = Counter[Pair](), Counter[Pair]()
        for text in texts if not tokenizer.is_whole else ():
            words = tokenizer.words(tokenizer.encode(text).ids.tolist())
            characters, is_spaced = _without_spaces(tokenizer, text)
            if "".join(words) != characters:  # it has unknown words
                continue
            place = 0
            for word, pair in zip(words, _pairs(words), strict=False):  # one pair less
                place += len(word)
                (spaced if is_spaced[place] else glued)[pair] += 1
        pairs = sorted(spaced.keys() | glued.keys())
        found = {pair: spaced[pair] > glued[pair] for pair in pairs}
        return cls({pair: value for pair, value in found.items() if value != _has_space(pair)})

    def join(self, words: Sequence[str]) -> str:
        """Join words to a text."""
        parts = list(words[:1])
        for word, pair in zip(words[1:], _pairs(words), strict=True):
            if self.exceptions.get(pair, _has_space(pair)):
                parts.append(" ")
            parts.append(word)
        return "".join(parts)

    def to_json(self) -> dict[str, Any]:
        """Return the exceptions as lists of pairs, for a manifest."""
        by_value = {
            name: [list(pair) for pair, value in self.exceptions.items() if value is wanted]
            for name, wanted in (("spaced", True), ("glued", False))
        }
        return {name: pairs for name, pairs in by_value.items() if pairs}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "Spacing":
        """Read what `to_json` wrote."""
        exceptions: dict[Pair, bool] = {}
        for name, value in (("spaced", True), ("glued", False)):
            exceptions |= {(left, right): value for left, right in stored.get(name, ())}
        return cls(dict(sorted(exceptions.items())))


def to_text(tokenizer: Tokenizer, spacing: Spacing, ids: Iterable[int]) -> str:
    """Return the text of ids, without special tokens but [UNK].

    Tokens of a whole-token vocabulary are separated by spaces, k-mers that do not overlap by
    nothing.
    """
    words = tokenizer.words(ids)
    if tokenizer.kmer is not None:
        return "".join(words)
    return " ".join(words) if tokenizer.is_whole else spacing.join(words)


def round_trip_share(tokenizer: Tokenizer, spacing: Spacing, texts: Sequence[str]) -> float:
    """Return the share of texts that come back from their ids, but for runs of white space."""
    same = 0
    for text in texts:
        back = to_text(tokenizer, spacing, tokenizer.encode(text).ids.tolist())
        same += back == " ".join(text.split())
    return same / max(1, len(texts))


def _without_spaces(tokenizer: Tokenizer, text: str) -> tuple[str, list[bool]]:
    """Return a text normalized as the tokenizer does, and where its characters follow a space."""
    characters: list[str] = []
    is_spaced: list[bool] = []
    after_space = False
    for word in text.split():
        for character in tokenizer.normalize(word):
            if not character.isspace():
                characters.append(character)
                is_spaced.append(after_space)
                after_space = False
        after_space = True
    return "".join(characters), is_spaced


def _pairs(words: Sequence[str]) -> Iterator[Pair]:
    """Yield the kinds of the characters on both sides of each gap between words."""
    is_open = False
    left = ""
    for number, word in enumerate(words):
        first = last = ""
        if word == '"':
            first = last = _CLOSING if is_open else _OPENING
            is_open = not is_open
        else:
            first, last = _kind(word[:1]), _kind(word[-1:])
            if len(word) == 1 and word.isupper():
                first = last = _INITIAL
            if (left == _DIGIT and last in _IN_NUMBERS) or (left == _INITIAL and last == "."):
                last = left + last
        if number:
            yield left, first
        left = last


@functools.lru_cache(maxsize=10_000)
def _kind(character: str) -> str:
    """Return the class of a letter or digit, or a mark itself."""
    if unicodedata.name(character, "").startswith(("CJK ", "HIRAGANA", "KATAKANA")):
        return _WIDE
    category = unicodedata.category(character)
    if category.startswith("N"):
        return _DIGIT
    return character if category[0] in "PS" else _LETTER


def _has_space(pair: Pair) -> bool:
    """Return whether the common rules put a space between two kinds."""
    left, right = pair
    if any(kind == _WIDE or _is_wide_mark(kind) for kind in pair):
        return False
    if right == _CLOSING or left == _OPENING:
        return False
    if left == f"{_INITIAL}.":
        return right != _INITIAL and right not in _NONE_BEFORE
    if right == _DIGIT and left.removeprefix(_DIGIT) in _IN_NUMBERS:
        return left in _IN_NUMBERS  # none after another digit
    return right not in _NONE_BEFORE and left not in _NONE_AFTER


def _is_wide_mark(kind: str) -> bool:
    return len(kind) == 1 and unicodedata.east_asian_width(kind) in "WF"
