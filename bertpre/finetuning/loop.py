"""The fine-tuning loop: epochs over the training rows; the best one on the dev rows is kept."""

import contextlib
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from bertpre.config.schema import Finetune
from bertpre.data.random64 import derive, permute
from bertpre.errors import TrainingError
from bertpre.finetuning.batches import EncodedTable, Ids
from bertpre.finetuning.outputs import Objective, Outputs, Targets
from bertpre.finetuning.recipe import (
    RunningAverage,
    build_layered_optimizer,
    hide_tokens,
    moved_against,
    set_rates,
)
from bertpre.finetuning.results import EpochReport
from bertpre.finetuning.running import Placement, Run
from bertpre.finetuning.tables import Rows
from bertpre.finetuning.task import Task, score
from bertpre.model.names import Finetuned
from bertpre.tokenizer.tokenizer import Tokenizer
from bertpre.training.device import autocast
from bertpre.training.schedule import linear_warmup_decay
from bertpre.training.step import seed_dropout

log = logging.getLogger(__name__)


class Part(NamedTuple):
    """An encoded table, and the rows of it that are used."""

    table: EncodedTable
    rows: Rows

    @property
    def targets(self) -> Targets:
        """The training targets of these rows."""
        return self.table.targets[self.rows]


@dataclass(frozen=True, kw_only=True, slots=True)
class Training:
    """Everything that one training run needs.

    Args:
        task: the task of the labels.
        model: on the device of ``placement``.
        objective: the loss.
        train: rows to learn from.
        dev: rows that choose the epoch.
        tokenizer: the model's.
        config: batch size, warm-up, decay, clipping, and the extras of the recipe.
        learning_rate: the peak.
        num_epochs: passes over the rows, unless it stops early.
        metric: the dev score that chooses the epoch.
        placement: device and precision.
        seed: decides the order of the rows, the windows, the masks and the dropout.
    """

    task: Task
    model: Finetuned
    objective: Objective
    train: Part
    dev: Part
    tokenizer: Tokenizer
    config: Finetune
    learning_rate: float
    num_epochs: int
    metric: str
    placement: Placement
    seed: int

    @property
    def updates_per_epoch(self) -> int:
        """Updates per pass over the training rows."""
        return math.ceil(len(self.train.rows) / self.config.batch_size)

    @property
    def max_steps(self) -> int:
        """Updates of all epochs."""
        return self.num_epochs * self.updates_per_epoch

    def predict(self, part: Part, *, task: Task | None = None) -> Outputs:
        """Predict rows with the current model, without dropout; ``task`` says how, if given."""
        run = Run(self.model, part.table.texts)
        return (task or self.task).predict([run], part.rows, placement=self.placement)


def default_num_epochs(num_rows: int, batch_size: int, *, task: Task) -> int:
    """Return a number of epochs that gives enough updates: more of them for small tables."""
    updates = math.ceil(num_rows / batch_size)
    return max(task.fewest_epochs, math.ceil(task.fewest_updates / updates))


def fit(
    training: Training,
    *,
    on_update: Callable[[int, int], None] = lambda step, max_steps: None,
    on_epoch: Callable[[EpochReport], None] = lambda report: None,
) -> tuple[EpochReport, ...]:
    """Train a model and leave it with the weights of its best epoch.

    Args:
        training: the model, its rows and its recipe.
        on_update: called after each update with the updates done and their total.
        on_epoch: called after each epoch.

    Returns:
        A report for each epoch.

    Raises:
        TrainingError: the loss is not finite; it did not update the weights.
    """
    updater, task = _Updater(training), training.task.during_training(training.metric)
    history: list[EpochReport] = []
    best_weights: dict[str, Tensor] = {}
    for epoch in range(1, training.num_epochs + 1):
        train_loss = updater.run_epoch(epoch, on_update)
        with updater.averaged_weights():
            outputs = training.predict(training.dev, task=task)
            scores = score(task, training.objective.in_units(outputs), training.dev.targets)
            history.append(EpochReport(epoch, train_loss, scores))
            on_epoch(history[-1])
            if best_epoch(history, training.metric) == epoch:
                weights = training.model.state_dict()
                best_weights = {name: value.to("cpu", copy=True) for name, value in weights.items()}
        if _stops_early(history, training):
            break
    training.model.load_state_dict(best_weights)
    return tuple(history)


def best_epoch(history: Sequence[EpochReport], metric: str) -> int:
    """Return the epoch with the best dev score; equal ones are ranked by dev loss."""

    def rank(report: EpochReport) -> tuple[float, float]:
        value = report.dev[metric]
        return (-value if metric == "loss" else value, -report.dev["loss"])

    return max(history, key=rank).epoch


def _stops_early(history: Sequence[EpochReport], training: Training) -> bool:
    epoch, best = history[-1].epoch, best_epoch(history, training.metric)
    patience = training.config.early_stopping or training.num_epochs
    if epoch - best < patience or epoch == training.num_epochs:
        return False
    log.info(
        "stopped after epoch %d of %d: the dev %s was best in epoch %d",
        epoch,
        training.num_epochs,
        training.metric,
        best,
    )
    return True


class _Updater:
    """Updates a model on batches of its training rows."""

    def __init__(self, training: Training) -> None:
        self._training = training
        config = training.config
        self._optimizer = build_layered_optimizer(
            training.model,
            learning_rate=training.learning_rate,
            layer_decay=config.layer_decay,
            weight_decay=config.weight_decay,
        )
        self._average = None
        if config.ema_decay > 0:
            self._average = RunningAverage(training.model, decay=config.ema_decay)
        self._step = 0

    def averaged_weights(self) -> contextlib.AbstractContextManager[None]:
        """Use the running average of the weights inside the block, if there is one."""
        return contextlib.nullcontext() if self._average is None else self._average.in_place()

    def run_epoch(self, epoch: int, on_update: Callable[[int, int], None]) -> float:
        """Train on all rows once; return their mean loss."""
        training = self._training
        seed, (table, rows) = training.seed, training.train
        training.model.train()
        order = permute(np.arange(len(rows)), len(rows), derive(seed, "fine-tuning order", epoch))
        windows = derive(seed, "windows", epoch)
        loss_sum = 0.0
        # Equal batches: a last batch of one row would move the weights as far as 32 rows do.
        for chosen in np.array_split(order, training.updates_per_epoch):
            loss = self._update(rows[chosen], windows)
            loss_sum += loss * training.objective.count_units(table.targets[rows[chosen]])
            on_update(self._step, training.max_steps)
        return loss_sum / training.objective.count_units(table.targets[rows])

    def _update(self, rows: Rows, windows: int) -> float:
        """Make one update; return the mean loss. ``windows`` decides what is read of long texts."""
        training, config = self._training, self._training.config
        factor = linear_warmup_decay(
            self._step,
            warmup_steps=round(config.warmup_ratio * training.max_steps),
            max_steps=training.max_steps,
        )
        set_rates(self._optimizer, training.learning_rate * factor)
        batches = self._micro_batches(rows, windows)
        seed_dropout(training.seed, self._step)
        loss = self._add_gradients(batches)
        if config.adversarial_epsilon > 0:
            with moved_against(training.model.bert.embeddings.word, config.adversarial_epsilon):
                self._add_gradients(batches)
        torch.nn.utils.clip_grad_norm_(training.model.parameters(), config.max_grad_norm)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        if self._average is not None:
            self._average.update()
        self._step += 1
        return loss

    def _micro_batches(self, rows: Rows, windows: int) -> list[tuple[Any, Targets]]:
        """Split the rows of an update into batches of one forward pass each."""
        training, config = self._training, self._training.config
        table = training.train.table
        key = derive(training.seed, "fine-tuning masks", self._step)
        size = config.micro_batch_size or len(rows)
        batches = []
        for first in range(0, len(rows), size):

            def hide(ids: Ids, places: Ids, first: int = first) -> Ids:
                # Numbered in the whole update, so that masks do not depend on the split.
                return hide_tokens(
                    ids,
                    first + places,
                    tokenizer=training.tokenizer,
                    probability=config.mask_probability,
                    key=key,
                )

            chosen = rows[first : first + size]
            batch = table.texts.draw_batch(
                chosen,
                windows,
                training.placement.device,
                hide if config.mask_probability > 0 else None,
            )
            batches.append((batch, table.targets[chosen]))
        return batches

    def _add_gradients(self, batches: Sequence[tuple[Any, Targets]]) -> float:
        """Accumulate the gradients of the mean loss; return that loss."""
        training = self._training
        counts = [training.objective.count_units(targets) for _, targets in batches]
        total = 0.0
        for (batch, targets), count in zip(batches, counts, strict=True):
            with autocast(*training.placement):
                loss = training.objective.loss(training.model, batch, targets)
            loss = loss * (count / sum(counts))
            value = loss.item()
            if not math.isfinite(value):
                raise TrainingError(
                    f"the loss is {value} at update {self._step + 1} of {training.max_steps}",
                    "lower --learning-rate, or use --precision fp32",
                )
            torch.autograd.backward(loss)
            total += value
        return total
