import itertools
from pathlib import Path

import numpy as np
import pytest
import torch

from bertpre.data.dataset import PretrainingData
from bertpre.data.loader import Cursor, collate, held_out_batches, training_batches
from bertpre.model.flat import Batch


@pytest.fixture
def data(tiny_data: Path) -> PretrainingData:
    return PretrainingData(tiny_data)


def take(
    data: PretrainingData,
    count: int,
    *,
    cursor: Cursor | None = None,
    micro_batch_size: int = 8,
    rank: int = 0,
    num_ranks: int = 1,
) -> list[list[Batch]]:
    batches = training_batches(
        data,
        cursor or Cursor(),
        seed=3,
        batch_size=lambda step: 16,
        micro_batch_size=micro_batch_size,
        spec=lambda step: data.mask_spec,
        rank=rank,
        num_ranks=num_ranks,
    )
    try:
        return list(itertools.islice(batches, count))
    finally:
        batches.close()


def rows(batches: list[Batch]) -> list[tuple[list[int], list[int], list[int]]]:
    """Each sequence with its predictions, in an order that does not depend on the batches."""
    found = []
    for batch in batches:
        for start, end in itertools.pairwise(batch.tokens.cu_seqlens.tolist()):
            here = (batch.predicted >= start) & (batch.predicted < end)
            found.append(
                (
                    batch.tokens.input_ids[start:end].tolist(),
                    (batch.predicted[here] - start).tolist(),
                    batch.mlm_labels[here].tolist(),
                )
            )
    return sorted(found)


@pytest.mark.parametrize("micro_batch_size", [1, 5, 16])
def test_examples_and_masks_of_an_update_do_not_depend_on_the_micro_batch(
    data: PretrainingData, micro_batch_size: int
) -> None:
    (whole,) = take(data, 1)
    (parts,) = take(data, 1, micro_batch_size=micro_batch_size)

    assert rows(whole) == rows(parts)
    assert len(parts) == -(-16 // micro_batch_size)


def test_starting_in_the_middle_gives_what_would_have_come(data: PretrainingData) -> None:
    size = len(data.records)
    updates = size // 16 + 3  # into the second epoch
    cursor = Cursor()
    for _ in range(updates):
        cursor = cursor.advance(16, size=size)

    from_the_start = take(data, updates + 1)[-1]
    (from_there,) = take(data, 1, cursor=cursor)

    assert cursor.epoch == 1
    assert rows(from_the_start) == rows(from_there)


def test_a_cursor_counts_examples_over_epochs() -> None:
    # 10 examples in an epoch, 4 an update: after three updates, 12 = 1 epoch and 2.
    cursor = Cursor()
    for _ in range(3):
        cursor = cursor.advance(4, size=10)

    assert cursor == Cursor(epoch=1, example=2, step=3)


def test_micro_batches_hold_examples_of_like_length(data: PretrainingData) -> None:
    (batches,) = take(data, 1, micro_batch_size=4)

    lengths = [batch.tokens.cu_seqlens.diff().tolist() for batch in batches]
    assert list(itertools.chain(*lengths)) == sorted(itertools.chain(*lengths))


def test_a_batch_says_where_its_sequences_are(data: PretrainingData) -> None:
    examples = data.held_out_examples(0, 5)

    batch = collate(examples)

    assert batch.tokens.cu_seqlens.dtype == torch.int32
    assert batch.tokens.cu_seqlens.tolist() == [0, *np.cumsum(examples.lengths).tolist()]
    assert batch.tokens.max_length == examples.lengths.max()
    assert (
        batch.tokens.input_ids[batch.tokens.cu_seqlens[:-1].long()] == data.tokenizer.cls_id
    ).all()
    for start, end in itertools.pairwise(batch.tokens.cu_seqlens.tolist()):
        assert batch.tokens.position_ids[start:end].tolist() == list(range(end - start))


def test_held_out_batches_are_the_same_each_time_whatever_their_size(data: PretrainingData) -> None:
    once = rows(list(held_out_batches(data, batch_size=4)))

    assert once == rows(list(held_out_batches(data, batch_size=7)))
    assert len(once) == len(data.held_out)


@pytest.mark.parametrize("num_ranks", [2, 3])
def test_ranks_share_the_held_out_examples_out(data: PretrainingData, num_ranks: int) -> None:
    shares = [
        list(held_out_batches(data, batch_size=4, rank=rank, num_ranks=num_ranks))
        for rank in range(num_ranks)
    ]

    together = rows([batch for share in shares for batch in share])
    assert together == rows(list(held_out_batches(data, batch_size=4)))
    assert all(shares)


@pytest.mark.parametrize("num_ranks", [2, 3])
def test_ranks_share_each_update_out(data: PretrainingData, num_ranks: int) -> None:
    (whole,) = take(data, 1)

    shares = [take(data, 1, rank=rank, num_ranks=num_ranks)[0] for rank in range(num_ranks)]

    assert rows([batch for share in shares for batch in share]) == rows(whole)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_a_batch_arrives_whole_on_a_gpu(data: PretrainingData) -> None:
    batch = collate(data.held_out_examples(0, 5))

    there = batch.pin().to(torch.device("cuda"))

    assert there.tokens.input_ids.is_cuda
    assert there.tokens.max_length == batch.tokens.max_length
    assert torch.equal(there.tokens.input_ids.cpu(), batch.tokens.input_ids)
