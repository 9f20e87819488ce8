"""Reading of labelled tables; one message lists all bad rows.

No torch here: a bad table is reported before the seconds of importing it.
"""

import dataclasses
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bertpre.config.reading import TableOptions
from bertpre.config.schema import Finetune
from bertpre.corpus.decoding import Decoding
from bertpre.corpus.files import STDIN
from bertpre.corpus.inputs import table_format
from bertpre.corpus.tables import Row, RowError, read_rows
from bertpre.errors import ConfigError, CorpusError
from bertpre.finetuning.labels import name_lines, name_some, sort_labels
from bertpre.finetuning.registry import find_task, task_class
from bertpre.finetuning.task import Rows, Task

log = logging.getLogger(__name__)

_MOST_PROBLEMS = 5  # kinds of problem in one message


class Fault(NamedTuple):
    """A bad row: the line where it starts, from 1, and the problem, by which rows are grouped."""

    line: int
    problem: str


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelledTable:
    """The rows of a table, with the cells unchanged.

    Args:
        name: the file, for messages.
        texts: the text of each row.
        pairs: the second text of each row, in a table of pairs.
        labels: the label of each row.
        lines: the line of the file on which each row starts, from 1.
        num_skipped: bad rows that were left out.
    """

    name: str
    texts: tuple[str, ...]
    pairs: tuple[str, ...] | None = None
    labels: tuple[str, ...]
    lines: tuple[int, ...]
    num_skipped: int = 0

    def __len__(self) -> int:
        return len(self.texts)

    def take(self, rows: Rows) -> "LabelledTable":
        """Return some of the rows, in the order given."""

        def some(cells: Sequence[str]) -> tuple[str, ...]:
            return tuple(cells[row] for row in rows)

        return LabelledTable(
            name=self.name,
            texts=some(self.texts),
            pairs=None if self.pairs is None else some(self.pairs),
            labels=some(self.labels),
            lines=tuple(self.lines[row] for row in rows),
            num_skipped=self.num_skipped,
        )


def read_train_table(path: str | Path, config: Finetune) -> tuple[LabelledTable, Task, str]:
    """Read the table to learn from, and determine its task.

    Returns:
        The table, its task, and the reason for the task, for display.

    Raises:
        ConfigError: two options name the same column.
        CorpusError: see `read_table`; or the labels do not differ.
    """
    table, faults = _read(path, config)
    if config.task == "auto":
        kind, reason = find_task(table.labels, separator=config.label_separator)
    else:
        kind, reason = task_class(config.task), "set by --task"
    table = _without_faults(table, faults, kind, config)
    return table, kind.learn(table.labels, config=config, table=table.name), reason


def read_table(path: str | Path, config: Finetune, task: Task, *, train_name: str) -> LabelledTable:
    """Read a table to score.

    Args:
        path: TSV, CSV, JSON lines or parquet.
        config: how to read it.
        task: the task of the training table.
        train_name: the training table, for messages.

    Raises:
        CorpusError: it cannot be read, has no rows, has bad rows that are not to be skipped, or
            has labels that do not occur in training.
    """
    table, faults = _read(path, config)
    table = _without_faults(table, faults, type(task), config)
    unknown = task.unknown(table.labels)
    bad = [line for line, names in zip(table.lines, unknown, strict=True) if names]
    if not bad:
        return table
    names = sort_labels(name for row in unknown for name in row)
    problem = (
        f"{table.name}: labels that {train_name} does not have: "
        f"{name_some([repr(name) for name in names])} on {name_lines(bad)}"
    )
    if config.on_bad_rows == "skip" and len(bad) < len(table):
        log.warning("%s: skipped", problem)
        kept = np.array([row for row, names in enumerate(unknown) if not names])
        return _skipping(table, kept, len(bad))
    raise CorpusError(
        f"{problem}; expected one of {name_some([repr(name) for name in task.names])}",
        "train on a table with every class, remove these rows, or skip them with "
        "--on-bad-rows skip",
    )


def read_texts(
    path: str | Path,
    config: TableOptions,
    *,
    on_bad: Callable[[RowError], None] | None = None,
    way_out: str | None = None,
) -> Iterator[Row]:
    """Read the text or the pair in every row, even if empty; ignore other columns.

    Args:
        path: the table, or `STDIN`.
        config: how to read it.
        on_bad: called with each row that cannot be read, which is then skipped; without it, one
            error at the end lists all such rows.
        way_out: another way to deal with them, for the hint.

    Raises:
        CorpusError: the table cannot be read, or has bad rows and there is no ``on_bad``.
    """
    columns = [config.text_column]
    if config.pair_column is not None:
        columns.append(config.pair_column)
    bad: list[RowError] = []
    for row in _rows(path, config, columns, on_bad=on_bad or bad.append):
        if not bad:
            yield row
    if bad:
        faults = [Fault(error.line, error.problem) for error in bad]
        hints = dict.fromkeys(error.hint for error in bad if error.hint is not None)
        ways_out = [*(hints or ["fix these rows"]), *([] if way_out is None else [way_out])]
        raise CorpusError(_tell(str(path), faults), "; ".join(ways_out))


def _read(path: str | Path, config: Finetune) -> tuple[LabelledTable, list[Fault]]:
    columns: dict[str, str | int] = {"text_column": config.text_column}
    if config.pair_column is not None:
        columns["pair_column"] = config.pair_column
    columns["label_column"] = config.label_column
    for name, column in columns.items():
        same = [other for other in columns if columns[other] == column and other != name]
        if same:
            raise ConfigError(
                f"{name} and {same[0]} are both {column!r}",
                "choose the columns with --text-column, --pair-column and --label-column",
            )
    _check_is_on_disk(Path(path))
    faults: list[Fault] = []

    def note(error: RowError) -> None:
        faults.append(Fault(error.line, error.problem))

    separators = {config.label_column: config.label_separator}
    rows = list(_rows(path, config, list(columns.values()), on_bad=note, separators=separators))
    if not rows and not faults:
        raise CorpusError(
            f"{path}: has no rows; expected at least one with a text and a label",
            "check the file; if its first line is a row, pass --no-header",
        )
    cells = [row.cells for row in rows]
    table = LabelledTable(
        name=str(path),
        texts=tuple(row[0] for row in cells),
        pairs=None if config.pair_column is None else tuple(row[1] for row in cells),
        labels=tuple(row[-1] for row in cells),
        lines=tuple(row.line for row in rows),
    )
    return table, faults


def _check_is_on_disk(path: Path) -> None:
    """Refuse a pipe, which would be empty when its fingerprint is computed."""
    is_stdin = path == Path("-")
    if is_stdin or (path.exists() and not path.is_file() and not path.is_dir()):
        raise ConfigError(
            f"{'standard input' if is_stdin else path}: expected a file, since a labelled table is "
            "read twice",
            "write it to a file first, and pass that",
        )


def _rows(
    path: str | Path,
    config: TableOptions,
    columns: Sequence[str | int],
    *,
    on_bad: Callable[[RowError], None] | None,
    separators: Mapping[str | int, str] | None = None,
) -> Iterator[Row]:
    path = Path(path)
    if path == STDIN and config.format == "auto":
        raise ConfigError(
            "standard input: the format is unknown, since there is no file name",
            "set it with --format, such as --format tsv",
        )
    return read_rows(
        path,
        format=table_format(path, config.format),
        header=config.header,
        columns=columns,
        quoting=config.quoting,
        decoding=Decoding(encoding=config.encoding, on_bad_bytes=config.on_bad_bytes),
        on_bad_row=on_bad,
        on_bad_width=on_bad,
        on_bad_bytes=lambda count: log.warning(
            "%s: %d byte sequences are not valid %s", path, count, config.encoding
        ),
        list_separators=separators,
    )


def _without_faults(
    table: LabelledTable, faults: Sequence[Fault], task: type[Task], config: Finetune
) -> LabelledTable:
    """Skip bad rows if that is wanted, or raise an error that lists them all."""
    faults = list(faults)
    is_bad = np.zeros(len(table), dtype=bool)
    for row, (text, cell, line) in enumerate(
        zip(table.texts, table.labels, table.lines, strict=True)
    ):
        problems = [task.cell_fault(cell, separator=config.label_separator)]
        if table.pairs is None:
            problems.append("the text is empty" if not text.strip() else None)
        elif not text.strip() and not table.pairs[row].strip():
            problems.append("both texts are empty")
        found = [Fault(line, problem) for problem in problems if problem is not None]
        is_bad[row] = bool(found)
        faults += found
    if not faults:
        return table
    message = _tell(table.name, faults)
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


def _tell(name: str, faults: Iterable[Fault]) -> str:
    lines_of: dict[str, list[int]] = {}
    for fault in sorted(faults):
        lines_of.setdefault(fault.problem, []).append(fault.line)
    told = [f"{problem} on {name_lines(lines)}" for problem, lines in lines_of.items()]
    message = f"{name}: {'; '.join(told[:_MOST_PROBLEMS])}"
    if len(told) > _MOST_PROBLEMS:
        message += f"; and {len(told) - _MOST_PROBLEMS:,} more kinds of problem"
    return message


def _skipping(table: LabelledTable, kept: Rows, num_skipped: int) -> LabelledTable:
    return dataclasses.replace(table.take(kept), num_skipped=table.num_skipped + num_skipped)
