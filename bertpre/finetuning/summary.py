"""The summary at the start of fine-tuning: data, recipe and device."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bertpre.config.finetuning import TASK_OPTIONS
from bertpre.config.schema import Finetune
from bertpre.finetuning.plan import Plan
from bertpre.finetuning.tables import LabelledTable

if TYPE_CHECKING:
    from bertpre.finetuning.batches import EncodedTable
    from bertpre.finetuning.running import Placement

log = logging.getLogger(__name__)

# Extras of the recipe, shown if they differ from the defaults.
_EXTRAS = (
    *("layer_decay", "mask_probability", "label_smoothing", "class_weights", "focal_gamma"),
    *("adversarial_epsilon", "ema_decay", "early_stopping"),
    *(name for names in TASK_OPTIONS.values() for name in names),
)


def summarize(
    plan: Plan,
    config: Finetune,
    encoded: Mapping[str, "EncodedTable"],
    placement: "Placement",
) -> dict[str, Any]:
    """Describe the training, and warn of texts that the model cannot see.

    Args:
        plan: the tables and the training runs.
        config: with all defaults resolved.
        encoded: the encoded tables by part.
        placement: where the model is trained.
    """
    for part, table in plan.tables().items():
        _warn(table, encoded[part].texts.num_empty)
    _warn_of_idle_stopping(config)
    repeated = {part: _repeated(plan, part, table) for part, table in plan.scored_tables().items()}
    extras, defaults = {name: getattr(config, name) for name in _EXTRAS}, Finetune()
    return {
        "task": f"{plan.task.name}: {plan.task.describe()} ({plan.reason})",
        **_rows(plan),
        **{f"{part} texts also in training": shown for part, shown in repeated.items() if shown},
        "max_seq_length": config.max_seq_length,
        **_reading(config, list(encoded.values())),
        **plan.task.facts(),
        **({"pooling": config.pooling} if plan.task.pools else {}),
        "weights": "random" if config.from_scratch else "the checkpoint's",
        "learning rate": f"{config.learning_rate:.3g}",
        "epochs": f"{config.num_epochs}, keeping the best by dev {plan.metric}",
        "batch size": config.batch_size,
        **{name: value for name, value in extras.items() if value != getattr(defaults, name)},
        "device": str(placement.device),
        "precision": placement.precision,
    }  # fmt: skip


def _warn_of_idle_stopping(config: Finetune) -> None:
    patience, epochs = config.early_stopping, config.num_epochs
    # The first epoch always improves, and stopping after the last saves nothing.
    if patience is not None and epochs is not None and epochs < patience + 2:
        log.warning(
            "early_stopping: a patience of %d epochs cannot stop a training of %d epochs early; "
            "pass --num-epochs %d or more, or leave it out",
            patience,
            epochs,
            patience + 2,
        )


def _warn(table: LabelledTable, num_empty: int) -> None:
    if num_empty:
        log.warning(
            "%s: %d texts have no tokens; the model sees only [CLS] [SEP] for them",
            table.name,
            num_empty,
        )
    if table.pairs is not None:
        sides = zip(table.texts, table.pairs, strict=True)
        one_sided = sum(not first.strip() or not second.strip() for first, second in sides)
        if one_sided:
            log.warning("%s: %d pairs have one empty text", table.name, one_sided)


def _rows(plan: Plan) -> dict[str, str]:
    first, several = plan.members[0], len(plan.members)
    rows = {part: f"{len(table):,}" for part, table in plan.tables().items()}
    if plan.with_folds:
        folds = sum(member.seed == first.seed for member in plan.members)
        rows["train"] += f", in {folds} folds, each scored once"
    elif first.dev_rows is not None:
        rows["train"] = f"{len(first.train_rows):,}"
        rows["dev"] = f"{len(first.dev_rows):,} (held out from the training table)"
    skipped = {part: table.num_skipped for part, table in plan.tables().items()}
    shown = {
        f"{part} rows": rows[part] + (f", {skipped[part]:,} skipped" if skipped.get(part) else "")
        for part in ("train", "dev", "test")
        if part in rows
    }
    return shown | ({"models": f"{several}, averaged for predictions"} if several > 1 else {})


def _reading(config: Finetune, encoded: Sequence["EncodedTable"]) -> dict[str, str]:
    total = sum(len(table.texts) for table in encoded)
    cut = sum(table.texts.num_truncated for table in encoded)
    windowed = sum(table.texts.num_windowed for table in encoded)
    unknown = sum(table.texts.num_unknown for table in encoded)
    tokens = sum(table.texts.num_tokens for table in encoded)
    shown = {"tokens that are [UNK]": f"{unknown:,} ({unknown / max(tokens, 1):.1%})"}
    if config.long_texts == "windows":
        return {"texts in windows": f"{windowed:,} ({windowed / total:.1%})", **shown}
    where = {"head": "at the end", "tail": "at the start", "head-tail": "in the middle"}
    return {f"texts cut {where[config.long_texts]}": f"{cut:,} ({cut / total:.1%})", **shown}


def _repeated(plan: Plan, part: str, table: LabelledTable) -> str:
    """Count the rows of a part whose text is also in training, which inflates their scores."""
    if part == "dev" and plan.with_folds:
        return ""

    def rows_of(table: LabelledTable) -> Iterator[tuple[str, str]]:
        return zip(table.texts, table.pairs or table.texts, strict=True)

    seen = set(rows_of(plan.train.take(plan.members[0].train_rows)))
    count = sum(row in seen for row in rows_of(table))
    return f"{count:,} of {len(table):,}" if count else ""
