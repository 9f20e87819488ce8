"""Pairs of segments, drawn by the procedure of BERT's own create_pretraining_data.py, as offsets.

All documents of a block take a step at once, one chunk of each, so that no Python runs for each
example. Every document has random numbers of its own: they do not depend on the blocks.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from bertpre.data.random64 import U64, below, count_heads, derive, hash64, uniform
from bertpre.data.records import (
    IN_ORDER,
    IS_NEXT,
    NO_LABEL,
    RANDOM_NEXT,
    SWAPPED,
    Array,
    Drawn,
    Records,
    in_order,
    make_records,
)
from bertpre.data.split import SplitDocuments

# What a random number of a chunk decides.
_A_END, _LABEL, _OTHER, _B_START, _A_FRONT, _B_FRONT = range(6)
_SAMPLED_DOCUMENTS = 4096
_FEWEST_SAMPLED_PAIRS, _MOST_SAMPLED_PASSES = 1000, 200
_BISECTIONS = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class PairRules:
    """How pairs are drawn.

    Attributes:
        max_seq_length: most tokens of an example, three special ones included.
        short_seq_prob: share of documents with a random shorter target length.
        random_share: probability of a random B where there is a true one.
        reaches_on: take a chunk of one sentence's next as the true B, if the document has one.
            The reference makes such a chunk random, so that random pairs are the more frequent.
    """

    max_seq_length: int
    short_seq_prob: float
    random_share: float = 0.5
    reaches_on: bool = False

    @property
    def budget(self) -> int:
        """Most tokens of A and B together."""
        return self.max_seq_length - 3


@dataclass(kw_only=True, slots=True)
class _Walk:
    """Where the documents of a block stand that are not at their end yet."""

    documents: Array  # their numbers
    keys: U64
    targets: Array  # tokens that close a chunk
    starts: Array  # the first sentence of the next chunk
    last: Array

    def close_chunks(self, documents: SplitDocuments) -> Array:
        """Return the sentence after each document's next chunk."""
        store = documents.store
        reached = store.sentences_at(store.token_offsets(self.starts) + self.targets, side="left")
        return np.clip(reached, self.starts + 1, self.last)

    def go_on_from(self, starts: Array) -> None:
        going = starts < self.last
        self.documents, self.keys = self.documents[going], self.keys[going]
        self.targets, self.last = self.targets[going], self.last[going]
        self.starts = starts[going]


def draw_next_pairs(documents: SplitDocuments, rules: PairRules, *, key: int) -> Iterator[Drawn]:
    """Draw the sentence pairs of one pass, with B the next text or random.

    Args:
        documents: at least two of distinct text.
        rules: lengths and shares.
        key: a number from `derive`; one key, one pass.

    Source: google-research/bert create_pretraining_data.py, create_instances_from_document.
        Its labels are followed too: a chunk of one sentence always gets a random B, so more than
        half of the pairs are random.
    """
    for block in documents.blocks():
        records, owners = [], []
        walk = _start(documents, block, rules, key)
        chunk = 0
        while len(walk.starts):
            numbers = hash64(walk.keys, np.full(len(walk.keys), chunk))
            owners.append(walk.documents)
            records.append(_next_pairs(documents, walk, rules, numbers))
            chunk += 1
        yield Drawn(in_order(records, owners))


def draw_order_pairs(documents: SplitDocuments, rules: PairRules, *, key: int) -> Iterator[Drawn]:
    """Draw the pairs of one pass that are consecutive text, half of them with A and B swapped.

    A chunk of one sentence is cut between two of its tokens, so that its text is not lost; one of
    one token gives no example.

    Args:
        documents: any number of them.
        rules: lengths.
        key: a number from `derive`; one key, one pass.

    Source: Lan et al. 2019 (ALBERT), section 3.1, but for chunks of one sentence.
    """
    store = documents.store
    for block in documents.blocks():
        records, owners = [], []
        unused = 0
        walk = _start(documents, block, rules, key)
        chunk = 0
        while len(walk.starts):
            numbers = hash64(walk.keys, np.full(len(walk.keys), chunk))
            chunk += 1
            ends = walk.close_chunks(documents)
            sizes = ends - walk.starts
            a = store.token_offsets(walk.starts)
            end = store.token_offsets(ends)
            drawn = hash64(_A_END, numbers)
            at_sentence = store.token_offsets(
                walk.starts + 1 + below(drawn, np.maximum(sizes - 1, 1))
            )
            at_token = a + 1 + below(drawn, np.maximum(end - a - 1, 1))
            middle = np.where(sizes > 1, at_sentence, at_token)
            swap = uniform(hash64(_LABEL, numbers)) >= 0.5
            first, second = _truncate(
                (np.where(swap, middle, a), np.where(swap, end, middle)),
                (np.where(swap, a, middle), np.where(swap, middle, end)),
                rules.budget,
                numbers,
            )
            is_pair = end - a > 1
            unused += int((~is_pair).sum())
            labels = np.where(swap, SWAPPED, IN_ORDER)
            records.append(make_records(first[0], second[0], first[1], second[1], labels)[is_pair])
            owners.append(walk.documents[is_pair])
            walk.go_on_from(ends)
        yield Drawn(in_order(records, owners), unused)


def balance(documents: SplitDocuments, rules: PairRules, *, key: int) -> PairRules:
    """Return rules by which half of the pairs are random, or as near to it as the text allows.

    The share is found by bisection on a sample of the documents.
    """
    places = np.linspace(0, len(documents) - 1, min(len(documents), _SAMPLED_DOCUMENTS))
    sample = _Sample(documents, np.unique(places.astype(np.int64)))

    def labels(share: float, key: int) -> Array:
        tried = replace(rules, reaches_on=True, random_share=share)
        drawn = draw_next_pairs(sample, tried, key=key)
        return np.concatenate([block.records["label"] for block in drawn])

    # Few pairs say little of a share: they are drawn again and again then.
    again = min(_MOST_SAMPLED_PASSES, _FEWEST_SAMPLED_PAIRS // len(labels(0.5, key)))
    keys = [key, *(derive(key, "again", i) for i in range(again))]
    low, high = 0.0, 1.0
    for _ in range(_BISECTIONS):
        share = (low + high) / 2
        if np.concatenate([labels(share, key) for key in keys]).mean() > 0.5:
            high = share
        else:
            low = share
    return replace(rules, reaches_on=True, random_share=share)


def take_pairs(documents: SplitDocuments, *, max_seq_length: int) -> Iterator[Drawn]:
    """Make the rows of a table of pairs examples as they are, one record a row.

    Too long a pair is cut at the end, a token at a time from the longer side, as in fine-tuning;
    a row with an empty side is a single segment.

    Args:
        documents: the rows, of one or two sentences each.
        max_seq_length: most tokens of an example, special ones included.
    """
    for block in documents.blocks():
        a, end = documents.token_spans(block)
        first, last = documents.first[block], documents.last[block]
        is_pair = last - first > 1
        b = np.where(is_pair, documents.store.token_offsets(first + 1), end)
        a_length, b_length = b - a, end - b
        from_a, from_b = _shares_of_cut(a_length, b_length, max_seq_length - 3)
        alone = np.minimum(a_length, max_seq_length - 2)
        yield Drawn(
            make_records(
                a,
                np.where(is_pair, b, 0),
                np.where(is_pair, a_length - from_a, alone),
                np.where(is_pair, b_length - from_b, 0),
                NO_LABEL,
            )
        )


class _Sample(SplitDocuments):
    """Some documents, whose random text comes from all."""

    def __init__(self, documents: SplitDocuments, chosen: Array) -> None:
        super().__init__(
            documents.store,
            first=documents.first,
            last=documents.last,
            hashes=documents.hashes,
        )
        self._chosen = chosen

    def blocks(self) -> Iterator[Array]:
        yield self._chosen


def _start(documents: SplitDocuments, block: Array, rules: PairRules, key: int) -> _Walk:
    lengths = hash64(derive(key, "length"), block)
    is_short = uniform(lengths) < rules.short_seq_prob
    short = 2 + below(hash64(0, lengths), rules.budget - 1)
    return _Walk(
        documents=block,
        keys=hash64(derive(key, "document"), block),
        targets=np.where(is_short, short, rules.budget),
        starts=documents.first[block],
        last=documents.last[block],
    )


def _next_pairs(documents: SplitDocuments, walk: _Walk, rules: PairRules, numbers: U64) -> Records:
    """Draw one pair of each document, and let the walk go on behind it."""
    store = documents.store
    ends = walk.close_chunks(documents)
    sizes = ends - walk.starts
    a_ends = walk.starts + 1 + below(hash64(_A_END, numbers), np.maximum(sizes - 1, 1))
    a_ends = np.minimum(a_ends, ends)
    a = store.token_offsets(walk.starts), store.token_offsets(a_ends)
    # What B has to have for the target; the least is one sentence, whose first token reaches it.
    missing = np.maximum(walk.targets - (a[1] - a[0]), 1)
    has_next = sizes > 1
    if rules.reaches_on:
        more = np.clip(store.sentences_at(a[1] + missing, side="left"), a_ends + 1, walk.last)
        reaches = ~has_next & (ends < walk.last)
        ends = np.where(reaches, more, ends)
        has_next = has_next | reaches
    is_random = ~has_next | (uniform(hash64(_LABEL, numbers)) < rules.random_share)
    b_start, b_end = a[1].copy(), store.token_offsets(ends)
    which = np.flatnonzero(is_random)
    others = documents.draw_others(walk.documents[which], hash64(_OTHER, numbers[which]))
    first, last = documents.first[others], documents.last[others]
    start = first + below(hash64(_B_START, numbers[which]), last - first)
    b_start[which] = store.token_offsets(start)
    reached = store.sentences_at(b_start[which] + missing[which], side="left")
    b_end[which] = store.token_offsets(np.clip(reached, start + 1, last))
    first_segment, second_segment = _truncate(a, (b_start, b_end), rules.budget, numbers)
    # After a random B, the unused sentences of the chunk go back.
    walk.go_on_from(np.where(is_random, a_ends, ends))
    return make_records(
        first_segment[0],
        second_segment[0],
        first_segment[1],
        second_segment[1],
        np.where(is_random, RANDOM_NEXT, IS_NEXT),
    )


def _truncate(
    a: tuple[Array, Array], b: tuple[Array, Array], budget: int, numbers: U64
) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Cut pairs to the budget, a token at a time from the longer side, as the reference does.

    Args:
        a, b: where the segments start, and where they end.
        budget: most tokens of both.
        numbers: uint64, (pairs,).

    Returns:
        Start and length of A, and those of B.
    """
    a_length, b_length = a[1] - a[0], b[1] - b[0]
    from_a, from_b = _shares_of_cut(a_length, b_length, budget)
    # Each removed token comes from the front or the back with equal chance.
    a_front = count_heads(hash64(_A_FRONT, numbers), from_a)
    b_front = count_heads(hash64(_B_FRONT, numbers), from_b)
    return (a[0] + a_front, a_length - from_a), (b[0] + b_front, b_length - from_b)


def _shares_of_cut(a_length: Array, b_length: Array, budget: int) -> tuple[Array, Array]:
    """Return how many tokens A and B lose when the longer side always loses the next one."""
    excess = np.maximum(0, a_length + b_length - budget)
    # The longer side shrinks to the shorter one's length; then they take turns, B first.
    difference = a_length - b_length
    first_cut = np.minimum(excess, np.abs(difference))
    rest = excess - first_cut
    is_a = difference > 0
    return np.where(is_a, first_cut, 0) + rest // 2, np.where(is_a, 0, first_cut) + (rest + 1) // 2
