"""Batches without padding: the real tokens of all sequences in one row, and conversion to (B, T).

``cu_seqlens`` (cumulative sequence lengths) are the starts of the sequences: sequence ``i`` is
``values[cu_seqlens[i]:cu_seqlens[i + 1]]``. Size letters: B batch, T tokens, N real tokens.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class FlatTokens:
    """Concatenated sequences without padding, the input of the encoder.

    Attributes:
        input_ids: (N,) int64.
        token_type_ids: (N,) int64, the segment of each token, below type_vocab_size.
        position_ids: (N,) int64, from 0 within each sequence.
        cu_seqlens: (B + 1,) int32, where each sequence starts, and N.
        max_length: length of the longest sequence.
    """

    input_ids: Tensor
    token_type_ids: Tensor
    position_ids: Tensor
    cu_seqlens: Tensor
    max_length: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """Sequences for pretraining and the P tokens to predict.

    Attributes:
        tokens: the sequences, with masks.
        predicted: (P,) int64, the places of the predicted tokens in 0..N-1, ascending.
        max_predicted: the most of one sequence.
        mlm_labels: (P,) int64, the original ids.
        nsp_labels: (B,) int64, 0 = B follows A, 1 = random (or 0 = in order, 1 = swapped); None
            without such pairs.
    """

    tokens: FlatTokens
    predicted: Tensor
    max_predicted: int
    mlm_labels: Tensor
    nsp_labels: Tensor | None

    def to(self, device: torch.device) -> "Batch":
        """Copy to a device; asynchronously from pinned memory."""
        if device.type == "cpu":
            return self
        return self._map(lambda tensor: tensor.to(device, non_blocking=True))

    def pin(self) -> "Batch":
        """Copy to page-locked memory, from which a GPU reads asynchronously."""
        return self._map(Tensor.pin_memory)

    def _map(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        return Batch(
            tokens=FlatTokens(
                input_ids=change(self.tokens.input_ids),
                token_type_ids=change(self.tokens.token_type_ids),
                position_ids=change(self.tokens.position_ids),
                cu_seqlens=change(self.tokens.cu_seqlens),
                max_length=self.tokens.max_length,
            ),
            predicted=change(self.predicted),
            max_predicted=self.max_predicted,
            mlm_labels=change(self.mlm_labels),
            nsp_labels=None if self.nsp_labels is None else change(self.nsp_labels),
        )


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


class Wanted(NamedTuple):
    """The R tokens of a flat batch whose output is wanted; the last layer computes no others.

    Attributes:
        places: (R,) int64 in 0..N-1, ascending.
        cu_seqlens: (B + 1,) int32, where those of each sequence start, and R.
        max_length: the most of one sequence.
    """

    places: Tensor
    cu_seqlens: Tensor
    max_length: int

    @classmethod
    def at(cls, places: Tensor, batch: FlatTokens, *, most: int) -> "Wanted":
        """Want the tokens at ascending places (R,), at most so many of one sequence."""
        starts = torch.searchsorted(places, batch.cu_seqlens.long())
        return cls(places, starts.int(), most)

    @classmethod
    def none(cls, batch: FlatTokens) -> "Wanted":
        """Want no token but those that a pooler reads."""
        return cls(batch.cu_seqlens.new_empty(0).long(), torch.zeros_like(batch.cu_seqlens), 0)

    @classmethod
    def first(cls, batch: FlatTokens) -> "Wanted":
        """Want [CLS] of each sequence."""
        starts = batch.cu_seqlens[:-1].long()
        return cls(starts, torch.arange(len(starts) + 1, device=starts.device).int(), 1)

    def with_first(self, batch: FlatTokens) -> tuple["Wanted", Tensor]:
        """Want [CLS] of each sequence, too; none may be wanted already.

        Returns:
            The B + R tokens, and the numbers (R,) of the R among them.
        """
        counts = torch.arange(len(batch.cu_seqlens), device=self.places.device)
        sequences = torch.searchsorted(batch.cu_seqlens[1:].long(), self.places, right=True)
        numbers = torch.arange(len(self.places), device=self.places.device) + sequences + 1
        starts = self.cu_seqlens + counts
        places = self.places.new_empty(len(self.places) + len(counts) - 1)
        places = places.index_copy(0, starts[:-1], batch.cu_seqlens[:-1].long())
        places = places.index_copy(0, numbers, self.places)
        return Wanted(places, starts.int(), self.max_length + 1), numbers


class Layout(NamedTuple):
    """The map between a flat and a padded batch; made once for all layers.

    Attributes:
        cu_seqlens: (B + 1,) int32, where each sequence starts, and N.
        longest: length of the longest sequence.
        num_tokens: N, the real tokens.
        num_rows: N, on a CPU plus a few rows of filler.
        batch_size: B.
        max_length: T, of the padded batch.
        rows: (num_rows,) int64, each token's row in a padded batch viewed as (B * T, ...); filler
            points at row 0. None if every sequence has T tokens, so that padding is a view.
        keep: (B, T) bool, true at real tokens; None if all are.
        has_flash: whether the device has flash attention over flat sequences, which compiled code
            cannot find out.
    """

    cu_seqlens: Tensor
    longest: int
    num_tokens: int
    num_rows: int
    batch_size: int
    max_length: int
    rows: Tensor | None
    keep: Tensor | None
    has_flash: bool

    def pad(self, values: Tensor) -> Tensor:
        """Lay flat values (num_rows, ...) out as (B, T, ...), zeros at the padding."""
        if self.rows is None:
            return values.view(self.batch_size, self.max_length, *values.shape[1:])
        # index_copy and index_select have deterministic backward passes.
        padded = values.new_zeros(self.batch_size * self.max_length, *values.shape[1:])
        padded = padded.index_copy(0, self.rows[: self.num_tokens], values[: self.num_tokens])
        return padded.view(self.batch_size, self.max_length, *values.shape[1:])

    def unpad(self, padded: Tensor) -> Tensor:
        """Undo `pad`: (B, T, ...) to (num_rows, ...)."""
        flat = padded.flatten(0, 1)
        return flat if self.rows is None else flat.index_select(0, self.rows)


def make_layout(cu_seqlens: Tensor, *, num_tokens: int, max_length: int) -> Layout:
    """Compute the layout of a batch.

    Args:
        cu_seqlens: (B + 1,) int32, where each sequence starts, and N.
        num_tokens: N, an argument to avoid a transfer from the GPU.
        max_length: length of the longest sequence.
    """
    device, batch_size = cu_seqlens.device, len(cu_seqlens) - 1
    num_rows, longest = num_tokens, max_length
    if device.type == "cpu":
        num_rows = round_up(num_tokens)
        if num_tokens != batch_size * max_length:
            max_length = -(-max_length // 8) * 8
    rows = keep = None
    if not num_tokens == num_rows == batch_size * max_length:
        lengths = cu_seqlens.diff()
        shifts = torch.arange(batch_size, device=device) * max_length - cu_seqlens[:-1].long()
        shift_of_token = torch.repeat_interleave(shifts, lengths, output_size=num_tokens)
        rows = torch.arange(num_tokens, device=device) + shift_of_token
        rows = F.pad(rows, (0, num_rows - num_tokens))
        if num_tokens != batch_size * max_length:
            keep = torch.arange(max_length, device=device) < lengths[:, None]
    return Layout(
        cu_seqlens=cu_seqlens,
        longest=longest,
        num_tokens=num_tokens,
        num_rows=num_rows,
        batch_size=batch_size,
        max_length=max_length,
        rows=rows,
        keep=keep,
        has_flash=has_flash_attention(device),
    )


def layout_of(batch: FlatTokens) -> Layout:
    """Compute the layout of a flat batch."""
    return make_layout(
        batch.cu_seqlens, num_tokens=len(batch.input_ids), max_length=batch.max_length
    )


def has_flash_attention(device: torch.device) -> bool:
    """Return whether a device has flash attention over flat sequences, without padding.

    It exists for NVIDIA GPUs from compute capability 8.0.
    """
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)


def round_up(count: int) -> int:
    """Round a number of rows up by at most 3 % (or 7), so that few different numbers occur.

    A CPU's matrix library compiles and keeps code for each shape. Without padding, no two batches
    have the same number of tokens, which took gigabytes and a tenth of the time.
    """
    multiple = max(8, 1 << max(0, (count // 32).bit_length() - 1))
    return -(-count // multiple) * multiple


def add_filler(values: Tensor, num_rows: int) -> Tensor:
    """Append rows of zeros: (N, ...) to (num_rows, ...)."""
    missing = num_rows - len(values)
    return torch.cat([values, values.new_zeros(missing, *values.shape[1:])]) if missing else values
