"""Texts to flat batches: what is cut, what is counted, and in which order."""

import numpy as np
import pytest
import torch

from bertpre.finetuning.batches import batches_by_length, encode_texts, flat_batch
from bertpre.text.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def tokenizer(tiny_tokenizer):
    return Tokenizer.load(tiny_tokenizer)


def test_texts_are_cut_at_the_end_and_counted(tokenizer):
    texts = ["the cat sees the river.", "", "the " * 50, "\u200b"]

    encoded = encode_texts(tokenizer, texts, max_seq_length=12)

    the = tokenizer.encode("the").ids[0]
    rows = [
        encoded.input_ids[first:last].tolist()
        for first, last in zip(encoded.starts, encoded.starts[1:], strict=False)
    ]
    assert rows[0] == [
        tokenizer.cls_id,
        *tokenizer.encode(texts[0]).ids[:10],
        tokenizer.sep_id,
    ]
    assert rows[1] == rows[3] == [tokenizer.cls_id, tokenizer.sep_id]
    assert rows[2] == [tokenizer.cls_id, *[the] * 10, tokenizer.sep_id]
    assert encoded.lengths.tolist() == [len(row) for row in rows]
    assert (encoded.num_empty, len(encoded)) == (2, 4)
    assert encoded.num_truncated == 1 + (len(tokenizer.encode(texts[0]).ids) > 10)


def test_special_tokens_in_a_text_are_text(tokenizer):
    encoded = encode_texts(tokenizer, ["[SEP] [CLS] [MASK]"], max_seq_length=64)

    inner = set(encoded.input_ids[1:-1].tolist())
    assert inner.isdisjoint({tokenizer.sep_id, tokenizer.cls_id, tokenizer.mask_id})


def test_progress_is_told_now_and_then(tokenizer):
    seen = []

    encode_texts(tokenizer, ["the cat"] * 1100, max_seq_length=8, on_rows=seen.append)

    assert seen == [500, 1000]


def test_a_flat_batch_holds_the_rows_in_order():
    rows = [np.array(ids, dtype=np.int32) for ids in ([2, 7, 3], [2, 3], [2, 8, 9, 3])]

    batch = flat_batch(rows, torch.device("cpu"))

    assert batch.input_ids.tolist() == [2, 7, 3, 2, 3, 2, 8, 9, 3]
    assert batch.position_ids.tolist() == [0, 1, 2, 0, 1, 0, 1, 2, 3]
    assert batch.cu_seqlens.tolist() == [0, 3, 5, 9]
    assert batch.token_type_ids.tolist() == [0] * 9
    assert batch.max_length == 4
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
