"""What a fine-tuning has to do: tables, labels, and which rows train, choose and score in turn.

No torch: a wrong table is reported before the seconds that importing it takes.
"""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bertpre.config.schema import Finetune
from bertpre.errors import ConfigError, CorpusError
from bertpre.finetuning.labelled import LabelledTable, read_table, read_train_table
from bertpre.finetuning.labels import Kind, Labels, name_some, sort_labels
from bertpre.finetuning.splits import Rows, hold_out, make_folds

log = logging.getLogger(__name__)

# Dev scores that may choose the epoch; the first is the default.
METRICS: dict[Kind, tuple[str, ...]] = {
    "classification": ("accuracy", "macro_f1", "micro_f1", "matthews", "loss"),
    "multi-label": ("micro_f1", "macro_f1", "accuracy", "loss"),
    "regression": ("spearman", "pearson", "loss"),
}


class Member(NamedTuple):
    """One training of several, or the only one.

    Attributes:
        name: of its folder, where there are several.
        seed: decides its order, new weights and dropout.
        train_rows: of the training table.
        dev_rows: of the training table; None where a dev table chooses the epoch.
    """

    name: str
    seed: int
    train_rows: Rows
    dev_rows: Rows | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """What classifiers are to learn, and on what they are scored.

    Args:
        labels: what their outputs stand for.
        reason: why the labels are taken for what they are, for people.
        train: the whole training table.
        dev: the table that chooses the epoch, if one was given.
        test: rows that nothing is chosen by, if there are any.
        members: the trainings, in order.
        metric: the dev score that chooses the epoch.
        with_folds: whether the members' dev rows are all rows of the training table.
    """

    labels: Labels
    reason: str
    train: LabelledTable
    dev: LabelledTable | None
    test: LabelledTable | None
    members: tuple[Member, ...]
    metric: str
    with_folds: bool

    def tables(self) -> dict[str, LabelledTable]:
        """Give the tables by the name of their part, the training rows first."""
        given = {"train": self.train, "dev": self.dev, "test": self.test}
        return {part: table for part, table in given.items() if table is not None}

    def scored_rows(self) -> LabelledTable:
        """Give the rows of the dev scores: the dev table, what is held out, or with folds all."""
        rows = self.members[0].dev_rows
        if self.dev is not None:
            return self.dev
        return self.train if rows is None or self.with_folds else self.train.take(rows)


def read_task(
    train: str | Path,
    *,
    dev: str | Path | None,
    test: str | Path | None,
    config: Finetune,
    seed: int,
) -> Task:
    """Read and check the tables of a task.

    Args:
        train: table whose labels are the model's.
        dev: table that chooses the epoch; without it a share of the training rows does.
        test: table that is only scored.
        config: how the tables are read and divided, and what is asked of the training.
        seed: of the splits, and of the first training.

    Raises:
        ConfigError: options contradict each other, or ask for what the labels do not have.
        CorpusError: a table is empty or cannot be read, rows have no text or no label, a label is
            not among those of training, or there are too few rows or labels to learn from.
    """
    if config.folds is not None and dev is not None:
        raise ConfigError(
            "--folds and --dev: with folds every training row chooses in its turn",
            "leave one of them out, or join the two tables",
        )
    if config.long_texts == "windows" and config.pair_column is not None:
        raise ConfigError(
            "long_texts: windows are of single texts, but pair_column names a second one",
            "use head, tail or head-tail",
        )
    table, labels, reason = read_train_table(train, config)
    metric = _pick_metric(config, labels.kind)
    parts = {
        part: None if path is None else read_table(path, config, labels, train_name=table.name)
        for part, path in (("dev", dev), ("test", test))
    }
    seeds = range(seed, seed + config.seeds)
    every = np.arange(len(table))
    if config.folds is not None:
        members = _fold_members(table, labels, config.folds, seeds)
    elif parts["dev"] is not None:
        members = [Member(f"seed-{number}", number, every, None) for number in seeds]
    else:
        strata = labels.strata(table.labels)
        split = hold_out(strata, fraction=config.dev_fraction, seed=seed)
        _check_split(table, labels, len(split.held_out))
        members = [Member(f"seed-{number}", number, *split) for number in seeds]
    return Task(
        labels=labels,
        reason=reason,
        train=table,
        dev=parts["dev"],
        test=parts["test"],
        members=tuple(members),
        metric=metric,
        with_folds=config.folds is not None,
    )


def _fold_members(
    table: LabelledTable, labels: Labels, num_folds: int, seeds: Sequence[int]
) -> list[Member]:
    if len(table) < num_folds:
        raise CorpusError(
            f"{table.name}: {len(table):,} rows cannot make {num_folds} folds",
            f"pass --folds {len(table)} or less" if len(table) > 1 else "give more rows",
        )
    if labels.kind == "classification":
        few = [name for name, count in Counter(table.labels).items() if count < num_folds]
        if few:
            log.warning(
                "%s: classes of fewer rows than folds (%d), which some folds cannot score: %s",
                table.name,
                len(few),
                name_some([repr(name) for name in sort_labels(few)]),
            )
    splits = make_folds(labels.strata(table.labels), num_folds=num_folds, seed=seeds[0])
    return [
        Member(f"fold-{number}" + (f"-seed-{seed}" if len(seeds) > 1 else ""), seed, *split)
        for seed in seeds
        for number, split in enumerate(splits, start=1)
    ]


def _check_split(table: LabelledTable, labels: Labels, num_held_out: int) -> None:
    if num_held_out == 0:
        what = f"each of the {len(labels.names)} classes has one row"
        if labels.kind != "classification":
            what = f"{len(table):,} rows are too few"
        raise CorpusError(
            f"{table.name}: {what}, so none can be held out to choose the epoch by",
            "give a table of other rows with --dev",
        )
    single = [name for name, count in Counter(table.labels).items() if count == 1]
    if single and labels.kind == "classification":
        log.warning(
            "%s: classes of one row (%d), which are trained on and never held out: %s",
            table.name,
            len(single),
            name_some([repr(name) for name in sort_labels(single)]),
        )


def _pick_metric(config: Finetune, kind: Kind) -> str:
    if kind == "regression":
        for name, is_asked in (
            ("label_smoothing", config.label_smoothing > 0),
            ("class_weights", config.class_weights != "none"),
            ("focal_gamma", config.focal_gamma > 0),
        ):
            if is_asked:
                raise ConfigError(
                    f"{name}: is for classes, but the labels are numbers to be predicted",
                    "leave it out; or, if the numbers name classes, pass --task classification",
                )
    if config.metric == "auto":
        return METRICS[kind][0]
    if config.metric not in METRICS[kind]:
        raise ConfigError(
            f"metric: {kind} has no {config.metric}; expected one of {', '.join(METRICS[kind])}",
            "name one of these with --metric",
        )
    return config.metric
