"""Two operations with hand-written gradients, as PyTorch's own versions are slower.

The loss over the vocabulary passes its scores, the largest tensor in training, through memory once.
Dropout on a CPU draws one random word for four values.

Size letters: P predicted tokens, D hidden_size, V vocab_size.
"""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

# Scores are processed in blocks of this many, so that they stay in a CPU's cache.
_BLOCK_SCORES = {"cpu": 2**19}
_BLOCK_SCORES_ELSEWHERE = 2**27

_ROWS_MULTIPLE = 64  # which matrix units prefer


def linear_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor,
    labels: Tensor,
    *,
    label_smoothing: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Score every vocabulary entry and compute the loss, in one step.

    The scores become their own gradient in place. Products use the precision of autocast, sums of
    exponentials fp32: in bf16 they are 1 % off.

    Args:
        hidden: (P, D), perhaps with more rows at the end, which have no label.
        weight: (V, D).
        bias: (V,).
        labels: (P,) int64.
        label_smoothing: share of each target to spread over the vocabulary, in [0, 1).

    Returns:
        The sum of the losses, fp32, and the number of labels with the highest score, int64.
    """
    device = hidden.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
    vocab_size = len(weight)
    missing = -vocab_size % _ROWS_MULTIPLE
    if missing:  # rows whose probability is 0
        weight = F.pad(weight, (0, 0, 0, missing))
        bias = F.pad(bias, (0, missing), value=-torch.inf)
    found: tuple[Tensor, Tensor] = _LinearCrossEntropy.apply(  # type: ignore[no-untyped-call]
        hidden.to(dtype), weight.to(dtype), bias.to(dtype), labels, vocab_size, label_smoothing
    )
    return found


def cross_entropy(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Sum the losses of logits (P, C) in fp32, and count the labels with the highest score."""
    scores = logits.float()
    loss_sum = F.cross_entropy(scores, labels, reduction="sum")
    return loss_sum, (scores.argmax(dim=-1) == labels).sum()


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor,
        labels: Tensor,
        vocab_size: int,
        label_smoothing: float,
    ) -> tuple[Tensor, Tensor]:
        logits = F.linear(hidden, weight, bias)  # (P, D) -> (P, V)
        with_gradient = any(ctx.needs_input_grad)
        block = _BLOCK_SCORES.get(hidden.device.type, _BLOCK_SCORES_ELSEWHERE)
        block_rows = max(1, block // logits.shape[1])
        loss_sum = torch.zeros((), device=hidden.device)
        num_correct = torch.zeros((), dtype=torch.int64, device=hidden.device)
        for start in range(0, len(labels), block_rows):
            row_labels = labels[start : start + block_rows]
            rows = logits[start : start + len(row_labels)]
            scores = rows.float()
            highest, best = scores.max(dim=1, keepdim=True)
            wanted = row_labels[:, None]
            num_correct += (best == wanted).sum()
            probabilities = scores.softmax(dim=1)
            # log of the sum of exponentials; the best entry has a probability of at least 1 / V
            log_sums = highest - probabilities.gather(1, best).log()
            loss_sum += (log_sums - scores.gather(1, wanted)).sum()
            if label_smoothing > 0:
                # From the score of the label to the mean score, of the rows that are no filler.
                means = scores[:, :vocab_size].mean(dim=1, keepdim=True)
                loss_sum += label_smoothing * (scores.gather(1, wanted) - means).sum()
                probabilities[:, :vocab_size] -= label_smoothing / vocab_size
            if with_gradient:  # of the logits: the probabilities, minus 1 at the label
                share = torch.full_like(log_sums, label_smoothing - 1)
                probabilities.scatter_add_(1, wanted, share)
                rows.copy_(probabilities)
        logits[len(labels) :] = 0
        ctx.save_for_backward(hidden, weight, logits)
        ctx.mark_non_differentiable(num_correct)
        return loss_sum, num_correct

    @staticmethod
    def backward(
        ctx: Any, grad_loss_sum: Tensor, _grad_num_correct: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, None, None, None]:
        hidden, weight, grad_logits = ctx.saved_tensors
        grad_hidden = (grad_logits @ weight) * grad_loss_sum
        grad_weight = (grad_logits.t() @ hidden) * grad_loss_sum
        # The sum is formed in fp32 and then rounded; asking for fp32 would first copy all scores.
        grad_bias = grad_logits.sum(dim=0).float() * grad_loss_sum
        return grad_hidden, grad_weight, grad_bias.to(grad_logits.dtype), None, None, None


_LEVELS = 2**15
# Integers of the same width, to clear bits.
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
        training: if false, return the values unchanged.

    Source: Srivastava et al. 2014; scaled while training, as in Vaswani et al. 2017, section 5.4.
    """
    if not training or p == 0.0:
        return values
    # Compiled code draws masks itself, on any device.
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
    # PyTorch draws one number per value, on one thread. A 64-bit word holds four independent
    # numbers of 16 bits, so this takes a quarter of the draws; and this generator, whose seed
    # PyTorch draws, takes half the time.
    count = values.numel()
    seed = int(torch.empty((), dtype=torch.int64).random_())
    generator = np.random.Generator(np.random.SFC64(seed))
    words = torch.from_numpy(generator.integers(-(2**63), 2**63, (count + 3) // 4))
    numbers = words.view(torch.int16)[:count].view(values.shape)
    # Below num_dropped the difference is negative, and shifting its sign over the other bits sets
    # them all. Not bool, which would be converted value by value.
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
