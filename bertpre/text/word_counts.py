"""How often each word of a corpus occurs, in one streaming pass and bounded memory."""

import hashlib
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby

from tokenizers import pre_tokenizers

from bertpre.text.pipeline import (
    LONGEST_WORD,
    Rules,
    make_normalizer,
    make_pre_tokenizer,
    own_splitter,
)

# Raw chunks are kept apart until so many differ, or so much text was read: a chunk is normalised
# once for all its occurrences, and a line without white space is one huge chunk.
_CHUNKS_KEPT = 100_000
_CHARACTERS_KEPT = 8_000_000
# The library takes some 16 bytes for each byte that it is given at once.
_CHARACTERS_AT_ONCE = 65_536
# Beyond this, the rarest words are forgotten: they hardly move a merge, and each costs the trainer
# some 700 bytes.
_MOST_WORDS = 1_000_000


class WordCounts:
    """Counts words as a tokenizer with the same rules will see them.

    Attributes:
        total: running words counted so far.
        characters: occurrences of each character, complete after `finish`.
        inside: characters that occurred after another one of the same word, likewise.
        cut_words: runs over 100 characters, which are counted in parts.
        forgotten: occurrences of rare words that were dropped to bound memory.
    """

    def __init__(self, rules: Rules) -> None:
        self._split = own_splitter(whole=rules.whole)
        self._normalizer = make_normalizer(rules)
        self._pre_tokenizer = make_pre_tokenizer(whole=rules.whole)
        self._whole = rules.whole
        self._chunks: Counter[str] = Counter()
        self._characters_kept = 0
        self._words: Counter[str] = Counter()
        self.total = 0
        self.characters: Counter[str] = Counter()
        self.inside: set[str] = set()
        self.cut_words = 0
        self.forgotten = 0

    def add(self, text: str) -> None:
        """Count the words of a text."""
        self._chunks.update(self._split(text))
        self._characters_kept += len(text)
        if len(self._chunks) > _CHUNKS_KEPT or self._characters_kept > _CHARACTERS_KEPT:
            self._fold()

    def finish(self) -> "SortedCounts":
        """Return the words; this object keeps the totals and gives the words up."""
        self._fold()
        words, self._words = self._words, Counter()
        for word, count in words.items():
            self._count_characters(word, count)
        return SortedCounts(words)

    def _fold(self) -> None:
        by_count = sorted(self._chunks.items(), key=lambda item: item[1])
        self._chunks.clear()
        self._characters_kept = 0
        for times, group in groupby(by_count, key=lambda item: item[1]):
            for text in _join(chunk for chunk, _ in group):
                for word, count in Counter(self._words_of(text, times)).items():
                    self._words[word] += count * times
                    self.total += count * times
        if len(self._words) > _MOST_WORDS:
            self._forget_rare()

    def _words_of(self, text: str, times: int) -> list[str]:
        words: list[str] = []
        rest: list[str] = []
        for word in self._normalizer.normalize_str(text).split():
            # Letters and digits alone hold no punctuation to split at, which saves a slow call.
            whole = self._whole or (len(word) <= LONGEST_WORD and word.isalnum())
            (words if whole else rest).append(word)
        if rest:
            self.cut_words += times * sum(len(run) > LONGEST_WORD for run in _runs(rest))
            words += [word for word, _ in self._pre_tokenizer.pre_tokenize_str(" ".join(rest))]
        return words

    def _count_characters(self, word: str, count: int) -> None:
        for character in word:
            self.characters[character] += count
        self.inside.update(word[1:])

    def _forget_rare(self) -> None:
        threshold = 0
        while len(self._words) > _MOST_WORDS // 2:
            threshold += 1
            rare = [word for word, count in self._words.items() if count <= threshold]
            for word in rare:
                self._count_characters(word, count := self._words.pop(word))
                self.forgotten += count


class SortedCounts:
    """Words in code point order with their counts, in a few bytes each."""

    def __init__(self, counts: Counter[str]) -> None:
        words = sorted(counts)
        self._counts = array("Q", (counts[word] for word in words))
        self._text = "\n".join(words).encode()

    def __len__(self) -> int:
        return len(self._counts)

    def fingerprint(self) -> str:
        """Return the sha256 of words and counts, the same in whatever order they were read."""
        return hashlib.sha256(self._counts.tobytes() + self._text).hexdigest()

    def __iter__(self) -> Iterator[tuple[str, int]]:
        start = 0
        for count in self._counts:
            end = self._text.find(b"\n", start)
            end = len(self._text) if end < 0 else end
            yield self._text[start:end].decode(), count
            start = end + 1


def _join(chunks: Iterable[str]) -> Iterator[str]:
    block: list[str] = []
    characters = 0
    for chunk in chunks:
        block.append(chunk)
        characters += len(chunk)
        if characters >= _CHARACTERS_AT_ONCE:
            yield " ".join(block)
            block, characters = [], 0
    if block:
        yield " ".join(block)


def _runs(words: Iterable[str]) -> Iterator[str]:
    for word in words:
        if len(word) > LONGEST_WORD:
            yield from (run for run, _ in pre_tokenizers.BertPreTokenizer().pre_tokenize_str(word))
