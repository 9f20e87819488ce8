"""Training one model in several processes: the only module that uses torch.distributed.

``torchrun`` starts them and sets their number in the environment. Each takes a slice of every
global batch; gradients and counts are summed, so that all make the same update.
"""

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn

from bertpre.errors import TrainingError


class Ranks(NamedTuple):
    """The rank of this process and the number of processes; 0 and 1 for a single one."""

    rank: int = 0
    size: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this process is the one that writes and logs."""
        return self.rank == 0

    def sum(self, values: Tensor) -> Tensor:
        """Add up a tensor over all processes, in place."""
        if self.size > 1:
            with self._loss_of_others_named():
                dist.all_reduce(values)
        return values

    def sum_numbers(self, numbers: Sequence[float], device: torch.device) -> list[float]:
        """Add up some numbers over all processes."""
        if self.size == 1:
            return list(numbers)
        tensor = torch.tensor(numbers, dtype=exact_dtype(device), device=device)
        summed: list[float] = self.sum(tensor).tolist()
        return summed

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Add up the gradients over all processes in one message, always in the same order."""
        if self.size == 1:
            return
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        flat = self.sum(torch.cat([gradient.flatten() for gradient in gradients]))
        parts = flat.split([gradient.numel() for gradient in gradients])  # type: ignore[no-untyped-call]
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.view_as(gradient))

    def wait(self) -> None:
        """Wait until every process gets here."""
        if self.size > 1:
            with self._loss_of_others_named():
                dist.barrier()

    @contextlib.contextmanager
    def _loss_of_others_named(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:  # also what gloo and nccl raise when a connection ends
            reason = str(error).strip().splitlines()[0]
            raise TrainingError(
                f"rank {self.rank} of {self.size} processes lost the others: {reason}",
                "the one that ended first may say why; the same command resumes from the last "
                "checkpoint",
            ) from error


ALONE = Ranks()


def exact_dtype(device: torch.device) -> torch.dtype:
    """Return the type for sums of counts: float64, where the device has it."""
    return torch.float32 if device.type == "mps" else torch.float64


def join_ranks(device: torch.device) -> Ranks:
    """Join the processes that torchrun started together with this one, if any.

    Args:
        device: where this process trains; the local rank selects a GPU.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return ALONE
    if device.type == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    if not dist.is_initialized():
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    return Ranks(dist.get_rank(), dist.get_world_size())


def leave_ranks() -> None:
    """Leave the group, so that the others do not wait for this process."""
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()
