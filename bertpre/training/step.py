"""One update, and one evaluation: the arithmetic of training, without files or progress."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from bertpre.data.loader import Batch
from bertpre.errors import TrainingError
from bertpre.model.heads import BertForPreTraining
from bertpre.training.devices import Precision, autocast
from bertpre.training.dropout import seed_dropout


class Losses(NamedTuple):
    """Means over predictions and over pairs, losses in nats; None without NSP."""

    mlm_loss: float
    mlm_accuracy: float
    nsp_loss: float | None
    nsp_accuracy: float | None


class StepResult(NamedTuple):
    """What an update measured on its own examples, before it.

    Attributes:
        losses: of the global batch.
        grad_norm: global norm of the gradient, before clipping.
        num_tokens: real tokens in the global batch.
    """

    losses: Losses
    grad_norm: float
    num_tokens: int


def train_step(
    model: BertForPreTraining,
    optimizer: torch.optim.Optimizer,
    micro_batches: Sequence[Batch],
    *,
    max_grad_norm: float,
    device: torch.device,
    precision: Precision,
    seed: int,
    step: int,
) -> StepResult:
    """Do one update from the gradient of the global batch.

    Args:
        model, optimizer: what is updated; the learning rate is set already.
        micro_batches: the global batch, in parts that fit on the device.
        max_grad_norm: global norm that the gradient is clipped to.
        device, precision: where and how the forward pass runs.
        seed, step: decide dropout.

    Raises:
        TrainingError: the loss or the gradient is not finite; nothing has been updated.
    """
    model.train()
    sums = accumulate_gradients(
        model, micro_batches, device=device, precision=precision, seed=seed, step=step
    )
    grad_norm = float(nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm))
    losses = _means(sums, micro_batches)
    if not (math.isfinite(grad_norm) and math.isfinite(losses.mlm_loss + (losses.nsp_loss or 0))):
        raise TrainingError(
            f"update {step + 1}: MLM loss {losses.mlm_loss}, NSP loss {losses.nsp_loss}, gradient "
            f"norm {grad_norm}; expected finite numbers; the weights are as before the update",
            "lower pretrain.optimizer.learning_rate, or train with --precision fp32; the last "
            "checkpoint is intact",
        )
    optimizer.step()
    num_tokens = sum(len(batch.input_ids) for batch in micro_batches)
    return StepResult(losses, grad_norm, num_tokens)


def accumulate_gradients(
    model: BertForPreTraining,
    micro_batches: Sequence[Batch],
    *,
    device: torch.device,
    precision: Precision,
    seed: int,
    step: int,
) -> Tensor:
    """Leave the gradient of the global batch's loss in the parameters.

    The loss is a sum over predicted tokens divided by their number in the whole global batch (and
    the same for pairs). A mean of micro-batch means would weigh tokens by their neighbours' number.

    Returns:
        Sums over the global batch, float64, (4,): MLM loss, MLM correct, NSP loss, NSP correct.
    """
    model.zero_grad(set_to_none=True)
    num_predicted = sum(len(batch.mlm_labels) for batch in micro_batches)
    num_pairs = sum(len(batch.cu_seqlens) - 1 for batch in micro_batches)
    sums = torch.zeros(4, dtype=torch.float64, device=device)
    for micro_step, micro_batch in enumerate(micro_batches):
        batch = micro_batch.to(device)
        seed_dropout(seed, step, micro_step)
        with autocast(device, precision):
            loss = model.loss(batch)
        total = loss.mlm_loss_sum / num_predicted
        if loss.nsp_loss_sum is not None:
            total = total + loss.nsp_loss_sum / num_pairs
        total.backward()  # type: ignore[no-untyped-call]
        sums += _as_row(loss)
    return sums


@torch.no_grad()
def evaluate(
    model: BertForPreTraining,
    batches: Iterable[Batch],
    *,
    device: torch.device,
    precision: Precision,
) -> Losses:
    """Measure a model on batches, without dropout; they have at least one example in all."""
    model.eval()
    sums = torch.zeros(4, dtype=torch.float64, device=device)
    shapes = []
    for held_out in batches:
        batch = held_out.to(device)
        with autocast(device, precision):
            sums += _as_row(model.loss(batch))
        shapes.append(held_out)
    return _means(sums, shapes)


def _as_row(loss: object) -> Tensor:
    values = [getattr(loss, name) for name in ("mlm_loss_sum", "mlm_correct")]
    values += [getattr(loss, name) for name in ("nsp_loss_sum", "nsp_correct")]
    zero = torch.zeros((), dtype=torch.float64, device=values[0].device)
    return torch.stack([zero if value is None else value.detach().double() for value in values])


def _means(sums: Tensor, batches: Sequence[Batch]) -> Losses:
    mlm_loss, mlm_correct, nsp_loss, nsp_correct = sums.tolist()
    num_predicted = sum(len(batch.mlm_labels) for batch in batches)
    if batches[0].nsp_labels is None:
        return Losses(mlm_loss / num_predicted, mlm_correct / num_predicted, None, None)
    num_pairs = sum(len(batch.cu_seqlens) - 1 for batch in batches)
    return Losses(
        mlm_loss / num_predicted,
        mlm_correct / num_predicted,
        nsp_loss / num_pairs,
        nsp_correct / num_pairs,
    )
