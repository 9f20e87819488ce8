"""What fine-tuning leaves: classifiers that other libraries load, their scores and their errors."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bertpre.artefacts import write_json, write_manifest
from bertpre.finetuning.classifier import Start
from bertpre.finetuning.labelled import LabelledTable
from bertpre.finetuning.labels import Labels
from bertpre.finetuning.pictures import draw_confusions, draw_curves, draw_numbers
from bertpre.finetuning.predictions import OWN_COLUMNS, prediction_header, prediction_lines
from bertpre.finetuning.results import FinetuneResult, MemberResult
from bertpre.finetuning.scores import count_confusions
from bertpre.finetuning.tasks import Task
from bertpre.model.folder import save_model
from bertpre.model.heads import BertForSequenceClassification
from bertpre.tokenizer.folder import state_longest_input

_PROBLEM_TYPES = {  # of the transformers library
    "classification": "single_label_classification",
    "multi-label": "multi_label_classification",
    "regression": "regression",
}


class ModelWriter:
    """Fills a model folder: one model at its top, or several in folders of their own inside it.

    Args:
        folder: an empty folder.
        task: what is learnt.
        start: what the models start from.
        facts: options, counts and fingerprints for the manifests.
    """

    def __init__(
        self, folder: Path, *, task: Task, start: Start, facts: Mapping[str, object]
    ) -> None:
        self._folder = folder
        self._task = task
        self._start = start
        self._facts = {
            **facts,
            "task": task.labels.kind,
            "classes": list(task.labels.names),
            "class_counts": {
                part: _count_labels(task.labels, table) for part, table in task.tables().items()
            },
            "max_seq_length": start.encoder.max_seq_length,
            "pooling": start.pooling,
        }

    def write_model(self, model: BertForSequenceClassification, member: MemberResult) -> None:
        """Write a trained model, and, if it is one of several, finish its folder."""
        is_single = len(self._task.members) == 1
        folder = self._folder if is_single else self._folder / member.name
        folder.mkdir(exist_ok=True)
        tokenizer, names = self._start.encoder.tokenizer, self._task.labels.names
        save_model(
            folder,
            model,
            extra_config={
                "pad_token_id": tokenizer.pad_id,
                "id2label": {str(number): label for number, label in enumerate(names)},
                "label2id": {label: number for number, label in enumerate(names)},
                "problem_type": _PROBLEM_TYPES[self._task.labels.kind],
            },
        )
        tokenizer.save_files(folder)
        longest = self._start.encoder.max_seq_length  # as `predict` cuts
        state_longest_input(folder, longest, is_trained_here=True)
        if not is_single:
            write_json(folder / "metrics.json", member.scores)
            facts = {**self._facts, **_member_facts(member), "seed": member.seed}
            write_manifest(folder, "model", facts | _threshold_facts(member.thresholds))

    def finish(self, result: FinetuneResult) -> None:
        """Write scores, predictions, pictures and the manifest."""
        write_json(self._folder / "metrics.json", _metrics(result))
        tables = {"dev": self._task.scored_rows()}
        if self._task.test is not None:
            tables["test"] = self._task.test
        for part, table in tables.items():
            _write_predictions(self._folder / f"{part}_predictions.tsv", table, result, part)
        histories = {member.name: member.history for member in result.members}
        draw_curves(self._folder / "curves.png", histories, metric=self._task.metric)
        _write_classes(self._folder / "classes.tsv", result)
        _draw_errors(self._folder, result, tables["dev"])
        facts = dict(self._facts)
        if len(result.members) == 1:
            facts |= _member_facts(result.members[0])
        else:
            facts["members"] = [member.name for member in result.members]
        write_manifest(self._folder, "model", facts | _threshold_facts(result.thresholds))


def _count_labels(labels: Labels, table: LabelledTable) -> dict[str, int]:
    if labels.kind == "regression":
        return {}
    return dict(Counter(name for cell in table.labels for name in labels.split(cell)))


def _member_facts(member: MemberResult) -> dict[str, Any]:
    return {
        "best_epoch": member.best_epoch,
        "history": [report._asdict() for report in member.history],
    }


def _threshold_facts(thresholds: npt.NDArray[np.float64] | None) -> dict[str, Any]:
    return {} if thresholds is None else {"thresholds": thresholds.tolist()}


def _metrics(result: FinetuneResult) -> dict[str, Any]:
    metrics: dict[str, Any] = {
        **result.scores,
        "baselines": result.baselines,
        "per_class": {
            part: {
                row.name: {k: v for k, v in row._asdict().items() if k != "name"} for row in rows
            }
            for part, rows in result.class_rows.items()
        },
    }
    if len(result.members) > 1:
        spread = result.spread()
        metrics["members"] = {member.name: member.scores for member in result.members}
        for place, name in enumerate(("mean", "standard_deviation")):
            metrics[name] = {
                part: {score: pair[place] for score, pair in scores.items()}
                for part, scores in spread.items()
            }
    return metrics


def _write_predictions(path: Path, table: LabelledTable, result: FinetuneResult, part: str) -> None:
    # What is true and where the row was come last, so that the first columns are as predict's.
    lines = prediction_lines(result.labels, result.readings[part], result.thresholds)
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write("\t".join([prediction_header(result.labels), *OWN_COLUMNS[1:]]) + "\n")
        for shown, label, line in zip(lines, table.labels, table.lines, strict=True):
            file.write(f"{shown}\t{label}\t{line}\n")


def _write_classes(path: Path, result: FinetuneResult) -> None:
    if not any(result.class_rows.values()):
        return
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write("part\tclass\tprecision\trecall\tf1\trows\n")
        for part, rows in result.class_rows.items():
            for row in rows:
                shares = f"{row.precision:.4f}\t{row.recall:.4f}\t{row.f1:.4f}"
                file.write(f"{part}\t{row.name}\t{shares}\t{row.rows}\n")


def _draw_errors(folder: Path, result: FinetuneResult, table: LabelledTable) -> None:
    labels, readings = result.labels, result.readings["dev"]
    targets, dev = labels.targets(table.labels), result.dev
    if labels.kind == "regression":
        title = f"dev rows: Spearman {dev['spearman']:.3f}, Pearson {dev['pearson']:.3f}"
        draw_numbers(
            folder / "predicted_numbers.png",
            readings[:, 0],
            targets[:, 0].astype(np.float64),
            title=title,
        )
    elif labels.kind == "classification":
        draw_confusions(
            folder / "confusion_matrix.png",
            count_confusions(readings.argmax(axis=1), targets, len(labels.names)),
            labels.names,
            title=f"dev rows: accuracy {dev['accuracy']:.3f}, macro-F1 {dev['macro_f1']:.3f}",
        )
