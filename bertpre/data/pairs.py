"""Pairs of segments as offsets, drawn as in BERT's own create_pretraining_data.py.

All documents of a block advance together, by one chunk each, so that no Python code runs for each
example. Each document has its own random numbers, whatever its block.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from bertpre.data.examples import (
    IN_ORDER,
    IS_NEXT,
    RANDOM_NEXT,
    SWAPPED,
    Drawn,
    Records,
    make_records,
    sort_by_document,
)
from bertpre.data.random64 import U64, Array, below, count_heads, derive, hash64, uniform
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
        reads_past_chunk: a chunk of one sentence takes the text that follows in its document, if
            any, as the true B. In the reference its B is always random, so that more than half of
            the pairs are random.
    """

    max_seq_length: int
    short_seq_prob: float
    random_share: float = 0.5
    reads_past_chunk: bool = False

    @property
    def budget(self) -> int:
        """Most tokens of A and B together."""
        return self.max_seq_length - 3


@dataclass(kw_only=True, slots=True)
class _Walk:
    """The positions in the unfinished documents of a block."""

    documents: Array  # their numbers
    keys: U64
    targets: Array  # tokens that close a chunk
    starts: Array  # the first sentence of the next chunk
    end: Array  # the sentence after the last

    def close_chunks(self, documents: SplitDocuments) -> Array:
        """Return the sentence after each document's next chunk."""
        store = documents.store
        reached = store.sentences_at(store.token_offsets(self.starts) + self.targets, side="left")
        return np.clip(reached, self.starts + 1, self.end)

    def move_to(self, starts: Array) -> None:
        """Start the next chunks here, and drop documents that are finished."""
        going = starts < self.end
        self.documents, self.keys = self.documents[going], self.keys[going]
        self.targets, self.end = self.targets[going], self.end[going]
        self.starts = starts[going]


def draw_next_pairs(documents: SplitDocuments, rules: PairRules, *, key: int) -> Iterator[Drawn]:
    """Draw the sentence pairs of one pass, in which B is the next text or random.

    Args:
        documents: at least two of distinct text.
        rules: lengths and shares.
        key: a number from `derive`; one key, one pass.

    Source: google-research/bert create_pretraining_data.py, create_instances_from_document.
        As there, a chunk of one sentence always gets a random B, so more than half of the pairs
        are random.
    """
    return _draw_pairs(documents, rules, key, _next_pairs)


def draw_order_pairs(documents: SplitDocuments, rules: PairRules, *, key: int) -> Iterator[Drawn]:
    """Draw pairs of consecutive text for one pass, half of them with A and B swapped.

    A chunk of one sentence is cut between two of its tokens, so that its text is not lost; a chunk
    of one token makes no example.

    Args:
        documents: any number of them.
        rules: lengths.
        key: a number from `derive`; one key, one pass.

    Source: Lan et al. 2019 (ALBERT), section 3.1, except for chunks of one sentence.
    """
    return _draw_pairs(documents, rules, key, _order_pairs)


def balance(documents: SplitDocuments, rules: PairRules, *, key: int) -> PairRules:
    """Return rules that make half of the pairs random, or as near to half as the text allows.

    The share is found by bisection on a sample of the documents.
    """
    places = np.linspace(0, len(documents) - 1, min(len(documents), _SAMPLED_DOCUMENTS))
    sample = _Sample(documents, np.unique(places.astype(np.int64)))

    def labels(share: float, key: int) -> Array:
        tried = replace(rules, reads_past_chunk=True, random_share=share)
        drawn = draw_next_pairs(sample, tried, key=key)
        return np.concatenate([block.records["label"] for block in drawn])

    # A few pairs are a poor estimate of a share, so they are drawn many times.
    again = min(_MOST_SAMPLED_PASSES, _FEWEST_SAMPLED_PAIRS // len(labels(0.5, key)))
    keys = [key, *(derive(key, "again", i) for i in range(again))]
    low, high = 0.0, 1.0
    for _ in range(_BISECTIONS):
        share = (low + high) / 2
        if np.concatenate([labels(share, key) for key in keys]).mean() > 0.5:
            high = share
        else:
            low = share
    return replace(rules, reads_past_chunk=True, random_share=share)


def share_room(
    a_length: Array | int, b_length: Array | int, room: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return how many tokens of A and B to keep, if the longer one loses a token at a time.

    On ties B loses one.

    Args:
        a_length, b_length: tokens of each, numbers or arrays.
        room: most tokens of both together.

    Source: google-research/bert create_pretraining_data.py, truncate_seq_pair.
    """
    return (
        np.minimum(a_length, np.maximum((room + 1) // 2, room - b_length)),
        np.minimum(b_length, np.maximum(room // 2, room - a_length)),
    )


class _Sample(SplitDocuments):
    """A sample of the documents; random text still comes from all of them."""

    def __init__(self, documents: SplitDocuments, chosen: Array) -> None:
        super().__init__(
            documents.store,
            first=documents.first,
            end=documents.end,
            hashes=documents.hashes,
        )
        self._chosen = chosen

    def blocks(self) -> Iterator[Array]:
        yield self._chosen


def _draw_pairs(
    documents: SplitDocuments,
    rules: PairRules,
    key: int,
    draw: Callable[[SplitDocuments, _Walk, PairRules, U64], tuple[Records, Array]],
) -> Iterator[Drawn]:
    """Call ``draw`` for a pair of each document again and again until all are finished.

    It returns a record for each unfinished document, and which records are pairs: a chunk of one
    token makes none.
    """
    for block in documents.blocks():
        records, owners = [], []
        unused = 0
        walk = _start(documents, block, rules, key)
        for chunk in itertools.count():
            if len(walk.starts) == 0:
                break
            numbers = hash64(walk.keys, np.full(len(walk.keys), chunk))
            owner = walk.documents
            drawn, is_pair = draw(documents, walk, rules, numbers)
            records.append(drawn[is_pair])
            owners.append(owner[is_pair])
            unused += int((~is_pair).sum())
        yield Drawn(sort_by_document(records, owners), unused)


def _start(documents: SplitDocuments, block: Array, rules: PairRules, key: int) -> _Walk:
    lengths = hash64(derive(key, "length"), block)
    is_short = uniform(lengths) < rules.short_seq_prob
    short = 2 + below(hash64(0, lengths), rules.budget - 1)
    return _Walk(
        documents=block,
        keys=hash64(derive(key, "document"), block),
        targets=np.where(is_short, short, rules.budget),
        starts=documents.first[block],
        end=documents.end[block],
    )


def _next_pairs(
    documents: SplitDocuments, walk: _Walk, rules: PairRules, numbers: U64
) -> tuple[Records, Array]:
    """Draw the next pair of each document, and move past it."""
    store = documents.store
    ends = walk.close_chunks(documents)
    sizes = ends - walk.starts
    a_ends = walk.starts + 1 + below(hash64(_A_END, numbers), np.maximum(sizes - 1, 1))
    a_ends = np.minimum(a_ends, ends)
    a = store.token_offsets(walk.starts), store.token_offsets(a_ends)
    # The tokens that B needs to reach the target; with 1, B is a single sentence.
    missing = np.maximum(walk.targets - (a[1] - a[0]), 1)
    has_next = sizes > 1
    if rules.reads_past_chunk:
        more = np.clip(store.sentences_at(a[1] + missing, side="left"), a_ends + 1, walk.end)
        is_longer = ~has_next & (ends < walk.end)
        ends = np.where(is_longer, more, ends)
        has_next = has_next | is_longer
    is_random = ~has_next | (uniform(hash64(_LABEL, numbers)) < rules.random_share)
    b_start, b_end = a[1].copy(), store.token_offsets(ends)
    which = np.flatnonzero(is_random)
    others = documents.draw_others(walk.documents[which], hash64(_OTHER, numbers[which]))
    first, end = documents.first[others], documents.end[others]
    start = first + below(hash64(_B_START, numbers[which]), end - first)
    b_start[which] = store.token_offsets(start)
    reached = store.sentences_at(b_start[which] + missing[which], side="left")
    b_end[which] = store.token_offsets(np.clip(reached, start + 1, end))
    a, b = _truncate(a, (b_start, b_end), rules.budget, numbers)
    # After a random B, the unused sentences of the chunk go back.
    walk.move_to(np.where(is_random, a_ends, ends))
    labels = np.where(is_random, RANDOM_NEXT, IS_NEXT)
    return make_records(a[0], b[0], a[1], b[1], labels), np.ones(len(labels), bool)


def _order_pairs(
    documents: SplitDocuments, walk: _Walk, rules: PairRules, numbers: U64
) -> tuple[Records, Array]:
    """Cut the next chunk of each document in two, and move past it."""
    store = documents.store
    ends = walk.close_chunks(documents)
    sizes = ends - walk.starts
    start, end = store.token_offsets(walk.starts), store.token_offsets(ends)
    drawn = hash64(_A_END, numbers)
    at_sentence = store.token_offsets(walk.starts + 1 + below(drawn, np.maximum(sizes - 1, 1)))
    at_token = start + 1 + below(drawn, np.maximum(end - start - 1, 1))
    middle = np.where(sizes > 1, at_sentence, at_token)
    swap = uniform(hash64(_LABEL, numbers)) >= 0.5
    a, b = _truncate(
        (np.where(swap, middle, start), np.where(swap, end, middle)),
        (np.where(swap, start, middle), np.where(swap, middle, end)),
        rules.budget,
        numbers,
    )
    walk.move_to(ends)
    labels = np.where(swap, SWAPPED, IN_ORDER)
    return make_records(a[0], b[0], a[1], b[1], labels), end - start > 1


def _truncate(
    a: tuple[Array, Array], b: tuple[Array, Array], budget: int, numbers: U64
) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Cut pairs to the budget, a token at a time from the longer side, as the reference does.

    Args:
        a, b: where the segments start, and where they end.
        budget: most tokens of both.
        numbers: uint64, (pairs,).

    Returns:
        Start and length of A, and of B.
    """
    a_length, b_length = a[1] - a[0], b[1] - b[0]
    a_kept, b_kept = share_room(a_length, b_length, budget)
    # Each removed token comes from the front or the back with equal chance.
    a_front = count_heads(hash64(_A_FRONT, numbers), a_length - a_kept)
    b_front = count_heads(hash64(_B_FRONT, numbers), b_length - b_kept)
    return (a[0] + a_front, a_kept), (b[0] + b_front, b_kept)
