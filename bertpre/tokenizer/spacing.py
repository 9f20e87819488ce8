"""From ids back to text that people read: where spaces are between the words of a vocabulary.

A tokenizer splits words from marks and Han characters from each other, and forgets where spaces
were. Most come back by how people write, the rest by what a set of texts shows.
"""

import functools
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from bertpre.tokenizer.tokenizer import Tokenizer

# Kinds of characters. A mark is a kind of its own; no word has a space, so none looks like these.
_LETTER, _DIGIT, _KANA, _HAN = " letter", " digit", " kana", " han"
_INITIAL = " initial"  # a capital as a word, as in U.S.
_OPENING, _CLOSING = " opening", " closing"  # the same mark opens and closes, so we count
_THOUSANDS = " 000"  # three digits, as after the comma of 1,000
_EDGE = ""  # beyond the ends of a text

_NONE_BEFORE = set(".,;:!?)]}%…’”»'-/।۔،؛؟") | {_CLOSING}
_NONE_AFTER = set("([{‘“«„'-/$#@") | {_OPENING}
_IN_NUMBERS = set(".,:")  # 5.7, 1,000, 3:1
_LETTERS = {_LETTER, _INITIAL}
_SEPARATED = {*_LETTERS, _DIGIT, _THOUSANDS, _KANA}  # two of them are one word without a space
_WRITTEN = {*_SEPARATED, _HAN}  # not marks

# Number of gaps that a key of this length must be seen in. Long keys would otherwise be many.
_FEWEST = {2: 1, 5: 3}

Key = tuple[str, ...]


@dataclass(frozen=True)
class Spacing:
    """Rules for the spaces between words.

    A gap between words has three keys: the words beside it and what is around them; the kinds of
    the characters beside it and what is around them; these kinds alone. Around them are whether a
    space is before the left word, and the kinds of the next characters on both sides. The first key
    that is an exception decides; without one, the common rules do.

    Args:
        exceptions: keys for which the keys after them, or the common rules, are wrong; true: with a
            space.
    """

    exceptions: Mapping[Key, bool] = field(default_factory=dict)

    @classmethod
    def default(cls) -> "Spacing":
        """Return the common rules of English and Chinese."""
        return cls()

    @classmethod
    def learn(cls, tokenizer: Tokenizer, texts: Sequence[str]) -> "Spacing":
        """Collect the keys where most of the texts have it otherwise than the rules after them."""
        counts = {True: Counter[Key](), False: Counter[Key]()}
        found = () if tokenizer.is_whole else zip(texts, _words_of(tokenizer, texts), strict=True)
        for text, words in found:
            starts = _find_starts(tokenizer, text, "".join(words))
            if starts is None:  # it has unknown words
                continue
            place, is_spaced = 0, True
            for word, gap in zip(words, _gaps(words), strict=False):  # one gap less
                place += len(word)
                keys = gap.keys(is_spaced)
                is_spaced = place in starts
                counts[is_spaced].update(keys)
        return cls(_find_exceptions(counts[True], counts[False]))

    def join(self, words: Sequence[str]) -> str:
        """Join words to a text."""
        parts = list(words[:1])
        is_spaced = True
        for word, gap in zip(words[1:], _gaps(words), strict=True):
            is_spaced = _decide(self.exceptions, gap.keys(is_spaced))
            parts.append(f" {word}" if is_spaced else word)
        return "".join(parts)

    def to_json(self) -> dict[str, Any]:
        """Return the exceptions as lists of keys, for a manifest."""
        by_value = {
            name: [list(key) for key, value in self.exceptions.items() if value is wanted]
            for name, wanted in (("spaced", True), ("glued", False))
        }
        return {name: keys for name, keys in by_value.items() if keys}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "Spacing":
        """Read what `to_json` wrote."""
        exceptions: dict[Key, bool] = {}
        for name, value in (("spaced", True), ("glued", False)):
            exceptions |= {tuple(key): value for key in stored.get(name, ())}
        return cls(dict(sorted(exceptions.items())))


def to_text(tokenizer: Tokenizer, spacing: Spacing, ids: Iterable[int]) -> str:
    """Return the text of ids, without special tokens but [UNK].

    Tokens of a whole-token vocabulary are separated by spaces, k-mers that do not overlap by
    nothing.
    """
    return _to_text(tokenizer, spacing, tokenizer.words(ids))


def round_trip_share(tokenizer: Tokenizer, spacing: Spacing, texts: Sequence[str]) -> float:
    """Return the share of texts that come back from their ids, but for runs of white space."""
    same = sum(
        _to_text(tokenizer, spacing, words) == " ".join(text.split())
        for text, words in zip(texts, _words_of(tokenizer, texts), strict=True)
    )
    return same / max(1, len(texts))


def _to_text(tokenizer: Tokenizer, spacing: Spacing, words: Sequence[str]) -> str:
    if tokenizer.kmer is not None:
        return "".join(words)
    return " ".join(words) if tokenizer.is_whole else spacing.join(words)


def _words_of(tokenizer: Tokenizer, texts: Sequence[str]) -> Iterator[list[str]]:
    """Yield the words of each text after encoding it."""
    encoded = tokenizer.encode_all(texts)
    ids, end = encoded.ids.tolist(), 0
    for length in encoded.lengths.tolist():
        yield tokenizer.words(ids[end : end + length])
        end += length


def _find_starts(tokenizer: Tokenizer, text: str, joined: str) -> set[int] | None:
    """Find the characters of joined words that follow a space in the text.

    Returns:
        Their places, or None if the words are not those of the text.
    """
    parts = text.split()
    if "".join(parts) != joined:
        parts = ["".join(tokenizer.normalize(part).split()) for part in parts]
        if "".join(parts) != joined:
            return None
    starts, place = set(), 0
    for part in parts:
        starts.add(place)
        place += len(part)
    return starts


class _Gap(NamedTuple):
    """What is on both sides of a gap between words.

    Attributes:
        left, right: kinds of the characters beside the gap.
        left_word, right_word: the words themselves if a mark is on the other side.
        before: kind of the last character of the word before the left one.
        after: kind of the first character of the word after the right one.
    """

    left: str
    right: str
    left_word: str
    right_word: str
    before: str
    after: str

    def keys(self, is_spaced: bool) -> tuple[Key, Key, Key]:
        """Return what may decide, the most special first.

        Args:
            is_spaced: whether a space, or nothing, is before the left word.
        """
        around = (" " if is_spaced else "", self.before, self.after)
        pair = (self.left, self.right)
        return (self.left_word, self.right_word, *around), (*pair, *around), pair


def _gaps(words: Sequence[str]) -> Iterator[_Gap]:
    """Yield the gaps between words, one less than these."""
    kinds = _kinds(words)
    before = _EDGE
    for i, ((_, left), (right, _)) in enumerate(pairwise(kinds)):
        after = kinds[i + 2][0] if i + 2 < len(kinds) else _EDGE
        left_word = words[i] if left in _LETTERS and right not in _WRITTEN else left
        right_word = words[i + 1] if right in _LETTERS and left not in _WRITTEN else right
        yield _Gap(left, right, left_word, right_word, before, after)
        before = left


def _kinds(words: Sequence[str]) -> list[tuple[str, str]]:
    """Return the kinds of the first and the last character of each word."""
    kinds: list[tuple[str, str]] = []
    is_open = False
    previous = _EDGE
    for word in words:
        if word == '"':
            first = last = _CLOSING if is_open else _OPENING
            is_open = not is_open
        else:
            first, last = _ends(word)
            if (previous == _DIGIT and last in _IN_NUMBERS) or (
                previous == _INITIAL and last == "."
            ):
                last = previous + last
        kinds.append((first, last))
        previous = last
    return kinds


@functools.lru_cache(maxsize=50_000)
def _ends(word: str) -> tuple[str, str]:
    """Return the kinds of the first and the last character of a word, or of a kind itself."""
    if word.startswith(" "):
        return word, word
    if len(word) == 1 and word.isupper():
        return _INITIAL, _INITIAL
    is_thousands = len(word) == 3 and word.isdecimal()
    return _THOUSANDS if is_thousands else _kind(word[:1]), _kind(word[-1:])


def _kind(character: str) -> str:
    """Return the class of a letter or digit, or a mark itself."""
    name = unicodedata.name(character, "")
    if name.startswith(("CJK UNIFIED", "CJK COMPATIBILITY IDEOGRAPH")):
        return _HAN
    if name.startswith(("HIRAGANA", "KATAKANA")) and character.isalpha():
        return _KANA
    category = unicodedata.category(character)
    if category.startswith("N"):
        return _DIGIT
    return character if category[0] in "PS" else _LETTER


def _find_exceptions(spaced: Counter[Key], glued: Counter[Key]) -> dict[Key, bool]:
    """Keep the keys of enough gaps where most are otherwise than the keys after them say."""
    chains = [_chain(key) for key in spaced.keys() | glued.keys()]
    exceptions: dict[Key, bool] = {}
    for key, *others in sorted(chains, key=lambda chain: (len(chain), chain)):
        most = spaced[key] > glued[key]
        is_clear = spaced[key] != glued[key] and spaced[key] + glued[key] >= _FEWEST[len(key)]
        if is_clear and most != _decide(exceptions, others or [key]):
            exceptions[key] = most
    return dict(sorted(exceptions.items()))


def _chain(key: Key) -> list[Key]:
    """Return a key and those after it, as `_Gap.keys` has them."""
    left, right, *around = key
    pair = (_ends(left)[1], _ends(right)[0])
    keys = [key, (*pair, *around), pair]
    return [key for i, key in enumerate(keys) if key not in keys[:i]]


def _decide(exceptions: Mapping[Key, bool], keys: Sequence[Key]) -> bool:
    """Decide whether a space is in a gap, by the first key that is known."""
    for key in keys:
        found = exceptions.get(key)
        if found is not None:
            return found
    return _has_space(keys[-1])


def _has_space(pair: Key) -> bool:
    """Return whether the common rules put a space between two kinds."""
    left, right = pair
    if left in _SEPARATED and right in _SEPARATED:
        return True
    if any(kind in (_HAN, _KANA) or _is_wide_mark(kind) for kind in pair):
        return False
    if left == f"{_INITIAL}.":
        return right != _INITIAL and right not in _NONE_BEFORE
    if right in (_DIGIT, _THOUSANDS) and left.startswith(_DIGIT) and left != _DIGIT:
        return left == f"{_DIGIT}," and right != _THOUSANDS
    return right not in _NONE_BEFORE and left not in _NONE_AFTER


def _is_wide_mark(kind: str) -> bool:
    return len(kind) == 1 and unicodedata.east_asian_width(kind) in "WF"
