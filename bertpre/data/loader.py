"""Batches for the device: the examples of an update in micro-batches, prepared ahead of time."""

from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch

from bertpre.data.dataset import PretrainingData
from bertpre.data.masking import MaskedExamples, MaskSpec
from bertpre.model.flat import Batch, FlatTokens

_STEPS_AHEAD = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Cursor:
    """The position in training, which is all that a resume needs.

    Attributes:
        epoch: completed passes over all examples.
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


def collate(examples: MaskedExamples) -> Batch:
    """Turn arrays into tensors; no padding is added."""
    starts = np.concatenate([[0], np.cumsum(examples.lengths)]).astype(np.int32)
    return Batch(
        tokens=FlatTokens(
            input_ids=torch.from_numpy(examples.input_ids),
            token_type_ids=torch.from_numpy(examples.token_type_ids),
            position_ids=torch.from_numpy(examples.position_ids),
            cu_seqlens=torch.from_numpy(starts),
            max_length=int(examples.lengths.max()),
        ),
        predicted=torch.from_numpy(examples.predicted),
        max_predicted=int(np.diff(np.searchsorted(examples.predicted, starts)).max()),
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

    The examples of an update are sorted by length, so that those of a micro-batch are similar. The
    examples of an update and their masks depend neither on ``micro_batch_size`` nor on ranks.

    Args:
        data: what to read.
        cursor: where to start.
        seed: decides the order and the masks.
        batch_size: returns the examples of the update after a step.
        micro_batch_size: most examples in one batch.
        spec: returns how masks are drawn in the update after a step.
        rank, num_ranks: this process and their number; each gets a slice of every update, with
            sequences of all lengths.
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
