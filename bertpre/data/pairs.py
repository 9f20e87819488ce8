"""Examples as an index: which stretches of the token store are segment A and B, and the label.

Sentence pairs follow the procedure of BERT's own create_pretraining_data.py, as offsets; text
without sentence pairs is packed into full sequences.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from bertpre.data.random64 import Stream, derive

# One example. Lengths are of tokens without [CLS] and [SEP]; b_length 0 means a single segment.
RECORD = np.dtype(
    [
        ("a_start", "<u8"),
        ("b_start", "<u8"),
        ("a_length", "<u2"),
        ("b_length", "<u2"),
        ("label", "u1"),
    ]
)
Records = npt.NDArray[np.void]

IS_NEXT, RANDOM_NEXT = 0, 1  # the labels of the reference
NO_LABEL = 255


class Span(NamedTuple):
    """A document, or the part of one that belongs to a split: sentences first to last - 1."""

    first: int
    last: int


class Sentences(Protocol):
    """What this module needs of the token store."""

    def sentence_offsets(self, first: int, last: int) -> list[int]:
        """Return the token offsets of sentences first to last - 1, and where the last ends."""


class SplitDocuments:
    """The documents of one split (training or held out).

    Args:
        store: the token store.
        first, last: int64, (documents,): the sentences of each document in this split.
        hashes: uint64, (documents,): equal for documents of equal text.
    """

    def __init__(
        self,
        store: Sentences,
        *,
        first: npt.NDArray[np.int64],
        last: npt.NDArray[np.int64],
        hashes: npt.NDArray[np.uint64],
    ) -> None:
        self._store = store
        self.first, self.last, self.hashes = first, last, hashes
        self.num_distinct = len(np.unique(hashes))

    def __len__(self) -> int:
        return len(self.first)

    def offsets(self, document: int) -> list[int]:
        """Return where the document's sentences start in the store, and where the last ends."""
        return self._store.sentence_offsets(int(self.first[document]), int(self.last[document]))

    def another(self, document: int, stream: Stream) -> int:
        """Draw a document whose text is not that of ``document``.

        The reference draws ten times and then takes the same document, calling it random. We go
        on to the next one that differs, so that no pair is mislabelled.
        """
        for _ in range(10):
            drawn = stream.integer(0, len(self) - 1)
            if self.hashes[drawn] != self.hashes[document]:
                return drawn
        order = np.roll(np.arange(len(self)), -drawn)
        return int(order[np.argmax(self.hashes[order] != self.hashes[document])])


def draw_pairs(
    documents: SplitDocuments, *, max_seq_length: int, short_seq_prob: float, key: int
) -> Iterator[list[tuple[int, int, int, int, int]]]:
    """Draw the sentence pairs of one pass, a list of records a document.

    Args:
        documents: at least two of distinct text.
        max_seq_length: most tokens of an example, three special ones included.
        short_seq_prob: share of documents with a random shorter target length.
        key: a number from `derive`; one key, one pass.

    Source: google-research/bert create_pretraining_data.py, create_instances_from_document.
        Its labels are followed too: a chunk of one sentence always gets a random B, so more than
        half of the pairs are random.
    """
    budget = max_seq_length - 3
    for document in range(len(documents)):
        # Each document has its own sequence of draws, so that documents can be drawn in any order.
        stream = Stream(derive(key, "document", document))
        offsets = documents.offsets(document)
        num_sentences = len(offsets) - 1
        target = budget
        if stream.random() < short_seq_prob:
            target = stream.integer(2, budget)
        records = []
        start = end = 0  # the chunk: sentences start to end - 1
        while start < num_sentences:
            end += 1
            if end < num_sentences and offsets[end] - offsets[start] < target:
                continue
            size = end - start
            a_end = start + (stream.integer(1, size - 1) if size > 1 else 1)
            a = (offsets[start], offsets[a_end])
            if size == 1 or stream.random() < 0.5:
                label = RANDOM_NEXT
                b = _random_b(documents, document, target - (a[1] - a[0]), stream)
                end = a_end  # the unused sentences go back
            else:
                label = IS_NEXT
                b = (a[1], offsets[end])
            records.append((*_truncate(a, b, budget, stream), label))
            start = end
        yield records


def pack_sentences(
    documents: SplitDocuments, *, max_seq_length: int
) -> Iterator[list[tuple[int, int, int, int, int]]]:
    """Pack consecutive sentences of a document up to the budget, a list of records a document.

    A sentence longer than the budget is split; no token is lost.

    Args:
        documents: any number of them.
        max_seq_length: most tokens of an example, two special ones included.

    Source: Liu et al. 2019 (RoBERTa), section 4.2, DOC-SENTENCES, but for the splitting.
    """
    budget = max_seq_length - 2
    for document in range(len(documents)):
        offsets = documents.offsets(document)
        records = []
        start = end = offsets[0]
        for sentence_end in offsets[1:]:
            if sentence_end - start <= budget:
                end = sentence_end
                continue
            if end > start:
                records.append((start, 0, end - start, 0, NO_LABEL))
                start = end
            while sentence_end - start > budget:
                records.append((start, 0, budget, 0, NO_LABEL))
                start += budget
            end = sentence_end
        if end > start:
            records.append((start, 0, end - start, 0, NO_LABEL))
        yield records


def take_pairs(
    documents: SplitDocuments, *, max_seq_length: int
) -> Iterator[list[tuple[int, int, int, int, int]]]:
    """Make the rows of a table of pairs examples as they are, a list of one record a row.

    Too long a pair is cut at the end, a token at a time from the longer side, as in fine-tuning;
    a row with an empty side is a single segment.

    Args:
        documents: the rows, of one or two sentences each.
        max_seq_length: most tokens of an example, special ones included.
    """
    for document in range(len(documents)):
        a, *end = documents.offsets(document)
        if len(end) == 1:
            yield [(a, 0, min(end[0] - a, max_seq_length - 2), 0, NO_LABEL)]
            continue
        a_length, b_length = end[0] - a, end[1] - end[0]
        from_a, from_b = _shares_of_cut(a_length, b_length, max_seq_length - 3)
        yield [(a, end[0], a_length - from_a, b_length - from_b, NO_LABEL)]


def to_records(rows: Sequence[tuple[int, int, int, int, int]]) -> Records:
    """Turn tuples (a_start, b_start, a_length, b_length, label) into an array of `RECORD`."""
    return np.array(rows, dtype=RECORD)


def _random_b(
    documents: SplitDocuments, document: int, target: int, stream: Stream
) -> tuple[int, int]:
    offsets: list[Any] = documents.offsets(documents.another(document, stream))
    first = stream.integer(0, len(offsets) - 2)
    for end in offsets[first + 1 :]:
        if end - offsets[first] >= target:
            break
    return offsets[first], end


def _truncate(
    a: tuple[int, int], b: tuple[int, int], budget: int, stream: Stream
) -> tuple[int, int, int, int]:
    """Cut a pair to the budget, a token at a time from the longer side, as the reference does.

    Returns:
        a_start, b_start, a_length, b_length.
    """
    a_length, b_length = a[1] - a[0], b[1] - b[0]
    from_a, from_b = _shares_of_cut(a_length, b_length, budget)
    # Each removed token comes from the front or the back with equal chance.
    a_front, b_front = _heads_of(from_a, stream), _heads_of(from_b, stream)
    return a[0] + a_front, b[0] + b_front, a_length - from_a, b_length - from_b


def _shares_of_cut(a_length: int, b_length: int, budget: int) -> tuple[int, int]:
    """Return how many tokens A and B lose when the longer side always loses the next one."""
    excess = max(0, a_length + b_length - budget)
    # The longer side shrinks to the shorter one's length; then they take turns, B first.
    difference = a_length - b_length
    first_cut = min(excess, abs(difference))
    from_a, from_b = (first_cut, 0) if difference > 0 else (0, first_cut)
    rest = excess - first_cut
    return from_a + rest // 2, from_b + (rest + 1) // 2


def _heads_of(coins: int, stream: Stream) -> int:
    heads = 0
    while coins > 0:
        heads += (stream.next64() >> (64 - min(coins, 64))).bit_count()
        coins -= 64
    return heads
