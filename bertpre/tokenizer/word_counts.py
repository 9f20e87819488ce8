"""Count the words of a corpus in one streaming pass with bounded memory."""

import hashlib
import tempfile
import zlib
from array import array
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, islice

from tokenizers import pre_tokenizers

from bertpre.tokenizer.normalizing import (
    LONGEST_RUN,
    LONGEST_WORD,
    Rules,
    cut_run,
    make_normalizer,
    make_pre_tokenizer,
    make_splitter,
)

# Raw chunks are counted before normalising, up to this many distinct ones or this much text (a line
# without white space is one chunk), so that repeated ones are normalised once.
_CHUNKS_KEPT = 100_000
_CHARACTERS_KEPT = 8_000_000
# The library takes about 16 times the memory of the text in one call.
_CHARACTERS_AT_ONCE = 65_536
# Short texts are joined up to this length, then split.
_CHARACTERS_TOGETHER = 16_384
# If there are more distinct words, their counts move to disk until the end.
_WORDS_IN_MEMORY = 250_000
# At the end, the rarest words beyond this number are dropped; they hardly affect merges. Counts are
# those in the whole corpus, so that the order of the text does not matter.
_MOST_WORDS = 400_000
_PARTS = 64  # 25 MB each in a corpus with ten million distinct words


class WordCounts:
    """Counts words as split by a tokenizer with the same rules.

    Args:
        rules: how text is processed.
        most_words: minimum number of distinct words to keep, if there are that many.

    Attributes:
        total: number of words so far.
        characters: occurrences of each character, set by `finish`.
        inside: characters that occur inside words, not only as the first one, set by `finish`.
        cut_words: words over 100 characters, which are counted in parts.
        forgotten: occurrences of rare words that were dropped to save memory, set by `finish`.
        distinct: number of distinct words, including dropped ones, set by `finish`.
    """

    def __init__(self, rules: Rules, *, most_words: int = 0) -> None:
        self._normalizer = make_normalizer(rules)
        self._pre_tokenizer = make_pre_tokenizer(rules)
        self._whole = rules.whole
        self._split = make_splitter(rules, self._normalizer)
        self._most_words = max(_MOST_WORDS, most_words)
        self._on_disk: _CountsOnDisk | None = None
        self._waiting: list[str] = []
        self._characters_waiting = 0
        self._chunks: Counter[str] = Counter()
        self._characters_kept = 0
        self._words: Counter[str] = Counter()
        self.total = 0
        self.characters: Counter[str] = Counter()
        self.inside: set[str] = set()
        self.cut_words = 0
        self.forgotten = 0
        self.distinct = 0

    def add(self, text: str) -> None:
        """Count the words of a text."""
        # Texts are joined, as calls for short ones are slow.
        self._waiting.append(text)
        self._characters_waiting += len(text)
        if self._characters_waiting > _CHARACTERS_TOGETHER:
            self._split_waiting()

    def _split_waiting(self) -> None:
        text = "\n".join(self._waiting)
        self._waiting.clear()
        self._characters_waiting = 0
        self._characters_kept += len(text)
        chunks = iter(self._split(text))
        if len(text) > LONGEST_RUN and not self._whole:
            chunks = self._cut_long_runs(chunks)
        # In blocks, as a chromosome in one line has as many k-mers as characters.
        while block := list(islice(chunks, _CHUNKS_KEPT)):
            self._chunks.update(block)
            if len(self._chunks) > _CHUNKS_KEPT or self._characters_kept > _CHARACTERS_KEPT:
                self._count_chunks()

    def finish(self) -> "SortedCounts":
        """Return the words; only the totals stay in this object."""
        self._split_waiting()
        self._count_chunks()
        words, self._words = self._words, Counter()
        if self._on_disk is None:
            parts: Iterable[Counter[str]] = [words]
        else:
            self._on_disk.add(words)
            parts = self._on_disk.parts()
        del words
        kept: dict[str, int] = {}
        for part in parts:
            self._count_characters(part)
            self.distinct += len(part)
            kept.update(part)
            if len(kept) > self._most_words * 1.25:
                kept = _most_frequent(kept, self._most_words)
        if len(kept) > self._most_words:
            kept = _most_frequent(kept, self._most_words)
        self.forgotten = self.total - sum(kept.values())
        return SortedCounts(kept)

    def _count_chunks(self) -> None:
        by_times: defaultdict[int, list[str]] = defaultdict(list)
        for chunk, times in self._chunks.items():
            by_times[times].append(chunk)
        self._chunks.clear()
        self._characters_kept = 0
        for times, chunks in by_times.items():
            for text in _join_chunks(chunks):
                words = self._split_to_words(text, times)
                self.total += len(words) * times
                if times == 1:  # the fast path for most chunks
                    self._words.update(words)
                else:
                    for word, count in Counter(words).items():
                        self._words[word] += count * times
                if len(self._words) > _WORDS_IN_MEMORY:
                    self._on_disk = self._on_disk or _CountsOnDisk()
                    self._on_disk.add(self._words)
                    self._words.clear()

    def _cut_long_runs(self, chunks: Iterable[str]) -> Iterator[str]:
        """Split runs that are too long for the library, without counting them as several."""
        for chunk in chunks:
            parts = cut_run(chunk)
            self.cut_words -= sum(len(part) > LONGEST_WORD for part in parts[1:])
            yield from parts

    def _split_to_words(self, text: str, times: int) -> list[str]:
        words: list[str] = []
        rest: list[str] = []
        for word in self._normalizer.normalize_str(text).split():
            # Letters and digits need no splitting at punctuation, which is slow.
            whole = self._whole or (len(word) <= LONGEST_WORD and word.isalnum())
            (words if whole else rest).append(word)
        if rest:
            self.cut_words += times * sum(len(run) > LONGEST_WORD for run in _long_runs(rest))
            words += [word for word, _ in self._pre_tokenizer.pre_tokenize_str(" ".join(rest))]
        return words

    def _count_characters(self, words: Mapping[str, int]) -> None:
        # Grouped by count, as most words are rare.
        by_count: defaultdict[int, list[str]] = defaultdict(list)
        for word, count in words.items():
            by_count[count].append(word)
        for count, group in by_count.items():
            for character, times in Counter("".join(group)).items():
                self.characters[character] += times * count
            self.inside.update("".join([word[1:] for word in group]))


class _CountsOnDisk:
    """Adds up counts in files, partitioned by word."""

    def __init__(self) -> None:
        # Unnamed, so that nothing is left behind if the process is killed.
        self._files = [tempfile.TemporaryFile() for _ in range(_PARTS)]  # noqa: SIM115

    def add(self, counts: Mapping[str, int]) -> None:
        """Append the counts of words without white space."""
        lines: list[list[bytes]] = [[] for _ in self._files]
        for word, count in counts.items():
            encoded = word.encode()
            lines[zlib.crc32(encoded) % _PARTS].append(b"%s %d\n" % (encoded, count))
        for file, part in zip(self._files, lines, strict=True):
            file.write(b"".join(part))

    def parts(self) -> Iterator[Counter[str]]:
        """Yield the sums of each partition, and delete its file."""
        for file in self._files:
            file.seek(0)
            sums: Counter[str] = Counter()
            for line in file:
                word, count = line.split(b" ")
                sums[word.decode()] += int(count)
            file.close()
            yield sums


class SortedCounts:
    """Words in code point order with counts, stored compactly."""

    def __init__(self, counts: Mapping[str, int]) -> None:
        words = sorted(counts)
        self._counts = array("Q", (counts[word] for word in words))
        self._text = "\n".join(words).encode()

    def __len__(self) -> int:
        return len(self._counts)

    def fingerprint(self) -> str:
        """Return the sha256 of words and counts, independent of the order of reading."""
        return hashlib.sha256(self._counts.tobytes() + self._text).hexdigest()

    def most_frequent(self, number: int) -> Iterator[tuple[str, int]]:
        """Yield up to this number of the most frequent words, in code point order.

        Words with the lowest count are taken at even distances, so that no script is favoured.
        """
        if len(self) <= number:
            yield from self
            return
        least = sorted(self._counts, reverse=True)[number - 1]
        tied = self._counts.count(least)
        room = number - sum(count > least for count in self._counts)
        seen = 0
        for word, count in self:
            if count == least:
                seen += 1
            if count > least or (
                count == least and seen * room // tied > (seen - 1) * room // tied
            ):
                yield word, count

    def __iter__(self) -> Iterator[tuple[str, int]]:
        start = 0
        for count in self._counts:
            end = self._text.find(b"\n", start)
            end = len(self._text) if end < 0 else end
            yield self._text[start:end].decode(), count
            start = end + 1


def _most_frequent(words: Mapping[str, int], number: int) -> dict[str, int]:
    # Ties are broken in code point order, whatever the order of the partitions.
    least = sorted(words.values(), reverse=True)[number - 1]
    kept = {word: count for word, count in words.items() if count > least}
    tied = sorted(word for word, count in words.items() if count == least)
    return kept | dict.fromkeys(tied[: number - len(kept)], least)


def _join_chunks(chunks: Sequence[str]) -> Iterator[str]:
    ends = list(accumulate(map(len, chunks)))
    start = done = 0
    while start < len(chunks):
        end = bisect_left(ends, done + _CHARACTERS_AT_ONCE, start) + 1
        yield " ".join(chunks[start:end])
        start, done = end, ends[min(end, len(chunks)) - 1]


def _long_runs(words: Iterable[str]) -> Iterator[str]:
    for word in words:
        if len(word) > LONGEST_WORD:
            yield from (run for run, _ in pre_tokenizers.BertPreTokenizer().pre_tokenize_str(word))
