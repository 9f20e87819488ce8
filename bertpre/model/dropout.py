"""Dropout that is cheap on a CPU: drawing the masks there costs more than the layers do."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_LEVELS = 2**16


def dropout(values: Tensor, p: float, *, training: bool) -> Tensor:
    """Set a random share of the values to 0 and scale the others so that the mean stays.

    Args:
        values: any shape.
        p: the share, 0 ≤ p < 1; on a CPU rounded to a multiple of 2**-16.
        training: without it the values come back as they are.

    Source: Srivastava et al. 2014; scaled while training, as in Vaswani et al. 2017, section 5.4.
    """
    if not training or p == 0.0:
        return values
    if values.device.type != "cpu":
        return F.dropout(values, p)
    # PyTorch draws one number for each value, on one thread. Each 64-bit word holds four
    # independent numbers of 16 bits, which is a quarter of the draws and as good a mask.
    count = values.numel()
    words = torch.empty((count + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    numbers = words.view(torch.int16)[:count].view(values.shape)  # -2**15 ... 2**15 - 1
    num_dropped = round(p * _LEVELS)
    keep = numbers >= num_dropped - _LEVELS // 2
    # As bytes, since a product with bool converts it one by one.
    return values * keep.view(torch.uint8) * (_LEVELS / (_LEVELS - num_dropped))


class Dropout(nn.Module):
    """`dropout` as a module, which follows the training mode."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, values: Tensor) -> Tensor:
        """Drop while training; see `dropout`."""
        return dropout(values, self.p, training=self.training)
