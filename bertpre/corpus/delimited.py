"""Rows of csv and tsv files: what a quote means in them, and which column a name is."""

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

# How much of a tsv file is looked at to tell whether its cells are quoted.
_SAMPLE_CHARACTERS = 1 << 20


def read_delimited(
    path: Path, lines: Iterator[str], *, format: Literal["csv", "tsv"], quoting: Quoting
) -> Iterator[tuple[int, list[str]]]:
    """Split lines into cells, and join those that a quoted cell spans.

    Args:
        path: named in errors.
        lines: with their newlines.
        format: csv has commas, tsv has tabs.
        quoting: csv: a cell in quotes may hold anything, quotes doubled; none: a quote is text;
            auto: csv for csv files, and for tsv files none unless their beginning shows cells
            quoted as pandas and spreadsheets quote them.

    Yields:
        The line that a row starts on, from 1, and its cells; none for a blank line.

    Raises:
        CorpusError: quotes do not match.
    """
    is_quoted = quoting == "csv" or (quoting == "auto" and format == "csv")
    if quoting == "auto" and format == "tsv":
        sample = _read_sample(lines, _SAMPLE_CHARACTERS)
        lines = itertools.chain(sample, lines)
        if is_quoted := _looks_quoted(sample):
            log.info(
                "%s: read as csv reads quotes, as its cells are quoted so; --quoting none keeps "
                "quotes as text",
                path,
            )
    delimiter = "," if format == "csv" else "\t"
    if is_quoted:
        return _quoted_rows(path, lines, delimiter)
    return _plain_rows(path, lines, delimiter, warn=quoting == "auto")


def find_column(path: Path, column: str | int, names: list[str] | None, format: str) -> int:
    """Return the place of a column, from 0.

    Args:
        path: named in errors.
        column: a name, or a number from 1; a number that is also a name in the header is the name.
        names: those of the header; None without one.
        format: of the file.

    Raises:
        CorpusError: there is no such column, or there are two.
    """
    if names is not None and str(column) in names:
        if names.count(str(column)) > 1:
            raise CorpusError(
                f"{path}: line 1: {names.count(str(column))} columns are called {column!r}",
                "give the column's number, from 1",
            )
        return names.index(str(column))
    if isinstance(column, int) and 1 <= column <= (sys.maxsize if names is None else len(names)):
        return column - 1
    if names is None:
        raise CorpusError(
            f"{path}: without a header line there is no column {column!r}",
            "give the column's number, from 1",
        )
    shown = ", ".join(shorten(name) for name in names[:20])
    hint = (
        "name one of these with --text-column and the like; or, if line 1 is no header, pass "
        "--no-header and give the column's number"
    )
    if len(names) == 1 and format == "csv" and "\t" in names[0]:
        hint = "line 1 holds tabs: state --format tsv"
    elif len(names) == 1 and format == "tsv" and "," in names[0]:
        hint = "line 1 holds commas: state --format csv"
    elif any("\r" in name for name in names):
        hint = "the lines end in CR alone: write LF for it"
    elif len(names) == 1 and "\\t" in names[0]:
        hint = "line 1 holds a backslash and a t in place of tabs: write tabs"
    elif len(names) == 1 and ";" in names[0]:
        hint = "line 1 holds semicolons: separate the columns by tabs or commas"
    elif all(map(_is_quoted, names)):
        hint = "the names are in quotes: read them with --quoting csv"
    raise CorpusError(
        f"{path}: line 1: no column {column!r}; found {count_columns(len(names))}: {shown}", hint
    )


def count_columns(number: int) -> str:
    """Write a number of columns for people."""
    return "1 column" if number == 1 else f"{number} columns"


def _plain_rows(
    path: Path, lines: Iterator[str], delimiter: str, *, warn: bool
) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(lines, start=1):
        content = line.removesuffix("\n").removesuffix("\r")
        cells = content.split(delimiter) if content else []
        if warn and '""' in content and any(_has_doubled_quotes(cell) for cell in cells):
            warn = False  # once is enough
            log.warning(
                "%s: line %d: a cell looks quoted as csv quotes it, and is read as it stands; "
                "--quoting csv reads it without its quotes",
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
            'quote cells that hold quotes, and double the quotes inside (""); or, if quotes are '
            "text in this file, say so with --quoting none",
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
    """Tell whether cells are quoted, by what nobody writes by hand.

    A cell in quotes alone proves nothing, since a sentence may be one. Doubled quotes inside it do,
    and so do quotes around every cell of several columns, or rows that are all of one width only if
    quoted cells may hold tabs and newlines.
    """
    csv.field_size_limit(sys.maxsize)
    rows: list[list[str]] = []
    try:
        rows.extend(filter(None, csv.reader(sample, delimiter="\t", strict=True)))
    except csv.Error as error:
        if "unexpected end" not in str(error):  # the sample may end within a cell
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
