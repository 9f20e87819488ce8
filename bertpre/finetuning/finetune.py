"""Fine-tuning as a whole: checkpoint and tables in, scored classifier out.

The tables are checked before PyTorch is imported, so that a wrong one costs no waiting.
"""

import dataclasses
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from bertpre.artefacts import (
    check_output,
    fingerprint,
    fingerprint_file,
    stage_folder,
)
from bertpre.config.load import config_to_dict
from bertpre.config.schema import Finetune
from bertpre.finetuning.baselines import baseline_name, score_baselines
from bertpre.finetuning.results import (
    Event,
    FinetuneResult,
    MemberResult,
    MemberStart,
    Progress,
    mean_readings,
)
from bertpre.finetuning.scores import Scores, choose_thresholds, class_rows, decide, score
from bertpre.finetuning.summary import summarise
from bertpre.finetuning.tasks import METRICS, Member, Task, read_task
from bertpre.training.run_folder import find_checkpoint

if TYPE_CHECKING:
    import torch

    from bertpre.finetuning.batches import EncodedTable
    from bertpre.model.heads import BertForSequenceClassification
    from bertpre.tokenizer.tokenizer import Tokenizer
    from bertpre.training.device import Precision

log = logging.getLogger(__name__)


def finetune(
    checkpoint: str | Path,
    *,
    train: str | Path,
    output: str | Path,
    dev: str | Path | None = None,
    test: str | Path | None = None,
    config: Finetune | None = None,
    seed: int = 0,
    overwrite: bool = False,
    on_event: Callable[[Event], None] = lambda event: None,
) -> FinetuneResult:
    """Train a classifier on labelled rows and write it with its scores.

    Args:
        checkpoint: a checkpoint, a run folder, a fine-tuned model or a Hugging Face BERT folder.
        train: table to learn from; its labels are the classes.
        output: the model folder to write.
        dev: table by which the epoch is chosen; without it a share of the training rows.
        test: table that is only scored.
        config: the recipe; what it leaves open is derived from the checkpoint and the tables.
        seed: decides the split, the order, the new weights and the dropout.
        overwrite: replace a finished model of that name.
        on_event: is sent the summary, the progress, the trainings and their epochs.

    Raises:
        BertpreError: the output exists, a table or the checkpoint is at fault, or the loss
            stopped being finite. Nothing is left at ``output`` then.
    """
    config, output = config or Finetune(), Path(output)
    check_output(output, kind="model", overwrite=overwrite)
    folder = find_checkpoint(checkpoint)
    task = read_task(train, dev=dev, test=test, config=config, seed=seed)
    # From here on with PyTorch.
    from bertpre.finetuning.batches import warn_of_unknown
    from bertpre.finetuning.classifier import (
        default_learning_rate,
        pick_training_precision,
        read_start,
    )
    from bertpre.finetuning.loop import default_num_epochs
    from bertpre.finetuning.model_folder import ModelWriter
    from bertpre.training.device import keep_freed_memory, pick_device

    device = pick_device(config.device)
    precision = pick_training_precision(config.precision, device)
    if device.type == "cpu":
        keep_freed_memory()
    start = read_start(folder, config=config)
    num_rows = len(task.members[0].train_rows)
    config = dataclasses.replace(
        cast(Any, config),
        task=task.labels.kind,
        metric=task.metric,
        learning_rate=config.learning_rate or default_learning_rate(start.shape.hidden_size),
        num_epochs=config.num_epochs or default_num_epochs(num_rows, config.batch_size),
        max_seq_length=start.encoder.max_seq_length,
        pooling=start.pooling,
    )
    facts = {
        "options": config_to_dict(config),
        "seed": seed,
        "precision": precision,
        "from": start.fingerprint,
        "tables": {
            part: fingerprint_file(Path(path))
            for part, path in (("train", train), ("dev", dev), ("test", test))
            if path is not None
        },
    }
    with stage_folder(
        output, kind="model", overwrite=overwrite, identity=fingerprint(facts)
    ) as work:
        tables = {}
        for part, table in task.tables().items():
            tell_rows = partial(_tell, on_event, "tokenising", "rows", total=len(table))
            tables[part] = start.encoder.table(table, task.labels, on_rows=tell_rows)
        counts = {part: table.counts() for part, table in tables.items()}
        for encoded in tables.values():
            warn_of_unknown(encoded.texts.num_unknown, encoded.texts.num_tokens)
        on_event(summarise(task, config, counts, device=str(device), precision=precision))
        writer = ModelWriter(work, task=task, start=start, facts={**facts, "counts": counts})
        baselines = score_baselines(task, config)
        members = []
        for number, member in enumerate(task.members, start=1):
            if len(task.members) > 1:
                on_event(MemberStart(member.name, number, len(task.members)))
            model = start.build(
                num_outputs=len(task.labels.names), seed=member.seed, is_told=number == 1
            ).to(device)
            members.append(
                _train(
                    model,
                    member,
                    task=task,
                    tables=tables,
                    tokenizer=start.encoder.tokenizer,
                    config=config,
                    device=device,
                    precision=precision,
                    on_event=on_event,
                )
            )
            writer.write_model(model, members[-1])
        result = _combine(output, task, tuple(members), baselines)
        _warn_if_not_worth_it(result, task, config)
        writer.finish(result)
    return result


def _train(
    model: "BertForSequenceClassification",
    member: Member,
    *,
    task: Task,
    tables: dict[str, "EncodedTable"],
    tokenizer: "Tokenizer",
    config: Finetune,
    device: "torch.device",
    precision: "Precision",
    on_event: Callable[[Event], None],
) -> MemberResult:
    from bertpre.finetuning.inference import run_model
    from bertpre.finetuning.loop import Part, best_epoch, fit
    from bertpre.finetuning.objective import make_objective, read_logits

    labels, kept = task.labels, Part(tables["train"], member.train_rows)
    if member.dev_rows is not None:
        dev = Part(tables["train"], member.dev_rows)
    else:
        dev = Part(tables["dev"], np.arange(len(tables["dev"].texts)))
    objective = make_objective(labels, kept.table.targets[kept.rows], config, device)
    history = fit(
        model,
        kept,
        dev=dev,
        labels=labels,
        objective=objective,
        tokenizer=tokenizer,
        config=config,
        learning_rate=cast(float, config.learning_rate),
        num_epochs=cast(int, config.num_epochs),
        metric=task.metric,
        device=device,
        precision=precision,
        seed=member.seed,
        on_update=partial(_tell, on_event, "training", "updates"),
        on_epoch=on_event,
    )
    objective.finish(model.classifier)
    parts = {"dev": dev}
    if "test" in tables:
        parts["test"] = Part(tables["test"], np.arange(len(tables["test"].texts)))
    readings = {
        part: read_logits(
            labels.kind,
            run_model(model, table.texts, rows, device=device, precision=precision),
        )
        for part, (table, rows) in parts.items()
    }
    targets = {part: table.targets[rows] for part, (table, rows) in parts.items()}
    thresholds = None
    if labels.kind == "multi-label":
        thresholds = choose_thresholds(readings["dev"], targets["dev"])
    return MemberResult(
        name=member.name,
        seed=member.seed,
        best_epoch=best_epoch(history, task.metric),
        history=history,
        readings=readings,
        scores={
            part: score(labels, readings[part], targets[part], thresholds) for part in readings
        },
        thresholds=thresholds,
    )


def _combine(
    output: Path,
    task: Task,
    members: tuple[MemberResult, ...],
    baselines: dict[str, dict[str, Scores]],
) -> FinetuneResult:
    labels, thresholds = task.labels, None
    tables = {"dev": task.scored_rows()} | ({} if task.test is None else {"test": task.test})
    targets = {part: labels.targets(table.labels) for part, table in tables.items()}
    readings = {part: mean_readings(task, members, part) for part in tables}
    if labels.kind == "multi-label":
        thresholds = choose_thresholds(readings["dev"], targets["dev"])
    scores = {part: score(labels, readings[part], targets[part], thresholds) for part in tables}
    return FinetuneResult(
        output=output,
        labels=labels,
        dev=scores["dev"],
        test=scores.get("test"),
        readings=readings,
        class_rows={
            part: class_rows(labels, decide(labels.kind, readings[part], thresholds), targets[part])
            for part in tables
        },
        thresholds=thresholds,
        members=members,
        baselines=baselines,
    )


def _warn_if_not_worth_it(result: FinetuneResult, task: Task, config: Finetune) -> None:
    metric = METRICS[task.labels.kind][0] if task.metric == "loss" else task.metric
    without = {name: scores["dev"][metric] for name, scores in result.baselines.items()}
    best = max(without, key=lambda name: without[name])
    if result.dev[metric] > without[best]:
        return
    ways_out = "more pretraining on such text, more epochs or another learning rate may help"
    if task.train.pairs is not None and config.pooling != "compare":
        ways_out += "; of pairs, --pooling compare often does"
    log.warning(
        "the network was not worth it here: its dev %s is %.3f, no better than the %.3f without "
        "one (%s); %s",
        metric,
        result.dev[metric],
        without[best],
        baseline_name(best, task.labels.kind),
        ways_out,
    )


def _tell(on_event: Callable[[Event], None], stage: str, unit: str, done: int, total: int) -> None:
    on_event(Progress(stage, unit, done, total))
