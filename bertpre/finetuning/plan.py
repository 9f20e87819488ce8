"""The plan of a fine-tuning: its tables, and the rows of each training run.

No torch here: a bad table is reported before the seconds of importing it.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from bertpre.config.schema import Finetune
from bertpre.data.random64 import derive, permute
from bertpre.errors import ConfigError, CorpusError
from bertpre.finetuning.labels import name_some
from bertpre.finetuning.reading import read_table, read_train_table
from bertpre.finetuning.tables import LabelledTable, Rows
from bertpre.finetuning.task import Task

log = logging.getLogger(__name__)


class Member(NamedTuple):
    """One training run of several, or the only one.

    Attributes:
        name: its folder, if there are several.
        seed: decides its order, new weights and dropout.
        train_rows: rows of the training table to learn from.
        dev_rows: held-out rows of the training table; None if there is a dev table.
    """

    name: str
    seed: int
    train_rows: Rows
    dev_rows: Rows | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What to train, and on which rows to score it.

    Args:
        task: the task of the labels.
        config: the options, settled for the task.
        reason: why it is this task, for display.
        train: the whole training table.
        dev: the table that chooses the epoch, if given.
        test: the table that is only scored, if given.
        members: the training runs, in order.
        metric: the dev score that chooses the epoch.
        with_folds: whether the members' dev rows cover the training table.
    """

    task: Task
    config: Finetune
    reason: str
    train: LabelledTable
    dev: LabelledTable | None
    test: LabelledTable | None
    members: tuple[Member, ...]
    metric: str
    with_folds: bool

    def tables(self) -> dict[str, LabelledTable]:
        """Return the tables by part, "train" first."""
        given = {"train": self.train, "dev": self.dev, "test": self.test}
        return {part: table for part, table in given.items() if table is not None}

    def scored_tables(self) -> dict[str, LabelledTable]:
        """Return the scored rows by "dev" and, if there are any, "test".

        The dev rows are the dev table, the held-out rows, or with folds all training rows.
        """
        dev, rows = self.dev or self.train, self.members[0].dev_rows
        if rows is not None and not self.with_folds:
            dev = self.train.take(rows)
        return {"dev": dev} | ({} if self.test is None else {"test": self.test})

    def folds(self) -> list[tuple[Member, ...]]:
        """Group the training runs with the same dev rows: by fold, or all together."""
        num_folds = 1
        if self.with_folds:
            num_folds = sum(member.seed == self.members[0].seed for member in self.members)
        return [self.members[fold::num_folds] for fold in range(num_folds)]


def read_plan(
    train: str | Path,
    *,
    dev: str | Path | None,
    test: str | Path | None,
    config: Finetune,
    seed: int,
) -> Plan:
    """Read and check the tables of a fine-tuning.

    Args:
        train: table to learn from.
        dev: table that chooses the epoch; default: a share of the training rows.
        test: table that is only scored.
        config: how to read and split the tables, and the recipe.
        seed: of the splits, and of the first training run.

    Raises:
        ConfigError: options contradict each other or do not suit the labels.
        CorpusError: a table is empty or cannot be read, rows lack a text or a label, a label does
            not occur in training, or there are too few rows or labels.
    """
    if config.folds is not None and dev is not None:
        raise ConfigError(
            "--folds and --dev exclude each other: with folds, each training row is a dev row once",
            "leave one of them out, or join the two tables",
        )
    if config.long_texts == "windows" and config.pair_column is not None:
        raise ConfigError(
            "long_texts: windows work for single texts only, but pair_column names a second text",
            "use head, tail or head-tail",
        )
    table, task, reason = read_train_table(train, config)
    config = task.settle(config)
    if config.pooling == "compare" and config.pair_column is None:
        raise ConfigError(
            "pooling: compare is for pairs of texts, but there is no second text",
            "name its column with --pair-column, or pass --pooling mean",
        )
    given: tuple[tuple[Literal["dev", "test"], str | Path | None], ...]
    given = (("dev", dev), ("test", test))
    metric = _pick_metric(task, config)
    parts = {
        part: None
        if path is None
        else read_table(path, config, task, part=part, train_name=table.name)
        for part, path in given
    }
    seeds = range(seed, seed + config.seeds)
    every = np.arange(len(table))
    if config.folds is not None:
        members = _fold_members(table, task, config.folds, seeds)
    elif parts["dev"] is not None:
        members = [Member(f"seed-{number}", number, every, None) for number in seeds]
    else:
        split = hold_out(task.strata(table.labels), fraction=config.dev_fraction, seed=seed)
        _check_split(table, task, len(split.held_out))
        members = [Member(f"seed-{number}", number, *split) for number in seeds]
    return Plan(
        task=task,
        config=config,
        reason=reason,
        train=table,
        dev=parts["dev"],
        test=parts["test"],
        members=tuple(members),
        metric=metric,
        with_folds=config.folds is not None,
    )


def _fold_members(
    table: LabelledTable, task: Task, num_folds: int, seeds: Sequence[int]
) -> list[Member]:
    if len(table) < num_folds:
        raise CorpusError(
            f"{table.name}: {len(table):,} rows cannot make {num_folds} folds",
            f"pass --folds {len(table)} or less" if len(table) > 1 else "add rows",
        )
    if few := task.rare_labels(table.labels, fewest=num_folds):
        log.warning(
            "%s: classes with fewer rows than there are folds (%d), so some folds lack them: %s",
            table.name,
            len(few),
            name_some([repr(name) for name in few]),
        )
    splits = make_folds(task.strata(table.labels), num_folds=num_folds, seed=seeds[0])
    return [
        Member(f"fold-{number}" + (f"-seed-{seed}" if len(seeds) > 1 else ""), seed, *split)
        for seed in seeds
        for number, split in enumerate(splits, start=1)
    ]


def _check_split(table: LabelledTable, task: Task, num_held_out: int) -> None:
    single = task.rare_labels(table.labels, fewest=2)
    if num_held_out == 0:
        what = f"each of the {len(single)} classes has only one row"
        if not single or len(table) == 1:
            what = f"{len(table):,} {'row is' if len(table) == 1 else 'rows are'} too few"
        raise CorpusError(
            f"{table.name}: {what}, so none can be held out to choose the epoch",
            "pass a table with other rows as --dev",
        )
    if single:
        log.warning(
            "%s: classes with only one row (%d), which is trained on and never held out: %s",
            table.name,
            len(single),
            name_some([repr(name) for name in single]),
        )


def _pick_metric(task: Task, config: Finetune) -> str:
    if config.metric == "auto":
        return task.metrics[0]
    if config.metric not in task.metrics:
        raise ConfigError(
            f"metric: {task.name} has no {config.metric}; expected one of "
            f"{', '.join(task.metrics)}",
            "pass one of these as --metric",
        )
    return config.metric


class Split(NamedTuple):
    """Numbers of the rows to learn from and of those held out, each ascending."""

    kept: Rows
    held_out: Rows


def hold_out(strata: npt.NDArray[np.int64], *, fraction: float, seed: int) -> Split:
    """Hold out a share of each stratum; a stratum of two rows or more is on both sides.

    Args:
        strata: the group of each row, (rows,).
        fraction: share held out, 0 < fraction < 1.
        seed: decides which rows.

    Returns:
        The split; nothing is held out if each stratum has one row.
    """
    is_held_out = np.zeros(len(strata), dtype=bool)
    for stratum in np.unique(strata):
        rows = np.flatnonzero(strata == stratum)
        if len(rows) >= 2:
            count = min(max(1, round(fraction * len(rows))), len(rows) - 1)
            key = derive(seed, "dev split", int(stratum))
            is_held_out[rows[permute(np.arange(count), len(rows), key)]] = True
    return Split(np.flatnonzero(~is_held_out), np.flatnonzero(is_held_out))


def make_folds(strata: npt.NDArray[np.int64], *, num_folds: int, seed: int) -> list[Split]:
    """Deal the rows of each stratum to folds, as evenly as possible.

    Args:
        strata: the group of each row, (rows,), with ``num_folds`` rows or more in all.
        num_folds: K ≥ 2.
        seed: decides which rows go together.

    Returns:
        K splits; each row is held out in one of them. Fold sizes differ by at most one row.
    """
    fold_of = np.empty(len(strata), dtype=np.int64)
    dealt = 0
    for stratum in np.unique(strata):
        rows = np.flatnonzero(strata == stratum)
        key = derive(seed, "folds", int(stratum))
        shuffled = rows[permute(np.arange(len(rows)), len(rows), key)]
        # Continue where the last stratum ended, or the first folds would get all odd rows.
        fold_of[shuffled] = (dealt + np.arange(len(rows))) % num_folds
        dealt += len(rows)
    return [
        Split(np.flatnonzero(fold_of != fold), np.flatnonzero(fold_of == fold))
        for fold in range(num_folds)
    ]
