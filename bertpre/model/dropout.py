"""Dropout that is cheap on a CPU: drawing the masks there costs more than the layers do."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_LEVELS = 2**15
# Integers of the same width, whose bits can be cleared.
_INTEGERS = {
    torch.bfloat16: torch.int16,
    torch.float16: torch.int16,
    torch.float32: torch.int32,
    torch.float64: torch.int64,
}


def dropout(values: Tensor, p: float, *, training: bool) -> Tensor:
    """Set a random share of the values to 0 and scale the others so that the mean stays.

    Args:
        values: any shape.
        p: the share, 0 ≤ p < 1; on a CPU rounded to a multiple of 2**-15.
        training: without it the values come back as they are.

    Source: Srivastava et al. 2014; scaled while training, as in Vaswani et al. 2017, section 5.4.
    """
    if not training or p == 0.0:
        return values
    # Compiled code draws its masks on the way, on any device.
    if values.device.type != "cpu" or torch.compiler.is_compiling():
        return F.dropout(values, p)
    num_dropped = min(round(p * _LEVELS), _LEVELS - 1)  # of the levels
    dropped: Tensor = _Dropout.apply(values, num_dropped)  # type: ignore[no-untyped-call]
    return dropped


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, num_dropped: int) -> Tensor:
        mask = _draw_mask(values, num_dropped)
        ctx.save_for_backward(mask)
        ctx.scale = _LEVELS / (_LEVELS - num_dropped)
        return _apply_mask(values, mask, ctx.scale)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (mask,) = ctx.saved_tensors
        return _apply_mask(gradient, mask, ctx.scale), None


def _draw_mask(values: Tensor, num_dropped: int) -> Tensor:
    """Draw integers as wide as the values: all bits 1 to keep one, 0 to drop it."""
    # PyTorch draws one number for each value, on one thread. Each 64-bit word holds four
    # independent numbers of 16 bits, which is a quarter of the draws and as good a mask.
    count = values.numel()
    words = torch.empty((count + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    numbers = words.view(torch.int16)[:count].view(values.shape)
    # 15 bits are the number; below num_dropped, the difference is negative, and shifting its sign
    # over the others makes them all 1. Integers of 16 bits, as bool would be converted one by one.
    numbers.bitwise_and_(_LEVELS - 1).sub_(num_dropped).bitwise_right_shift_(15).bitwise_not_()
    return numbers.to(_INTEGERS[values.dtype])


def _apply_mask(values: Tensor, mask: Tensor, scale: float) -> Tensor:
    kept = values * scale
    kept.view(mask.dtype).bitwise_and_(mask)
    return kept


class Dropout(nn.Module):
    """`dropout` as a module, which follows the training mode."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, values: Tensor) -> Tensor:
        """Drop while training; see `dropout`."""
        return dropout(values, self.p, training=self.training)
