"""Reading of a training table with its task, and of the tables to score.

No torch here: a bad table is reported before the seconds of importing it.
"""

import dataclasses
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from bertpre.config.schema import Finetune
from bertpre.errors import CorpusError
from bertpre.finetuning.labels import name_lines, name_some, sort_labels
from bertpre.finetuning.registry import find_task, find_task_by_file, task_class
from bertpre.finetuning.tables import Fault, LabelledTable, Rows, read_labelled, tell_faults
from bertpre.finetuning.task import Task

log = logging.getLogger(__name__)


def read_train_table(path: str | Path, config: Finetune) -> tuple[LabelledTable, Task, str]:
    """Read the table to learn from, and determine its task.

    Returns:
        The table, its task, and the reason for the task, for display.

    Raises:
        ConfigError: two options name the same column.
        CorpusError: see `read_table`; or the labels do not differ.
    """
    if config.task != "auto":
        kind, reason = task_class(config.task), "set by --task"
        table, faults = kind.read(path, config)
    elif found := find_task_by_file(path, config):
        kind, reason = found
        table, faults = kind.read(path, config)
    else:
        table, faults = read_labelled(path, config)
        kind, reason = find_task(table.labels, separator=config.label_separator)
    table = _without_faults(table, faults, kind, config)
    return table, kind.learn(table, config=config), reason


def read_table(
    path: str | Path, config: Finetune, task: Task, *, part: Literal["dev", "test"], train_name: str
) -> LabelledTable:
    """Read a table to score.

    Args:
        path: a file of any form that the task reads.
        config: how to read it.
        task: the task of the training table.
        part: its use.
        train_name: the training table, for messages.

    Raises:
        CorpusError: it cannot be read, has no rows, has bad rows that are not to be skipped, or
            has labels that do not occur in training, unless such test labels are scored as errors.
    """
    table, faults = task.read(path, config)
    table = _without_faults(table, faults, type(task), config)
    task.check_scored(table, train_name=train_name)
    unknown = task.unknown(table.labels)
    bad = [line for line, names in zip(table.lines, unknown, strict=True) if names]
    if not bad:
        return table
    names = sort_labels(name for row in unknown for name in row)
    problem = (
        f"{table.name}: labels that {train_name} does not have: "
        f"{name_some([repr(name) for name in names])} on {name_lines(bad)}"
    )
    if part == "test" and task.scores_unknown_labels:
        log.warning("%s; the model cannot predict them, so they count as wrong", problem)
        return table
    if config.on_bad_rows == "skip" and len(bad) < len(table):
        log.warning("%s: skipped", problem)
        kept = np.array([row for row, names in enumerate(unknown) if not names])
        return _skipping(table, kept, len(bad))
    if config.on_bad_rows == "skip":
        raise CorpusError(f"{problem}; no other rows are left", "use a table with other rows")
    raise CorpusError(
        f"{problem}; expected one of {name_some([repr(name) for name in task.known_labels()])}",
        "train on a table with every class, remove these rows, or skip them with "
        "--on-bad-rows skip",
    )


def _without_faults(
    table: LabelledTable, faults: Sequence[Fault], task: type[Task], config: Finetune
) -> LabelledTable:
    """Skip bad rows if that is wanted, or raise an error that lists them all."""
    faults = list(faults)
    is_bad = np.zeros(len(table), dtype=bool)
    for row, line in enumerate(table.lines):
        found = [Fault(line, problem) for problem in task.row_faults(table, row, config)]
        is_bad[row] = bool(found)
        faults += found
    if not faults:
        return table
    message = tell_faults(table.name, faults)
    num_bad = len({fault.line for fault in faults})
    total = num_bad + int((~is_bad).sum())
    if config.on_bad_rows == "error" or num_bad == total:
        hint = (
            "fix or remove these rows, skip them with --on-bad-rows skip, or choose other columns "
            "with --text-column, --label-column"
        )
        raise CorpusError(message, "; ".join(filter(None, (hint, task.fault_hint))))
    log.warning("%d of %d rows skipped: %s", num_bad, total, message)
    return _skipping(table, np.flatnonzero(~is_bad), num_bad)


def _skipping(table: LabelledTable, kept: Rows, num_skipped: int) -> LabelledTable:
    return dataclasses.replace(table.take(kept), num_skipped=table.num_skipped + num_skipped)
