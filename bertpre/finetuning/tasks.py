"""Labelled tables and what they ask for: the classes, and which rows train, choose and test.

No torch: a wrong table is reported before the seconds that importing it takes.
"""

import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bertpre.config.schema import Finetune
from bertpre.data.random64 import derive, permute
from bertpre.errors import ConfigError, CorpusError
from bertpre.text.tables import Row, read_rows, table_format

log = logging.getLogger(__name__)

_MOST_NAMED = 10
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?")
_BREAKS = re.compile(r"[\t\n\r]")


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelledTable:
    """Rows of a table, every cell as the file has it.

    Args:
        name: the file, for messages.
        texts: one text a row.
        labels: one label a row.
        lines: the line of the file that each row starts on, from 1.
    """

    name: str
    texts: tuple[str, ...]
    labels: tuple[str, ...]
    lines: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.texts)

    def take(self, rows: npt.NDArray[np.int64]) -> "LabelledTable":
        """Give some of the rows, in the order asked for."""
        return LabelledTable(
            name=self.name,
            texts=tuple(self.texts[row] for row in rows),
            labels=tuple(self.labels[row] for row in rows),
            lines=tuple(self.lines[row] for row in rows),
        )

    def targets(self, classes: Sequence[str]) -> npt.NDArray[np.int64]:
        """Give the number of each row's class, (rows,) int64."""
        numbers = {label: number for number, label in enumerate(classes)}
        return np.array([numbers[label] for label in self.labels], dtype=np.int64)


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """What a classifier is to learn, and on what it is scored.

    Args:
        classes: the labels of the training file, sorted (as numbers if all are); a class is known
            by its place here.
        train: the rows to learn from.
        dev: the rows that choose the epoch.
        dev_is_split: whether ``dev`` was held out of the training file.
        test: rows that nothing is chosen by, if there are any.
    """

    classes: tuple[str, ...]
    train: LabelledTable
    dev: LabelledTable
    dev_is_split: bool
    test: LabelledTable | None

    def tables(self) -> dict[str, LabelledTable]:
        """Give the tables by the name of their part, the training rows first."""
        given = {"train": self.train, "dev": self.dev, "test": self.test}
        return {part: table for part, table in given.items() if table is not None}


def read_task(
    train: str | Path,
    *,
    dev: str | Path | None,
    test: str | Path | None,
    config: Finetune,
    seed: int,
) -> Task:
    """Read and check the tables of a classification task.

    Args:
        train: table whose labels are the classes.
        dev: table that chooses the epoch; without it a share of the training rows does.
        test: table that is only scored.
        config: how the tables are read, and the share held out.
        seed: decides which rows are held out.

    Raises:
        ConfigError: text and label are one column.
        CorpusError: a table is empty or cannot be read, rows have no text or no label, a label is
            not among the classes, or there are fewer than two classes.
    """
    learnt = read_table(train, config)
    classes = sort_labels(learnt.labels)
    if len(classes) < 2:
        raise CorpusError(
            f"{learnt.name}: all {len(learnt):,} rows have the label {classes[0]!r}; "
            "expected two classes or more",
            "name the right column with --label-column",
        )
    _warn_of_look_alikes(classes, learnt.name)
    given = None if dev is None else read_table(dev, config)
    tested = None if test is None else read_table(test, config)
    for table in (given, tested):
        if table is not None:
            _check_labels(table, classes, learnt.name)
    if given is not None:
        return Task(classes=classes, train=learnt, dev=given, dev_is_split=False, test=tested)
    kept, held_out = split_rows(learnt, classes, fraction=config.dev_fraction, seed=seed)
    return Task(classes=classes, train=kept, dev=held_out, dev_is_split=True, test=tested)


def read_table(path: str | Path, config: Finetune) -> LabelledTable:
    """Read a table with a text and a label in every row.

    Raises:
        ConfigError: text and label are one column.
        CorpusError: it cannot be read, has no rows, or rows have an empty text or label; one
            message for all such rows.
    """
    text_column, label_column = config.text_column, config.label_column
    if text_column == label_column:
        raise ConfigError(
            f"text_column and label_column are both {text_column!r}",
            "name the two columns with --text-column and --label-column",
        )
    rows = list(_rows(path, config, [text_column, label_column]))
    if not rows:
        raise CorpusError(f"{path}: has no rows; expected at least one with a text and a label")
    texts, labels = zip(*(row.cells for row in rows), strict=True)
    lines = tuple(row.line for row in rows)
    problems = [
        f"the text is empty on {_name_lines(lines, [not text.strip() for text in texts])}",
        f"the label is empty on {_name_lines(lines, [not label.strip() for label in labels])}",
        "the label holds a tab or a line break, which a table of predictions cannot, on "
        + _name_lines(lines, [bool(_BREAKS.search(label)) for label in labels]),
    ]
    found = [problem for problem in problems if not problem.endswith(" on ")]
    if found:
        raise CorpusError(
            f"{path}: {'; '.join(found)}",
            "mend or remove these rows, or name other columns with --text-column, --label-column",
        )
    return LabelledTable(name=str(path), texts=texts, labels=labels, lines=lines)


def read_texts(path: str | Path, config: Finetune) -> Iterator[str]:
    """Read the text of every row, whatever else the table holds; a text may be empty."""
    for row in _rows(path, config, [config.text_column]):
        yield row.cells[0]


def sort_labels(labels: Iterable[str]) -> tuple[str, ...]:
    """Give the distinct labels in order: of their values if all are numbers, else of the text."""
    distinct = sorted(set(labels))
    if all(_NUMBER.fullmatch(label) for label in distinct):
        distinct.sort(key=Decimal)  # a stable sort, so "1" stays before "1.0"
    return tuple(distinct)


def split_rows(
    table: LabelledTable, classes: Sequence[str], *, fraction: float, seed: int
) -> tuple[LabelledTable, LabelledTable]:
    """Hold out a share of each class; a class of two rows or more is on both sides.

    Args:
        table: the rows to split; both sides keep their order.
        classes: the labels.
        fraction: share held out, 0 < fraction < 1.
        seed: decides which rows.

    Returns:
        The rows kept and the rows held out.

    Raises:
        CorpusError: no class has two rows, so nothing can be held out.
    """
    targets = table.targets(classes)
    is_held_out = np.zeros(len(table), dtype=bool)
    for number in range(len(classes)):
        rows = np.flatnonzero(targets == number)
        if len(rows) >= 2:
            count = min(max(1, round(fraction * len(rows))), len(rows) - 1)
            key = derive(seed, "dev split", number)
            is_held_out[rows[permute(np.arange(count), len(rows), key)]] = True
    if not is_held_out.any():
        raise CorpusError(
            f"{table.name}: each of the {len(classes)} classes has one row, "
            "so none can be held out to choose the epoch by",
            "give a table of other rows with --dev",
        )
    single = [name for name, count in Counter(table.labels).items() if count == 1]
    if single:
        log.warning(
            "%s: classes of one row (%d), which are trained on and never held out: %s",
            table.name,
            len(single),
            _name_some([repr(name) for name in sort_labels(single)]),
        )
    return table.take(np.flatnonzero(~is_held_out)), table.take(np.flatnonzero(is_held_out))


def _rows(path: str | Path, config: Finetune, columns: Sequence[str | int]) -> Iterator[Row]:
    path = Path(path)
    form = table_format(path, config.format)
    return read_rows(path, format=form, header=config.header, columns=columns)


def _check_labels(table: LabelledTable, classes: Sequence[str], train_name: str) -> None:
    known = set(classes)
    is_unknown = [label not in known for label in table.labels]
    if any(is_unknown):
        unknown = sort_labels(set(table.labels) - known)
        raise CorpusError(
            f"{table.name}: labels that {train_name} does not have: "
            f"{_name_some([repr(name) for name in unknown])} "
            f"on {_name_lines(table.lines, is_unknown)}; "
            f"expected one of {_name_some([repr(name) for name in classes])}",
            "train on a table that has every class, or remove these rows",
        )


def _warn_of_look_alikes(classes: Sequence[str], name: str) -> None:
    seen: dict[str | Decimal, str] = {}
    for label in classes:
        bare = label.strip()
        key = Decimal(bare) if _NUMBER.fullmatch(bare) else bare
        if key in seen:
            log.warning("%s: %r and %r are two classes", name, seen[key], label)
        seen[key] = label


def _name_lines(lines: Sequence[int], is_bad: Sequence[bool]) -> str:
    bad = [str(line) for line, flag in zip(lines, is_bad, strict=True) if flag]
    if not bad:
        return ""
    return f"{'line' if len(bad) == 1 else f'{len(bad):,} lines:'} {_name_some(bad)}"


def _name_some(names: Sequence[str]) -> str:
    rest = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {rest:,} more" if rest > 0 else "")
