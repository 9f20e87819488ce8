import bisect
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertpre.data import pairs
from bertpre.data import split as module
from bertpre.data.examples import (
    IS_NEXT,
    NO_LABEL,
    RANDOM_NEXT,
    RECORD,
    SWAPPED,
    Drawn,
    make_records,
)
from bertpre.data.index import fit_table_pairs, pack_sentences
from bertpre.data.pairs import (
    PairRules,
    balance,
    draw_next_pairs,
    draw_order_pairs,
    share_room,
)
from bertpre.data.split import SplitDocuments

Rows = list[tuple[int, int, int, int, int]]


class Sentences:
    """Sentence lengths of all documents, as the token store would give their offsets."""

    def __init__(self, documents: list[list[int]]) -> None:
        self.offsets = np.cumsum([0, *(n for document in documents for n in document)])

    def token_offsets(self, sentences: np.ndarray) -> np.ndarray:
        return self.offsets[sentences]

    def sentences_at(self, tokens: np.ndarray, *, side: Literal["left", "right"]) -> np.ndarray:
        return np.searchsorted(self.offsets, tokens, side=side)


class Documents(SplitDocuments):
    """Documents of given sentence lengths, that know the offsets of each."""

    def offsets(self, document: int) -> list[int]:
        here = np.arange(self.first[document], self.end[document] + 1)
        return self.store.token_offsets(here).tolist()


def split_of(documents: list[list[int]], hashes: list[int] | None = None) -> Documents:
    ends = np.cumsum([len(document) for document in documents])
    return Documents(
        Sentences(documents),
        first=ends - [len(document) for document in documents],
        end=ends,
        hashes=np.array(range(len(documents)) if hashes is None else hashes, np.uint64),
    )


def by_document(documents: Documents, drawn: Iterable[Drawn]) -> list[Rows]:
    """Give each document its records; A, and the first of two swapped parts, are always in it."""
    starts = [documents.offsets(document)[0] for document in range(len(documents))]
    found: list[Rows] = [[] for _ in starts]
    for block in drawn:
        for row in block.records.tolist():
            found[bisect.bisect_right(starts, row[0]) - 1].append(row)
    return found


def pairs_of(documents: Documents, length: int, short: float = 0.1, key: int = 1) -> list[Rows]:
    rules = PairRules(max_seq_length=length, short_seq_prob=short)
    return by_document(documents, draw_next_pairs(documents, rules, keys=[key]))


corpora = st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=8), min_size=2, max_size=6)


@settings(max_examples=200, deadline=None)
@given(corpora, st.integers(8, 64), st.integers(0, 2**32))
def test_every_pair_is_what_its_label_says(corpus: list[list[int]], length: int, key: int) -> None:
    documents = split_of(corpus)
    spans = [(documents.offsets(i)[0], documents.offsets(i)[-1]) for i in range(len(corpus))]

    for document, records in enumerate(pairs_of(documents, length, key=key)):
        low, high = spans[document]
        previous_end = low
        for a_start, b_start, a_length, b_length, label in records:
            assert a_length >= 1
            assert b_length >= 1
            assert a_length + b_length <= length - 3
            assert low <= a_start < a_start + a_length <= high
            assert a_start >= previous_end  # A never goes back: no text is used twice as A
            a_end, b_end = a_start + a_length, b_start + b_length
            if label == IS_NEXT:
                # B follows A; only truncation can lie between them.
                assert a_end <= b_start < b_end <= high
                if a_end != b_start:
                    assert a_length + b_length == length - 3
                previous_end = b_end
            else:
                assert label == RANDOM_NEXT
                assert not low <= b_start < high
                assert any(s <= b_start < b_end <= e for s, e in spans)
                previous_end = a_end


@pytest.mark.parametrize("draw", [draw_next_pairs, draw_order_pairs])
@pytest.mark.parametrize("room", [1, 10, 1000])
@given(corpora)
def test_several_passes_at_once_are_those_drawn_alone(
    draw: Callable[..., Iterable[Drawn]], room: int, corpus: list[list[int]]
) -> None:
    documents, rules = split_of(corpus), PairRules(max_seq_length=32, short_seq_prob=0.5)
    keys = [5, 6, 7, 8]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pairs, "_WALKED_SENTENCES", room)
        together = {drawn.number: drawn for drawn in draw(documents, rules, keys=keys)}
    for number, key in enumerate(keys):
        (alone,) = draw(documents, rules, keys=[key])
        assert together[number].records.tolist() == alone.records.tolist()
        assert together[number].unused == alone.unused


@given(corpora)
def test_without_truncation_a_pass_walks_through_every_token_once(corpus: list[list[int]]) -> None:
    documents = split_of(corpus)

    for document, records in enumerate(pairs_of(documents, 10_000, short=0.0)):
        offsets = documents.offsets(document)
        walked = sum(a + (b if label == IS_NEXT else 0) for _, _, a, b, label in records)
        assert walked == offsets[-1] - offsets[0]


def test_random_text_of_an_equal_document_is_not_called_random() -> None:
    # Documents 0, 1, 2 have the same text; a "random" next sentence from one of them may be true.
    documents = split_of([[3, 3, 3]] * 4, hashes=[7, 7, 7, 8])

    for _ in range(3):
        for records in pairs_of(documents, 64)[:3]:
            for _, b_start, _, _, label in records:
                assert label == IS_NEXT or b_start >= 27


def test_the_longest_draw_still_finds_the_only_other_document() -> None:
    documents = split_of([[3, 3]] * 3000, hashes=[1] * 2999 + [2])

    randoms = [r for records in pairs_of(documents, 64) for r in records if r[4] == RANDOM_NEXT]

    assert len(randoms) > 1000
    own = [r for r in randoms if r[0] < 2999 * 6]
    assert all(b_start >= 2999 * 6 for _, b_start, _, _, _ in own)


def reference_pairs(corpus: list[list[int]], length: int, short: float, rng: np.random.Generator):
    """google-research/bert create_instances_from_document, written again from its description.

    Yields (tokens of A, tokens of B, is_random_next) with tokens as (document, place) pairs.
    """
    documents = [
        [[(d, sum(doc[:s]) + t) for t in range(n)] for s, n in enumerate(doc)]
        for d, doc in enumerate(corpus)
    ]
    budget = length - 3
    for d, document in enumerate(documents):
        target = budget
        if rng.random() < short:
            target = int(rng.integers(2, budget + 1))
        chunk, i = [], 0
        while i < len(document):
            chunk.append(document[i])
            if i == len(document) - 1 or sum(map(len, chunk)) >= target:
                a_end = int(rng.integers(1, len(chunk))) if len(chunk) >= 2 else 1
                a = [t for s in chunk[:a_end] for t in s]
                if len(chunk) == 1 or rng.random() < 0.5:
                    is_random = True
                    while (other := int(rng.integers(len(documents)))) == d:
                        pass
                    start = int(rng.integers(len(documents[other])))
                    b = []
                    for s in documents[other][start:]:
                        b += s
                        if len(b) >= target - len(a):
                            break
                    i -= len(chunk) - a_end
                else:
                    is_random = False
                    b = [t for s in chunk[a_end:] for t in s]
                while len(a) + len(b) > budget:
                    longer = a if len(a) > len(b) else b
                    longer.pop(0 if rng.random() < 0.5 else -1)
                yield a, b, is_random
                chunk = []
            i += 1


@pytest.mark.parametrize(
    ("num_documents", "sentences", "tokens", "short"),
    # A short target holds for a whole document, so that pairs of long ones are not independent:
    # the standard errors below hold for many short documents only.
    [(400, (5, 60), (5, 60), 0.0), (1500, (1, 4), (3, 40), 0.3), (300, (2, 12), (20, 150), 0.0)],
    ids=["prose", "short documents", "long sentences"],
)
def test_pairs_are_distributed_as_by_the_reference(
    num_documents: int, sentences: tuple[int, int], tokens: tuple[int, int], short: float
) -> None:
    rng = np.random.default_rng(5)
    corpus = [
        rng.integers(*tokens, rng.integers(*sentences), endpoint=True).tolist()
        for _ in range(num_documents)
    ]
    theirs = [pair for _ in range(4) for pair in reference_pairs(corpus, 64, short, rng)]
    documents = split_of(corpus)
    starts = np.array([documents.offsets(d)[0] for d in range(num_documents)])

    ours = [
        r for key in range(4) for records in pairs_of(documents, 64, short, key) for r in records
    ]

    def close(mine: list[float], other: list[float]) -> bool:
        # Means within four standard errors of their difference.
        error = np.hypot(np.std(mine) / len(mine) ** 0.5, np.std(other) / len(other) ** 0.5)
        return abs(np.mean(mine) - np.mean(other)) <= 4 * max(error, 1e-9)

    assert close([r[4] == RANDOM_NEXT for r in ours], [is_random for _, _, is_random in theirs])
    assert close([r[2] for r in ours], [len(a) for a, _, _ in theirs])
    assert close([r[3] for r in ours], [len(b) for _, b, _ in theirs])
    assert close([r[2] + r[3] == 61 for r in ours], [len(a) + len(b) == 61 for a, b, _ in theirs])
    assert close([r[2] ** 2 for r in ours], [len(a) ** 2 for a, _, _ in theirs])
    # Where A and B start within their documents: this is where front truncation shows.
    assert close([r[0] - starts[starts <= r[0]][-1] for r in ours], [a[0][1] for a, _, _ in theirs])
    assert close([r[1] - starts[starts <= r[1]][-1] for r in ours], [b[0][1] for _, b, _ in theirs])
    # 4 passes of the same corpus: the number of pairs is a mean as well.
    assert len(ours) == pytest.approx(len(theirs), rel=0.03)

    borders = documents.store.token_offsets(np.arange(documents.end[-1] + 1))

    def cut_in_front(places: list[int]) -> np.ndarray:
        found = np.array(places)
        return found - borders[np.searchsorted(borders, found, side="right") - 1]

    def alike(mine: np.ndarray, other: np.ndarray) -> bool:
        """Two samples of one distribution, by chi-squared over some ten bins."""
        edges = np.unique(np.quantile(np.concatenate([mine, other]), np.linspace(0, 1, 11)))
        if len(edges) < 3:
            return bool(len(np.unique(mine)) == len(np.unique(other)))
        edges[-1] += 1
        counts = np.array([np.histogram(sample, edges)[0] for sample in (mine, other)], float)
        expected = counts.sum(axis=0) * counts.sum(axis=1, keepdims=True) / counts.sum()
        freedom = len(edges) - 2
        return bool(
            ((counts - expected) ** 2 / expected).sum() < freedom + 5 * (2 * freedom) ** 0.5
        )

    for label in (IS_NEXT, RANDOM_NEXT):
        mine = [r for r in ours if r[4] == label]
        other = [(a, b) for a, b, is_random in theirs if is_random == (label == RANDOM_NEXT)]
        assert bool(mine) == bool(other)
        if not mine:
            continue
        assert alike(np.array([r[2] for r in mine]), np.array([len(a) for a, _ in other]))
        assert alike(np.array([r[3] for r in mine]), np.array([len(b) for _, b in other]))
        for start, side in ((0, 0), (1, 1)):
            places = [starts[pair[side][0][0]] + pair[side][0][1] for pair in other]
            assert alike(cut_in_front([r[start] for r in mine]), cut_in_front(places))


def test_truncation_takes_from_front_and_back_alike() -> None:
    documents = split_of([[100, 100]] * 2000)

    records = [r for rs in pairs_of(documents, 64, short=0.0) for r in rs if r[4] == IS_NEXT]

    # Nothing is next in chunks of one long sentence: each sentence alone reaches the target.
    assert records == []
    cut = [r[0] % 100 for rs in pairs_of(documents, 64, short=0.0) for r in rs]
    # A is cut from 100 to 30 or 31 tokens: 69.5 removed, half of them in front, deviation 4.2.
    assert np.mean(cut) == pytest.approx(69.5 / 2, abs=5 * 4.2 / len(cut) ** 0.5)


def test_short_lengths_are_drawn_per_document_from_2_to_the_budget() -> None:
    documents = split_of([[1] * 61] * 5000)

    pairs = pairs_of(documents, 64, short=1.0)

    first_lengths = [rs[0][2] + rs[0][3] for rs in pairs if rs[0][4] == IS_NEXT]
    counts = Counter(first_lengths)
    assert min(counts) == 2
    assert max(counts) == 61
    # Uniform on 2..61: about 42 each.
    expected = len(first_lengths) / 60
    assert all(abs(counts[n] - expected) < 6 * expected**0.5 for n in range(2, 62))


@given(corpora, st.integers(8, 64))
def test_packing_loses_nothing_and_keeps_documents_apart(
    corpus: list[list[int]], length: int
) -> None:
    documents = split_of(corpus)

    packed = by_document(documents, pack_sentences(documents, max_seq_length=length))
    for document, records in enumerate(packed):
        offsets = documents.offsets(document)
        place = offsets[0]
        for a_start, _, a_length, b_length, label in records:
            assert (a_start, b_length, label) == (place, 0, NO_LABEL)
            assert 1 <= a_length <= length - 2
            place += a_length
        assert place == offsets[-1]


def truncate_seq_pair(tokens_a: list[int], tokens_b: list[int], max_num_tokens: int) -> None:
    """google-research/bert create_pretraining_data.py, but that it always takes the last token."""
    while True:
        total_length = len(tokens_a) + len(tokens_b)
        if total_length <= max_num_tokens:
            break
        trunc_tokens = tokens_a if len(tokens_a) > len(tokens_b) else tokens_b
        assert len(trunc_tokens) >= 1
        trunc_tokens.pop()


@pytest.mark.parametrize("room", [5, 6, 13, 125])
def test_the_room_of_a_pair_is_shared_out_as_by_the_reference(room: int) -> None:
    sizes = [*range(16), 61, 62, 63, 64, 125, 126, 300]
    a_length, b_length = np.array([(a, b) for a in sizes for b in sizes]).T

    a_kept, b_kept = share_room(a_length, b_length, room)

    for i in range(len(a_length)):
        a, b = list(range(a_length[i])), list(range(b_length[i]))
        truncate_seq_pair(a, b, room)
        assert (a_kept[i], b_kept[i]) == (len(a), len(b))


def test_packing_ends_at_sentence_borders_and_splits_only_what_is_too_long() -> None:
    documents = split_of([[4, 4, 4, 25, 3]])

    (records,) = by_document(documents, pack_sentences(documents, max_seq_length=12))

    assert [(r[0], r[2]) for r in records] == [(0, 8), (8, 4), (12, 10), (22, 10), (32, 8)]


def test_a_record_takes_21_bytes() -> None:
    assert RECORD.itemsize == 21
    columns = [np.array([value]) for value in (2**40, 5, 500, 8, 1)]
    assert make_records(*columns)[0].item() == (2**40, 5, 500, 8, 1)


def test_pairs_of_a_table_stay_as_they_are_and_lose_tokens_at_the_end_of_the_longer_side():
    documents = split_of([[3, 2], [4], [7, 2], [2, 9], [6, 6], [12]])

    (drawn,) = fit_table_pairs(documents, max_seq_length=10)
    found = drawn.records.tolist()

    # Room for 7 tokens of a pair, 8 of a single text. Of 6 + 6, B loses the first and the last.
    assert found == [
        (0, 3, 3, 2, NO_LABEL),
        (5, 0, 4, 0, NO_LABEL),
        (9, 16, 5, 2, NO_LABEL),
        (18, 20, 2, 5, NO_LABEL),
        (29, 35, 4, 3, NO_LABEL),
        (41, 0, 8, 0, NO_LABEL),
    ]


@settings(max_examples=200, deadline=None)
@given(corpora, st.integers(8, 64), st.integers(0, 2**32))
def test_pairs_in_order_are_consecutive_and_swapped_ones_the_other_way_round(
    corpus: list[list[int]], length: int, key: int
) -> None:
    documents = split_of(corpus)
    spans = [(documents.offsets(i)[0], documents.offsets(i)[-1]) for i in range(len(corpus))]
    rules = PairRules(max_seq_length=length, short_seq_prob=0.1)

    (drawn,) = draw_order_pairs(documents, rules, keys=[key])

    rows = by_document(documents, [drawn])
    for (low, high), records in zip(spans, rows, strict=True):
        previous_end = low
        for a_start, b_start, a_length, b_length, label in records:
            parts = [(a_start, a_length), (b_start, b_length)]
            (start, size), (next_start, next_size) = parts[::-1] if label == SWAPPED else parts
            assert previous_end <= start
            assert min(size, next_size) >= 1
            assert size + next_size <= length - 3
            assert start + size <= next_start
            assert next_start + next_size <= high
            if start + size != next_start:  # only truncation lies between them
                assert size + next_size == length - 3
            previous_end = next_start + next_size
    # Only a document's last sentence can be left alone with a single token.
    assert drawn.unused <= sum(document[-1] == 1 for document in corpus) + sum(
        size == 1 for document in corpus for size in document[:-1] if length - 3 < 3
    )


def test_half_of_the_order_pairs_are_swapped() -> None:
    documents = split_of([[5] * 40] * 500)
    rules = PairRules(max_seq_length=64, short_seq_prob=0.1)

    labels = np.concatenate(
        [drawn.records["label"] for drawn in draw_order_pairs(documents, rules, keys=[1])]
    )

    assert np.mean(labels) == pytest.approx(0.5, abs=5 * 0.5 / len(labels) ** 0.5)


def test_order_pairs_take_every_token_but_a_lonely_one() -> None:
    documents = split_of([[3, 4], [1], [9], [2, 1]])
    rules = PairRules(max_seq_length=128, short_seq_prob=0.0)

    (drawn,) = draw_order_pairs(documents, rules, keys=[1])

    lengths = drawn.records["a_length"].astype(int) + drawn.records["b_length"]
    assert lengths.tolist() == [7, 9, 3]
    assert drawn.unused == 1


def random_share(documents: Documents, rules: PairRules) -> float:
    drawn = draw_next_pairs(documents, rules, keys=[7])
    return float(np.concatenate([block.records["label"] for block in drawn]).mean())


@pytest.mark.parametrize(
    ("sentences", "tokens"), [((5, 60), (5, 60)), ((2, 5), (3, 40)), ((2, 12), (20, 150))]
)
def test_balanced_pairs_are_random_half_of_the_time(
    sentences: tuple[int, int], tokens: tuple[int, int]
) -> None:
    rng = np.random.default_rng(5)
    documents = split_of(
        [
            rng.integers(*tokens, rng.integers(*sentences, endpoint=True), endpoint=True).tolist()
            for _ in range(1500)
        ]
    )
    rules = PairRules(max_seq_length=64, short_seq_prob=0.1)

    balanced = random_share(documents, balance(documents, rules, key=3))

    assert random_share(documents, rules) > 0.53
    assert balanced == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("key", range(5))
def test_a_few_small_documents_are_balanced_too(key: int) -> None:
    # Of two sentences that fit, a random B (share p) leaves the second to a random B as well:
    # 2p random pairs of 1 + p, which is half at a third.
    documents = split_of([[3, 4], [5, 3], [4, 4]])

    balanced = balance(documents, PairRules(max_seq_length=64, short_seq_prob=0.0), key=key)

    assert balanced.random_share == pytest.approx(1 / 3, abs=0.05)


def test_true_pairs_that_balance_adds_follow_in_the_text() -> None:
    documents = split_of([[100, 90, 80]] * 50)
    rules = PairRules(
        max_seq_length=64, short_seq_prob=0.0, random_share=0.0, reads_past_chunk=True
    )

    rows = by_document(documents, draw_next_pairs(documents, rules, keys=[1]))

    for number, records in enumerate(rows):
        first = records[0]
        assert first[4] == IS_NEXT
        assert number * 270 <= first[0] < number * 270 + 100 <= first[1] < number * 270 + 190
        assert records[1][4] == RANDOM_NEXT  # nothing follows the last sentence


def test_documents_are_drawn_alike_whatever_the_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    documents = split_of([[5, 9, 12], [30], [4] * 20, [7, 7]] * 10)
    whole = pairs_of(documents, 32)

    monkeypatch.setattr(module, "_BLOCK_SENTENCES", 7)

    assert pairs_of(documents, 32) == whole
    assert [block.tolist() for block in split_of([[1] * 9, [1], [1] * 3]).blocks()] == [[0], [1, 2]]


@given(st.lists(st.integers(0, 2), min_size=2, max_size=30).filter(lambda h: len(set(h)) > 1))
def test_another_document_always_has_another_text(hashes: list[int]) -> None:
    documents = split_of([[1]] * len(hashes), hashes)
    numbers = np.tile(np.arange(len(hashes)), 20)

    others = documents.draw_others(numbers, np.arange(len(numbers)).astype(np.uint64))

    assert (documents.hashes[others] != documents.hashes[numbers]).all()
