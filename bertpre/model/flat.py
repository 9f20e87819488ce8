"""Batches without padding: all real tokens of all sequences in one row, and the way to (B, T).

``cu_seqlens`` (cumulative sequence lengths) says where each sequence starts: sequence ``i`` is
``values[cu_seqlens[i]:cu_seqlens[i + 1]]``. Size letters: B batch, T tokens, N real tokens.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class FlatBatch(Protocol):
    """What the encoder reads of a batch."""

    @property
    def input_ids(self) -> Tensor:
        """Token ids, (N,) int64."""

    @property
    def token_type_ids(self) -> Tensor:
        """Segments, (N,) int64, below type_vocab_size."""

    @property
    def position_ids(self) -> Tensor:
        """Positions within each sequence, from 0, (N,) int64."""

    @property
    def cu_seqlens(self) -> Tensor:
        """Starts of the sequences and the end of the last, (B + 1,) int32."""

    @property
    def max_length(self) -> int:
        """Length of the longest sequence."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FlatTokens:
    """The plainest `FlatBatch`."""

    input_ids: Tensor
    token_type_ids: Tensor
    position_ids: Tensor
    cu_seqlens: Tensor
    max_length: int


def flatten(
    input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
) -> FlatTokens:
    """Drop the padding of a padded batch.

    Args:
        input_ids: (B, T) integers.
        attention_mask: (B, T), true or 1 at real tokens, which come first in each row.
        token_type_ids: (B, T) integers; absent means segment 0 throughout.

    Raises:
        ValueError: a row is empty, or has padding before or between its tokens.
    """
    keep = attention_mask.bool()
    lengths = keep.sum(dim=1)
    positions = torch.arange(keep.shape[1], device=keep.device).expand_as(keep)
    if not torch.equal(keep, positions < lengths[:, None]) or bool((lengths == 0).any()):
        raise ValueError("attention_mask: each row must be ones, at least one, and then zeros")
    segments = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
    cu_seqlens = torch.zeros(len(lengths) + 1, dtype=torch.int32, device=keep.device)
    cu_seqlens[1:] = lengths.cumsum(dim=0)
    return FlatTokens(
        input_ids=input_ids[keep].long(),  # (B, T) -> (N,)
        token_type_ids=segments[keep].long(),
        position_ids=positions[keep],
        cu_seqlens=cu_seqlens,
        max_length=int(lengths.max()),
    )


def padded_rows(cu_seqlens: Tensor, max_length: int, num_tokens: int) -> Tensor:
    """Find each token's row in a padded batch seen as (B * T, ...).

    Args:
        cu_seqlens: (B + 1,) int32.
        max_length: T.
        num_tokens: N, given so that a GPU need not be asked for it.

    Returns:
        (N,) int64, increasing.
    """
    starts = cu_seqlens[:-1].long()
    shifts = torch.arange(len(starts), device=starts.device) * max_length - starts
    lengths = cu_seqlens.diff()
    shift_of_token = torch.repeat_interleave(shifts, lengths, output_size=num_tokens)
    return torch.arange(num_tokens, device=starts.device) + shift_of_token


def key_mask(cu_seqlens: Tensor, max_length: int) -> Tensor:
    """Return the padding mask of a flat batch, (B, T) bool, true at real tokens."""
    positions = torch.arange(max_length, device=cu_seqlens.device)
    return positions < cu_seqlens.diff()[:, None]


def pad(values: Tensor, cu_seqlens: Tensor, max_length: int) -> Tensor:
    """Lay flat values out in rows, zeros at the padding.

    Args:
        values: (N, ...).
        cu_seqlens: (B + 1,) int32.
        max_length: T, no less than the longest sequence.

    Returns:
        (B, T, ...); a view where every sequence has T tokens.
    """
    batch_size, num_tokens, inner = len(cu_seqlens) - 1, len(values), values.shape[1:]
    if num_tokens == batch_size * max_length:
        return values.view(batch_size, max_length, *inner)
    rows = padded_rows(cu_seqlens, max_length, num_tokens)
    # index_copy and index_select, as their backward passes give the same bits each time.
    padded = values.new_zeros(batch_size * max_length, *inner).index_copy(0, rows, values)
    return padded.view(batch_size, max_length, *inner)  # (B * T, ...) -> (B, T, ...)


def unpad(padded: Tensor, cu_seqlens: Tensor, num_tokens: int) -> Tensor:
    """Undo `pad`.

    Args:
        padded: (B, T, ...).
        cu_seqlens: (B + 1,) int32.
        num_tokens: N.

    Returns:
        (N, ...); a view where every sequence has T tokens.
    """
    flat = padded.flatten(0, 1)  # (B, T, ...) -> (B * T, ...)
    if num_tokens == len(flat):
        return flat
    return flat.index_select(0, padded_rows(cu_seqlens, padded.shape[1], num_tokens))
