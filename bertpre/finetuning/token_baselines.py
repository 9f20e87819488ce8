"""Baselines for tags without a network: the commonest tag of a token, and a dictionary."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bertpre.finetuning.schemes import OUTSIDE_TAG, Scheme, Span

Sentences = Sequence[Sequence[str]]
"""The tokens, or the tags, of each sentence."""


def commonest_tags(
    train_tokens: Sentences, train_tags: Sentences, scored_tokens: Sentences
) -> list[list[str]]:
    """Give each token its commonest training tag, and others the commonest tag of all.

    Of equally common tags, the first in alphabetical order is taken.
    """
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for tokens, tags in zip(train_tokens, train_tags, strict=True):
        for token, tag in zip(tokens, tags, strict=True):
            counts[token][tag] += 1
    overall: Counter[str] = Counter()
    for of_token in counts.values():
        overall.update(of_token)
    fallback = _commonest(overall) if overall else OUTSIDE_TAG
    known = {token: _commonest(of_token) for token, of_token in counts.items()}
    return [[known.get(token, fallback) for token in tokens] for tokens in scored_tokens]


def longest_matches(
    train_tokens: Sentences, train_tags: Sentences, scored_tokens: Sentences, scheme: Scheme
) -> list[list[str]]:
    """Find the entities of the training sentences again, wherever their tokens occur.

    From left to right, the longest sequence of tokens that is known is an entity, of its commonest
    type in training. Known are those that are an entity in more than half of their occurrences
    there, so that a word such as "may" is none because of one person called May. Other tokens are
    outside.

    If no token is outside in training, as in word segmentation, all its words are known, and each
    unknown token is a word of its own, of the commonest type.

    Args:
        train_tokens: the training sentences.
        train_tags: their tags, leniently read.
        scored_tokens: the sentences to be tagged.
        scheme: of the training tags, and of those returned; not plain.
    """
    counts: defaultdict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
    for tokens, tags in zip(train_tokens, train_tags, strict=True):
        for span in scheme.lenient_spans(tags):
            counts[tuple(tokens[span.start : span.end])][span.type] += 1
    known = _Trie()
    for sequence, types in counts.items():
        known.add(sequence, _Entry(_commonest(types), types.total()))
    unmatched = None
    if any(OUTSIDE_TAG in tags for tags in train_tags):
        _count_occurrences(known, train_tokens)
    elif counts:
        unmatched = _commonest(sum(counts.values(), Counter()))
    return [
        scheme.tags_of(_match(tokens, known, unmatched), len(tokens)) for tokens in scored_tokens
    ]


@dataclass(slots=True)
class _Entry:
    """What is known of a sequence of tokens: its type as an entity, and how often it is one."""

    type: str
    num_entities: int
    num_occurrences: int = 0

    @property
    def is_kept(self) -> bool:
        return 2 * self.num_entities > self.num_occurrences


class _Trie:
    """Sequences of tokens with an entry each, found by their first tokens."""

    def __init__(self) -> None:
        self.entry: _Entry | None = None
        self.following: dict[str, _Trie] = {}

    def add(self, tokens: Sequence[str], entry: _Entry) -> None:
        node = self
        for token in tokens:
            node = node.following.setdefault(token, _Trie())
        node.entry = entry

    def prefixes(self, tokens: Sequence[str], start: int) -> Iterator[tuple[_Entry, int]]:
        """Yield entry and end of each sequence that starts there, the shortest first."""
        node = self.following.get(tokens[start])
        end = start + 1
        while node is not None:
            if node.entry is not None:
                yield node.entry, end
            node = node.following.get(tokens[end]) if end < len(tokens) else None
            end += 1


def _count_occurrences(known: _Trie, sentences: Sentences) -> None:
    for tokens in sentences:
        for start in range(len(tokens)):
            for entry, _ in known.prefixes(tokens, start):
                entry.num_occurrences += 1


def _match(tokens: Sequence[str], known: _Trie, unmatched: str | None) -> list[Span]:
    found, place = [], 0
    while place < len(tokens):
        type_, end = unmatched, place + 1
        for entry, its_end in known.prefixes(tokens, place):
            if entry.is_kept:
                type_, end = entry.type, its_end
        if type_ is not None:
            found.append(Span(type_, place, end))
        place = end
    return found


def _commonest(counts: Counter[str]) -> str:
    return min(counts, key=lambda name: (-counts[name], name))
