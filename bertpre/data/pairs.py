"""Pairs of segments as offsets, drawn as in BERT's own create_pretraining_data.py.

All documents of a block advance together, by one chunk each and in several passes at once, so that
no Python code runs for each example. This walk finds only which sentences are whose; all tokens of
the pairs are drawn after it. A document has its own random numbers in each pass.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

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
)
from bertpre.data.random64 import U64, Array, below, count_heads, derive, hash64, uniform
from bertpre.data.split import SplitDocuments

# What a random number of a chunk decides.
_A_END, _LABEL, _OTHER, _B_START, _A_FRONT, _B_FRONT = range(6)
_SAMPLED_DOCUMENTS = 4096
_FEWEST_SAMPLED_PAIRS, _MOST_SAMPLED_PASSES = 1000, 200
_BISECTIONS = 8
# Drawn at once, over all passes; the arrays for this many take some 50 MB.
_WALKED_DOCUMENTS = 1 << 16
_WALKED_SENTENCES = 1 << 19


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
    """The positions in the unfinished documents of a block, in several passes."""

    owners: Array  # numbers of the walks: the documents in the first pass, then in the next
    documents: Array  # numbers of the documents
    keys: U64
    targets: Array  # tokens that close a chunk
    starts: Array  # the first sentence of the next chunk
    end: Array  # the sentence after the last

    def close_chunks(self, documents: SplitDocuments) -> Array:
        """Return the sentence after each document's next chunk."""
        store = documents.store
        reached = store.sentences_at(store.token_offsets(self.starts) + self.targets, side="left")
        closed: Array = np.minimum(np.maximum(reached, self.starts + 1), self.end)
        return closed

    def move_to(self, starts: Array) -> None:
        """Start the next chunks here, and drop documents that are finished."""
        self.starts = starts
        going = starts < self.end
        if not going.all():
            self.owners, self.documents = self.owners[going], self.documents[going]
            self.keys, self.targets = self.keys[going], self.targets[going]
            self.starts, self.end = starts[going], self.end[going]


class _Chunks(NamedTuple):
    """Consecutive sentences that each become a pair.

    Attributes:
        owners, documents, targets: as of `_Walk`.
        numbers: what the pair's random choices derive from, uint64.
        starts, ends: the first sentence, and the one after the last.
        a_ends: the sentence after the last of A.
        is_random: whether B comes from another document.
    """

    owners: Array
    documents: Array
    targets: Array
    numbers: U64
    starts: Array
    ends: Array
    a_ends: Array
    is_random: Array


# Turns the next chunk of each document into what the pairs are, and where the walk goes on.
_Step = Callable[[SplitDocuments, _Walk, PairRules, U64], tuple[_Chunks, Array]]
# Turns chunks into records, and says which of them are pairs.
_Finish = Callable[[SplitDocuments, _Chunks, PairRules], tuple[Records, Array]]


def draw_next_pairs(
    documents: SplitDocuments, rules: PairRules, *, keys: Sequence[int]
) -> Iterator[Drawn]:
    """Draw the sentence pairs of some passes, in which B is the next text or random.

    Args:
        documents: at least two of distinct text.
        rules: lengths and shares.
        keys: numbers from `derive`, one for each pass.

    Yields:
        The pairs of each block of documents in each pass.

    Source: google-research/bert create_pretraining_data.py, create_instances_from_document.
        As there, a chunk of one sentence always gets a random B, so more than half of the pairs
        are random.
    """
    return _draw_pairs(documents, rules, keys, _next_chunks, _next_pairs)


def draw_order_pairs(
    documents: SplitDocuments, rules: PairRules, *, keys: Sequence[int]
) -> Iterator[Drawn]:
    """Draw pairs of consecutive text for some passes, half of them with A and B swapped.

    A chunk of one sentence is cut between two of its tokens, so that its text is not lost; a chunk
    of one token makes no example.

    Args:
        documents: any number of them.
        rules: lengths.
        keys: numbers from `derive`, one for each pass.

    Source: Lan et al. 2019 (ALBERT), section 3.1, except for chunks of one sentence.
    """
    return _draw_pairs(documents, rules, keys, _order_chunks, _order_pairs)


def balance(documents: SplitDocuments, rules: PairRules, *, key: int) -> PairRules:
    """Return rules that make half of the pairs random, or as near to half as the text allows.

    The share is found by bisection on a sample of the documents.
    """
    places = np.linspace(0, len(documents) - 1, min(len(documents), _SAMPLED_DOCUMENTS))
    sample = _Sample(documents, np.unique(places.astype(np.int64)))

    def labels(share: float, keys: Sequence[int]) -> Array:
        tried = replace(rules, reads_past_chunk=True, random_share=share)
        drawn = draw_next_pairs(sample, tried, keys=keys)
        return np.concatenate([block.records["label"] for block in drawn])

    # A few pairs are a poor estimate of a share, so they are drawn many times.
    again = min(_MOST_SAMPLED_PASSES, _FEWEST_SAMPLED_PAIRS // len(labels(0.5, [key])))
    keys = [key, *(derive(key, "again", i) for i in range(again))]
    low, high = 0.0, 1.0
    for _ in range(_BISECTIONS):
        share = (low + high) / 2
        if labels(share, keys).mean() > 0.5:
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
    documents: SplitDocuments, rules: PairRules, keys: Sequence[int], step: _Step, finish: _Finish
) -> Iterator[Drawn]:
    """Walk through the documents of each block, in as many passes at once as fit in memory."""
    for block in documents.blocks():
        sentences = int((documents.end[block] - documents.first[block]).sum())
        room = min(_WALKED_DOCUMENTS // len(block), _WALKED_SENTENCES // sentences)
        at_once = max(1, room)
        for first in range(0, len(keys), at_once):
            walk = _start(documents, block, rules, keys[first : first + at_once])
            num_passes = len(walk.starts) // len(block)
            chunks = _walk(documents, walk, rules, step)
            records, is_pair = finish(documents, chunks, rules)
            passes = chunks.owners // len(block)
            ends = np.searchsorted(passes, np.arange(num_passes + 1))
            for number in range(num_passes):
                here = slice(ends[number], ends[number + 1])
                kept = records[here][is_pair[here]]
                yield Drawn(kept, unused=int((~is_pair[here]).sum()), number=first + number)


def _start(documents: SplitDocuments, block: Array, rules: PairRules, keys: Sequence[int]) -> _Walk:
    def hashes(purpose: str) -> U64:
        return np.concatenate([hash64(derive(key, purpose), block) for key in keys])

    lengths = hashes("length")
    is_short = uniform(lengths) < rules.short_seq_prob
    short = 2 + below(hash64(0, lengths), rules.budget - 1)
    return _Walk(
        owners=np.arange(len(keys) * len(block)),
        documents=np.tile(block, len(keys)),
        keys=hashes("document"),
        targets=np.where(is_short, short, rules.budget),
        starts=np.tile(documents.first[block], len(keys)),
        end=np.tile(documents.end[block], len(keys)),
    )


def _walk(documents: SplitDocuments, walk: _Walk, rules: PairRules, step: _Step) -> _Chunks:
    """Return all chunks, in the order of the walks."""
    found: list[_Chunks] = []
    while len(walk.starts):
        numbers = hash64(walk.keys, np.array(len(found)))
        chunks, starts = step(documents, walk, rules, numbers)
        found.append(chunks)
        walk.move_to(starts)
    order = np.argsort(np.concatenate([chunks.owners for chunks in found]), kind="stable")
    return _Chunks(*(np.concatenate(arrays)[order] for arrays in zip(*found, strict=True)))


def _take_chunks(
    walk: _Walk, numbers: U64, ends: Array, a_ends: Array, is_random: Array
) -> _Chunks:
    return _Chunks(
        owners=walk.owners,
        documents=walk.documents,
        targets=walk.targets,
        numbers=numbers,
        starts=walk.starts,
        ends=ends,
        a_ends=a_ends,
        is_random=is_random,
    )


def _next_chunks(
    documents: SplitDocuments, walk: _Walk, rules: PairRules, numbers: U64
) -> tuple[_Chunks, Array]:
    """Take the next chunk of each document, and draw where A ends and whether B is random."""
    ends = walk.close_chunks(documents)
    sizes = ends - walk.starts
    a_ends = walk.starts + 1 + below(hash64(_A_END, numbers), np.maximum(sizes - 1, 1))
    a_ends = np.minimum(a_ends, ends)
    has_next = sizes > 1
    if rules.reads_past_chunk:
        missing = _missing_tokens(documents, walk.starts, a_ends, walk.targets)
        a_tokens = documents.store.token_offsets(a_ends)
        more = documents.store.sentences_at(a_tokens + missing, side="left")
        is_longer = ~has_next & (ends < walk.end)
        ends = np.where(is_longer, np.clip(more, a_ends + 1, walk.end), ends)
        has_next = has_next | is_longer
    is_random = ~has_next | (uniform(hash64(_LABEL, numbers)) < rules.random_share)
    chunks = _take_chunks(walk, numbers, ends, a_ends, is_random)
    # After a random B, the unused sentences of the chunk go back.
    return chunks, np.where(is_random, a_ends, ends)


def _missing_tokens(
    documents: SplitDocuments, starts: Array, a_ends: Array, targets: Array
) -> Array:
    """Return the tokens that B needs to reach the target; with 1, B is a single sentence."""
    store = documents.store
    a_lengths = store.token_offsets(a_ends) - store.token_offsets(starts)
    missing: Array = np.maximum(targets - a_lengths, 1)
    return missing


def _next_pairs(
    documents: SplitDocuments, chunks: _Chunks, rules: PairRules
) -> tuple[Records, Array]:
    """Draw the random B, and cut all pairs."""
    store = documents.store
    a = store.token_offsets(chunks.starts), store.token_offsets(chunks.a_ends)
    b_start, b_end = a[1].copy(), store.token_offsets(chunks.ends)
    which = np.flatnonzero(chunks.is_random)
    numbers = chunks.numbers[which]
    others = documents.draw_others(chunks.documents[which], hash64(_OTHER, numbers))
    first, end = documents.first[others], documents.end[others]
    start = first + below(hash64(_B_START, numbers), end - first)
    b_start[which] = store.token_offsets(start)
    missing = np.maximum(chunks.targets - (a[1] - a[0]), 1)[which]
    reached = store.sentences_at(b_start[which] + missing, side="left")
    b_end[which] = store.token_offsets(np.clip(reached, start + 1, end))
    a, b = _truncate(a, (b_start, b_end), rules.budget, chunks.numbers)
    labels = np.where(chunks.is_random, RANDOM_NEXT, IS_NEXT)
    return make_records(a[0], b[0], a[1], b[1], labels), np.ones(len(labels), bool)


def _order_chunks(
    documents: SplitDocuments, walk: _Walk, rules: PairRules, numbers: U64
) -> tuple[_Chunks, Array]:
    """Take the next chunk of each document."""
    ends = walk.close_chunks(documents)
    return _take_chunks(walk, numbers, ends, ends, np.zeros(len(ends), bool)), ends


def _order_pairs(
    documents: SplitDocuments, chunks: _Chunks, rules: PairRules
) -> tuple[Records, Array]:
    """Cut each chunk in two; a chunk of one token makes no pair."""
    store, numbers = documents.store, chunks.numbers
    sizes = chunks.ends - chunks.starts
    start, end = store.token_offsets(chunks.starts), store.token_offsets(chunks.ends)
    drawn = hash64(_A_END, numbers)
    at_sentence = store.token_offsets(chunks.starts + 1 + below(drawn, np.maximum(sizes - 1, 1)))
    at_token = start + 1 + below(drawn, np.maximum(end - start - 1, 1))
    middle = np.where(sizes > 1, at_sentence, at_token)
    swap = uniform(hash64(_LABEL, numbers)) >= 0.5
    a, b = _truncate(
        (np.where(swap, middle, start), np.where(swap, end, middle)),
        (np.where(swap, start, middle), np.where(swap, middle, end)),
        rules.budget,
        numbers,
    )
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
