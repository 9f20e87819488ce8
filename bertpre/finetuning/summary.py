"""The table at the start of a fine-tuning: what is trained on what, and what of it is read."""

import logging
from typing import Any

from bertpre.config.schema import Finetune
from bertpre.finetuning.labelled import LabelledTable
from bertpre.finetuning.tasks import Task

log = logging.getLogger(__name__)

# What the recipe may add, shown where it differs from these values.
_PLAIN = {
    "layer_decay": 1.0,
    "mask_probability": 0.0,
    "label_smoothing": 0.0,
    "class_weights": "none",
    "focal_gamma": 0.0,
    "adversarial_epsilon": 0.0,
    "ema_decay": 0.0,
    "early_stopping": None,
}


def summarise(
    task: Task,
    config: Finetune,
    counts: dict[str, dict[str, int]],
    *,
    device: str,
    precision: str,
) -> dict[str, Any]:
    """Describe what is about to be trained, and warn of what the model will not see.

    Args:
        task: the tables, and the trainings.
        config: complete, nothing left to be derived.
        counts: of each table, see `bertpre.finetuning.batches.EncodedTable.counts`.
        device: where it is trained.
        precision: in which.
    """
    for part, table in task.tables().items():
        _warn(table, counts[part]["empty_rows"])
    _warn_of_idle_stopping(config)
    labels = task.labels
    what = {
        "classification": f"{len(labels.names):,} classes",
        "multi-label": f"{len(labels.names):,} names, any number of them a row",
        "regression": "a number",
    }[labels.kind]
    repeated = {part: _repeated(task, part) for part in ("dev", "test")}
    extras = {name: getattr(config, name) for name in _PLAIN}
    return {
        "task": f"{labels.kind}: {what} ({task.reason})",
        **_rows(task),
        **{f"{part} texts that are trained on too": shown for part, shown in repeated.items()
           if shown},
        "max_seq_length": config.max_seq_length,
        **_reading(config, counts),
        "pooling": config.pooling,
        "weights": "random" if config.from_scratch else "the checkpoint's",
        "learning rate": f"{config.learning_rate:.3g}",
        "epochs": f"{config.num_epochs}, the best by dev {task.metric}",
        "batch size": config.batch_size,
        **{name: value for name, value in extras.items() if value != _PLAIN[name]},
        "device": device,
        "precision": precision,
    }  # fmt: skip


def _warn_of_idle_stopping(config: Finetune) -> None:
    patience, epochs = config.early_stopping, config.num_epochs
    # The first epoch is a gain, and after the last nothing is left to be saved.
    if patience is not None and epochs is not None and epochs < patience + 2:
        log.warning(
            "early_stopping: %d epochs without a gain cannot end a training of %d before its last; "
            "pass --num-epochs %d or more, or leave it out",
            patience,
            epochs,
            patience + 2,
        )


def _warn(table: LabelledTable, num_empty: int) -> None:
    if num_empty:
        log.warning(
            "%s: %d texts have no token that the vocabulary knows of; "
            "the model sees [CLS] [SEP] for them",
            table.name,
            num_empty,
        )
    if table.pairs is not None:
        sides = zip(table.texts, table.pairs, strict=True)
        one_sided = sum(not first.strip() or not second.strip() for first, second in sides)
        if one_sided:
            log.warning("%s: %d pairs have an empty side", table.name, one_sided)


def _rows(task: Task) -> dict[str, str]:
    first, several = task.members[0], len(task.members)
    rows = {part: f"{len(table):,}" for part, table in task.tables().items()}
    if task.with_folds:
        folds = sum(member.seed == first.seed for member in task.members)
        rows["train"] += f", in {folds} folds, of which each scores once"
    elif first.dev_rows is not None:
        rows["train"] = f"{len(first.train_rows):,}"
        rows["dev"] = f"{len(first.dev_rows):,} (held out of the training table)"
    skipped = {part: table.num_skipped for part, table in task.tables().items()}
    shown = {
        f"{part} rows": rows[part] + (f", {skipped[part]:,} left out" if skipped.get(part) else "")
        for part in ("train", "dev", "test")
        if part in rows
    }
    return shown | ({"trainings": f"{several}, averaged in prediction"} if several > 1 else {})


def _reading(config: Finetune, counts: dict[str, dict[str, int]]) -> dict[str, str]:
    total = sum(count["rows"] for count in counts.values())
    cut = sum(count["truncated_rows"] for count in counts.values())
    windowed = sum(count["windowed_rows"] for count in counts.values())
    unknown = sum(count["unknown_tokens"] for count in counts.values())
    tokens = sum(count["text_tokens"] for count in counts.values())
    shown = {"tokens that are [UNK]": f"{unknown:,} ({unknown / max(tokens, 1):.1%})"}
    if config.long_texts == "windows":
        return {"texts in windows": f"{windowed:,} ({windowed / total:.1%})", **shown}
    where = {"head": "at the end", "tail": "at the start", "head-tail": "in the middle"}
    return {f"texts cut {where[config.long_texts]}": f"{cut:,} ({cut / total:.1%})", **shown}


def _repeated(task: Task, part: str) -> str:
    """Say how many rows of a part have a text that is trained on: their scores flatter."""
    table = task.scored_rows() if part == "dev" else task.test
    if table is None or (part == "dev" and task.with_folds):
        return ""
    kept = task.train.take(task.members[0].train_rows)
    seen = set(_rows_as_read(kept))
    count = sum(row in seen for row in _rows_as_read(table))
    return f"{count:,} of {len(table):,}" if count else ""


def _rows_as_read(table: LabelledTable) -> list[tuple[str, str]]:
    return list(zip(table.texts, table.pairs or [""] * len(table), strict=True))
