"""Batches for the device: examples of one update, cut into micro-batches, made one step ahead."""

from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from torch import Tensor

from bertpre.data.dataset import Examples, PretrainingData
from bertpre.data.masking import MaskSpec

_STEPS_AHEAD = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """Sequences one after another without padding. N tokens, B sequences, P predicted tokens.

    Attributes:
        input_ids, token_type_ids, position_ids: int64, (N,).
        cu_seqlens: int32, (B + 1,): where each sequence starts, and N.
        max_length: tokens of the longest sequence.
        predicted: int64, (P,): positions in 0..N-1 of predicted tokens.
        mlm_labels: int64, (P,): the ids that stood there.
        nsp_labels: int64, (B,): 0 = B follows A, 1 = random; None without NSP.
    """

    input_ids: Tensor
    token_type_ids: Tensor
    position_ids: Tensor
    cu_seqlens: Tensor
    max_length: int
    predicted: Tensor
    mlm_labels: Tensor
    nsp_labels: Tensor | None

    def to(self, device: torch.device) -> "Batch":
        """Copy to a device; asynchronously from pinned memory."""
        if device.type == "cpu":
            return self
        return self._map(lambda tensor: tensor.to(device, non_blocking=True))

    def pin(self) -> "Batch":
        """Copy to page-locked memory, from which a GPU reads while the CPU goes on."""
        return self._map(Tensor.pin_memory)

    def _map(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        tensors = {
            field.name: change(value)
            for field in fields(self)
            if isinstance(value := getattr(self, field.name), Tensor)
        }
        return replace(self, **tensors)  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True, slots=True)
class Cursor:
    """Where training stands: all there is to know to go on.

    Attributes:
        epoch: passes over all examples that are complete.
        example: place in the epoch's permutation of the next example.
        step: updates done.
    """

    epoch: int = 0
    example: int = 0
    step: int = 0

    def advance(self, examples: int, *, size: int) -> "Cursor":
        """Return the cursor after one update with that many of ``size`` examples."""
        place = self.epoch * size + self.example + examples
        return Cursor(epoch=place // size, example=place % size, step=self.step + 1)


def collate(examples: Examples) -> Batch:
    """Turn arrays into tensors; no padding is added."""
    ends = np.cumsum(examples.lengths, dtype=np.int32)
    return Batch(
        input_ids=torch.from_numpy(examples.input_ids),
        token_type_ids=torch.from_numpy(examples.token_type_ids),
        position_ids=torch.from_numpy(examples.position_ids),
        cu_seqlens=torch.from_numpy(np.concatenate([[0], ends]).astype(np.int32)),
        max_length=int(examples.lengths.max()),
        predicted=torch.from_numpy(examples.predicted),
        mlm_labels=torch.from_numpy(examples.mlm_labels),
        nsp_labels=None if examples.nsp_labels is None else torch.from_numpy(examples.nsp_labels),
    )


def training_batches(
    data: PretrainingData,
    cursor: Cursor,
    *,
    seed: int,
    batch_size: Callable[[int], int],
    micro_batch_size: int,
    spec: Callable[[int], MaskSpec],
    rank: int = 0,
    num_ranks: int = 1,
    pin: bool = False,
) -> Generator[list[Batch]]:
    """Yield the micro-batches of one update after another, without end.

    The examples of an update are sorted by length, so that those of a micro-batch are alike; which
    examples an update has, and their masks, depend neither on ``micro_batch_size`` nor on ranks.

    Args:
        data: what to read.
        cursor: where to start.
        seed: decides the order and the masks.
        batch_size: examples of the update that follows so many steps.
        micro_batch_size: most examples in one batch.
        spec: how masks are drawn in it.
        rank, num_ranks: which of how many processes this is; each gets a slice of every update,
            with sequences of all lengths.
        pin: put the batches in page-locked memory.
    """
    size = len(data.records)

    def make(step: int, place: int) -> list[Batch]:
        epochs, numbers = data.order(place, batch_size(step), seed=seed)
        records = data.records[numbers]
        by_length = np.argsort(
            records["a_length"].astype(np.int64) + records["b_length"], kind="stable"
        )[rank::num_ranks]
        batches = []
        for first in range(0, len(by_length), micro_batch_size):
            chosen = by_length[first : first + micro_batch_size]
            examples = data.training_examples(
                numbers[chosen], epochs=epochs[chosen], seed=seed, spec=spec(step)
            )
            batch = collate(examples)
            batches.append(batch.pin() if pin else batch)
        return batches

    with ThreadPoolExecutor(max_workers=1) as pool:
        waiting: deque[Future[list[Batch]]] = deque()
        step, place = cursor.step, cursor.epoch * size + cursor.example
        while True:
            while len(waiting) < _STEPS_AHEAD:
                waiting.append(pool.submit(make, step, place))
                step, place = step + 1, place + batch_size(step)
            yield waiting.popleft().result()


def held_out_batches(
    data: PretrainingData, *, batch_size: int, rank: int = 0, num_ranks: int = 1
) -> Iterator[Batch]:
    """Yield the held-out examples, or this rank's share of them, always with the same masks."""
    for start in range(rank * batch_size, len(data.held_out), num_ranks * batch_size):
        yield collate(data.held_out_examples(start, batch_size))
