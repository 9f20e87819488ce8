"""The fine-tuning loop: some epochs over the training rows, the best by the dev rows kept."""

import contextlib
import logging
import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from bertpre.config.schema import Finetune
from bertpre.data.random64 import derive, permute
from bertpre.errors import TrainingError
from bertpre.finetuning.batches import EncodedTable
from bertpre.finetuning.inference import run_model
from bertpre.finetuning.labels import Labels
from bertpre.finetuning.objective import Objective
from bertpre.finetuning.recipe import (
    RunningAverage,
    build_layered_optimizer,
    hide_tokens,
    moved_against,
    set_rates,
)
from bertpre.finetuning.scores import EpochReport, score
from bertpre.finetuning.splits import Rows
from bertpre.model.flat import FlatTokens
from bertpre.model.heads import BertForSequenceClassification
from bertpre.tokenizer.tokenizer import Tokenizer
from bertpre.training.device import Precision, autocast
from bertpre.training.schedule import linear_warmup_decay
from bertpre.training.step import seed_dropout

log = logging.getLogger(__name__)

_FEWEST_EPOCHS, _FEWEST_UPDATES = 3, 300


class Part(NamedTuple):
    """Some rows of an encoded table.

    Attributes:
        table: all of it.
        rows: which.
    """

    table: EncodedTable
    rows: Rows


def default_num_epochs(num_rows: int, batch_size: int) -> int:
    """Give the epochs that make a fair number of updates, on small tables more than on large."""
    updates = math.ceil(num_rows / batch_size)
    return max(_FEWEST_EPOCHS, math.ceil(_FEWEST_UPDATES / updates))


def fit(
    model: BertForSequenceClassification,
    train: Part,
    *,
    dev: Part,
    labels: Labels,
    objective: Objective,
    tokenizer: Tokenizer,
    config: Finetune,
    learning_rate: float,
    num_epochs: int,
    metric: str,
    device: torch.device,
    precision: Precision,
    seed: int,
    on_update: Callable[[int, int], None],
    on_epoch: Callable[[EpochReport], None],
) -> tuple[EpochReport, ...]:
    """Train a classifier; it ends with the weights of its best epoch.

    Args:
        model: on ``device``.
        train: rows to learn from.
        dev: rows that choose the epoch.
        labels: what the outputs stand for.
        objective: what is minimised.
        tokenizer: of the model.
        config: batch size, warm-up, decay, clipping, and what the recipe adds.
        learning_rate: the peak.
        num_epochs: passes over the rows, fewer if it stops early.
        metric: the dev score that chooses the epoch.
        device: where the model is.
        precision: of the forward pass.
        seed: decides the order of the rows, the windows, the masks and the dropout.
        on_update: called after each update with those done and their total.
        on_epoch: called after each epoch.

    Returns:
        A report on each epoch.

    Raises:
        TrainingError: the loss is not finite; nothing was updated by it.
    """

    def loss_of(batch: FlatTokens, targets: Tensor) -> Tensor:
        with autocast(device, precision):
            logits = model(batch)
        return objective.loss(logits, targets)

    num_batches = math.ceil(len(train.rows) / config.batch_size)
    max_steps = num_epochs * num_batches
    warmup_steps = round(config.warmup_ratio * max_steps)
    optimizer = build_layered_optimizer(
        model, layer_decay=config.layer_decay, weight_decay=config.weight_decay
    )
    average = RunningAverage(model, decay=config.ema_decay) if config.ema_decay > 0 else None
    history: list[EpochReport] = []
    best_weights: dict[str, Tensor] = {}
    step = 0
    for epoch in range(1, num_epochs + 1):
        model.train()
        places = np.arange(len(train.rows))
        order = permute(places, len(places), derive(seed, "fine-tuning order", epoch))
        drawn = train.table.texts.draw(train.rows, derive(seed, "windows", epoch))
        loss_sum = 0.0
        # Batches of like size: a last batch of one row would move the weights as far as 32 do.
        for chosen in np.array_split(order, num_batches):
            hide = None
            if config.mask_probability > 0:
                hide = partial(
                    hide_tokens,
                    tokenizer=tokenizer,
                    probability=config.mask_probability,
                    key=derive(seed, "fine-tuning masks", step),
                )
            batch = train.table.texts.batch(drawn[chosen], device, hide)
            targets = torch.from_numpy(train.table.targets[train.rows[chosen]]).to(device)
            factor = linear_warmup_decay(step, warmup_steps=warmup_steps, max_steps=max_steps)
            set_rates(optimizer, learning_rate * factor)
            seed_dropout(seed, step)
            loss = loss_of(batch, targets)
            loss_value = loss.item()
            if not math.isfinite(loss_value):
                raise TrainingError(
                    f"the loss is {loss_value} at update {step + 1} of {max_steps}",
                    "lower --learning-rate, or use --precision fp32",
                )
            torch.autograd.backward(loss)
            if config.adversarial_epsilon > 0:
                with moved_against(model.bert.embeddings.word, config.adversarial_epsilon):
                    torch.autograd.backward(loss_of(batch, targets))
            torch.nn.utils.clip_grad_norm_(model.parameters(), config.max_grad_norm)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            if average is not None:
                average.update()
            loss_sum += loss_value * len(chosen)
            step += 1
            on_update(step, max_steps)
        with average.in_place() if average is not None else contextlib.nullcontext():
            logits = run_model(model, dev.table.texts, dev.rows, device=device, precision=precision)
            scores = score(labels, objective.readings(logits), dev.table.targets[dev.rows])
            history.append(EpochReport(epoch, loss_sum / len(places), scores))
            on_epoch(history[-1])
            if best_epoch(history, metric) == epoch:
                best_weights = {
                    name: value.to("cpu", copy=True) for name, value in model.state_dict().items()
                }
        best = best_epoch(history, metric)
        if epoch - best >= (config.early_stopping or num_epochs) and epoch < num_epochs:
            log.info(
                "stopped after epoch %d of %d: the dev %s was best in epoch %d",
                epoch,
                num_epochs,
                metric,
                best,
            )
            break
    model.load_state_dict(best_weights)
    return tuple(history)


def best_epoch(history: list[EpochReport] | tuple[EpochReport, ...], metric: str) -> int:
    """Give the number of the epoch that is kept: by a dev score, of equal ones by the dev loss."""

    def goodness(report: EpochReport) -> tuple[float, float]:
        value = report.dev[metric]
        return (-value if metric == "loss" else value, -report.dev["loss"])

    return max(history, key=goodness).epoch
