"""What fine-tuning leaves: a classifier that other libraries load, its scores and its errors."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bertpre.artefacts import write_json, write_manifest
from bertpre.finetuning.classifier import Start
from bertpre.finetuning.confusion import draw_confusions
from bertpre.finetuning.finetune import FinetuneResult
from bertpre.finetuning.predict import prediction_header, prediction_lines
from bertpre.finetuning.scores import count_confusions
from bertpre.finetuning.tasks import Task
from bertpre.model.weights import save_weights


def write_model_folder(
    folder: Path,
    *,
    start: Start,
    task: Task,
    result: FinetuneResult,
    dev_probabilities: npt.NDArray[np.float32],
    facts: Mapping[str, object],
) -> None:
    """Write the weights, the tokenizer, the scores and the manifest.

    Args:
        folder: an empty folder.
        start: the model, trained by now, and its tokenizer.
        task: what it was trained on.
        result: how well it does.
        dev_probabilities: (dev rows, classes) of the best epoch.
        facts: options, counts and fingerprints for the manifest.
    """
    classes = task.classes
    save_weights(
        folder,
        start.model,
        extra_config={
            "pad_token_id": start.tokenizer.pad_id,
            "id2label": {str(number): label for number, label in enumerate(classes)},
            "label2id": {label: number for number, label in enumerate(classes)},
            "problem_type": "single_label_classification",
        },
    )
    start.tokenizer.save_files(folder)
    scores = {"dev": result.dev._asdict()}
    if result.test is not None:
        scores["test"] = result.test._asdict()
    baselines = {
        name: {part: found._asdict() for part, found in parts.items()}
        for name, parts in result.baselines.items()
    }
    write_json(folder / "metrics.json", {**scores, "baselines": baselines})
    _write_dev_predictions(folder / "dev_predictions.tsv", task, dev_probabilities)
    draw_confusions(
        folder / "confusion_matrix.png",
        count_confusions(dev_probabilities.argmax(axis=1), task.dev.targets(classes), len(classes)),
        classes,
        title=f"dev rows: accuracy {result.dev.accuracy:.3f}, macro-F1 {result.dev.macro_f1:.3f}",
    )
    write_manifest(
        folder,
        "model",
        {
            **facts,
            "classes": list(classes),
            "class_counts": {
                part: dict(Counter(table.labels)) for part, table in task.tables().items()
            },
            "max_seq_length": start.max_seq_length,
            "pooling": start.pooling,
            "best_epoch": result.best_epoch,
            "history": [
                {"epoch": epoch.epoch, "train_loss": epoch.train_loss, "dev": epoch.dev._asdict()}
                for epoch in result.history
            ],
        },
    )


def _write_dev_predictions(path: Path, task: Task, probabilities: npt.NDArray[np.float32]) -> None:
    # What is true and where the row was come last, so that the first columns are as predict's.
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write(f"{prediction_header(task.classes)}\tlabel\tline\n")
        lines = prediction_lines(task.classes, probabilities)
        for shown, label, line in zip(lines, task.dev.labels, task.dev.lines, strict=True):
            file.write(f"{shown}\t{label}\t{line}\n")
