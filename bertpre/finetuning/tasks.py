"""Which tasks there are, and how one is found: by its name, from labels, from a model folder.

No other file compares a task's name: the schema lists the names, and `TASKS` leads from each to its
file.
"""

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bertpre.errors import DataFormatError
from bertpre.finetuning.task import Task

# In the order in which ``--task auto`` asks them whether the labels are theirs.
TASKS: Mapping[str, str] = {
    "regression": "bertpre.finetuning.regression:Regression",
    "multi-label": "bertpre.finetuning.multi_label:MultiLabel",
    "classification": "bertpre.finetuning.classification:Classification",
}


def task_class(name: str) -> type[Task]:
    """Import the task of that name."""
    module, _, attribute = TASKS[name].partition(":")
    found: type[Task] = getattr(importlib.import_module(module), attribute)
    return found


def find_task(cells: Sequence[str], *, separator: str) -> tuple[type[Task], str]:
    """Tell by how the label cells of the training rows look which task they are of.

    Returns:
        The task, and the reason, for people.
    """
    for name in TASKS:
        task = task_class(name)
        reason = task.claims(cells, separator=separator)
        if reason is not None:
            return task, reason
    raise AssertionError("the last task takes any labels")


def task_of(folder: Path, manifest: Mapping[str, Any]) -> Task:
    """Read from a model's manifest what its outputs stand for.

    Raises:
        DataFormatError: an older bertpre wrote it, which knew of one kind of label only; or its
            task is none of ours.
    """
    if "task" not in manifest:
        raise DataFormatError(
            f"{folder}: an older bertpre wrote this model, without the kind of its labels",
            "fine-tune it again with `bertpre finetune`",
        )
    if manifest["task"] not in TASKS:
        raise DataFormatError(
            f"{folder}: task {manifest['task']!r} in its manifest; expected one of "
            f"{', '.join(sorted(TASKS))}",
            "the manifest is damaged, or a newer bertpre wrote it; fine-tune the model again",
        )
    return task_class(manifest["task"]).from_manifest(manifest)


def member_folders(folder: Path, manifest: Mapping[str, Any]) -> list[Path]:
    """Give the folders of the models that a model folder predicts with: its own, or its parts."""
    return [folder / name for name in manifest.get("members", [])] or [folder]
