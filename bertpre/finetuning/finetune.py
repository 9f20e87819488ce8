"""Fine-tuning as a whole: checkpoint and tables in, scored classifier out.

The tables are checked before PyTorch is imported, so that a wrong one costs no waiting.
"""

import dataclasses
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from bertpre.artefacts import check_output, fingerprint, fingerprint_file, stage_folder
from bertpre.config.load import config_to_dict
from bertpre.config.schema import Finetune
from bertpre.finetuning.scores import (
    EpochReport,
    HardScores,
    Scores,
    bag_of_words_baseline,
    is_small_enough,
    majority_baseline,
    score,
)
from bertpre.finetuning.tasks import Task, read_task
from bertpre.training.run_folder import find_checkpoint

log = logging.getLogger(__name__)


class Progress(NamedTuple):
    """How far a stage of fine-tuning is.

    Attributes:
        stage: "tokenising" or "training".
        unit: what is counted.
        done: how many so far.
        total: how many in all.
    """

    stage: str
    unit: str
    done: int
    total: int


Event = dict[str, Any] | Progress | EpochReport  # the start's summary; progress; an epoch's end


@dataclass(frozen=True, kw_only=True, slots=True)
class FinetuneResult:
    """What fine-tuning came to; the same is in the model folder.

    Args:
        output: the model folder.
        classes: the labels, in the order of the model's outputs.
        dev: scores on the dev rows, of the best epoch.
        test: scores on the test rows, if there are any.
        best_epoch: the epoch whose weights were kept, from 1.
        history: every epoch.
        baselines: by the baseline's name, its scores by "dev" and "test".
    """

    output: Path
    classes: tuple[str, ...]
    dev: Scores
    test: Scores | None
    best_epoch: int
    history: tuple[EpochReport, ...]
    baselines: dict[str, dict[str, HardScores]]


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
        on_event: is sent the summary, the progress and the epochs.

    Raises:
        BertpreError: the output exists, a table or the checkpoint is at fault, or the loss
            stopped being finite. Nothing is left at ``output`` then.
    """
    config, output = config or Finetune(), Path(output)
    check_output(output, kind="model", overwrite=overwrite)
    folder = find_checkpoint(checkpoint)
    task = read_task(train, dev=dev, test=test, config=config, seed=seed)
    # From here on with PyTorch.
    from bertpre.finetuning.batches import encode_table
    from bertpre.finetuning.classifier import (
        default_learning_rate,
        log_probabilities,
        start_classifier,
    )
    from bertpre.finetuning.loop import best_epoch, default_num_epochs, fit
    from bertpre.finetuning.model_folder import write_model_folder
    from bertpre.training.devices import pick_device, pick_precision

    device = pick_device(config.device)
    precision = pick_precision(config.precision, device)
    start = start_classifier(folder, num_classes=len(task.classes), config=config, seed=seed)
    learning_rate = config.learning_rate or default_learning_rate(start.hidden_size)
    num_epochs = config.num_epochs or default_num_epochs(len(task.train), config.batch_size)
    config = dataclasses.replace(
        cast(Any, config),
        learning_rate=learning_rate,
        num_epochs=num_epochs,
        max_seq_length=start.max_seq_length,
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
            tables[part] = encode_table(
                start.tokenizer,
                table,
                task.classes,
                max_seq_length=start.max_seq_length,
                on_rows=tell_rows,
            )
        counts = {part: table.counts() for part, table in tables.items()}
        on_event(_summary(task, config, counts, device=str(device), precision=precision))
        baselines = _score_baselines(task)
        history = fit(
            start.model.to(device),
            tables["train"],
            dev=tables["dev"],
            config=config,
            learning_rate=learning_rate,
            num_epochs=num_epochs,
            device=device,
            precision=precision,
            seed=seed,
            on_update=partial(_tell, on_event, "training", "updates"),
            on_epoch=on_event,
        )
        found = {
            part: log_probabilities(start.model, table.texts, device=device, precision=precision)
            for part, table in tables.items()
            if part != "train"
        }
        scores = {part: score(values, tables[part].targets) for part, values in found.items()}
        result = FinetuneResult(
            output=output,
            classes=task.classes,
            dev=scores["dev"],
            test=scores.get("test"),
            best_epoch=best_epoch(history),
            history=history,
            baselines=baselines,
        )
        write_model_folder(
            work,
            start=start,
            task=task,
            result=result,
            dev_probabilities=np.exp(found["dev"]),
            facts={**facts, "counts": counts},
        )
    return result


def _tell(on_event: Callable[[Event], None], stage: str, unit: str, done: int, total: int) -> None:
    on_event(Progress(stage, unit, done, total))


def _score_baselines(task: Task) -> dict[str, dict[str, HardScores]]:
    scored = {part: table for part, table in task.tables().items() if part != "train"}
    found = {"majority": majority_baseline(task.train, task.classes, scored)}
    if is_small_enough(task.train):
        found["tfidf_linear"] = bag_of_words_baseline(task.train, task.classes, scored)
    return found


def _summary(
    task: Task,
    config: Finetune,
    counts: dict[str, dict[str, int]],
    *,
    device: str,
    precision: str,
) -> dict[str, Any]:
    for part, table in task.tables().items():
        if counts[part]["empty_rows"]:
            log.warning(
                "%s: %d texts have no token that the vocabulary knows of; "
                "the model sees [CLS] [SEP] for them",
                table.name,
                counts[part]["empty_rows"],
            )
    rows = {part: f"{len(table):,}" for part, table in task.tables().items()}
    if task.dev_is_split:
        rows["dev"] += " (held out of the training table)"
    cut = sum(count["truncated_rows"] for count in counts.values())
    share = cut / sum(count["rows"] for count in counts.values())
    return {
        "classes": f"{len(task.classes)}",
        **{f"{part} rows": shown for part, shown in rows.items()},
        "max_seq_length": config.max_seq_length,
        "texts cut at the end": f"{cut:,} ({share:.1%})",
        "pooling": config.pooling,
        "weights": "random" if config.from_scratch else "the checkpoint's",
        "learning rate": f"{config.learning_rate:.3g}",
        "epochs": config.num_epochs,
        "batch size": config.batch_size,
        "device": device,
        "precision": precision,
    }
