"""The table of tasks, and how to find one: by name, from labels, or from a model folder.

No other file compares the name of a task.
"""

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bertpre.config.schema import Finetune
from bertpre.errors import DataFormatError
from bertpre.finetuning.task import Task

# In the order in which ``--task auto`` tries them.
TASKS: Mapping[str, str] = {
    "tagging": "bertpre.finetuning.tagging:Tagging",
    "regression": "bertpre.finetuning.regression:Regression",
    "multi-label": "bertpre.finetuning.multi_label:MultiLabel",
    "classification": "bertpre.finetuning.classification:Classification",
    "generation": "bertpre.finetuning.generation:Generation",  # never found by itself
}


def task_class(name: str) -> type[Task]:
    """Import the task of that name."""
    module, _, attribute = TASKS[name].partition(":")
    found: type[Task] = getattr(importlib.import_module(module), attribute)
    return found


def find_task_by_file(path: str | Path, config: Finetune) -> tuple[type[Task], str] | None:
    """Infer the task from the form of a training file, if that shows it.

    Returns:
        The task, and the reason for display; None if the labels must be read.
    """
    for name in TASKS:
        task = task_class(name)
        reason = task.claims_file(Path(path), config)
        if reason is not None:
            return task, reason
    return None


def find_task(cells: Sequence[str], *, separator: str) -> tuple[type[Task], str]:
    """Infer the task from the label cells of the training rows.

    Returns:
        The task, and the reason for display.
    """
    for name in TASKS:
        task = task_class(name)
        reason = task.claims(cells, separator=separator)
        if reason is not None:
            return task, reason
    raise AssertionError("the last task takes any labels")


def task_of(folder: Path, manifest: Mapping[str, Any]) -> Task:
    """Rebuild the task of a model from its manifest.

    Raises:
        DataFormatError: the manifest names no task, as in older versions, or an unknown one.
    """
    if "task" not in manifest:
        raise DataFormatError(
            f"{folder}: an older bertpre wrote this model; its manifest names no task",
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
    """Return the folders of the single models in a model folder: itself or its members."""
    return [folder / name for name in manifest.get("members", [])] or [folder]
