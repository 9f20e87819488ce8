"""One update, and one evaluation: the arithmetic of training, without files or progress."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from bertpre.data.random64 import derive
from bertpre.errors import TrainingError
from bertpre.model.flat import Batch
from bertpre.model.heads import BertForPreTraining, PretrainingLoss
from bertpre.training.device import Precision, autocast
from bertpre.training.distributed import ALONE, Ranks, exact_dtype
from bertpre.training.optim import PretrainingOptimizer

_MOST_SKIPPED = 20  # fp16 updates in a row that may overflow
_GROW_AFTER = 2000  # updates without overflow


def seed_dropout(seed: int, *integers: int) -> None:
    """Seed the default generators of all devices for one forward pass.

    The state before each pass depends only on its place in the run, so an exact resume needs no
    saved generator state.

    Args:
        seed: the experiment's seed.
        integers: the place in the run: step, micro-step, rank.
    """
    torch.manual_seed(derive(seed, "dropout", *integers))


@dataclass(frozen=True, kw_only=True, slots=True)
class LossScale:
    """The factor on the loss in fp16, so that small gradients do not vanish.

    Attributes:
        value: the factor, a power of two.
        good_updates: since it last changed.
        skipped: updates that were skipped because their gradients overflowed.
        skipped_in_a_row: the most recent of these, without an update between them.

    Source: Micikevicius et al. 2018, section 3.2.
    """

    value: float = 2.0**16
    good_updates: int = 0
    skipped: int = 0
    skipped_in_a_row: int = 0

    def after(self, *, is_finite: bool) -> "LossScale":
        """Return the scale of the next update."""
        if not is_finite:
            return LossScale(
                value=self.value / 2,
                skipped=self.skipped + 1,
                skipped_in_a_row=self.skipped_in_a_row + 1,
            )
        if self.good_updates + 1 == _GROW_AFTER:
            return LossScale(value=self.value * 2, skipped=self.skipped)
        return replace(self, good_updates=self.good_updates + 1, skipped_in_a_row=0)


class Losses(NamedTuple):
    """Means over predictions and pairs, losses in nats; None without NSP."""

    mlm_loss: float
    mlm_accuracy: float
    nsp_loss: float | None
    nsp_accuracy: float | None


class Sums(NamedTuple):
    """Sums over some batches.

    Attributes:
        values: (4,), float64 where the device has it: MLM loss, MLM correct, NSP loss, NSP correct.
        num_predicted: tokens that were predicted.
        num_pairs: 0 without next-sentence prediction.
        num_tokens: real tokens.
    """

    values: Tensor
    num_predicted: int
    num_pairs: int
    num_tokens: int

    def means(self) -> Losses:
        """Divide by the counts."""
        mlm_loss, mlm_correct, nsp_loss, nsp_correct = self.values.tolist()
        mlm = mlm_loss / self.num_predicted, mlm_correct / self.num_predicted
        if self.num_pairs == 0:
            return Losses(*mlm, None, None)
        return Losses(*mlm, nsp_loss / self.num_pairs, nsp_correct / self.num_pairs)


class StepResult(NamedTuple):
    """Measurements on the examples of an update, before the update.

    Attributes:
        losses: of the global batch.
        grad_norm: global norm of the gradient, before clipping.
        num_tokens: real tokens in the global batch.
        loss_scale: of the next update; None except in fp16.
    """

    losses: Losses
    grad_norm: float
    num_tokens: int
    loss_scale: LossScale | None


def train_step(
    model: BertForPreTraining,
    optimizer: PretrainingOptimizer,
    micro_batches: Sequence[Batch],
    *,
    max_grad_norm: float,
    device: torch.device,
    precision: Precision,
    seed: int,
    step: int,
    ranks: Ranks = ALONE,
    loss_scale: LossScale | None = None,
) -> StepResult:
    """Do one update from the gradient of the global batch.

    Args:
        model, optimizer: to be updated; the learning rate is set already.
        micro_batches: this process's share of the global batch, in parts that fit on the device.
        max_grad_norm: global norm that the gradient is clipped to.
        device, precision: of the forward pass.
        seed, step: decide dropout.
        ranks: the processes that make this update together.
        loss_scale: of this update, in fp16.

    Raises:
        TrainingError: the loss or the gradient is not finite; nothing has been updated. In fp16 an
            overflow of the gradient only skips the update, unless it happens 20 times in a row.
    """
    model.train()
    sums = accumulate_gradients(
        model,
        micro_batches,
        device=device,
        precision=precision,
        seed=seed,
        step=step,
        ranks=ranks,
        scale=1.0 if loss_scale is None else loss_scale.value,
    )
    grad_norm = float(nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm))
    losses = sums.means()
    is_loss_finite = math.isfinite(losses.mlm_loss + (losses.nsp_loss or 0))
    if loss_scale is not None and is_loss_finite:
        loss_scale = loss_scale.after(is_finite=math.isfinite(grad_norm))
        if 0 < loss_scale.skipped_in_a_row < _MOST_SKIPPED:
            return StepResult(losses, grad_norm, sums.num_tokens, loss_scale)
    if not (is_loss_finite and math.isfinite(grad_norm)):
        raise TrainingError(
            f"update {step + 1}: MLM loss {losses.mlm_loss}, NSP loss {losses.nsp_loss}, gradient "
            f"norm {grad_norm}; expected finite numbers; the weights are as before the update",
            ("" if precision == "fp32" else "continue with --precision fp32, or ")
            + "start another run with a lower pretrain.optimizer.learning_rate, from this run's "
            "checkpoints with --init-from if they are still good; they are intact",
        )
    optimizer.step()
    return StepResult(losses, grad_norm, sums.num_tokens, loss_scale)


def accumulate_gradients(
    model: BertForPreTraining,
    micro_batches: Sequence[Batch],
    *,
    device: torch.device,
    precision: Precision,
    seed: int,
    step: int,
    ranks: Ranks = ALONE,
    scale: float = 1.0,
) -> Sums:
    """Compute the gradient of the global batch's loss, in the parameters' ``grad``.

    The loss is a sum over predicted tokens divided by their number in the whole global batch, and
    the same for pairs. A mean of micro-batch means would give tokens unequal weights.

    Args:
        model, micro_batches, device, precision, seed, step, ranks: see `train_step`.
        scale: a temporary factor on the loss, against underflow.
    """
    model.zero_grad(set_to_none=True)
    num_predicted, num_pairs, num_tokens = ranks.sum_numbers(_counts(micro_batches), device)
    sums = torch.zeros(4, dtype=exact_dtype(device), device=device)
    for micro_step, micro_batch in enumerate(micro_batches):
        batch = micro_batch.to(device)
        seed_dropout(seed, step, micro_step, ranks.rank)
        with autocast(device, precision):
            loss = model.loss(batch)
        total = loss.mlm_loss_sum / num_predicted
        if loss.nsp_loss_sum is not None:
            total = total + loss.nsp_loss_sum / num_pairs
        (total * scale).backward()  # type: ignore[no-untyped-call]
        _add(loss, sums)
    ranks.sum_gradients(model.parameters())
    if scale != 1:
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.grad /= scale
    return Sums(ranks.sum(sums), int(num_predicted), int(num_pairs), int(num_tokens))


@torch.no_grad()
def evaluate(
    model: BertForPreTraining,
    batches: Iterable[Batch],
    *,
    device: torch.device,
    precision: Precision,
    ranks: Ranks = ALONE,
    should_stop: Callable[[], bool] = lambda: False,
) -> Losses | None:
    """Evaluate a model on batches, which have at least one example, without dropout.

    Args:
        model: is put into evaluation mode.
        batches: of this process.
        device, precision: where and how to compute.
        ranks: processes whose batches are combined.
        should_stop: called after each batch in a single process.

    Returns:
        None if stopped. Several processes always finish: they have different numbers of batches,
        so they could not decide together.
    """
    model.eval()
    sums = torch.zeros(4, dtype=exact_dtype(device), device=device)
    counts = [0.0, 0.0, 0.0]
    for batch in batches:
        with autocast(device, precision):
            _add(model.loss(batch.to(device)), sums)
        counts = [before + now for before, now in zip(counts, _counts([batch]), strict=True)]
        if ranks.size == 1 and should_stop():
            return None
    num_predicted, num_pairs, num_tokens = ranks.sum_numbers(counts, device)
    return Sums(ranks.sum(sums), int(num_predicted), int(num_pairs), int(num_tokens)).means()


def _counts(batches: Sequence[Batch]) -> list[float]:
    """Count predictions, labelled pairs and tokens."""
    pairs = [batch.nsp_labels for batch in batches if batch.nsp_labels is not None]
    return [
        float(sum(len(batch.mlm_labels) for batch in batches)),
        float(sum(map(len, pairs))),
        float(sum(len(batch.tokens.input_ids) for batch in batches)),
    ]


def _add(loss: PretrainingLoss, sums: Tensor) -> None:
    """Add a batch's loss to the sums; without pairs, the last two are absent."""
    values = [value.detach().to(sums.dtype) for value in loss if value is not None]
    sums[: len(values)] += torch.stack(values)
