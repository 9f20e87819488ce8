"""The fine-tuning loop: some epochs over the training rows, the best by the dev rows kept."""

import math
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bertpre.config.schema import Finetune
from bertpre.data.random64 import derive, permute
from bertpre.errors import TrainingError
from bertpre.finetuning.batches import EncodedTable
from bertpre.finetuning.classifier import log_probabilities
from bertpre.finetuning.scores import EpochReport, score
from bertpre.model.heads import BertForSequenceClassification
from bertpre.training.devices import Precision, autocast
from bertpre.training.dropout import seed_dropout
from bertpre.training.optim import build_optimizer, set_learning_rate
from bertpre.training.schedule import linear_warmup_decay

_FEWEST_EPOCHS, _FEWEST_UPDATES = 3, 300


def default_num_epochs(num_rows: int, batch_size: int) -> int:
    """Give the epochs that make a fair number of updates, on small tables more than on large."""
    updates = math.ceil(num_rows / batch_size)
    return max(_FEWEST_EPOCHS, math.ceil(_FEWEST_UPDATES / updates))


def fit(
    model: BertForSequenceClassification,
    train: EncodedTable,
    *,
    dev: EncodedTable,
    config: Finetune,
    learning_rate: float,
    num_epochs: int,
    device: torch.device,
    precision: Precision,
    seed: int,
    on_update: Callable[[int, int], None],
    on_epoch: Callable[[EpochReport], None],
) -> tuple[EpochReport, ...]:
    """Train a classifier; it ends with the weights of its best epoch.

    The best epoch has the highest dev accuracy, of equal ones the lowest dev loss.

    Args:
        model: on ``device``.
        train: rows to learn from.
        dev: rows that choose the epoch.
        config: batch size, warm-up, decay and clipping.
        learning_rate: the peak.
        num_epochs: passes over the rows.
        device: where the model is.
        precision: of the forward pass.
        seed: decides the order of the rows and the dropout.
        on_update: called after each update with those done and their total.
        on_epoch: called after each epoch.

    Returns:
        A report on each epoch.

    Raises:
        TrainingError: the loss is not finite; nothing was updated by it.
    """
    num_rows = len(train.texts)
    num_batches = math.ceil(num_rows / config.batch_size)
    max_steps = num_epochs * num_batches
    warmup_steps = round(config.warmup_ratio * max_steps)
    optimizer = build_optimizer(
        model, learning_rate=learning_rate, weight_decay=config.weight_decay
    )
    history: list[EpochReport] = []
    best_weights: dict[str, Tensor] = {}
    step = 0
    for epoch in range(1, num_epochs + 1):
        model.train()
        order = permute(np.arange(num_rows), num_rows, derive(seed, "fine-tuning order", epoch))
        loss_sum = 0.0
        # Batches of like size: a last batch of one row would move the weights as far as 32 do.
        for rows in np.array_split(order, num_batches):
            factor = linear_warmup_decay(step, warmup_steps=warmup_steps, max_steps=max_steps)
            set_learning_rate(optimizer, learning_rate * factor)
            seed_dropout(seed, step)
            targets = torch.from_numpy(train.targets[rows]).to(device)
            with autocast(device, precision):
                logits = model(train.texts.batch(rows, device))
            loss = F.cross_entropy(logits.float(), targets)
            loss_value = loss.item()
            if not math.isfinite(loss_value):
                raise TrainingError(
                    f"the loss is {loss_value} at update {step + 1} of {max_steps}",
                    "lower --learning-rate, or use --precision fp32",
                )
            torch.autograd.backward(loss)
            torch.nn.utils.clip_grad_norm_(model.parameters(), config.max_grad_norm)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            loss_sum += loss_value * len(rows)
            step += 1
            on_update(step, max_steps)
        found = log_probabilities(model, dev.texts, device=device, precision=precision)
        history.append(EpochReport(epoch, loss_sum / num_rows, score(found, dev.targets)))
        on_epoch(history[-1])
        if best_epoch(history) == epoch:
            best_weights = {
                name: value.to("cpu", copy=True) for name, value in model.state_dict().items()
            }
    model.load_state_dict(best_weights)
    return tuple(history)


def best_epoch(history: list[EpochReport] | tuple[EpochReport, ...]) -> int:
    """Give the number of the epoch that is kept: by dev accuracy, of equal ones by dev loss."""
    best = max(history, key=lambda report: (report.dev.accuracy, -report.dev.loss))
    return best.epoch
