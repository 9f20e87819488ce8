"""Labelled tables and tables to predict, read without regard to what the labels mean.

No torch here: a bad table is reported before the seconds of importing it.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bertpre.config.reading import TableOptions
from bertpre.config.schema import Finetune
from bertpre.corpus.decoding import Decoding
from bertpre.corpus.files import STDIN
from bertpre.corpus.inputs import table_format
from bertpre.corpus.tables import Row, RowError, read_rows
from bertpre.errors import ConfigError, CorpusError
from bertpre.finetuning.labels import name_lines

log = logging.getLogger(__name__)

_MOST_PROBLEMS = 5  # kinds of problem in one message

Rows = npt.NDArray[np.int64]
"""Numbers of rows."""


class Fault(NamedTuple):
    """A bad row: the line where it starts, from 1, and the problem, by which rows are grouped."""

    line: int
    problem: str


class InputRow(NamedTuple):
    """A row to predict.

    Attributes:
        cells: its text, its pair of texts, or its tuple of tokens; None if it cannot be read.
        source: what the task needs to write its prediction.
    """

    cells: tuple[Any, ...] | None
    source: Any = None


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelledTable:
    """The rows of a table, with the cells unchanged.

    Args:
        name: the file, for messages.
        texts: the text of each row; with labels on tokens, a tuple of tokens.
        pairs: the second text of each row, in a table of pairs.
        labels: the label of each row; with labels on tokens, a tuple of tags.
        lines: the line of the file on which each row starts, from 1.
        num_skipped: bad rows that were left out.
        layout: the form of the file, if predictions are written in the same form.
    """

    name: str
    texts: tuple[Any, ...]
    pairs: tuple[str, ...] | None = None
    labels: tuple[Any, ...]
    lines: tuple[int, ...]
    num_skipped: int = 0
    layout: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.texts)

    def sources(self) -> list[str]:
        """Return the text of each row; of a pair, both parts."""
        if self.pairs is None:
            return list(self.texts)
        return [f"{first} {second}" for first, second in zip(self.texts, self.pairs, strict=True)]

    def take(self, rows: Rows) -> "LabelledTable":
        """Return some of the rows, in the order given."""

        def some(cells: Sequence[Any]) -> tuple[Any, ...]:
            return tuple(cells[row] for row in rows)

        return LabelledTable(
            name=self.name,
            texts=some(self.texts),
            pairs=None if self.pairs is None else some(self.pairs),
            labels=some(self.labels),
            lines=tuple(self.lines[row] for row in rows),
            num_skipped=self.num_skipped,
            layout=self.layout,
        )


def read_labelled(path: str | Path, config: Finetune) -> tuple[LabelledTable, list[Fault]]:
    """Read a text or a pair and a label from every row.

    Returns:
        The rows that can be read, and the others' faults.

    Raises:
        ConfigError: two options name the same column, or the file is a pipe.
        CorpusError: the table cannot be read, or has no rows.
    """
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
    check_is_on_disk(Path(path))
    if table_format(Path(path), config.format) == "conll":
        raise ConfigError(
            f"{path}: a file of columns has a tag for each token, not a label for each text",
            "pass --task tagging, or leave --task out",
        )
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


def read_texts(
    path: str | Path,
    config: TableOptions,
    *,
    skips_bad_rows: bool = False,
    way_out: str | None = None,
) -> Iterator[InputRow]:
    """Read the text or the pair in every row, even if empty; ignore other columns.

    Args:
        path: the table, or `STDIN`.
        config: how to read it.
        skips_bad_rows: yield rows that cannot be read without cells; otherwise one error at the
            end lists all of them.
        way_out: another way to deal with them, for the hint.

    Raises:
        CorpusError: the table cannot be read, or has bad rows that are not to be skipped.
    """
    columns = [config.text_column]
    if config.pair_column is not None:
        columns.append(config.pair_column)
    bad: list[RowError] = []
    rows = _rows(path, config, columns, on_bad=bad.append)
    yield from pass_good_rows(
        path, ((row.cells, None) for row in rows), bad, skips=skips_bad_rows, way_out=way_out
    )


def pass_good_rows(
    path: str | Path,
    rows: Iterable[tuple[tuple[Any, ...], Any]],
    bad: list[RowError],
    *,
    skips: bool,
    way_out: str | None,
) -> Iterator[InputRow]:
    """Yield rows to predict; a bad one makes an error at the end, or a row without cells.

    Args:
        path: the file, for messages.
        rows: cells and source of each good row; reading them adds the errors of bad ones to
            ``bad``.
        bad: where these errors arrive.
        skips: yield bad rows without cells.
        way_out: another way to deal with them, for the hint.

    Raises:
        CorpusError: there are bad rows, and ``skips`` is false.
    """
    for cells, source in rows:
        if skips:
            yield from (InputRow(None) for _ in bad)
            bad.clear()
        if not bad:
            yield InputRow(cells, source)
    if bad and skips:
        yield from (InputRow(None) for _ in bad)
    elif bad:
        faults = [Fault(error.line, error.problem) for error in bad]
        hints = dict.fromkeys(error.hint for error in bad if error.hint is not None)
        ways_out = [*(hints or ["fix these rows"]), *([] if way_out is None else [way_out])]
        raise CorpusError(tell_faults(str(path), faults), "; ".join(ways_out))


def check_is_on_disk(path: Path) -> None:
    """Refuse a pipe, which would be empty when its fingerprint is computed.

    Raises:
        ConfigError: it is a pipe.
    """
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


def tell_faults(name: str, faults: Iterable[Fault]) -> str:
    """Write one message about all bad rows of a file, grouped by problem."""
    lines_of: dict[str, list[int]] = {}
    for fault in sorted(faults):
        lines_of.setdefault(fault.problem, []).append(fault.line)
    told = [f"{problem} on {name_lines(lines)}" for problem, lines in lines_of.items()]
    message = f"{name}: {'; '.join(told[:_MOST_PROBLEMS])}"
    if len(told) > _MOST_PROBLEMS:
        message += f"; and {len(told) - _MOST_PROBLEMS:,} more kinds of problem"
    return message
