"""Texts to flat batches: what of long ones is read, what is counted, and in which order."""

import itertools

import numpy as np
import pytest
import torch

from bertpre.data.pairs import share_room
from bertpre.finetuning.batches import (
    EncodedTexts,
    Encoder,
    batches_by_length,
    cut_windows,
    warn_of_unknown,
)
from bertpre.tokenizer.tokenizer import Tokenizer

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def tokenizer(tiny_tokenizer):
    return Tokenizer.load(tiny_tokenizer)


@pytest.fixture(scope="module")
def encode(tokenizer):
    def encode(texts, pairs=None, *, most, **options):
        return Encoder(tokenizer=tokenizer, max_seq_length=most, **options).texts(texts, pairs)

    return encode


def sequences_of(encoded):
    return [
        encoded.input_ids[first:last].tolist()
        for first, last in zip(encoded.starts, encoded.starts[1:], strict=False)
    ]


LONG = "the cat sees the river near the harbour after supper once again"


def test_texts_are_cut_at_the_end_and_counted(encode, tokenizer):
    texts = ["the cat sees the river.", "", "the " * 50, "\u200b"]

    encoded = encode(texts, most=12)

    the, cls, sep = tokenizer.encode("the").ids[0], tokenizer.cls_id, tokenizer.sep_id
    rows = sequences_of(encoded)
    assert rows[0] == [cls, *tokenizer.encode(texts[0]).ids[:10], sep]
    assert rows[1] == rows[3] == [cls, sep]
    assert rows[2] == [cls, *[the] * 10, sep]
    assert encoded.lengths.tolist() == [len(row) for row in rows]
    assert (encoded.num_empty, len(encoded), encoded.num_windowed) == (2, 4, 0)
    assert encoded.num_truncated == 1 + (len(tokenizer.encode(texts[0]).ids) > 10)


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("head", lambda ids: ids[:8]),
        ("tail", lambda ids: ids[-8:]),
        ("head-tail", lambda ids: [*ids[:2], *ids[-6:]]),
    ],
)
def test_of_a_long_text_the_start_the_end_or_both_are_read(encode, tokenizer, how, expected):
    ids = tokenizer.encode(LONG).ids.tolist()

    encoded = encode([LONG, "the cat"], most=10, long_texts=how)

    first, second = sequences_of(encoded)
    assert first[1:-1] == list(expected(ids))
    assert second[1:-1] == tokenizer.encode("the cat").ids.tolist()
    assert encoded.num_truncated == 1


def test_windows_of_a_long_text_are_sequences_of_one_row(encode, tokenizer):
    ids = tokenizer.encode(LONG).ids

    encoded = encode(["the cat", LONG, ""], most=10, long_texts="windows", window_overlap=0.5)

    windows = [row[1:-1] for row in sequences_of(encoded)]
    assert encoded.first_of_row.tolist() == [0, 1, len(windows) - 1, len(windows)]
    assert windows[1] == ids[:8].tolist()
    assert windows[-2] == ids[-8:].tolist()
    assert (encoded.num_truncated, encoded.num_windowed, encoded.num_empty) == (0, 1, 1)


@pytest.mark.parametrize("overlap", [0.0, 0.25, 0.5, 0.9])
@pytest.mark.parametrize("length", [1, 10, 11, 19, 20, 21, 333])
def test_windows_cover_a_text_and_overlap_enough(length, overlap):
    ids = np.arange(length)

    windows = cut_windows(ids, 10, overlap)

    assert sorted(set(np.concatenate(windows).tolist())) == list(range(length))
    assert all(len(window) == min(10, length) for window in windows)
    shared = [first[-1] - second[0] + 1 for first, second in itertools.pairwise(windows)]
    assert all(count >= 10 * overlap - 1e-9 for count in shared)


def test_the_sequences_of_rows_are_listed_and_drawn(encode):
    encoded = encode(["the cat", LONG, "a dog"], most=10, long_texts="windows")
    count = encoded.first_of_row[2] - encoded.first_of_row[1]

    sequences, firsts = encoded.sequences(np.array([2, 1]))

    assert sequences.tolist() == [count + 1, *range(1, count + 1)]
    assert firsts.tolist() == [0, 1]
    drawn = {encoded.draw(np.array([0, 1, 2]), key=key)[1] for key in range(50)}
    assert drawn == set(range(1, count + 1))
    assert encoded.draw(np.array([2, 0]), key=7).tolist() == [count + 1, 0]


def test_a_pair_is_two_segments(encode, tokenizer):
    encoded = encode(["the cat", "", "a dog"], ["sees", "follows", ""], most=16)

    cls, sep = tokenizer.cls_id, tokenizer.sep_id
    ids = {
        text: tokenizer.encode(text).ids.tolist()
        for text in ("the cat", "sees", "follows", "a dog")
    }
    assert sequences_of(encoded) == [
        [cls, *ids["the cat"], sep, *ids["sees"], sep],
        [cls, sep, *ids["follows"], sep],
        [cls, *ids["a dog"], sep, sep],
    ]
    batch = encoded.batch(np.array([1, 0]), CPU)
    num_follows, num_cat, num_sees = (len(ids[text]) for text in ("follows", "the cat", "sees"))
    assert batch.cu_seqlens.tolist() == [0, num_follows + 3, num_follows + num_cat + num_sees + 6]
    second_segment = [0, 0, *([1] * num_follows), 1, *([0] * (num_cat + 2)), *([1] * num_sees), 1]
    assert batch.token_type_ids.tolist() == second_segment
    assert (encoded.num_empty, encoded.num_truncated) == (0, 0)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [(300, 2, (123, 2)), (2, 300, (2, 123)), (300, 300, (63, 62)), (70, 300, (63, 62)),
     (300, 70, (63, 62)), (60, 300, (60, 65)), (60, 65, (60, 65)), (0, 300, (0, 125))],
)  # fmt: skip
def test_of_a_pair_the_longer_side_is_cut_first(first, second, expected):
    assert share_room(first, second, 125) == expected


@pytest.mark.parity
def test_pairs_are_those_of_the_transformers_library(encode, tiny_model):
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoTokenizer.from_pretrained(tiny_model)
    sides = ["", "the cat", LONG, f"{LONG} {LONG}", "a dog follows"]
    pairs = [(first, second) for first in sides for second in sides]

    encoded = encode(*zip(*pairs, strict=True), most=17)

    # As lists: a single empty second text is no second text to that library.
    expected = theirs(*map(list, zip(*pairs, strict=True)), truncation=True, max_length=17)
    for row in range(len(pairs)):
        batch = encoded.batch(np.array([row]), CPU)
        assert batch.input_ids.tolist() == expected["input_ids"][row]
        assert batch.token_type_ids.tolist() == expected["token_type_ids"][row]


def test_special_tokens_in_a_text_are_text(encode, tokenizer):
    encoded = encode(["[SEP] [CLS] [MASK]"], most=64)

    inner = set(encoded.input_ids[1:-1].tolist())
    assert inner.isdisjoint({tokenizer.sep_id, tokenizer.cls_id, tokenizer.mask_id})


def test_progress_is_told_now_and_then(tokenizer):
    seen = []

    Encoder(tokenizer=tokenizer, max_seq_length=8).texts(["the cat"] * 1100, on_rows=seen.append)

    assert seen == [500, 1000]


def test_a_batch_holds_the_sequences_in_the_order_asked_for():
    texts = EncodedTexts(
        input_ids=np.array([2, 7, 3, 2, 3, 2, 8, 3, 9, 3], dtype=np.int32),
        starts=np.array([0, 3, 5, 10]),
        second_starts=np.array([3, 2, 3]),
        first_of_row=np.arange(4),
        num_truncated=0,
        num_empty=1,
        num_unknown=0,
        num_tokens=3,
    )

    batch = texts.batch(np.array([2, 0]), CPU)

    assert batch.input_ids.tolist() == [2, 8, 3, 9, 3, 2, 7, 3]
    assert batch.position_ids.tolist() == [0, 1, 2, 3, 4, 0, 1, 2]
    assert batch.token_type_ids.tolist() == [0, 0, 0, 1, 1, 0, 0, 0]
    assert batch.cu_seqlens.tolist() == [0, 5, 8]
    assert batch.max_length == 5
    assert (batch.input_ids.dtype, batch.cu_seqlens.dtype) == (torch.int64, torch.int32)


def test_batches_by_length_cover_every_row_once_within_the_limit():
    lengths = np.random.default_rng(0).integers(2, 300, 1000)

    groups = list(batches_by_length(lengths, most_tokens=1024))

    assert sorted(np.concatenate(groups).tolist()) == list(range(1000))
    assert all(len(rows) * lengths[rows].max() <= 1024 for rows in groups)
    assert lengths[groups[0][0]] == lengths.max()


def test_a_row_over_the_limit_is_a_batch_of_its_own():
    groups = list(batches_by_length(np.array([5, 2000, 6]), most_tokens=1000))

    assert [rows.tolist() for rows in groups] == [[1], [2, 0]]


def test_unknown_tokens_are_counted_before_texts_are_cut(encode, tokenizer):
    known = "the cat"
    encoded = encode([f"{known} 漢 漢 漢", "漢"], ["漢", known], most=5)

    assert encoded.num_unknown == 5
    assert encoded.num_tokens == 5 + 2 * len(tokenizer.encode(known).ids)


@pytest.mark.parametrize(("unknown", "is_said"), [(5, False), (6, True)])
def test_many_unknown_tokens_are_a_warning(caplog, unknown, is_said):
    warn_of_unknown(unknown, 100)

    assert ("6.0 % of the tokens are [UNK]" in caplog.text) == is_said
