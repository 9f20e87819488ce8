import itertools

import pytest
import torch

from bertpre.model.flat import (
    Layout,
    add_filler,
    flatten,
    has_flash_attention,
    make_layout,
    round_up,
)

LENGTHS = [3, 1, 2]
KEEP = torch.tensor([[1, 1, 1], [1, 0, 0], [1, 1, 0]])
IDS = torch.tensor([[7, 8, 9], [4, 0, 0], [5, 6, 0]])


def test_flatten_keeps_the_real_tokens_in_order() -> None:
    segments = torch.tensor([[0, 1, 1], [0, 0, 0], [0, 1, 0]])

    batch = flatten(IDS, KEEP, segments)

    assert batch.input_ids.tolist() == [7, 8, 9, 4, 5, 6]
    assert batch.token_type_ids.tolist() == [0, 1, 1, 0, 0, 1]
    assert batch.position_ids.tolist() == [0, 1, 2, 0, 0, 1]
    assert batch.cu_seqlens.tolist() == [0, 3, 4, 6]
    assert batch.cu_seqlens.dtype == torch.int32
    assert batch.max_length == 3


def test_flatten_takes_segment_0_when_there_are_none() -> None:
    assert flatten(IDS, KEEP).token_type_ids.tolist() == [0] * 6


@pytest.mark.parametrize(
    "mask", [[[1, 1], [0, 0]], [[1, 1], [0, 1]]], ids=["empty row", "padding first"]
)
def test_flatten_refuses_rows_that_do_not_start_with_their_tokens(mask: list[list[int]]) -> None:
    with pytest.raises(ValueError, match="each row must be ones, at least one, and then zeros"):
        flatten(torch.ones(2, 2, dtype=torch.long), torch.tensor(mask))


def layout_of(lengths: list[int]) -> Layout:
    cu_seqlens = torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32)
    return make_layout(cu_seqlens, num_tokens=sum(lengths), max_length=max(lengths))


def test_pad_puts_zeros_after_each_sequence() -> None:
    padded = layout_of(LENGTHS).pad(torch.tensor([7, 8, 9, 4, 5, 6]))

    assert padded.shape == (3, 8)  # rounded up from 3, so that few lengths come up
    assert padded[:, :4].tolist() == [[7, 8, 9, 0], [4, 0, 0, 0], [5, 6, 0, 0]]
    assert padded[:, 4:].sum() == 0


def test_keep_is_true_at_real_tokens() -> None:
    keep = layout_of(LENGTHS).keep

    assert keep is not None
    assert torch.equal(keep[:, :3], KEEP.bool())
    assert not keep[:, 3:].any()


@pytest.mark.parametrize(
    "lengths",
    [LENGTHS, [8, 8], [5, 5], [64, 63, 60], [8] * 33],
    ids=lambda lengths: str(len(lengths)),
)
def test_unpad_undoes_pad_with_inner_dimensions_and_gradients(lengths: list[int]) -> None:
    layout, count = layout_of(lengths), sum(lengths)
    values = torch.randn(count, 2, 5, requires_grad=True)
    weights = torch.arange(float(count))[:, None, None]

    back = layout.unpad(layout.pad(add_filler(values, layout.num_rows)))
    (back[:count] * weights).sum().backward()

    assert len(back) == layout.num_rows
    assert torch.equal(back[:count], values)
    assert values.grad is not None
    assert torch.equal(values.grad, weights.expand(count, 2, 5))


def test_equal_lengths_need_no_copy() -> None:
    layout = layout_of([8, 8])
    values = torch.randn(16, 4)

    padded = layout.pad(values)

    assert padded.shape == (2, 8, 4)
    assert padded.data_ptr() == values.data_ptr()
    assert layout.unpad(padded).data_ptr() == values.data_ptr()
    assert layout.keep is None


def test_filler_that_fills_up_a_padded_batch_does_not_count_as_tokens() -> None:
    layout = layout_of([64] * 62 + [63, 63])  # 4,094 tokens, rounded up to 64 times 64

    assert (layout.num_tokens, layout.num_rows) == (4094, 4096)
    assert layout.keep is not None
    assert layout.keep.sum() == 4094


@pytest.mark.parametrize("count", [1, 7, 8, 100, 255, 256, 1000, 4095, 16_384, 100_001])
def test_rounding_up_adds_little_and_leaves_few_numbers(count: int) -> None:
    rounded = round_up(count)

    assert count <= rounded <= max(count + 7, count * 1.032)
    assert len({round_up(n) for n in range(count, 2 * count + 1)}) <= 64


def test_filler_is_zeros_after_the_values() -> None:
    assert add_filler(torch.tensor([5, 6]), 4).tolist() == [5, 6, 0, 0]
    values = torch.randn(2)
    assert add_filler(values, 2) is values


@pytest.mark.parametrize(
    ("capability", "expected"), [((7, 5), False), ((8, 0), True), ((9, 0), True)]
)
def test_flash_attention_is_there_from_ampere_on(monkeypatch, capability, expected) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)

    assert has_flash_attention(torch.device("cuda")) is expected
    assert not has_flash_attention(torch.device("cpu"))
