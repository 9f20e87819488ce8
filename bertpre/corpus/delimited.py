"""Read rows of csv and tsv files, with or without quoting, and find columns by name."""

import csv
import itertools
import logging
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from bertpre.errors import CorpusError, shorten

log = logging.getLogger(__name__)

Quoting = Literal["auto", "none", "csv"]

# How much of a tsv file is read to detect quoting.
_SAMPLE_CHARACTERS = 1 << 20
_NAMES = {",": "a comma", "\t": "a tab"}


def read_delimited(
    path: Path, lines: Iterator[str], *, format: Literal["csv", "tsv"], quoting: Quoting
) -> tuple[Iterator[tuple[int, list[str]]], bool]:
    """Split lines into cells; a quoted cell may span several lines.

    Args:
        path: for error messages.
        lines: including newlines.
        format: csv uses commas, tsv tabs.
        quoting: csv: a quoted cell may hold anything, with inner quotes doubled; none: quotes are
            text; auto: csv for csv files, and for tsv files that start with cells quoted as by
            pandas or a spreadsheet.

    Returns:
        The first line of each row, from 1, and its cells; no cells for a blank line. And whether
        cells may be quoted.

    Raises:
        CorpusError: unbalanced quotes, while the rows are read.
    """
    is_quoted = quoting == "csv" or (quoting == "auto" and format == "csv")
    if quoting == "auto" and format == "tsv":
        sample = _read_sample(lines, _SAMPLE_CHARACTERS)
        lines = itertools.chain(sample, lines)
        if is_quoted := _looks_quoted(sample):
            log.info(
                "%s: cells look quoted, so they are read with --quoting csv; --quoting none keeps "
                "quotes as text",
                path,
            )
    delimiter = "," if format == "csv" else "\t"
    if is_quoted:
        return _quoted_rows(path, lines, delimiter), True
    return _plain_rows(path, lines, delimiter, warn=quoting == "auto"), False


def write_delimited(cells: Sequence[str], *, format: Literal["csv", "tsv"], is_quoted: bool) -> str:
    """Return the line of a row, which `read_delimited` reads as the same cells.

    Args:
        cells: at least one.
        format: csv uses commas, tsv tabs.
        is_quoted: whether cells may be quoted; they are where they must be.

    Raises:
        CorpusError: a cell needs quotes, but quotes are text.
    """
    delimiter = "," if format == "csv" else "\t"
    if is_quoted:
        special = {delimiter, '"', "\r", "\n"}
        is_blank = list(cells) == [""]
        cells = [
            '"' + cell.replace('"', '""') + '"' if is_blank or special & set(cell) else cell
            for cell in cells
        ]
        return delimiter.join(cells) + "\n"
    for cell in cells:
        if delimiter in cell or "\n" in cell:
            raise CorpusError(
                f"cannot write {shorten(cell)} as {format} without quotes, since it contains "
                f"{'a line break' if delimiter not in cell else _NAMES[delimiter]}",
                "pass --quoting csv if the file has quoted cells; otherwise use JSON lines",
            )
    # A CR at the end of a line would be taken for a part of its end.
    return delimiter.join(cells) + ("\r\n" if cells[-1].endswith("\r") else "\n")


def find_column(path: Path, column: str | int, names: list[str] | None, format: str) -> int:
    """Return the index of a column, from 0.

    Args:
        path: for error messages.
        column: a name, or a number from 1; names in the header take precedence over numbers.
        names: the header; None if there is none.
        format: the format of the file.

    Raises:
        CorpusError: the column is missing or ambiguous.
    """
    if names is not None and str(column) in names:
        if names.count(str(column)) > 1:
            raise CorpusError(
                f"{path}: line 1: {names.count(str(column))} columns are named {column!r}",
                "use the column's number, from 1",
            )
        return names.index(str(column))
    if isinstance(column, int) and 1 <= column <= (sys.maxsize if names is None else len(names)):
        return column - 1
    if names is None:
        raise CorpusError(
            f"{path}: no column {column!r}, as there is no header line",
            "use the column's number, from 1",
        )
    shown = ", ".join(shorten(name) for name in names[:20])
    hint = (
        "choose one of these with --text-column or the like; or, if line 1 is not a header, pass "
        "--no-header and the column's number"
    )
    if len(names) == 1 and format == "csv" and "\t" in names[0]:
        hint = "line 1 contains tabs: pass --format tsv"
    elif len(names) == 1 and format == "tsv" and "," in names[0]:
        hint = "line 1 contains commas: pass --format csv"
    elif any("\r" in name for name in names):
        hint = "the lines end with CR alone: replace it with LF"
    elif len(names) == 1 and "\\t" in names[0]:
        hint = "line 1 contains a backslash and a t instead of tabs: use real tabs"
    elif len(names) == 1 and ";" in names[0]:
        hint = "line 1 contains semicolons: separate the columns by tabs or commas"
    elif all(map(_is_quoted, names)):
        hint = "the names are quoted: pass --quoting csv"
    raise CorpusError(
        f"{path}: line 1: no column {column!r}; found {count_columns(len(names))}: {shown}", hint
    )


def count_columns(number: int) -> str:
    """Format a number of columns."""
    return "1 column" if number == 1 else f"{number} columns"


def _plain_rows(
    path: Path, lines: Iterator[str], delimiter: str, *, warn: bool
) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(lines, start=1):
        content = line.removesuffix("\n").removesuffix("\r")
        cells = content.split(delimiter) if content else []
        if warn and '""' in content and any(_has_doubled_quotes(cell) for cell in cells):
            warn = False
            log.warning(
                "%s: line %d: a cell looks quoted, but its quotes are read as text; --quoting csv "
                "removes them",
                path,
                number,
            )
        yield number, cells


def _quoted_rows(
    path: Path, lines: Iterator[str], delimiter: str
) -> Iterator[tuple[int, list[str]]]:
    csv.field_size_limit(sys.maxsize)
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    start = 1
    try:
        for cells in reader:
            yield start, cells
            start = reader.line_num + 1
    except csv.Error as error:
        raise CorpusError(
            f"{path}: line {start}: not valid csv ({error})",
            'quote cells that contain quotes, and double the inner quotes (""); or, if quotes are '
            "text in this file, pass --quoting none",
        ) from error


def _read_sample(lines: Iterator[str], characters: int) -> list[str]:
    sample, size = [], 0
    for line in lines:
        sample.append(line)
        size += len(line)
        if size >= characters:
            break
    return sample


def _looks_quoted(sample: Sequence[str]) -> bool:
    """Detect whether cells are quoted, by patterns that nobody writes by hand.

    A quoted cell may be just a quoted sentence. What counts is doubled quotes inside one, quotes
    around every cell of several columns, or rows that have the same width only if quoted cells may
    contain tabs and newlines.
    """
    csv.field_size_limit(sys.maxsize)
    rows: list[list[str]] = []
    try:
        rows.extend(filter(None, csv.reader(sample, delimiter="\t", strict=True)))
    except csv.Error as error:
        if "unexpected end" not in str(error):  # the sample may end inside a cell
            return False
    raw = [line.rstrip("\r\n").split("\t") for line in sample if line.rstrip("\r\n")]
    if any(_has_doubled_quotes(cell) for cells in raw for cell in cells):
        return True
    if not raw:
        return False
    if all(len(cells) > 1 and all(map(_is_quoted, cells)) for cells in raw):
        return True
    return len({len(cells) for cells in rows}) == 1 and len({len(cells) for cells in raw}) > 1


def _is_quoted(cell: str) -> bool:
    return len(cell) > 1 and cell[0] == cell[-1] == '"'


def _has_doubled_quotes(cell: str) -> bool:
    inside = cell[1:-1]
    return (
        len(cell) > 3
        and _is_quoted(cell)
        and '""' in inside
        and '"' not in inside.replace('""', "")
    )
