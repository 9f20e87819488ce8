import pytest
import torch

from bertpre.model.flat import flatten, key_mask, pad, unpad

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


def test_pad_puts_zeros_after_each_sequence() -> None:
    batch = flatten(IDS, KEEP)

    padded = pad(batch.input_ids, batch.cu_seqlens, 4)

    assert padded.tolist() == [[7, 8, 9, 0], [4, 0, 0, 0], [5, 6, 0, 0]]


def test_key_mask_is_true_at_real_tokens() -> None:
    batch = flatten(IDS, KEEP)

    assert torch.equal(key_mask(batch.cu_seqlens, batch.max_length), KEEP.bool())


def test_unpad_undoes_pad_with_inner_dimensions_and_gradients() -> None:
    batch = flatten(IDS, KEEP)
    values = torch.randn(6, 2, 5, requires_grad=True)

    back = unpad(pad(values, batch.cu_seqlens, 3), batch.cu_seqlens, 6)
    (back * torch.arange(6.0)[:, None, None]).sum().backward()

    assert torch.equal(back, values)
    assert values.grad is not None
    assert torch.equal(values.grad, torch.arange(6.0)[:, None, None].expand(6, 2, 5))


def test_equal_lengths_need_no_copy() -> None:
    batch = flatten(torch.ones(2, 3, dtype=torch.long), torch.ones(2, 3))
    values = torch.randn(6, 4)

    padded = pad(values, batch.cu_seqlens, batch.max_length)

    assert padded.shape == (2, 3, 4)
    assert padded.data_ptr() == values.data_ptr()
    assert unpad(padded, batch.cu_seqlens, 6).data_ptr() == values.data_ptr()
